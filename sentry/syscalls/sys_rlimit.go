package syscalls

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/pkg/abi/linux"
	"runsc/sentry/kernel"
)

// setRlimit changes a limit of a process as t may: EINVAL, EPERM.
func setRlimit(t *kernel.Task, tg *kernel.ThreadGroup, r uint32, l unix.Rlimit) error {
	if l.Cur > l.Max {
		return unix.EINVAL
	}
	if r == unix.RLIMIT_NOFILE && l.Max > uint64(t.Tunables().NrOpen.Load()) {
		return unix.EPERM
	}
	if l.Max > tg.Limit(int(r)).Max && !t.Cred().Has(unix.CAP_SYS_RESOURCE) {
		return unix.EPERM
	}
	tg.SetLimit(int(r), l)
	return nil
}

// sysGetrlimit implements getrlimit(2).
func sysGetrlimit(t *kernel.Task, a Args) (uintptr, error) {
	r := a.Uint(0)
	if r >= linux.RLIM_NLIMITS {
		return 0, unix.EINVAL
	}
	l := t.ThreadGroup().Limit(int(r))
	return done(t.CopyOut(a.Addr(1), abi.Bytes(&l)))
}

// sysSetrlimit implements setrlimit(2).
func sysSetrlimit(t *kernel.Task, a Args) (uintptr, error) {
	var l unix.Rlimit
	if err := t.CopyIn(a.Addr(1), abi.Bytes(&l)); err != nil {
		return 0, err
	}
	r := a.Uint(0)
	if r >= linux.RLIM_NLIMITS {
		return 0, unix.EINVAL
	}
	return done(setRlimit(t, t.ThreadGroup(), r, l))
}

// sysPrlimit64 implements prlimit(2).
func sysPrlimit64(t *kernel.Task, a Args) (uintptr, error) {
	r := a.Uint(1)
	if r >= linux.RLIM_NLIMITS {
		return 0, unix.EINVAL
	}
	var n *unix.Rlimit
	if addr := a.Addr(2); addr != 0 {
		n = new(unix.Rlimit)
		if err := t.CopyIn(addr, abi.Bytes(n)); err != nil {
			return 0, err
		}
	}
	o, err := t.TaskByID(a.Int(0))
	if err != nil {
		return 0, err
	}
	if o.ThreadGroup() != t.ThreadGroup() && !mayPrlimit(t, o) {
		return 0, unix.EPERM
	}
	old := o.ThreadGroup().Limit(int(r))
	if n != nil {
		if err := setRlimit(t, o.ThreadGroup(), r, *n); err != nil {
			return 0, err
		}
	}
	if a.Addr(3) == 0 {
		return 0, nil
	}
	return done(t.CopyOut(a.Addr(3), abi.Bytes(&old)))
}

// mayPrlimit is check_prlimit_permission.
func mayPrlimit(t, o *kernel.Task) bool {
	c, d := t.Cred(), o.Cred()
	return c.Has(unix.CAP_SYS_RESOURCE) ||
		c.UID == d.EUID && c.UID == d.SUID && c.UID == d.UID && c.GID == d.EGID && c.GID == d.SGID && c.GID == d.GID
}

// sysGetrusage implements getrusage(2).
func sysGetrusage(t *kernel.Task, a Args) (uintptr, error) {
	ru, err := t.Rusage(a.Int(0))
	if err != nil {
		return 0, err
	}
	return done(t.CopyOut(a.Addr(1), abi.Bytes(&ru)))
}
