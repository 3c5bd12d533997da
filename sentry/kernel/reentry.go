package kernel

import "runsc/sentry/futex"

// A call that sleeps while its container is to be saved returns
// errs.ERESTARTCKPT and is entered again with the same registers, after the
// save or in the restored container, before signals are looked at. What it
// cannot find again it keeps here.
type reentry struct {
	// used is set if anything below is, again while the call runs that was
	// entered before.
	used  bool `save:"rebuilt"`
	again bool `save:"none: false between calls"`
	// timed: deadline is that of the call.
	timed    bool  `save:"rec"`
	deadline int64 `save:"rec"`
	// count is how many messages are through, part is about the one under way
	// or, for most calls, the whole.
	count int         `save:"rec"`
	part  reentryPart `save:"rec"`
	// futex is the call's place in a queue, which it keeps.
	futex *futex.Waiter `save:"rec"`
}

// reentryPart is the progress of one transfer.
type reentryPart struct {
	timed    bool  `save:"rec"`
	deadline int64 `save:"rec"` // that of the socket's time limit
	done     int   `save:"rec"` // how much of a transfer is through
}

// endReentry forgets what a call kept.
func (t *Task) endReentry() {
	if w := t.reentry.futex; w != nil {
		w.Cancel()
	}
	t.reentry = reentry{}
}

// ReentryDeadline returns the deadline of the call that runs, which is computed
// from a relative time: that of its first entry. Own.
func (t *Task) ReentryDeadline(computed int64) int64 {
	if !t.reentry.again || !t.reentry.timed {
		t.reentry.used, t.reentry.timed, t.reentry.deadline = true, true, computed
	}
	return t.reentry.deadline
}

// ReentryPartDeadline is the same for the time limit of one transfer. Own.
func (t *Task) ReentryPartDeadline(computed int64) int64 {
	p := &t.reentry.part
	if !t.reentry.again || !p.timed {
		t.reentry.used, p.timed, p.deadline = true, true, computed
	}
	return p.deadline
}

// ReentryDone is how much of a transfer was through when the call was entered
// again; UserBuf and CopyInIovecs have left it out. Own.
func (t *Task) ReentryDone() int { return t.reentry.part.done }

// AddReentryDone adds to it, for a call that returns errs.ERESTARTCKPT. Own.
func (t *Task) AddReentryDone(n int) {
	t.reentry.used = true
	t.reentry.part.done += n
}

// ReentryCount is how many transfers of a call for several were through when
// it was entered again. Own.
func (t *Task) ReentryCount() int { return t.reentry.count }

// SetReentryCount is called after each. Own.
func (t *Task) SetReentryCount(n int) {
	t.reentry.used = true
	t.reentry.count, t.reentry.part = n, reentryPart{}
}

// KeepFutex keeps the place of the task in the queue of a futex while it sleeps
// again; nil ends that. Own.
func (t *Task) KeepFutex(w *futex.Waiter) {
	if w != nil {
		t.reentry.used = true
	}
	t.reentry.futex = w
}

// KeptFutex returns it, nil if the call was not entered before. Own.
func (t *Task) KeptFutex() *futex.Waiter { return t.reentry.futex }
