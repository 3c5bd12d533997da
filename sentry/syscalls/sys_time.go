package syscalls

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/sentry/clock"
	"runsc/sentry/errs"
	"runsc/sentry/kernel"
)

// copyInTimespec reads a valid timespec and returns it in ns, saturating.
func copyInTimespec(t *kernel.Task, addr uint64) (int64, error) {
	var ts unix.Timespec
	if err := t.CopyIn(addr, abi.Bytes(&ts)); err != nil {
		return 0, err
	}
	return nanoseconds(ts)
}

func copyOutTimespec(t *kernel.Task, addr uint64, ns int64) error {
	ts := unix.NsecToTimespec(ns)
	return t.CopyOut(addr, abi.Bytes(&ts))
}

// microseconds converts a valid timeval to ns, saturating.
func microseconds(tv unix.Timeval) (int64, error) {
	if tv.Usec < 0 || tv.Usec >= 1e6 {
		return 0, unix.EINVAL
	}
	return nanoseconds(unix.Timespec{Sec: tv.Sec, Nsec: tv.Usec * 1000})
}

// Fields of the clock ids that name another process's or thread's CPU clock
// (CPUCLOCK_PID and friends of linux/posix-timers.h).
const (
	cpuClockThread = 4
	cpuClockMask   = 3
	cpuClockProf   = 0
	cpuClockVirt   = 1
)

// readClock returns the time of a clock: EINVAL.
func readClock(t *kernel.Task, id int32) (int64, error) {
	c := t.Kernel().Clock()
	switch id {
	case unix.CLOCK_REALTIME, unix.CLOCK_TAI, unix.CLOCK_REALTIME_ALARM:
		return c.Realtime(), nil
	case unix.CLOCK_REALTIME_COARSE:
		return c.Realtime() / clock.CoarseResolution * clock.CoarseResolution, nil
	case unix.CLOCK_MONOTONIC, unix.CLOCK_MONOTONIC_RAW:
		return c.Monotonic(), nil
	case unix.CLOCK_MONOTONIC_COARSE:
		return c.Monotonic() / clock.CoarseResolution * clock.CoarseResolution, nil
	case unix.CLOCK_BOOTTIME, unix.CLOCK_BOOTTIME_ALARM:
		return c.Boottime(), nil
	case unix.CLOCK_PROCESS_CPUTIME_ID:
		u, s := t.ThreadGroup().CPUTime()
		return u + s, nil
	case unix.CLOCK_THREAD_CPUTIME_ID:
		u, s := t.CPUTime()
		return u + s, nil
	}
	if id >= 0 {
		return 0, unix.EINVAL
	}
	return readCPUClock(t, id)
}

func readCPUClock(t *kernel.Task, id int32) (int64, error) {
	if id&cpuClockMask == cpuClockMask {
		return 0, unix.EINVAL // a device's clock (CLOCKFD)
	}
	o, err := t.TaskByID(^(id >> 3))
	if err != nil {
		return 0, unix.EINVAL
	}
	u, s := o.CPUTime()
	if id&cpuClockThread == 0 {
		u, s = o.ThreadGroup().CPUTime()
	} else if o.ThreadGroup() != t.ThreadGroup() {
		return 0, unix.EINVAL
	}
	if id&cpuClockMask == cpuClockVirt {
		return u, nil
	}
	return u + s, nil
}

// sysClockGettime implements clock_gettime(2).
func sysClockGettime(t *kernel.Task, a Args) (uintptr, error) {
	ns, err := readClock(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	t.Kernel().ClocksRead()
	return done(copyOutTimespec(t, a.Addr(1), ns))
}

// sysClockGetres implements clock_getres(2).
func sysClockGetres(t *kernel.Task, a Args) (uintptr, error) {
	if _, err := readClock(t, a.Int(0)); err != nil {
		return 0, err
	}
	res := int64(1)
	if id := a.Int(0); id == unix.CLOCK_REALTIME_COARSE || id == unix.CLOCK_MONOTONIC_COARSE {
		res = clock.CoarseResolution
	}
	if a.Addr(1) == 0 {
		return 0, nil
	}
	return done(copyOutTimespec(t, a.Addr(1), res))
}

// sysClockSettime implements clock_settime(2): the clocks are the host's, as
// in a container without CAP_SYS_TIME.
func sysClockSettime(t *kernel.Task, a Args) (uintptr, error) {
	if a.Int(0) != unix.CLOCK_REALTIME {
		return 0, unix.EINVAL
	}
	if _, err := copyInTimespec(t, a.Addr(1)); err != nil {
		return 0, err
	}
	return 0, unix.EPERM
}

// sysSettimeofday implements settimeofday(2), see sysClockSettime.
func sysSettimeofday(t *kernel.Task, a Args) (uintptr, error) { return 0, unix.EPERM }

// sysAdjtimex implements adjtimex(2) for callers that only ask: EPERM otherwise.
func sysAdjtimex(t *kernel.Task, a Args) (uintptr, error) { return adjtimex(t, a.Addr(0)) }

// sysClockAdjtime implements clock_adjtime(2).
func sysClockAdjtime(t *kernel.Task, a Args) (uintptr, error) {
	if a.Int(0) != unix.CLOCK_REALTIME {
		return 0, unix.EINVAL
	}
	return adjtimex(t, a.Addr(1))
}

func adjtimex(t *kernel.Task, addr uint64) (uintptr, error) {
	var tx unix.Timex
	if err := t.CopyIn(addr, abi.Bytes(&tx)); err != nil {
		return 0, err
	}
	if tx.Modes != 0 {
		return 0, unix.EPERM
	}
	now := t.RealTime()
	tx = unix.Timex{Status: 0x40, Tick: 10000, Tolerance: 32768000, Maxerror: 16000000, Esterror: 16000000, Constant: 2, Precision: 1}
	tx.Time = unix.NsecToTimeval(now)
	if err := t.CopyOut(addr, abi.Bytes(&tx)); err != nil {
		return 0, err
	}
	return 5, nil // TIME_ERROR: the clock is not synchronized, STA_UNSYNC
}

// sysGettimeofday implements gettimeofday(2).
func sysGettimeofday(t *kernel.Task, a Args) (uintptr, error) {
	if addr := a.Addr(0); addr != 0 {
		tv := unix.NsecToTimeval(t.RealTime())
		t.Kernel().ClocksRead()
		if err := t.CopyOut(addr, abi.Bytes(&tv)); err != nil {
			return 0, err
		}
	}
	if addr := a.Addr(1); addr != 0 {
		return done(t.CopyOut(addr, make([]byte, 8))) // struct timezone
	}
	return 0, nil
}

// sysTime implements time(2).
func sysTime(t *kernel.Task, a Args) (uintptr, error) {
	sec := t.RealTime() / 1e9
	t.Kernel().ClocksRead()
	if addr := a.Addr(0); addr != 0 {
		if err := t.CopyOut(addr, abi.Bytes(&sec)); err != nil {
			return 0, err
		}
	}
	return uintptr(sec), nil
}

// sysNanosleep implements nanosleep(2).
func sysNanosleep(t *kernel.Task, a Args) (uintptr, error) {
	ns, err := copyInTimespec(t, a.Addr(0))
	if err != nil {
		return 0, err
	}
	s := sleepRestart{deadline: t.ReentryDeadline(t.Kernel().Deadline(unix.CLOCK_MONOTONIC, false, ns)), rem: a.Addr(1)}
	return s.Restart(t)
}

// sysClockNanosleep implements clock_nanosleep(2).
func sysClockNanosleep(t *kernel.Task, a Args) (uintptr, error) {
	id, flags := a.Int(0), a.Int(1)
	switch id {
	case unix.CLOCK_REALTIME, unix.CLOCK_MONOTONIC, unix.CLOCK_BOOTTIME, unix.CLOCK_TAI,
		unix.CLOCK_REALTIME_ALARM, unix.CLOCK_BOOTTIME_ALARM, unix.CLOCK_PROCESS_CPUTIME_ID:
	case unix.CLOCK_REALTIME_COARSE, unix.CLOCK_MONOTONIC_COARSE, unix.CLOCK_MONOTONIC_RAW:
		return 0, unix.EOPNOTSUPP
	default:
		return 0, unix.EINVAL
	}
	ns, err := copyInTimespec(t, a.Addr(2))
	if err != nil {
		return 0, err
	}
	abs := flags&unix.TIMER_ABSTIME != 0
	if id == unix.CLOCK_PROCESS_CPUTIME_ID {
		return sleepCPU(t, ns, abs)
	}
	s := sleepRestart{deadline: t.Kernel().Deadline(id, abs, ns), rem: a.Addr(3)}
	if !abs {
		s.deadline = t.ReentryDeadline(s.deadline)
	} else {
		_, err := s.sleep(t)
		if err == errs.ERESTARTSYS {
			err = errs.ERESTARTNOHAND // the deadline is in the arguments
		}
		return 0, err
	}
	return s.Restart(t)
}

// sleepCPU sleeps on the process's CPU clock by looking at it.
func sleepCPU(t *kernel.Task, ns int64, abs bool) (uintptr, error) {
	now, _ := readClock(t, unix.CLOCK_PROCESS_CPUTIME_ID)
	end := ns
	if !abs {
		end = t.ReentryDeadline(end + now)
	}
	for now < end {
		s := sleepRestart{deadline: t.Now() + max(end-now, 1e6)}
		if _, err := s.sleep(t); err == errs.ERESTARTSYS {
			return 0, errs.ERESTARTNOHAND
		} else if err != nil {
			return 0, err
		}
		now, _ = readClock(t, unix.CLOCK_PROCESS_CPUTIME_ID)
	}
	return 0, nil
}

// sleepRestart is a sleep, also one that restart_syscall(2) resumes.
type sleepRestart struct {
	deadline int64
	rem      uint64 // where the time left goes when a handler ends it; may be 0
}

func (s sleepRestart) sleep(t *kernel.Task) (uintptr, error) {
	for {
		t.Waiter().Clear()
		switch err := t.Block(t.Waiter(), s.deadline); err {
		case nil: // nobody wakes a sleeper
		case unix.ETIMEDOUT:
			return 0, nil
		default:
			return 0, err
		}
	}
}

// Restart implements kernel.Restarter.
func (s sleepRestart) Restart(t *kernel.Task) (uintptr, error) {
	_, err := s.sleep(t)
	if err != errs.ERESTARTSYS {
		return 0, err
	}
	left := max(s.deadline-t.Now(), 0)
	if left == 0 {
		return 0, nil
	}
	if s.rem != 0 {
		if err := copyOutTimespec(t, s.rem, left); err != nil {
			return 0, err
		}
	}
	return 0, t.SetRestart(s)
}

// sysGetitimer implements getitimer(2).
func sysGetitimer(t *kernel.Task, a Args) (uintptr, error) {
	v, iv, err := t.GetITimer(a.Int(0))
	if err != nil {
		return 0, err
	}
	return done(copyOutItimerval(t, a.Addr(1), v, iv))
}

func copyOutItimerval(t *kernel.Task, addr uint64, value, interval int64) error {
	// A timer that is armed never shows zero.
	if value > 0 && value < 1000 {
		value = 1000
	}
	it := [2]unix.Timeval{unix.NsecToTimeval(interval), unix.NsecToTimeval(value)}
	return t.CopyOut(addr, abi.Bytes(&it))
}

// sysSetitimer implements setitimer(2).
func sysSetitimer(t *kernel.Task, a Args) (uintptr, error) {
	var it [2]unix.Timeval // NULL disarms, a misfeature that Linux keeps
	if addr := a.Addr(1); addr != 0 {
		if err := t.CopyIn(addr, abi.Bytes(&it)); err != nil {
			return 0, err
		}
	}
	interval, err := microseconds(it[0])
	if err != nil {
		return 0, err
	}
	value, err := microseconds(it[1])
	if err != nil {
		return 0, err
	}
	value, interval, err = t.SetITimer(a.Int(0), value, interval)
	if err != nil || a.Addr(2) == 0 {
		return 0, err
	}
	return done(copyOutItimerval(t, a.Addr(2), value, interval))
}

// sysAlarm implements alarm(2).
func sysAlarm(t *kernel.Task, a Args) (uintptr, error) {
	old, _, err := t.SetITimer(unix.ITIMER_REAL, int64(a.Uint(0))*1e9, 0)
	if err != nil {
		return 0, err
	}
	// alarm_setitimer rounds to the nearest second, but never to none.
	sec := (old + 5e8) / 1e9
	if sec == 0 && old > 0 {
		sec = 1
	}
	return uintptr(sec), nil
}
