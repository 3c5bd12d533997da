package mm

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"runsc/pkg/segset"
	"runsc/sentry/mem"
)

// shm is the memory behind a shared anonymous mapping (shmem_zero_setup of
// mm/shmem.c).
type shm struct {
	// immutable:
	mf   *mem.File    `save:"rebuilt"`
	acct *mem.Account `save:"rebuilt"`
	size uint64       `save:"rec"`
	ino  uint64       `save:"rec"`

	refs atomic.Int64 `save:"rebuilt"`

	mu sync.Mutex `save:"none: not held at a stop"` // a leaf
	// mu guards:
	frames segset.Map[uint64]         `save:"rec"`     // offset -> memfile offset
	spaces map[mem.MappingSpace]int64 `save:"rebuilt"` // bytes mapped
}

var nextShmIno atomic.Uint64

// newShm returns an object of n bytes with one reference.
func newShm(mf *mem.File, acct *mem.Account, n uint64) *shm {
	s := &shm{mf: mf, acct: acct, size: n, ino: nextShmIno.Add(1), spaces: make(map[mem.MappingSpace]int64)}
	s.frames.Split = func(v, off uint64) uint64 { return v + off }
	s.frames.Merge = func(a, b *segset.Seg[uint64]) bool { return a.V+(a.End-a.Start) == b.V }
	s.refs.Store(1)
	return s
}

// Region implements mem.Mappable: holes are filled whatever the access, a
// piece at a time.
func (s *shm) Region(off, n int64, _ bool) (mem.Region, error) {
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
func (s *shm) PunchHole(off, n int64) error {
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
func (s *shm) AddMapping(m mem.MappingSpace, _, n int64, _ bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spaces[m] += n
	return nil
}

// RemoveMapping implements mem.Mappable. A mapping may be removed in pieces:
// bytes are counted.
func (s *shm) RemoveMapping(m mem.MappingSpace, _, n int64, _ bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spaces[m] -= n; s.spaces[m] <= 0 {
		delete(s.spaces, m)
	}
}

// IncRef implements mem.Mappable.
func (s *shm) IncRef() { s.refs.Add(1) }

// DecRef implements mem.Mappable.
func (s *shm) DecRef() {
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
func (s *shm) MapName() (string, uint64, uint64) {
	return "/dev/zero (deleted)", 1, s.ino
}
