package mem

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"runsc/sentry/image"
)

// stages is what a FrameMap needs whose image is restored piece by piece.
type stages struct {
	mu sync.Mutex // held while a window is made; FrameMap.mu and File.mu are locked inside
	// mu guards:
	ranges  map[uint64][]image.FrameRange // by window, of those that are not made yet
	account *Account
}

// RestoreStages is RestoreFrames for an image that is restored piece by piece:
// the frames of a window are made when the first of them is asked for, and
// charged to whom Charge named last.
func (f *File) RestoreStages(r *image.Restorer, id image.ID, p *image.Pages) (*FrameMap, error) {
	var rec image.Frames
	if err := r.Get(image.KindFrames, id, &rec); err != nil {
		return nil, err
	}
	fm := &FrameMap{
		f: f, pages: p, inflight: map[int]*chunkLoad{}, stop: make(chan struct{}), stopped: make(chan struct{}),
		windows: map[uint64]*mappedWindow{}, byWindow: map[uint64]*pendingWindow{},
		stages: &stages{ranges: map[uint64][]image.FrameRange{}, account: f.root},
	}
	if err := fm.list(rec.Ranges); err != nil {
		return nil, err
	}
	f.restoring.Add(1)
	f.mu.Lock()
	f.restores = append(f.restores, fm)
	f.mu.Unlock()
	return fm, nil
}

// Charge says who pays for what is taken from now on.
func (fm *FrameMap) Charge(a *Account) {
	if s := fm.stages; s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.account = a
	}
}

// list checks the ranges and sorts them by windows.
func (fm *FrameMap) list(ranges []image.FrameRange) error {
	s := fm.stages
	var total, last uint64
	for i, r := range ranges {
		if r.Pages == 0 || r.First < last || r.First > frameEnd/PageSize || r.Pages > frameEnd/PageSize-r.First ||
			Kind(r.Kind) > PageCache && Kind(r.Kind) != Disk {
			return fmt.Errorf("the image's range %d of frames is out of order", i)
		}
		last = r.First + r.Pages
		if Kind(r.Kind) != Disk {
			total += r.Pages * PageSize
		}
	}
	if most := hostRAM(); total > most {
		return fmt.Errorf("the image has %d MiB of memory, the host %d", total>>20, most>>20)
	}
	for _, r := range ranges {
		for first, left := r.First, r.Pages; left > 0; {
			n := min(left, windowPages-first%windowPages)
			key := first / windowPages
			if len(s.ranges) >= maxStagedWindows && s.ranges[key] == nil {
				return fmt.Errorf("the image has frames in more than %d windows", maxStagedWindows)
			}
			s.ranges[key] = append(s.ranges[key], image.FrameRange{First: first, Pages: n, Kind: r.Kind})
			if s.ranges[key][0].Kind != r.Kind {
				return fmt.Errorf("the image has frames of two kinds in window %d", key)
			}
			first, left = first+n, left-n
		}
	}
	return nil
}

// maxStagedWindows bounds the windows of an image, whose files on a disk the
// host's memory does not bound.
const maxStagedWindows = 1 << 20

// need makes the frames of r that are not made yet.
func (fm *FrameMap) need(r Range) error {
	if fm.stages == nil {
		return nil
	}
	for key := r.Start / WindowSize; key <= (r.End-1)/WindowSize; key++ {
		if err := fm.makeWindow(key); err != nil {
			return err
		}
	}
	return nil
}

// makeWindow makes the frames of a saved window, one reference each, and notes
// which of them the image has contents for.
func (fm *FrameMap) makeWindow(key uint64) error {
	s, f := fm.stages, fm.f
	s.mu.Lock()
	defer s.mu.Unlock()
	ranges := s.ranges[key]
	if len(ranges) == 0 {
		return nil
	}
	acct, kind := s.account, Kind(ranges[0].Kind)
	if kind == Disk {
		upper := acct.Upper
		if kind = upper.FileKind(); kind == Disk {
			acct = upper
		}
	}
	pages := uint64(0)
	for _, r := range ranges {
		pages += r.Pages
	}
	if err := f.charge(acct, pages*PageSize, kind); err != nil {
		return fmt.Errorf("the image has more memory than the limit: %w", err)
	}
	f.mu.Lock()
	w, err := f.newWindowLocked(acct, kind)
	if err != nil {
		f.mu.Unlock()
		acct.uncharge(pages*PageSize, kind)
		return err
	}
	m := &mappedWindow{w: w}
	w.reserved = true
	for _, r := range ranges {
		at := int(r.First % windowPages)
		w.takeLocked(at, int(r.Pages))
		m.held.setRange(at, at+int(r.Pages))
	}
	f.mu.Unlock()
	delete(s.ranges, key)
	fm.mu.Lock()
	fm.windows[key] = m
	fm.mu.Unlock()
	for _, r := range ranges {
		if err := w.store.back(w.rangeOf(int(r.First%windowPages), int(r.Pages))); err != nil {
			return fmt.Errorf("no room for the image's files on the disk of the upper layer: %w", err)
		}
	}
	fm.setStaged(key, m)
	return nil
}

// setStaged notes what the image has contents for in a saved window.
func (fm *FrameMap) setStaged(key uint64, m *mappedWindow) {
	pw := &pendingWindow{fm: fm, w: m.w, saved: key * WindowSize}
	first, end := key*windowPages, (key+1)*windowPages
	chunks := fm.pages.Chunks()
	i, _ := fm.pages.Find(first)
	found := false
	for ; i < len(chunks) && chunks[i].First < end; i++ {
		c := &chunks[i]
		pw.bits.setRange(int(max(c.First, first)-first), int(min(c.First+uint64(c.Pages), end)-first))
		found = true
	}
	if !found {
		return
	}
	for i := range pw.bits {
		pw.bits[i].And(m.held[i])
	}
	fm.byMu.Lock()
	fm.byWindow[key] = pw
	fm.byMu.Unlock()
	m.w.pending.Store(pw)
}

// finishStages forgets the frames that nobody has asked for.
func (fm *FrameMap) finishStages() {
	if s := fm.stages; s != nil {
		s.mu.Lock()
		s.ranges = nil
		s.mu.Unlock()
	}
}

// pending returns the windows that something was to be loaded into.
func (fm *FrameMap) pending() []*pendingWindow {
	fm.byMu.RLock()
	defer fm.byMu.RUnlock()
	return slices.Collect(maps.Values(fm.byWindow))
}

// Watch has done called as StartLoader does, if an access finds that the image
// is damaged before StartLoader is called.
func (fm *FrameMap) Watch(done func(error)) {
	fm.mu.Lock()
	err := fm.err
	if err == nil {
		fm.done = done
	}
	fm.mu.Unlock()
	if err != nil {
		done(err)
	}
}
