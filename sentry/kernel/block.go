package kernel

import (
	"time"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/errs"
)

// blockTimer is the task's host timer, kept between sleeps.
type blockTimer struct {
	t *time.Timer
}

func (b *blockTimer) arm(d time.Duration) <-chan time.Time {
	if b.t == nil {
		b.t = time.NewTimer(d)
	} else {
		b.t.Reset(d)
	}
	return b.t.C
}

// Block sleeps until w is woken (nil), the monotonic deadline passes
// (ETIMEDOUT; 0 is none) or something interrupts the task: a signal that it
// would take, a stop, its end (errs.ERESTARTSYS), or a save (errs.ERESTARTCKPT,
// which the call returns as it is; see reentry.go). A pause of the container
// does not interrupt: the task stays inside until it is over. A pending wake-up
// wins over an interruption, so that no progress is lost. Own.
func (t *Task) Block(w *waitq.Waiter, deadline int64) error {
	return t.sleep(w, deadline, phaseBlock)
}

// BlockKillable is Block that only the task's end, with EINTR which no guest
// sees, and a save interrupt: the D state. Own.
func (t *Task) BlockKillable(w *waitq.Waiter, deadline int64) error {
	return t.sleep(w, deadline, phaseKill)
}

// BlockTimeout is Block with a time from now; a negative d is for ever.
func (t *Task) BlockTimeout(w *waitq.Waiter, d time.Duration) error {
	if d < 0 {
		return t.Block(w, 0)
	}
	return t.Block(w, t.Now()+int64(d))
}

// sleep is the one place that blocks on behalf of a guest.
func (t *Task) sleep(w *waitq.Waiter, deadline int64, phase uint32) error {
	select {
	case <-w.C:
		return nil
	default:
	}
	if err := t.interrupted(phase); err != nil {
		return err
	}
	var timeout <-chan time.Time
	t.untimed.Store(deadline == 0)
	defer t.untimed.Store(false)
	if deadline != 0 {
		d := t.k.clock.Until(deadline)
		if d == 0 {
			return unix.ETIMEDOUT
		}
		timeout = t.blockTmr.arm(d)
		defer t.blockTmr.t.Stop()
	}
	t.ctx.Sleep()
	t.enterPhase(phase)
	start := t.Now()
	err := t.sleepOn(w, timeout, phase)
	t.leavePhase(phase)
	t.acct.blocked(t.Now() - start)
	return err
}

func (t *Task) sleepOn(w *waitq.Waiter, timeout <-chan time.Time, phase uint32) error {
	for {
		select {
		case <-w.C:
			return nil
		case <-timeout:
			return unix.ETIMEDOUT
		case <-t.intr:
			if err := t.interrupted(phase); err != nil {
				// Both may be ready: the wake-up is progress.
				select {
				case <-w.C:
					return nil
				default:
				}
				return err
			}
		}
	}
}

// interrupted returns the error that a sleep has to end with, if it has to.
func (t *Task) interrupted(phase uint32) error {
	switch {
	case phase == phaseBlock:
		if t.SignalPending() {
			return errs.ERESTARTSYS
		}
	case t.killed.Load():
		return unix.EINTR
	}
	if t.container.freezer.saving.Load() != saveNone && t.run.kind != runExec {
		// An exec is about to be over.
		return errs.ERESTARTCKPT
	}
	return nil
}

// SignalPending tells whether the task has a signal to take or a stop to take
// part in. Own.
func (t *Task) SignalPending() bool {
	if t.killed.Load() {
		return true
	}
	if !t.work.Load() {
		return false // every sender sets it
	}
	t.tg.sigmu.Lock()
	defer t.tg.sigmu.Unlock()
	return t.signalPendingLocked()
}

func (t *Task) signalPendingLocked() bool {
	return t.sig.stopPending || t.tg.sig.tellContinued ||
		(t.sig.pending.set|t.tg.sig.shared.set)&^t.sig.mask != 0
}

// enterPhase and leavePhase bracket a sleep. A task that leaves one while its
// container is paused waits here; SIGKILL ends that too, and a save.
func (t *Task) enterPhase(phase uint32) {
	t.phase.Store(phase)
	t.k.nRunning.Add(-1)
	if t.container.freezer.active() {
		t.container.freezer.changed()
	}
}

func (t *Task) leavePhase(phase uint32) {
	t.phase.Store(phaseRun)
	t.k.nRunning.Add(1)
	t.parkAsleep()
}
