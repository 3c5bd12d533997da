package mm

import (
	"fmt"
	"slices"

	"runsc/sentry/arch"
	"runsc/sentry/image"
	"runsc/sentry/mem"
	"runsc/sentry/platform"
)

// SaveEnv is what saving address spaces needs from outside.
type SaveEnv struct {
	Saver *image.Saver
	// Frames collects what memory the image has.
	Frames *mem.FrameSet
	// SaveMappable saves what a mapping maps (an open file description), SaveRef
	// what SetExe stored.
	SaveMappable func(m mem.Mappable) (image.ID, error)
	SaveRef      func(r Ref) (image.ID, error)
	// VDSO is the sandbox's vDSO, which is not saved, and its layout.
	VDSO       mem.Mappable
	VDSOLayout uint64
}

// RestoreEnv is what restoring address spaces needs from outside.
type RestoreEnv struct {
	Restorer *image.Restorer
	MemFile  *mem.File
	Account  *mem.Account
	Group    platform.Group
	Frames   *mem.FrameMap
	// RestoreMappable and RestoreRef return their result with a reference
	// for the caller.
	RestoreMappable func(id image.ID) (mem.Mappable, error)
	RestoreRef      func(id image.ID) (Ref, error)
	// Hold keeps a reference to an object with a number until nobody else
	// asks for it; nil drops it.
	Hold       func(id image.ID, drop func())
	VDSO       mem.Mappable
	VDSOLayout uint64
}

// runsPerRecord bounds the page runs of one record.
const runsPerRecord = 1 << 16

// Save writes mm's record if it is not written yet. No thread runs in mm, nor
// does another call change it.
func (mm *MM) Save(e *SaveEnv) (image.ID, error) {
	id, fresh := e.Saver.ID(mm)
	if !fresh {
		return id, nil
	}
	rec, files := mm.record(e)
	rec.ID = id
	// Files are saved without mapMu and mu, which are below their locks.
	defer func() {
		for _, f := range files {
			if f != nil {
				f.DecRef()
			}
		}
	}()
	for i, f := range files {
		if f == nil {
			continue
		}
		r := &rec.VMAs[i]
		var err error
		switch f := f.(type) {
		case *Shm:
			r.Source = image.VMAShm
			r.File, err = f.Save(e)
		default:
			if e.VDSO != nil && f == e.VDSO {
				r.Source = image.VMAVDSO
				rec.VDSO = e.VDSOLayout
				continue
			}
			r.Source = image.VMAFile
			r.File, err = e.SaveMappable(f)
		}
		if err != nil {
			return 0, fmt.Errorf("mapping at %#x: %w", r.Start, err)
		}
	}
	if exe := mm.Exe(); exe != nil {
		var err error
		rec.Exe, err = e.SaveRef(exe)
		exe.DecRef()
		if err != nil {
			return 0, fmt.Errorf("executable: %w", err)
		}
	}
	for len(rec.Pages) > runsPerRecord {
		n := max(len(rec.Pages)-runsPerRecord, runsPerRecord)
		more := &image.PageRuns{Runs: rec.Pages[n:]}
		more.ID, _ = e.Saver.ID(more)
		rec.Pages = rec.Pages[:n]
		rec.MorePages = append(rec.MorePages, more.ID)
		e.Saver.PutLater(image.KindPageRuns, more)
	}
	// What grows with memory is encoded when the threads run on.
	e.Saver.PutLater(image.KindMM, rec)
	return id, nil
}

// record returns mm's record but for what files are, and the files of the
// vmas (or nil) with a reference each.
func (mm *MM) record(e *SaveEnv) (*image.MM, []mem.Mappable) {
	mm.mu.RLock()
	defer mm.mu.RUnlock()
	rec := &image.MM{
		MMapBase: mm.layout.mmapBase, StackTop: mm.layout.stackTop,
		BrkStart: mm.brk.start, BrkEnd: mm.brk.end, Future: uint8(mm.future),
		PeakTotal: mm.space.peakTotal, PeakRSS: mm.space.peakRSS,
		Info: image.ProcInfo(mm.info),
	}
	rec.Info.Auxv = slices.Clone(rec.Info.Auxv)
	var files []mem.Mappable
	for i := 0; i < mm.vmas.Len(); i++ {
		s := mm.vmas.At(i)
		if s.V.file != nil {
			s.V.file.IncRef()
		}
		files = append(files, s.V.file)
		rec.VMAs = append(rec.VMAs, image.VMA{
			Start: s.Start, End: s.End, Prot: uint8(s.V.prot), MaxProt: uint8(s.V.maxProt),
			Flags: s.V.flags(), Lock: uint8(s.V.lock), Off: s.V.off, Name: s.V.name,
		})
	}
	next := uint64(0) // windows with lower keys were looked at
	for i := 0; i < mm.pages.Len(); i++ {
		s := mm.pages.At(i)
		if !s.V.owned {
			continue
		}
		n := s.End - s.Start
		e.Frames.Add(mem.Range{Start: s.V.off, End: s.V.off + n})
		rec.Pages = append(rec.Pages, image.PageRun{Addr: s.Start, Len: n, Frame: s.V.off, COW: s.V.cow})
		for k := max(next, s.Start/mem.WindowSize); k <= (s.End-1)/mem.WindowSize; k++ {
			if off, ok := mm.windows[k]; ok {
				rec.Windows = append(rec.Windows, image.Window{Key: k, Off: off})
			}
			next = k + 1
		}
	}
	return rec, files
}

// flags returns the flags of v's record.
func (v *vma) flags() (f uint32) {
	for _, x := range v.flagFields() {
		if *x.p {
			f |= x.bit
		}
	}
	return f
}

type flagField struct {
	p   *bool
	bit uint32
}

func (v *vma) flagFields() []flagField {
	return []flagField{
		{&v.shared, image.VMAShared}, {&v.grows, image.VMAGrowsDown}, {&v.nores, image.VMANoReserve},
		{&v.noFork, image.VMANoFork}, {&v.wipe, image.VMAWipeOnFork}, {&v.noDump, image.VMANoDump},
		{&v.special, image.VMASpecial}, {&v.stable, image.VMAStable},
	}
}

// Restore returns the address space with the number, with one user more, for
// the caller. limits are used if this is the first call for it. Each task
// that has it calls Restore.
func Restore(e *RestoreEnv, id image.ID, limits LimitFunc) (*MM, error) {
	fresh := false
	mm, err := image.Once(e.Restorer, id, func() (*MM, error) {
		fresh = true
		return restore(e, id, limits)
	})
	if err != nil {
		return nil, err
	}
	if !fresh {
		mm.IncUsers()
	}
	return mm, nil
}

func restore(e *RestoreEnv, id image.ID, limits LimitFunc) (*MM, error) {
	var rec image.MM
	if err := e.Restorer.Get(image.KindMM, id, &rec); err != nil {
		return nil, err
	}
	mm := newMM(e.MemFile, e.Account, e.Group, limits)
	if err := mm.fill(e, &rec); err != nil {
		mm.DecUsers()
		return nil, fmt.Errorf("address space %d: %w", id, err)
	}
	return mm, nil
}

// badAddr tells whether a is no end of a user range.
func badAddr(a uint64) bool { return a > arch.GuestTop }

// maxSavedName and maxSavedAuxv are more than the loader makes.
const (
	maxSavedName = 256
	maxSavedAuxv = 4096
)

func (mm *MM) fill(e *RestoreEnv, rec *image.MM) error {
	in := &rec.Info
	for _, a := range []uint64{
		rec.MMapBase, rec.StackTop, rec.BrkEnd, in.CodeStart, in.CodeEnd, in.DataStart, in.DataEnd,
		in.StackStart, in.ArgStart, in.ArgEnd, in.EnvStart, in.EnvEnd,
	} {
		if badAddr(a) {
			return fmt.Errorf("address %#x is not a guest's", a)
		}
	}
	if rec.BrkStart > rec.BrkEnd || in.DataStart > in.DataEnd || in.ArgStart > in.ArgEnd || in.EnvStart > in.EnvEnd ||
		rec.Future > uint8(lockPopulate) || len(in.Auxv) > maxSavedAuxv {
		return fmt.Errorf("its ranges are not in order")
	}
	if len(rec.VMAs) > maxSavedMaps {
		return fmt.Errorf("it has %d mappings", len(rec.VMAs))
	}
	mm.layout = layout{rec.MMapBase, rec.StackTop}
	mm.brk = brkRange{rec.BrkStart, rec.BrkEnd}
	mm.future = lockMode(rec.Future)
	mm.info = ProcInfo(rec.Info)
	last := uint64(0)
	for i := range rec.VMAs {
		if err := mm.restoreVMA(e, &rec.VMAs[i], rec.VDSO, last); err != nil {
			return fmt.Errorf("mapping at %#x: %w", rec.VMAs[i].Start, err)
		}
		last = rec.VMAs[i].End
	}
	for _, w := range rec.Windows {
		if off, ok := e.Frames.TakeWindow(w.Off); ok {
			if _, dup := mm.windows[w.Key]; dup || w.Key >= arch.GuestTop/mem.WindowSize {
				mm.mf.ReleaseWindow(off)
				continue
			}
			mm.windows[w.Key] = off
		}
	}
	if err := mm.restorePages(e, rec.Pages); err != nil {
		return err
	}
	for _, id := range rec.MorePages {
		var more image.PageRuns
		if err := e.Restorer.Get(image.KindPageRuns, id, &more); err != nil {
			return err
		}
		if err := mm.restorePages(e, more.Runs); err != nil {
			return err
		}
	}
	if rec.Exe != 0 {
		exe, err := e.RestoreRef(rec.Exe)
		if err != nil {
			return fmt.Errorf("executable: %w", err)
		}
		mm.exe = exe
	}
	mm.space.peakTotal = max(mm.space.peakTotal, rec.PeakTotal)
	mm.space.peakRSS = max(mm.space.peakRSS, rec.PeakRSS)
	return nil
}

// restoreVMA makes one mapping, which begins at last or above.
func (mm *MM) restoreVMA(e *RestoreEnv, r *image.VMA, layout, last uint64) error {
	n := r.End - r.Start
	if r.Start >= r.End || (r.Start|r.End|r.Off)&pageMask != 0 || badAddr(r.End) || r.Start < max(last, minAddr) ||
		platform.Prot(r.Prot)&^AnyProt != 0 || platform.Prot(r.MaxProt)&^AnyProt != 0 || r.Lock > uint8(lockPopulate) ||
		r.Off+n < r.Off || r.Off+n > 1<<63-1 || len(r.Name) > maxSavedName {
		return fmt.Errorf("the record is not valid")
	}
	v := &vma{
		prot: platform.Prot(r.Prot), maxProt: platform.Prot(r.MaxProt), lock: lockMode(r.Lock), off: r.Off, name: r.Name,
	}
	for _, x := range v.flagFields() {
		*x.p = r.Flags&x.bit != 0
	}
	switch r.Source {
	case image.VMAAnonymous:
		if v.shared {
			return fmt.Errorf("shared memory without an object")
		}
	case image.VMAFile:
		f, err := e.RestoreMappable(r.File)
		if err != nil {
			return err
		}
		v.file = f
	case image.VMAShm:
		s, err := RestoreShm(e, r.File)
		if err != nil {
			return err
		}
		v.file = s
	case image.VMAVDSO:
		if e.VDSO == nil || layout != e.VDSOLayout {
			return fmt.Errorf("the image's vDSO has layout %#x, this version's %#x", layout, e.VDSOLayout)
		}
		if v.shared || v.prot&platform.Write != 0 {
			return fmt.Errorf("the record is not valid")
		}
		v.file = e.VDSO
		v.file.IncRef()
	default:
		return fmt.Errorf("source %d of a mapping is unknown", r.Source)
	}
	if v.file != nil {
		v.obj = mem.MapObject(v.file)
		defer v.file.DecRef() // addMapping takes its own
		if err := mm.addMapping(v, n); err != nil {
			return err
		}
	}
	mm.mu.Lock()
	mm.insertLocked(r.Start, n, v)
	mm.unlock()
	return nil
}

// restorePages gives mm its private pages.
func (mm *MM) restorePages(e *RestoreEnv, runs []image.PageRun) error {
	mm.mu.Lock()
	defer mm.mu.Unlock()
	for _, r := range runs {
		end := r.Addr + r.Len
		if r.Len == 0 || (r.Addr|r.Len|r.Frame)&pageMask != 0 || end < r.Addr || badAddr(end) || r.Frame+r.Len < r.Frame {
			return fmt.Errorf("pages at %#x: the record is not valid", r.Addr)
		}
		if mm.pages.Overlaps(r.Addr, end) {
			return fmt.Errorf("pages at %#x are there twice", r.Addr)
		}
		for at := r.Addr; at < end; {
			s := mm.vmas.Find(at)
			if s == nil || s.V.shared {
				return fmt.Errorf("pages at %#x are in no private mapping", at)
			}
			at = s.End
		}
		frames, err := e.Frames.Take(mem.Range{Start: r.Frame, End: r.Frame + r.Len})
		if err != nil {
			return err
		}
		at := r.Addr
		for _, f := range frames {
			mm.setPagesLocked(at, at+f.Len(), page{off: f.Start, fd: int32(mm.mf.FD()), frames: true, owned: true, cow: r.COW})
			at += f.Len()
		}
	}
	return nil
}
