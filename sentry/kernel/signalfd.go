package kernel

import "runsc/pkg/waitq"

// SignalQueue is notified (In) when a signal is queued for the process or one
// of its threads; signalfd(2) waits on it. The queue is notified with the
// signal lock held.
func (t *Task) SignalQueue() *waitq.Queue { return &t.tg.sig.queueQ }
