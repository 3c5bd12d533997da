// Package gofer is the client for host files: the file systems of a container
// that live on the host, its root and its bind mounts.
//
// What it asks of the host goes through a hostfs.Backend: in direct mode that
// is the Sentry itself, with O_PATH descriptors that the gofer process opened in
// the container's own mount trees, in remote mode the gofer process. Data is
// read, written and mapped by descriptors of the Sentry's own in both.
//
// Key types: Client (one per sandbox: inode numbers, descriptor cache,
// notifier), Filesystem (one per mount), inode. Host descriptors are opened on demand
// from an inode's place in the tree, shared by all open file descriptions of
// the inode, and closed when they are idle and many.
//
// Locks: Filesystem.mu (table of inodes), inode.mu (attributes, place),
// fdCache.mu, Numbers.mu are leaves; no host call is made under them except
// that inode.appendMu covers an append. notifier.mu covers calls about inotify.
package gofer
