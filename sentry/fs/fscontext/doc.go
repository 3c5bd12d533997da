// Package fscontext is the configuration of a file system to be mounted, as
// fsopen(2) and fspick(2) open it: fsconfig(2) fills it in, fsmount(2) takes
// the mount out of it, and reading gives the messages of what went wrong. It
// mirrors fs/fsopen.c and fs/fs_context.c of Linux.
//
// A context holds a mount of its own of the file system, in no tree, so that
// the file system stays while it can be reconfigured. A checkpoint keeps what
// was set and the messages not read yet.
package fscontext
