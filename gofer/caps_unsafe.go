package gofer

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// keptCaps are what file operations on behalf of the Sentry need.
const keptCaps = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH |
	1<<unix.CAP_FOWNER | 1<<unix.CAP_FSETID | 1<<unix.CAP_MKNOD | 1<<unix.CAP_SETFCAP

// dropPrivileges sets no_new_privs and leaves all threads with keptCaps at
// most.
func dropPrivileges() error {
	if _, _, e := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); e != 0 {
		return fmt.Errorf("no_new_privs: %w", e)
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return fmt.Errorf("capget: %w", err)
	}
	data[0].Effective &= keptCaps
	data[0].Permitted &= keptCaps
	data[0].Inheritable = 0
	data[1] = unix.CapUserData{}
	hdr.Pid = 0
	// Invariant: both structures live on this frame for the whole call, which
	// each thread makes with the same pointers and only reads.
	_, _, e := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&hdr)), uintptr(unsafe.Pointer(&data[0])), 0)
	if e != 0 {
		return fmt.Errorf("capset: %w", e)
	}
	return nil
}
