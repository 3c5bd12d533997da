package syscalls

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"runsc/pkg/abi/linux"
	"runsc/sentry/kernel"
	"runsc/sentry/seccompbpf"
)

// sysSeccomp implements seccomp(2).
func sysSeccomp(t *kernel.Task, a Args) (uintptr, error) {
	op, flags, addr := a.Uint(0), a.Uint(1), a.Addr(2)
	switch op {
	case linux.SECCOMP_SET_MODE_STRICT:
		if flags != 0 || addr != 0 {
			return 0, unix.EINVAL
		}
		return done(setSeccompStrict(t))
	case linux.SECCOMP_SET_MODE_FILTER:
		return done(setSeccompFilter(t, flags, addr))
	case linux.SECCOMP_GET_ACTION_AVAIL:
		if flags != 0 {
			return 0, unix.EINVAL
		}
		return done(seccompActionAvail(t, addr))
	}
	return 0, unix.EINVAL
}

// prSetSeccomp implements PR_SET_SECCOMP of prctl(2).
func prSetSeccomp(t *kernel.Task, a Args) (uintptr, error) {
	switch a.Uint64(1) {
	case linux.SECCOMP_MODE_STRICT:
		return done(setSeccompStrict(t))
	case linux.SECCOMP_MODE_FILTER:
		return done(setSeccompFilter(t, 0, a.Addr(2)))
	}
	return 0, unix.EINVAL
}

func setSeccompStrict(t *kernel.Task) error {
	if len(t.SeccompFilters()) > 0 {
		return unix.EINVAL // the mode cannot change
	}
	return t.AddSeccompFilter(seccompbpf.Strict{}, false)
}

// setSeccompFilter follows seccomp_set_mode_filter.
func setSeccompFilter(t *kernel.Task, flags uint32, addr uint64) error {
	const supported = linux.SECCOMP_FILTER_FLAG_TSYNC | linux.SECCOMP_FILTER_FLAG_LOG |
		linux.SECCOMP_FILTER_FLAG_SPEC_ALLOW | linux.SECCOMP_FILTER_FLAG_TSYNC_ESRCH
	if flags&^uint32(supported) != 0 {
		return unix.EINVAL
	}
	var prog [16]byte // struct sock_fprog: length, padding, pointer
	if err := t.CopyIn(addr, prog[:]); err != nil {
		return err
	}
	n := int(binary.LittleEndian.Uint16(prog[:]))
	if n == 0 || n > seccompbpf.MaxInstructions {
		return unix.EINVAL
	}
	if c := t.Cred(); !c.NoNewPrivs && !c.Has(unix.CAP_SYS_ADMIN) {
		return unix.EACCES
	}
	raw := make([]byte, n*seccompbpf.InstructionSize)
	if err := t.CopyIn(binary.LittleEndian.Uint64(prog[8:]), raw); err != nil {
		return err
	}
	p, err := seccompbpf.Parse(raw)
	if err != nil {
		return err
	}
	return t.AddSeccompFilter(p, flags&linux.SECCOMP_FILTER_FLAG_TSYNC != 0)
}

// seccompActionAvail tells whether an action of filters is known.
func seccompActionAvail(t *kernel.Task, addr uint64) error {
	var b [4]byte
	if err := t.CopyIn(addr, b[:]); err != nil {
		return err
	}
	switch binary.LittleEndian.Uint32(b[:]) {
	case unix.SECCOMP_RET_KILL_PROCESS, unix.SECCOMP_RET_KILL_THREAD, unix.SECCOMP_RET_TRAP, unix.SECCOMP_RET_ERRNO,
		unix.SECCOMP_RET_TRACE, unix.SECCOMP_RET_LOG, unix.SECCOMP_RET_ALLOW:
		return nil
	}
	return unix.EOPNOTSUPP
}
