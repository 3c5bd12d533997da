package vfs

import (
	"sync"
	"sync/atomic"

	"runsc/pkg/waitq"
	"runsc/sentry/arch"
)

// SignalTarget is who a file's owner is: a thread, a process or a group.
type SignalTarget interface {
	// SendIO sends a signal about a file as its owner allows (send_sigio).
	SendIO(o FileOwner, info *arch.SigInfo)
}

// Reasons of SIGIO, si_code.
const (
	pollIn = iota + 1
	pollOut
	pollMsg
	pollErr
	pollPri
	pollHup
)

// ioEvent is a signal about a file that is not sent yet.
type ioEvent struct {
	owner FileOwner
	info  arch.SigInfo
}

// ioEvents is what callbacks of wait queues, which must not take the locks of
// tasks, leave to whoever comes by next: the task that caused it at the end of
// its system call, or else the goroutine that the first event started.
var ioEvents struct {
	n  atomic.Int32 // events left and being sent
	mu sync.Mutex
	// mu guards:
	list []ioEvent
	kick chan struct{}

	sending sync.Mutex // held while events are sent
}

// ioBands are si_band by reason.
var ioBands = [...]waitq.Mask{
	pollIn:  waitq.In | waitq.RdNorm,
	pollOut: waitq.Out | waitq.WrNorm | waitq.WrBand,
	pollMsg: waitq.In | waitq.RdNorm | 0x400, // POLLMSG
	pollErr: waitq.Err,
	pollPri: waitq.Pri | waitq.RdBand,
	pollHup: waitq.Hup | waitq.Err,
}

// postIO leaves a signal to the owner o of a file known to it as fd.
func postIO(o FileOwner, fd int32, reason int) {
	if o.Target == nil {
		return
	}
	e := ioEvent{owner: o, info: arch.SigInfo{Signo: o.Signal, Code: int32(reason)}}
	e.info.SetBand(int64(ioBands[reason]), fd)
	q := &ioEvents
	q.mu.Lock()
	q.list = append(q.list, e)
	q.n.Add(1)
	if q.kick == nil {
		q.kick = make(chan struct{}, 1)
		go sendIO(q.kick) // for the life of the process
	}
	q.mu.Unlock()
	select {
	case q.kick <- struct{}{}:
	default:
	}
}

// sendIO sends what comes while no task does.
func sendIO(kick chan struct{}) {
	for range kick {
		SendIOSignals()
	}
}

// IOSignals tells whether signals about files are to be sent.
func IOSignals() bool { return ioEvents.n.Load() != 0 }

// SendIOSignals sends them; when it returns all that were there are sent. No
// locks may be held.
func SendIOSignals() {
	q := &ioEvents
	q.sending.Lock()
	defer q.sending.Unlock()
	q.mu.Lock()
	list := q.list
	q.list = nil
	q.mu.Unlock()
	for i := range list {
		list[i].owner.Target.SendIO(list[i].owner, &list[i].info)
	}
	q.n.Add(-int32(len(list)))
}

// asyncState is a file with O_ASYNC set by fcntl(2).
type asyncState struct {
	fd    int32
	entry waitq.Entry
}

// SetAsync makes f send SIGIO to its owner, who knows it as fd, when it becomes
// ready, or stop. A file that is never not ready sends none.
func (f *File) SetAsync(fd int32, on bool) {
	w, ok := f.ops.(Waitable)
	if !ok {
		return
	}
	f.mu.Lock()
	old := f.async
	f.async = nil
	var a *asyncState
	if on {
		a = &asyncState{fd: fd}
		a.entry.Func = func(m waitq.Mask) { f.ioReady(a.fd, m) }
		f.async = a
	}
	f.mu.Unlock()
	if old != nil {
		w.Queue().Unregister(&old.entry)
	}
	if a != nil {
		w.Queue().Register(&a.entry, waitq.In|waitq.Out|waitq.Pri|waitq.RdNorm|waitq.WrNorm|waitq.RdHup)
	}
}

// ioReady is called by the queue.
func (f *File) ioReady(fd int32, m waitq.Mask) {
	reason := pollOut
	switch {
	case m&(waitq.In|waitq.RdNorm) != 0:
		reason = pollIn
	case m&waitq.Pri != 0:
		reason = pollPri
	case m&(waitq.Hup|waitq.RdHup) != 0:
		reason = pollHup
	case m&waitq.Err != 0:
		reason = pollErr
	}
	postIO(f.Owner(), fd, reason)
}
