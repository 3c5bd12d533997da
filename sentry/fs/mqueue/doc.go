// Package mqueue is POSIX message queues (mq_overview(7)) and the file system
// that shows them, mqueue. It mirrors ipc/mqueue.c of Linux.
//
// An IPC namespace has one file system, however often it is mounted: all its
// mounts show one superblock. Queues are its files; reading one gives a line
// about it, sending and receiving go through Queue. A checkpoint keeps queues
// with their messages, whether somebody has them open or not, and who asked to
// be notified.
//
// Locks: FS.mu (a leaf), Queue.mu < users.mu.
package mqueue
