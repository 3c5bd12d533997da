package kernel

import (
	"context"
	"errors"

	"runsc/sentry/vfs"
)

// ErrSaving is returned while another save of the container is under way.
var ErrSaving = errors.New("the container is being saved already")

// StopForSave stops all tasks of the container at points where they can be
// saved and returns when none runs: like Pause, but blocked calls unwind and are
// entered again afterwards. From then on even SIGKILL waits. When ctx ends
// first the container runs on and its error is returned; a container that ends
// is ErrNotRunning.
func (c *Container) StopForSave(ctx context.Context) error {
	f := &c.freezer
	f.mu.Lock()
	if f.saving.Load() != saveNone {
		f.mu.Unlock()
		return ErrSaving
	}
	f.saving.Store(saveStop)
	f.wakeLocked() // who was paused in the middle of a call goes on
	f.mu.Unlock()
	for {
		f.mu.Lock()
		moved := f.moved
		f.mu.Unlock()
		done, err := c.tryCut()
		if err == nil && !done {
			select {
			case <-moved:
				continue
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		if err != nil {
			c.ResumeAfterSave()
		}
		return err
	}
}

// tryCut interrupts every task that is not where it can be saved; if there is
// none, the cut is made.
func (c *Container) tryCut() (bool, error) {
	c.k.mu.Lock()
	defer c.k.mu.Unlock()
	if c.init == nil || !c.init.started || c.init.exitState != exitNone || c.dying || c.pidNS.dying {
		return false, ErrNotRunning
	}
	if n := c.kickMovingLocked(true); n != 0 {
		return false, nil
	}
	f := &c.freezer
	f.mu.Lock()
	defer f.mu.Unlock()
	// Who was killed meanwhile has gone on.
	if n := c.kickMovingLocked(false); n != 0 {
		return false, nil
	}
	f.saving.Store(saveCut)
	return true, nil
}

// kickMovingLocked counts the tasks that cannot be saved where they are.
func (c *Container) kickMovingLocked(kick bool) int {
	n := 0
	for t := range c.tasks {
		if p := t.phase.Load(); t.onLocked() && p != phaseParked && p != phaseStopped {
			if kick {
				t.kick()
			}
			n++
		}
	}
	return n
}

// ResumeAfterSave ends StopForSave. A paused container stays paused.
func (c *Container) ResumeAfterSave() {
	f := &c.freezer
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.saving.Swap(saveNone) != saveNone {
		f.wakeLocked()
	}
}

// MountNamespaces returns those of the container's tasks.
func (c *Container) MountNamespaces() []*vfs.Namespace {
	c.k.mu.Lock()
	defer c.k.mu.Unlock()
	seen := map[*vfs.Namespace]bool{}
	var all []*vfs.Namespace
	for t := range c.tasks {
		t.mu.Lock()
		if ns := t.mountNS; ns != nil && !seen[ns] {
			seen[ns] = true
			all = append(all, ns)
		}
		t.mu.Unlock()
	}
	return all
}
