package systrap

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Entries of the auxiliary vector (getauxval(3)).
const (
	atHWCap2      = 26
	atMinSigStkSz = 51

	hwcap2FSGSBase = 1 << 1
)

// auxv returns the value of an entry of the auxiliary vector, 0 if absent.
func auxv(key uintptr) uint64 {
	vec, err := unix.Auxv()
	if err != nil {
		return 0
	}
	for _, kv := range vec {
		if kv[0] == key {
			return uint64(kv[1])
		}
	}
	return 0
}

// cloneFirst clones the first stub and returns its pid or a negative errno.
func cloneFirst(ctlFD int, area int64, base uint64) int {
	full := ^uint64(0)
	var old uint64
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	return int(cloneZygote(uintptr(ctlFD), area, uintptr(base), &full, &old))
}
