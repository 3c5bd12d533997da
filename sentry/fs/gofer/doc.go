// Package gofer is the client for host files: the file systems of a container
// that live on the host, its root and its bind mounts.
//
// In direct mode, the only one yet, the Sentry does the system calls itself on
// O_PATH descriptors that the gofer process opened in the container's own mount
// trees. Every name it gives the host is one component, resolved beneath a
// directory descriptor and without following links, so that no name leads out
// of a tree whatever else happens in it.
//
// Key types: Client (one per sandbox: inode numbers, descriptor cache),
// Filesystem (one per mount), inode. Host descriptors are opened on demand
// from an inode's place in the tree, shared by all open file descriptions of
// the inode, and closed when they are idle and many.
//
// Locks: Filesystem.mu (table of inodes), inode.mu (attributes, place),
// fdCache.mu, Numbers.mu are leaves; no host call is made under them except
// that inode.appendMu covers an append.
package gofer
