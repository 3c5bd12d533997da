package sysvipc

import (
	"sync"

	"golang.org/x/sys/unix"

	"runsc/sentry/cred"
	"runsc/sentry/mem"
)

// Limits of Linux's defaults.
const (
	MaxIDs = 32000 // SEMMNI, MSGMNI
	ShmMax = ^uint64(0) - 1<<24
	ShmMNI = 4096
	SemMSL = 32000
	SemMNS = 1024000000
	SemOPM = 500
	SemVMX = 32767
	SemAEM = SemVMX
	MsgMax = 8192
	MsgMNB = 16384
)

// slotBits of an id are the slot's number, the others a sequence number
// (IPCMNI_SHIFT).
const (
	slotBits = 15
	seqMax   = 1<<(31-slotBits) - 1
)

// Perm is who owns an object and who may use it (struct kern_ipc_perm).
type Perm struct {
	Key                  int32  `save:"rec"`
	UID, GID, CUID, CGID uint32 `save:"rec"`
	Mode                 uint32 `save:"rec"` // permission bits and ShmDest
	Seq                  uint32 `save:"rec"`
}

// May tells whether the caller may do what the bits of flags, as in a mode
// for owner, group and others, ask for (ipcperms).
func (p *Perm) May(c *cred.Creds, flags uint32) bool {
	want := flags>>6 | flags>>3 | flags
	have := p.Mode
	switch {
	case c.EUID == p.CUID || c.EUID == p.UID:
		have >>= 6
	case c.InGroup(p.CGID) || c.InGroup(p.GID):
		have >>= 3
	}
	return want&^have&7 == 0 || c.Has(unix.CAP_IPC_OWNER)
}

// own tells whether the caller may change or remove the object.
func (p *Perm) own(c *cred.Creds) bool {
	return c.EUID == p.CUID || c.EUID == p.UID || c.Has(unix.CAP_SYS_ADMIN)
}

// table is the objects of one kind (struct ipc_ids).
type table[T any] struct {
	slots   []*T           `save:"rec"` // nil: free
	keys    map[int32]*T   `save:"rebuilt"`
	perm    func(*T) *Perm `save:"rebuilt"`
	max     int            `save:"rebuilt"`
	used    int            `save:"rebuilt"`
	lastIdx int            `save:"rec"`
	seq     uint32         `save:"rec"`
}

// find returns the object with an id: EINVAL, EIDRM for one of another
// sequence number.
func (t *table[T]) find(id int32) (*T, error) {
	if id < 0 {
		return nil, unix.EINVAL
	}
	i := int(id & (1<<slotBits - 1))
	if i >= len(t.slots) || t.slots[i] == nil {
		return nil, unix.EINVAL
	}
	if t.perm(t.slots[i]).Seq != uint32(id)>>slotBits {
		return nil, unix.EIDRM
	}
	return t.slots[i], nil
}

// at returns the object in a slot and its id: EINVAL.
func (t *table[T]) at(i int32) (*T, int32, error) {
	if i < 0 || int(i) >= len(t.slots) || t.slots[i] == nil {
		return nil, 0, unix.EINVAL
	}
	return t.slots[i], t.id(int(i)), nil
}

func (t *table[T]) id(i int) int32 { return int32(t.perm(t.slots[i]).Seq<<slotBits) | int32(i) }

// lookup returns the id of an object.
func (t *table[T]) lookup(o *T) int32 {
	for i, s := range t.slots {
		if s == o {
			return t.id(i)
		}
	}
	return -1
}

// add puts o into the first free slot and returns its id; ENOSPC.
func (t *table[T]) add(o *T) (int32, error) {
	if t.used >= t.max {
		return 0, unix.ENOSPC
	}
	i := 0
	for i < len(t.slots) && t.slots[i] != nil {
		i++
	}
	if i == len(t.slots) {
		t.slots = append(t.slots, nil)
	}
	if i <= t.lastIdx {
		if t.seq++; t.seq > seqMax {
			t.seq = 0
		}
	}
	t.lastIdx = i
	t.slots[i] = o
	t.used++
	p := t.perm(o)
	p.Seq = t.seq
	t.hash(o)
	return t.id(i), nil
}

func (t *table[T]) hash(o *T) {
	if k := t.perm(o).Key; k != unix.IPC_PRIVATE {
		if t.keys == nil {
			t.keys = make(map[int32]*T)
		}
		t.keys[k] = o
	}
}

// unhash hides o from lookups by key.
func (t *table[T]) unhash(o *T) {
	if p := t.perm(o); t.keys[p.Key] == o {
		delete(t.keys, p.Key)
	}
}

// remove frees o's slot; false if it has none.
func (t *table[T]) remove(o *T) bool {
	for i, s := range t.slots {
		if s == o {
			t.unhash(o)
			t.slots[i] = nil
			t.used--
			for n := len(t.slots); n > 0 && t.slots[n-1] == nil; n-- {
				t.slots = t.slots[:n-1]
			}
			return true
		}
	}
	return false
}

// top is the highest slot in use, 0 without any (the answer of *_INFO).
func (t *table[T]) top() int32 { return int32(max(len(t.slots)-1, 0)) }

// Namespace is the objects of an IPC namespace. The zero value is not ready:
// use New.
type Namespace struct {
	mu sync.Mutex `save:"none: not held at a stop"`
	// mu guards:
	shm   table[Segment]  `save:"rec"`
	sem   table[Set]      `save:"rec"`
	msg   table[MsgQueue] `save:"rec"`
	pages uint64          `save:"rebuilt"` // of all segments
	sems  int             `save:"rebuilt"` // of all sets
}

// New returns an empty namespace.
func New() *Namespace {
	n := &Namespace{}
	n.shm = table[Segment]{perm: func(s *Segment) *Perm { return &s.Perm }, max: ShmMNI, lastIdx: -1}
	n.sem = table[Set]{perm: func(s *Set) *Perm { return &s.Perm }, max: MaxIDs, lastIdx: -1}
	n.msg = table[MsgQueue]{perm: func(q *MsgQueue) *Perm { return &q.Perm }, max: MaxIDs, lastIdx: -1}
	return n
}

// Caller is what a call needs to know of its task.
type Caller struct {
	Cred    *cred.Creds
	TGID    int32
	Now     int64 // seconds of the day, for the times of objects
	MemFile *mem.File
	Account *mem.Account // pays for what it makes
}

// get finds or makes an object as ipcget does: ENOENT, EEXIST, EACCES and
// what make and check return. n.mu is held.
func get[T any](t *table[T], c *Caller, key int32, flags uint32, check func(*T) error, make func(Perm) (*T, error)) (int32, error) {
	if key != unix.IPC_PRIVATE {
		if o := t.keys[key]; o != nil {
			if flags&(unix.IPC_CREAT|unix.IPC_EXCL) == unix.IPC_CREAT|unix.IPC_EXCL {
				return 0, unix.EEXIST
			}
			if err := check(o); err != nil {
				return 0, err
			}
			if !t.perm(o).May(c.Cred, flags) {
				return 0, unix.EACCES
			}
			return t.lookup(o), nil
		}
		if flags&unix.IPC_CREAT == 0 {
			return 0, unix.ENOENT
		}
	}
	if t.used >= t.max {
		return 0, unix.ENOSPC
	}
	cr := c.Cred
	o, err := make(Perm{Key: key, UID: cr.EUID, GID: cr.EGID, CUID: cr.EUID, CGID: cr.EGID, Mode: flags & 0o777})
	if err != nil {
		return 0, err
	}
	return t.add(o)
}

// Change is what IPC_SET sets.
type Change struct {
	UID, GID, Mode uint32
	QBytes         uint64 // of message queues
}

func (p *Perm) set(ch *Change) {
	p.UID, p.GID = ch.UID, ch.GID
	p.Mode = p.Mode&^0o777 | ch.Mode&0o777
}
