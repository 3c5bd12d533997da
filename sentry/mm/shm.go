package mm

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"runsc/pkg/segset"
	"runsc/sentry/mem"
)

// Shm is the memory behind a shared anonymous mapping (shmem_zero_setup of
// mm/shmem.c), or a System V segment.
type Shm struct {
	// immutable:
	mf   *mem.File    `save:"rebuilt"`
	acct *mem.Account `save:"rebuilt"`
	size uint64       `save:"rec"`
	ino  uint64       `save:"rec"`

	// name and idle are set before the first mapping of a segment: its name in
	// maps, and what is to be called when the last mapping is gone.
	name string `save:"rebuilt"`
	idle func() `save:"rebuilt"`

	refs atomic.Int64 `save:"rebuilt"`

	mu sync.Mutex `save:"none: not held at a stop"` // a leaf
	// mu guards:
	frames segset.Map[uint64]         `save:"rec"`     // offset -> memfile offset
	spaces map[mem.MappingSpace]int64 `save:"rebuilt"` // bytes mapped
}

var nextShmIno atomic.Uint64

// NewShm returns an object of n bytes with one reference.
func NewShm(mf *mem.File, acct *mem.Account, n uint64) *Shm {
	s := &Shm{mf: mf, acct: acct, size: n, ino: nextShmIno.Add(1), spaces: make(map[mem.MappingSpace]int64)}
	s.frames.Split = func(v, off uint64) uint64 { return v + off }
	s.frames.Merge = func(a, b *segset.Seg[uint64]) bool { return a.V+(a.End-a.Start) == b.V }
	s.refs.Store(1)
	return s
}

// Watch makes s a segment: name is shown in maps, and idle is called, with the
// address space's mapMu held, when nothing maps s any more.
func (s *Shm) Watch(name string, idle func()) { s.name, s.idle = name, idle }

// Ino is the number that maps shows.
func (s *Shm) Ino() uint64 { return s.ino }

// SetIno changes it, before the first mapping.
func (s *Shm) SetIno(ino uint64) { s.ino = ino }

// Len is its size in bytes, whole pages.
func (s *Shm) Len() uint64 { return s.size }

// Attached is the number of mappings of all of s, those of parts rounded up.
func (s *Shm) Attached() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, b := range s.spaces {
		n += int((uint64(b) + s.size - 1) / s.size)
	}
	return n
}

// Resident is how many bytes have frames.
func (s *Shm) Resident() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := uint64(0)
	for i := range s.frames.Len() {
		f := s.frames.At(i)
		n += f.End - f.Start
	}
	return n
}

// Region implements mem.Mappable: holes are filled whatever the access, a
// piece at a time.
func (s *Shm) Region(off, n int64, _ bool) (mem.Region, error) {
	at := uint64(off)
	if at >= s.size {
		return mem.Region{}, unix.EFAULT
	}
	end := min(at+uint64(n), s.size)
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.frames.Find(at)
	if f == nil {
		stop := min(end, at+aheadMin)
		if i := s.frames.Search(at); i < s.frames.Len() {
			stop = min(stop, s.frames.At(i).Start)
		}
		r, err := s.mf.Allocate(stop-at, s.acct, mem.Tmpfs)
		if err != nil {
			stop = at + pageSize
			if r, err = s.mf.Allocate(pageSize, s.acct, mem.Tmpfs); err != nil {
				return mem.Region{}, err
			}
		}
		s.frames.Insert(at, stop, r.Start)
		f = s.frames.Find(at)
	}
	return mem.Region{
		FD: s.mf.FD(), Off: int64(f.V + (at - f.Start)), Len: int64(min(f.End, end) - at), Frames: true,
	}, nil
}

// PunchHole frees the frames of [off, off+n) (MADV_REMOVE).
func (s *Shm) PunchHole(off, n int64) error {
	s.mu.Lock()
	var freed []mem.Range
	s.frames.Remove(uint64(off), uint64(off+n), func(f segset.Seg[uint64]) {
		freed = append(freed, mem.Range{Start: f.V, End: f.V + (f.End - f.Start)})
	})
	spaces := make([]mem.MappingSpace, 0, len(s.spaces))
	for m := range s.spaces {
		spaces = append(spaces, m)
	}
	s.mu.Unlock()
	for _, m := range spaces {
		m.Invalidate(s, off, n, false)
	}
	for _, r := range freed {
		s.mf.DecRef(r)
	}
	return nil
}

// AddMapping implements mem.Mappable.
func (s *Shm) AddMapping(m mem.MappingSpace, _, n int64, _ bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spaces[m] += n
	return nil
}

// RemoveMapping implements mem.Mappable. A mapping may be removed in pieces:
// bytes are counted.
func (s *Shm) RemoveMapping(m mem.MappingSpace, _, n int64, _ bool) {
	s.mu.Lock()
	if s.spaces[m] -= n; s.spaces[m] <= 0 {
		delete(s.spaces, m)
	}
	idle := s.idle
	if len(s.spaces) > 0 {
		idle = nil
	}
	s.mu.Unlock()
	if idle != nil {
		idle()
	}
}

// IncRef implements mem.Mappable.
func (s *Shm) IncRef() { s.refs.Add(1) }

// DecRef implements mem.Mappable.
func (s *Shm) DecRef() {
	if s.refs.Add(-1) > 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := 0; i < s.frames.Len(); i++ {
		f := s.frames.At(i)
		s.mf.DecRef(mem.Range{Start: f.V, End: f.V + (f.End - f.Start)})
	}
	s.frames.Clear()
	s.spaces = nil
}

// MapName implements mem.Mappable. Linux shows the deleted file of the
// internal tmpfs.
func (s *Shm) MapName() (string, uint64, uint64) {
	if s.name != "" {
		return s.name, 1, s.ino
	}
	return "/dev/zero (deleted)", 1, s.ino
}

// Detach removes the mappings of the segment that was mapped whole at base:
// what is left of them, in any pieces (ksys_shmdt of ipc/shm.c). EINVAL if
// there are none. is tells segments from other memory.
func (mm *MM) Detach(base uint64, is func(*Shm) bool) (*Shm, error) {
	if base&pageMask != 0 {
		return nil, unix.EINVAL
	}
	mm.mapMu.Lock()
	defer mm.mapMu.Unlock()
	var seg *Shm
	var parts []vmaSpan
	mm.mu.Lock()
	for i := mm.vmas.Search(base); i < mm.vmas.Len(); i++ {
		v := mm.vmas.At(i)
		s, ok := v.V.file.(*Shm)
		if !ok || v.Start-v.V.off != base || seg != nil && s != seg || seg == nil && !is(s) {
			continue
		}
		seg = s
		parts = append(parts, vmaSpan{v.Start, v.End})
	}
	mm.mu.Unlock()
	if seg == nil {
		return nil, unix.EINVAL
	}
	for _, p := range parts {
		if err := mm.unmap(p.start, p.end); err != nil {
			return nil, err
		}
	}
	return seg, nil
}

type vmaSpan struct{ start, end uint64 }
