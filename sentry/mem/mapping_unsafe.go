package mem

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// chunkSize is the piece in which the Sentry maps the memfile.
const chunkSize = 64 << 20

// fileMapping is the Sentry's own mapping of the memfile, made chunk by chunk.
type fileMapping struct {
	mu sync.Mutex
	// atomic; mu is held to change it: chunk addresses, nil where not mapped.
	chunks atomic.Pointer[[]unsafe.Pointer]
}

// chunk returns the address of chunk i, which it maps if need be.
func (m *fileMapping) chunk(fd int, i int) unsafe.Pointer {
	if c := m.chunks.Load(); c != nil && i < len(*c) && (*c)[i] != nil {
		return (*c)[i]
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var old []unsafe.Pointer
	if c := m.chunks.Load(); c != nil {
		old = *c
	}
	if i < len(old) && old[i] != nil {
		return old[i]
	}
	p, err := unix.MmapPtr(fd, int64(i)*chunkSize, nil, chunkSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		panic("mem: cannot map the memfile: " + err.Error())
	}
	c := make([]unsafe.Pointer, max(len(old), i+1))
	copy(c, old)
	c[i] = p
	m.chunks.Store(&c)
	return p
}

func (m *fileMapping) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.chunks.Swap(nil); c != nil {
		for _, p := range *c {
			if p != nil {
				unix.MunmapPtr(p, chunkSize)
			}
		}
	}
}

// bytes returns [off, off+n) of the file as memory. The range lies in one
// window, so in one chunk.
func (m *fileMapping) bytes(fd int, off uint64, n int) []byte {
	p := m.chunk(fd, int(off/chunkSize))
	// Invariant: off%chunkSize+n <= chunkSize, as chunks are made of whole
	// windows; the chunk stays mapped until the File is closed.
	return unsafe.Slice((*byte)(unsafe.Add(p, off%chunkSize)), n)
}

// word returns the aligned 32-bit word at off.
func (f *File) word(off uint64) *uint32 {
	w := f.window(off)
	f.counts(w).heat.put(int((off-w.off)/PageSize), hot)
	s := w.store
	off = uint64(s.hostOff(off))
	p := s.mapping.chunk(s.fd, int(off/chunkSize))
	// Invariant: off is a multiple of 4 inside an allocated frame.
	return (*uint32)(unsafe.Add(p, off%chunkSize))
}

// LoadUint32 loads the aligned word at off, which lies in an allocated frame.
func (f *File) LoadUint32(off uint64) (uint32, error) {
	if err := f.load(Range{off, off + 4}); err != nil {
		return 0, err
	}
	return atomic.LoadUint32(f.word(off)), nil
}

// SwapUint32 stores v at off and returns what was there.
func (f *File) SwapUint32(off uint64, v uint32) (uint32, error) {
	if err := f.BeginWrite(Range{off, off + 4}); err != nil {
		return 0, err
	}
	defer f.EndWrite()
	return atomic.SwapUint32(f.word(off), v), nil
}

// CompareAndSwapUint32 stores v at off if old is there, and returns what was there.
func (f *File) CompareAndSwapUint32(off uint64, old, v uint32) (uint32, error) {
	if err := f.BeginWrite(Range{off, off + 4}); err != nil {
		return 0, err
	}
	defer f.EndWrite()
	p := f.word(off)
	for {
		if atomic.CompareAndSwapUint32(p, old, v) {
			return old, nil
		}
		if cur := atomic.LoadUint32(p); cur != old {
			return cur, nil
		}
	}
}
