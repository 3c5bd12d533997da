// Package vfs is the virtual file system: the mount tree, the one path
// walker, dentries, open file descriptions and descriptor tables.
//
// File systems implement Inode, Dir and FileOps (api.go) and never see a
// mount, a symlink being followed or a permission check: walk.go alone knows
// those. System calls use the *At functions, File and FDTable; boot also uses
// Namespace, MountAt and the Register functions. It mirrors fs/namei.c,
// fs/dcache.c, fs/namespace.c, fs/open.c, fs/read_write.c, fs/locks.c and
// fs/file.c of Linux.
//
// Dentries are cache: a name that nothing refers to stays, if its file system
// allows, on a list of bounded length. What a checkpoint keeps of this package
// are mounts, contexts, open files (path, flags, offset, owner), descriptor
// tables and locks, all of them flat.
//
// Lock order, first to last. Those marked * may be held across calls of a
// file system, which may copy to or from the guest:
//
//	File.offMu*
//	Superblock.renameMu*
//	Dentry.dirMu*          a directory before those in it
//	mounts
//	Superblock.nameMu
//	Dentry.mu              two only in rename.move, under nameMu
//	inUse.mu, watches.mu, the queues of files
//	unused.mu, locks.mu, FDTable.mu, File.mu, FSContext.mu: leaves, but for
//	                       wait queues
//
// Signals about files are left to ioEvents by whoever finds them, and sent with
// no lock held.
package vfs
