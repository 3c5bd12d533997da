package futex

import "runsc/pkg/waitq"

// State is what an image has of a waiter.
type State struct {
	Place  Place
	Bitset uint32
	PI     bool
	TID    uint32
}

// Each calls f for all waiters, those of one word in the order of their queue.
// Nothing may change the table meanwhile but for other containers' tasks.
func (t *Table) Each(f func(w *Waiter, s State)) {
	for i := range t.buckets {
		b := &t.buckets[i]
		b.mu.Lock()
		for w := b.head; w != nil; w = w.next {
			f(w, State{w.place, w.bitset, w.pi, w.tid})
		}
		b.mu.Unlock()
	}
}

// NewRestored returns the waiter that State described, to be queued.
func NewRestored(wake *waitq.Waiter, s State) *Waiter {
	return &Waiter{wake: wake, bitset: s.Bitset, pi: s.PI, tid: s.TID, place: s.Place}
}

// NewWoken returns a waiter that was woken already.
func NewWoken() *Waiter { return &Waiter{} }
