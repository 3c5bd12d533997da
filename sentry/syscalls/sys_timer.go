package syscalls

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/pkg/abi/linux"
	"runsc/sentry/kernel"
)

// sysTimerCreate implements timer_create(2).
func sysTimerCreate(t *kernel.Task, a Args) (uintptr, error) {
	var ev *linux.Sigevent
	if addr := a.Addr(1); addr != 0 {
		ev = new(linux.Sigevent)
		if err := kernel.CopyInObj(t, addr, ev); err != nil {
			return 0, err
		}
	}
	id, err := t.CreateTimer(a.Int(0), ev)
	if err != nil {
		return 0, err
	}
	if err := t.CopyOut(a.Addr(2), abi.Bytes(&id)); err != nil {
		_ = t.DeleteTimer(id)
		return 0, err
	}
	return 0, nil
}

// sysTimerSettime implements timer_settime(2).
func sysTimerSettime(t *kernel.Task, a Args) (uintptr, error) {
	var spec unix.ItimerSpec
	if a.Addr(2) == 0 {
		return 0, unix.EINVAL
	}
	if err := t.CopyIn(a.Addr(2), abi.Bytes(&spec)); err != nil {
		return 0, err
	}
	value, err := nanoseconds(spec.Value)
	if err != nil {
		return 0, err
	}
	interval, err := nanoseconds(spec.Interval)
	if err != nil {
		return 0, err
	}
	abs := a.Int(1)&unix.TIMER_ABSTIME != 0
	value, interval, err = t.SetTimer(a.Int(0), abs, value, interval)
	if err != nil || a.Addr(3) == 0 {
		return 0, err
	}
	return copyOutItimerspec(t, a.Addr(3), value, interval)
}

// sysTimerGettime implements timer_gettime(2).
func sysTimerGettime(t *kernel.Task, a Args) (uintptr, error) {
	value, interval, err := t.GetTimer(a.Int(0))
	if err != nil {
		return 0, err
	}
	return copyOutItimerspec(t, a.Addr(1), value, interval)
}

// sysTimerGetoverrun implements timer_getoverrun(2).
func sysTimerGetoverrun(t *kernel.Task, a Args) (uintptr, error) {
	n, err := t.TimerOverrun(a.Int(0))
	return uintptr(n), err
}

// sysTimerDelete implements timer_delete(2).
func sysTimerDelete(t *kernel.Task, a Args) (uintptr, error) { return done(t.DeleteTimer(a.Int(0))) }
