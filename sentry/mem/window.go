package mem

import (
	"math/bits"
	"sync/atomic"
)

// WindowSize is the unit in which file space is handed out.
const WindowSize = 2 << 20

const windowPages = WindowSize / PageSize

// window is WindowSize of file space, with the state of its pages.
type window struct {
	// immutable:
	off   uint64
	store *store

	// File.mu guards:
	acct     *Account // nil in the free list
	kind     Kind
	reserved bool // held by ReserveWindow
	listed   bool // in acct.partial[kind]
	nbusy    int
	ndirty   int
	busy     bitmap // allocated, or being punched
	dirty    bitmap // free, but not zero

	// atomic, set with File.mu held: nil as long as nobody has counted anything (see File.counts).
	counts atomic.Pointer[pageCounts]
	// atomic:
	// pending is set while contents are still in an image, frozen while a
	// snapshot has pages of the window.
	pending atomic.Pointer[pendingWindow]
	frozen  atomic.Pointer[frozenWindow]
}

// pageCounts are the counts of a window's pages.
type pageCounts struct {
	// atomic:
	refs [windowPages]atomic.Int32
	heat heat
}

// counts returns the counts of w's pages. They are made when somebody first
// counts: until then each allocated page has one reference, and a restore of much
// memory does not have to write them all.
func (f *File) counts(w *window) *pageCounts {
	if c := w.counts.Load(); c != nil {
		return c
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return w.countsLocked()
}

func (w *window) countsLocked() *pageCounts {
	c := w.counts.Load()
	if c == nil {
		c = &pageCounts{}
		// Freeing counts: of what is busy nothing waits to be punched.
		for i := range windowPages {
			if w.busy.get(i) {
				c.refs[i].Store(1)
			}
		}
		w.counts.Store(c)
	}
	return c
}

type bitmap [windowPages / 64]uint64

func (b *bitmap) get(i int) bool { return b[i/64]&(1<<(i%64)) != 0 }
func (b *bitmap) set(i int)      { b[i/64] |= 1 << (i % 64) }
func (b *bitmap) clear(i int)    { b[i/64] &^= 1 << (i % 64) }

// word returns the bits of [lo, hi) that lie in the word of lo, and where the next word begins.
func word(lo, hi int) (mask uint64, next int) {
	next = min(hi, lo&^63+64)
	return ^uint64(0) << (lo % 64) & (^uint64(0) >> (63 - (next-1)%64)), next
}

func (b *bitmap) setRange(lo, hi int) {
	for lo < hi {
		mask, next := word(lo, hi)
		b[lo/64] |= mask
		lo = next
	}
}

// all tells whether all bits of [lo, hi) are set, any whether one is.
func (b *bitmap) all(lo, hi int) bool {
	for lo < hi {
		mask, next := word(lo, hi)
		if b[lo/64]&mask != mask {
			return false
		}
		lo = next
	}
	return true
}

func (b *bitmap) any(lo, hi int) bool {
	for lo < hi {
		mask, next := word(lo, hi)
		if b[lo/64]&mask != 0 {
			return true
		}
		lo = next
	}
	return false
}

func (w *window) rangeOf(at, pages int) Range {
	s := w.off + uint64(at)*PageSize
	return Range{s, s + uint64(pages)*PageSize}
}

func (w *window) full() bool { return w.nbusy+w.ndirty == windowPages }

// findFree returns the first run of clean free pages, or -1.
func (w *window) findFree(pages int) int {
	if windowPages-w.nbusy-w.ndirty < pages {
		return -1
	}
	run := 0
	for i := 0; i < windowPages; {
		used := w.busy[i/64] | w.dirty[i/64]
		if run == 0 && i%64 == 0 && used == ^uint64(0) {
			i += 64
			continue
		}
		if run == 0 && pages == 1 && i%64 == 0 {
			return i + bits.TrailingZeros64(^used)
		}
		if used&(1<<(i%64)) != 0 {
			run = 0
		} else if run++; run == pages {
			return i - pages + 1
		}
		i++
	}
	return -1
}

// takeLocked marks pages as allocated with one reference each.
func (w *window) takeLocked(at, pages int) {
	w.busy.setRange(at, at+pages)
	w.nbusy += pages
	if c := w.counts.Load(); c != nil {
		for i := at; i < at+pages; i++ {
			c.refs[i].Store(1)
		}
	}
}

func (w *window) listLocked() {
	if !w.listed {
		w.listed = true
		w.acct.partial[w.kind] = append(w.acct.partial[w.kind], w)
	}
}

func (w *window) unlistLocked() {
	if !w.listed {
		return
	}
	w.listed = false
	list := w.acct.partial[w.kind]
	for i := len(list) - 1; i >= 0; i-- {
		if list[i] == w {
			w.acct.partial[w.kind] = append(list[:i], list[i+1:]...)
			return
		}
	}
}

// newWindowLocked returns an empty window for a.
func (f *File) newWindowLocked(a *Account, kind Kind) (*window, error) {
	s := f.storeOf(a, kind)
	var w *window
	if n := len(s.free); n > 0 {
		w = s.free[n-1]
		s.free = s.free[:n-1]
	} else {
		var err error
		var more []window
		if more, err = s.growLocked(1); err != nil {
			return nil, err
		}
		w = &more[0]
	}
	w.acct, w.kind = a, kind
	return w, nil
}

// ReserveWindow returns the offset of an empty window in which only
// AllocateAt allocates, charged to a. The caller releases it.
func (f *File) ReserveWindow(a *Account, kind Kind) (uint64, error) {
	if a == nil {
		a = f.root
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	w, err := f.newWindowLocked(a, kind)
	if err != nil {
		return 0, err
	}
	w.reserved = true
	return w.off, nil
}

// ReleaseWindow ends a reservation. Pages that are still allocated live on.
func (f *File) ReleaseWindow(off uint64) {
	w := f.window(off)
	f.mu.Lock()
	defer f.mu.Unlock()
	w.reserved = false
	f.retireLocked(w)
}

// retireLocked puts w in the free list when nothing holds it.
func (f *File) retireLocked(w *window) {
	if w.acct == nil || w.reserved || w.nbusy > 0 || w.ndirty > 0 {
		return
	}
	w.unlistLocked()
	w.acct = nil
	w.store.free = append(w.store.free, w)
}

// AllocateAt allocates the frames r of a reserved window. It returns false
// when one of them is in use. With zero set they are zero-filled, else their
// contents are undefined and the caller overwrites all of it.
func (f *File) AllocateAt(r Range, zero bool) (bool, error) {
	w := f.window(r.Start)
	lo, hi := int((r.Start-w.off)/PageSize), int((r.End-w.off)/PageSize)
	if err := f.charge(w.acct, r.Len(), w.kind); err != nil {
		return false, err
	}
	f.mu.Lock()
	if w.busy.any(lo, hi) {
		f.mu.Unlock()
		w.acct.uncharge(r.Len(), w.kind)
		return false, nil
	}
	var wipe []int
	for i := lo; i < hi; i++ {
		if w.dirty.get(i) {
			w.dirty.clear(i)
			w.ndirty--
			f.dirtyPages--
			if zero {
				wipe = append(wipe, i)
			}
		}
	}
	w.takeLocked(lo, hi-lo)
	f.mu.Unlock()
	for i := 0; i < len(wipe); {
		j := i + 1
		for j < len(wipe) && wipe[j] == wipe[j-1]+1 {
			j++
		}
		if err := f.Zero(w.rangeOf(wipe[i], j-i)); err != nil {
			f.DecRef(r)
			return false, err
		}
		i = j
	}
	return true, nil
}

// LimitHit tells the OOM killer of a that need bytes could not be had.
func (f *File) LimitHit(a *Account, need uint64) {
	if a == nil {
		a = f.root
	}
	a.limitHit(need)
}
