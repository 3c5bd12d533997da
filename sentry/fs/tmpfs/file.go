package tmpfs

import (
	"math"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// file is a regular file.
type file struct {
	inode `save:"rec"`

	// ioMu serializes writes and changes of the size, as i_rwsem of Linux.
	// It is held across user copies.
	ioMu sync.Mutex `save:"none: not held at a stop"`

	// pagesMu is never held across a user copy: page faults take it.
	pagesMu sync.RWMutex `save:"none: not held at a stop"`
	// pagesMu guards:
	pages  pageTable                   `save:"rec"`
	size   int64                       `save:"rec"`
	ahead  int64                       `save:"none: what was taken in advance is left out"` // frames beyond the end, allocated in advance, up to page ahead
	spaces map[mem.MappingSpace]mapUse `save:"rebuilt"`

	writers atomic.Int32  `save:"rebuilt"` // open descriptions that can write
	seals   atomic.Uint32 `save:"rec"`
}

const maxFileSize = math.MaxInt64 &^ (pageSize - 1)

func (fs *FS) newFile(c vfs.Caller, a vfs.CreateAttr) *file {
	f := &file{}
	fs.initInode(&f.inode, c, a)
	f.seals.Store(unix.F_SEAL_SEAL)
	return f
}

// NewMemfd returns a file without a name, with no seals, for memfd_create(2).
func (fs *FS) NewMemfd(c vfs.Caller, mode uint32) vfs.Inode {
	cr := c.Cred()
	if fs.acct != nil {
		_ = fs.acct.Charge(inodeCost) // a descriptor's worth
	}
	f := fs.newFile(c, vfs.CreateAttr{Mode: unix.S_IFREG | mode&0o7777, UID: cr.FSUID, GID: cr.FSGID})
	f.seals.Store(0)
	return f
}

func (f *file) DecRef() { put(f) }

func (f *file) free() {
	f.pagesMu.Lock()
	freed := f.detachLocked(0, math.MaxInt64/pageSize)
	f.pagesMu.Unlock()
	f.drop(freed)
}

// Stat implements vfs.Inode.
func (f *file) Stat(_ vfs.Caller, _ uint32) (vfs.Stat, error) {
	st := f.stat()
	f.pagesMu.RLock()
	st.Size = uint64(f.size)
	st.Blocks = uint64(f.pages.n-f.aheadPagesLocked()) * (pageSize / 512)
	f.pagesMu.RUnlock()
	return st, nil
}

func pagesOf(size int64) int64 { return int64((uint64(size) + pageSize - 1) / pageSize) }

func (f *file) aheadPagesLocked() int64 { return max(f.ahead-pagesOf(f.size), 0) }

// SetStat implements vfs.Inode.
func (f *file) SetStat(c vfs.Caller, s *vfs.SetStat) error {
	if s.Size != nil {
		if *s.Size > maxFileSize {
			return unix.EFBIG
		}
		if err := f.truncate(int64(*s.Size)); err != nil {
			return err
		}
		if s.Mtime == nil {
			t := *s
			t.MtimeNow = true
			s = &t
		}
	}
	f.setStat(c, s)
	return nil
}

func (f *file) truncate(size int64) error {
	f.ioMu.Lock()
	defer f.ioMu.Unlock()
	seals := f.seals.Load()
	f.pagesMu.Lock()
	old := f.size
	if size > old && seals&unix.F_SEAL_GROW != 0 || size < old && seals&unix.F_SEAL_SHRINK != 0 {
		f.pagesMu.Unlock()
		return unix.EPERM
	}
	f.size = size
	freed := f.detachLocked(pagesOf(min(size, old)), math.MaxInt64/pageSize)
	f.ahead = 0
	err := f.zeroTailLocked(min(size, old))
	f.pagesMu.Unlock()
	if size < old {
		f.invalidate(pagesOf(size)*pageSize, 1<<62, true)
	}
	f.drop(freed)
	return err
}

// zeroTailLocked clears the last page from size on: a file that grows later
// has zeros there.
func (f *file) zeroTailLocked(size int64) error {
	in := uint64(size) % pageSize
	if in == 0 {
		return nil
	}
	off, ok := f.pages.get(size / pageSize)
	if !ok {
		return nil
	}
	return f.fs.mf.Zero(mem.Range{Start: off + in, End: off + pageSize})
}

// detachLocked takes frames out of the table. The caller drops them after
// unlocking and invalidating.
func (f *file) detachLocked(start, end int64) (freed []mem.Range) {
	if f.pages.n == 0 {
		return nil
	}
	f.pages.clear(start, end, func(off uint64) {
		if k := len(freed); k > 0 && freed[k-1].End == off {
			freed[k-1].End += pageSize
			return
		}
		freed = append(freed, mem.Range{Start: off, End: off + pageSize})
	})
	return freed
}

func (f *file) drop(freed []mem.Range) {
	n := int64(0)
	for _, r := range freed {
		n += int64(r.Len() / pageSize)
		f.fs.mf.DecRef(r)
	}
	f.fs.pages.Add(-n)
}

// trim frees what was allocated in advance.
func (f *file) trim() {
	f.pagesMu.Lock()
	var freed []mem.Range
	if f.aheadPagesLocked() > 0 {
		freed = f.detachLocked(pagesOf(f.size), f.ahead)
	}
	f.ahead = 0
	f.pagesMu.Unlock()
	f.drop(freed) // pages beyond the end are mapped nowhere
}

// bufSize is how much is copied at once between guest memory and frames.
const bufSize = 64 << 10

var bufs = sync.Pool{New: func() any { return new([bufSize]byte) }}

// maxAlloc is the most that is allocated at once.
const maxAlloc = 1 << 20

// fillLocked gives pages [page, page+n) frames where they have none. Pages up
// to page+want, want >= n, may be filled too if that is cheap; it returns the
// page after the last one filled.
func (f *file) fillLocked(page, n, want int64) (end int64, err error) {
	for done := int64(0); done < n; {
		_, k, ok := f.pages.run(page+done, n-done)
		if ok {
			done += k
			continue
		}
		need := k
		if done+k == n && want > n {
			// The hole may go on: fill more of it with one allocation.
			_, k, _ = f.pages.run(page+done, min(want-done, maxAlloc/pageSize))
		}
		err := f.allocateLocked(page+done, k)
		for ; err != nil && k > 1; err = f.allocateLocked(page+done, k) {
			// Near a limit: what fits.
			k = min(need, k/2)
		}
		if err != nil {
			return page + done, err
		}
		done += k
		n = max(n, min(done, want))
	}
	return page + n, nil
}

func (f *file) allocateLocked(page, n int64) error {
	if err := f.fs.charge(n); err != nil {
		return err
	}
	r, err := f.fs.mf.Allocate(uint64(n)*pageSize, f.fs.data, f.fs.data.FileKind())
	if err != nil {
		f.fs.pages.Add(-n)
		return err
	}
	f.pages.set(page, n, r.Start)
	return nil
}

// readAt fills p from off on and returns how much of it lies within the file.
func (f *file) readAt(p []byte, off int64) (int, error) {
	f.pagesMu.RLock()
	defer f.pagesMu.RUnlock()
	if off >= f.size {
		return 0, nil
	}
	p = p[:min(int64(len(p)), f.size-off)]
	for done := 0; done < len(p); {
		at := off + int64(done)
		in := at % pageSize
		left := int64(len(p) - done)
		frame, n, ok := f.pages.run(at/pageSize, (in+left+pageSize-1)/pageSize)
		k := min(n*pageSize-in, left)
		if ok {
			if err := f.fs.mf.ReadAt(p[done:done+int(k)], frame+uint64(in)); err != nil {
				return done, unix.EIO
			}
		} else {
			clear(p[done : done+int(k)])
		}
		done += int(k)
	}
	return len(p), nil
}

// writeAt writes p at off; more is how many bytes are to follow. ioMu is held.
// It returns the bytes written.
func (f *file) writeAt(p []byte, off int64, more int) (int, error) {
	f.pagesMu.Lock()
	defer f.pagesMu.Unlock()
	end := off + int64(len(p))
	first, last := off/pageSize, pagesOf(end)
	want := pagesOf(end+int64(min(more, maxAlloc))) - first
	if ahead := off + bufSize; off == f.size && f.size >= bufSize && more == 0 {
		want = max(want, pagesOf(ahead)-first)
	}
	filled, err := f.fillLocked(first, last-first, want)
	if err != nil {
		return f.writeShortLocked(p, off, err)
	}
	f.ahead = max(f.ahead, filled)
	return len(p), f.storeLocked(p, off)
}

// writeShortLocked writes as many pages as could be had.
func (f *file) writeShortLocked(p []byte, off int64, err error) (int, error) {
	have := int64(0)
	for page := off / pageSize; have < int64(len(p)); page++ {
		if _, ok := f.pages.get(page); !ok {
			break
		}
		have = (page+1)*pageSize - off
	}
	n := int(min(have, int64(len(p))))
	if n <= 0 {
		return 0, err
	}
	if serr := f.storeLocked(p[:n], off); serr != nil {
		return 0, serr
	}
	return n, err
}

// storeLocked writes p to frames that exist and moves the end of file.
func (f *file) storeLocked(p []byte, off int64) error {
	for done := 0; done < len(p); {
		at := off + int64(done)
		in := at % pageSize
		left := int64(len(p) - done)
		frame, n, _ := f.pages.run(at/pageSize, (in+left+pageSize-1)/pageSize)
		k := min(n*pageSize-in, left)
		if err := f.fs.mf.WriteAt(p[done:done+int(k)], frame+uint64(in)); err != nil {
			return unix.EIO
		}
		done += int(k)
	}
	f.size = max(f.size, off+int64(len(p)))
	return nil
}

// Open implements vfs.Inode.
func (f *file) Open(_ vfs.Caller, _ *vfs.Dentry, flags uint32) (vfs.FileOps, error) {
	o := &fileOps{f: f, writes: flags&unix.O_ACCMODE != unix.O_RDONLY}
	if o.writes {
		if f.seals.Load()&unix.F_SEAL_WRITE != 0 {
			return nil, unix.EPERM
		}
		f.writers.Add(1)
	}
	return o, nil
}

var _ vfs.Xattrer = (*file)(nil)
