package systrap

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// controlSize is the size of the control file: address space only, pages
// exist where slots are in use.
const controlSize = 4 << 30

// control is the memory shared with all stubs: a sparse memfd that holds
// command pages and slots. Each stub maps only its own parts.
type control struct {
	fd   int
	mem  []byte
	base unsafe.Pointer // of mem

	mu     sync.Mutex
	next   int64
	areas  []int64 // free, empty
	chunks []int64 // free, empty
}

func newControl() (*control, error) {
	fd, err := unix.MemfdCreate("systrap", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, err
	}
	if err := unix.Ftruncate(fd, controlSize); err != nil {
		unix.Close(fd)
		return nil, err
	}
	// A shrunk file would raise SIGBUS in the Sentry.
	unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	mem, err := unix.Mmap(fd, 0, controlSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &control{fd: fd, mem: mem, base: unsafe.Pointer(&mem[0])}, nil
}

func (c *control) close() {
	unix.Munmap(c.mem)
	unix.Close(c.fd)
}

// allocArea returns the offset of areaSize zero bytes.
func (c *control) allocArea() (int64, error) { return c.alloc(&c.areas, areaSize) }

// allocChunk returns the offset of chunkSize zero bytes.
func (c *control) allocChunk() (int64, error) { return c.alloc(&c.chunks, chunkSize) }

func (c *control) alloc(free *[]int64, n int64) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := len(*free); l > 0 {
		off := (*free)[l-1]
		*free = (*free)[:l-1]
		return off, nil
	}
	if c.next+n > controlSize {
		return 0, unix.EAGAIN
	}
	off := c.next
	c.next += n
	return off, nil
}

// free gives areas and chunks back; no stub may have them mapped. Their pages
// go back to the host, so that no guest finds another's registers there.
func (c *control) free(area int64, chunks []int64) {
	const mode = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	if unix.Fallocate(c.fd, mode, area, areaSize) == nil {
		c.mu.Lock()
		c.areas = append(c.areas, area)
		c.mu.Unlock()
	}
	for _, off := range chunks {
		if unix.Fallocate(c.fd, mode, off, chunkSize) == nil {
			c.mu.Lock()
			c.chunks = append(c.chunks, off)
			c.mu.Unlock()
		}
	}
}

// cmd returns the command page of the area at off. Invariant of all accessors
// here: off came from alloc, so that the object lies within mem, which stays
// mapped until Close.
func (c *control) cmd(off int64) *cmdPage {
	return (*cmdPage)(unsafe.Add(c.base, off))
}

// slot returns the shared structure at the end of the slot at off.
func (c *control) slot(off int64) *slotMem {
	return (*slotMem)(unsafe.Add(c.base, off+slotSize-slotMemSize))
}

// frame returns the signal frame at in, an offset into the slot at off that
// the caller has checked to hold one.
func (c *control) frame(off int64, in uint64) *sigFrame {
	return (*sigFrame)(unsafe.Add(c.base, off+int64(in)))
}

// stack returns the signal stack of the slot at off as bytes.
func (c *control) stack(off int64) []byte {
	return c.mem[off : off+slotSize-slotMemSize : off+slotSize-slotMemSize]
}

// futexWake wakes all waiters: a guest thread may wait on the same word and
// must not be able to swallow a wake-up. It never blocks.
func futexWake(addr *uint32) {
	unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(addr)), 1, 1<<31-1, 0, 0, 0)
}

// futexWait sleeps while *addr is v. It is an ordinary system call, so that the
// runtime can take the processor away.
func futexWait(addr *uint32, v uint32, timeout *unix.Timespec) {
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(addr)), 0, uintptr(v), uintptr(unsafe.Pointer(timeout)), 0, 0)
}

// The state word is only ever accessed atomically.

func (m *slotMem) load() uint32           { return atomic.LoadUint32(&m.state) }
func (m *slotMem) store(v uint32)         { atomic.StoreUint32(&m.state, v) }
func (m *slotMem) cas(old, v uint32) bool { return atomic.CompareAndSwapUint32(&m.state, old, v) }

// storeFrame writes all words of want up to the siginfo, which rt_sigreturn
// ignores, to dst; unless all, only those that differ in have.
func storeFrame(dst, want, have *sigFrame, all bool) {
	// Invariant: the three are whole frames, aligned to 8.
	const n = unsafe.Offsetof(sigFrame{}.signo) / 8
	d, w, h := (*[n]uint64)(unsafe.Pointer(dst)), (*[n]uint64)(unsafe.Pointer(want)), (*[n]uint64)(unsafe.Pointer(have))
	for i := range n {
		if all || w[i] != h[i] {
			d[i] = w[i]
		}
	}
}
