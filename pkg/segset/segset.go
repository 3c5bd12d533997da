package segset

import "sort"

// Seg is one range with its value.
type Seg[V any] struct {
	Start, End uint64
	V          V
}

// Map is an ordered set of disjoint, non-empty ranges. The zero Map with the
// functions set is ready. It is not safe for concurrent change.
type Map[V any] struct {
	// Split returns the value of the upper part when a range with value v is
	// cut at off bytes from its start; the lower part keeps v. Nil means
	// that both have v.
	Split func(v V, off uint64) V
	// Merge tells whether b, which begins where a ends, continues a; the
	// result has a's value. Nil means that ranges never merge.
	Merge func(a, b *Seg[V]) bool

	segs []Seg[V]
}

// Len returns the number of ranges.
func (m *Map[V]) Len() int { return len(m.segs) }

// At returns the i'th range. The pointer is good until the next change;
// through it the value may be changed, not the bounds.
func (m *Map[V]) At(i int) *Seg[V] { return &m.segs[i] }

// Search returns the index of the first range that ends above addr.
func (m *Map[V]) Search(addr uint64) int {
	return sort.Search(len(m.segs), func(i int) bool { return m.segs[i].End > addr })
}

// Find returns the range that addr lies in, or nil.
func (m *Map[V]) Find(addr uint64) *Seg[V] {
	if i := m.Search(addr); i < len(m.segs) && m.segs[i].Start <= addr {
		return &m.segs[i]
	}
	return nil
}

// Overlaps tells whether a range has addresses in [start, end).
func (m *Map[V]) Overlaps(start, end uint64) bool {
	i := m.Search(start)
	return i < len(m.segs) && m.segs[i].Start < end
}

// Isolate cuts ranges so that none crosses start or end, and returns the
// indices [lo, hi) of those between.
func (m *Map[V]) Isolate(start, end uint64) (lo, hi int) {
	m.cut(start)
	m.cut(end)
	lo = m.Search(start)
	hi = lo + sort.Search(len(m.segs)-lo, func(i int) bool { return m.segs[lo+i].Start >= end })
	return lo, hi
}

func (m *Map[V]) cut(at uint64) {
	i := m.Search(at)
	if i == len(m.segs) || m.segs[i].Start >= at {
		return
	}
	m.segs = append(m.segs, Seg[V]{})
	copy(m.segs[i+1:], m.segs[i:])
	v := m.segs[i].V
	if m.Split != nil {
		v = m.Split(v, at-m.segs[i].Start)
	}
	m.segs[i].End = at
	m.segs[i+1] = Seg[V]{at, m.segs[i+1].End, v}
}

// Insert adds [start, end), which must be free, and merges it with its
// neighbours where they continue each other.
func (m *Map[V]) Insert(start, end uint64, v V) {
	i := m.Search(start)
	n := Seg[V]{start, end, v}
	if i < len(m.segs) && m.segs[i].Start < end {
		panic("segset: insert over a range")
	}
	if m.Merge != nil {
		below := i > 0 && m.segs[i-1].End == start && m.Merge(&m.segs[i-1], &n)
		if below {
			m.segs[i-1].End = end
			if i < len(m.segs) && m.segs[i].Start == end && m.Merge(&m.segs[i-1], &m.segs[i]) {
				m.segs[i-1].End = m.segs[i].End
				m.removeAt(i, i+1)
			}
			return
		}
		if i < len(m.segs) && m.segs[i].Start == end && m.Merge(&n, &m.segs[i]) {
			n.End = m.segs[i].End
			m.segs[i] = n
			return
		}
	}
	m.segs = append(m.segs, Seg[V]{})
	copy(m.segs[i+1:], m.segs[i:])
	m.segs[i] = n
}

// Remove takes [start, end) out, and calls fn, unless nil, with each piece.
func (m *Map[V]) Remove(start, end uint64, fn func(Seg[V])) {
	if !m.Overlaps(start, end) {
		return
	}
	lo, hi := m.Isolate(start, end)
	if fn != nil {
		for i := lo; i < hi; i++ {
			fn(m.segs[i])
		}
	}
	m.removeAt(lo, hi)
}

func (m *Map[V]) removeAt(lo, hi int) {
	n := copy(m.segs[lo:], m.segs[hi:])
	clear(m.segs[lo+n:])
	m.segs = m.segs[:lo+n]
}

// MergeRange merges what continues each other from the range before start to
// the one after end.
func (m *Map[V]) MergeRange(start, end uint64) {
	if m.Merge == nil {
		return
	}
	i := max(m.Search(start)-1, 0)
	w := i
	j := i + 1
	for ; j < len(m.segs) && m.segs[j].Start <= end; j++ {
		a, b := &m.segs[w], &m.segs[j]
		if a.End == b.Start && m.Merge(a, b) {
			a.End = b.End
			continue
		}
		w++
		m.segs[w] = m.segs[j]
	}
	if w+1 < j {
		m.removeAt(w+1, j)
	}
}

// ExtendDown moves the start of the i'th range down to start; what it gains
// must be free.
func (m *Map[V]) ExtendDown(i int, start uint64) {
	if i > 0 && m.segs[i-1].End > start {
		panic("segset: extend over a range")
	}
	m.segs[i].Start = start
}

// Clear removes all ranges.
func (m *Map[V]) Clear() { m.segs = nil }
