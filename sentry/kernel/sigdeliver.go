package kernel

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/abi/linux"
	"runsc/pkg/waitq"
	"runsc/sentry/arch"
	"runsc/sentry/errs"
	"runsc/sentry/image"
)

// Restarter carries on a call that restart_syscall(2) resumes; each is a flat
// record with an absolute deadline (Linux's restart_block).
type Restarter interface {
	Restart(t *Task) (uintptr, error)
	// SaveRestart is its record, which RegisterRestart's function undoes.
	SaveRestart() image.Restart
}

// restarters make Restarters of records, by kind.
var restarters [8]func(args []uint64, shift func(deadline int64) int64) Restarter

// RegisterRestart says how a Restarter is made of its record; shift makes a saved
// deadline one of the new clock. Package syscalls calls it when it is
// initialized: it is code, no state.
func RegisterRestart(kind uint8, restore func(args []uint64, shift func(deadline int64) int64) Restarter) {
	restarters[kind] = restore
}

func restoreRestart(rec *image.Restart, shift int64) (Restarter, error) {
	if int(rec.Kind) < len(restarters) && restarters[rec.Kind] != nil {
		if r := restarters[rec.Kind](rec.Args, func(d int64) int64 { return shifted(d, shift) }); r != nil {
			return r, nil
		}
	}
	return nil, bad("restart of kind %d", rec.Kind)
}

// restartState is what the last system call left for the signal code.
type restartState struct {
	code  unix.Errno `save:"rec"` // a restart code, 0 none
	block Restarter  `save:"rec"` // for ERESTARTBLOCK and restart_syscall
}

// SetRestart stores how restart_syscall(2) resumes the call that is about to
// return errs.ERESTARTBLOCK, and returns that. Own.
func (t *Task) SetRestart(r Restarter) error {
	t.restart.block = r
	return errs.ERESTARTBLOCK
}

// RestartSyscall is restart_syscall(2). Own.
func (t *Task) RestartSyscall() (uintptr, error) {
	r := t.restart.block
	t.restart.block = nil
	if r == nil {
		return 0, unix.EINTR
	}
	ret, err := r.Restart(t)
	if err == errs.ERESTARTCKPT {
		t.restart.block = r
	}
	return ret, err
}

// doWork does everything that has to be done before the guest runs on: pause,
// stops, signals, restarts. It returns false when the task has to exit. Own.
func (t *Task) doWork() bool {
	t.work.Store(false)
	t.park()
	for {
		if t.killed.Load() {
			return false
		}
		q, act := t.nextSignal()
		if q == nil {
			if t.killed.Load() {
				return false
			}
			break
		}
		if act.Handler == linux.SIG_DFL {
			// nextSignal returns only fatal ones without handler.
			t.exitGroup(q.info.Signo)
			return false
		}
		t.restartForHandler(&act)
		t.handleSignal(q, &act)
	}
	t.restartWithoutHandler()
	t.restoreMask()
	return true
}

// nextSignal takes the next signal that has a handler or ends the process; it
// deals with all others and with stops itself (get_signal). nil: none is left.
func (t *Task) nextSignal() (*queuedSignal, arch.SigAction) {
	tg := t.tg
	tg.sigmu.Lock()
	for {
		if tg.sig.tellContinued {
			tg.sig.tellContinued = false
			tg.sigmu.Unlock()
			tg.tellParentStop(linux.CLD_CONTINUED, int32(unix.SIGCONT))
			tg.sigmu.Lock()
			continue
		}
		if t.killed.Load() {
			tg.sigmu.Unlock()
			return nil, arch.SigAction{}
		}
		if t.sig.stopPending {
			t.stopLocked() // unlocks
			tg.sigmu.Lock()
			continue
		}
		if t.sig.stopped {
			// As it was saved.
			tg.sigmu.Unlock()
			t.stayStopped()
			tg.sigmu.Lock()
			continue
		}
		q := t.dequeueLocked(t.sig.mask)
		if q == nil {
			tg.sigmu.Unlock()
			return nil, arch.SigAction{}
		}
		sig := q.info.Signo
		act := tg.sig.handlers.get(sig)
		switch {
		case act.Handler == linux.SIG_IGN:
			continue
		case act.Handler != linux.SIG_DFL:
			if act.Flags&linux.SA_RESETHAND != 0 {
				tg.sig.handlers.set(sig, arch.SigAction{Mask: act.Mask, Flags: act.Flags, Restorer: act.Restorer})
			}
			tg.sigmu.Unlock()
			return q, act
		case sigDflIgnored.Has(sig):
			continue
		case tg.sig.unkillable && !sigKernelOnly.Has(sig):
			continue
		case sigStopSet.Has(sig):
			if sig != int32(unix.SIGSTOP) {
				// A group without a shell to continue it is not stopped.
				tg.sigmu.Unlock()
				orphaned := tg.pgrpOrphaned()
				tg.sigmu.Lock()
				if orphaned {
					continue
				}
			}
			tg.beginStopLocked(sig)
			continue
		}
		tg.sigmu.Unlock()
		return q, act
	}
}

// dequeueLocked takes a pending signal not in mask, the task's own first.
func (t *Task) dequeueLocked(mask arch.SigSet) *queuedSignal {
	q := t.sig.pending.take(mask)
	if q == nil {
		q = t.tg.sig.shared.take(mask)
	}
	if q == nil {
		return nil
	}
	q.free()
	if q.timer != nil {
		q.timer.dequeued(&q.info)
	}
	return q
}

// beginStopLocked starts a group stop, unless one is under way or the group
// was continued or killed meanwhile (do_signal_stop).
func (tg *ThreadGroup) beginStopLocked(sig int32) {
	if tg.sig.exiting || tg.sig.stopSig != 0 && !tg.sig.stopped {
		return
	}
	tg.sig.stopSig, tg.sig.stopCount, tg.sig.stopped = sig, 0, false
	for _, o := range tg.tasks {
		if o.sig.exiting || o.sig.stopped {
			continue
		}
		o.sig.stopPending = true
		tg.sig.stopCount++
		o.interrupt()
	}
}

// stopLocked takes part in a group stop: it returns, with sigmu released, when
// the group is continued or killed. The last task to stop tells the parent.
func (t *Task) stopLocked() {
	tg := t.tg
	t.sig.stopPending, t.sig.stopped = false, true
	sig := tg.sig.stopSig
	last := tg.taskStoppedLocked()
	tg.sigmu.Unlock()
	if last {
		tg.tellParentStop(linux.CLD_STOPPED, sig)
	}
	t.stayStopped()
}

// stayStopped waits for the end of the stop.
func (t *Task) stayStopped() {
	tg := t.tg
	t.ctx.Sleep()
	t.enterPhase(phaseStopped)
	for {
		tg.sigmu.Lock()
		on := !t.sig.stopped || t.killed.Load()
		tg.sigmu.Unlock()
		if on {
			break
		}
		<-t.intr
	}
	t.work.Store(true)
	t.leaveStop()
}

// taskStoppedLocked counts a task as stopped and tells whether it was the last.
func (tg *ThreadGroup) taskStoppedLocked() bool {
	if tg.sig.stopCount > 0 {
		tg.sig.stopCount--
	}
	if tg.sig.stopCount == 0 && !tg.sig.stopped && tg.sig.stopSig != 0 {
		tg.sig.stopped = true
		tg.sig.stopCode = tg.sig.stopSig
		return true
	}
	return false
}

// tellParentStop sends the parent its SIGCHLD for a stop or continuation and
// wakes its wait(2) (do_notify_parent_cldstop).
func (tg *ThreadGroup) tellParentStop(code, status int32) {
	tg.k.mu.Lock()
	defer tg.k.mu.Unlock()
	p := tg.parent
	if p == nil {
		return
	}
	info := tg.childInfoLocked(code, status)
	p.sigmu.Lock()
	if a := p.sig.handlers.get(int32(unix.SIGCHLD)); a.Handler != linux.SIG_IGN && a.Flags&linux.SA_NOCLDSTOP == 0 {
		p.sendLocked(&sendInfo{info: info, force: true}, nil)
	}
	p.sigmu.Unlock()
	p.wakeWaiters()
}

// restartForHandler decides what the interrupted call does when a handler is
// about to run (handle_signal of arch/x86/kernel/signal.c).
func (t *Task) restartForHandler(a *arch.SigAction) {
	code := t.restart.code
	t.restart.code = 0
	switch code {
	case 0:
		return
	case errs.ERESTARTSYS:
		if a.Flags&linux.SA_RESTART == 0 {
			t.setErrno(unix.EINTR)
			return
		}
		t.reenter()
	case errs.ERESTARTNOINTR:
		t.reenter()
	default: // ERESTARTNOHAND, ERESTARTBLOCK
		t.setErrno(unix.EINTR)
	}
}

// restartWithoutHandler re-enters the interrupted call when no handler ran.
func (t *Task) restartWithoutHandler() {
	code := t.restart.code
	t.restart.code = 0
	switch code {
	case 0:
	case errs.ERESTARTBLOCK:
		t.reenter()
		t.regs.Rax = unix.SYS_RESTART_SYSCALL
	default:
		t.reenter()
	}
}

// reenter moves the guest back to its system call instruction.
func (t *Task) reenter() {
	t.regs.Rax = t.regs.OrigRax
	t.regs.Rip -= 2
}

func (t *Task) setErrno(e unix.Errno) { t.regs.Rax = uint64(-int64(e)) }

// SetMask replaces the signal mask and returns the old one; SIGKILL and
// SIGSTOP are never in it. Own.
func (t *Task) SetMask(mask arch.SigSet) arch.SigSet {
	t.tg.sigmu.Lock()
	defer t.tg.sigmu.Unlock()
	return t.setMaskLocked(mask)
}

func (t *Task) setMaskLocked(mask arch.SigSet) arch.SigSet {
	old := t.sig.mask
	mask &^= sigKernelOnly
	t.sig.mask = mask
	if newly := mask &^ old; newly != 0 {
		t.retargetLocked(newly)
	}
	if t.signalPendingLocked() {
		t.work.Store(true)
	}
	return old
}

// retargetLocked makes other threads look at group signals that this one may
// have been woken for but no longer takes (retarget_shared_pending).
func (t *Task) retargetLocked(s arch.SigSet) {
	s &= t.tg.sig.shared.set
	for sig := int32(1); s != 0 && sig <= linux.NSIG; sig++ {
		if !s.Has(sig) {
			continue
		}
		s &^= arch.SigBit(sig)
		for _, o := range t.tg.tasks {
			if o != t && o.wantsLocked(sig) {
				o.interrupt()
				break
			}
		}
	}
}

// Mask returns the signal mask.
func (t *Task) Mask() arch.SigSet {
	t.tg.sigmu.Lock()
	defer t.tg.sigmu.Unlock()
	return t.sig.mask
}

// SetTempMask sets the mask for one call; the old one comes back when the call
// is over, but a signal that ended it is handled first (set_user_sigmask). A
// call that is entered again has set it before. Own.
func (t *Task) SetTempMask(mask arch.SigSet) {
	t.tg.sigmu.Lock()
	defer t.tg.sigmu.Unlock()
	if old := t.setMaskLocked(mask); !t.sig.restoreMask {
		t.sig.savedMask = old
	}
	t.sig.restoreMask = true
	t.work.Store(true)
}

// endTempMask puts the mask back at once after a call that was not interrupted:
// what it unblocked stays pending (restore_saved_sigmask_unless).
func (t *Task) endTempMask(err error) {
	if t.sig.restoreMask && err != unix.EINTR && t.restart.code == 0 {
		t.restoreMask()
	}
}

func (t *Task) restoreMask() {
	t.tg.sigmu.Lock()
	defer t.tg.sigmu.Unlock()
	if t.sig.restoreMask {
		t.sig.restoreMask = false
		t.setMaskLocked(t.sig.savedMask)
	}
}

// SigAction changes, if act is not nil, and returns the action of sig
// (do_sigaction): EINVAL for a bad signal, SIGKILL and SIGSTOP. Own.
func (t *Task) SigAction(sig int32, act *arch.SigAction) (arch.SigAction, error) {
	if !ValidSignal(sig) || act != nil && sigKernelOnly.Has(sig) {
		return arch.SigAction{}, unix.EINVAL
	}
	tg := t.tg
	tg.sigmu.Lock()
	defer tg.sigmu.Unlock()
	if act == nil {
		return tg.sig.handlers.get(sig), nil
	}
	n := *act
	n.Mask &^= sigKernelOnly
	n.Flags &^= linux.SA_UNSUPPORTED
	old := tg.sig.handlers.set(sig, n)
	if n.Handler == linux.SIG_IGN || n.Handler == linux.SIG_DFL && sigDflIgnored.Has(sig) {
		// POSIX: setting to ignore discards what is pending.
		tg.discardAllLocked(arch.SigBit(sig))
	}
	return old, nil
}

// PendingSignals returns the blocked signals that wait for the task
// (sigpending(2)). Own.
func (t *Task) PendingSignals() arch.SigSet {
	t.tg.sigmu.Lock()
	defer t.tg.sigmu.Unlock()
	return t.sig.pending.set | t.tg.sig.shared.set
}

// SignalQueue is notified when a signal is queued for the process (signalfd).
func (t *Task) SignalQueue() *waitq.Queue { return &t.tg.sig.queueQ }

// SignalSets returns what /proc/PID/status shows.
func (t *Task) SignalSets() (pending, shared, blocked, ignored, caught arch.SigSet, queued int64) {
	tg := t.tg
	tg.sigmu.Lock()
	pending, shared, blocked = t.sig.pending.set, tg.sig.shared.set, t.sig.mask
	h := tg.sig.handlers
	tg.sigmu.Unlock()
	h.mu.Lock()
	for i, a := range h.actions {
		switch a.Handler {
		case linux.SIG_DFL:
		case linux.SIG_IGN:
			ignored |= 1 << i
		default:
			caught |= 1 << i
		}
	}
	h.mu.Unlock()
	return pending, shared, blocked, ignored, caught, t.k.sigPendingOf(t.Cred().UID)
}

// DequeueSignal takes a pending signal of set, as sigtimedwait(2) and signalfd
// do; ok tells whether there was one. Own.
func (t *Task) DequeueSignal(set arch.SigSet) (info arch.SigInfo, ok bool) {
	t.tg.sigmu.Lock()
	defer t.tg.sigmu.Unlock()
	q := t.dequeueLocked(^(set &^ sigKernelOnly))
	if q == nil {
		return arch.SigInfo{}, false
	}
	return q.info, true
}

// SigWait is sigtimedwait(2) with a monotonic deadline (0 none, -1: do not
// wait): EAGAIN at the deadline, EINTR for another signal. Own.
func (t *Task) SigWait(set arch.SigSet, deadline int64) (arch.SigInfo, error) {
	set &^= sigKernelOnly
	if info, ok := t.DequeueSignal(set); ok || deadline < 0 {
		if !ok {
			return info, unix.EAGAIN
		}
		return info, nil
	}
	tg := t.tg
	tg.sigmu.Lock()
	// While it sleeps the set is unblocked, so that such a signal wakes it,
	// but counts as blocked, so that it is not ignored.
	t.sig.waiting = t.sig.mask
	t.setMaskLocked(t.sig.mask &^ set)
	tg.sigmu.Unlock()

	t.waiter.Clear()
	err := t.Block(t.waiter, deadline)

	tg.sigmu.Lock()
	t.setMaskLocked(t.sig.waiting)
	t.sig.waiting = 0
	q := t.dequeueLocked(^set)
	tg.sigmu.Unlock()
	switch {
	case q != nil:
		return q.info, nil
	case err == unix.ETIMEDOUT:
		return arch.SigInfo{}, unix.EAGAIN
	case err == errs.ERESTARTCKPT:
		return arch.SigInfo{}, err
	}
	return arch.SigInfo{}, unix.EINTR
}
