package mem

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// PageSize is the size of a frame.
const PageSize = 4096

// fileSize is the size that the memfd is given: offsets, not memory.
const fileSize = 1 << 46

// Range is [Start, End) of the memfile, in bytes.
type Range struct {
	Start, End uint64
}

// Len returns the number of bytes.
func (r Range) Len() uint64 { return r.End - r.Start }

// File is the memfile: all guest frames of a sandbox.
type File struct {
	// immutable after New:
	main *store   // the memfd
	root *Account // charged when the caller names no account

	reclaimMu sync.Mutex // held while frames are punched, before mu

	mu sync.Mutex
	// mu guards:
	dirtyPages int
	timer      *time.Timer // reclaim, set while dirtyPages > 0
	closed     bool
	restores   []*FrameMap // whose loaders may run
	retiring   int         // address spaces that wait for Retire

	// atomic: the host files by the number of their space, see store; entries
	// change to nil only when the store has no frames any more.
	disks atomic.Pointer[[]*store]

	dying atomic.Int32 // calls of FreeAfter that still wait

	restoring atomic.Int32 // FrameMaps with pending contents

	gate     sync.RWMutex // held for reading around each write by the Sentry
	snapshot atomic.Pointer[Snapshot]
	retired  atomic.Pointer[chan struct{}] // see Retire
}

// New returns an empty memfile.
func New() (*File, error) {
	fd, err := unix.MemfdCreate("guest-memory", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfile: memfd_create: %w", err)
	}
	if err := unix.Ftruncate(fd, fileSize); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("memfile: ftruncate: %w", err)
	}
	return &File{main: newStore(fd, 0, fileSize), root: NewAccount(nil, 0)}, nil
}

// Close frees everything. No frame may be in use.
func (f *File) Close() {
	f.mu.Lock()
	restores := append([]*FrameMap(nil), f.restores...)
	f.mu.Unlock()
	for _, fm := range restores {
		fm.Abandon()
	}
	f.reclaimMu.Lock()
	defer f.reclaimMu.Unlock()
	f.mu.Lock()
	f.closed = true
	if f.timer != nil {
		f.timer.Stop()
	}
	f.mu.Unlock()
	for _, s := range f.stores() {
		s.close()
	}
}

// FD returns the descriptor of the memfd. It is the File's.
func (f *File) FD() int { return f.main.fd }

// Allocate returns n bytes (a multiple of the page size) of zero-filled
// frames, contiguous in the file, each with one reference, charged to a (nil
// for the file's own account). The error is ErrLimit, or for kind Disk what
// the host says: ENOSPC, EDQUOT, EIO.
func (f *File) Allocate(n uint64, a *Account, kind Kind) (Range, error) {
	if n == 0 || n%PageSize != 0 || n > fileSize/2 {
		return Range{}, unix.EINVAL
	}
	if a == nil {
		a = f.root
	}
	if err := f.charge(a, n, kind); err != nil {
		a.limitHit(n)
		return Range{}, err
	}
	r, err := f.allocate(n, a, kind)
	if err == nil {
		if err = f.store(r.Start).back(r); err != nil {
			f.DecRef(r)
		}
	}
	return r, err
}

// allocate finds frames for what was charged to a.
func (f *File) allocate(n uint64, a *Account, kind Kind) (Range, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	pages := int(n / PageSize)
	if pages >= windowPages {
		return f.allocateLargeLocked(pages, a, kind)
	}
	list := a.partial[kind]
	// A few of the newest windows are tried: a full search would cost more
	// than the file space that it saves.
	for i := len(list) - 1; i >= 0 && i >= len(list)-4; i-- {
		w := list[i]
		if at := w.findFree(pages); at >= 0 {
			w.takeLocked(at, pages)
			if w.full() {
				w.unlistLocked()
			}
			return w.rangeOf(at, pages), nil
		}
	}
	w, err := f.newWindowLocked(a, kind)
	if err != nil {
		a.uncharge(n, kind)
		return Range{}, err
	}
	w.takeLocked(0, pages)
	w.listLocked()
	return w.rangeOf(0, pages), nil
}

// allocateLargeLocked takes consecutive new windows at the end of the file.
func (f *File) allocateLargeLocked(pages int, a *Account, kind Kind) (Range, error) {
	s := f.storeOf(a, kind)
	start := s.end
	more, err := s.growLocked((pages + windowPages - 1) / windowPages)
	if err != nil {
		a.uncharge(uint64(pages)*PageSize, kind)
		return Range{}, err
	}
	for i := range more {
		w := &more[i]
		w.acct, w.kind = a, kind
		w.takeLocked(0, min(pages-i*windowPages, windowPages))
		if !w.full() {
			w.listLocked()
		}
	}
	return Range{start, start + uint64(pages)*PageSize}, nil
}

// IncRef takes one more reference to each frame of r, all of which the
// caller holds.
func (f *File) IncRef(r Range) {
	f.eachWindow(r, func(w *window, lo, hi int) {
		c := f.counts(w)
		for i := lo; i < hi; i++ {
			if c.refs[i].Add(1) <= 1 {
				panic("mem: IncRef of a free frame")
			}
		}
	})
}

// DecRef drops one reference of each frame of r; frames without any are
// freed and uncharged.
func (f *File) DecRef(r Range) {
	f.eachWindow(r, func(w *window, lo, hi int) {
		run, c := -1, f.counts(w)
		for i := lo; i < hi; i++ {
			n := c.refs[i].Add(-1)
			if n < 0 {
				panic("mem: DecRef of a free frame")
			}
			if n == 0 && run < 0 {
				run = i
			}
			if n > 0 && run >= 0 {
				f.freeFrames(w, run, i)
				run = -1
			}
		}
		if run >= 0 {
			f.freeFrames(w, run, hi)
		}
	})
}

// Shared tells whether the frame at off has more than one reference.
func (f *File) Shared(off uint64) bool {
	c := f.window(off).counts.Load()
	return c != nil && c.refs[off%WindowSize/PageSize].Load() > 1
}

// window returns the window that off lies in.
func (f *File) window(off uint64) *window {
	s := f.store(off)
	return (*s.table.Load())[(off-s.base)/WindowSize]
}

// eachWindow calls fn for the pages [lo, hi) of each window of r.
func (f *File) eachWindow(r Range, fn func(w *window, lo, hi int)) {
	for off := r.Start; off < r.End; {
		w := f.window(off)
		end := min(r.End, w.off+WindowSize)
		fn(w, int((off-w.off)/PageSize), int((end-w.off+PageSize-1)/PageSize))
		off = end
	}
}
