package kernel

import (
	"context"
	"sync"
	"sync/atomic"
)

// freezer pauses a container: each task stops at its next return to the guest,
// or stays in the sleep it is in (cgroup freezer). For a save all tasks stop at
// the beginning of step, or in a job control stop.
type freezer struct {
	// atomic, changed under mu
	frozen atomic.Bool   // Pause
	saving atomic.Uint32 // StopForSave: saveNone and so on

	mu sync.Mutex
	// mu guards: channels that are closed and replaced
	thaw  chan struct{} // closed when the container runs on, or is to be saved
	moved chan struct{} // closed when a task stopped
}

// How far a save is.
const (
	saveNone uint32 = iota
	saveStop        // the tasks are told to stop
	saveCut         // all have stopped: none moves, not even to die
)

func (f *freezer) init() {
	f.thaw, f.moved = make(chan struct{}), make(chan struct{})
}

// changed tells Pause and StopForSave that a task has stopped.
func (f *freezer) changed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.moved)
	f.moved = make(chan struct{})
}

// active tells whether tasks are to stop.
func (f *freezer) active() bool { return f.frozen.Load() || f.saving.Load() != saveNone }

// wakeLocked lets stopped tasks look again.
func (f *freezer) wakeLocked() {
	close(f.thaw)
	f.thaw = make(chan struct{})
}

// park keeps the task stopped, between two steps, until the container runs on
// or the task is killed. Own.
func (t *Task) park() {
	f := &t.container.freezer
	if f.active() {
		t.stay(phaseParked, func() bool {
			return f.saving.Load() == saveCut || f.active() && !t.killed.Load()
		})
	}
}

// parkAsleep keeps a task stopped that comes out of a sleep in a paused
// container; a save wants it to go on to the end of its call. Own.
func (t *Task) parkAsleep() {
	f := &t.container.freezer
	if f.frozen.Load() {
		t.stay(phaseFrozen, func() bool {
			return f.frozen.Load() && f.saving.Load() == saveNone && !t.killed.Load()
		})
	}
}

// stay keeps the task in a phase as long as cond, called with freezer.mu held,
// says so.
func (t *Task) stay(phase uint32, cond func() bool) {
	f := &t.container.freezer
	f.mu.Lock()
	defer f.mu.Unlock()
	if !cond() {
		return
	}
	t.ctx.Sleep()
	t.k.nRunning.Add(-1)
	for cond() {
		t.phase.Store(phase)
		close(f.moved)
		f.moved = make(chan struct{})
		thaw := f.thaw
		f.mu.Unlock()
		select {
		case <-thaw:
		case <-t.intr:
			t.work.Store(true) // what it was about is dealt with later
		}
		f.mu.Lock()
	}
	t.phase.Store(phaseRun)
	t.k.nRunning.Add(1)
}

// leaveStop ends a job control stop, which a save holds up. Own.
func (t *Task) leaveStop() {
	f := &t.container.freezer
	f.mu.Lock()
	for f.saving.Load() == saveCut {
		thaw := f.thaw
		f.mu.Unlock()
		<-thaw
		f.mu.Lock()
	}
	t.phase.Store(phaseRun)
	f.mu.Unlock()
	t.k.nRunning.Add(1)
	t.parkAsleep()
}

// Pause stops all tasks of the container and returns when none runs. When ctx
// ends first, the container runs on and its error is returned.
func (c *Container) Pause(ctx context.Context) error {
	f := &c.freezer
	f.mu.Lock()
	f.frozen.Store(true)
	f.mu.Unlock()
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
		if t.onLocked() && t.phase.Load() == phaseRun {
			t.kick()
			n++
		}
	}
	return n
}

// onLocked tells whether the task has a goroutine and has not ended.
func (t *Task) onLocked() bool {
	return t.exitState == exitNone && (t.tg.started || t.tg.discarded)
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
		f.wakeLocked()
	}
}

// Paused tells whether Pause is in force.
func (c *Container) Paused() bool { return c.freezer.frozen.Load() }
