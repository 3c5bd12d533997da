package anon

import (
	"encoding/binary"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

const (
	// maxWatches and maxEvents bound what a sandbox has, whatever the
	// sysctls of its containers permit.
	maxWatches = 1 << 19
	maxEvents  = 1 << 20

	defaultQueued = 16384

	inotifyHeader = 16 // struct inotify_event without the name
)

// watchCount and eventCount are of all instances.
var watchCount, eventCount atomic.Int64

// Inotify is an inotify instance, inotify(7).
type Inotify struct {
	// immutable: who is charged, nil for nobody
	tun *vfs.Tunables `save:"rebuilt"`
	uid uint32        `save:"none: charged to nobody after a restore"`

	ctlMu sync.Mutex `save:"none: not held at a stop"`
	// ctlMu guards the watches; it is taken before vfs's locks:
	byWD    map[int32]*watch     `save:"rec"`
	byInode map[vfs.Inode]*watch `save:"rebuilt"`
	lastWD  int32                `save:"rec"`

	mu sync.Mutex `save:"none: not held at a stop"`
	// mu guards the queue; vfs calls Event with its own lock held:
	events []inotifyEvent `save:"rec"`
	bytes  int            `save:"rebuilt"` // what reading all events takes
	dead   []*watch       `save:"none: reaped before"`

	queue waitq.Queue `save:"rebuilt"`
}

// watch is one watched inode.
type watch struct {
	// immutable after Add
	in    *Inotify   `save:"rebuilt"`
	wd    int32      `save:"rec"`
	inode vfs.Inode  `save:"rec"`
	reg   *vfs.Watch `save:"rec"`

	// in.mu guards:
	mask uint32 `save:"rec"`                 // the caller's, with IN_ONESHOT
	gone bool   `save:"none: reaped before"` // IN_IGNORED was queued
}

type inotifyEvent struct {
	wd           int32  `save:"rec"`
	mask, cookie uint32 `save:"rec"`
	name         string `save:"rec"`
}

// size is what the event takes in the reader's buffer: the name is padded
// with NULs to a multiple of the header's size.
func (e *inotifyEvent) size() int {
	if e.name == "" {
		return inotifyHeader
	}
	return inotifyHeader + (len(e.name)+1+inotifyHeader-1)/inotifyHeader*inotifyHeader
}

// NewInotifyOf returns an instance that is charged to a user: EMFILE if they
// have too many.
func NewInotifyOf(tun *vfs.Tunables, uid uint32) (*Inotify, error) {
	if !tun.ChargeInotify(uid, 1, 0) {
		return nil, unix.EMFILE
	}
	in := NewInotify()
	in.tun, in.uid = tun, uid
	return in, nil
}

// NewInotify returns an instance without watches that nobody is charged for.
func NewInotify() *Inotify {
	return &Inotify{byWD: make(map[int32]*watch), byInode: make(map[vfs.Inode]*watch)}
}

// Release implements vfs.FileOps.
func (in *Inotify) Release() {
	in.ctlMu.Lock()
	defer in.ctlMu.Unlock()
	for _, w := range in.byWD {
		in.forgetLocked(w)
	}
	in.mu.Lock()
	eventCount.Add(-int64(len(in.events)))
	in.events, in.dead = nil, nil
	in.mu.Unlock()
	if in.tun != nil {
		in.tun.UnchargeInotify(in.uid, 1, 0)
	}
}

// Queue implements vfs.Waitable.
func (in *Inotify) Queue() *waitq.Queue { return &in.queue }

// Ready implements vfs.FileOps.
func (in *Inotify) Ready(mask waitq.Mask) waitq.Mask {
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.events) == 0 {
		return 0
	}
	return mask & (waitq.In | waitq.RdNorm)
}

// Add watches the inode at p for the events of mask, or changes the watch that
// it has (inotify_add_watch(2)). Errors: EEXIST with IN_MASK_CREATE, ENOSPC.
func (in *Inotify) Add(p vfs.Path, mask uint32) (int32, error) {
	in.ctlMu.Lock()
	defer in.ctlMu.Unlock()
	in.reapLocked()
	keep := mask & (unix.IN_ALL_EVENTS | unix.IN_ONESHOT | unix.IN_EXCL_UNLINK)
	if w := in.byInode[p.Inode()]; w != nil {
		if mask&unix.IN_MASK_CREATE != 0 {
			return 0, unix.EEXIST
		}
		in.mu.Lock()
		if mask&unix.IN_MASK_ADD != 0 {
			keep |= w.mask
		}
		w.mask = keep
		in.mu.Unlock()
		w.reg.SetMask(vfsMask(keep))
		return w.wd, nil
	}
	if !in.chargeWatch() {
		return 0, unix.ENOSPC
	}
	in.lastWD++
	w := &watch{in: in, wd: in.lastWD, inode: p.Inode(), mask: keep}
	w.reg = vfs.AddWatch(p, vfsMask(keep), w)
	in.byWD[w.wd], in.byInode[w.inode] = w, w
	return w.wd, nil
}

// chargeWatch counts one more watch, if it is permitted.
func (in *Inotify) chargeWatch() bool {
	if watchCount.Add(1) <= maxWatches && (in.tun == nil || in.tun.ChargeInotify(in.uid, 0, 1)) {
		return true
	}
	watchCount.Add(-1)
	return false
}

func (in *Inotify) unchargeWatch() {
	watchCount.Add(-1)
	if in.tun != nil {
		in.tun.UnchargeInotify(in.uid, 0, 1)
	}
}

// maxQueued is fs.inotify.max_queued_events.
func (in *Inotify) maxQueued() int {
	if in.tun == nil {
		return defaultQueued
	}
	return int(in.tun.InotifyQueued.Load())
}

// vfsMask is what vfs is asked for: the end of the inode ends the watch,
// whether the caller wants to hear of it or not.
func vfsMask(mask uint32) uint32 { return mask&unix.IN_ALL_EVENTS | unix.IN_DELETE_SELF }

// Remove ends a watch (inotify_rm_watch(2)); EINVAL if there is none.
func (in *Inotify) Remove(wd int32) error {
	in.ctlMu.Lock()
	defer in.ctlMu.Unlock()
	in.reapLocked()
	w := in.byWD[wd]
	if w == nil {
		return unix.EINVAL
	}
	in.forgetLocked(w)
	in.mu.Lock()
	w.ignoreLocked()
	in.mu.Unlock()
	in.queue.Notify(waitq.In | waitq.RdNorm)
	return nil
}

// forgetLocked drops a watch from the tables and from vfs; ctlMu is held.
func (in *Inotify) forgetLocked(w *watch) {
	delete(in.byWD, w.wd)
	delete(in.byInode, w.inode)
	in.unchargeWatch()
	w.reg.Remove()
}

// reapLocked forgets the watches that ended by an event; ctlMu is held.
func (in *Inotify) reapLocked() {
	in.mu.Lock()
	dead := in.dead
	in.dead = nil
	in.mu.Unlock()
	for _, w := range dead {
		if in.byWD[w.wd] == w {
			in.forgetLocked(w)
		}
	}
}

// Event implements vfs.Watcher.
func (w *watch) Event(mask, cookie uint32, name string) {
	in := w.in
	in.mu.Lock()
	if w.gone {
		in.mu.Unlock()
		return
	}
	if mask&(w.mask|unix.IN_UNMOUNT)&(unix.IN_ALL_EVENTS|unix.IN_UNMOUNT) != 0 {
		in.queueLocked(inotifyEvent{w.wd, mask, cookie, name})
	}
	if mask&(unix.IN_DELETE_SELF|unix.IN_UNMOUNT) != 0 || w.mask&unix.IN_ONESHOT != 0 {
		w.ignoreLocked()
		in.dead = append(in.dead, w)
	}
	in.mu.Unlock()
	in.queue.Notify(waitq.In | waitq.RdNorm)
}

// ignoreLocked says that the watch is over; in.mu is held.
func (w *watch) ignoreLocked() {
	if !w.gone {
		w.gone = true
		w.in.queueLocked(inotifyEvent{wd: w.wd, mask: unix.IN_IGNORED})
	}
}

// queueLocked adds an event unless it repeats the last one; a queue that is
// full ends with IN_Q_OVERFLOW. in.mu is held.
func (in *Inotify) queueLocked(e inotifyEvent) {
	n := len(in.events)
	if n > 0 && in.events[n-1] == e {
		return
	}
	if n > 0 && n >= in.maxQueued() || n > 0 && eventCount.Load() >= maxEvents {
		e = inotifyEvent{wd: -1, mask: unix.IN_Q_OVERFLOW}
		if in.events[n-1] == e {
			return
		}
	}
	eventCount.Add(1)
	in.events = append(in.events, e)
	in.bytes += e.size()
}

// Read implements vfs.Reader: the events that fit; EINVAL if the first does
// not.
func (in *Inotify) Read(_ vfs.Caller, _ *vfs.File, dst *mem.UserBuf) (int, error) {
	done := 0
	for {
		e, err := in.take(dst.Len())
		if err != nil {
			if done > 0 {
				return done, nil
			}
			return 0, err
		}
		b := make([]byte, e.size())
		binary.LittleEndian.PutUint32(b, uint32(e.wd))
		binary.LittleEndian.PutUint32(b[4:], e.mask)
		binary.LittleEndian.PutUint32(b[8:], e.cookie)
		binary.LittleEndian.PutUint32(b[12:], uint32(len(b)-inotifyHeader))
		copy(b[inotifyHeader:], e.name)
		if _, err := dst.CopyOut(b); err != nil {
			if done > 0 {
				return done, nil
			}
			return 0, err
		}
		done += len(b)
	}
}

// take removes the first event if it takes no more than room bytes.
func (in *Inotify) take(room int) (inotifyEvent, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.events) == 0 {
		return inotifyEvent{}, unix.EAGAIN
	}
	e := in.events[0]
	if e.size() > room {
		return e, unix.EINVAL
	}
	in.events = in.events[1:]
	eventCount.Add(-1)
	if len(in.events) == 0 {
		in.events = nil
	}
	in.bytes -= e.size()
	return e, nil
}

// Ioctl implements vfs.Ioctler: FIONREAD.
func (in *Inotify) Ioctl(_ vfs.Caller, _ *vfs.File, m mem.Memory, cmd uint32, arg uint64) (uintptr, error) {
	if cmd != unix.TIOCINQ {
		return 0, unix.ENOTTY
	}
	in.mu.Lock()
	n := in.bytes
	in.mu.Unlock()
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], uint32(n))
	_, err := m.CopyOut(arg, b[:])
	return 0, err
}
