package mm

import "runsc/sentry/mem"

var _ mem.MappingSpace = (*MM)(nil)

// Invalidate implements mem.MappingSpace: pages [off, off+n) of m are not
// where they were, or gone.
func (mm *MM) Invalidate(m mem.Mappable, off, n int64, private bool) {
	obj := mem.MapObject(m)
	first, last := uint64(off), uint64(off)+uint64(n)
	if n <= 0 || last < first {
		last = 1 << 63
	}
	mm.mu.Lock()
	defer mm.mu.Unlock()
	mm.gen++
	for i := 0; i < mm.vmas.Len(); i++ {
		s := mm.vmas.At(i)
		if s.V.file == nil || s.V.obj != obj {
			continue
		}
		vlast := s.V.off + (s.End - s.Start)
		if s.V.off >= last || vlast <= first {
			continue
		}
		lo := s.Start + (max(first, s.V.off) - s.V.off)
		hi := s.Start + (min(last, vlast) - s.V.off)
		mm.dropPagesLocked(lo, hi, private)
	}
}
