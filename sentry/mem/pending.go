package mem

import (
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"runsc/sentry/image"
)

// atomicBitmap is a bitmap that is read without a lock.
type atomicBitmap [windowPages / 64]atomic.Uint64

func (b *atomicBitmap) get(i int) bool { return b[i/64].Load()&(1<<(i%64)) != 0 }
func (b *atomicBitmap) clear(i int)    { b[i/64].And(^uint64(1 << (i % 64))) }

// next returns the first set bit in [lo, hi), or hi.
func (b *atomicBitmap) next(lo, hi int) int {
	for lo < hi {
		if v := b[lo/64].Load() >> (lo % 64); v != 0 {
			return min(lo+bits.TrailingZeros64(v), hi)
		}
		lo = lo&^63 + 64
	}
	return hi
}

// setRange sets the bits of [lo, hi).
func (b *atomicBitmap) setRange(lo, hi int) {
	for lo < hi {
		mask, next := word(lo, hi)
		b[lo/64].Or(mask)
		lo = next
	}
}

// pendingWindow tells which pages of a window are still in an image.
type pendingWindow struct {
	// immutable:
	fm    *FrameMap
	w     *window
	saved uint64 // offset of the window in the saved memfile

	mu sync.Mutex // held to clear bits
	// atomic:
	bits atomicBitmap
}

// FrameMap is the memory of an image on its way into a File: which frames the
// saved ones became, and what of their contents is not loaded yet. Who
// restores an object takes its frames; Finish frees what nobody took.
type FrameMap struct {
	// immutable:
	f      *File
	pages  *image.Pages
	stages *stages // nil if all frames were made at once

	byMu sync.RWMutex // a leaf
	// byMu guards:
	byWindow map[uint64]*pendingWindow // by saved offset / WindowSize

	asked atomic.Int64 // one more than the chunk that somebody asked for last; 0 when the loader has seen it

	mu sync.Mutex
	// mu guards:
	windows  map[uint64]*mappedWindow // by saved offset / WindowSize; nil after Finish
	inflight map[int]*chunkLoad
	idle     chan struct{} // closed when inflight is empty; set by who waits
	err      error
	done     func(error)
	started  bool
	ended    bool
	stop     chan struct{}
	stopped  chan struct{}
}

// mappedWindow is what a saved window became.
type mappedWindow struct {
	w    *window
	held bitmap // frames of the image
	gave bitmap // those whose first reference was taken
	took bool   // the reservation has another owner
}

type chunkLoad struct {
	done chan struct{}
	err  error
}

// RestoreFrames makes frames for those of the record with the number,
// charged to a; those that were on a disk are charged to a.Upper and on its disk,
// if it has one. Their contents come from p, which the FrameMap takes over, when they are first used.
func (f *File) RestoreFrames(r *image.Restorer, id image.ID, p *image.Pages, a *Account) (*FrameMap, error) {
	var rec image.Frames
	if err := r.Get(image.KindFrames, id, &rec); err != nil {
		return nil, err
	}
	return f.restoreFrames(rec.Ranges, p, a)
}

func (f *File) restoreFrames(ranges []image.FrameRange, p *image.Pages, a *Account) (*FrameMap, error) {
	if a == nil {
		a = f.root
	}
	fm := &FrameMap{f: f, pages: p, inflight: map[int]*chunkLoad{}, stop: make(chan struct{}), stopped: make(chan struct{})}
	if err := fm.allocate(ranges, a); err != nil {
		fm.Finish()
		return nil, err
	}
	// In one piece: thousands of small objects would cost a restore of much memory milliseconds.
	store := make([]pendingWindow, len(fm.windows))
	fm.byWindow = make(map[uint64]*pendingWindow, len(store))
	for key, m := range fm.windows {
		pw := &store[len(fm.byWindow)]
		pw.fm, pw.w, pw.saved = fm, m.w, key*WindowSize
		fm.byWindow[key] = pw
	}
	for _, c := range p.Chunks() {
		for page, end := c.First, c.First+uint64(c.Pages); page < end; {
			stop := min(end, page-page%windowPages+windowPages)
			fm.setPending(page/windowPages, int(page%windowPages), int(stop-page))
			page = stop
		}
	}
	f.restoring.Add(1)
	for _, pw := range fm.byWindow {
		pw.w.pending.Store(pw)
	}
	f.mu.Lock()
	f.restores = append(f.restores, fm)
	f.mu.Unlock()
	return fm, nil
}

// setPending notes that the image has contents for n pages of a saved window.
func (fm *FrameMap) setPending(key uint64, at, n int) {
	m, pw := fm.windows[key], fm.byWindow[key]
	if m == nil {
		return
	}
	pw.bits.setRange(at, at+n)
	for i := at / 64; i <= (at+n-1)/64; i++ {
		pw.bits[i].And(m.held[i])
	}
}

// allocate makes the frames, one reference each.
func (fm *FrameMap) allocate(ranges []image.FrameRange, a *Account) error {
	f, upper := fm.f, a.Upper
	onDisk := upper.FileKind() == Disk
	var total, disk, last uint64
	windows, lastKey := 0, ^uint64(0)
	for i, r := range ranges {
		if r.Pages == 0 || r.First < last || r.First > frameEnd/PageSize || r.Pages > frameEnd/PageSize-r.First ||
			Kind(r.Kind) > PageCache && Kind(r.Kind) != Disk {
			return fmt.Errorf("the image's range %d of frames is out of order", i)
		}
		last = r.First + r.Pages
		if onDisk && Kind(r.Kind) == Disk {
			disk += r.Pages * PageSize
			continue
		}
		total += r.Pages * PageSize
		first := r.First / windowPages
		windows += int((last-1)/windowPages - first + 1)
		if first == lastKey {
			windows--
		}
		lastKey = (last - 1) / windowPages
	}
	if most := hostRAM(); total > most {
		return fmt.Errorf("the image has %d MiB of memory, the host %d", total>>20, most>>20)
	}
	if onDisk {
		if room := upper.disk.room(); disk > room {
			return fmt.Errorf("the image has %d MiB of files, the disk of the upper layer room for %d: %w", disk>>20, room>>20, unix.ENOSPC)
		}
	}
	fm.windows = map[uint64]*mappedWindow{}
	// What an image claims is believed up to 128 GiB.
	store := make([]mappedWindow, min(windows, 1<<16))
	f.mu.Lock()
	if need := len(store) - len(f.main.free); need > 0 {
		more, err := f.main.growLocked(need)
		if err != nil {
			f.mu.Unlock()
			return err
		}
		for i := range more {
			f.main.free = append(f.main.free, &more[len(more)-1-i]) // taken from the end
		}
	}
	f.mu.Unlock()
	for _, r := range ranges {
		for first, left := r.First, r.Pages; left > 0; {
			key, at := first/windowPages, int(first%windowPages)
			n := int(min(left, uint64(windowPages-at)))
			acct, kind := a, Kind(r.Kind)
			if kind == Disk {
				if kind = upper.FileKind(); onDisk {
					acct = upper
				}
			}
			if err := f.charge(acct, uint64(n)*PageSize, kind); err != nil {
				return fmt.Errorf("the image has %d MiB of memory, more than the limit: %w", total>>20, err)
			}
			f.mu.Lock()
			m := fm.windows[key]
			var err error
			if m == nil {
				m = &mappedWindow{}
				if n := len(fm.windows); n < len(store) {
					m = &store[n]
				}
				if m.w, err = f.newWindowLocked(acct, kind); err == nil {
					m.w.reserved = true
					fm.windows[key] = m
				}
			} else if m.w.kind != kind {
				err = fmt.Errorf("the image has frames of two kinds in window %d", key)
			}
			if err != nil {
				f.mu.Unlock()
				acct.uncharge(uint64(n)*PageSize, kind)
				return err
			}
			m.w.takeLocked(at, n)
			m.held.setRange(at, at+n)
			f.mu.Unlock()
			if err := m.w.store.back(m.w.rangeOf(at, n)); err != nil {
				return fmt.Errorf("no room for the image's files on the disk of the upper layer: %w", err)
			}
			first, left = first+uint64(n), left-uint64(n)
		}
	}
	return nil
}

// hostRAM bounds what an image may claim.
func hostRAM() uint64 {
	var si unix.Sysinfo_t
	if unix.Sysinfo(&si) != nil {
		return 1 << 40
	}
	return (uint64(si.Totalram) + uint64(si.Totalswap)) * uint64(si.Unit)
}

// Find returns what the saved frames of r became, in order. The caller has no
// reference to them. Frames that the image does not have are an error.
func (fm *FrameMap) Find(r Range) ([]Range, error) {
	return fm.find(r, func(*mappedWindow, int, int) {})
}

// Take is Find with a reference to each frame for the caller.
func (fm *FrameMap) Take(r Range) ([]Range, error) {
	if _, err := fm.Find(r); err != nil {
		return nil, err // none is taken
	}
	freed := false
	out, err := fm.find(r, func(m *mappedWindow, lo, hi int) {
		if !m.gave.any(lo, hi) {
			m.gave.setRange(lo, hi) // those they were allocated with
			return
		}
		c := fm.f.counts(m.w)
		for i := lo; i < hi; i++ {
			if !m.gave.get(i) {
				m.gave.set(i)
			} else if c.refs[i].Add(1) == 1 {
				c.refs[i].Store(0)
				freed = true
			}
		}
	})
	if freed {
		// Who restores gives up at the first error: references to the
		// others do not matter any more.
		return nil, fmt.Errorf("the frames %#x-%#x of the image were taken and freed", r.Start, r.End)
	}
	return out, err
}

// find calls fn, with mu held, for the pages [lo, hi) of each window of r.
func (fm *FrameMap) find(r Range, fn func(m *mappedWindow, lo, hi int)) ([]Range, error) {
	if r.Start%PageSize != 0 || r.End%PageSize != 0 || r.Start >= r.End || r.End > frameEnd {
		return nil, fmt.Errorf("the image refers to frames %#x-%#x, which cannot be", r.Start, r.End)
	}
	if err := fm.need(r); err != nil {
		return nil, err
	}
	fm.mu.Lock()
	defer fm.mu.Unlock()
	var out []Range
	for r.Start < r.End {
		m := fm.windows[r.Start/WindowSize]
		end := min(r.End, r.Start&^(WindowSize-1)+WindowSize)
		lo := int(r.Start % WindowSize / PageSize)
		hi := lo + int((end-r.Start)/PageSize)
		if m == nil || !m.held.all(lo, hi) {
			return nil, fmt.Errorf("the image refers to frame %#x, which it lacks", r.Start)
		}
		fn(m, lo, hi)
		x := m.w.rangeOf(lo, hi-lo)
		if n := len(out); n > 0 && out[n-1].End == x.Start {
			out[n-1].End = x.End
		} else {
			out = append(out, x)
		}
		r.Start = end
	}
	return out, nil
}

// TakeWindow gives the caller the reservation of the window that the saved
// one at off became (see ReserveWindow), once.
func (fm *FrameMap) TakeWindow(off uint64) (uint64, bool) {
	if off%WindowSize != 0 || fm.need(Range{off, off + 1}) != nil {
		return 0, false // whoever takes a frame of it will be told
	}
	fm.mu.Lock()
	defer fm.mu.Unlock()
	m := fm.windows[off/WindowSize]
	if m == nil || m.took || m.w.kind != Anonymous {
		return 0, false
	}
	m.took = true
	return m.w.off, true
}

// Finish frees the frames that nobody took: no Find or Take follows.
func (fm *FrameMap) Finish() {
	fm.mu.Lock()
	windows := fm.windows
	fm.windows = nil
	fm.mu.Unlock()
	fm.finishStages()
	f := fm.f
	for _, m := range windows {
		for i := 0; i < windowPages && m.held != m.gave; i++ {
			j := i
			for ; j < windowPages && m.held.get(j) && !m.gave.get(j); j++ {
			}
			if j > i {
				f.DecRef(m.w.rangeOf(i, j-i))
				i = j
			}
		}
		if !m.took {
			f.mu.Lock()
			m.w.reserved = false
			if m.w.acct != nil && m.w.nbusy > 0 && !m.w.full() {
				m.w.listLocked()
			}
			f.retireLocked(m.w)
			f.mu.Unlock()
		}
	}
}

// load brings the contents of r from an image if they are not there yet.
func (f *File) load(r Range) error {
	if f.restoring.Load() == 0 {
		return nil
	}
	var err error
	f.eachWindow(r, func(w *window, lo, hi int) {
		for err == nil {
			pw := w.pending.Load()
			if pw == nil {
				return
			}
			i := pw.bits.next(lo, hi)
			if i == hi {
				return
			}
			page := pw.saved/PageSize + uint64(i)
			if err = pw.fm.ask(page); err == nil && pw.bits.get(i) && w.pending.Load() == pw {
				err = unix.EIO // cannot be: the bit was set for a chunk of the index
			}
		}
	})
	return err
}

// ask loads the chunk that a saved page is in.
func (fm *FrameMap) ask(page uint64) error {
	c, ok := fm.pages.Find(page)
	if !ok {
		return unix.EIO
	}
	fm.asked.Store(int64(c) + 1)
	return fm.load(c)
}

// load loads a chunk.
func (fm *FrameMap) load(c int) error {
	fm.mu.Lock()
	if l := fm.inflight[c]; l != nil {
		fm.mu.Unlock()
		<-l.done
		return l.err
	}
	l := &chunkLoad{done: make(chan struct{})}
	fm.inflight[c] = l
	fm.mu.Unlock()
	if fm.wanted(c) {
		l.err = fm.place(c)
	}
	fm.mu.Lock()
	delete(fm.inflight, c)
	if len(fm.inflight) == 0 && fm.idle != nil {
		close(fm.idle)
		fm.idle = nil
	}
	fm.mu.Unlock()
	if l.err != nil {
		fm.fail(l.err)
	}
	close(l.done)
	return l.err
}

// windowOf returns the pending state of the window that a saved page is in, or nil.
func (fm *FrameMap) windowOf(page uint64) *pendingWindow {
	fm.byMu.RLock()
	defer fm.byMu.RUnlock()
	return fm.byWindow[page/windowPages]
}

// wanted tells whether a page of chunk c is still pending.
func (fm *FrameMap) wanted(c int) bool {
	ch := &fm.pages.Chunks()[c]
	for page := ch.First; page < ch.First+uint64(ch.Pages); page++ {
		if pw := fm.windowOf(page); pw != nil && pw.bits.get(int(page%windowPages)) {
			return true
		}
	}
	return false
}

var chunkBufs = sync.Pool{New: func() any { return new([pieceSize]byte) }}

// place reads chunk c and puts its pages where they are still wanted.
func (fm *FrameMap) place(c int) error {
	buf := chunkBufs.Get().(*[pieceSize]byte)
	defer chunkBufs.Put(buf)
	data, err := fm.pages.Read(c, buf[:])
	if err != nil {
		return err
	}
	ch := &fm.pages.Chunks()[c]
	for page, end := ch.First, ch.First+uint64(ch.Pages); page < end; {
		stop := min(end, page-page%windowPages+windowPages)
		if pw := fm.windowOf(page); pw != nil {
			lo := int(page % windowPages)
			off := (page - ch.First) * PageSize
			if err := pw.place(lo, lo+int(stop-page), data[off:off+(stop-page)*PageSize]); err != nil {
				return err
			}
		}
		page = stop
	}
	return nil
}

// place writes pages [lo, hi) that are still pending. A frame that is freed
// meanwhile waits for mu, so that nothing is written to it afterwards.
func (pw *pendingWindow) place(lo, hi int, data []byte) error {
	pw.mu.Lock()
	defer pw.mu.Unlock()
	for i := pw.bits.next(lo, hi); i < hi; i = pw.bits.next(i, hi) {
		j := i + 1
		for j < hi && pw.bits.get(j) {
			j++
		}
		if err := pwriteFull(pw.w.store.fd, data[(i-lo)*PageSize:(j-lo)*PageSize], pw.w.store.hostOff(pw.w.off)+int64(i)*PageSize); err != nil {
			return err
		}
		for ; i < j; i++ {
			pw.bits.clear(i)
		}
	}
	return nil
}

// cancel forgets pages [lo, hi), whose frames are freed.
func (pw *pendingWindow) cancel(lo, hi int) {
	pw.mu.Lock()
	defer pw.mu.Unlock()
	for i := pw.bits.next(lo, hi); i < hi; i = pw.bits.next(i, hi) {
		pw.bits.clear(i)
	}
}

// fail tells whoever started the loader, once.
func (fm *FrameMap) fail(err error) {
	fm.mu.Lock()
	done := fm.done
	fm.done = nil
	if fm.err == nil {
		fm.err = err
	}
	fm.mu.Unlock()
	if done != nil {
		done(err)
	}
}

// StartLoader loads the rest in the background, with pauses that leave the
// processor and the disk to the guest. done is called once: with nil when
// everything is there and the image may go, or with the first error, also if
// an access of the guest found it, before the guest gets to see its failure. It must end
// the container, and may not wait for tasks.
func (fm *FrameMap) StartLoader(done func(error)) {
	fm.mu.Lock()
	err := fm.err
	fm.done = done
	if err != nil {
		fm.done = nil
	}
	fm.started = true
	fm.mu.Unlock()
	if err != nil {
		done(err)
		close(fm.stopped)
		return
	}
	go fm.loadAll()
}

const (
	// loaderRest is how many times as long as a chunk took the loader rests.
	loaderRest = 1
	// loaderAhead is how many chunks it loads without a rest behind one that was asked for: who reads
	// one after the other then seldom waits.
	loaderAhead = 4
)

func (fm *FrameMap) loadAll() {
	defer close(fm.stopped)
	n := len(fm.pages.Chunks())
	for next, ahead, left := 0, 0, 0; next < n; {
		if c := fm.asked.Swap(0); c != 0 {
			ahead, left = int(c), loaderAhead
		}
		c, rest := next, time.Duration(loaderRest)
		if left > 0 && ahead < n {
			c, rest = ahead, 0
			ahead, left = ahead+1, left-1
		} else {
			next++
		}
		if !fm.wanted(c) {
			continue
		}
		start := time.Now()
		if err := fm.load(c); err != nil {
			return // told by fail
		}
		select {
		case <-fm.stop:
			return
		case <-time.After(time.Since(start) * rest):
		}
	}
	fm.end()
}

// end closes the image: nothing is pending.
func (fm *FrameMap) end() {
	f := fm.f
	fm.mu.Lock()
	ended := fm.ended
	fm.ended = true
	fm.mu.Unlock()
	if ended {
		return
	}
	f.mu.Lock()
	for _, pw := range fm.pending() {
		pw.w.pending.CompareAndSwap(pw, nil)
	}
	for i, x := range f.restores {
		if x == fm {
			f.restores = append(f.restores[:i:i], f.restores[i+1:]...)
			f.restoring.Add(-1)
			break
		}
	}
	f.mu.Unlock()
	fm.mu.Lock()
	for len(fm.inflight) > 0 {
		idle := make(chan struct{})
		fm.idle = idle
		fm.mu.Unlock()
		<-idle
		fm.mu.Lock()
	}
	done := fm.done
	fm.done = nil
	fm.mu.Unlock()
	fm.pages.Close()
	if done != nil {
		done(nil)
	}
}

// Abandon gives up a restore that failed, or whose container is gone: what is
// still pending must not be used any more.
func (fm *FrameMap) Abandon() {
	fm.mu.Lock()
	fm.done = nil
	fm.mu.Unlock()
	fm.halt()
	fm.end()
}

// Pending returns how many bytes are not loaded yet.
func (fm *FrameMap) Pending() (n uint64) {
	for _, pw := range fm.pending() {
		for i := range pw.bits {
			n += uint64(bits.OnesCount64(pw.bits[i].Load())) * PageSize
		}
	}
	return n
}

// halt ends the loader; the File is closed after it.
func (fm *FrameMap) halt() {
	fm.mu.Lock()
	started := fm.started
	select {
	case <-fm.stop:
	default:
		close(fm.stop)
	}
	fm.mu.Unlock()
	if started {
		<-fm.stopped
	}
}
