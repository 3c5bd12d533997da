package systrap

import (
	"math"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data.
const (
	sdNr     = 0
	sdArch   = 4
	sdIPLow  = 8
	sdIPHigh = 12
	sdArg0   = 16
	sdArg1   = 24
)

// Codes of arch_prctl(2).
const (
	archSetGS = 0x1001
	archSetFS = 0x1002
)

// rule permits a system call, if arg is not 0 only with one of values in the
// low half of the argument at that offset of seccomp_data.
type rule struct {
	nr     uint32
	arg    uint32
	values []uint32
}

// leaderRules are the calls of the leader. They are also in force for guest
// threads, whose own filter is stricter.
func leaderRules(ctlFD int) []rule {
	return []rule{
		{nr: unix.SYS_FUTEX, arg: sdArg1, values: []uint32{0, 1}},
		{nr: unix.SYS_RT_SIGRETURN},
		{nr: unix.SYS_SCHED_YIELD},
		{nr: unix.SYS_MMAP},
		{nr: unix.SYS_MUNMAP},
		{nr: unix.SYS_MPROTECT},
		{nr: unix.SYS_PWRITE64, arg: sdArg0, values: []uint32{uint32(ctlFD)}},
		{nr: unix.SYS_ARCH_PRCTL, arg: sdArg0, values: []uint32{archSetFS, archSetGS}},
		{nr: unix.SYS_CLONE},
		{nr: unix.SYS_EXIT},
		{nr: unix.SYS_EXIT_GROUP},
		{nr: unix.SYS_SIGALTSTACK},
		{nr: unix.SYS_SECCOMP, arg: sdArg0, values: []uint32{unix.SECCOMP_SET_MODE_FILTER}},
		{nr: unix.SYS_PRCTL, arg: sdArg0, values: []uint32{unix.PR_SET_PDEATHSIG}},
	}
}

// guestRules are the calls that a guest thread may make, wherever in the stub
// it jumps and with whatever in its registers.
func guestRules() []rule {
	return []rule{
		{nr: unix.SYS_RT_SIGRETURN},
		{nr: unix.SYS_FUTEX, arg: sdArg1, values: []uint32{0, 1}},
		{nr: unix.SYS_SCHED_YIELD},
		{nr: unix.SYS_ARCH_PRCTL, arg: sdArg0, values: []uint32{archSetFS, archSetGS}},
		{nr: unix.SYS_EXIT},
	}
}

// compileFilter returns a program that permits rules for the 64-bit entry
// from [base, base+stubCodeSize) and raises SIGSYS for all else.
func compileFilter(base uint64, rules []rule) []unix.SockFilter {
	const (
		ld  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		jeq = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		jge = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		ret = unix.BPF_RET | unix.BPF_K
	)
	trap := unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_TRAP}
	allow := unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ALLOW}
	low, high := uint32(base), uint32(base>>32)
	prog := []unix.SockFilter{
		{Code: ld, K: sdArch},
		{Code: jeq, K: unix.AUDIT_ARCH_X86_64, Jt: 1}, trap,
		{Code: ld, K: sdIPHigh},
		{Code: jeq, K: high, Jt: 1}, trap,
		{Code: ld, K: sdIPLow},
		{Code: jge, K: low, Jt: 1}, trap,
	}
	if end := uint64(low) + stubCodeSize; end <= math.MaxUint32 {
		prog = append(prog, unix.SockFilter{Code: jge, K: uint32(end), Jf: 1}, trap)
	}
	prog = append(prog, unix.SockFilter{Code: ld, K: sdNr})
	for _, r := range rules {
		if r.arg == 0 {
			prog = append(prog, unix.SockFilter{Code: jeq, K: r.nr, Jf: 1}, allow)
			continue
		}
		n := uint8(2*len(r.values) + 2)
		prog = append(prog, unix.SockFilter{Code: jeq, K: r.nr, Jf: n}, unix.SockFilter{Code: ld, K: r.arg})
		for _, v := range r.values {
			prog = append(prog, unix.SockFilter{Code: jeq, K: v, Jf: 1}, allow)
		}
		prog = append(prog, trap)
	}
	return append(prog, trap)
}
