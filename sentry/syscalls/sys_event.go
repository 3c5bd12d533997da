package syscalls

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/sentry/arch"
	"runsc/sentry/fs/anon"
	"runsc/sentry/kernel"
	"runsc/sentry/vfs"
)

// installAnon opens a file without a name, read-write, with the O_NONBLOCK and
// O_CLOEXEC of flags.
func installAnon(t *kernel.Task, name string, ops vfs.FileOps, flags uint32) (uintptr, error) {
	f := vfs.NewAnonFile("anon_inode:"+name, ops, unix.O_RDWR|flags&unix.O_NONBLOCK)
	return install(t, f, flags&unix.O_CLOEXEC != 0)
}

// sysEventfd implements the system call eventfd, which has no flags.
func sysEventfd(t *kernel.Task, a Args) (uintptr, error) { return eventfd(t, a.Uint(0), 0) }

// sysEventfd2 implements eventfd(2).
func sysEventfd2(t *kernel.Task, a Args) (uintptr, error) { return eventfd(t, a.Uint(0), a.Uint(1)) }

func eventfd(t *kernel.Task, count, flags uint32) (uintptr, error) {
	if flags&^(unix.EFD_CLOEXEC|unix.EFD_NONBLOCK|unix.EFD_SEMAPHORE) != 0 {
		return 0, unix.EINVAL
	}
	return installAnon(t, "[eventfd]", anon.NewEventfd(count, flags&unix.EFD_SEMAPHORE != 0), flags)
}

// sysTimerfdCreate implements timerfd_create(2).
func sysTimerfdCreate(t *kernel.Task, a Args) (uintptr, error) {
	clockID, flags := a.Int(0), a.Uint(1)
	if flags&^(unix.TFD_CLOEXEC|unix.TFD_NONBLOCK) != 0 {
		return 0, unix.EINVAL
	}
	switch clockID {
	case unix.CLOCK_REALTIME, unix.CLOCK_MONOTONIC, unix.CLOCK_BOOTTIME:
	case unix.CLOCK_REALTIME_ALARM, unix.CLOCK_BOOTTIME_ALARM:
		if !t.Cred().Has(unix.CAP_WAKE_ALARM) {
			return 0, unix.EPERM
		}
	default:
		return 0, unix.EINVAL
	}
	return installAnon(t, "[timerfd]", anon.NewTimerfd(t.Kernel().Clock(), clockID), flags)
}

// getTimerfd returns the timer of a descriptor and its file's new reference.
func getTimerfd(t *kernel.Task, fd int32) (*anon.Timerfd, *vfs.File, error) {
	f, err := getFile(t, fd)
	if err != nil {
		return nil, nil, err
	}
	if tm, ok := f.Ops().(*anon.Timerfd); ok {
		return tm, f, nil
	}
	f.DecRef()
	return nil, nil, unix.EINVAL
}

// sysTimerfdSettime implements timerfd_settime(2).
func sysTimerfdSettime(t *kernel.Task, a Args) (uintptr, error) {
	var spec unix.ItimerSpec
	if err := t.CopyIn(a.Addr(2), abi.Bytes(&spec)); err != nil {
		return 0, err
	}
	flags := a.Uint(1)
	if flags&^(unix.TFD_TIMER_ABSTIME|unix.TFD_TIMER_CANCEL_ON_SET) != 0 {
		return 0, unix.EINVAL
	}
	value, err := nanoseconds(spec.Value)
	if err != nil {
		return 0, err
	}
	interval, err := nanoseconds(spec.Interval)
	if err != nil {
		return 0, err
	}
	tm, f, err := getTimerfd(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	value, interval = tm.Set(value, interval, flags&unix.TFD_TIMER_ABSTIME != 0)
	if a.Addr(3) == 0 {
		return 0, nil
	}
	return copyOutItimerspec(t, a.Addr(3), value, interval)
}

// sysTimerfdGettime implements timerfd_gettime(2).
func sysTimerfdGettime(t *kernel.Task, a Args) (uintptr, error) {
	tm, f, err := getTimerfd(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	value, interval := tm.Get()
	return copyOutItimerspec(t, a.Addr(1), value, interval)
}

func copyOutItimerspec(t *kernel.Task, addr uint64, value, interval int64) (uintptr, error) {
	spec := unix.ItimerSpec{Interval: unix.NsecToTimespec(interval), Value: unix.NsecToTimespec(value)}
	return done(t.CopyOut(addr, abi.Bytes(&spec)))
}

// sysSignalfd implements the system call signalfd, which has no flags.
func sysSignalfd(t *kernel.Task, a Args) (uintptr, error) {
	return signalfd(t, a.Int(0), a.Addr(1), a.Size(2), 0)
}

// sysSignalfd4 implements signalfd(2).
func sysSignalfd4(t *kernel.Task, a Args) (uintptr, error) {
	return signalfd(t, a.Int(0), a.Addr(1), a.Size(2), a.Uint(3))
}

func signalfd(t *kernel.Task, fd int32, mask, size uint64, flags uint32) (uintptr, error) {
	if flags&^(unix.SFD_CLOEXEC|unix.SFD_NONBLOCK) != 0 || size != 8 {
		return 0, unix.EINVAL
	}
	var set arch.SigSet
	if err := t.CopyIn(mask, abi.Bytes(&set)); err != nil {
		return 0, err
	}
	set &^= arch.SigBit(int32(unix.SIGKILL)) | arch.SigBit(int32(unix.SIGSTOP))
	if fd == -1 {
		return installAnon(t, "[signalfd]", anon.NewSignalfd(t, uint64(set)), flags)
	}
	f, err := getFile(t, fd)
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	s, ok := f.Ops().(*anon.Signalfd)
	if !ok {
		return 0, unix.EINVAL
	}
	s.SetMask(uint64(set))
	return uintptr(fd), nil
}

// setTempMask sets the signal mask that ppoll, pselect and epoll_pwait take
// for the time they wait; a null address keeps the mask.
func setTempMask(t *kernel.Task, addr, size uint64) error {
	if addr == 0 {
		return nil
	}
	if size != 8 {
		return unix.EINVAL
	}
	var set arch.SigSet
	if err := t.CopyIn(addr, abi.Bytes(&set)); err != nil {
		return err
	}
	t.SetTempMask(set)
	return nil
}
