package syscalls

import (
	"math"

	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/sentry/errs"
	"runsc/sentry/fs/anon"
	"runsc/sentry/kernel"
	"runsc/sentry/vfs"
)

// sysEpollCreate implements epoll_create(2), whose size must only be positive.
func sysEpollCreate(t *kernel.Task, a Args) (uintptr, error) {
	if a.Int(0) <= 0 {
		return 0, unix.EINVAL
	}
	return installAnon(t, "[eventpoll]", anon.NewEpoll(), 0)
}

// sysEpollCreate1 implements epoll_create1(2).
func sysEpollCreate1(t *kernel.Task, a Args) (uintptr, error) {
	flags := a.Uint(0)
	if flags&^unix.EPOLL_CLOEXEC != 0 {
		return 0, unix.EINVAL
	}
	return installAnon(t, "[eventpoll]", anon.NewEpoll(), flags)
}

// getEpoll returns the instance of a descriptor and its file's new reference.
func getEpoll(t *kernel.Task, fd int32) (*anon.Epoll, *vfs.File, error) {
	f, err := getFile(t, fd)
	if err != nil {
		return nil, nil, err
	}
	if ep, ok := f.Ops().(*anon.Epoll); ok {
		return ep, f, nil
	}
	f.DecRef()
	return nil, nil, unix.EINVAL
}

// sysEpollCtl implements epoll_ctl(2).
func sysEpollCtl(t *kernel.Task, a Args) (uintptr, error) {
	epfd, op, fd := a.Int(0), a.Int(1), a.Int(2)
	var ev unix.EpollEvent
	if op != unix.EPOLL_CTL_DEL {
		if err := t.CopyIn(a.Addr(3), abi.Bytes(&ev)); err != nil {
			return 0, err
		}
	}
	epf, err := getFile(t, epfd)
	if err != nil {
		return 0, err
	}
	defer epf.DecRef()
	f, err := getFile(t, fd)
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	if _, ok := f.Ops().(vfs.Waitable); !ok {
		return 0, unix.EPERM // before EINVAL, as do_epoll_ctl has it
	}
	ep, ok := epf.Ops().(*anon.Epoll)
	if !ok || epf == f {
		return 0, unix.EINVAL
	}
	data := uint64(uint32(ev.Fd)) | uint64(uint32(ev.Pad))<<32
	switch op {
	case unix.EPOLL_CTL_ADD:
		return done(ep.Add(f, fd, ev.Events, data))
	case unix.EPOLL_CTL_MOD:
		return done(ep.Modify(f, fd, ev.Events, data))
	case unix.EPOLL_CTL_DEL:
		return done(ep.Delete(f, fd))
	}
	return 0, unix.EINVAL
}

// sysEpollWait implements epoll_wait(2).
func sysEpollWait(t *kernel.Task, a Args) (uintptr, error) {
	return epollWait(t, a, epollDeadline(t, a.Int(3)))
}

// sysEpollPwait implements epoll_pwait(2).
func sysEpollPwait(t *kernel.Task, a Args) (uintptr, error) {
	if err := setTempMask(t, a.Addr(4), a.Size(5)); err != nil {
		return 0, err
	}
	return epollWait(t, a, epollDeadline(t, a.Int(3)))
}

// sysEpollPwait2 implements epoll_pwait2(2).
func sysEpollPwait2(t *kernel.Task, a Args) (uintptr, error) {
	deadline, err := copyInDeadline(t, a.Addr(3))
	if err != nil {
		return 0, err
	}
	if err := setTempMask(t, a.Addr(4), a.Size(5)); err != nil {
		return 0, err
	}
	return epollWait(t, a, deadline)
}

// epollDeadline converts a timeout in milliseconds.
func epollDeadline(t *kernel.Task, ms int32) int64 {
	if ms < 0 {
		return 0
	}
	return t.ReentryDeadline(deadlineIn(t, int64(ms)*1e6))
}

func epollWait(t *kernel.Task, a Args, deadline int64) (uintptr, error) {
	max := a.Int(2)
	if max <= 0 || max > math.MaxInt32/12 {
		return 0, unix.EINVAL
	}
	addr := a.Addr(1)
	if _, err := t.UserBuf(addr, uint64(max)*12); err != nil {
		return 0, unix.EFAULT
	}
	ep, f, err := getEpoll(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	n, err := ep.Wait(t, int(max), deadline, func(events []anon.Event) error {
		var out [anon.WaitBatch]unix.EpollEvent
		for i, e := range events {
			out[i] = unix.EpollEvent{Events: e.Events, Fd: int32(e.Data), Pad: int32(e.Data >> 32)}
		}
		err := t.CopyOut(addr, abi.SliceBytes(out[:len(events)]))
		addr += uint64(len(events)) * 12
		return err
	})
	if err == errs.ERESTARTSYS {
		err = unix.EINTR // never restarted (signal(7))
	}
	return uintptr(n), err
}
