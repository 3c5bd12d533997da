package gofer

import (
	"bytes"
	"encoding/binary"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"runsc/pkg/hostfs"
	"runsc/sentry/vfs"
)

// outsideMask are the events that the host is asked for: changes. Opening and
// reading outside is not reported, since the Sentry's own would be, too.
const outsideMask = unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_CLOSE_WRITE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO |
	unix.IN_CREATE | unix.IN_DELETE | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF

// notifier tells guests of changes that are made outside, on shared mounts,
// where they watch. There is one inotify descriptor of the host for a sandbox,
// and a watch for each inode that a guest watches.
//
// The host reports what the Sentry does as well, which vfs has told the guests
// already. So each change is announced before it is made, and what is read while
// it is under way and concerns the same names is left out: when the call returns
// its events are in the queue, and it reads them before it is over.
type notifier struct {
	backend hostfs.Backend
	active  atomic.Int32 // watches of the host; nothing is done while there are none

	mu sync.Mutex
	// mu guards inode.watchers, inode.wd and:
	fd     int // -1 before the first watch
	byWD   map[int]*inode
	flight map[*change]struct{}
	buf    []byte
	moved  uint32 // the host's cookie of the last half of a rename
	cookie uint32 // what the guest saw for it
}

func newNotifier(b hostfs.Backend) *notifier {
	return &notifier{backend: b, fd: -1, byWD: map[int]*inode{}, flight: map[*change]struct{}{}}
}

// change is a change by the Sentry that is under way.
type change struct {
	n      *notifier
	places []place
	// closing is set for the close of a descriptor, which is reported when the
	// gofer, too, has closed the one that it gave out: perhaps a little later.
	closing bool
	seen    bool // n.mu guards: an event was left out for it
}

// place is an inode, or an entry of a directory.
type place struct {
	i    *inode
	name string
}

// changing announces changes of inodes and, where a place has a name, of an
// entry. It returns nil if nobody watches; done ends it.
func (n *notifier) changing(places ...place) *change {
	if n.active.Load() == 0 {
		return nil
	}
	c := &change{n: n}
	for _, p := range places {
		c.places = append(c.places, p)
		if p.name != "" || p.i == nil {
			continue
		}
		p.i.mu.Lock()
		if p.i.parent != nil { // the directory hears of it too
			c.places = append(c.places, place{p.i.parent, p.i.name})
		}
		p.i.mu.Unlock()
	}
	n.mu.Lock()
	n.flight[c] = struct{}{}
	n.mu.Unlock()
	return c
}

// done ends a change.
func (c *change) done() {
	if c == nil {
		return
	}
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	c.n.drainLocked()
	if c.closing && !c.seen && !c.n.backend.Direct() {
		time.AfterFunc(lateClose, c.end)
		return
	}
	delete(c.n.flight, c)
}

// lateClose is how long the gofer may take to close a descriptor.
const lateClose = 200 * time.Millisecond

func (c *change) end() {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	c.n.drainLocked()
	delete(c.n.flight, c)
}

// closing announces the close of a descriptor that i was written by.
func (n *notifier) closing(i *inode) *change {
	c := n.changing(place{i: i})
	if c != nil {
		n.mu.Lock()
		c.closing = true
		n.mu.Unlock()
	}
	return c
}

// changing announces a change of i.
func (i *inode) changing() *change { return i.fs.client.notifier.changing(place{i: i}) }

// WatchOutside implements vfs.OutsideWatcher.
func (i *inode) WatchOutside(on bool) {
	if i.fs.exclusive {
		return
	}
	n := i.fs.client.notifier
	if on { // before the lock: making room may close files, which is announced
		h, err := i.open(byPath)
		if err == nil {
			defer i.fs.client.fds.put(h, false) // an idle one would keep a deleted file
			n.add(i, h)
			return
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !on {
		if i.watchers--; i.watchers == 0 && i.wd >= 0 {
			delete(n.byWD, i.wd)
			n.backend.Unwatch(i.wd)
			i.wd = -1
			n.active.Add(-1)
		}
		return
	}
	i.watchers++
}

// add counts a watch of a guest and has the host watch.
func (n *notifier) add(i *inode, h *handle) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if i.watchers++; i.wd >= 0 || !n.startLocked() {
		return
	}
	n.active.Add(1)
	wd, err := n.backend.Watch(h.target(), outsideMask)
	if err != nil {
		n.active.Add(-1)
		return // max_user_watches: the guest hears of its own changes only
	}
	i.wd, n.byWD[wd] = wd, i
}

// startLocked gets the descriptor, and starts the goroutine that reads it. It
// runs as long as the sandbox.
func (n *notifier) startLocked() bool {
	if n.fd >= 0 {
		return true
	}
	fd, err := n.backend.Inotify()
	if err != nil {
		return false
	}
	f := os.NewFile(uintptr(fd), "inotify") // non-blocking: waited for by the runtime
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return false
	}
	n.fd, n.buf = fd, make([]byte, 32<<10)
	go func() {
		_ = raw.Read(func(uintptr) bool {
			n.mu.Lock()
			n.drainLocked()
			n.mu.Unlock()
			return false // wait for more
		})
		f.Close()
	}()
	return true
}

// drainLocked passes on what the host has reported.
func (n *notifier) drainLocked() {
	for n.fd >= 0 {
		got, err := unix.Read(n.fd, n.buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || got <= 0 {
			return
		}
		for b := n.buf[:got]; len(b) >= unix.SizeofInotifyEvent; {
			wd := int(int32(binary.LittleEndian.Uint32(b)))
			mask, cookie := binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[8:])
			end := unix.SizeofInotifyEvent + int(binary.LittleEndian.Uint32(b[12:]))
			if end > len(b) {
				return
			}
			name, _, _ := bytes.Cut(b[unix.SizeofInotifyEvent:end], []byte{0})
			n.eventLocked(wd, mask, cookie, string(name))
			b = b[end:]
		}
	}
}

// eventLocked passes one event on.
func (n *notifier) eventLocked(wd int, mask, cookie uint32, name string) {
	i := n.byWD[wd]
	if i == nil {
		return
	}
	if mask&unix.IN_IGNORED != 0 { // the file is gone
		delete(n.byWD, wd)
		if i.wd == wd {
			i.wd = -1
			n.active.Add(-1)
		}
		return
	}
	for c := range n.flight {
		if c.closing && mask&unix.IN_CLOSE_WRITE == 0 {
			continue
		}
		for _, p := range c.places {
			if p.i == i && p.name == name {
				c.seen = true
				return
			}
		}
	}
	if cookie != 0 {
		if cookie != n.moved {
			n.moved, n.cookie = cookie, vfs.RenameCookie()
		}
		cookie = n.cookie
	}
	i.mu.Lock()
	i.fresh, i.seenBy = false, nil
	i.mu.Unlock()
	vfs.NotifyOutside(i.self, mask&(unix.IN_ALL_EVENTS|unix.IN_ISDIR), cookie, name)
}

// watched tells whether a guest watches i.
func (n *notifier) watched(i *inode) bool {
	if n.active.Load() == 0 {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return i.watchers > 0
}
