package waitq

import "sync"

// Mask is a set of poll(2) events (POLLIN, POLLOUT, ...).
type Mask uint32

// Poll events, with the values of poll(2).
const (
	In     Mask = 0x001
	Pri    Mask = 0x002
	Out    Mask = 0x004
	Err    Mask = 0x008
	Hup    Mask = 0x010
	Nval   Mask = 0x020
	RdNorm Mask = 0x040
	RdBand Mask = 0x080
	WrNorm Mask = 0x100
	WrBand Mask = 0x200
	RdHup  Mask = 0x2000
)

// Always is reported to every listener whatever it asked for.
const Always = Err | Hup

// Waiter is what one blocked task sleeps on: a channel that holds at most one
// wake-up.
type Waiter struct {
	C chan struct{}
}

// NewWaiter returns a waiter with no wake-up pending.
func NewWaiter() *Waiter { return &Waiter{C: make(chan struct{}, 1)} }

// Wake makes a wake-up pending. It never blocks.
func (w *Waiter) Wake() {
	select {
	case w.C <- struct{}{}:
	default:
	}
}

// Clear drops a pending wake-up.
func (w *Waiter) Clear() {
	select {
	case <-w.C:
	default:
	}
}

// Entry is one registration of a listener on a queue. The zero Entry with
// Waiter or Func set is ready for Register. It may be on one queue at a time.
type Entry struct {
	// Waiter, if set, is woken at a matching event.
	Waiter *Waiter
	// Func, if set, is called with the events under the queue's lock; it
	// must not block nor touch the queue.
	Func func(Mask)

	mask       Mask
	next, prev *Entry
	queue      *Queue
}

// Queue is a list of listeners. The zero Queue is empty and ready.
type Queue struct {
	mu sync.Mutex
	// mu guards:
	head, tail *Entry
}

// Register adds e as listener for the events of mask and Always.
func (q *Queue) Register(e *Entry, mask Mask) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e.mask, e.queue = mask|Always, q
	e.prev, e.next = q.tail, nil
	if q.tail != nil {
		q.tail.next = e
	} else {
		q.head = e
	}
	q.tail = e
}

// Unregister removes e. It does nothing when e is not on the queue. After it
// returned, no callback of e runs.
func (q *Queue) Unregister(e *Entry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e.queue != q {
		return
	}
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		q.head = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		q.tail = e.prev
	}
	e.prev, e.next, e.queue = nil, nil, nil
}

// Notify tells every listener that wants one of the events.
func (q *Queue) Notify(mask Mask) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for e := q.head; e != nil; e = e.next {
		if m := e.mask & mask; m != 0 {
			if e.Waiter != nil {
				e.Waiter.Wake()
			}
			if e.Func != nil {
				e.Func(m)
			}
		}
	}
}

// Empty tells whether nobody listens.
func (q *Queue) Empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.head == nil
}
