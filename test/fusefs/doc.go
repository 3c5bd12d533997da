// Package fusefs is a file system in memory, served over /dev/fuse, that fails or dawdles as a test wants: a disk
// with errors, for the faults of writing that no real disk shows on demand.
//
// It does what a program that writes a few files in a directory needs: directories, regular files, rename, fsync;
// no links, no devices, no times. The kernel caches nothing of names and attributes, and no write returns before the
// server has answered. The protocol is that of include/uapi/linux/fuse.h in Linux, version 7.31.
package fusefs
