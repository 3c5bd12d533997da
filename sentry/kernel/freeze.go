package kernel

import (
	"context"
	"sync"
	"sync/atomic"
)

// freezer pauses a container: each task stops at its next return to the guest,
// or stays in the sleep it is in (cgroup freezer).
type freezer struct {
	frozen atomic.Bool

	mu sync.Mutex
	// mu guards: channels that are closed and replaced
	thaw  chan struct{} // closed when the container runs on
	moved chan struct{} // closed when a task stopped
}

func (f *freezer) init() {
	f.thaw, f.moved = make(chan struct{}), make(chan struct{})
}

// changed tells Pause that a task has stopped.
func (f *freezer) changed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.moved)
	f.moved = make(chan struct{})
}

// park keeps the task stopped until the container runs on or the task is
// killed. Own.
func (t *Task) park() {
	f := &t.container.freezer
	for f.frozen.Load() && !t.killed.Load() {
		f.mu.Lock()
		thaw := f.thaw
		f.mu.Unlock()
		if !f.frozen.Load() {
			return // thaw may be that of a later pause
		}
		t.ctx.Sleep()
		t.phase.Store(phaseFrozen)
		t.k.nRunning.Add(-1)
		f.changed()
		select {
		case <-thaw:
		case <-t.intr:
			t.work.Store(true) // what it was about is dealt with after the pause
		}
		t.phase.Store(phaseRun)
		t.k.nRunning.Add(1)
	}
}

// Pause stops all tasks of the container and returns when none runs. When ctx
// ends first, the container runs on and its error is returned.
func (c *Container) Pause(ctx context.Context) error {
	f := &c.freezer
	f.frozen.Store(true)
	for {
		f.mu.Lock()
		moved := f.moved
		f.mu.Unlock()
		if c.kickRunning() == 0 {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			c.Resume()
			return ctx.Err()
		}
	}
}

// kickRunning interrupts every task that is not stopped and returns how many.
func (c *Container) kickRunning() int {
	c.k.mu.Lock()
	defer c.k.mu.Unlock()
	n := 0
	for t := range c.tasks {
		if t.exitState == exitNone && t.phase.Load() == phaseRun {
			t.kick()
			n++
		}
	}
	return n
}

// kick interrupts a task whose end may be near: past exitSignals its context
// may be gone.
func (t *Task) kick() {
	t.tg.sigmu.Lock()
	defer t.tg.sigmu.Unlock()
	if !t.sig.exiting {
		t.interrupt()
	}
}

// Resume lets a paused container run on.
func (c *Container) Resume() {
	f := &c.freezer
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.frozen.Swap(false) {
		close(f.thaw)
		f.thaw = make(chan struct{})
	}
}

// Paused tells whether Pause is in force.
func (c *Container) Paused() bool { return c.freezer.frozen.Load() }
