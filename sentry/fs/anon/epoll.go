package anon

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/vfs"
)

// Epoll is an epoll instance, struct eventpoll.
type Epoll struct {
	mu sync.Mutex `save:"none: not held at a stop"`
	// mu guards, and is held while files are asked whether they are ready:
	items map[itemKey]*item `save:"rec"`
	batch [WaitBatch]Event  `save:"none: scratch"` // scratch of collect
	taken [WaitBatch]*item  `save:"none: scratch"`

	readyMu sync.Mutex `save:"none: not held at a stop"`
	// readyMu guards:
	ready itemList `save:"rec"`

	parentMu sync.Mutex `save:"none: not held at a stop"`
	// parentMu guards the instances that watch this one:
	parents []*Epoll `save:"rebuilt"`

	queue waitq.Queue `save:"rebuilt"`
}

// itemKey names a member: the description and the descriptor it was added by.
type itemKey struct {
	file *vfs.File
	fd   int32
}

// item is one member of the interest list, struct epitem.
type item struct {
	// immutable
	ep   *Epoll    `save:"rebuilt"`
	file *vfs.File `save:"rec"` // borrowed: the file's release removes the item
	fd   int32     `save:"rec"`

	// ep.mu guards; readers of events in callbacks use the entry's mask
	events uint32      `save:"rec"`
	data   uint64      `save:"rec"`
	entry  waitq.Entry `save:"rebuilt"`
	queued bool        `save:"rebuilt"` // entry is registered

	// ep.readyMu guards
	listed     bool  `save:"rec"`
	prev, next *item `save:"rec"`
	dead       bool  `save:"none: a dead member is in no set"`
}

// itemList is the list of members that may be ready.
type itemList struct {
	head, tail *item
	n          int
}

func (l *itemList) push(it *item) {
	it.listed = true
	l.n++
	it.prev, it.next = l.tail, nil
	if l.tail != nil {
		l.tail.next = it
	} else {
		l.head = it
	}
	l.tail = it
}

func (l *itemList) remove(it *item) {
	if it.prev != nil {
		it.prev.next = it.next
	} else {
		l.head = it.next
	}
	if it.next != nil {
		it.next.prev = it.prev
	} else {
		l.tail = it.prev
	}
	it.prev, it.next, it.listed = nil, nil, false
	l.n--
}

const (
	// privateBits are the flags among the events; what is left of a one-shot
	// member after its event.
	privateBits = unix.EPOLLWAKEUP | unix.EPOLLONESHOT | unix.EPOLLET | unix.EPOLLEXCLUSIVE
	// exclusiveBits may go along with EPOLLEXCLUSIVE (fs/eventpoll.c,
	// EPOLLEXCLUSIVE_OK_BITS).
	exclusiveBits = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLERR | unix.EPOLLHUP |
		unix.EPOLLWAKEUP | unix.EPOLLET | unix.EPOLLEXCLUSIVE
	// maxMembers bounds the interest lists of a sandbox together, in place
	// of fs.epoll.max_user_watches.
	maxMembers = 1 << 20
	// maxNest is how deep epoll instances may watch one another.
	maxNest = 5
)

// members counts the members of all instances.
var members atomic.Int64

// nestMu serializes the additions of epoll instances to others, so that two
// of them cannot close a loop together (epnested_mutex).
var nestMu sync.Mutex

// NewEpoll returns an empty instance.
func NewEpoll() *Epoll { return &Epoll{items: make(map[itemKey]*item)} }

// Release implements vfs.FileOps: the members are forgotten.
func (ep *Epoll) Release() {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	for _, it := range ep.items {
		ep.drop(it)
	}
}

// Queue implements vfs.Waitable.
func (ep *Epoll) Queue() *waitq.Queue { return &ep.queue }

// Ready implements vfs.FileOps: readable when some member is ready.
func (ep *Epoll) Ready(mask waitq.Mask) waitq.Mask {
	if mask&(waitq.In|waitq.RdNorm) == 0 {
		return 0
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	for n := len(ep.items); n >= 0; n-- {
		it := ep.pop()
		if it == nil {
			return 0
		}
		if ep.poll(it) != 0 {
			ep.push(it)
			return mask & (waitq.In | waitq.RdNorm)
		}
	}
	return 0
}

// Add adds file, known as fd, to the interest list (EPOLL_CTL_ADD). Errors:
// EEXIST, EINVAL, ELOOP, ENOSPC; EPERM for a file that cannot be waited for.
func (ep *Epoll) Add(file *vfs.File, fd int32, events uint32, data uint64) error {
	child, nested := file.Ops().(*Epoll)
	if child == ep {
		return unix.EINVAL
	}
	if events&unix.EPOLLEXCLUSIVE != 0 && (nested || events&^exclusiveBits != 0) {
		return unix.EINVAL
	}
	if _, ok := file.Ops().(vfs.Waitable); !ok {
		return unix.EPERM
	}
	if nested {
		nestMu.Lock()
		defer nestMu.Unlock()
		if d := child.depth(ep, 0); d < 0 || d+ep.height() > maxNest {
			return unix.ELOOP
		}
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	key := itemKey{file, fd}
	if ep.items[key] != nil {
		return unix.EEXIST
	}
	if members.Add(1) > maxMembers {
		members.Add(-1)
		return unix.ENOSPC
	}
	it := &item{ep: ep, file: file, fd: fd, data: data}
	it.entry.Func = it.event
	if nested {
		child.addParent(ep)
	}
	file.Watch(it)
	ep.items[key] = it
	ep.arm(it, events|unix.EPOLLERR|unix.EPOLLHUP)
	return nil
}

// Modify changes a member's events and data (EPOLL_CTL_MOD). ENOENT when it
// is none.
func (ep *Epoll) Modify(file *vfs.File, fd int32, events uint32, data uint64) error {
	if events&unix.EPOLLEXCLUSIVE != 0 {
		return unix.EINVAL
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	it := ep.items[itemKey{file, fd}]
	if it == nil {
		return unix.ENOENT
	}
	if it.events&unix.EPOLLEXCLUSIVE != 0 {
		return unix.EINVAL
	}
	it.data = data
	ep.arm(it, events|unix.EPOLLERR|unix.EPOLLHUP)
	return nil
}

// Delete removes a member (EPOLL_CTL_DEL). ENOENT when it is none.
func (ep *Epoll) Delete(file *vfs.File, fd int32) error {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	it := ep.items[itemKey{file, fd}]
	if it == nil {
		return unix.ENOENT
	}
	ep.drop(it)
	return nil
}

// FileReleased implements vfs.FileWatcher: the description is closed.
func (it *item) FileReleased() {
	it.ep.mu.Lock()
	defer it.ep.mu.Unlock()
	if it.ep.items[itemKey{it.file, it.fd}] == it {
		it.ep.drop(it)
	}
}

// arm sets a member's events and lists it if some hold now. ep.mu is held.
func (ep *Epoll) arm(it *item, events uint32) {
	q := it.file.Ops().(vfs.Waitable).Queue()
	if it.queued {
		q.Unregister(&it.entry)
	}
	it.events = events
	q.Register(&it.entry, waitq.Mask(events&^privateBits))
	it.queued = true
	if ep.poll(it) != 0 {
		ep.push(it)
		ep.queue.Notify(waitq.In | waitq.RdNorm)
	}
}

// drop removes a member. ep.mu is held.
func (ep *Epoll) drop(it *item) {
	delete(ep.items, itemKey{it.file, it.fd})
	members.Add(-1)
	it.file.Unwatch(it)
	if child, ok := it.file.Ops().(*Epoll); ok {
		child.removeParent(ep)
	}
	if it.queued {
		it.file.Ops().(vfs.Waitable).Queue().Unregister(&it.entry)
		it.queued = false
	}
	ep.readyMu.Lock()
	defer ep.readyMu.Unlock()
	it.dead = true
	if it.listed {
		ep.ready.remove(it)
	}
}

// event is called by the member's queue: it may be ready now.
func (it *item) event(waitq.Mask) {
	ep := it.ep
	ep.readyMu.Lock()
	fresh := !it.listed && !it.dead
	if fresh {
		ep.ready.push(it)
	}
	ep.readyMu.Unlock()
	if fresh {
		ep.queue.Notify(waitq.In | waitq.RdNorm)
	}
}

// poll asks which of the member's events hold. ep.mu is held.
func (ep *Epoll) poll(it *item) uint32 {
	want := waitq.Mask(it.events &^ privateBits)
	if want == 0 {
		return 0 // a one-shot member that had its event
	}
	return uint32(it.file.Ready(want) & want)
}

// pop takes the first member off the ready list; nil when it is empty.
func (ep *Epoll) pop() *item {
	ep.readyMu.Lock()
	defer ep.readyMu.Unlock()
	it := ep.ready.head
	if it != nil {
		ep.ready.remove(it)
	}
	return it
}

// push lists a member unless it is already.
func (ep *Epoll) push(it *item) {
	ep.readyMu.Lock()
	defer ep.readyMu.Unlock()
	if !it.listed && !it.dead {
		ep.ready.push(it)
	}
}
