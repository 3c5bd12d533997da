package syscalls

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/kernel"
	"runsc/sentry/vfs"
)

// polled is one file of a poll(2) or select(2).
type polled struct {
	file  *vfs.File // nil: not looked at
	want  waitq.Mask
	got   waitq.Mask
	entry waitq.Entry
}

// pollSet waits for several files at once, the part that poll and select
// share.
type pollSet struct {
	t       *kernel.Task
	files   []polled
	waiting bool // entries are registered
}

// release lets go of the files.
func (s *pollSet) release() {
	for i := range s.files {
		p := &s.files[i]
		if p.file == nil {
			continue
		}
		if s.waiting {
			p.file.Unregister(&p.entry)
		}
		p.file.DecRef()
	}
}

// scan asks every file; it returns how many have events.
func (s *pollSet) scan() int {
	n := 0
	for i := range s.files {
		p := &s.files[i]
		if p.file != nil {
			p.got = p.file.Ready(p.want) & p.want
		}
		if p.got != 0 {
			n++
		}
	}
	return n
}

// listen registers the task with every file.
func (s *pollSet) listen() {
	s.waiting = true
	for i := range s.files {
		if p := &s.files[i]; p.file != nil {
			p.entry.Waiter = s.t.Waiter()
			p.file.Register(&p.entry, p.want)
		}
	}
}

// wait returns the number of files with events, 0 at the deadline (monotonic;
// 0: never, negative: now), or what Block returned.
func (s *pollSet) wait(deadline int64) (int, error) {
	if n := s.scan(); n > 0 || deadline < 0 {
		return n, nil
	}
	s.listen()
	for {
		if n := s.scan(); n > 0 {
			return n, nil
		}
		switch err := s.t.Block(s.t.Waiter(), deadline); err {
		case nil:
		case unix.ETIMEDOUT:
			return s.scan(), nil
		default:
			return 0, err
		}
	}
}

// deadlineNow is a deadline that does not wait.
const deadlineNow = -1

// maxTimeout is the longest relative time that is told from for ever: 292
// years, in ns.
const maxTimeout = 1<<63 - 1

// deadlineIn turns a timeout in ns into a deadline: 0 does not wait, a
// negative one waits for ever.
func deadlineIn(t *kernel.Task, timeout int64) int64 {
	switch now := t.Now(); {
	case timeout == 0:
		return deadlineNow
	case timeout < 0 || timeout > maxTimeout-now:
		return 0
	default:
		return now + timeout
	}
}

// timeLeft is the time to a deadline made by deadlineIn, for the calls that
// write back what they did not sleep.
func timeLeft(t *kernel.Task, deadline int64) int64 {
	if deadline <= 0 {
		return 0
	}
	return max(deadline-t.Now(), 0)
}

// nanoseconds converts a valid timespec, saturating.
func nanoseconds(ts unix.Timespec) (int64, error) {
	if ts.Sec < 0 || ts.Nsec < 0 || ts.Nsec >= 1e9 {
		return 0, unix.EINVAL
	}
	if ts.Sec >= maxTimeout/int64(1e9) {
		return maxTimeout, nil
	}
	return ts.Sec*1e9 + ts.Nsec, nil
}
