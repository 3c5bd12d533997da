package ref

import (
	"fmt"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
)

// Count is a reference count. The zero Count holds no reference: call Init.
type Count struct {
	n atomic.Int64
}

// Init sets the count to one.
func (c *Count) Init() { c.n.Store(1) }

// Inc takes a reference; the caller knows that one is held already.
func (c *Count) Inc() { c.n.Add(1) }

// TryInc takes a reference unless the count is zero already.
func (c *Count) TryInc() bool {
	for {
		n := c.n.Load()
		if n <= 0 {
			return false
		}
		if c.n.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Dec drops a reference and tells whether it was the last one.
func (c *Count) Dec() bool {
	n := c.n.Add(-1)
	if n < 0 {
		panic("ref: count below zero")
	}
	return n == 0
}

// Load is the number of references, for checks that tolerate change.
func (c *Count) Load() int64 { return c.n.Load() }

// Kind counts the living objects of one sort.
type Kind struct {
	name string
	live atomic.Int64
}

var kinds struct {
	mu   sync.Mutex
	list []*Kind
}

// NewKind registers a sort of objects.
func NewKind(name string) *Kind {
	k := &Kind{name: name}
	kinds.mu.Lock()
	defer kinds.mu.Unlock()
	kinds.list = append(kinds.list, k)
	return k
}

// Born and Died count an object in and out.
func (k *Kind) Born() { k.live.Add(1) }

// Died is Born's counterpart.
func (k *Kind) Died() { k.live.Add(-1) }

// Live is the number of living objects.
func (k *Kind) Live() int64 { return k.live.Load() }

// Snapshot is the number of living objects of each kind.
func Snapshot() map[string]int64 {
	kinds.mu.Lock()
	defer kinds.mu.Unlock()
	m := make(map[string]int64, len(kinds.list))
	for _, k := range kinds.list {
		m[k.name] += k.live.Load()
	}
	return m
}

// Leaks compares with an earlier Snapshot and describes what there is more of
// now; it is empty when nothing is.
func Leaks(before map[string]int64) string {
	var out []string
	for name, n := range Snapshot() {
		if n > before[name] {
			out = append(out, fmt.Sprintf("%s: %d more", name, n-before[name]))
		}
	}
	sort.Strings(out)
	return strings.Join(out, ", ")
}
