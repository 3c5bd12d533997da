package mem

import (
	"fmt"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// diskSpace is how much file space each host file has, frameEnd where the
// space of all ends. The numbers of a host file's frames start at a multiple
// of diskSpace beyond the memfd's; ext4 takes files up to that size.
const (
	diskSpace = 1 << 44
	frameEnd  = 1 << 60
)

// store is a file that holds frames: the memfd, or a host file for those that
// shall not use memory.
type store struct {
	// immutable:
	fd    int
	base  uint64 // number of the first frame
	limit uint64 // numbers end before it

	// File.mu guards:
	free []*window // windows without pages, owner or dirt
	end  uint64    // windows exist below it

	// atomic: windows by (offset - base) / WindowSize; entries never change
	// once visible.
	table atomic.Pointer[[]*window]

	mapping fileMapping
}

func newStore(fd int, base, size uint64) *store {
	s := &store{fd: fd, base: base, limit: base + size, end: base}
	s.table.Store(&[]*window{})
	return s
}

func (s *store) close() {
	s.mapping.close()
	unix.Close(s.fd)
}

func (s *store) disk() bool { return s.base != 0 }

// hostOff is where in the host's file the frame at off is.
func (s *store) hostOff(off uint64) int64 { return int64(off - s.base) }

// bytes returns [off, off+n), in one window, as memory.
func (s *store) bytes(off uint64, n int) []byte {
	return s.mapping.bytes(s.fd, uint64(s.hostOff(off)), n)
}

// growLocked adds n windows at the end of the file.
func (s *store) growLocked(n int) ([]window, error) {
	if s.end+uint64(n)*WindowSize > s.limit {
		return nil, unix.ENOMEM
	}
	more := make([]window, n)
	table := slices.Grow(*s.table.Load(), n)
	for i := range more {
		more[i].off, more[i].store = s.end, s
		s.end += WindowSize
		table = append(table, &more[i])
	}
	s.table.Store(&table)
	return more, nil
}

// back makes sure that a write to the frames of r, which read as zero, finds
// room on the disk: ENOSPC or EDQUOT now, not SIGBUS later.
func (s *store) back(r Range) error {
	if !s.disk() {
		return nil
	}
	for {
		err := unix.Fallocate(s.fd, 0, s.hostOff(r.Start), int64(r.Len()))
		switch err {
		case unix.EINTR:
			continue
		case unix.EOPNOTSUPP:
			return s.fill(r)
		case unix.EFBIG:
			return unix.ENOSPC
		}
		return err
	}
}

// room is what is free on the disk.
func (s *store) room() uint64 {
	_, free := s.size()
	return free
}

// size is that of the disk, and what is free, in bytes.
func (s *store) size() (total, free uint64) {
	var st unix.Statfs_t
	if unix.Fstatfs(s.fd, &st) != nil {
		return 0, 0
	}
	return st.Blocks * uint64(st.Bsize), st.Bavail * uint64(st.Bsize)
}

// DiskRoom is the size of the disk that files charged to a are on, and what
// is free of it.
func (a *Account) DiskRoom() (total, free uint64, ok bool) {
	if a == nil || a.disk == nil {
		return 0, 0, false
	}
	total, free = a.disk.size()
	return total, free, true
}

// fill writes zeros, for file systems without fallocate.
func (s *store) fill(r Range) error {
	for r.Start < r.End {
		n := min(r.Len(), uint64(len(zeros)))
		if err := pwriteFull(s.fd, zeros[:n], s.hostOff(r.Start)); err != nil {
			return err
		}
		r.Start += n
	}
	return nil
}

// punch gives the pages of r back to the host; they read as zero afterwards.
// It returns false if they cannot be used again.
func (s *store) punch(r Range) bool {
	err := unix.Fallocate(s.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, s.hostOff(r.Start), int64(r.Len()))
	if err == nil {
		return true
	}
	if !s.disk() {
		// The pages must not be handed out with old contents.
		panic("mem: cannot punch the memfile: " + err.Error())
	}
	return s.fill(r) == nil
}

// store returns the file that the frame at off is in.
func (f *File) store(off uint64) *store {
	if off < fileSize {
		return f.main
	}
	return (*f.disks.Load())[(off-fileSize)/diskSpace]
}

// stores lists all files.
func (f *File) stores() []*store {
	list := []*store{f.main}
	if d := f.disks.Load(); d != nil {
		for _, s := range *d {
			if s != nil {
				list = append(list, s)
			}
		}
	}
	return list
}

// windowsLocked lists the windows of all files.
func (f *File) windowsLocked() []*window {
	main := *f.main.table.Load()
	all := f.stores()
	if len(all) == 1 {
		return main
	}
	list := append([]*window(nil), main...)
	for _, s := range all[1:] {
		list = append(list, *s.table.Load()...)
	}
	return list
}

func (f *File) storeOf(a *Account, kind Kind) *store {
	if kind == Disk && a.disk != nil {
		return a.disk
	}
	return f.main
}

// AddDisk makes the empty host file fd, which it takes over, hold the frames
// of kind Disk that are charged to a.
func (f *File) AddDisk(fd int, a *Account) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []*store
	if d := f.disks.Load(); d != nil {
		list = append(list, *d...)
	}
	n := uint64(0)
	for n < uint64(len(list)) && list[n] != nil {
		n++
	}
	if n == uint64(len(list)) {
		list = append(list, nil)
	}
	base := fileSize + n*diskSpace
	if base+diskSpace > frameEnd {
		unix.Close(fd)
		return fmt.Errorf("mem: %d host files", n)
	}
	list[n] = newStore(fd, base, diskSpace)
	a.disk = list[n]
	f.disks.Store(&list)
	return nil
}

// RemoveDisk closes the host file of a, if it has one, whose container is
// gone. Frames that something still holds have no contents any more.
func (f *File) RemoveDisk(a *Account) {
	f.Reclaim() // nothing is dirty afterwards
	f.reclaimMu.Lock()
	defer f.reclaimMu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	s := a.disk
	if s == nil || f.closed {
		return
	}
	a.disk = nil
	for _, w := range *s.table.Load() {
		if w.nbusy > 0 || w.ndirty > 0 || w.reserved {
			s.disown()
			return
		}
	}
	list := append([]*store(nil), *f.disks.Load()...)
	list[(s.base-fileSize)/diskSpace] = nil
	f.disks.Store(&list)
	s.close()
}

// disown lets go of the host file while there are frames of it: what is at the
// descriptor from now on refuses to be read, written and mapped.
func (s *store) disown() {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return // then it goes with the sandbox
	}
	_ = unix.Dup3(fd, s.fd, unix.O_CLOEXEC)
	unix.Close(fd)
}

// FileKind is the kind of frames for files that are charged to a.
func (a *Account) FileKind() Kind {
	if a != nil && a.disk != nil {
		return Disk
	}
	return Tmpfs
}

// HostPlace returns the descriptor and the offset of the frame at off, for
// mappings of the host. It is good as long as the frame is used.
func (f *File) HostPlace(off uint64) (fd int, hostOff int64) {
	s := f.store(off)
	return s.fd, s.hostOff(off)
}
