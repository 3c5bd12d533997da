package boot

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// capsetAllThreads sets the permitted and effective sets of every thread and
// empties the inheritable set.
func capsetAllThreads(caps uint64) error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	lo, hi := uint32(caps), uint32(caps>>32)
	data := [2]unix.CapUserData{{Effective: lo, Permitted: lo}, {Effective: hi, Permitted: hi}}
	// Invariant: capset(2) reads both structures only during the calls.
	_, _, e := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&hdr)), uintptr(unsafe.Pointer(&data)), 0)
	if e != 0 {
		return e
	}
	return nil
}
