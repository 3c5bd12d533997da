package sysvipc

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
)

// semaphore is one of a set.
type semaphore struct {
	val int32 `save:"rec"`
	pid int32 `save:"rec"` // of the last operation
}

// SemUndo is the flag SEM_UNDO of an operation.
const SemUndo = 0x1000

// semSize is what a semaphore is charged with, bytes.
const semSize = 8

// Set is a semaphore set (struct sem_array).
type Set struct {
	// immutable:
	ns   *Namespace `save:"rebuilt"`
	free func()     `save:"rebuilt"` // gives the charge back

	queue waitq.Queue `save:"rebuilt"` // those that wait for a value

	// Namespace.mu guards:
	Perm    Perm              `save:"rec"`
	sems    []semaphore       `save:"rec"`
	Otime   int64             `save:"rec"`
	Ctime   int64             `save:"rec"`
	undos   map[*Undo][]int16 `save:"rec"` // adjustments at a process's end
	waiters map[*SemWait]bool `save:"rebuilt"`
	gone    bool              `save:"none: not in the table"`
}

// SemOp is struct sembuf.
type SemOp struct {
	Num   uint16
	Op    int16
	Flags int16
}

// SemWait is a call of semop(2) that waits.
type SemWait struct {
	set *Set
	op  SemOp // the one that it waits for
}

// Undo is the list of a process's adjustments (struct sem_undo_list). Its
// entries stand in the sets.
type Undo struct {
	sets map[*Set]bool `save:"rebuilt"`
}

// SemGet is semget(2).
func (n *Namespace) SemGet(c *Caller, key, count int32, flags uint32) (int32, error) {
	if count < 0 || count > SemMSL {
		return 0, unix.EINVAL
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return get(&n.sem, c, key, flags, func(s *Set) error {
		if int(count) > len(s.sems) {
			return unix.EINVAL
		}
		return nil
	}, func(p Perm) (*Set, error) {
		if count == 0 {
			return nil, unix.EINVAL
		}
		if n.sems+int(count) > SemMNS {
			return nil, unix.ENOSPC
		}
		s, err := n.newSet(c, int(count), p)
		if err == nil {
			s.Ctime = c.Now
		}
		return s, err
	})
}

func (n *Namespace) newSet(c *Caller, count int, p Perm) (*Set, error) {
	bytes := uint64(count * semSize)
	if c.Account != nil && c.Account.Charge(bytes) != nil {
		return nil, unix.ENOMEM
	}
	s := &Set{ns: n, Perm: p, sems: make([]semaphore, count), undos: map[*Undo][]int16{}, waiters: map[*SemWait]bool{}}
	s.free = func() {
		if c.Account != nil {
			c.Account.Uncharge(bytes)
		}
	}
	n.sems += count
	return s, nil
}

// SemCheck is what semop(2) checks of a set before it tries: EINVAL, EIDRM,
// EFBIG, EACCES. It returns the set.
func (n *Namespace) SemCheck(c *Caller, id int32, ops []SemOp) (*Set, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s, err := n.sem.find(id)
	if err != nil {
		return nil, err
	}
	access := uint32(0o444)
	for _, op := range ops {
		if int(op.Num) >= len(s.sems) {
			return nil, unix.EFBIG
		}
		if op.Op != 0 {
			access = 0o222
		}
	}
	if !s.Perm.May(c.Cred, access) {
		return nil, unix.EACCES
	}
	return s, nil
}

// Queue is notified when a value changes or the set goes.
func (s *Set) Queue() *waitq.Queue { return &s.queue }

// Wait registers a call that is about to wait.
func (s *Set) Wait(w *SemWait) {
	s.ns.mu.Lock()
	defer s.ns.mu.Unlock()
	w.set = s
	s.waiters[w] = true
}

// Done ends it.
func (w *SemWait) Done() {
	w.set.ns.mu.Lock()
	defer w.set.ns.mu.Unlock()
	delete(w.set.waiters, w)
}

// Op is one try of semop(2): all operations or none. EAGAIN if it has to wait,
// with w noting for what and wait set unless that operation says IPC_NOWAIT;
// EIDRM, ERANGE, ENOMEM.
func (s *Set) Op(c *Caller, ops []SemOp, u *Undo, w *SemWait) (wait bool, err error) {
	n := s.ns
	n.mu.Lock()
	defer n.mu.Unlock()
	if s.gone {
		return false, unix.EIDRM
	}
	adj := s.undos[u]
	if adj == nil && wantsUndo(ops) {
		adj = make([]int16, len(s.sems))
	}
	done, wait, err := s.apply(ops, adj)
	if err != nil {
		for _, op := range ops[:done] {
			s.sems[op.Num].val -= int32(op.Op)
			if op.Flags&SemUndo != 0 {
				adj[op.Num] += op.Op
			}
		}
		if w != nil && done < len(ops) {
			w.op = ops[done]
		}
		return wait, err
	}
	if adj != nil && wantsUndo(ops) {
		s.undos[u] = adj
		if u.sets == nil {
			u.sets = map[*Set]bool{}
		}
		u.sets[s] = true
	}
	changed := false
	for _, op := range ops {
		s.sems[op.Num].pid = c.TGID
		changed = changed || op.Op != 0
	}
	s.Otime = c.Now
	if changed {
		s.queue.Notify(waitq.In)
	}
	return false, nil
}

func wantsUndo(ops []SemOp) bool {
	for _, op := range ops {
		if op.Flags&SemUndo != 0 {
			return true
		}
	}
	return false
}

// apply carries the operations out and returns how many were before the first
// that did not work.
func (s *Set) apply(ops []SemOp, adj []int16) (done int, wait bool, err error) {
	for i, op := range ops {
		v := &s.sems[op.Num].val
		now := *v + int32(op.Op)
		switch {
		case op.Op == 0 && *v != 0, now < 0:
			return i, op.Flags&unix.IPC_NOWAIT == 0, unix.EAGAIN
		case now > SemVMX:
			return i, false, unix.ERANGE
		}
		if op.Flags&SemUndo != 0 {
			un := int32(adj[op.Num]) - int32(op.Op)
			if un < -SemAEM-1 || un > SemAEM {
				return i, false, unix.ERANGE
			}
			adj[op.Num] = int16(un)
		}
		*v = now
	}
	return len(ops), false, nil
}

// Exit carries out a process's adjustments (exit_sem).
func (u *Undo) Exit(pid int32) {
	for s := range u.sets {
		s.ns.mu.Lock()
		if adj := s.undos[u]; adj != nil && !s.gone {
			s.adjust(adj, pid)
			delete(s.undos, u)
			s.queue.Notify(waitq.In)
		}
		s.ns.mu.Unlock()
	}
	u.sets = nil
}

func (s *Set) adjust(adj []int16, pid int32) {
	for i, a := range adj {
		if a != 0 {
			m := &s.sems[i]
			m.val, m.pid = min(max(m.val+int32(a), 0), SemVMX), pid
		}
	}
}

// SemStat is what IPC_STAT tells of a set.
type SemStat struct {
	ID           int32
	Perm         Perm
	Otime, Ctime int64
	Count        int
}

func (s *Set) stat(id int32) SemStat {
	return SemStat{ID: id, Perm: s.Perm, Otime: s.Otime, Ctime: s.Ctime, Count: len(s.sems)}
}

// SemStat is IPC_STAT, or with slot SEM_STAT and with any SEM_STAT_ANY.
func (n *Namespace) SemStat(c *Caller, id int32, slot, any bool) (SemStat, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s, id, err := pick(&n.sem, id, slot)
	if err != nil {
		return SemStat{}, err
	}
	if !any && !s.Perm.May(c.Cred, 0o444) {
		return SemStat{}, unix.EACCES
	}
	return s.stat(id), nil
}

// SemSet is IPC_SET.
func (n *Namespace) SemSet(c *Caller, id int32, ch *Change) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	s, err := owned(&n.sem, c, id)
	if err == nil {
		s.Perm.set(ch)
		s.Ctime = c.Now
	}
	return err
}

// SemRemove is IPC_RMID: those that wait get EIDRM.
func (n *Namespace) SemRemove(c *Caller, id int32) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	s, err := owned(&n.sem, c, id)
	if err != nil {
		return err
	}
	n.sem.remove(s)
	n.sems -= len(s.sems)
	s.gone = true
	s.undos = nil
	s.free()
	s.queue.Notify(waitq.In | waitq.Hup)
	return nil
}

// SemValues is GETALL.
func (n *Namespace) SemValues(c *Caller, id int32) ([]uint16, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s, err := n.readable(c, id, 0o444)
	if err != nil {
		return nil, err
	}
	all := make([]uint16, len(s.sems))
	for i := range s.sems {
		all[i] = uint16(s.sems[i].val)
	}
	return all, nil
}

func (n *Namespace) readable(c *Caller, id int32, access uint32) (*Set, error) {
	s, err := n.sem.find(id)
	if err == nil && !s.Perm.May(c.Cred, access) {
		return nil, unix.EACCES
	}
	return s, err
}

// SemCount is the number of semaphores of a set that the caller may access so,
// for SETALL.
func (n *Namespace) SemCount(c *Caller, id int32, access uint32) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s, err := n.readable(c, id, access)
	if err != nil {
		return 0, err
	}
	return len(s.sems), nil
}

// SemSetAll is SETALL: ERANGE. Adjustments of all processes are forgotten.
func (n *Namespace) SemSetAll(c *Caller, id int32, vals []uint16) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	s, err := n.readable(c, id, 0o222)
	if err != nil {
		return err
	}
	for _, v := range vals {
		if v > SemVMX {
			return unix.ERANGE
		}
	}
	for i := range s.sems {
		s.sems[i] = semaphore{int32(vals[i]), c.TGID}
	}
	clear(s.undos)
	s.Ctime = c.Now
	s.queue.Notify(waitq.In)
	return nil
}

// SemSetOne is SETVAL: ERANGE, EINVAL.
func (n *Namespace) SemSetOne(c *Caller, id, num, val int32) error {
	if val < 0 || val > SemVMX {
		return unix.ERANGE
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	s, err := n.sem.find(id)
	if err != nil {
		return err
	}
	if num < 0 || int(num) >= len(s.sems) {
		return unix.EINVAL
	}
	if !s.Perm.May(c.Cred, 0o222) {
		return unix.EACCES
	}
	for _, adj := range s.undos {
		adj[num] = 0
	}
	s.sems[num] = semaphore{val, c.TGID}
	s.Ctime = c.Now
	s.queue.Notify(waitq.In)
	return nil
}

// SemOne is what GETVAL, GETPID, GETNCNT and GETZCNT tell of a semaphore.
type SemOne struct{ Val, PID, NCount, ZCount int32 }

// SemGetOne returns it: EINVAL, EACCES.
func (n *Namespace) SemGetOne(c *Caller, id, num int32) (SemOne, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s, err := n.readable(c, id, 0o444)
	if err != nil {
		return SemOne{}, err
	}
	if num < 0 || int(num) >= len(s.sems) {
		return SemOne{}, unix.EINVAL
	}
	one := SemOne{Val: s.sems[num].val, PID: s.sems[num].pid}
	for w := range s.waiters {
		switch {
		case int32(w.op.Num) != num:
		case w.op.Op == 0:
			one.ZCount++
		default:
			one.NCount++
		}
	}
	return one, nil
}

// SemUse is how many sets and semaphores there are, and the highest slot.
func (n *Namespace) SemUse() (sets, sems int, top int32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sem.used, n.sems, n.sem.top()
}

// Sets lists all, by slot.
func (n *Namespace) Sets() []SemStat {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []SemStat
	for i, s := range n.sem.slots {
		if s != nil {
			all = append(all, s.stat(n.sem.id(i)))
		}
	}
	return all
}
