// Package vfs is the virtual file system: the mount tree, the one path
// walker, dentries, open file descriptions and descriptor tables.
//
// File systems implement Inode, Dir and FileOps and never see a mount, a
// symlink being followed or a permission check: walk.go alone knows those.
// It mirrors fs/namei.c, fs/namespace.c, fs/open.c, fs/read_write.c of Linux.
package vfs
