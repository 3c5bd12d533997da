package systrap

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A thread that is kicked stops as soon as it is scheduled, unless the guest
// has blocked the signal by a forged frame or changed its signal stack. The
// first deadline is for a thread that sleeps, or had processor time enough;
// the second for any.
const (
	kickDeadline     = 3 * time.Second
	kickHardDeadline = 20 * time.Second
	kickTick         = 250 * time.Millisecond
)

// kick is a thread that was kicked and the step at which it was.
type kick struct {
	step  uint64
	since time.Time
	cpu   time.Duration // of the process at that time
}

// stuck reports whether the thread has had its chance.
func (k kick) stuck(s *slot) bool {
	wall := time.Since(k.since)
	if wall < s.st.p.kickDeadline {
		return false
	}
	if wall > s.st.p.kickHardDeadline {
		return true
	}
	used := s.st.cpuTime() - k.cpu
	return used < time.Millisecond || used > time.Duration(s.st.threads.Load())*100*time.Millisecond
}

// cpuTime is the processor time that the process has used.
func (st *stub) cpuTime() time.Duration {
	// The clock of a process, MAKE_PROCESS_CPUCLOCK of
	// include/linux/posix-timers_types.h with CPUCLOCK_SCHED.
	var ts unix.Timespec
	st.sigMu.Lock()
	defer st.sigMu.Unlock()
	if st.dead.Load() || unix.ClockGettime(int32(^st.pid<<3|2), &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// kicks are the threads whose reaction is awaited.
type kicks struct {
	mu sync.Mutex
	// mu guards:
	waiting map[*slot]kick
	running bool
}

// kick interrupts the thread and sees to it that it stops.
func (p *Platform) kick(s *slot) {
	step := s.steps.Load()
	s.st.kick(s)
	if step%2 == 0 {
		return // not running; if it starts now, the signal waits for it
	}
	k := &p.kicks
	k.mu.Lock()
	defer k.mu.Unlock()
	if old, ok := k.waiting[s]; !ok || old.step != step {
		k.waiting[s] = kick{step, time.Now(), s.st.cpuTime()}
	}
	if !k.running {
		k.running = true
		go p.watchKicks()
	}
}

// watchKicks kills the processes of threads that do not react. It runs while
// there are kicked threads.
func (p *Platform) watchKicks() {
	k := &p.kicks
	for {
		time.Sleep(kickTick)
		k.mu.Lock()
		for s, kk := range k.waiting {
			switch {
			case s.steps.Load() != kk.step || s.st.dead.Load():
				delete(k.waiting, s)
			case kk.stuck(s):
				delete(k.waiting, s)
				s.st.kill()
			}
		}
		if len(k.waiting) == 0 {
			k.running = false
			k.mu.Unlock()
			return
		}
		k.mu.Unlock()
	}
}
