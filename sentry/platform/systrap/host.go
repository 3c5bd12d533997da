package systrap

import (
	"syscall"

	"golang.org/x/sys/unix"

	"runsc/pkg/cpufeature"
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

// cloneFirst clones the first stub and returns its pid or a negative errno. The
// goroutine is locked to its thread. Whether CPUID faults is inherited by all
// that is cloned of a thread, and no guest can make the call that changes it.
func cloneFirst(ctlFD int, area int64, base uint64, faultCPUID bool) int {
	if faultCPUID {
		if e := cpufeature.SetFaulting(true); e != 0 {
			return -int(e)
		}
		defer cpufeature.SetFaulting(false)
	}
	full := ^uint64(0)
	var old uint64
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	return int(cloneZygote(uintptr(ctlFD), area, uintptr(base), &full, &old))
}
