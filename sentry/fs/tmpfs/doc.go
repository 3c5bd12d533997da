// Package tmpfs keeps files in guest memory: the rootfs's writable layer,
// /tmp, /dev/shm and memfds. Bytes of regular files live in frames of the
// memfile, everything else in the Sentry. It mirrors mm/shmem.c of Linux.
//
// Lock order: file.ioMu (slept under), FS.treeMu, inode.mu, file.pagesMu.
// Page faults enter by file.Region and take pagesMu only.
package tmpfs
