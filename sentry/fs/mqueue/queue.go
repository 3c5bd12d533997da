package mqueue

import (
	"fmt"
	"sort"
	"sync"

	"golang.org/x/sys/unix"

	"runsc/pkg/abi/linux"
	"runsc/pkg/waitq"
	"runsc/sentry/arch"
	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// PrioMax is MQ_PRIO_MAX: priorities are below it.
const PrioMax = 32768

// fileSize is st_size of a queue (FILENT_SIZE).
const fileSize = 80

// Attr are the sizes of a queue.
type Attr struct {
	MaxMsg, MsgSize int64
}

// message is one that waits. Equal priorities are in the order of sending.
type message struct {
	prio uint32 `save:"rec"`
	data []byte `save:"rec"`
}

// Target is who is told of a message: the leader of a thread group.
type Target interface {
	SendSignal(info *arch.SigInfo) error
}

// notification is what mq_notify(3) asked for.
type notification struct {
	target Target `save:"rec"`
	tgid   int32  `save:"rec"` // of target, which ends with its process
	signal int32  `save:"rec"` // 0: SIGEV_NONE
	value  uint64 `save:"rec"`
}

// Queue is a message queue, the inode of its file.
type Queue struct {
	// immutable after newQueue:
	fs    *FS    `save:"rec"`
	ino   uint64 `save:"rec"`
	attr  Attr   `save:"rec"`
	owner uint32 `save:"rec"` // whose RLIMIT_MSGQUEUE pays

	queue waitq.Queue `save:"rebuilt"`

	mu sync.Mutex `save:"none: not held at a stop"`
	// mu guards:
	st       vfs.Stat      `save:"rec"`
	messages []message     `save:"rec"` // the next one to be received first
	bytes    int64         `save:"rebuilt"`
	readers  int           `save:"none: those who wait enter again"` // blocked in Receive
	notify   *notification `save:"rec"`
	refs     int           `save:"rebuilt"`
	freed    bool          `save:"none: a freed queue is not saved"`
}

// cost is what a queue counts in RLIMIT_MSGQUEUE: its messages at their
// largest and what the kernel keeps for each and for each priority
// (mqueue_get_inode).
func (a Attr) cost() uint64 {
	const perMessage, perPriority = 48, 48
	return uint64(a.MaxMsg)*(perMessage+uint64(a.MsgSize)) + min(uint64(a.MaxMsg), PrioMax)*perPriority
}

// IncRef implements vfs.Inode.
func (q *Queue) IncRef() {
	q.mu.Lock()
	q.refs++
	q.mu.Unlock()
}

// DecRef implements vfs.Inode: without a name and a reference a queue goes.
func (q *Queue) DecRef() {
	q.mu.Lock()
	q.refs--
	q.freeLocked()
	q.mu.Unlock()
}

// freeLocked frees q if nothing has it any more.
func (q *Queue) freeLocked() {
	if q.refs > 0 || q.st.Nlink > 0 || q.freed {
		return
	}
	q.freed = true
	users.drop(q.owner, q.attr.cost())
	q.fs.uncharge(q.bytes + queueCost)
	q.messages, q.bytes, q.notify = nil, 0, nil
}

// Stat implements vfs.Inode.
func (q *Queue) Stat(vfs.Caller, uint32) (vfs.Stat, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.st, nil
}

// SetStat implements vfs.Inode. A queue has no contents to cut: a size is
// taken and means nothing.
func (q *Queue) SetStat(c vfs.Caller, s *vfs.SetStat) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	s.Apply(&q.st, c.RealTime())
	return nil
}

// Open implements vfs.Inode.
func (q *Queue) Open(vfs.Caller, *vfs.Dentry, uint32) (vfs.FileOps, error) { return &file{q}, nil }

// Attr are the sizes of q.
func (q *Queue) Attr() Attr { return q.attr }

// Len is the number of messages.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.messages)
}

// Send implements mq_send(3): EAGAIN if the queue is full. data is taken over.
func (q *Queue) Send(c vfs.Caller, data []byte, prio uint32) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if int64(len(q.messages)) >= q.attr.MaxMsg {
		return unix.EAGAIN
	}
	size := int64(len(data)) + messageCost
	if err := q.fs.charge(size); err != nil {
		return err
	}
	q.bytes += size
	at := sort.Search(len(q.messages), func(i int) bool { return q.messages[i].prio < prio })
	q.messages = append(q.messages, message{})
	copy(q.messages[at+1:], q.messages[at:])
	q.messages[at] = message{prio, data}
	q.touchLocked(c)
	if len(q.messages) == 1 && q.readers == 0 {
		q.tellLocked(c)
	}
	q.queue.Notify(waitq.In | waitq.RdNorm)
	return nil
}

// tellLocked notifies who asked for it, once.
func (q *Queue) tellLocked(c vfs.Caller) {
	n := q.notify
	q.notify = nil
	if n == nil || n.signal == 0 {
		return
	}
	info := arch.SigInfo{Signo: n.signal, Code: linux.SI_MESGQ}
	info.SetPID(c.TGID())
	info.SetUID(c.Cred().UID)
	info.SetValue(n.value)
	_ = n.target.SendSignal(&info) // the process may be gone
}

// Receive implements mq_receive(3): the message with the highest priority, of
// these the oldest. EAGAIN if there is none.
func (q *Queue) Receive(c vfs.Caller) (data []byte, prio uint32, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.messages) == 0 {
		return nil, 0, unix.EAGAIN
	}
	m := q.messages[0]
	q.messages[0] = message{}
	q.messages = q.messages[1:]
	size := int64(len(m.data)) + messageCost
	q.bytes -= size
	q.fs.uncharge(size)
	q.touchLocked(c)
	q.queue.Notify(waitq.Out | waitq.WrNorm)
	return m.data, m.prio, nil
}

func (q *Queue) touchLocked(c vfs.Caller) {
	now := vfs.TimespecOf(c.RealTime())
	q.st.Atime, q.st.Mtime, q.st.Ctime = now, now, now
}

// Wait blocks until try does something else than EAGAIN, until deadline
// (monotonic, 0 for none). While a receiver waits nobody is notified.
func (q *Queue) Wait(c vfs.Caller, receive bool, deadline int64, try func() error) error {
	mask := waitq.Out
	if receive {
		mask = waitq.In
	}
	e := waitq.Entry{Waiter: c.Waiter()}
	q.queue.Register(&e, mask)
	defer q.queue.Unregister(&e)
	if receive {
		q.countReader(1)
		defer q.countReader(-1)
	}
	for {
		if err := try(); err != unix.EAGAIN {
			return err
		}
		if err := c.Block(e.Waiter, deadline); err != nil {
			return err
		}
	}
}

func (q *Queue) countReader(n int) {
	q.mu.Lock()
	q.readers += n
	q.mu.Unlock()
}

// Notify implements mq_notify(3): target, of thread group tgid, gets signal
// (0 for none) with the next message that comes to an empty queue. EBUSY if
// somebody is to be notified already.
func (q *Queue) Notify(target Target, tgid, signal int32, value uint64) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.notify != nil {
		return unix.EBUSY
	}
	q.notify = &notification{target, tgid, signal, value}
	return nil
}

// Unnotify takes the registration of a thread group away.
func (q *Queue) Unnotify(tgid int32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.notify != nil && q.notify.tgid == tgid {
		q.notify = nil
	}
}

// Of returns the queue that f is an open file of; EBADF if it is of none.
func Of(f *vfs.File) (*Queue, error) {
	if o, ok := f.Ops().(*file); ok {
		return o.q, nil
	}
	return nil, unix.EBADF
}

// file is an open queue.
type file struct {
	q *Queue `save:"rebuilt"`
}

// Release implements vfs.FileOps.
func (*file) Release() {}

// Queue implements vfs.Waitable.
func (o *file) Queue() *waitq.Queue { return &o.q.queue }

// Ready implements vfs.FileOps.
func (o *file) Ready(mask waitq.Mask) waitq.Mask {
	n := int64(o.q.Len())
	var m waitq.Mask
	if n > 0 {
		m |= waitq.In | waitq.RdNorm
	}
	if n < o.q.attr.MaxMsg {
		m |= waitq.Out | waitq.WrNorm
	}
	return m & (mask | waitq.Always)
}

// Flush implements vfs.Flusher: a process that closes the queue is not
// notified any more.
func (o *file) Flush(c vfs.Caller) error {
	o.q.Unnotify(c.TGID())
	return nil
}

// ReadAt implements vfs.ReaderAt: a line about the queue.
func (o *file) ReadAt(_ vfs.Caller, _ *vfs.File, dst *mem.UserBuf, off int64) (int, error) {
	q := o.q
	q.mu.Lock()
	size := q.bytes - int64(len(q.messages))*messageCost
	var how, signal, pid int32
	if n := q.notify; n != nil {
		pid, signal = n.tgid, n.signal
		if signal == 0 {
			how = linux.SIGEV_NONE
		}
	}
	q.mu.Unlock()
	line := fmt.Sprintf("QSIZE:%-10d NOTIFY:%-5d SIGNO:%-5d NOTIFY_PID:%-6d\n", size, how, signal, pid)
	if off >= int64(len(line)) {
		return 0, nil
	}
	return dst.CopyOut([]byte(line)[off:])
}
