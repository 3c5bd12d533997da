package sysvipc

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"runsc/sentry/mm"
)

// Bits of a segment's mode (shmctl(2)).
const (
	ShmDest   = 0o1000 // removed, but still attached
	ShmLocked = 0o2000
)

// Segment is a shared memory segment (struct shmid_kernel).
type Segment struct {
	// immutable:
	ns   *Namespace `save:"rebuilt"`
	Mem  *mm.Shm    `save:"rec"` // one reference is the namespace's
	Size uint64     `save:"rec"` // as asked for, bytes

	// Namespace.mu guards:
	Perm       Perm  `save:"rec"`
	CPID, LPID int32 `save:"rec"`
	Atime      int64 `save:"rec"` // s
	Dtime      int64 `save:"rec"`
	Ctime      int64 `save:"rec"`
	attaching  int   `save:"rebuilt"` // calls of shmat between lookup and mapping
	gone       bool  `save:"none: not in the table"`
}

func pagesOf(size uint64) uint64 { return (size + 4095) / 4096 }

// segments tells those that are segments from other shared memory, for mm.Detach.
var segments sync.Map // *mm.Shm -> *Segment

// SegmentOf returns the segment whose memory s is, or nil.
func SegmentOf(s *mm.Shm) *Segment {
	if v, ok := segments.Load(s); ok {
		return v.(*Segment)
	}
	return nil
}

func (n *Namespace) newSegment(m *mm.Shm, size uint64, p Perm) *Segment {
	s := &Segment{ns: n, Mem: m, Size: size, Perm: p}
	m.Watch(fmt.Sprintf("/SYSV%08x (deleted)", uint32(p.Key)), s.idle)
	segments.Store(m, s)
	n.pages += pagesOf(size)
	return s
}

// idle is called when the last mapping goes.
func (s *Segment) idle() {
	s.ns.mu.Lock()
	destroy := s.Perm.Mode&ShmDest != 0 && s.attaching == 0 && s.ns.dropLocked(s)
	s.ns.mu.Unlock()
	if destroy {
		s.release()
	}
}

// dropLocked takes a segment that nothing maps out of the table.
func (n *Namespace) dropLocked(s *Segment) bool {
	if s.gone || s.Mem.Attached() > 0 {
		return false
	}
	s.gone = true
	n.shm.remove(s)
	n.pages -= pagesOf(s.Size)
	return true
}

func (s *Segment) release() {
	segments.Delete(s.Mem)
	s.Mem.DecRef()
}

// ShmGet is shmget(2): EINVAL, ENOSPC, ENOENT, EEXIST, EACCES.
func (n *Namespace) ShmGet(c *Caller, key int32, size uint64, flags uint32) (int32, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return get(&n.shm, c, key, flags, func(s *Segment) error {
		if s.Size < size {
			return unix.EINVAL
		}
		return nil
	}, func(p Perm) (*Segment, error) {
		if size < 1 || size > ShmMax {
			return nil, unix.EINVAL
		}
		if n.pages+pagesOf(size) > ShmMax {
			return nil, unix.ENOSPC
		}
		s := n.newSegment(mm.NewShm(c.MemFile, c.Account, pagesOf(size)*4096), size, p)
		s.CPID, s.Ctime = c.TGID, c.Now
		return s, nil
	})
}

// ShmAttach looks a segment up for shmat(2), which wants the access of flags,
// and holds it: the caller maps Mem and calls the function returned with
// whether that worked. EINVAL, EIDRM, EACCES.
func (n *Namespace) ShmAttach(c *Caller, id int32, flags uint32) (*Segment, func(ok bool), error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s, err := n.shm.find(id)
	if err != nil {
		return nil, nil, err
	}
	if !s.Perm.May(c.Cred, flags) {
		return nil, nil, unix.EACCES
	}
	s.attaching++
	s.Mem.IncRef()
	return s, func(ok bool) {
		n.mu.Lock()
		s.attaching--
		if ok {
			s.Atime, s.LPID = c.Now, c.TGID
		}
		destroy := s.Perm.Mode&ShmDest != 0 && s.attaching == 0 && n.dropLocked(s)
		n.mu.Unlock()
		s.Mem.DecRef()
		if destroy {
			s.release()
		}
	}, nil
}

// Detached notes a shmdt(2).
func (s *Segment) Detached(c *Caller) {
	s.ns.mu.Lock()
	defer s.ns.mu.Unlock()
	s.Dtime, s.LPID = c.Now, c.TGID
}

// ShmStat is what IPC_STAT tells of a segment.
type ShmStat struct {
	ID                  int32
	Perm                Perm
	Size                uint64
	Atime, Dtime, Ctime int64
	CPID, LPID          int32
	Attached            int
	Resident            uint64 // bytes
}

func (s *Segment) stat(id int32) ShmStat {
	return ShmStat{
		ID: id, Perm: s.Perm, Size: s.Size, Atime: s.Atime, Dtime: s.Dtime, Ctime: s.Ctime, CPID: s.CPID, LPID: s.LPID,
		Attached: s.Mem.Attached() + s.attaching, Resident: s.Mem.Resident(),
	}
}

// ShmStat is IPC_STAT, or with slot SHM_STAT and with any SHM_STAT_ANY.
func (n *Namespace) ShmStat(c *Caller, id int32, slot, any bool) (ShmStat, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s, id, err := pick(&n.shm, id, slot)
	if err != nil {
		return ShmStat{}, err
	}
	if !any && !s.Perm.May(c.Cred, 0o444) {
		return ShmStat{}, unix.EACCES
	}
	return s.stat(id), nil
}

// pick finds an object by id or by slot.
func pick[T any](t *table[T], id int32, slot bool) (*T, int32, error) {
	if slot {
		return t.at(id)
	}
	o, err := t.find(id)
	return o, id, err
}

// ShmSet is IPC_SET: EINVAL, EIDRM, EPERM.
func (n *Namespace) ShmSet(c *Caller, id int32, ch *Change) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	s, err := owned(&n.shm, c, id)
	if err == nil {
		s.Perm.set(ch)
		s.Ctime = c.Now
	}
	return err
}

// owned finds an object that the caller may change (ipcctl_obtain_check).
func owned[T any](t *table[T], c *Caller, id int32) (*T, error) {
	o, err := t.find(id)
	if err == nil && !t.perm(o).own(c.Cred) {
		return nil, unix.EPERM
	}
	return o, err
}

// ShmRemove is IPC_RMID: a segment that is attached loses its key and goes
// with the last detach.
func (n *Namespace) ShmRemove(c *Caller, id int32) error {
	n.mu.Lock()
	s, err := owned(&n.shm, c, id)
	destroy := false
	if err == nil {
		n.shm.unhash(s)
		s.Perm.Mode |= ShmDest
		s.Perm.Key = unix.IPC_PRIVATE
		destroy = s.attaching == 0 && n.dropLocked(s)
	}
	n.mu.Unlock()
	if destroy {
		s.release()
	}
	return err
}

// ShmLock is SHM_LOCK and SHM_UNLOCK, which only mark the segment: memory of
// the sandbox is not swapped by it.
func (n *Namespace) ShmLock(c *Caller, id int32, on, privileged bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	s, err := n.shm.find(id)
	if err != nil {
		return err
	}
	if !privileged && c.Cred.EUID != s.Perm.UID && c.Cred.EUID != s.Perm.CUID {
		return unix.EPERM
	}
	if s.Perm.Mode &^= ShmLocked; on {
		s.Perm.Mode |= ShmLocked
	}
	return nil
}

// ShmUse is the use of segments: how many, their pages, those with frames and
// the highest slot.
func (n *Namespace) ShmUse() (segments int, pages, resident uint64, top int32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.shm.slots {
		if s != nil {
			resident += s.Mem.Resident() / 4096
		}
	}
	return n.shm.used, n.pages, resident, n.shm.top()
}

// Segments lists all, by slot.
func (n *Namespace) Segments() []ShmStat {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []ShmStat
	for i, s := range n.shm.slots {
		if s != nil {
			all = append(all, s.stat(n.shm.id(i)))
		}
	}
	return all
}
