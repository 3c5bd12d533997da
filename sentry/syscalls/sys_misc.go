package syscalls

import (
	"crypto/rand"

	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/pkg/abi/linux"
	"runsc/sentry/clock"
	"runsc/sentry/kernel"
)

// utsLen is __NEW_UTS_LEN.
const utsLen = 64

// sysUname implements uname(2).
func sysUname(t *kernel.Task, a Args) (uintptr, error) {
	var u unix.Utsname
	host, domain := t.UTS().Names()
	copy(u.Sysname[:], linux.Sysname)
	copy(u.Nodename[:utsLen], host)
	copy(u.Release[:], linux.Release)
	copy(u.Version[:], linux.Version)
	copy(u.Machine[:], "x86_64")
	copy(u.Domainname[:utsLen], domain)
	return done(t.CopyOut(a.Addr(0), abi.Bytes(&u)))
}

// copyInUTSName reads the argument of sethostname and setdomainname.
func copyInUTSName(t *kernel.Task, a Args) (string, error) {
	if !t.Cred().Has(unix.CAP_SYS_ADMIN) {
		return "", unix.EPERM
	}
	n := a.Int(1)
	if n < 0 || n > utsLen {
		return "", unix.EINVAL
	}
	b := make([]byte, n)
	err := t.CopyIn(a.Addr(0), b)
	return string(b), err
}

// sysSethostname implements sethostname(2).
func sysSethostname(t *kernel.Task, a Args) (uintptr, error) {
	s, err := copyInUTSName(t, a)
	if err == nil {
		t.UTS().SetHost(s)
	}
	return 0, err
}

// sysSetdomainname implements setdomainname(2).
func sysSetdomainname(t *kernel.Task, a Args) (uintptr, error) {
	s, err := copyInUTSName(t, a)
	if err == nil {
		t.UTS().SetDomain(s)
	}
	return 0, err
}

func sysGetpid(t *kernel.Task, a Args) (uintptr, error)  { return uintptr(t.TGID()), nil }
func sysGettid(t *kernel.Task, a Args) (uintptr, error)  { return uintptr(t.TID()), nil }
func sysGetppid(t *kernel.Task, a Args) (uintptr, error) { return uintptr(t.PPID()), nil }

// sysSetsid implements setsid(2).
func sysSetsid(t *kernel.Task, a Args) (uintptr, error) {
	id, err := t.SetSID()
	return uintptr(id), err
}

// sysGetsid implements getsid(2).
func sysGetsid(t *kernel.Task, a Args) (uintptr, error) {
	id, err := t.GetSID(a.Int(0))
	return uintptr(id), err
}

// sysSetpgid implements setpgid(2).
func sysSetpgid(t *kernel.Task, a Args) (uintptr, error) {
	return done(t.SetPGID(a.Int(0), a.Int(1)))
}

// sysGetpgid implements getpgid(2).
func sysGetpgid(t *kernel.Task, a Args) (uintptr, error) {
	id, err := t.GetPGID(a.Int(0))
	return uintptr(id), err
}

// sysGetpgrp implements getpgrp(2).
func sysGetpgrp(t *kernel.Task, a Args) (uintptr, error) {
	id, err := t.GetPGID(0)
	return uintptr(id), err
}

// sysTimes implements times(2).
func sysTimes(t *kernel.Task, a Args) (uintptr, error) {
	u, s := t.ThreadGroup().CPUTime()
	cu, cs := t.ThreadGroup().ChildCPUTime()
	if addr := a.Addr(0); addr != 0 {
		tms := [4]int64{u / clock.TickNanos, s / clock.TickNanos, cu / clock.TickNanos, cs / clock.TickNanos}
		if err := t.CopyOut(addr, abi.Bytes(&tms)); err != nil {
			return 0, err
		}
	}
	return uintptr(t.Now() / clock.TickNanos), nil
}

// sysSysinfo implements sysinfo(2) with the container's view of memory.
func sysSysinfo(t *kernel.Task, a Args) (uintptr, error) {
	total, free := t.Kernel().MemInfo(t.Container())
	tasks, _ := t.Kernel().Tasks()
	si := unix.Sysinfo_t{
		Uptime: t.Kernel().Uptime() / 1e9, Totalram: total, Freeram: free, Procs: uint16(min(tasks, 0xffff)), Unit: 1,
	}
	return done(t.CopyOut(a.Addr(0), abi.Bytes(&si)))
}

// maxRandom is what one getrandom(2) gives at most (getrandom(2), NOTES).
const maxRandom = 1<<25 - 1

// sysGetrandom implements getrandom(2).
func sysGetrandom(t *kernel.Task, a Args) (uintptr, error) {
	flags := a.Uint(2)
	const insecure = unix.GRND_INSECURE | unix.GRND_RANDOM
	if flags&^uint32(unix.GRND_NONBLOCK|insecure) != 0 || flags&insecure == insecure {
		return 0, unix.EINVAL
	}
	dst, err := t.UserBuf(a.Addr(0), min(a.Size(1), maxRandom))
	if err != nil {
		return 0, err
	}
	var buf [4096]byte
	n := 0
	for dst.Len() > 0 {
		b := buf[:min(dst.Len(), len(buf))]
		_, _ = rand.Read(b) // never fails (crypto/rand)
		k, err := dst.CopyOut(b)
		n += k
		if err != nil && n == 0 {
			return 0, err
		}
		if err != nil || t.SignalPending() && n >= 256 {
			break
		}
	}
	return uintptr(n), nil
}

// sysPersonality implements personality(2).
func sysPersonality(t *kernel.Task, a Args) (uintptr, error) {
	old := t.Personality()
	if p := a.Uint(0); p != 0xffffffff {
		t.SetPersonality(p)
	}
	return uintptr(old), nil
}

// sysSyslog implements syslog(2) of a kernel whose log is empty.
func sysSyslog(t *kernel.Task, a Args) (uintptr, error) {
	const readAll, sizeUnread, sizeBuffer = 3, 9, 10
	op := a.Int(0)
	if op < 0 || op > sizeBuffer {
		return 0, unix.EINVAL
	}
	if !t.Cred().Has(unix.CAP_SYSLOG) {
		return 0, unix.EPERM
	}
	switch op {
	case 2, readAll, 4:
		if a.Addr(1) == 0 || a.Int(2) < 0 {
			return 0, unix.EINVAL
		}
	}
	return 0, nil
}

// sysNotPermitted implements calls that a container may not make even as root.
func sysNotPermitted(t *kernel.Task, a Args) (uintptr, error) { return 0, unix.EPERM }
