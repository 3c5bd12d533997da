package systrap

func stubBlobAddr() uintptr

// cloneZygote clones the first stub; see fork_amd64.s.
//
//go:noescape
func cloneZygote(fd uintptr, off int64, base uintptr, full, old *uint64) int64

//go:noescape
func spinWhile(addr *uint32, mask, n uint32) uint32

//go:noescape
func spinUntil(addr *uint32, want, n uint32) uint32

func pause(n uint32)

func rdtsc() uint64

func rdtscp() uint32

func xcr0() uint64

func cpuid(leaf, sub uint32) (a, b, c, d uint32)
