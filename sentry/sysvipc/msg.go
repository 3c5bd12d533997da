package sysvipc

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/mem"
)

// message is one of a queue.
type message struct {
	typ  int64  `save:"rec"`
	data []byte `save:"rec"`
}

// messageSize is what a message is charged with besides its bytes.
const messageSize = 48

// MsgQueue is a message queue (struct msg_queue).
type MsgQueue struct {
	// immutable:
	ns   *Namespace   `save:"rebuilt"`
	acct *mem.Account `save:"rebuilt"`

	queue waitq.Queue `save:"rebuilt"` // In: a message came; Out: there is room

	// Namespace.mu guards:
	Perm                Perm      `save:"rec"`
	Stime, Rtime, Ctime int64     `save:"rec"`
	LSPID, LRPID        int32     `save:"rec"`
	QBytes              uint64    `save:"rec"`
	bytes               uint64    `save:"rebuilt"`
	messages            []message `save:"rec"`
	gone                bool      `save:"none: not in the table"`
}

// MsgGet is msgget(2).
func (n *Namespace) MsgGet(c *Caller, key int32, flags uint32) (int32, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return get(&n.msg, c, key, flags, func(*MsgQueue) error { return nil }, func(p Perm) (*MsgQueue, error) {
		return &MsgQueue{ns: n, acct: c.Account, Perm: p, Ctime: c.Now, QBytes: MsgMNB}, nil
	})
}

// MsgFind returns the queue that the caller may access so: EINVAL, EIDRM, EACCES.
func (n *Namespace) MsgFind(c *Caller, id int32, access uint32) (*MsgQueue, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	q, err := n.msg.find(id)
	if err == nil && !q.Perm.May(c.Cred, access) {
		return nil, unix.EACCES
	}
	return q, err
}

// Queue tells when a try is worth while.
func (q *MsgQueue) Queue() *waitq.Queue { return &q.queue }

// Send is one try of msgsnd(2): EAGAIN without room, EIDRM, EACCES, ENOMEM.
func (q *MsgQueue) Send(c *Caller, typ int64, data []byte) error {
	q.ns.mu.Lock()
	defer q.ns.mu.Unlock()
	n := uint64(len(data))
	switch {
	case q.gone:
		return unix.EIDRM
	case !q.Perm.May(c.Cred, 0o222):
		return unix.EACCES
	case q.bytes+n > q.QBytes || uint64(len(q.messages))+1 > q.QBytes:
		return unix.EAGAIN
	}
	if q.acct != nil && q.acct.Charge(n+messageSize) != nil {
		return unix.ENOMEM
	}
	q.messages = append(q.messages, message{typ, data})
	q.bytes += n
	q.LSPID, q.Stime = c.TGID, c.Now
	q.queue.Notify(waitq.In)
	return nil
}

// Flags of msgrcv(2).
const (
	MsgNoError = 0o10000
	MsgExcept  = 0o20000
	MsgCopy    = 0o40000
)

// Receive is one try of msgrcv(2): ENOMSG without a message that fits what is
// asked for, E2BIG for one that is longer than max, EIDRM, EACCES.
func (q *MsgQueue) Receive(c *Caller, max uint64, typ int64, flags uint32) (int64, []byte, error) {
	q.ns.mu.Lock()
	defer q.ns.mu.Unlock()
	if q.gone {
		return 0, nil, unix.EIDRM
	}
	if !q.Perm.May(c.Cred, 0o444) {
		return 0, nil, unix.EACCES
	}
	i := q.pick(typ, flags)
	if i < 0 {
		return 0, nil, unix.ENOMSG
	}
	m := q.messages[i]
	if uint64(len(m.data)) > max && flags&MsgNoError == 0 {
		return 0, nil, unix.E2BIG
	}
	if flags&MsgCopy == 0 {
		q.messages = append(q.messages[:i], q.messages[i+1:]...)
		q.drop(m)
		q.LRPID, q.Rtime = c.TGID, c.Now
		q.queue.Notify(waitq.Out)
	}
	return m.typ, m.data[:min(uint64(len(m.data)), max)], nil
}

func (q *MsgQueue) drop(m message) {
	q.bytes -= uint64(len(m.data))
	if q.acct != nil {
		q.acct.Uncharge(uint64(len(m.data)) + messageSize)
	}
}

// pick returns the index of the message to receive (find_msg, testmsg).
func (q *MsgQueue) pick(typ int64, flags uint32) int {
	if flags&MsgCopy != 0 {
		if typ >= 0 && typ < int64(len(q.messages)) {
			return int(typ)
		}
		return -1
	}
	best := -1
	for i, m := range q.messages {
		switch {
		case typ == 0, typ > 0 && flags&MsgExcept == 0 && m.typ == typ, typ > 0 && flags&MsgExcept != 0 && m.typ != typ:
			return i
		case typ < 0 && m.typ <= -max(typ, -1<<63+1) && (best < 0 || m.typ < q.messages[best].typ):
			best = i
		}
	}
	return best
}

// MsgStat is what IPC_STAT tells of a queue.
type MsgStat struct {
	ID                  int32
	Perm                Perm
	Stime, Rtime, Ctime int64
	LSPID, LRPID        int32
	Bytes, QBytes       uint64
	Messages            int
}

func (q *MsgQueue) stat(id int32) MsgStat {
	return MsgStat{
		ID: id, Perm: q.Perm, Stime: q.Stime, Rtime: q.Rtime, Ctime: q.Ctime, LSPID: q.LSPID, LRPID: q.LRPID,
		Bytes: q.bytes, QBytes: q.QBytes, Messages: len(q.messages),
	}
}

// MsgStat is IPC_STAT, or with slot MSG_STAT and with any MSG_STAT_ANY.
func (n *Namespace) MsgStat(c *Caller, id int32, slot, any bool) (MsgStat, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	q, id, err := pick(&n.msg, id, slot)
	if err != nil {
		return MsgStat{}, err
	}
	if !any && !q.Perm.May(c.Cred, 0o444) {
		return MsgStat{}, unix.EACCES
	}
	return q.stat(id), nil
}

// MsgSet is IPC_SET: EPERM too for more bytes than MsgMNB without CAP_SYS_RESOURCE.
func (n *Namespace) MsgSet(c *Caller, id int32, ch *Change) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	q, err := owned(&n.msg, c, id)
	if err != nil {
		return err
	}
	if ch.QBytes > MsgMNB && !c.Cred.Has(unix.CAP_SYS_RESOURCE) {
		return unix.EPERM
	}
	q.Perm.set(ch)
	q.QBytes, q.Ctime = ch.QBytes, c.Now
	q.queue.Notify(waitq.In | waitq.Out)
	return nil
}

// MsgRemove is IPC_RMID: those that wait get EIDRM.
func (n *Namespace) MsgRemove(c *Caller, id int32) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	q, err := owned(&n.msg, c, id)
	if err != nil {
		return err
	}
	n.msg.remove(q)
	q.gone = true
	for _, m := range q.messages {
		q.drop(m)
	}
	q.messages = nil
	q.queue.Notify(waitq.In | waitq.Out | waitq.Hup)
	return nil
}

// MsgUse is how many queues, messages and bytes there are, and the highest slot.
func (n *Namespace) MsgUse() (queues, messages int, bytes uint64, top int32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, q := range n.msg.slots {
		if q != nil {
			messages += len(q.messages)
			bytes += q.bytes
		}
	}
	return n.msg.used, messages, bytes, n.msg.top()
}

// MsgQueues lists all, by slot.
func (n *Namespace) MsgQueues() []MsgStat {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []MsgStat
	for i, q := range n.msg.slots {
		if q != nil {
			all = append(all, q.stat(n.msg.id(i)))
		}
	}
	return all
}
