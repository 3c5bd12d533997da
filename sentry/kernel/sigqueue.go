package kernel

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"runsc/pkg/abi/linux"
	"runsc/pkg/ksync"
	"runsc/pkg/waitq"
	"runsc/sentry/arch"
)

// Sets of signals by what the kernel does with them (signal(7)).
var (
	sigKernelOnly  = sigSet(unix.SIGKILL, unix.SIGSTOP)
	sigStopSet     = sigSet(unix.SIGSTOP, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU)
	sigDflIgnored  = sigSet(unix.SIGCHLD, unix.SIGCONT, unix.SIGURG, unix.SIGWINCH)
	sigSynchronous = sigSet(unix.SIGSEGV, unix.SIGBUS, unix.SIGILL, unix.SIGTRAP, unix.SIGFPE, unix.SIGSYS)
)

func sigSet(sigs ...unix.Signal) (s arch.SigSet) {
	for _, sig := range sigs {
		s |= arch.SigBit(int32(sig))
	}
	return s
}

// queuedSignal is one entry of a queue of pending signals.
type queuedSignal struct {
	info  arch.SigInfo `save:"rec"`
	user  *user        `save:"rec"` // charged for RLIMIT_SIGPENDING; may be nil
	timer *posixTimer  `save:"rec"` // of timer_create(2); may be nil
}

func (q *queuedSignal) free() {
	if q.user != nil {
		q.user.sigPending.Add(-1)
	}
}

// sigQueue is a queue of pending signals: a set, and a list in order of
// arrival that may lack entries when the sender was over its limit.
type sigQueue struct {
	set  arch.SigSet     `save:"rec"`
	list []*queuedSignal `save:"rec"`
}

// take removes the signal that is to be dealt with next among those not in
// mask: synchronous ones first, then the lowest number (next_signal).
func (q *sigQueue) take(mask arch.SigSet) *queuedSignal {
	avail := q.set &^ mask
	if avail == 0 {
		return nil
	}
	if s := avail & sigSynchronous; s != 0 {
		avail = s
	}
	sig := int32(1)
	for !avail.Has(sig) {
		sig++
	}
	return q.takeSignal(sig)
}

// takeSignal removes the first entry of sig, which is pending.
func (q *sigQueue) takeSignal(sig int32) *queuedSignal {
	var found *queuedSignal
	more := false
	for i := 0; i < len(q.list); i++ {
		if q.list[i].info.Signo != sig {
			continue
		}
		if found != nil {
			more = true
			break
		}
		found = q.list[i]
		q.list = append(q.list[:i], q.list[i+1:]...)
		i--
	}
	if !more {
		q.set &^= arch.SigBit(sig)
	}
	if found == nil {
		// collect_signal: the sender could not queue its siginfo.
		found = &queuedSignal{info: arch.SigInfo{Signo: sig, Code: linux.SI_USER}}
	}
	return found
}

// discard drops all signals of a set.
func (q *sigQueue) discard(s arch.SigSet) {
	if q.set&s == 0 {
		return
	}
	q.set &^= s
	kept := q.list[:0]
	for _, e := range q.list {
		if s.Has(e.info.Signo) {
			e.free()
			continue
		}
		kept = append(kept, e)
	}
	clear(q.list[len(kept):])
	q.list = kept
}

// discardTimer drops the entry of a deleted timer.
func (q *sigQueue) discardTimer(tm *posixTimer) {
	for i, e := range q.list {
		if e.timer == tm {
			q.list = append(q.list[:i:i], q.list[i+1:]...)
			sig := e.info.Signo
			e.free()
			for _, o := range q.list {
				if o.info.Signo == sig {
					return
				}
			}
			q.set &^= arch.SigBit(sig)
			return
		}
	}
}

// SigHandlers are the actions of a thread group's signals, shared by
// CLONE_SIGHAND.
type SigHandlers struct {
	refs atomic.Int32 `save:"rebuilt"`

	mu ksync.Mutex `save:"rebuilt"`
	// mu guards:
	actions [linux.NSIG]arch.SigAction `save:"rec"`
}

func newSigHandlers() *SigHandlers {
	h := &SigHandlers{}
	ksync.Rank(&h.mu, "kernel.SigHandlers.mu")
	h.refs.Store(1)
	return h
}

// get returns the action of sig.
func (h *SigHandlers) get(sig int32) arch.SigAction {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.actions[sig-1]
}

// set replaces the action of sig and returns the old one.
func (h *SigHandlers) set(sig int32, a arch.SigAction) arch.SigAction {
	h.mu.Lock()
	defer h.mu.Unlock()
	old := h.actions[sig-1]
	h.actions[sig-1] = a
	return old
}

// copy returns a private copy.
func (h *SigHandlers) copy() *SigHandlers {
	n := newSigHandlers()
	h.mu.Lock()
	defer h.mu.Unlock()
	n.actions = h.actions
	return n
}

// resetForExec returns handlers to the default; ignored signals stay ignored
// (flush_signal_handlers). With all set they too become the default.
func (h *SigHandlers) resetForExec(all bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.actions {
		if all || h.actions[i].Handler != linux.SIG_IGN {
			h.actions[i] = arch.SigAction{}
		} else {
			h.actions[i] = arch.SigAction{Handler: linux.SIG_IGN}
		}
	}
}

// groupSignals is the part of a thread group that signals use; sigmu guards
// all of it.
type groupSignals struct {
	handlers *SigHandlers `save:"rec"`
	shared   sigQueue     `save:"rec"`
	// queueQ is notified when a signal is queued, for signalfd.
	queueQ waitq.Queue `save:"rebuilt"`

	// exiting is set by exit_group, a fatal signal or exec (for the others);
	// status is then the group's wait status.
	exiting bool  `save:"rec"`
	status  int32 `save:"rec"`
	live    int   `save:"rebuilt"` // threads that have not begun to exit

	// Group stop: stopSig is set from the first thread's stop on until
	// SIGCONT; stopCount threads have yet to stop; stopped tells that all
	// did. report is what wait(2) may tell the parent once: the stop signal,
	// or continued.
	stopSig   int32 `save:"rec"`
	stopCount int   `save:"rec"`
	stopped   bool  `save:"rec"`
	stopCode  int32 `save:"rec"` // not yet waited for; 0 none
	continued bool  `save:"rec"` // not yet waited for
	// tellContinued asks a task to send the parent its SIGCHLD.
	tellContinued bool `save:"rec"`

	// unkillable is set for pid 1 of a namespace: signals without a handler
	// do nothing (SIGNAL_UNKILLABLE).
	unkillable bool `save:"rec"`
}

// taskSignals is the same for a task.
type taskSignals struct {
	pending sigQueue    `save:"rec"`
	mask    arch.SigSet `save:"rec"`
	// savedMask is put back, or into the signal frame, when restoreMask is
	// set (sigsuspend, pselect, ppoll, epoll_pwait).
	savedMask   arch.SigSet `save:"rec"`
	restoreMask bool        `save:"rec"`
	// waiting is the set of sigtimedwait(2) while it sleeps: these count as
	// blocked for the decision to ignore.
	waiting arch.SigSet `save:"none: the call has unwound"`
	// stopPending asks the task to take part in a group stop; stopped tells
	// that it did and waits for SIGCONT.
	stopPending bool `save:"rec"`
	stopped     bool `save:"rec"`
	exiting     bool `save:"none: nobody is on the way out at the cut"` // the task is past signals

	altStack arch.SigStack `save:"rec"` // changed by the task alone
}
