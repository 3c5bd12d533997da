package kernel

import (
	"math"

	"golang.org/x/sys/unix"

	"runsc/pkg/abi/linux"
	"runsc/pkg/ksync"
	"runsc/sentry/arch"
	"runsc/sentry/clock"
)

// groupTimers are the interval and POSIX timers of a process.
type groupTimers struct {
	mu ksync.Mutex `save:"rebuilt"`
	// mu guards:
	real  *clock.Timer          `save:"rec"` // ITIMER_REAL
	cpu   [2]*cpuTimer          `save:"rec"` // ITIMER_VIRTUAL, ITIMER_PROF
	limit *cpuTimer             `save:"rec"` // RLIMIT_CPU
	posix map[int32]*posixTimer `save:"rec"`
	next  int32                 `save:"rec"`
	dead  bool                  `save:"rebuilt"`
}

// itimers bounds how many POSIX timers a process may have; Linux counts them
// as pending signals.
const maxPosixTimers = 4096

// SetITimer is setitimer(2) with times in ns from now, 0 to disarm; it returns
// what was left: EINVAL for a bad which. Own.
func (t *Task) SetITimer(which int32, value, interval int64) (oldValue, oldInterval int64, err error) {
	g := &t.tg.timers
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.dead {
		return 0, 0, nil
	}
	switch which {
	case unix.ITIMER_REAL:
		if g.real == nil {
			g.real = t.tg.newRealTimer()
		}
		now := t.Now()
		deadline := int64(0)
		if value > 0 {
			deadline = addSat(now, value)
		}
		d, iv := g.real.Set(deadline, interval)
		return left(d, now), iv, nil
	case unix.ITIMER_VIRTUAL, unix.ITIMER_PROF:
		i := which - unix.ITIMER_VIRTUAL
		if g.cpu[i] == nil {
			g.cpu[i] = t.tg.newCPUInterval(which)
		}
		v, iv := g.cpu[i].set(value, interval)
		return v, iv, nil
	}
	return 0, 0, unix.EINVAL
}

// newRealTimer makes ITIMER_REAL.
func (tg *ThreadGroup) newRealTimer() *clock.Timer {
	return clock.NewTimer(tg.k.clock, func(uint64) {
		_ = tg.SendKernelSignal(&arch.SigInfo{Signo: int32(unix.SIGALRM), Code: linux.SI_KERNEL})
	})
}

// newCPUInterval makes ITIMER_VIRTUAL or ITIMER_PROF.
func (tg *ThreadGroup) newCPUInterval(which int32) *cpuTimer {
	sig := int32(unix.SIGVTALRM)
	if which == unix.ITIMER_PROF {
		sig = int32(unix.SIGPROF)
	}
	return newCPUTimer(tg.k.clock, tg.cpuClock(which == unix.ITIMER_PROF), func(uint64) {
		_ = tg.SendKernelSignal(&arch.SigInfo{Signo: sig, Code: linux.SI_KERNEL})
	})
}

// GetITimer is getitimer(2). Own.
func (t *Task) GetITimer(which int32) (value, interval int64, err error) {
	g := &t.tg.timers
	g.mu.Lock()
	defer g.mu.Unlock()
	switch which {
	case unix.ITIMER_REAL:
		if g.real == nil {
			return 0, 0, nil
		}
		d, iv := g.real.Get()
		return left(d, t.Now()), iv, nil
	case unix.ITIMER_VIRTUAL, unix.ITIMER_PROF:
		if c := g.cpu[which-unix.ITIMER_VIRTUAL]; c != nil {
			value, interval = c.get()
		}
		return value, interval, nil
	}
	return 0, 0, unix.EINVAL
}

// left is the time to a deadline; an armed timer never shows 0.
func left(deadline, now int64) int64 {
	if deadline == 0 {
		return 0
	}
	return max(deadline-now, 1)
}

// addSat adds, saturating, to a time that is not negative.
func addSat(a, b int64) int64 {
	if s := a + b; b <= 0 || s >= a {
		return s
	}
	return math.MaxInt64
}

// cpuClock returns a function that tells the process's CPU time: user time, or
// with both set user and system time.
func (tg *ThreadGroup) cpuClock(both bool) func() int64 {
	return func() int64 {
		u, s := tg.CPUTime()
		if both {
			return u + s
		}
		return u
	}
}

// cpuTimer runs on CPU time: it looks at the clock when it could have expired
// at the earliest, less often while nothing runs.
type cpuTimer struct {
	clk  func() int64 `save:"rebuilt"`
	now  *clock.Clock `save:"rebuilt"`
	fire func(uint64) `save:"rebuilt"`

	mu ksync.Mutex `save:"rebuilt"`
	// mu guards:
	expires  int64        `save:"rec"` // CPU time; 0 disarmed
	interval int64        `save:"rec"`
	last     int64        `save:"none: paces the looks"` // CPU time at the last look
	pause    int64        `save:"none: paces the looks"` // ns between looks while idle
	host     *clock.Timer `save:"rebuilt"`
}

func newCPUTimer(now *clock.Clock, clk func() int64, fire func(uint64)) *cpuTimer {
	c := &cpuTimer{clk: clk, now: now, fire: fire}
	ksync.Rank(&c.mu, "kernel.cpuTimer.mu")
	c.host = clock.NewTimer(now, func(uint64) { c.look() })
	return c
}

const (
	cpuLookMin = 1_000_000
	cpuLookMax = 250_000_000
)

// set arms the timer for value ns of CPU time from now.
func (c *cpuTimer) set(value, interval int64) (oldValue, oldInterval int64) {
	used := c.clk()
	c.mu.Lock()
	defer c.mu.Unlock()
	oldValue, oldInterval = left(c.expires, used), c.interval
	c.expires, c.interval, c.last, c.pause = 0, interval, used, cpuLookMin
	if value > 0 {
		c.expires = addSat(used, value)
		c.host.Set(addSat(c.now.Monotonic(), value), 0)
	} else {
		c.host.Stop()
	}
	return oldValue, oldInterval
}

func (c *cpuTimer) get() (value, interval int64) {
	used := c.clk()
	c.mu.Lock()
	defer c.mu.Unlock()
	return left(c.expires, used), c.interval
}

func (c *cpuTimer) look() {
	used := c.clk()
	c.mu.Lock()
	if c.expires == 0 {
		c.mu.Unlock()
		return
	}
	n := uint64(0)
	if used >= c.expires {
		n = 1
		if c.interval > 0 {
			k := (used - c.expires) / c.interval
			n += uint64(k)
			c.expires += (k + 1) * c.interval
		} else {
			c.expires = 0
		}
	}
	if c.expires != 0 {
		if used == c.last {
			c.pause = min(2*c.pause, cpuLookMax)
		} else {
			c.pause = cpuLookMin
		}
		c.last = used
		c.host.Set(c.now.Monotonic()+max(c.expires-used, c.pause), 0)
	}
	c.mu.Unlock()
	if n > 0 {
		c.fire(n)
	}
}

func (c *cpuTimer) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expires = 0
	c.host.Stop()
}

// armCPULimit makes RLIMIT_CPU hold: SIGXCPU at the soft limit and each second
// after it, SIGKILL at the hard limit. It is called when the limit changes and
// for a new process.
func (tg *ThreadGroup) armCPULimit() {
	g := &tg.timers
	soft := tg.Limit(unix.RLIMIT_CPU).Cur
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.dead || soft == unix.RLIM_INFINITY && g.limit == nil {
		return
	}
	if g.limit == nil {
		g.limit = tg.newCPULimit()
	}
	if soft > math.MaxInt64/1_000_000_000 {
		g.limit.set(0, 0)
		return
	}
	g.limit.set(max(int64(soft)*1_000_000_000-g.limit.clk(), 1), 1_000_000_000)
}

func (tg *ThreadGroup) newCPULimit() *cpuTimer {
	return newCPUTimer(tg.k.clock, tg.cpuClock(true), func(uint64) { tg.cpuLimitReached() })
}

func (tg *ThreadGroup) cpuLimitReached() {
	user, sys := tg.CPUTime()
	l := tg.Limit(unix.RLIMIT_CPU)
	switch used := uint64(user+sys) / 1_000_000_000; {
	case used >= l.Max:
		tg.Kill()
	case used >= l.Cur:
		_ = tg.SendKernelSignal(&arch.SigInfo{Signo: int32(unix.SIGXCPU), Code: linux.SI_KERNEL})
	}
}

// stopTimers ends all timers of an exiting process.
func (tg *ThreadGroup) stopTimers() {
	tg.deleteTimers()
	g := &tg.timers
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dead = true
	if g.real != nil {
		g.real.Stop()
	}
	for _, c := range append(g.cpu[:], g.limit) {
		if c != nil {
			c.stop()
		}
	}
}

// deleteTimers deletes the POSIX timers, as exec does; interval timers live on.
func (tg *ThreadGroup) deleteTimers() {
	g := &tg.timers
	g.mu.Lock()
	all := g.posix
	g.posix = nil
	g.mu.Unlock()
	for _, p := range all {
		p.stop()
	}
}
