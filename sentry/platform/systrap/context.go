package systrap

import (
	"sync"
	"sync/atomic"
	"time"

	"runsc/sentry/arch"
	"runsc/sentry/platform"
)

// fpMode says where the floating point state of a context is.
type fpMode uint8

const (
	fpInit fpMode = iota // nowhere: the initial state
	fpSet                // in context.fp
	fpLive               // in the signal frame in the slot
	fpCPU                // in the thread, which stopped in a direct call
)

// context implements platform.Context.
type context struct {
	p *Platform

	interrupted atomic.Bool
	inside      atomic.Pointer[slot] // the thread that runs for Switch

	mu sync.Mutex
	// mu guards, against Release of the address space:
	s      *slot
	fpMode fpMode
	fp     []byte
	fpAddr uint64 // of live state, as the frame had it
	frame  uint64 // address of the frame
	fresh  bool   // the thread has unknown segment bases

	// owned by the goroutine that calls Switch:
	f       sigFrame  // copy of the last frame
	fs, gs  uint64    // segment bases of the guest
	hostGS  uint64    // what the thread has for gs
	direct  bool      // the thread stopped in a direct call
	before  arch.Regs // if so: the registers then
	spilled bool      // the frame in the slot is not the one in f
	spin    spinner
}

func newContext(p *Platform) *context { return &context{p: p} }

// attach gives the context a thread of st. c.mu is held.
func (c *context) attach(st *stub) (*slot, error) {
	if c.s != nil {
		c.dropLocked()
	}
	s, err := st.acquire(c)
	if err != nil {
		return nil, err
	}
	c.s = s
	c.fresh = true
	return s, nil
}

// dropLocked takes the FP state out of the thread and gives the thread back.
func (c *context) dropLocked() {
	s := c.s
	c.s = nil
	c.saveFP(s)
	s.st.park(s)
	s.st.leave()
}

// saveFP moves live state out of the slot.
func (c *context) saveFP(s *slot) {
	if c.fpMode == fpCPU {
		c.spill(s)
	}
	c.direct = false
	if c.fpMode != fpLive {
		return
	}
	c.fp = c.liveFP(s)
	c.fpMode = fpSet
	if c.fp == nil {
		c.fpMode = fpInit
	}
}

func (c *context) liveFP(s *slot) []byte {
	return c.p.fp.capture(c.p.ctl.stack(s.off), int(int64(c.fpAddr-s.start)))
}

// detach is called when the address space of st is released.
func (c *context) detach(st *stub) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.s != nil && c.s.st == st {
		c.dropLocked()
	}
}

// Switch implements platform.Context.
func (c *context) Switch(as platform.AddressSpace, regs *arch.Regs) (platform.Event, error) {
	st := as.(*addrSpace).st
	st.users.Add(1)
	ev, err := c.switchTo(st, regs)
	st.leave()
	return ev, err
}

func (c *context) switchTo(st *stub, regs *arch.Regs) (platform.Event, error) {
	c.mu.Lock()
	s := c.s
	if s == nil || s.st != st {
		st.users.Add(1)
		var err error
		if s, err = c.attach(st); err != nil {
			c.mu.Unlock()
			st.leave()
			return platform.Event{}, err
		}
	}
	c.mu.Unlock()
	c.inside.Store(s)
	for {
		if c.interrupted.Load() && c.interrupted.Swap(false) {
			c.inside.Store(nil)
			return platform.Event{Kind: platform.EventInterrupt}, nil
		}
		c.writeFrame(s, regs)
		s.steps.Add(1)
		v := c.run(s)
		s.steps.Add(1)
		if stopped>>v&1 == 0 {
			return c.lost(s, v)
		}
		ev, ok := c.readFrame(s, regs)
		if !ok {
			return c.lost(s, v)
		}
		if ev.Kind == platform.EventInterrupt {
			// A kick may arrive when its Switch has long returned.
			continue
		}
		c.inside.Store(nil)
		return ev, nil
	}
}

// lost ends a Switch whose thread is gone, or lies. A thread that is merely
// gone (it jumped to exit) leaves its process alive.
func (c *context) lost(s *slot, v uint32) (platform.Event, error) {
	c.inside.Store(nil)
	if v != stDead {
		s.st.kill()
	}
	c.mu.Lock()
	c.fpMode, c.fp = fpInit, nil
	if c.s == s {
		c.dropLocked()
	}
	c.mu.Unlock()
	return platform.Event{}, platform.ErrStubDied
}

// A sleep in a system call occupies an OS thread, of which a Go program has
// 10,000 at most. Beyond sleepMax the state is polled.
const (
	sleepMax = 4000
	pauseMax = 50 * time.Millisecond
)

// run lets the thread run and waits until it stops; it returns the state.
func (c *context) run(s *slot) uint32 {
	p, st, m := c.p, s.st, s.mem
	running := p.running.Add(1)
	m.spin, m.spinW = 0, 0
	// Two threads on one processor do not spin for each other.
	apart := p.slotFlags&flagRDTSCP == 0 || rdtscp() != atomic.LoadUint32(&m.cpu)
	if apart && int(running) < p.cpus {
		m.spin, m.spinW = p.pollUnit, wakePolls*p.pollUnit
	}
	if m.load() != stEvent {
		atomic.StoreUint64(&m.t0, 0) // see wait
	}
	v := uint32(stDead)
	if woken, ok := c.resume(s); ok {
		v = c.wait(s, woken, apart)
		st.last.Store(s)
	}
	p.running.Add(-1)
	return v
}

// resume hands the thread its frame. It is not ok if the thread is gone;
// woken says that it slept.
func (c *context) resume(s *slot) (woken, ok bool) {
	if s.st.dirty.Load() {
		return true, c.resumeChained(s)
	}
	m := s.mem
	for {
		v := m.load()
		if v == stDead {
			return false, false
		}
		if m.cas(v, stRun) {
			if v == stEventW {
				futexWake(&m.state)
				return true, true
			}
			return false, true
		}
	}
}

// resumeChained lets the leader resume the thread, after the commands that
// are queued.
func (c *context) resumeChained(s *slot) bool {
	st, m := s.st, s.mem
	st.mu.Lock()
	defer st.mu.Unlock()
	op := uint32(opResume)
	if st.head-st.acked >= ringSize/2 {
		op |= opAck
	}
	var v uint32
	for {
		v = m.load()
		if v == stDead {
			return false
		}
		want := uint32(stChain)
		if v == stEventW {
			want = stChainW
		}
		if m.cas(v, want) {
			break
		}
	}
	st.dirty.Store(false)
	st.push(op, s.start+slotSize-slotMemSize)
	// A stub that finds chain wakes the leader; it may have done so before
	// the command was there.
	if m.load() == stChainW {
		futexWake(&st.cmd.head)
	}
	return true
}

// wait waits until the thread reports, and returns the state of the slot.
func (c *context) wait(s *slot, woken, apart bool) uint32 {
	p, m := c.p, s.mem
	// Spin if a processor is left for it, and if it paid lately.
	tried := false
	if apart && c.spin.worth() {
		if p.running.Load()+p.spinning.Add(1) <= int32(p.cpus) {
			tried = true
			v := uint32(stRun)
			if woken {
				for i := 0; i < wakePolls && notYet>>v&1 != 0 && atomic.LoadUint64(&m.t0) == 0; i++ {
					v = spinWhile(&m.state, notYet, p.pollUnit)
				}
			}
			for i := 0; i < runPolls && notYet>>v&1 != 0; i++ {
				v = spinWhile(&m.state, notYet, p.pollUnit)
			}
			if notYet>>v&1 == 0 {
				p.spinning.Add(-1)
				c.spin = spinner{}
				return v
			}
		}
		p.spinning.Add(-1)
	}
	var pause time.Duration
	for {
		v := m.load()
		switch v {
		case stRun:
			if p.sleeping.Add(1) > sleepMax {
				pause = min(pause+time.Millisecond, pauseMax)
				time.Sleep(pause)
			} else if m.cas(stRun, stRunW) {
				futexWait(&m.state, stRunW, nil)
			}
			p.sleeping.Add(-1)
		case stRunW, stChain, stChainW:
			futexWait(&m.state, v, nil)
		default:
			// The guest could forge the times, and make us spin more.
			t0, t1 := atomic.LoadUint64(&m.t0), atomic.LoadUint64(&m.t1)
			c.spin.slept(tried, t1-t0 < runPolls*p.pollCycles)
			return v
		}
	}
}

// Interrupt implements platform.Context.
func (c *context) Interrupt() {
	c.interrupted.Store(true)
	if s := c.inside.Load(); s != nil {
		c.p.kick(s)
	}
}

// FPState implements platform.Context.
func (c *context) FPState() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fpMode == fpCPU && c.s != nil {
		c.spill(c.s)
	}
	switch {
	case c.fpMode == fpSet:
		return append([]byte(nil), c.fp...)
	case c.fpMode == fpLive && c.s != nil:
		return c.liveFP(c.s)
	}
	return nil
}

// SetFPState implements platform.Context.
func (c *context) SetFPState(fp []byte) error {
	if fp == nil {
		c.mu.Lock()
		c.fpMode, c.fp = fpInit, nil
		c.mu.Unlock()
		return nil
	}
	fp, err := c.p.fp.check(fp)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.fpMode, c.fp = fpSet, fp
	c.mu.Unlock()
	return nil
}

// Sleep implements platform.Context.
func (c *context) Sleep() {
	c.mu.Lock()
	if c.s != nil {
		c.s.mem.cas(stEvent, stSleep)
	}
	c.mu.Unlock()
}

// Release implements platform.Context.
func (c *context) Release() {
	c.mu.Lock()
	if c.s != nil {
		c.dropLocked()
	}
	c.fpMode, c.fp = fpInit, nil
	c.mu.Unlock()
}
