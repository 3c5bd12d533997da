package mem

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"runsc/sentry/image"
)

// Snapshot is the memory of an image at one point of time, which is written
// while its guests run on. A piece that is about to change is copied first,
// by whoever is about to change it: the Sentry in BeginWrite, a guest when it
// faults on a page that is only mapped for reading (Prepare). Nobody but the
// writer waits for the image's disk, unless it is so slow that there is no room for
// more copies. Frames of a snapshot that are freed are kept until Close.
type Snapshot struct {
	// immutable after Begin:
	f       *File
	w       *image.PageWriter // Write's
	windows []*frozenWindow   // by offset
	store   []frozenWindow    // what windows point to, made before the guests stand still
	arena   []byte            // maxCopies pieces, of which the system has what was used

	failed atomic.Bool

	mu sync.Mutex // held while a piece is copied; nothing but leaves of loading are locked inside
	// mu guards:
	err    error
	copies []pieceCopy // to be written
	free   []int       // pieces of arena
	room   sync.Cond   // told when free has one more or the snapshot failed

	heldMu sync.Mutex // a leaf
	// heldMu guards:
	held []heldFrames // freed since
}

// maxCopies bounds the pieces that were changed and wait to be written: 32 MiB.
const maxCopies = 32 << 20 / pieceSize

// pieceCopy is what a piece held: r lies in it, and its bytes lie in the
// snapshot's arena as far from the beginning of a piece there.
type pieceCopy struct {
	r    []Range
	slot int
}

type heldFrames struct {
	w      *window
	lo, hi int
}

// frozenWindow tells which pages of a window a snapshot has.
type frozenWindow struct {
	// immutable after Begin:
	s       *Snapshot
	w       *window
	members bitmap

	unsaved atomicBitmap // neither written nor copied; bits are cleared with Snapshot.mu held
}

// NewSnapshot returns a snapshot that is to be written to w. All that takes long
// is done here: between the guests' stop and Begin every microsecond counts.
func (f *File) NewSnapshot(w *image.PageWriter) (*Snapshot, error) {
	// Not from the heap: so much garbage at once means a collection.
	arena, err := unix.Mmap(-1, 0, maxCopies*pieceSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, err
	}
	s := &Snapshot{f: f, w: w, arena: arena, free: make([]int, maxCopies)}
	s.room.L = &s.mu
	for i := range s.free {
		s.free[i] = maxCopies - 1 - i // the first is used first, again and again
	}
	f.mu.Lock()
	windows := len(f.windowsLocked())
	f.mu.Unlock()
	s.windows, s.store = make([]*frozenWindow, 0, windows), make([]frozenWindow, windows)
	for i := range s.store {
		fw := &s.store[i]
		fw.s = s // touches the memory
		for k := range fw.unsaved {
			fw.unsaved[k].Store(^uint64(0)) // Begin takes those away that are not members
		}
	}
	return s, nil
}

// Begin freezes the frames of set as they are. It returns when no write by the
// Sentry is half done. The caller has stopped the guests and takes their address
// spaces' write access away before they run on (mm.MM.SwapForSnapshot). There is
// one snapshot at a time: EBUSY.
func (s *Snapshot) Begin(set *FrameSet) error {
	f := s.f
	for _, r := range set.Ranges() {
		f.eachWindow(r, func(w *window, lo, hi int) {
			n := len(s.windows)
			if n == 0 || s.windows[n-1].w != w {
				var fw *frozenWindow
				if n < len(s.store) {
					fw = &s.store[n]
				} else {
					fw = &frozenWindow{s: s}
				}
				fw.w = w
				s.windows = append(s.windows, fw)
				n++
			}
			fw := s.windows[n-1]
			fw.members.setRange(lo, hi)
		})
	}
	for _, fw := range s.windows {
		// What the snapshot has all of is right already: the processor's locked stores take most of the time here.
		for i, m := range fw.members {
			if fw.unsaved[i].Load() != m {
				fw.unsaved[i].Store(m)
			}
		}
	}
	f.gate.Lock()
	defer f.gate.Unlock()
	if !f.snapshot.CompareAndSwap(nil, s) {
		return unix.EBUSY
	}
	for _, fw := range s.windows {
		fw.w.frozen.Store(fw)
	}
	return nil
}

// BeginSnapshot is NewSnapshot and Begin.
func (f *File) BeginSnapshot(set *FrameSet, w *image.PageWriter) (*Snapshot, error) {
	s, err := f.NewSnapshot(w)
	if err != nil {
		return nil, err
	}
	if err := s.Begin(set); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Write writes what is not written yet. On an error the snapshot is given up;
// the guests do not notice.
func (s *Snapshot) Write() error {
	for _, fw := range s.windows {
		hole := uint64(0) // data ends before it
		for i := fw.unsaved.next(0, windowPages); i < windowPages; i = fw.unsaved.next(i, windowPages) {
			if s.failed.Load() {
				break
			}
			off := fw.w.off + uint64(i)*PageSize
			if off >= hole && s.f.restoring.Load() == 0 {
				data, err := s.f.nextData(Range{off, fw.w.off + WindowSize})
				if err != nil {
					s.fail(err)
					break
				}
				if skip := int((data - fw.w.off) / PageSize); skip > i {
					s.skipHole(fw, i, skip)
					continue
				}
				hole = off + pieceSize
			}
			s.savePiece(fw, i)
			s.writeCopies()
		}
	}
	s.writeCopies() // nothing is unsaved: there will be no more
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// writeCopies writes all copies there are. Only Write calls it.
func (s *Snapshot) writeCopies() {
	for {
		s.mu.Lock()
		if len(s.copies) == 0 || s.err != nil {
			s.mu.Unlock()
			return
		}
		c := s.copies[0]
		s.copies = s.copies[1:]
		s.mu.Unlock()
		for _, r := range c.r {
			if err := s.w.Write(r.Start/PageSize, s.copied(c.slot, r)); err != nil {
				s.fail(err)
				return
			}
		}
		s.mu.Lock()
		s.release(c.slot)
		s.mu.Unlock()
	}
}

// copied is where the arena has the bytes of r.
func (s *Snapshot) copied(slot int, r Range) []byte {
	at := uint64(slot)*pieceSize + r.Start%pieceSize
	return s.arena[at : at+r.Len()]
}

func (s *Snapshot) release(slot int) {
	s.free = append(s.free, slot)
	s.room.Signal()
}

// skipHole marks pages [lo, hi), which were a hole, as saved. Whoever changed
// one of them since has saved it first: what is unsaved is as it was.
func (s *Snapshot) skipHole(fw *frozenWindow, lo, hi int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := fw.unsaved.next(lo, hi); i < hi; i = fw.unsaved.next(i, hi) {
		fw.unsaved.clear(i)
	}
}

// savePiece copies what is unsaved of the piece that page i lies in.
func (s *Snapshot) savePiece(fw *frozenWindow, i int) {
	const piecePages = pieceSize / PageSize
	lo := i &^ (piecePages - 1)
	hi := lo + piecePages
	// Before mu is taken: this may read an image.
	if !s.failed.Load() {
		if err := s.f.load(fw.w.rangeOf(lo, piecePages)); err != nil {
			s.fail(err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.free) == 0 && s.err == nil && fw.unsaved.next(lo, hi) < hi {
		s.room.Wait()
	}
	if fw.unsaved.next(lo, hi) == hi {
		s.room.Signal() // it was not needed here
		return
	}
	if s.err == nil {
		s.copyPiece(fw, lo, hi)
	}
	for a := fw.unsaved.next(lo, hi); a < hi; a = fw.unsaved.next(a, hi) {
		fw.unsaved.clear(a)
	}
}

// copyPiece copies the unsaved pages among [lo, hi), a piece, to a free place of
// the arena. What has zeros alone needs none.
func (s *Snapshot) copyPiece(fw *frozenWindow, lo, hi int) {
	c := pieceCopy{slot: s.free[len(s.free)-1]}
	for a := fw.unsaved.next(lo, hi); a < hi; a = fw.unsaved.next(a, hi) {
		b := a + 1
		for b < hi && fw.unsaved.get(b) {
			b++
		}
		r := fw.w.rangeOf(a, b-a)
		data := s.copied(c.slot, r)
		if err := s.f.readPiece(r, data); err != nil {
			s.failLocked(err)
			return
		}
		if !image.IsZero(data) {
			c.r = append(c.r, r)
		}
		a = b
	}
	if len(c.r) > 0 {
		s.free = s.free[:len(s.free)-1]
		s.copies = append(s.copies, c)
	}
}

// fail gives the snapshot up: frames change without being written.
func (s *Snapshot) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failLocked(err)
}

func (s *Snapshot) failLocked(err error) {
	if s.err == nil {
		s.err = err
	}
	s.failed.Store(true)
	s.room.Broadcast()
}

// Fail gives the snapshot up, for instance because the client has gone.
func (s *Snapshot) Fail(err error) { s.fail(err) }

// Close ends the snapshot, begun or not, written or not, after Write.
func (s *Snapshot) Close() {
	f := s.f
	s.fail(unix.ECANCELED)
	s.mu.Lock()
	if s.arena != nil { // nobody uses it after a failure
		_ = unix.Munmap(s.arena)
		s.arena, s.copies = nil, nil
	}
	s.mu.Unlock()
	f.gate.Lock()
	f.snapshot.CompareAndSwap(s, nil)
	f.gate.Unlock()
	s.heldMu.Lock()
	for _, fw := range s.windows {
		fw.w.frozen.CompareAndSwap(fw, nil)
	}
	held := s.held
	s.held = nil
	s.heldMu.Unlock()
	for _, h := range held {
		if gone := f.retired.Load(); gone != nil {
			f.FreeAfter(*gone, func() { f.freeUncharged(h.w, h.lo, h.hi) })
			continue
		}
		f.freeUncharged(h.w, h.lo, h.hi)
	}
}

// Unwritten returns how many bytes are neither written nor copied yet (holes
// included).
func (s *Snapshot) Unwritten() (n uint64) {
	for _, fw := range s.windows {
		for i := range fw.unsaved {
			n += uint64(bits.OnesCount64(fw.unsaved[i].Load())) * PageSize
		}
	}
	return n
}

// keep takes over the freed pages [lo, hi) if the snapshot has one of them.
func (fw *frozenWindow) keep(lo, hi int) bool {
	if !fw.members.any(lo, hi) {
		return false
	}
	s := fw.s
	s.heldMu.Lock()
	defer s.heldMu.Unlock()
	if fw.w.frozen.Load() != fw {
		return false // closed meanwhile
	}
	s.held = append(s.held, heldFrames{fw.w, lo, hi})
	return true
}

// save writes what a snapshot has of r, which is about to change.
func (f *File) save(r Range) {
	f.eachWindow(r, func(w *window, lo, hi int) {
		fw := w.frozen.Load()
		if fw == nil {
			return
		}
		for i := fw.unsaved.next(lo, hi); i < hi; i = fw.unsaved.next(i, hi) {
			fw.s.savePiece(fw, i)
		}
	})
}

// frozen tells whether a snapshot has something of r that is not written.
func (f *File) frozen(r Range) bool {
	if f.snapshot.Load() == nil {
		return false
	}
	found := false
	f.eachWindow(r, func(w *window, lo, hi int) {
		if fw := w.frozen.Load(); fw != nil && fw.unsaved.next(lo, hi) < hi {
			found = true
		}
	})
	return found
}

// BeginWrite announces that the Sentry is about to change bytes of r, and
// EndWrite that it is done. All writes of frames by the Sentry, from user
// copies to futex words, go through this pair: contents that are still in an
// image are loaded first, and what a snapshot is about to write is written. A write is never half before
// and half after a cut. Between the two nothing may block or lock. After an
// error there is no EndWrite.
func (f *File) BeginWrite(r Range) error {
	for {
		if err := f.load(r); err != nil {
			return err
		}
		f.gate.RLock()
		if !f.frozen(r) {
			return nil
		}
		f.gate.RUnlock()
		f.save(r)
	}
}

// EndWrite ends what BeginWrite began.
func (f *File) EndWrite() { f.gate.RUnlock() }

// Snapshotting tells whether a snapshot is being written: guests may then get
// write access only to what Extent tells.
func (f *File) Snapshotting() bool { return f.snapshot.Load() != nil }

// Ready tells whether a guest may access the frame at off: its contents are
// there and, for a write, no snapshot needs them. Else call Prepare, without
// locks that others need meanwhile.
func (f *File) Ready(off uint64, write bool) bool {
	if f.restoring.Load() > 0 {
		w := f.window(off)
		if pw := w.pending.Load(); pw != nil && pw.bits.get(int(off%WindowSize/PageSize)) {
			return false
		}
	}
	return !write || !f.frozen(Range{off, off + 1})
}

// Prepare makes the frame at off, and what is near, ready.
func (f *File) Prepare(off uint64, write bool) error {
	r := Range{off, off + 1}
	if err := f.load(r); err != nil {
		return err
	}
	if write {
		f.save(r)
	}
	return nil
}

// Extent narrows r, which has frames, to those around at (which is Ready for
// reading) that a guest may be given like it: all loaded, and all or none of them
// to be kept from writing, as the second result tells.
func (f *File) Extent(r Range, at uint64) (Range, bool) {
	if f.restoring.Load() == 0 && f.snapshot.Load() == nil {
		return r, false
	}
	at &^= PageSize - 1
	keep := f.frozen(Range{at, at + 1})
	same := func(off uint64) bool { return f.Ready(off, false) && f.frozen(Range{off, off + 1}) == keep }
	out := Range{at, at + PageSize}
	for out.Start > r.Start && same(out.Start-PageSize) {
		out.Start -= PageSize
	}
	for out.End < r.End && same(out.End) {
		out.End += PageSize
	}
	return out, keep
}
