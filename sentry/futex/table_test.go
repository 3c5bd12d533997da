package futex

import (
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
)

func key(n uint64) Key { return Key{Object: "space", Offset: n} }

func queue(t *testing.T, tb *Table, k Key, bits uint32) *Waiter {
	t.Helper()
	w := NewWaiter(waitq.NewWaiter(), bits)
	if err := tb.Queue(w, k, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	return w
}

func TestWakeInOrder(t *testing.T) {
	tb := NewTable()
	var ws []*Waiter
	for range 5 {
		ws = append(ws, queue(t, tb, key(4), AllBits))
	}
	other := queue(t, tb, key(8), AllBits)
	if n := tb.Wake(key(4), 2, AllBits); n != 2 {
		t.Errorf("woke %d, want 2", n)
	}
	for i, w := range ws {
		if w.Woken() != (i < 2) {
			t.Errorf("waiter %d woken: %v", i, w.Woken())
		}
	}
	if ws[0].Cancel() != true || ws[4].Cancel() != false {
		t.Error("Cancel tells the wrong thing")
	}
	if n := tb.Wake(key(4), 100, AllBits); n != 2 {
		t.Errorf("woke %d, want the 2 left", n)
	}
	if other.Woken() {
		t.Error("a waiter of another word was woken")
	}
}

func TestBitset(t *testing.T) {
	tb := NewTable()
	a, b := queue(t, tb, key(4), 1), queue(t, tb, key(4), 2)
	if n := tb.Wake(key(4), 10, 2); n != 1 || a.Woken() || !b.Woken() {
		t.Errorf("woke %d, %v, %v", n, a.Woken(), b.Woken())
	}
}

func TestQueueChecks(t *testing.T) {
	tb := NewTable()
	w := NewWaiter(waitq.NewWaiter(), AllBits)
	if err := tb.Queue(w, key(4), func() error { return unix.EAGAIN }); err != unix.EAGAIN {
		t.Error(err)
	}
	if n := tb.Waiters(key(4)); n != 0 {
		t.Errorf("%d waiters", n)
	}
}

func TestRequeue(t *testing.T) {
	tb := NewTable()
	var ws []*Waiter
	for range 4 {
		ws = append(ws, queue(t, tb, key(4), AllBits))
	}
	woken, moved, err := tb.Requeue(key(4), key(400), Place{}, 1, 2, func() error { return nil })
	if err != nil || woken != 1 || moved != 2 {
		t.Errorf("%d, %d, %v", woken, moved, err)
	}
	if !ws[0].Woken() || tb.Waiters(key(400)) != 2 || tb.Waiters(key(4)) != 1 {
		t.Error("wrong queues")
	}
	if n := tb.Wake(key(400), 10, AllBits); n != 2 || ws[3].Woken() {
		t.Errorf("woke %d", n)
	}
	if ws[3].Cancel() {
		t.Error("was not woken")
	}
	if _, _, err := tb.Requeue(key(4), key(8), Place{}, 1, 1, func() error { return unix.EAGAIN }); err != unix.EAGAIN {
		t.Error(err)
	}
}

func TestHandOver(t *testing.T) {
	tb := NewTable()
	a, b := NewPIWaiter(waitq.NewWaiter(), 11), NewPIWaiter(waitq.NewWaiter(), 12)
	for _, w := range []*Waiter{a, b} {
		if err := tb.Queue(w, key(4), func() error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if n := tb.Wake(key(4), 10, AllBits); n != 0 {
		t.Errorf("an ordinary wake woke %d PI waiters", n)
	}
	var got []uint32
	give := func(tid uint32, more bool) error {
		got = append(got, tid)
		if more != (tid == 11) {
			t.Errorf("more is %v for %d", more, tid)
		}
		return nil
	}
	for range 3 {
		if err := tb.HandOver(key(4), give); err != nil {
			t.Error(err)
		}
	}
	if len(got) != 3 || got[0] != 11 || got[1] != 12 || got[2] != 0 {
		t.Errorf("owners %v", got)
	}
}

// TestNoLostWake plays a mutex of futex(2) from many goroutines.
func TestNoLostWake(t *testing.T) {
	tb := NewTable()
	var word atomic.Uint32 // 0 free, 1 held, 2 held with waiters
	var wg sync.WaitGroup
	n := 0
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			wake := waitq.NewWaiter()
			for range 500 {
				if !word.CompareAndSwap(0, 1) {
					for word.Swap(2) != 0 {
						w := NewWaiter(wake, AllBits)
						err := tb.Queue(w, key(4), func() error {
							if word.Load() != 2 {
								return unix.EAGAIN
							}
							return nil
						})
						if err == nil {
							for !w.Woken() {
								<-wake.C
							}
						}
					}
				}
				n++
				if word.Swap(0) == 2 {
					tb.Wake(key(4), 1, AllBits)
				}
			}
		}()
	}
	wg.Wait()
	if n != 8*500 {
		t.Errorf("%d, want %d", n, 8*500)
	}
}
