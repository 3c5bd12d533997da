package mm

import (
	"runsc/pkg/segset"
	"runsc/sentry/mem"
	"runsc/sentry/platform"
)

// page is the state of a run of pages of an address space.
type page struct {
	off uint64 `save:"rec"`     // of the run's start in fd
	fd  int32  `save:"rebuilt"` // of the memfile: only owned pages are saved
	// frames: off is the number of a frame.
	frames bool `save:"rebuilt"`
	// owned: mm holds a reference to each frame: the contents are private.
	owned bool `save:"rebuilt"`
	// cow: owned frames that others may hold too; a write copies or, at the
	// last reference, takes them over.
	cow bool `save:"rec"`
	// dirty: the file was told that a shared mapping writes (Region's write).
	dirty bool `save:"none: faults ask the file again"`
	// host is the protection of the host mapping, 0 when there is none.
	host platform.Prot `save:"none: the host's side comes back by faults"`
}

type pageSeg = segset.Seg[page]

func splitPage(p page, off uint64) page {
	p.off += off
	return p
}

func mergePage(a, b *pageSeg) bool {
	want := a.V
	want.off += a.End - a.Start
	return want == b.V
}

// writable tells whether the Sentry may write to p on behalf of v now.
func (p *page) writable(v *vma) bool {
	if p.owned {
		return !p.cow
	}
	return v.shared && p.dirty
}

// hostProt returns with which protection the host may map p for v.
func (p *page) hostProt(v *vma) platform.Prot {
	prot := v.prot
	if prot == 0 {
		return 0
	}
	// On x86 whatever can be accessed can be read.
	prot |= platform.Read
	if !p.writable(v) {
		prot &^= platform.Write
	}
	return prot
}

// setPagesLocked makes p the state of [start, end), which has no pages.
func (mm *MM) setPagesLocked(start, end uint64, p page) {
	mm.countPages(p, end-start, 1)
	mm.pages.Insert(start, end, p)
}

func (mm *MM) countPages(p page, n uint64, sign int) {
	c := &mm.space.file
	if p.owned {
		c = &mm.space.anon
	}
	if sign < 0 {
		*c -= n
		return
	}
	*c += n
	mm.space.peakRSS = max(mm.space.peakRSS, mm.space.anon+mm.space.file)
}

// dropPagesLocked forgets the pages of [start, end), the owned ones only with
// private set, and unmaps them on the host.
func (mm *MM) dropPagesLocked(start, end uint64, private bool) {
	if !mm.pages.Overlaps(start, end) {
		return
	}
	if private {
		mm.unhostLocked(start, end)
		mm.pages.Remove(start, end, mm.freePage)
		return
	}
	for {
		i := mm.pages.Search(start)
		for ; i < mm.pages.Len() && mm.pages.At(i).V.owned; i++ {
		}
		if i == mm.pages.Len() || mm.pages.At(i).Start >= end {
			return
		}
		lo, hi := max(mm.pages.At(i).Start, start), min(mm.pages.At(i).End, end)
		mm.unhostLocked(lo, hi)
		mm.pages.Remove(lo, hi, mm.freePage)
		start = hi
	}
}

// freePage drops what a removed run of pages held.
func (mm *MM) freePage(s pageSeg) {
	mm.countPages(s.V, s.End-s.Start, -1)
	if !s.V.owned {
		return
	}
	r := mem.Range{Start: s.V.off, End: s.V.off + (s.End - s.Start)}
	if mm.dying != nil {
		*mm.dying = append(*mm.dying, r)
		return
	}
	mm.mf.DecRef(r)
}

// allocLocked allocates frames for [start, end), which has no pages, and
// makes them its pages. Unless zero is set their contents are undefined. It
// fails with mem.ErrLimit; then nothing was done beyond what the returned end tells.
func (mm *MM) allocLocked(start, end uint64, zero bool) (uint64, error) {
	for start < end {
		stop := min(end, start&^(mem.WindowSize-1)+mem.WindowSize)
		off, err := mm.framesLocked(start, stop, zero)
		if err != nil {
			return start, err
		}
		mm.setPagesLocked(start, stop, page{off: off, fd: int32(mm.mf.FD()), frames: true, owned: true})
		start = stop
	}
	return start, nil
}

// framesLocked allocates frames congruent with [start, end), which lies in
// one window.
func (mm *MM) framesLocked(start, end uint64, zero bool) (uint64, error) {
	key := start / mem.WindowSize
	for {
		win, ok := mm.windows[key]
		if !ok {
			var err error
			if win, err = mm.mf.ReserveWindow(mm.acct, mem.Anonymous); err != nil {
				return 0, err
			}
			mm.windows[key] = win
		}
		off := win + start%mem.WindowSize
		ok, err := mm.mf.AllocateAt(mem.Range{Start: off, End: off + (end - start)}, zero)
		if err != nil {
			return 0, err
		}
		if ok {
			return off, nil
		}
		// The place is taken by frames that a fork shares or that moved
		// (mremap): go on in another window.
		mm.mf.ReleaseWindow(win)
		delete(mm.windows, key)
	}
}

// releaseWindowsLocked gives up the windows of addresses wholly in [start, end).
func (mm *MM) releaseWindowsLocked(start, end uint64) {
	lo, hi := (start+mem.WindowSize-1)/mem.WindowSize, end/mem.WindowSize
	if lo >= hi {
		return
	}
	if hi-lo < uint64(len(mm.windows)) {
		for key := lo; key < hi; key++ {
			if off, ok := mm.windows[key]; ok {
				mm.mf.ReleaseWindow(off)
				delete(mm.windows, key)
			}
		}
		return
	}
	for key, off := range mm.windows {
		if key >= lo && key < hi {
			mm.mf.ReleaseWindow(off)
			delete(mm.windows, key)
		}
	}
}
