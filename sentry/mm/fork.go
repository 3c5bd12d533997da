package mm

import (
	"golang.org/x/sys/unix"

	"runsc/sentry/mem"
	"runsc/sentry/platform"
)

// Fork returns a copy of mm with one user, in which private frames are shared
// until one side writes (dup_mmap). limits are the new process's.
func (mm *MM) Fork(limits LimitFunc) (*MM, error) {
	return mm.ForkInto(mm.acct, mm.group, limits)
}

// ForkInto is Fork for a child whose frames are charged to acct.
func (mm *MM) ForkInto(acct *mem.Account, group platform.Group, limits LimitFunc) (*MM, error) {
	if mm.strict() && !acct.MayCommit(mm.committed()) {
		return nil, unix.ENOMEM
	}
	child := newMM(mm.mf, acct, group, limits)
	child.layout = mm.layout
	mm.mapMu.Lock()
	defer mm.mapMu.Unlock()

	// First the files, whose locks come before mu.
	type fileMapping struct {
		v *vma
		n uint64
	}
	var files []fileMapping
	mm.mu.RLock()
	for i := 0; i < mm.vmas.Len(); i++ {
		if s := mm.vmas.At(i); s.V.file != nil && !s.V.noFork {
			files = append(files, fileMapping{s.V, s.End - s.Start})
		}
	}
	mm.mu.RUnlock()
	for i, f := range files {
		if err := child.addMapping(f.v, f.n); err != nil {
			for _, g := range files[:i] {
				child.undoMapping(g.v, g.n)
			}
			child.DecUsers()
			return nil, err
		}
	}

	mm.mu.Lock()
	for i := 0; i < mm.vmas.Len(); i++ {
		s := mm.vmas.At(i)
		if s.V.noFork {
			continue
		}
		v := *s.V
		v.lock = unlocked // mlock(2): locks are not inherited
		v.next, v.ahead = 0, 0
		child.insertForked(s.Start, s.End, &v)
		if !s.V.shared && !s.V.wipe {
			mm.sharePagesLocked(child, s.Start, s.End)
		}
	}
	if n := mm.pages.Len(); n > 0 {
		_ = mm.protectLocked(mm.pages.At(0).Start, mm.pages.At(n-1).End)
	}
	child.brk, child.info = mm.brk, mm.info
	child.space.peakTotal = child.space.total
	if mm.exe != nil {
		mm.exe.IncRef()
		child.exe = mm.exe
	}
	mm.unlock()
	return child, nil
}

// insertForked adds a vma whose file reference was taken.
func (mm *MM) insertForked(start, end uint64, v *vma) {
	mm.space.count(v, end-start, 1)
	mm.vmas.Insert(start, end, v)
}

// sharePagesLocked gives child, which nobody else sees yet, the owned frames
// of [start, end), copy-on-write on both sides.
func (mm *MM) sharePagesLocked(child *MM, start, end uint64) {
	lo, hi := mm.pages.Isolate(start, end)
	for i := lo; i < hi; i++ {
		s := mm.pages.At(i)
		if !s.V.owned {
			continue
		}
		mm.mf.IncRef(mem.Range{Start: s.V.off, End: s.V.off + (s.End - s.Start)})
		s.V.cow = true
		p := s.V
		p.host = 0
		child.setPagesLocked(s.Start, s.End, p)
	}
	mm.pages.MergeRange(start, end)
}
