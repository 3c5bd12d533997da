package kernel

import (
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// accounting measures a task's use of the CPU. User time is the time in
// Switch; system time is the time outside it less the time asleep.
type accounting struct {
	// owned by the task's goroutine
	last  int64 `save:"none: starts anew"` // monotonic ns of the last change between guest and Sentry
	slept int64 `save:"none: starts anew"` // ns asleep since last

	// atomic
	user, sys atomic.Int64 `save:"rec"`
	entered   atomic.Int64 `save:"none: not in guest code"` // when Switch was entered, 0 outside
	nvcsw     atomic.Int64 `save:"rec"`                     // sleeps
	nivcsw    atomic.Int64 `save:"rec"`
	minflt    atomic.Int64 `save:"rec"`
	majflt    atomic.Int64 `save:"rec"`
	io        ioCounters   `save:"rec"`
}

func (a *accounting) start(now int64) { a.last = now }

// enterGuest ends a stretch in the Sentry, leaveGuest one in the guest.
func (a *accounting) enterGuest(now int64) {
	a.sys.Add(max(now-a.last-a.slept, 0))
	a.last, a.slept = now, 0
	a.entered.Store(now)
}

func (a *accounting) leaveGuest(now int64) {
	a.entered.Store(0)
	a.user.Add(max(now-a.last, 0))
	a.last = now
}

func (a *accounting) blocked(ns int64) {
	a.slept += ns
	a.nvcsw.Add(1)
}

// usage is a sum of resources used (getrusage(2)).
type usage struct {
	user, sys      int64   `save:"rec"` // ns
	minflt, majflt int64   `save:"rec"`
	nvcsw, nivcsw  int64   `save:"rec"`
	maxRSS         int64   `save:"rec"` // bytes
	io             IOUsage `save:"rec"`
}

func (u *usage) add(o usage) {
	u.user += o.user
	u.sys += o.sys
	u.minflt += o.minflt
	u.majflt += o.majflt
	u.nvcsw += o.nvcsw
	u.nivcsw += o.nivcsw
	u.maxRSS = max(u.maxRSS, o.maxRSS)
	u.io.add(o.io)
}

// Rusage returns u as getrusage(2) does.
func (u *usage) Rusage() unix.Rusage {
	return unix.Rusage{
		Utime: unix.NsecToTimeval(u.user), Stime: unix.NsecToTimeval(u.sys),
		Maxrss: u.maxRSS / 1024, Minflt: u.minflt, Majflt: u.majflt,
		Nvcsw: u.nvcsw, Nivcsw: u.nivcsw,
	}
}

// use returns what the task used so far.
func (t *Task) use() usage {
	a := &t.acct
	u := usage{
		user: a.user.Load(), sys: a.sys.Load(), minflt: a.minflt.Load(), majflt: a.majflt.Load(),
		nvcsw: a.nvcsw.Load(), nivcsw: a.nivcsw.Load(), io: a.io.load(),
	}
	if e := a.entered.Load(); e != 0 {
		u.user += max(t.Now()-e, 0)
	}
	return u
}

// CPUTime returns the user and system time of the task, in ns.
func (t *Task) CPUTime() (user, sys int64) {
	u := t.use()
	return u.user, u.sys
}

// useLocked returns what all threads used, dead ones included; k.mu is held.
func (tg *ThreadGroup) useLocked() usage {
	u := tg.deadTimes
	for _, t := range tg.tasks {
		u.add(t.use())
	}
	return u
}

// CPUTime returns the user and system time of the process, in ns.
func (tg *ThreadGroup) CPUTime() (user, sys int64) {
	tg.k.mu.Lock()
	defer tg.k.mu.Unlock()
	u := tg.useLocked()
	return u.user, u.sys
}

// ChildCPUTime returns the times of waited-for children, in ns.
func (tg *ThreadGroup) ChildCPUTime() (user, sys int64) {
	tg.k.mu.Lock()
	defer tg.k.mu.Unlock()
	return tg.childTimes.user, tg.childTimes.sys
}

// Faults returns the page faults without and with I/O.
func (tg *ThreadGroup) Faults() (minor, major int64) {
	tg.k.mu.Lock()
	defer tg.k.mu.Unlock()
	u := tg.useLocked()
	return u.minflt, u.majflt
}

// Rusage is getrusage(2) for who, RUSAGE_SELF, RUSAGE_CHILDREN or
// RUSAGE_THREAD: EINVAL. Own.
func (t *Task) Rusage(who int32) (unix.Rusage, error) {
	peak := int64(t.peakRSS())
	t.k.mu.Lock()
	defer t.k.mu.Unlock()
	var u usage
	switch who {
	case unix.RUSAGE_SELF:
		u = t.tg.useLocked()
	case unix.RUSAGE_CHILDREN:
		u = t.tg.childTimes
	case unix.RUSAGE_THREAD:
		u = t.use()
	default:
		return unix.Rusage{}, unix.EINVAL
	}
	if who != unix.RUSAGE_CHILDREN {
		u.maxRSS = max(u.maxRSS, peak)
	}
	return u.Rusage(), nil
}
