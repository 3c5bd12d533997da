package systrap

import "slices"

// span is the range of addresses [start, end).
type span struct{ start, end uint64 }

// ranges is a set of addresses, kept as sorted, disjoint, non-adjacent spans.
// It is as long as the guest has separate stretches of host mappings, which
// the host limits (vm.max_map_count).
type ranges []span

// find returns the index of the first span that ends after addr.
func (r ranges) find(addr uint64) int {
	lo, hi := 0, len(r)
	for lo < hi {
		m := int(uint(lo+hi) / 2)
		if r[m].end > addr {
			hi = m
		} else {
			lo = m + 1
		}
	}
	return lo
}

// overlaps reports whether any address of [start, end) is in r.
func (r ranges) overlaps(start, end uint64) bool {
	i := r.find(start)
	return i < len(r) && r[i].start < end
}

// count returns how many spans meet [start, end), and the first one's index.
func (r ranges) count(start, end uint64) (first, n int) {
	first = r.find(start)
	for i := first; i < len(r) && r[i].start < end; i++ {
		n++
	}
	return first, n
}

// add puts [start, end) into r.
func (r *ranges) add(start, end uint64) {
	s := *r
	i := s.find(start)
	if i > 0 && s[i-1].end == start {
		i--
	}
	j := i
	for j < len(s) && s[j].start <= end {
		start = min(start, s[j].start)
		end = max(end, s[j].end)
		j++
	}
	if j == i+1 {
		s[i] = span{start, end}
		return
	}
	*r = slices.Replace(s, i, j, span{start, end})
}

// remove takes [start, end) out of r.
func (r *ranges) remove(start, end uint64) {
	s := *r
	first, n := s.count(start, end)
	if n == 0 {
		return
	}
	var keep [2]span
	k := 0
	if a := s[first]; a.start < start {
		keep[k] = span{a.start, start}
		k++
	}
	if b := s[first+n-1]; b.end > end {
		keep[k] = span{end, b.end}
		k++
	}
	*r = slices.Replace(s, first, first+n, keep[:k]...)
}
