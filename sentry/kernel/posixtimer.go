package kernel

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/abi/linux"
	"runsc/pkg/ksync"
	"runsc/sentry/arch"
	"runsc/sentry/clock"
)

// posixTimer is a timer of timer_create(2).
type posixTimer struct {
	// immutable
	id     int32          `save:"rec"`
	clk    int32          `save:"rec"` // clockid_t
	tg     *ThreadGroup   `save:"rebuilt"`
	target *Task          `save:"rec"` // SIGEV_THREAD_ID
	thread *Task          `save:"rec"` // whose time CLOCK_THREAD_CPUTIME_ID is
	event  linux.Sigevent `save:"rec"`
	host   *clock.Timer   `save:"rec"` // or:
	cpu    *cpuTimer      `save:"rec"`

	mu ksync.Mutex `save:"rebuilt"`
	// mu guards:
	queued  bool   `save:"rec"` // its signal is pending
	pending uint64 `save:"rec"` // expirations since the signal was queued
	overrun int32  `save:"rec"` // of the last signal delivered
	wall    bool   `save:"rec"` // set to a time of CLOCK_REALTIME
	deleted bool   `save:"none: not in the table"`
}

// delayTimerMax is DELAYTIMER_MAX: overruns stick there.
const delayTimerMax = 0x7fffffff

// CreateTimer is timer_create(2): EINVAL, EAGAIN. A nil event is a SIGALRM with
// the timer's id. Own.
func (t *Task) CreateTimer(clk int32, ev *linux.Sigevent) (int32, error) {
	p := newPosixTimer(t.tg, clk)
	if ev != nil {
		p.event = *ev
	}
	switch e := &p.event; e.Notify &^ linux.SIGEV_THREAD_ID {
	case linux.SIGEV_NONE:
	case linux.SIGEV_SIGNAL, linux.SIGEV_THREAD:
		if !ValidSignal(e.Signo) {
			return 0, unix.EINVAL
		}
	default:
		return 0, unix.EINVAL
	}
	if p.event.Notify&linux.SIGEV_THREAD_ID != 0 {
		p.target = t.PIDNamespace().Task(p.event.TID)
		if p.target == nil || p.target.tg != t.tg || p.event.Notify != linux.SIGEV_THREAD_ID {
			return 0, unix.EINVAL
		}
	}
	switch clk {
	case unix.CLOCK_REALTIME_ALARM, unix.CLOCK_BOOTTIME_ALARM:
		return 0, unix.EOPNOTSUPP // no alarm device
	}
	p.thread = t
	if !p.makeClock() {
		return 0, unix.EINVAL
	}
	g := &t.tg.timers
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.dead || len(g.posix) >= maxPosixTimers {
		return 0, unix.EAGAIN
	}
	if g.posix == nil {
		g.posix = make(map[int32]*posixTimer)
	}
	for g.posix[g.next] != nil {
		g.next = (g.next + 1) & 0x7fffffff
	}
	p.id = g.next
	g.next = (g.next + 1) & 0x7fffffff
	g.posix[p.id] = p
	if ev == nil {
		p.event.Value = uint64(p.id)
	}
	return p.id, nil
}

func newPosixTimer(tg *ThreadGroup, clk int32) *posixTimer {
	p := &posixTimer{clk: clk, tg: tg, event: linux.Sigevent{Signo: int32(unix.SIGALRM)}}
	ksync.Rank(&p.mu, "kernel.posixTimer.mu")
	return p
}

// makeClock makes what the timer runs on; it tells whether there is its clock.
func (p *posixTimer) makeClock() bool {
	clk := p.tg.k.clock
	switch p.clk {
	case unix.CLOCK_REALTIME, unix.CLOCK_MONOTONIC, unix.CLOCK_BOOTTIME, unix.CLOCK_TAI:
		p.host = clock.NewTimer(clk, p.expired)
	case unix.CLOCK_PROCESS_CPUTIME_ID:
		p.cpu = newCPUTimer(clk, p.tg.cpuClock(true), p.expired)
	case unix.CLOCK_THREAD_CPUTIME_ID:
		t := p.thread
		p.cpu = newCPUTimer(clk, func() int64 { u, s := t.CPUTime(); return u + s }, p.expired)
	default:
		return false
	}
	return true
}

func (t *Task) posixTimer(id int32) (*posixTimer, error) {
	g := &t.tg.timers
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.posix[id]; p != nil {
		return p, nil
	}
	return nil, unix.EINVAL
}

// SetTimer is timer_settime(2), with value an absolute time of the timer's
// clock if abs is set; 0 disarms. It returns what was left. Own.
func (t *Task) SetTimer(id int32, abs bool, value, interval int64) (oldValue, oldInterval int64, err error) {
	p, err := t.posixTimer(id)
	if err != nil {
		return 0, 0, err
	}
	p.mu.Lock()
	p.pending, p.overrun = 0, 0
	p.wall = abs && wallClock(p.clk)
	p.mu.Unlock()
	if p.cpu != nil {
		if abs && value != 0 {
			value = max(value-p.cpu.clk(), 1)
		}
		v, iv := p.cpu.set(value, interval)
		return v, iv, nil
	}
	now := t.Now()
	deadline := int64(0)
	if value != 0 {
		deadline = t.k.Deadline(p.clk, abs, value)
	}
	d, iv := p.host.Set(deadline, interval)
	return left(d, now), iv, nil
}

// wallClock tells whether a clock goes by the host's time of day.
func wallClock(clk int32) bool {
	return clk == unix.CLOCK_REALTIME || clk == unix.CLOCK_TAI || clk == unix.CLOCK_REALTIME_ALARM
}

// Deadline turns a time of clock clk, absolute or from now, into a monotonic
// deadline, which is never 0. Later jumps of the host's clock do not move it.
func (k *Kernel) Deadline(clk int32, abs bool, value int64) int64 {
	now := k.clock.Monotonic()
	switch {
	case !abs:
		return max(addSat(now, max(value, 0)), 1)
	case wallClock(clk):
		return max(addSat(now, value-k.clock.Realtime()), 1)
	case clk == unix.CLOCK_BOOTTIME || clk == unix.CLOCK_BOOTTIME_ALARM:
		return max(addSat(now, value-k.clock.Boottime()), 1)
	}
	return max(value, 1)
}

// GetTimer is timer_gettime(2). Own.
func (t *Task) GetTimer(id int32) (value, interval int64, err error) {
	p, err := t.posixTimer(id)
	if err != nil {
		return 0, 0, err
	}
	if p.cpu != nil {
		value, interval = p.cpu.get()
		return value, interval, nil
	}
	d, iv := p.host.Get()
	return left(d, t.Now()), iv, nil
}

// TimerOverrun is timer_getoverrun(2). Own.
func (t *Task) TimerOverrun(id int32) (int32, error) {
	p, err := t.posixTimer(id)
	if err != nil {
		return 0, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.overrun, nil
}

// DeleteTimer is timer_delete(2). Own.
func (t *Task) DeleteTimer(id int32) error {
	g := &t.tg.timers
	g.mu.Lock()
	p := g.posix[id]
	delete(g.posix, id)
	g.mu.Unlock()
	if p == nil {
		return unix.EINVAL
	}
	p.stop()
	return nil
}

// stop disarms the timer and takes its pending signal away.
func (p *posixTimer) stop() {
	if p.cpu != nil {
		p.cpu.stop()
	} else {
		p.host.Stop()
	}
	p.mu.Lock()
	p.deleted = true
	p.mu.Unlock()
	p.tg.sigmu.Lock()
	defer p.tg.sigmu.Unlock()
	p.tg.sig.shared.discardTimer(p)
	for _, t := range p.tg.tasks {
		t.sig.pending.discardTimer(p)
	}
}

// expired runs on the clock's goroutine when n periods have passed.
func (p *posixTimer) expired(n uint64) {
	if p.event.Notify == linux.SIGEV_NONE {
		return
	}
	p.tg.sigmu.Lock()
	defer p.tg.sigmu.Unlock()
	p.mu.Lock()
	if p.deleted {
		p.mu.Unlock()
		return
	}
	if p.queued {
		p.pending += n
		p.mu.Unlock()
		return
	}
	p.queued, p.pending = true, n-1
	p.mu.Unlock()
	info := arch.SigInfo{Signo: p.event.Signo, Code: linux.SI_TIMER}
	info.SetTimerID(p.id)
	info.SetValue(p.event.Value)
	if !p.tg.sendTimerLocked(&info, p) {
		p.mu.Lock()
		p.queued = false
		p.mu.Unlock()
	}
}

// sendTimerLocked queues a timer's signal; it tells whether it is pending now.
func (tg *ThreadGroup) sendTimerLocked(info *arch.SigInfo, p *posixTimer) bool {
	if p.target != nil && p.target.sig.exiting {
		return false
	}
	if err := tg.sendLocked(&sendInfo{info: *info, force: true, timer: p}, p.target); err != nil {
		return false
	}
	q := &tg.sig.shared
	if p.target != nil {
		q = &p.target.sig.pending
	}
	for _, e := range q.list {
		if e.timer == p {
			return true
		}
	}
	return false
}

// dequeued is called, with sigmu held, as the timer's signal is taken: the
// overruns so far are this signal's.
func (p *posixTimer) dequeued(info *arch.SigInfo) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queued = false
	p.overrun = int32(min(p.pending, delayTimerMax))
	p.pending = 0
	info.SetOverrun(p.overrun)
}
