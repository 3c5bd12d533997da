package vfs

import (
	"math"
	"math/bits"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"runsc/pkg/ref"
)

// maxFDs bounds a descriptor table whatever RLIMIT_NOFILE says (fs.nr_open).
const maxFDs = 1 << 20

// FDTable maps descriptors to files (Linux's files_struct). Get takes no lock.
type FDTable struct {
	refs ref.Count `save:"rebuilt"`

	// slots is replaced by a longer copy when the table grows. Entries
	// change under mu only.
	slots atomic.Pointer[[]atomic.Pointer[File]] `save:"rec"`

	mu sync.Mutex `save:"none: not held at a stop"`
	// mu guards:
	used    []uint64 `save:"rebuilt"` // bit per descriptor, also for one that is only reserved
	cloexec []uint64 `save:"rec"`
	next    int32    `save:"rebuilt"` // no free descriptor below it
	posix   bool     `save:"rebuilt"` // may own POSIX locks
}

// NewFDTable returns an empty table with one reference.
func NewFDTable() *FDTable {
	t := &FDTable{}
	t.refs.Init()
	t.growLocked(64)
	return t
}

// IncRef takes a reference.
func (t *FDTable) IncRef() { t.refs.Inc() }

// Shared tells whether another task uses the table too.
func (t *FDTable) Shared() bool { return t.refs.Load() > 1 }

// DecRef drops a reference; the last one closes every descriptor.
func (t *FDTable) DecRef(c Caller) {
	if t.refs.Dec() {
		t.CloseRange(c, 0, math.MaxInt32)
	}
}

// growLocked makes room for descriptors below n.
func (t *FDTable) growLocked(n int) {
	old := t.slots.Load()
	size := 64
	for size < n {
		size *= 2
	}
	slots := make([]atomic.Pointer[File], size)
	if old != nil {
		for i := range *old {
			slots[i].Store((*old)[i].Load())
		}
	}
	t.slots.Store(&slots)
	t.used = append(t.used, make([]uint64, size/64-len(t.used))...)
	t.cloexec = append(t.cloexec, make([]uint64, size/64-len(t.cloexec))...)
}

// Get returns a new reference to the file behind fd. EBADF if there is none.
func (t *FDTable) Get(fd int32) (*File, error) {
	for {
		slots := *t.slots.Load()
		if uint32(fd) >= uint32(len(slots)) {
			return nil, unix.EBADF
		}
		f := slots[fd].Load()
		if f == nil {
			return nil, unix.EBADF
		}
		if !f.TryIncRef() {
			continue // being closed: the slot is about to change
		}
		// The slot may have been closed and reused in between.
		if now := *t.slots.Load(); now[fd].Load() == f {
			return f, nil
		}
		f.DecRef()
	}
}

// GetFlags is Get with the descriptor flags (FD_CLOEXEC).
func (t *FDTable) GetFlags(fd int32) (*File, uint32, error) {
	f, err := t.Get(fd)
	if err != nil {
		return nil, 0, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.bit(t.cloexec, fd) {
		return f, unix.FD_CLOEXEC, nil
	}
	return f, 0, nil
}

func (t *FDTable) bit(set []uint64, fd int32) bool { return set[fd/64]&(1<<(fd%64)) != 0 }

func setBit(set []uint64, fd int32, on bool) {
	if on {
		set[fd/64] |= 1 << (fd % 64)
	} else {
		set[fd/64] &^= 1 << (fd % 64)
	}
}

// limit is the first descriptor that c may not have.
func fdLimit(c Caller) int32 { return int32(min(c.Rlimit(unix.RLIMIT_NOFILE), maxFDs)) }

// Install puts f at the lowest free descriptor from minFD on. It takes over the
// reference to f on success. EINVAL if minFD is beyond RLIMIT_NOFILE, EMFILE
// if all descriptors are taken.
func (t *FDTable) Install(c Caller, f *File, minFD int32, cloexec bool) (int32, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fd, err := t.allocLocked(c, minFD)
	if err == nil {
		t.setLocked(fd, f, cloexec)
	}
	return fd, err
}

// Reserve takes the lowest free descriptor for a file that is yet to be opened
// (get_unused_fd_flags): a call with an effect must fail with EMFILE before
// it. Fill or Unreserve follows. Until then it is EBADF to use and EBUSY for Dup3.
func (t *FDTable) Reserve(c Caller) (int32, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fd, err := t.allocLocked(c, 0)
	if err == nil {
		t.setLocked(fd, nil, false)
	}
	return fd, err
}

// Fill puts f at a reserved descriptor and takes over the reference.
func (t *FDTable) Fill(fd int32, f *File, cloexec bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.setLocked(fd, f, cloexec)
}

// Unreserve gives a reserved descriptor back.
func (t *FDTable) Unreserve(fd int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	setBit(t.used, fd, false)
	t.next = min(t.next, fd)
}

// allocLocked finds the lowest free descriptor from minFD on: EINVAL, EMFILE.
func (t *FDTable) allocLocked(c Caller, minFD int32) (int32, error) {
	limit := fdLimit(c)
	if minFD < 0 || minFD >= limit && minFD > 0 {
		return -1, unix.EINVAL
	}
	fd := t.freeLocked(max(minFD, t.next))
	if fd >= limit {
		return -1, unix.EMFILE
	}
	if most := TunablesOf(c).FileMax.Load(); most < 1<<62 && OpenFiles() >= most && !c.Cred().Has(unix.CAP_SYS_ADMIN) {
		return -1, unix.ENFILE
	}
	if minFD <= t.next {
		t.next = fd + 1
	}
	return fd, nil
}

// freeLocked returns the first free descriptor from start on.
func (t *FDTable) freeLocked(start int32) int32 {
	for w := int(start / 64); w < len(t.used); w++ {
		free := ^t.used[w]
		if w == int(start/64) {
			free &= ^uint64(0) << (start % 64)
		}
		if free != 0 {
			return int32(w*64 + bits.TrailingZeros64(free))
		}
	}
	return max(start, int32(len(t.used)*64))
}

// setLocked puts f at fd and returns what was there.
func (t *FDTable) setLocked(fd int32, f *File, cloexec bool) *File {
	if int(fd) >= len(*t.slots.Load()) {
		t.growLocked(int(fd) + 1)
	}
	setBit(t.used, fd, true)
	setBit(t.cloexec, fd, cloexec)
	return (*t.slots.Load())[fd].Swap(f)
}

// Dup3 puts f at newFD, closing what was there. It takes over the reference
// to f on success. EBADF if newFD is out of range, EBUSY if it is reserved.
func (t *FDTable) Dup3(c Caller, f *File, newFD int32, cloexec bool) error {
	if newFD < 0 || newFD >= fdLimit(c) {
		return unix.EBADF
	}
	t.mu.Lock()
	if slots := *t.slots.Load(); int(newFD) < len(slots) && slots[newFD].Load() == nil && t.bit(t.used, newFD) {
		t.mu.Unlock()
		return unix.EBUSY
	}
	old := t.setLocked(newFD, f, cloexec)
	t.mu.Unlock()
	if old != nil {
		_ = t.closed(c, old)
	}
	return nil
}

// removeLocked empties fd and returns what was there.
func (t *FDTable) removeLocked(fd int32) *File {
	slots := *t.slots.Load()
	if uint32(fd) >= uint32(len(slots)) {
		return nil
	}
	f := slots[fd].Swap(nil)
	if f != nil {
		setBit(t.used, fd, false)
		setBit(t.cloexec, fd, false)
		t.next = min(t.next, fd)
	}
	return f
}

// closed ends the table's use of f: POSIX locks go, whatever other
// descriptors of the file remain (fcntl(2)), and the file system may report
// late write errors.
func (t *FDTable) closed(c Caller, f *File) error {
	var err error
	if fl, ok := f.ops.(Flusher); ok && f.mode&filePath == 0 {
		err = fl.Flush(c)
	}
	t.mu.Lock()
	posix := t.posix
	t.mu.Unlock()
	if posix {
		f.releasePosix(c, t)
	}
	f.DecRef()
	return err
}

// Close implements close(2).
func (t *FDTable) Close(c Caller, fd int32) error {
	t.mu.Lock()
	f := t.removeLocked(fd)
	t.mu.Unlock()
	if f == nil {
		return unix.EBADF
	}
	return t.closed(c, f)
}

// CloseRange closes every descriptor from first to last.
func (t *FDTable) CloseRange(c Caller, first, last int32) {
	t.closeIf(c, first, last, func(int32) bool { return true })
}

// CloseOnExec closes what is marked close-on-exec.
func (t *FDTable) CloseOnExec(c Caller) {
	t.closeIf(c, 0, math.MaxInt32, func(fd int32) bool { return t.bit(t.cloexec, fd) })
}

// closeIf closes the descriptors in the range for which want, called with mu
// held, says so.
func (t *FDTable) closeIf(c Caller, first, last int32, want func(int32) bool) {
	fd := max(first, 0)
	for fd <= last {
		t.mu.Lock()
		var f *File
		end := int32(len(t.used) * 64)
		for ; fd <= last && fd < end && f == nil; fd++ {
			if t.used[fd/64] == 0 {
				fd |= 63
				continue
			}
			if t.bit(t.used, fd) && want(fd) {
				f = t.removeLocked(fd)
			}
		}
		t.mu.Unlock()
		if f == nil {
			return
		}
		_ = t.closed(c, f)
	}
}

// SetCloexec sets or clears FD_CLOEXEC of fd.
func (t *FDTable) SetCloexec(fd int32, on bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if fd < 0 || int(fd) >= len(t.used)*64 || !t.bit(t.used, fd) {
		return unix.EBADF
	}
	setBit(t.cloexec, fd, on)
	return nil
}

// SetCloexecRange marks the descriptors from first to last
// (CLOSE_RANGE_CLOEXEC).
func (t *FDTable) SetCloexecRange(first, last int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for fd := max(first, 0); fd <= last && int(fd) < len(t.used)*64; fd++ {
		if t.bit(t.used, fd) {
			setBit(t.cloexec, fd, true)
		}
	}
}

// Fork returns a copy with the same files, as fork(2) makes it.
func (t *FDTable) Fork() *FDTable { return t.ForkExcept(-1, -1) }

// ForkExcept is Fork without the descriptors from first to last
// (close_range(2) with CLOSE_RANGE_UNSHARE).
func (t *FDTable) ForkExcept(first, last int32) *FDTable {
	n := NewFDTable()
	t.mu.Lock()
	defer t.mu.Unlock()
	slots := *t.slots.Load()
	for i := range slots {
		fd := int32(i)
		f := slots[i].Load()
		if f == nil || first >= 0 && fd >= first && fd <= last {
			continue
		}
		f.IncRef()
		n.setLocked(fd, f, t.bit(t.cloexec, fd))
	}
	return n
}

// Each calls fn for every descriptor in order; fn borrows the file.
func (t *FDTable) Each(fn func(fd int32, f *File, cloexec bool)) {
	for fd := int32(0); ; fd++ {
		t.mu.Lock()
		var f *File
		var cloexec bool
		for ; int(fd) < len(t.used)*64; fd++ {
			if f = (*t.slots.Load())[fd].Load(); f != nil {
				cloexec = t.bit(t.cloexec, fd)
				f.IncRef()
				break
			}
		}
		t.mu.Unlock()
		if f == nil {
			return
		}
		fn(fd, f, cloexec)
		f.DecRef()
	}
}

// Count is the number of open descriptors.
func (t *FDTable) Count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, w := range t.used {
		n += bits.OnesCount64(w)
	}
	return n
}
