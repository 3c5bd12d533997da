package syscalls

import (
	"strings"

	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/pkg/abi/linux"
	"runsc/sentry/fs/mqueue"
	"runsc/sentry/kernel"
	"runsc/sentry/vfs"
)

// Queues returns the message queues of an IPC namespace; those that are made
// by asking are paid for by container c.
func Queues(i *kernel.IPCNamespace, c *kernel.Container) *mqueue.FS {
	q := i.Queues(func() kernel.MessageQueues { return mqueue.New(c.Account()) })
	return q.(*mqueue.FS) // there is no other kind
}

func queuesOf(t *kernel.Task) *mqueue.FS { return Queues(t.IPC(), t.Container()) }

// mqAttr is struct mq_attr.
type mqAttr struct {
	Flags, MaxMsg, MsgSize, CurMsgs int64
	_                               [4]int64
}

// copyInQueueName reads a queue's name, which the C library has taken the
// leading slash from.
func copyInQueueName(t *kernel.Task, addr uint64) (string, error) {
	name, err := t.CopyInPath(addr)
	switch {
	case err != nil:
		return "", err
	case name == "":
		return "", unix.ENOENT
	case name == "." || name == ".." || strings.Contains(name, "/"):
		return "", unix.EACCES // lookup_noperm
	case len(name) > 255:
		return "", unix.ENAMETOOLONG
	}
	return name, nil
}

// sysMqOpen implements mq_open(2).
func sysMqOpen(t *kernel.Task, a Args) (uintptr, error) {
	var attr *mqueue.Attr
	flags := a.Uint(1)
	if addr := a.Addr(3); addr != 0 {
		var in mqAttr
		if err := t.CopyIn(addr, abi.Bytes(&in)); err != nil {
			return 0, err
		}
		attr = &mqueue.Attr{MaxMsg: in.MaxMsg, MsgSize: in.MsgSize}
	}
	name, err := copyInQueueName(t, a.Addr(0))
	if err != nil {
		return 0, err
	}
	if flags&unix.O_ACCMODE == unix.O_ACCMODE {
		return 0, unix.EINVAL
	}
	flags &= unix.O_ACCMODE | unix.O_CREAT | unix.O_EXCL | unix.O_NONBLOCK
	f, err := queuesOf(t).Open(t, name, flags, a.Uint(2)&0o7777&^t.FS().Umask(), attr)
	if err != nil {
		return 0, err
	}
	return install(t, f, true)
}

// sysMqUnlink implements mq_unlink(2).
func sysMqUnlink(t *kernel.Task, a Args) (uintptr, error) {
	name, err := copyInQueueName(t, a.Addr(0))
	if err != nil {
		return 0, err
	}
	return done(queuesOf(t).Unlink(t, name))
}

// getQueue returns the queue of fd and its file, a new reference.
func getQueue(t *kernel.Task, fd int32) (*mqueue.Queue, *vfs.File, error) {
	f, err := getFile(t, fd)
	if err != nil {
		return nil, nil, err
	}
	q, err := mqueue.Of(f)
	if err != nil {
		f.DecRef()
		return nil, nil, err
	}
	return q, f, nil
}

// mqDeadline reads an absolute time of day; a monotonic deadline, 0 for none.
func mqDeadline(t *kernel.Task, addr uint64) (int64, error) {
	if addr == 0 {
		return 0, nil
	}
	ns, err := copyInTimespec(t, addr)
	if err != nil {
		return 0, err
	}
	return max(t.Kernel().Deadline(unix.CLOCK_REALTIME, true, ns), 1), nil
}

// sysMqTimedsend implements mq_timedsend(2).
func sysMqTimedsend(t *kernel.Task, a Args) (uintptr, error) {
	deadline, err := mqDeadline(t, a.Addr(4))
	if err != nil {
		return 0, err
	}
	size, prio := a.Size(2), a.Uint(3)
	if prio >= mqueue.PrioMax {
		return 0, unix.EINVAL
	}
	q, f, err := getQueue(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	if !f.Writable() {
		return 0, unix.EBADF
	}
	if size > uint64(q.Attr().MsgSize) {
		return 0, unix.EMSGSIZE
	}
	data := make([]byte, size)
	if err := t.CopyIn(a.Addr(1), data); err != nil {
		return 0, err
	}
	try := func() error { return q.Send(t, data, prio) }
	if err = try(); err == unix.EAGAIN && !f.NonBlocking() {
		err = q.Wait(t, false, deadline, try)
	}
	return 0, err
}

// sysMqTimedreceive implements mq_timedreceive(2).
func sysMqTimedreceive(t *kernel.Task, a Args) (uintptr, error) {
	deadline, err := mqDeadline(t, a.Addr(4))
	if err != nil {
		return 0, err
	}
	q, f, err := getQueue(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	if !f.Readable() {
		return 0, unix.EBADF
	}
	if a.Size(2) < uint64(q.Attr().MsgSize) {
		return 0, unix.EMSGSIZE
	}
	var data []byte
	var prio uint32
	try := func() (err error) {
		data, prio, err = q.Receive(t)
		return err
	}
	if err = try(); err == unix.EAGAIN && !f.NonBlocking() {
		err = q.Wait(t, true, deadline, try)
	}
	if err != nil {
		return 0, err
	}
	if addr := a.Addr(3); addr != 0 {
		if err := t.CopyOut(addr, abi.Bytes(&prio)); err != nil {
			return 0, err
		}
	}
	return uintptr(len(data)), t.CopyOut(a.Addr(1), data)
}

// sysMqNotify implements mq_notify(2).
func sysMqNotify(t *kernel.Task, a Args) (uintptr, error) {
	var ev linux.Sigevent
	remove := a.Addr(1) == 0
	if !remove {
		if err := t.CopyIn(a.Addr(1), abi.Bytes(&ev)); err != nil {
			return 0, err
		}
		switch ev.Notify {
		case linux.SIGEV_NONE:
			ev.Signo = 0
		case linux.SIGEV_SIGNAL:
			if ev.Signo < 1 || ev.Signo > linux.NSIG {
				return 0, unix.EINVAL
			}
		case linux.SIGEV_THREAD:
			// The C library's thread reads from a netlink socket, the number
			// of which is here: there is none that could take it.
			return 0, unix.EBADF
		default:
			return 0, unix.EINVAL
		}
	}
	q, f, err := getQueue(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	if remove {
		q.Unnotify(t.TGID())
		return 0, nil
	}
	return done(q.Notify(t.ThreadGroup().Leader(), t.TGID(), ev.Signo, ev.Value))
}

// sysMqGetsetattr implements mq_getsetattr(2).
func sysMqGetsetattr(t *kernel.Task, a Args) (uintptr, error) {
	var in mqAttr
	set := a.Addr(1) != 0
	if set {
		if err := t.CopyIn(a.Addr(1), abi.Bytes(&in)); err != nil {
			return 0, err
		}
		if in.Flags&^unix.O_NONBLOCK != 0 {
			return 0, unix.EINVAL
		}
	}
	q, f, err := getQueue(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	at := q.Attr()
	flags := f.StatusFlags()
	out := mqAttr{Flags: int64(flags & unix.O_NONBLOCK), MaxMsg: at.MaxMsg, MsgSize: at.MsgSize, CurMsgs: int64(q.Len())}
	if set {
		if err := f.SetStatusFlags(t, flags&^unix.O_NONBLOCK|uint32(in.Flags)); err != nil {
			return 0, err
		}
	}
	if a.Addr(2) == 0 {
		return 0, nil
	}
	return done(t.CopyOut(a.Addr(2), abi.Bytes(&out)))
}
