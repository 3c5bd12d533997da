// Package fuse serves file systems that a program of the guest implements: the
// device /dev/fuse and the file system type fuse. It speaks version 7.31 of the
// protocol that fuse(4) and include/uapi/linux/fuse.h describe, and mirrors
// fs/fuse of Linux without a page cache: each read and write is a request.
//
// A conn joins the device, which the server reads requests from and writes
// answers to, with the mounted FS. Requests wait in the order in which they came. A
// caller that is interrupted by a signal takes back a request that the server
// has not read; else it sends INTERRUPT and waits on, until it is killed. When the last
// device is closed the connection is aborted: who waits gets ECONNABORTED, who
// comes later ENOTCONN.
//
// A file that is mapped has its pages in a file in memory, read when it is
// mapped first. What mappings changed is sent to the server by msync, fsync,
// close and munmap.
//
// In a checkpoint are the connection with all requests, inodes with what the
// server knows of them, and open files. A caller that waits for an answer leaves its
// request in the connection, and takes it up again when its system call is
// entered anew: no request is sent twice.
//
// conn.mu and FS.mu are leaves, but for wait queues.
package fuse
