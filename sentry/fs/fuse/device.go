package fuse

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// The number of /dev/fuse.
const (
	DeviceMajor = 10
	DeviceMinor = 229
)

// device is an open /dev/fuse, fuse(4). It belongs to a connection since it was
// given to mount(2), or cloned.
type device struct {
	conn atomic.Pointer[conn] `save:"rec"`
	// early is waited on by who polls before there is a connection.
	early waitq.Queue `save:"rebuilt"`
}

// Release implements vfs.FileOps: without a device there is no server.
func (d *device) Release() {
	cn := d.conn.Load()
	if cn == nil {
		return
	}
	cn.mu.Lock()
	cn.devices--
	if cn.devices == 0 {
		cn.abortLocked()
	}
	cn.mu.Unlock()
}

// Queue implements vfs.Waitable.
func (d *device) Queue() *waitq.Queue {
	if cn := d.conn.Load(); cn != nil {
		return &cn.queue
	}
	return &d.early
}

// Ready implements vfs.FileOps.
func (d *device) Ready(mask waitq.Mask) waitq.Mask {
	cn := d.conn.Load()
	if cn == nil {
		return waitq.Err
	}
	cn.mu.Lock()
	defer cn.mu.Unlock()
	m := waitq.Out | waitq.WrNorm
	switch {
	case cn.state == connClosed:
		m = waitq.Err
	case len(cn.pending)+len(cn.interrupts)+len(cn.forgets) > 0:
		m |= waitq.In | waitq.RdNorm
	}
	return m & (mask | waitq.Always)
}

// attach makes d a device of cn.
func (d *device) attach(cn *conn) error {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	if !d.conn.CompareAndSwap(nil, cn) {
		return unix.EINVAL
	}
	cn.devices++
	return nil
}

// Read implements vfs.Reader: the server takes one message.
func (d *device) Read(_ vfs.Caller, _ *vfs.File, dst *mem.UserBuf) (int, error) {
	cn := d.conn.Load()
	if cn == nil {
		return 0, unix.EPERM
	}
	for {
		msg, r, err := cn.next(dst.Len())
		if err != nil || msg == nil && r == nil {
			return 0, err
		}
		if msg == nil {
			continue // it did not fit and was failed
		}
		n, err := dst.CopyOut(msg)
		if err != nil {
			if r != nil {
				cn.mu.Lock()
				cn.endLocked(r, nil, unix.EIO)
				cn.mu.Unlock()
			}
			return 0, err
		}
		return n, nil
	}
}

// next takes the next message out of the queues; EAGAIN if there is none.
func (cn *conn) next(room int) ([]byte, *request, error) {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	if room < max(minBuffer, inHeader+writeHeader+int(cn.maxWrite)) {
		return nil, nil, unix.EINVAL
	}
	if cn.state == connClosed {
		return nil, nil, unix.ENODEV
	}
	for len(cn.interrupts) > 0 {
		r := cn.interrupts[0]
		cn.interrupts = cn.interrupts[1:]
		if r.state == reqSent {
			return header(nil, opInterrupt, r.unique|1, 0, 8).u64(r.unique), nil, nil
		}
	}
	if n := len(cn.forgets); n > 0 {
		return cn.nextForget(room, n), nil, nil
	}
	if len(cn.pending) == 0 {
		return nil, nil, unix.EAGAIN
	}
	r := cn.pending[0]
	cn.pending[0] = nil
	cn.pending = cn.pending[1:]
	if len(r.data) > room {
		err := unix.EIO
		if r.op() == opSetxattr {
			err = unix.E2BIG
		}
		cn.endLocked(r, nil, err)
		return nil, r, nil
	}
	r.state = reqSent
	cn.sent[r.unique] = r
	return r.data, r, nil
}

func (cn *conn) nextForget(room, n int) []byte {
	cn.lastUnique += 2
	if n == 1 || cn.minor < 16 {
		f := cn.forgets[0]
		cn.forgets = cn.forgets[1:]
		return header(nil, opForget, cn.lastUnique, f.node, 8).u64(f.count)
	}
	n = min(n, (room-inHeader-8)/16)
	b := header(nil, opBatchForget, cn.lastUnique, 0, 8+16*n).u32(uint32(n), 0)
	for _, f := range cn.forgets[:n] {
		b = b.u64(f.node, f.count)
	}
	cn.forgets = cn.forgets[n:]
	return b
}

// Write implements vfs.Writer: the server answers, or notifies.
func (d *device) Write(_ vfs.Caller, _ *vfs.File, src *mem.UserBuf) (int, error) {
	cn := d.conn.Load()
	if cn == nil {
		return 0, unix.EPERM
	}
	n := src.Len()
	if n < outHeader || n > maxReply {
		return 0, unix.EINVAL
	}
	msg := make([]byte, n)
	if _, err := src.CopyIn(msg); err != nil {
		return 0, err
	}
	if int(u32(msg, 0)) != n {
		return 0, unix.EINVAL
	}
	code := int32(u32(msg, 4))
	unique := u64(msg, 8)
	if unique == 0 {
		if err := cn.notified(code, msg[outHeader:]); err != nil {
			return 0, err
		}
		return n, nil
	}
	if code <= -1000 || code > 0 {
		return 0, unix.EINVAL
	}
	if err := cn.answer(unique, unix.Errno(-code), msg[outHeader:]); err != nil {
		return 0, err
	}
	return n, nil
}

// answer completes the request with a number.
func (cn *conn) answer(unique uint64, code unix.Errno, reply []byte) error {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	r := cn.sent[unique&^1]
	if r == nil {
		return unix.ENOENT
	}
	if unique&1 != 0 {
		switch {
		case len(reply) != 0:
			return unix.EINVAL
		case code == unix.ENOSYS:
			cn.missing[opInterrupt] = true
		case code == unix.EAGAIN:
			cn.interrupts = append(cn.interrupts, r)
			cn.queue.Notify(waitq.In | waitq.RdNorm)
		}
		return nil
	}
	bad := len(reply) < r.least || len(reply) > r.most
	if code != 0 {
		bad = len(reply) != 0
	}
	if bad {
		cn.endLocked(r, nil, unix.EIO)
		return unix.EINVAL
	}
	cn.endLocked(r, reply, code)
	return nil
}

// devClone is FUSE_DEV_IOC_CLONE.
const devClone = 0x8004e500

// filesOf are the descriptors of a caller that is a task.
type filesOf interface{ Files() *vfs.FDTable }

// deviceAt finds the open device that is descriptor fd of the caller.
func deviceAt(c vfs.Caller, fd int32) (*device, *vfs.File, error) {
	t, ok := c.(filesOf)
	if !ok {
		return nil, nil, unix.EINVAL
	}
	f, err := t.Files().Get(fd)
	if err != nil {
		return nil, nil, unix.EINVAL
	}
	d, ok := f.Ops().(*device)
	if !ok {
		f.DecRef()
		return nil, nil, unix.EINVAL
	}
	return d, f, nil
}

// Ioctl implements vfs.Ioctler: another descriptor for the same connection.
func (d *device) Ioctl(c vfs.Caller, _ *vfs.File, m mem.Memory, cmd uint32, arg uint64) (uintptr, error) {
	if cmd != devClone {
		return 0, unix.ENOTTY
	}
	var b [4]byte
	if _, err := m.CopyIn(b[:], arg); err != nil {
		return 0, err
	}
	old, f, err := deviceAt(c, int32(u32(b[:], 0)))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	cn := old.conn.Load()
	if cn == nil {
		return 0, unix.EINVAL
	}
	return 0, d.attach(cn)
}
