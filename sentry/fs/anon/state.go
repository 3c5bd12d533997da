package anon

import (
	"fmt"
	"sort"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/arch"
	"runsc/sentry/clock"
	"runsc/sentry/image"
	"runsc/sentry/vfs"
)

// StateKind implements vfs.StateSaver.
func (e *Eventfd) StateKind() image.Kind { return image.KindEventfd }

// SaveState implements vfs.StateSaver.
func (e *Eventfd) SaveState(env *vfs.SaveEnv, id image.ID) error {
	return env.Put(image.KindEventfd, &image.Eventfd{ID: id, Count: e.Count(), Semaphore: e.semaphore})
}

// StateKind implements vfs.StateSaver.
func (t *Timerfd) StateKind() image.Kind { return image.KindTimerfd }

// SaveState implements vfs.StateSaver. The monotonic clock goes on after a
// restore where it was, the deadlines stay; only those that were given as a
// time of day move.
func (t *Timerfd) SaveState(e *vfs.SaveEnv, id image.ID) error {
	t.mu.Lock()
	rec := image.Timerfd{ID: id, Clock: t.clockID, Deadline: t.deadline, Interval: t.interval, Fired: t.fired}
	if t.wall && t.deadline != 0 {
		rec.Wall = later(t.clock.Realtime(), t.deadline-t.clock.Monotonic())
	}
	t.mu.Unlock()
	return e.Put(image.KindTimerfd, &rec)
}

func restoreTimerfd(e *vfs.RestoreEnv, rec *image.Timerfd) (*Timerfd, error) {
	if rec.Deadline < 0 || rec.Interval < 0 || rec.Fired && rec.Deadline == 0 {
		return nil, fmt.Errorf("timer %d of the image cannot be", rec.ID)
	}
	c := e.Clock
	if c == nil {
		c = clock.New()
	}
	t := NewTimerfd(c, rec.Clock)
	t.interval, t.wall = rec.Interval, rec.Wall != 0
	t.deadline, t.fired = rec.Deadline, rec.Fired
	if t.deadline != 0 {
		t.deadline = max(later(t.deadline, e.ClockShift), 1)
	}
	e.AtStart(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.wall && !t.fired {
			t.deadline = max(later(c.Monotonic(), rec.Wall-c.Realtime()), 1)
		}
		if t.deadline != 0 && !t.fired {
			t.armLocked(t.deadline)
		}
	})
	return t, nil
}

// StateKind implements vfs.StateSaver.
func (s *Signalfd) StateKind() image.Kind { return image.KindSignalfd }

// SaveState implements vfs.StateSaver.
func (s *Signalfd) SaveState(e *vfs.SaveEnv, id image.ID) error {
	e.Later(func() error {
		rec := image.Signalfd{ID: id, Mask: s.mask.Load()}
		if e.TaskID != nil {
			rec.Task = e.TaskID(s.owner)
		}
		return e.Put(image.KindSignalfd, &rec)
	})
	return nil
}

func restoreSignalfd(e *vfs.RestoreEnv, rec *image.Signalfd) *Signalfd {
	s := NewSignalfd(&nobody{}, rec.Mask)
	if rec.Task != 0 && e.Task != nil {
		e.Later(func() error {
			t, err := e.Task(rec.Task)
			if err != nil {
				return err
			}
			owner, ok := t.(SignalSource)
			if !ok {
				return fmt.Errorf("signalfd %d of the image belongs to no task", rec.ID)
			}
			s.owner = owner
			return nil
		})
	}
	return s
}

// nobody is the source of a signalfd whose task is gone.
type nobody struct{ queue waitq.Queue }

// DequeueSignal implements SignalSource.
func (*nobody) DequeueSignal(arch.SigSet) (arch.SigInfo, bool) { return arch.SigInfo{}, false }

// PendingSignals implements SignalSource.
func (*nobody) PendingSignals() arch.SigSet { return 0 }

// SignalQueue implements SignalSource.
func (n *nobody) SignalQueue() *waitq.Queue { return &n.queue }

// StateKind implements vfs.StateSaver.
func (in *Inotify) StateKind() image.Kind { return image.KindInotify }

// SaveState implements vfs.StateSaver.
func (in *Inotify) SaveState(e *vfs.SaveEnv, id image.ID) error {
	in.ctlMu.Lock()
	defer in.ctlMu.Unlock()
	in.reapLocked()
	rec := image.Inotify{ID: id, LastWD: in.lastWD}
	for _, w := range in.byWD {
		p, err := vfs.SavePath(e, w.reg.Path())
		if err != nil {
			return fmt.Errorf("inotify watch %d: %w", w.wd, err)
		}
		in.mu.Lock()
		rec.Watches = append(rec.Watches, image.InotifyWatch{WD: w.wd, Path: p, Mask: w.mask})
		in.mu.Unlock()
	}
	sort.Slice(rec.Watches, func(i, j int) bool { return rec.Watches[i].WD < rec.Watches[j].WD })
	in.mu.Lock()
	for _, ev := range in.events {
		rec.Events = append(rec.Events, image.InotifyEvent{WD: ev.wd, Mask: ev.mask, Cookie: ev.cookie, Name: ev.name})
	}
	in.mu.Unlock()
	return e.Put(image.KindInotify, &rec)
}

func restoreInotify(e *vfs.RestoreEnv, rec *image.Inotify) (_ *Inotify, err error) {
	in := NewInotify()
	defer func() {
		if err != nil {
			in.Release()
		}
	}()
	in.lastWD = max(rec.LastWD, 0)
	if len(rec.Events) > maxEvents {
		return nil, fmt.Errorf("inotify instance %d of the image has %d events", rec.ID, len(rec.Events))
	}
	for _, x := range rec.Watches {
		if err := in.restoreWatch(e, &x); err != nil {
			return nil, fmt.Errorf("inotify watch %d: %w", x.WD, err)
		}
	}
	for _, x := range rec.Events {
		if len(x.Name) > 255 {
			return nil, unix.ENAMETOOLONG
		}
		ev := inotifyEvent{x.WD, x.Mask, x.Cookie, x.Name}
		eventCount.Add(1)
		in.events = append(in.events, ev)
		in.bytes += ev.size()
	}
	e.Undo(in.Release)
	return in, nil
}

func (in *Inotify) restoreWatch(e *vfs.RestoreEnv, x *image.InotifyWatch) error {
	p, err := vfs.RestorePath(e, x.Path)
	if err != nil {
		return err
	}
	if !p.Ok() {
		return unix.ENOENT
	}
	defer p.DecRef() // AddWatch takes its own
	if x.WD <= 0 || x.WD > in.lastWD || in.byWD[x.WD] != nil || in.byInode[p.Inode()] != nil {
		return unix.EEXIST
	}
	if watchCount.Add(1) > maxWatches {
		watchCount.Add(-1)
		return unix.ENOSPC
	}
	mask := x.Mask & (unix.IN_ALL_EVENTS | unix.IN_ONESHOT | unix.IN_EXCL_UNLINK)
	w := &watch{in: in, wd: x.WD, inode: p.Inode(), mask: mask}
	w.reg = vfs.AddWatch(p, vfsMask(mask), w)
	in.byWD[w.wd], in.byInode[w.inode] = w, w
	return nil
}

func init() {
	vfs.RegisterState(image.KindEventfd, func(e *vfs.RestoreEnv, id image.ID) (any, error) {
		var rec image.Eventfd
		if err := e.Get(image.KindEventfd, id, &rec); err != nil {
			return nil, err
		}
		return &Eventfd{count: rec.Count, semaphore: rec.Semaphore}, nil
	})
	vfs.RegisterState(image.KindTimerfd, func(e *vfs.RestoreEnv, id image.ID) (any, error) {
		var rec image.Timerfd
		if err := e.Get(image.KindTimerfd, id, &rec); err != nil {
			return nil, err
		}
		return restoreTimerfd(e, &rec)
	})
	vfs.RegisterState(image.KindSignalfd, func(e *vfs.RestoreEnv, id image.ID) (any, error) {
		var rec image.Signalfd
		if err := e.Get(image.KindSignalfd, id, &rec); err != nil {
			return nil, err
		}
		return restoreSignalfd(e, &rec), nil
	})
	vfs.RegisterState(image.KindInotify, func(e *vfs.RestoreEnv, id image.ID) (any, error) {
		var rec image.Inotify
		if err := e.Get(image.KindInotify, id, &rec); err != nil {
			return nil, err
		}
		return restoreInotify(e, &rec)
	})
	vfs.RegisterState(image.KindEpoll, func(e *vfs.RestoreEnv, id image.ID) (any, error) {
		ep := NewEpoll()
		// Members are files, which may be epoll instances, and the queue of a
		// signalfd's task is known late: after all else.
		e.Later(func() error {
			e.Later(func() error { return restoreEpoll(e, ep, id) })
			return nil
		})
		return ep, nil
	})
}
