package futex

import (
	"hash/maphash"
	"sync"
	"sync/atomic"

	"runsc/pkg/waitq"
)

// Key identifies a futex word: an address space and an address for private
// ones, a file or frame identity and an offset for shared ones. Object must be
// comparable.
type Key struct {
	Object any
	Offset uint64
}

// AllBits is FUTEX_BITSET_MATCH_ANY.
const AllBits = ^uint32(0)

// Waiter is one queued task.
type Waiter struct {
	// immutable while queued
	wake   *waitq.Waiter `save:"rebuilt"`
	bitset uint32        `save:"rec"`
	pi     bool          `save:"rec"` // FUTEX_LOCK_PI: woken only as the new owner
	tid    uint32        `save:"rec"` // of a PI waiter

	// bucket.mu (of the bucket that holds the waiter) guards:
	key        Key     `save:"rebuilt"`
	place      Place   `save:"rec"`
	next, prev *Waiter `save:"rebuilt"`
	queued     bool    `save:"rec"`

	// bucket is where the waiter is or was queued; a requeue changes it with
	// both buckets locked.
	bucket atomic.Pointer[bucket] `save:"rebuilt"`
}

// Place is an address that leads to the word that a waiter waits for, for
// saving: keys do not outlive a sandbox.
type Place struct {
	MM      any    `save:"rec"`
	Addr    uint64 `save:"rec"`
	Private bool   `save:"rec"`
}

// SetPlace says where the waiter waits; it is called before Queue.
func (w *Waiter) SetPlace(mm any, addr uint64, private bool) { w.place = Place{mm, addr, private} }

// bucket is one hash chain, in order of arrival.
type bucket struct {
	mu sync.Mutex
	// mu guards:
	head, tail *Waiter

	index int // lock order of two buckets: by index
}

const numBuckets = 256

// Table holds all waiters of a sandbox.
type Table struct {
	seed    maphash.Seed
	buckets [numBuckets]bucket
}

// NewTable returns an empty table.
func NewTable() *Table {
	t := &Table{seed: maphash.MakeSeed()}
	for i := range t.buckets {
		t.buckets[i].index = i
	}
	return t
}

func (t *Table) bucket(k Key) *bucket {
	return &t.buckets[maphash.Comparable(t.seed, k)%numBuckets]
}

func (b *bucket) pushLocked(w *Waiter) {
	w.prev, w.next = b.tail, nil
	if b.tail != nil {
		b.tail.next = w
	} else {
		b.head = w
	}
	b.tail = w
	w.queued = true
	w.bucket.Store(b)
}

func (b *bucket) removeLocked(w *Waiter) {
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		b.head = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		b.tail = w.prev
	}
	w.next, w.prev, w.queued = nil, nil, false
}

// NewWaiter returns a waiter that wakes wake if a waking call's bits meet bitset.
func NewWaiter(wake *waitq.Waiter, bitset uint32) *Waiter {
	return &Waiter{wake: wake, bitset: bitset}
}

// NewPIWaiter returns a waiter for LockPI.
func NewPIWaiter(wake *waitq.Waiter, tid uint32) *Waiter {
	return &Waiter{wake: wake, bitset: AllBits, pi: true, tid: tid}
}

// Queue adds w as waiter for k if check, called with the queue locked, returns
// nil; check compares the word, so that no wake-up can fall between.
func (t *Table) Queue(w *Waiter, k Key, check func() error) error {
	b := t.bucket(k)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := check(); err != nil {
		return err
	}
	w.key = k
	b.pushLocked(w)
	return nil
}

// lockOf locks the bucket that w is or was on.
func (w *Waiter) lockOf() *bucket {
	for {
		b := w.bucket.Load()
		b.mu.Lock()
		if w.bucket.Load() == b {
			return b
		}
		b.mu.Unlock() // requeued meanwhile
	}
}

// Woken tells whether w, which was queued, has been woken.
func (w *Waiter) Woken() bool {
	if w.bucket.Load() == nil {
		return true // made by NewWoken
	}
	b := w.lockOf()
	defer b.mu.Unlock()
	return !w.queued
}

// Cancel takes w off its queue; it tells whether it had been woken before.
func (w *Waiter) Cancel() (woken bool) {
	if w.bucket.Load() == nil {
		return true
	}
	b := w.lockOf()
	defer b.mu.Unlock()
	if !w.queued {
		return true
	}
	b.removeLocked(w)
	return false
}

// wakeLocked wakes up to n waiters of k whose bits meet bitset.
func (b *bucket) wakeLocked(k Key, n int, bitset uint32) int {
	woken := 0
	for w := b.head; w != nil && woken < n; {
		next := w.next
		if w.key == k && w.bitset&bitset != 0 && !w.pi {
			b.removeLocked(w)
			w.wake.Wake()
			woken++
		}
		w = next
	}
	return woken
}

// Wake wakes up to n waiters of k whose bits meet bitset, in order of arrival,
// and returns how many.
func (t *Table) Wake(k Key, n int, bitset uint32) int {
	b := t.bucket(k)
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.wakeLocked(k, n, bitset)
}

// lockTwo locks the buckets of two keys, which may be one.
func (t *Table) lockTwo(k1, k2 Key) (b1, b2 *bucket, unlock func()) {
	b1, b2 = t.bucket(k1), t.bucket(k2)
	lo, hi := b1, b2
	if lo.index > hi.index {
		lo, hi = hi, lo
	}
	lo.mu.Lock()
	if hi != lo {
		hi.mu.Lock()
	}
	return b1, b2, func() {
		if hi != lo {
			hi.mu.Unlock()
		}
		lo.mu.Unlock()
	}
}

// Requeue wakes up to nWake waiters of from and moves up to nMove of the rest
// to to, whose place is given, if check returns nil; it returns both counts.
func (t *Table) Requeue(from, to Key, place Place, nWake, nMove int, check func() error) (woken, moved int, err error) {
	b1, b2, unlock := t.lockTwo(from, to)
	defer unlock()
	if err := check(); err != nil {
		return 0, 0, err
	}
	woken = b1.wakeLocked(from, nWake, AllBits)
	if from == to {
		return woken, 0, nil
	}
	for w := b1.head; w != nil && moved < nMove; {
		next := w.next
		if w.key == from && !w.pi {
			b1.removeLocked(w)
			w.key, w.place = to, place
			b2.pushLocked(w)
			moved++
		}
		w = next
	}
	return woken, moved, nil
}

// WakeOp runs op, which changes the word of k2 and compares its old value, then
// wakes up to n1 waiters of k1 and, if the comparison held, up to n2 of k2.
func (t *Table) WakeOp(k1, k2 Key, n1, n2 int, op func() (bool, error)) (int, error) {
	b1, b2, unlock := t.lockTwo(k1, k2)
	defer unlock()
	hit, err := op()
	if err != nil {
		return 0, err
	}
	n := b1.wakeLocked(k1, n1, AllBits)
	if hit {
		n += b2.wakeLocked(k2, n2, AllBits)
	}
	return n, nil
}

// Locked runs f with the queue of k locked, so that it can change the word.
func (t *Table) Locked(k Key, f func()) {
	b := t.bucket(k)
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

// HandOver calls give with the thread id of the longest waiting PI waiter of
// k, 0 if there is none, and whether there are more; if give, which stores the
// new owner in the word, returns nil, the waiter is woken as owner.
func (t *Table) HandOver(k Key, give func(tid uint32, more bool) error) error {
	b := t.bucket(k)
	b.mu.Lock()
	defer b.mu.Unlock()
	var first *Waiter
	more := false
	for w := b.head; w != nil; w = w.next {
		if w.key != k || !w.pi {
			continue
		}
		if first != nil {
			more = true
			break
		}
		first = w
	}
	if first == nil {
		return give(0, false)
	}
	if err := give(first.tid, more); err != nil {
		return err
	}
	b.removeLocked(first)
	first.wake.Wake()
	return nil
}

// Waiters is the number of waiters of k, for tests.
func (t *Table) Waiters(k Key) int {
	b := t.bucket(k)
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for w := b.head; w != nil; w = w.next {
		if w.key == k {
			n++
		}
	}
	return n
}
