// Package linux holds constants and flat structures of the Linux system call
// ABI that golang.org/x/sys/unix lacks, one file per family. Names follow the
// uapi headers.
package linux
