package mm

import (
	"golang.org/x/sys/unix"

	"runsc/sentry/mem"
	"runsc/sentry/platform"
)

const (
	// populateMax is the most that one host mapping fills page tables for,
	// populateCOW the most when writes will replace the mapping.
	populateMax = 1 << 20
	populateCOW = 256 << 10
)

// mapHostLocked maps the page at addr on the host, with as much around it as is
// in the same state, within [lo, hi), part of v.
func (mm *MM) mapHostLocked(addr, lo, hi uint64, v *vma) error {
	asp := mm.as.Load()
	if asp == nil {
		return nil
	}
	as := *asp
	s := mm.pages.Find(addr)
	p := s.V
	want := p.hostProt(v)
	lo, hi = max(lo, s.Start), min(hi, s.End)
	if want == 0 {
		return nil
	}
	if p.frames {
		off := p.off + (lo - s.Start)
		r, frozen := mm.mf.Extent(mem.Range{Start: off, End: off + (hi - lo)}, off+(addr-lo))
		lo, hi = lo+(r.Start-off), lo+(r.End-off)
		if frozen {
			want &^= platform.Write
		}
	}
	if p.host != 0 && p.host != want {
		// The frames stay, the protection changes (taken over after a fork).
		if err := as.Protect(lo, hi-lo, want); err != nil {
			return err
		}
		mm.setHostLocked(lo, hi, want)
		return nil
	}
	if p.host == want {
		// Another thread was faster, or the host lost the mapping: one page
		// again does no harm.
		lo, hi = addr, addr+pageSize
	}
	if p.frames {
		// Frames are there: filling page tables is cheap.
		size := uint64(populateMax)
		if p.cow {
			size = populateCOW
		}
		lo, hi = max(lo, addr&^(size-1)), min(hi, addr&^(size-1)+size)
	}
	fd, off := int(p.fd), int64(p.off+(lo-s.Start))
	if p.frames {
		fd, off = mm.mf.HostPlace(uint64(off))
	}
	err := as.Map(lo, hi-lo, fd, off, want, p.frames)
	if err == unix.ENOMEM {
		mm.dropHostLocked()
		if err = as.Map(lo, hi-lo, fd, off, want, p.frames); err == unix.ENOMEM {
			err = unix.EIO // not to be taken for the container's limit
		}
	}
	if err != nil {
		return err
	}
	mm.setHostLocked(lo, hi, want)
	return nil
}

// setHostLocked records the host protection of [lo, hi), all of which has pages.
func (mm *MM) setHostLocked(lo, hi uint64, prot platform.Prot) {
	i, j := mm.pages.Isolate(lo, hi)
	for ; i < j; i++ {
		mm.pages.At(i).V.host = prot
	}
	mm.pages.MergeRange(lo, hi)
}

// unhostLocked removes the host mappings of [start, end).
func (mm *MM) unhostLocked(start, end uint64) {
	first, last := end, start
	for i := mm.pages.Search(start); i < mm.pages.Len(); i++ {
		s := mm.pages.At(i)
		if s.Start >= end {
			break
		}
		if s.V.host != 0 {
			first = min(first, max(s.Start, start))
			last = min(s.End, end)
		}
	}
	if first >= last {
		return
	}
	if as := mm.as.Load(); as != nil {
		// One call over the holes between: there is nothing to lose in them.
		if (*as).Unmap(first, last-first) != nil {
			// Cutting a mapping in two can exceed the host's mapping limit,
			// removing all of them cannot. If that fails as well, the stub
			// is dead and its mappings with it.
			n := mm.pages.Len()
			first, last = mm.pages.At(0).Start, mm.pages.At(n-1).End
			_ = (*as).Unmap(first, last-first)
		}
	}
	mm.setHostRange(first, last)
}

// setHostRange clears the host protection of whatever pages lie in [lo, hi).
func (mm *MM) setHostRange(lo, hi uint64) {
	i, j := mm.pages.Isolate(lo, hi)
	for ; i < j; i++ {
		mm.pages.At(i).V.host = 0
	}
	mm.pages.MergeRange(lo, hi)
}

// dropHostLocked removes all host mappings. Threads refault what they need.
func (mm *MM) dropHostLocked() {
	if n := mm.pages.Len(); n > 0 {
		mm.unhostLocked(mm.pages.At(0).Start, mm.pages.At(n-1).End)
	}
}

// protectLocked makes the host protections of [start, end), which may span
// vmas, what they should be, with as few calls as possible.
func (mm *MM) protectLocked(start, end uint64) error {
	if !mm.pages.Overlaps(start, end) {
		return nil
	}
	type span struct {
		lo, hi uint64
		prot   platform.Prot
	}
	var spans []span
	after := false // the last mapped page is the end of the last span
	for i := mm.pages.Search(start); i < mm.pages.Len(); i++ {
		s := mm.pages.At(i)
		if s.Start >= end {
			break
		}
		if s.V.host == 0 {
			continue
		}
		for lo := max(s.Start, start); lo < min(s.End, end); {
			v := mm.vmas.Find(lo)
			hi := min(s.End, end, v.End)
			want := s.V.hostProt(v.V)
			if s.V.frames && s.V.host&platform.Write == 0 && mm.mf.Snapshotting() {
				want &^= platform.Write // a write fault adds it
			}
			if want == s.V.host {
				after = false
			} else if n := len(spans); after && spans[n-1].prot == want {
				spans[n-1].hi = hi // over a hole, if there is one
			} else {
				spans = append(spans, span{lo, hi, want})
				after = true
			}
			lo = hi
		}
	}
	as := mm.as.Load()
	for _, s := range spans {
		if s.prot == 0 {
			mm.unhostLocked(s.lo, s.hi)
			continue
		}
		if as != nil {
			err := (*as).Protect(s.lo, s.hi-s.lo, s.prot)
			if err == unix.ENOMEM {
				// The host's mapping limit: give up the mappings instead.
				mm.dropHostLocked()
				return nil
			}
			if err != nil {
				return err
			}
		}
		i, j := mm.pages.Isolate(s.lo, s.hi)
		for ; i < j; i++ {
			if p := &mm.pages.At(i).V; p.host != 0 {
				p.host = s.prot
			}
		}
		mm.pages.MergeRange(s.lo, s.hi)
	}
	return nil
}

// hosted tells whether the host maps the page at addr for access.
func (mm *MM) hosted(addr uint64, access platform.Prot) bool {
	mm.mu.RLock()
	defer mm.mu.RUnlock()
	p := mm.pages.Find(addr)
	return p != nil && p.V.host&access == access
}
