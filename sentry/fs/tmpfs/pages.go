package tmpfs

// pageTable maps the pages of a file to frames: the frame's offset in the
// memfile with bit 0 set, or 0 for a hole. The first leaf, all there is of a
// small file, grows as needed; the others have leafPages entries.
type pageTable struct {
	first []uint64
	rest  map[int64][]uint64
	n     int64 // pages that have a frame
}

const (
	leafShift = 9
	leafPages = 1 << leafShift
	present   = 1
)

func (t *pageTable) leaf(page int64) []uint64 {
	if page < leafPages {
		return t.first
	}
	return t.rest[page>>leafShift]
}

// get returns the frame of a page.
func (t *pageTable) get(page int64) (off uint64, ok bool) {
	l := t.leaf(page)
	i := page & (leafPages - 1)
	if i >= int64(len(l)) || l[i] == 0 {
		return 0, false
	}
	return l[i] &^ present, true
}

// run returns the frame of page and how many pages from there are contiguous
// in the memfile too, or are all holes; at most limit and not beyond a leaf if
// they are holes.
func (t *pageTable) run(page, limit int64) (off uint64, n int64, ok bool) {
	off, ok = t.get(page)
	if ok {
		for n = 1; n < limit; n++ {
			next, mapped := t.get(page + n)
			if !mapped || next != off+uint64(n)*pageSize {
				break
			}
		}
		return off, n, true
	}
	l := t.leaf(page)
	i := page & (leafPages - 1)
	for n = 0; n < limit && i < leafPages; i++ {
		if i < int64(len(l)) && l[i] != 0 {
			break
		}
		n++
	}
	return 0, n, false
}

// set gives pages [page, page+n), all holes, the frames from off on.
func (t *pageTable) set(page, n int64, off uint64) {
	for i := range n {
		t.setOne(page+i, off+uint64(i)*pageSize)
	}
	t.n += n
}

func (t *pageTable) setOne(page int64, off uint64) {
	i := page & (leafPages - 1)
	if page < leafPages {
		if need := int(i) + 1; need > len(t.first) {
			if need > cap(t.first) {
				grown := make([]uint64, need, min(leafPages, max(2*need, 4)))
				copy(grown, t.first)
				t.first = grown
			}
			t.first = t.first[:need]
		}
		t.first[i] = off | present
		return
	}
	l := t.rest[page>>leafShift]
	if l == nil {
		l = make([]uint64, leafPages)
		if t.rest == nil {
			t.rest = make(map[int64][]uint64)
		}
		t.rest[page>>leafShift] = l
	}
	l[i] = off | present
}

// clear makes holes of pages [start, end) and calls free for each frame that
// was there.
func (t *pageTable) clear(start, end int64, free func(off uint64)) {
	clearLeaf := func(key int64, l []uint64) (empty bool) {
		lo, hi := max(start-key<<leafShift, 0), min(end-key<<leafShift, int64(len(l)))
		for i := lo; i < hi; i++ {
			if l[i] != 0 {
				free(l[i] &^ present)
				l[i] = 0
				t.n--
			}
		}
		return lo == 0 && hi == int64(len(l))
	}
	if start < leafPages {
		if clearLeaf(0, t.first) {
			t.first = nil
		}
	}
	firstKey, lastKey := start>>leafShift, (end-1)>>leafShift
	if lastKey-firstKey > int64(len(t.rest)) {
		for key, l := range t.rest {
			if key >= firstKey && key <= lastKey && clearLeaf(key, l) {
				delete(t.rest, key)
			}
		}
		return
	}
	for key := max(firstKey, 1); key <= lastKey; key++ {
		if l := t.rest[key]; l != nil && clearLeaf(key, l) {
			delete(t.rest, key)
		}
	}
}

// next returns the first page from start on that has a frame (data) or has
// none; end if there is none before end.
func (t *pageTable) next(start, end int64, data bool) int64 {
	for page := start; page < end; {
		l := t.leaf(page)
		base := page &^ (leafPages - 1)
		for i := page - base; i < leafPages && base+i < end; i++ {
			if (i < int64(len(l)) && l[i] != 0) == data {
				return base + i
			}
		}
		page = base + leafPages
		if data {
			page = t.nextLeaf(page)
		}
	}
	return end
}

// nextLeaf returns the first page of the first leaf at or after page.
func (t *pageTable) nextLeaf(page int64) int64 {
	key := page >> leafShift
	if t.rest[key] != nil {
		return page
	}
	best := int64(1<<62) >> leafShift
	for k := range t.rest {
		if k >= key && k < best {
			best = k
		}
	}
	return best << leafShift
}
