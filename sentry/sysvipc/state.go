package sysvipc

import (
	"fmt"
	"sort"

	"golang.org/x/sys/unix"

	"runsc/sentry/image"
	"runsc/sentry/mem"
	"runsc/sentry/mm"
)

// SaveEnv is what saving a namespace needs from outside.
type SaveEnv struct {
	Saver *image.Saver
	MM    *mm.SaveEnv
	// Ended are those of processes that are left out of the image as if they
	// had ended: their adjustments are carried out.
	Ended map[*Undo]bool
}

// RestoreEnv is what restoring one needs from outside.
type RestoreEnv struct {
	Restorer *image.Restorer
	MM       *mm.RestoreEnv
	Account  *mem.Account
}

// Empty tells whether there are no objects.
func (n *Namespace) Empty() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.shm.used+n.sem.used+n.msg.used == 0
}

// Save writes the records of all objects and returns the number of the first; 0
// without objects.
func (n *Namespace) Save(e *SaveEnv) (image.ID, error) {
	if n.Empty() {
		return 0, nil
	}
	id, fresh := e.Saver.ID(n)
	if !fresh {
		return id, nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	rec := &image.SysV{
		ID:   id,
		Last: []int32{int32(n.shm.lastIdx), int32(n.sem.lastIdx), int32(n.msg.lastIdx)},
		Seq:  []uint32{n.shm.seq, n.sem.seq, n.msg.seq},
	}
	for i, s := range n.shm.slots {
		if s == nil {
			continue
		}
		m, err := s.Mem.Save(e.MM)
		if err != nil {
			return 0, err
		}
		rec.Segments = append(rec.Segments, image.SysVSegment{
			Perm: s.Perm.record(i), Shm: m, Size: s.Size, CPID: s.CPID, LPID: s.LPID, Atime: s.Atime, Dtime: s.Dtime, Ctime: s.Ctime,
		})
	}
	for i, s := range n.sem.slots {
		if s == nil {
			continue
		}
		sr := s.record(e, i)
		sr.ID, _ = e.Saver.ID(s)
		rec.Sets = append(rec.Sets, sr.ID)
		if err := e.Saver.Put(image.KindSysVSet, sr); err != nil {
			return 0, err
		}
	}
	for i, q := range n.msg.slots {
		if q == nil {
			continue
		}
		qr := &image.SysVMsgQueue{
			Perm: q.Perm.record(i), QBytes: q.QBytes, LSPID: q.LSPID, LRPID: q.LRPID, Stime: q.Stime, Rtime: q.Rtime, Ctime: q.Ctime,
		}
		for _, m := range q.messages {
			qr.Messages = append(qr.Messages, image.SysVMessage{Type: m.typ, Data: m.data})
		}
		qr.ID, _ = e.Saver.ID(q)
		rec.Queues = append(rec.Queues, qr.ID)
		if err := e.Saver.Put(image.KindSysVMsgQueue, qr); err != nil {
			return 0, err
		}
	}
	return id, e.Saver.Put(image.KindSysV, rec)
}

func (p *Perm) record(slot int) image.SysVPerm {
	return image.SysVPerm{Slot: int32(slot), Seq: p.Seq, Key: p.Key, UID: p.UID, GID: p.GID, CUID: p.CUID, CGID: p.CGID, Mode: p.Mode}
}

// record is the set with the adjustments carried out of processes that are
// left out.
func (s *Set) record(e *SaveEnv, slot int) *image.SysVSet {
	left := &Set{sems: append([]semaphore(nil), s.sems...)}
	r := &image.SysVSet{Perm: s.Perm.record(slot), Otime: s.Otime, Ctime: s.Ctime}
	for u, adj := range s.undos {
		if e.Ended[u] {
			left.adjust(adj, 0)
		}
	}
	for _, m := range left.sems {
		r.Values = append(r.Values, m.val)
		r.PIDs = append(r.PIDs, m.pid)
	}
	return r
}

// Save returns the records of a process's list. Its sets are in the image if
// their namespace is.
func (u *Undo) Save(saver *image.Saver) []image.SysVUndo {
	var all []image.SysVUndo
	for s := range u.sets {
		s.ns.mu.Lock()
		adj := append([]int16(nil), s.undos[u]...)
		s.ns.mu.Unlock()
		if id := saver.Known(s); id != 0 && len(adj) > 0 {
			all = append(all, image.SysVUndo{Set: id, Adj: adj})
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Set < all[j].Set })
	return all
}

// Restore takes the list of a process whose IPC namespace is restored.
func (u *Undo) Restore(r *image.Restorer, all []image.SysVUndo) error {
	for _, rec := range all {
		s, ok := image.Object[*Set](r, rec.Set)
		if !ok {
			return bad("an undo list")
		}
		s.ns.mu.Lock()
		valid := len(rec.Adj) == len(s.sems) && s.undos[u] == nil
		if valid {
			s.undos[u] = rec.Adj
		}
		s.ns.mu.Unlock()
		if !valid {
			return bad("an undo list")
		}
		if u.sets == nil {
			u.sets = map[*Set]bool{}
		}
		u.sets[s] = true
	}
	return nil
}

// Restore takes the objects of record id into a namespace that has none.
func (n *Namespace) Restore(e *RestoreEnv, id image.ID) error {
	var rec image.SysV
	if err := e.Restorer.Get(image.KindSysV, id, &rec); err != nil {
		return err
	}
	if !n.Empty() {
		return fmt.Errorf("the IPC namespace has System V objects already, and so has the image")
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(rec.Last) != 3 || len(rec.Seq) != 3 {
		return bad("its counters")
	}
	for _, r := range rec.Segments {
		if r.Size == 0 || r.Size > ShmMax {
			return bad("the size of a segment")
		}
		m, err := mm.RestoreShm(e.MM, r.Shm)
		if err != nil {
			return err
		}
		if m.Len() != pagesOf(r.Size)*4096 || SegmentOf(m) != nil {
			m.DecRef()
			return bad("the memory of a segment")
		}
		s := n.newSegment(m, r.Size, perm(&r.Perm))
		s.CPID, s.LPID, s.Atime, s.Dtime, s.Ctime = r.CPID, r.LPID, r.Atime, r.Dtime, r.Ctime
		if err := n.shm.put(s, r.Perm.Slot); err != nil {
			n.pages -= pagesOf(r.Size)
			s.release()
			return err
		}
	}
	for _, id := range rec.Sets {
		if err := n.restoreSet(e, id); err != nil {
			return err
		}
	}
	for _, id := range rec.Queues {
		if err := n.restoreQueue(e, id); err != nil {
			return err
		}
	}
	for i, c := range []struct {
		last *int
		seq  *uint32
	}{{&n.shm.lastIdx, &n.shm.seq}, {&n.sem.lastIdx, &n.sem.seq}, {&n.msg.lastIdx, &n.msg.seq}} {
		*c.last, *c.seq = int(min(max(rec.Last[i], -1), 1<<slotBits)), min(rec.Seq[i], seqMax)
	}
	return nil
}

func bad(what string) error {
	return fmt.Errorf("record of System V IPC: %s is not valid", what)
}

func perm(r *image.SysVPerm) Perm {
	return Perm{Key: r.Key, UID: r.UID, GID: r.GID, CUID: r.CUID, CGID: r.CGID, Mode: r.Mode & (0o777 | ShmDest | ShmLocked), Seq: min(r.Seq, seqMax)}
}

// put puts a restored object into its slot.
func (t *table[T]) put(o *T, slot int32) error {
	if slot < 0 || int(slot) >= t.max {
		return bad("a slot")
	}
	for len(t.slots) <= int(slot) {
		t.slots = append(t.slots, nil)
	}
	k := t.perm(o).Key
	if t.slots[slot] != nil || k != unix.IPC_PRIVATE && t.keys[k] != nil {
		return bad("a slot or key")
	}
	t.slots[slot] = o
	t.used++
	t.hash(o)
	return nil
}

func (n *Namespace) restoreSet(e *RestoreEnv, id image.ID) error {
	var r image.SysVSet
	s, err := image.Once(e.Restorer, id, func() (*Set, error) {
		if err := e.Restorer.Get(image.KindSysVSet, id, &r); err != nil {
			return nil, err
		}
		return n.makeSet(e, &r)
	})
	if err != nil {
		return err
	}
	return n.sem.put(s, r.Perm.Slot)
}

func (n *Namespace) makeSet(e *RestoreEnv, r *image.SysVSet) (*Set, error) {
	if len(r.Values) == 0 || len(r.Values) > SemMSL || len(r.PIDs) != len(r.Values) {
		return nil, bad("a semaphore set")
	}
	s, err := n.newSet(&Caller{Account: e.Account}, len(r.Values), perm(&r.Perm))
	if err != nil {
		return nil, err
	}
	s.Otime, s.Ctime = r.Otime, r.Ctime
	for i, v := range r.Values {
		if v < 0 || v > SemVMX {
			return nil, bad("a semaphore")
		}
		s.sems[i] = semaphore{v, r.PIDs[i]}
	}
	return s, nil
}

func (n *Namespace) restoreQueue(e *RestoreEnv, id image.ID) error {
	var r image.SysVMsgQueue
	if err := e.Restorer.Get(image.KindSysVMsgQueue, id, &r); err != nil {
		return err
	}
	q := &MsgQueue{
		ns: n, acct: e.Account, Perm: perm(&r.Perm), QBytes: r.QBytes, LSPID: r.LSPID, LRPID: r.LRPID,
		Stime: r.Stime, Rtime: r.Rtime, Ctime: r.Ctime,
	}
	for _, m := range r.Messages {
		if m.Type < 1 || len(m.Data) > MsgMax {
			return bad("a message")
		}
		if q.acct != nil && q.acct.Charge(uint64(len(m.Data))+messageSize) != nil {
			return unix.ENOMEM
		}
		q.messages = append(q.messages, message{m.Type, m.Data})
		q.bytes += uint64(len(m.Data))
	}
	return n.msg.put(q, r.Perm.Slot)
}

// Release ends a namespace that nobody uses any more: its objects go.
func (n *Namespace) Release() {
	n.mu.Lock()
	var segs []*Segment
	for _, s := range n.shm.slots {
		if s != nil && n.dropLocked(s) {
			segs = append(segs, s)
		}
	}
	for _, s := range n.sem.slots {
		if s != nil {
			n.sem.remove(s)
			s.gone = true
			s.free()
		}
	}
	for _, q := range n.msg.slots {
		if q != nil {
			n.msg.remove(q)
			q.gone = true
			for _, m := range q.messages {
				q.drop(m)
			}
			q.messages = nil
		}
	}
	n.sems = 0
	n.mu.Unlock()
	for _, s := range segs {
		s.release()
	}
}

// Settle drops removed segments that nothing maps, once all mappings of a
// restored container are there.
func (n *Namespace) Settle() {
	n.mu.Lock()
	var segs []*Segment
	for _, s := range n.shm.slots {
		if s != nil && s.Perm.Mode&ShmDest != 0 && s.attaching == 0 && n.dropLocked(s) {
			segs = append(segs, s)
		}
	}
	n.mu.Unlock()
	for _, s := range segs {
		s.release()
	}
}
