// Package erofs reads EROFS images, the read-only file systems that mkfs.erofs
// makes, from a file of the host: a container's root may be one.
//
// Of the layouts it knows the uncompressed ones: contiguous data, data with
// the tail beside the inode, and chunks with holes. An image that needs more,
// such as compression or other devices, is refused when it is opened.
//
// Pages that are whole in the image are mapped from it: guests, host and other
// sandboxes share the host's page cache. The others, tails and holes, are
// copied into the sandbox's memory when they are mapped, and charged to the
// container. Nothing else is kept of an inode that nobody holds.
//
// An image may be hostile, and may change while it is read. Each offset is
// checked where it is used; what does not fit is EUCLEAN, as with Linux's
// EFSCORRUPTED. A directory may contain itself: only names make a walk end.
//
// It follows Linux's Documentation/filesystems/erofs.rst and the structures
// of fs/erofs/erofs_fs.h.
package erofs
