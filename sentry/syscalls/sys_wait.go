package syscalls

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/sentry/arch"
	"runsc/sentry/kernel"
)

// sysWait4 implements wait4(2).
func sysWait4(t *kernel.Task, a Args) (uintptr, error) {
	options := a.Uint(2)
	const known = unix.WNOHANG | unix.WUNTRACED | unix.WCONTINUED | unix.WNOTHREAD | unix.WCLONE | unix.WALL
	if options&^uint32(known) != 0 {
		return 0, unix.EINVAL
	}
	r := kernel.WaitRequest{Options: options | unix.WEXITED}
	switch pid := a.Int(0); {
	case pid == -1<<31:
		return 0, unix.ESRCH
	case pid == -1:
		r.Type = unix.P_ALL
	case pid < 0:
		r.Type, r.ID = unix.P_PGID, -pid
	case pid == 0:
		r.Type = unix.P_PGID
	default:
		r.Type, r.ID = unix.P_PID, pid
	}
	res, err := t.Wait(&r)
	if err != nil || res.PID == 0 {
		return 0, err
	}
	if addr := a.Addr(1); addr != 0 {
		if err := t.CopyOut(addr, abi.Bytes(&res.Status)); err != nil {
			return 0, err
		}
	}
	if addr := a.Addr(3); addr != 0 {
		if err := t.CopyOut(addr, abi.Bytes(&res.Rusage)); err != nil {
			return 0, err
		}
	}
	return uintptr(res.PID), nil
}

// sysWaitid implements waitid(2) with the system call's fifth argument.
func sysWaitid(t *kernel.Task, a Args) (uintptr, error) {
	options := a.Uint(3)
	const what = unix.WEXITED | unix.WSTOPPED | unix.WCONTINUED
	const known = what | unix.WNOHANG | unix.WNOWAIT | unix.WNOTHREAD | unix.WCLONE | unix.WALL
	if options&^uint32(known) != 0 || options&what == 0 {
		return 0, unix.EINVAL
	}
	r := kernel.WaitRequest{Type: a.Int(0), ID: a.Int(1), Options: options}
	switch r.Type {
	case unix.P_ALL:
	case unix.P_PID:
		if r.ID <= 0 {
			return 0, unix.EINVAL
		}
	case unix.P_PGID:
		if r.ID < 0 {
			return 0, unix.EINVAL
		}
	case unix.P_PIDFD:
		f, err := t.Files().Get(r.ID)
		if err != nil {
			return 0, err
		}
		defer f.DecRef()
		if r.Target, err = kernel.PIDFDTarget(f); err != nil {
			return 0, err
		}
		if f.NonBlocking() && options&unix.WNOHANG == 0 {
			r.Options |= unix.WNOHANG
		}
	default:
		return 0, unix.EINVAL
	}
	res, err := t.Wait(&r)
	if err != nil {
		return 0, err
	}
	if res.PID == 0 && options&unix.WNOHANG == 0 {
		return 0, unix.EAGAIN // a non-blocking pidfd
	}
	if addr := a.Addr(4); addr != 0 && res.PID != 0 {
		if err := t.CopyOut(addr, abi.Bytes(&res.Rusage)); err != nil {
			return 0, err
		}
	}
	addr := a.Addr(2)
	if addr == 0 {
		return 0, nil
	}
	// With no child ready Linux stores zeros. Only the fields that waitid
	// fills are written, up to si_status.
	var info arch.SigInfo
	if res.PID != 0 {
		info.Signo, info.Code = int32(unix.SIGCHLD), res.Code
		info.SetPID(res.PID)
		info.SetUID(res.UID)
		info.SetStatus(res.Value)
	}
	b := abi.Bytes(&info)
	if err := t.CopyOut(addr, b[:12]); err != nil {
		return 0, err
	}
	return done(t.CopyOut(addr+16, b[16:28]))
}
