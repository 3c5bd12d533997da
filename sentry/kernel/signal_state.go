package kernel

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/abi/linux"
	"runsc/sentry/arch"
	"runsc/sentry/clock"
	"runsc/sentry/image"
)

// queueRecord is the record of pending signals; sigmu is held.
func queueRecord(q *sigQueue) *image.SigQueue {
	if q.set == 0 && len(q.list) == 0 {
		return nil
	}
	rec := &image.SigQueue{Set: uint64(q.set)}
	for _, e := range q.list {
		x := image.Signal{Info: trimmed(&e.info)}
		if e.user != nil {
			x.User = uint64(e.user.uid) + 1
		}
		if e.timer != nil {
			x.Timer = int64(e.timer.id) + 1
		}
		rec.List = append(rec.List, x)
	}
	return rec
}

// queue restores pending signals of tg; k.mu is held for the users' counts.
func (r *restored) queueLocked(tg *ThreadGroup, q *sigQueue, rec *image.SigQueue) error {
	if rec == nil {
		return nil
	}
	q.set = arch.SigSet(rec.Set)
	for i := range rec.List {
		x := &rec.List[i]
		info, err := infoOf(x.Info)
		if err != nil {
			return err
		}
		e := &queuedSignal{info: info}
		if x.Timer != 0 {
			if e.timer = tg.timers.posix[int32(x.Timer-1)]; e.timer == nil {
				return bad("a signal of timer %d", x.Timer-1)
			}
		}
		if x.User != 0 {
			e.user = r.k.userLocked(uint32(x.User - 1))
			e.user.sigPending.Add(1)
		}
		q.list = append(q.list, e)
		q.set |= arch.SigBit(info.Signo)
	}
	return nil
}

func (s *containerSaver) handlersID(h *SigHandlers) image.ID {
	return s.id(h, func(id image.ID) error {
		rec := &image.SigHandlers{ID: id}
		h.mu.Lock()
		for i, a := range h.actions {
			if a != (arch.SigAction{}) {
				rec.Actions = append(rec.Actions, image.SigAction{
					Signal: int32(i + 1), Handler: a.Handler, Flags: a.Flags, Restorer: a.Restorer, Mask: uint64(a.Mask),
				})
			}
		}
		h.mu.Unlock()
		return s.e.Put(image.KindSigHandlers, rec)
	})
}

// handlers returns the actions with a reference for the caller.
func (r *restored) handlers(id image.ID) (*SigHandlers, error) {
	h, err := image.Once(r.e.Restorer, id, func() (*SigHandlers, error) {
		var rec image.SigHandlers
		if err := r.e.Get(image.KindSigHandlers, id, &rec); err != nil {
			return nil, err
		}
		h := newSigHandlers()
		h.refs.Store(0)
		for _, a := range rec.Actions {
			if !ValidSignal(a.Signal) || sigKernelOnly.Has(a.Signal) {
				return nil, bad("action of signal %d", a.Signal)
			}
			h.actions[a.Signal-1] = arch.SigAction{
				Handler: a.Handler, Flags: a.Flags &^ linux.SA_UNSUPPORTED, Restorer: a.Restorer, Mask: arch.SigSet(a.Mask) &^ sigKernelOnly,
			}
		}
		return h, nil
	})
	if err == nil {
		h.refs.Add(1)
	}
	return h, err
}

// saveTimers adds a process's timers to its record. The clock is frozen.
func (s *containerSaver) saveTimers(tg *ThreadGroup) {
	rec, g := s.grecs[tg], &tg.timers
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.dead {
		return
	}
	rec.Real = timerRecord(g.real)
	rec.Virtual, rec.Prof, rec.CPULimit = g.cpu[0].record(), g.cpu[1].record(), g.limit.record()
	rec.NextTimer = g.next
	var all []*posixTimer
	for _, p := range g.posix {
		all = append(all, p)
	}
	sortBy(all, func(p *posixTimer) int32 { return p.id })
	for _, p := range all {
		x := image.PosixTimer{Timer: p.id, Clock: p.clk, Value: p.event.Value, Signal: p.event.Signo, Notify: p.event.Notify}
		if p.target != nil {
			x.Target = s.e.Known(p.target)
		}
		if p.clk == unix.CLOCK_THREAD_CPUTIME_ID {
			x.Thread = s.e.Known(p.thread)
		}
		if p.cpu != nil {
			x.Armed = p.cpu.record()
		} else {
			x.Armed = timerRecord(p.host)
		}
		p.mu.Lock()
		if p.wall && x.Armed != nil {
			x.Wall = x.Armed.Deadline - s.rec.Monotonic + s.rec.Realtime
		}
		x.Queued, x.Pending, x.Overrun = p.queued, p.pending, p.overrun
		p.mu.Unlock()
		rec.Timers = append(rec.Timers, x)
	}
}

func timerRecord(t *clock.Timer) *image.Timer {
	if t == nil {
		return nil
	}
	d, iv := t.Get()
	if d == 0 {
		return nil
	}
	return &image.Timer{Deadline: d, Interval: iv}
}

func (c *cpuTimer) record() *image.Timer {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.expires == 0 {
		return nil
	}
	return &image.Timer{Deadline: c.expires, Interval: c.interval}
}

// arm makes the timer go on with an absolute CPU time.
func (c *cpuTimer) arm(rec *image.Timer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expires, c.interval, c.pause = rec.Deadline, rec.Interval, cpuLookMin
	c.host.Set(c.now.Monotonic()+cpuLookMin, 0)
}

// restoreTimers makes a process's timers; armed ones start with it.
func (r *restored) restoreTimers(tg *ThreadGroup, rec *image.ThreadGroup) error {
	g := &tg.timers
	for _, x := range []*image.Timer{rec.Real, rec.Virtual, rec.Prof, rec.CPULimit} {
		if x != nil && (x.Deadline <= 0 || x.Interval < 0) {
			return bad("a timer")
		}
	}
	if x := rec.Real; x != nil {
		g.real = tg.newRealTimer()
		r.arm = append(r.arm, func() { g.real.Set(shifted(x.Deadline, r.shift), x.Interval) })
	}
	for i, x := range []*image.Timer{rec.Virtual, rec.Prof} {
		if x != nil {
			c := tg.newCPUInterval(int32(unix.ITIMER_VIRTUAL + i))
			g.cpu[i] = c
			r.arm = append(r.arm, func() { c.arm(x) })
		}
	}
	if x := rec.CPULimit; x != nil {
		g.limit = tg.newCPULimit()
		r.arm = append(r.arm, func() { g.limit.arm(x) })
	}
	if len(rec.Timers) > maxPosixTimers || rec.NextTimer < 0 {
		return bad("%d timers", len(rec.Timers))
	}
	g.next = rec.NextTimer
	if len(rec.Timers) > 0 {
		g.posix = make(map[int32]*posixTimer)
	}
	for i := range rec.Timers {
		x := &rec.Timers[i]
		p := newPosixTimer(tg, x.Clock)
		p.id = x.Timer
		p.event = linux.Sigevent{Value: x.Value, Signo: x.Signal, Notify: x.Notify}
		p.queued, p.pending, p.overrun, p.wall = x.Queued, x.Pending, x.Overrun, x.Wall != 0
		var err error
		if p.target, err = r.threadOf(tg, x.Target); err != nil {
			return err
		}
		if p.thread, err = r.threadOf(tg, x.Thread); err != nil {
			return err
		}
		if p.thread == nil {
			p.thread = tg.leader
		}
		if g.posix[p.id] != nil || p.id < 0 || x.Notify != linux.SIGEV_NONE && !ValidSignal(x.Signal) || !p.makeClock() {
			return bad("timer %d", x.Timer)
		}
		g.posix[p.id] = p
		if a := x.Armed; a != nil {
			if a.Deadline <= 0 || a.Interval < 0 {
				return bad("timer %d", x.Timer)
			}
			r.arm = append(r.arm, func() { p.arm(a, x.Wall, r.shift) })
		}
	}
	return nil
}

// arm makes the timer go on; wall, if not 0, is the deadline on CLOCK_REALTIME.
func (p *posixTimer) arm(rec *image.Timer, wall, shift int64) {
	if p.cpu != nil {
		p.cpu.arm(rec)
		return
	}
	deadline := shifted(rec.Deadline, shift)
	if wall != 0 {
		deadline = p.tg.k.Deadline(unix.CLOCK_REALTIME, true, wall)
	}
	p.host.Set(deadline, rec.Interval)
}

// threadOf returns the task of tg with a number; 0, or one that is gone, is nil.
func (r *restored) threadOf(tg *ThreadGroup, id image.ID) (*Task, error) {
	if id == 0 {
		return nil, nil
	}
	t, ok := image.Object[*Task](r.e.Restorer, id)
	if !ok || t.tg != tg {
		return nil, bad("task %d is not of the process", id)
	}
	return t, nil
}
