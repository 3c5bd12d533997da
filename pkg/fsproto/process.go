package fsproto

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// GoferSysProcAttr returns the attributes with which the gofer process must be
// started: its own mount namespace for all of its threads (a thread of a
// running Go program can only unshare its own), and its own ipc and uts
// namespaces.
func GoferSysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS}
}
