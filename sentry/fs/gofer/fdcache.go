package gofer

import (
	"container/list"
	"sync"

	"golang.org/x/sys/unix"

	"runsc/pkg/hostfs"
)

// kind of a host descriptor of an inode.
type kind uint8

const (
	byPath    kind = iota // held by the backend: in direct mode O_PATH
	forRead               // O_RDONLY
	forWrite              // O_RDWR
	readQuiet             // O_RDONLY|O_NOATIME
	kinds
)

// handle is a host file shared by all users of an inode: a descriptor for
// data, or what the backend holds. It stays valid while the user holds a
// reference.
type handle struct {
	// immutable after add:
	fd    int // for byPath the backend's number
	kind  kind
	owner *inode
	// writeOnly is set for a forWrite descriptor of a file that can only be
	// written to.
	writeOnly bool

	// fdCache.mu guards:
	refs int
	idle *list.Element
}

// fdCache holds the host descriptors of all host file systems of a sandbox.
// Those in use are bounded by what uses them (open files, running calls);
// idle ones stay open up to a number, the longest idle is closed first.
type fdCache struct {
	backend  hostfs.Backend
	notifier *notifier

	max   int // idle descriptors
	limit int // descriptors in all

	mu sync.Mutex
	// mu guards inode.handles, inode.gone and:
	idle list.List // of *handle, most recently used in front
	open int
}

// newFDCache returns a cache that keeps a quarter of the process's descriptors
// for others: whatever guests open, the Sentry must go on working.
func newFDCache(max int, b hostfs.Backend) *fdCache {
	c := &fdCache{max: max, limit: 1024, backend: b}
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err == nil {
		c.limit = int(min(r.Cur, 1<<20) / 4 * 3)
	}
	c.max = min(c.max, c.limit/2)
	c.idle.Init()
	return c
}

// target is what the handle stands for in a call of the backend.
func (h *handle) target() hostfs.Target { return hostfs.Target{FD: h.fd, Data: h.kind != byPath} }

// close closes what a kind of handle has.
func (c *fdCache) close(k kind, fd int, owner *inode) {
	switch k {
	case byPath:
		c.backend.Close(fd)
	case forWrite:
		defer c.notifier.closing(owner).done()
		unix.Close(fd)
	default:
		unix.Close(fd)
	}
}

// get returns a new reference to the handle of i, or nil.
func (c *fdCache) get(i *inode, k kind) *handle {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := i.handles[k]
	if h != nil {
		c.useLocked(h)
	}
	return h
}

// getAny returns a new reference to some handle of i, or nil.
func (c *fdCache) getAny(i *inode) *handle {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := kinds; k > 0; k-- { // in remote mode a descriptor for data saves an exchange
		if h := i.handles[k-1]; h != nil {
			c.useLocked(h)
			return h
		}
	}
	return nil
}

func (c *fdCache) useLocked(h *handle) {
	h.refs++
	if h.idle != nil {
		c.idle.Remove(h.idle)
		h.idle = nil
	}
}

// add takes over fd and returns a reference to the handle of i for it. If i
// got one in the meantime, fd is closed.
func (c *fdCache) add(i *inode, k kind, fd int, writeOnly bool) *handle {
	c.mu.Lock()
	if h := i.handles[k]; h != nil && (writeOnly || !h.writeOnly) {
		c.useLocked(h)
		c.mu.Unlock()
		c.close(k, fd, i)
		return h
	}
	h := &handle{fd: fd, kind: k, owner: i, writeOnly: writeOnly, refs: 1}
	if i.handles[k] == nil {
		i.handles[k] = h
	}
	c.open++
	c.mu.Unlock()
	return h
}

// put drops a reference. At the last one the descriptor stays open for the
// next user if keep is set.
func (c *fdCache) put(h *handle, keep bool) {
	c.mu.Lock()
	h.refs--
	if h.refs > 0 {
		c.mu.Unlock()
		return
	}
	var victim *handle
	if keep && !h.owner.gone && h.owner.handles[h.kind] == h {
		h.idle = c.idle.PushFront(h)
		if c.idle.Len() > c.max {
			victim = c.idle.Back().Value.(*handle)
		}
	} else {
		victim = h
	}
	if victim != nil {
		c.forgetLocked(victim)
	}
	c.mu.Unlock()
	if victim != nil {
		c.close(victim.kind, victim.fd, victim.owner)
	}
}

// forgetLocked takes an unused handle out; the caller closes its descriptor.
func (c *fdCache) forgetLocked(h *handle) {
	if h.idle != nil {
		c.idle.Remove(h.idle)
		h.idle = nil
	}
	if h.owner.handles[h.kind] == h {
		h.owner.handles[h.kind] = nil
	}
	c.open--
}

// drop closes the idle descriptors of i, and those in use as soon as they are
// not.
func (c *fdCache) drop(i *inode) {
	var found [kinds]*handle
	n := 0
	c.mu.Lock()
	i.gone = true
	for _, h := range i.handles {
		if h != nil && h.refs == 0 {
			c.forgetLocked(h)
			found[n] = h
			n++
		}
	}
	c.mu.Unlock()
	for _, h := range found[:n] {
		c.close(h.kind, h.fd, h.owner)
	}
}

// revive lets an inode keep idle descriptors again.
func (c *fdCache) revive(i *inode) {
	c.mu.Lock()
	i.gone = false
	c.mu.Unlock()
}

// shrink closes all idle descriptors and tells whether there were any.
func (c *fdCache) shrink() bool {
	var found []*handle
	c.mu.Lock()
	for e := c.idle.Back(); e != nil; e = c.idle.Back() {
		h := e.Value.(*handle)
		c.forgetLocked(h)
		found = append(found, h)
	}
	c.mu.Unlock()
	for _, h := range found {
		c.close(h.kind, h.fd, h.owner)
	}
	return len(found) > 0
}

func (c *fdCache) full() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open >= c.limit
}

// count adds to the number of open descriptors what is not a handle.
func (c *fdCache) count(n int) {
	c.mu.Lock()
	c.open += n
	c.mu.Unlock()
}

// retry calls open, again after closing idle descriptors when the process has
// too many. The guest then sees the table of the system full, not its own.
func (c *fdCache) retry(open func() (int, error)) (int, error) {
	for c.full() {
		if !c.shrink() {
			return -1, unix.ENFILE
		}
	}
	for {
		fd, err := open()
		switch {
		case err == unix.EINTR:
		case err == unix.EMFILE || err == unix.ENFILE:
			if !c.shrink() {
				return -1, unix.ENFILE
			}
		default:
			return fd, err
		}
	}
}
