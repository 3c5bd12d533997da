package mem

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// heat counts the Sentry's uses of each page of a window, a byte per page,
// four to a word. A page at hot is accessed through the mapping.
type heat [windowPages / 4]atomic.Uint32

const (
	hot = 255
	// heatSmall and heatLarge are how many uses of a page by small and large
	// copies it takes until its first touch through the mapping pays.
	heatSmall = 3
	heatLarge = 8
	// largeCopy is from where system calls beat a mapping in cold pages.
	largeCopy = 4 * PageSize
)

func (h *heat) get(i int) uint32 { return h[i/4].Load() >> (i % 4 * 8) & 0xff }

func (h *heat) put(i int, v uint32) {
	w, sh := &h[i/4], i%4*8
	for {
		old := w.Load()
		if w.CompareAndSwap(old, old&^(0xff<<sh)|v<<sh) {
			return
		}
	}
}

func (h *heat) reset(i int) { h.put(i, 0) }

// use counts one use of page i and tells whether to go through the mapping.
func (h *heat) use(i int, limit uint32) bool {
	n := h.get(i)
	if n == hot {
		return true
	}
	if n+1 >= limit {
		h.put(i, hot)
		return true
	}
	h.put(i, n+1)
	return false
}

// segments calls fn with runs of [off, off+n) that are all hot or all cold
// and lie in one window.
func (f *File) segments(off uint64, n int, fn func(off uint64, lo, hi int, mapped bool) error) error {
	limit := uint32(heatSmall)
	if n >= largeCopy {
		limit = heatLarge
	}
	for done := 0; done < n; {
		w := f.window(off + uint64(done))
		in := off + uint64(done) - w.off
		wend := min(n, done+int(WindowSize-in))
		if w.store.disk() {
			// An error of the disk is one of a system call, never a signal.
			if err := fn(off+uint64(done), done, wend, false); err != nil {
				return err
			}
			done = wend
			continue
		}
		heat := &f.counts(w).heat
		for done < wend {
			page := int((off + uint64(done) - w.off) / PageSize)
			mapped := heat.use(page, limit)
			end := min(wend, int(w.off+uint64(page+1)*PageSize-off))
			for end < wend {
				page++
				if (heat.get(page) == hot) != mapped {
					break
				}
				if !mapped {
					heat.use(page, limit)
				}
				end = min(wend, int(w.off+uint64(page+1)*PageSize-off))
			}
			if err := fn(off+uint64(done), done, end, mapped); err != nil {
				return err
			}
			done = end
		}
	}
	return nil
}

// ReadAt fills p with the bytes at off, which lie in allocated frames.
func (f *File) ReadAt(p []byte, off uint64) error {
	if err := f.load(Range{off, off + uint64(len(p))}); err != nil {
		return err
	}
	return f.segments(off, len(p), func(o uint64, lo, hi int, mapped bool) error {
		s := f.store(o)
		if mapped {
			copy(p[lo:hi], s.bytes(o, hi-lo))
			return nil
		}
		return preadFull(s.fd, p[lo:hi], s.hostOff(o))
	})
}

// WriteAt writes p to off, in allocated frames.
func (f *File) WriteAt(p []byte, off uint64) error {
	if len(p) == 0 {
		return nil
	}
	if err := f.BeginWrite(Range{off, off + uint64(len(p))}); err != nil {
		return err
	}
	defer f.EndWrite()
	return f.segments(off, len(p), func(o uint64, lo, hi int, mapped bool) error {
		s := f.store(o)
		if mapped {
			copy(s.bytes(o, hi-lo), p[lo:hi])
			return nil
		}
		return pwriteFull(s.fd, p[lo:hi], s.hostOff(o))
	})
}

var zeros [64 << 10]byte

// Zero makes the bytes of r, which need not be page aligned, zero.
func (f *File) Zero(r Range) error {
	for r.Start < r.End {
		n := min(r.Len(), uint64(len(zeros)))
		if err := f.WriteAt(zeros[:n], r.Start); err != nil {
			return err
		}
		r.Start += n
	}
	return nil
}

var copyBufs = sync.Pool{New: func() any { return new([64 << 10]byte) }}

// Copy copies n bytes of frames from src to dst.
func (f *File) Copy(dst, src, n uint64) error {
	buf := copyBufs.Get().(*[64 << 10]byte)
	defer copyBufs.Put(buf)
	for n > 0 {
		k := min(n, uint64(len(buf)))
		if err := f.ReadAt(buf[:k], src); err != nil {
			return err
		}
		if err := f.WriteAt(buf[:k], dst); err != nil {
			return err
		}
		dst, src, n = dst+k, src+k, n-k
	}
	return nil
}

// CopyFromHost fills the frames [dst, dst+n) from host file fd at off. What
// lies beyond the end of the file reads as zero.
func (f *File) CopyFromHost(dst uint64, fd int, off int64, n uint64) error {
	buf := copyBufs.Get().(*[64 << 10]byte)
	defer copyBufs.Put(buf)
	for n > 0 {
		k := min(n, uint64(len(buf)))
		got := 0
		for got < int(k) {
			m, err := unix.Pread(fd, buf[got:k], off+int64(got))
			if err == unix.EINTR {
				continue
			}
			if err != nil {
				return err
			}
			if m == 0 {
				clear(buf[got:k])
				break
			}
			got += m
		}
		if err := f.WriteAt(buf[:k], dst); err != nil {
			return err
		}
		dst, off, n = dst+k, off+int64(k), n-k
	}
	return nil
}

func preadFull(fd int, p []byte, off int64) error {
	for len(p) > 0 {
		n, err := unix.Pread(fd, p, off)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return unix.EIO
		}
		p, off = p[n:], off+int64(n)
	}
	return nil
}

func pwriteFull(fd int, p []byte, off int64) error {
	for len(p) > 0 {
		n, err := unix.Pwrite(fd, p, off)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		p, off = p[n:], off+int64(n)
	}
	return nil
}
