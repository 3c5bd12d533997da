// Package overlay unites one writable directory tree with read-only ones below
// it. It mirrors fs/overlayfs of Linux with default options (no redirect_dir,
// no index, no metacopy), and keeps its format in the upper layer: whiteouts
// are 0/0 character devices, trusted.overlay.opaque hides what is below a
// directory, trusted.overlay.origin remembers the inode number that a file had
// before it was copied up. With the option userxattr these are user.overlay's. Lower
// layers may also have whiteouts that are empty files with the attribute whiteout.
//
// As on Linux: renaming a directory that exists below is EXDEV; names of one
// lower file part when one of them is copied up; a descriptor opened for
// reading sees what is written through others after the copy-up, a mapping
// made before does not. Otherwise than on Linux all of an overlay has one
// st_dev, with the inode numbers of the layers, as with xino=on.
//
// Layers are inodes of other file systems, used directly and not through
// mounts; the lower ones must not change. Nothing but Linux's vfs rules keeps
// two changes of one directory apart, so the upper file system has to lock by
// itself, as tmpfs does.
//
// Lock order: node.mu of a directory before those of its entries; then the
// locks of the layers.
package overlay
