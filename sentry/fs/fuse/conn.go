package fuse

import (
	"bytes"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/errs"
	"runsc/sentry/vfs"
)

// States of a connection.
const (
	connNew    = iota // the server has not answered INIT
	connOpen          //
	connClosed        // aborted
)

// States of a request.
const (
	reqPending = iota // not read by the server
	reqSent
	reqDone
)

// request is one message to the server and its answer.
type request struct {
	// immutable:
	unique uint64 `save:"rec"`
	data   []byte `save:"rec"` // header and arguments
	// The answer has between least and most bytes after its header.
	least, most int              `save:"rec"`
	then        func(r *request) `save:"rebuilt"` // called with mu held when it is done (INIT)

	// conn.mu guards:
	state       int        `save:"rec"`
	reply       []byte     `save:"rec"`
	err         unix.Errno `save:"rec"`
	posted      bool       `save:"rebuilt"`                       // counted in conn.posted
	waited      bool       `save:"rec"`                           // somebody waits, or will come back
	interrupted bool       `save:"rec"`                           // INTERRUPT was asked for
	left        time.Time  `save:"none: begins with the restore"` // since when nobody waits

	queue waitq.Queue `save:"rebuilt"`
}

func (r *request) op() uint32 { return u32(r.data, 4) }

// same tells whether two requests ask the same for the same process.
func (r *request) same(data []byte) bool {
	return len(r.data) == len(data) && bytes.Equal(r.data[:8], data[:8]) && bytes.Equal(r.data[16:], data[16:])
}

type forget struct {
	node, count uint64
}

// conn joins a server with its file system.
type conn struct {
	mu sync.Mutex `save:"none: not held at a stop"`
	// mu guards:
	state      int                 `save:"rec"`
	pending    []*request          `save:"rec"`
	sent       map[uint64]*request `save:"rec"`
	orphans    []*request          `save:"rec"` // whose callers will come back
	interrupts []*request          `save:"rec"`
	forgets    []forget            `save:"rec"`
	lastUnique uint64              `save:"rec"`
	devices    int                 `save:"rebuilt"` // open devices
	flags      uint32              `save:"rec"`     // of INIT
	minor      uint32              `save:"rec"`
	maxWrite   uint32              `save:"rec"`
	posted     int                 `save:"rebuilt"` // bytes of requests that nobody waits for
	missing    [numOps]bool        `save:"rec"`     // operations that the server does not have
	fs         *FS                 `save:"rebuilt"`

	queue waitq.Queue `save:"rebuilt"` // of those who read the device
	ready waitq.Queue `save:"rebuilt"` // of those who wait for INIT
}

func newConn() *conn {
	return &conn{sent: map[uint64]*request{}, maxWrite: 4096, lastUnique: 0}
}

// orphanTime is how long a request whose caller left for a checkpoint waits
// for it to come back.
const orphanTime = 30 * time.Second

// header returns the header of a request with n bytes of arguments.
func header(c vfs.Caller, op uint32, unique, node uint64, n int) body {
	var uid, gid, pid uint32
	if c != nil {
		cr := c.Cred()
		uid, gid, pid = cr.FSUID, cr.FSGID, uint32(c.TGID())
	}
	return make(body, 0, inHeader+n).u32(uint32(inHeader+n), op).u64(unique, node).u32(uid, gid, pid, 0)
}

// enqueueLocked adds a request.
func (cn *conn) enqueueLocked(c vfs.Caller, op uint32, node uint64, args []byte, least, most int) *request {
	cn.lastUnique += 2 // odd numbers are INTERRUPT's
	r := &request{unique: cn.lastUnique, least: least, most: most}
	r.data = append(header(c, op, r.unique, node, len(args)), args...)
	cn.pending = append(cn.pending, r)
	return r
}

// start sends INIT, which the file system's first callers wait for.
func (cn *conn) start() {
	cn.mu.Lock()
	args := body{}.u32(protoMajor, protoMinor, maxData, initOffered)
	r := cn.enqueueLocked(nil, opInit, 0, args, 8, 256)
	r.then = cn.initDone
	cn.mu.Unlock()
	cn.queue.Notify(waitq.In | waitq.RdNorm)
}

// initDone takes the answer to INIT; mu is held.
func (cn *conn) initDone(r *request) {
	if cn.state != connNew {
		return
	}
	b := r.reply
	if r.err != 0 || len(b) < 24 || u32(b, 0) != protoMajor || u32(b, 4) < minMinor {
		cn.abortLocked()
		return
	}
	cn.minor = min(u32(b, 4), protoMinor)
	cn.flags = u32(b, 12) & initOffered
	cn.maxWrite = max(u32(b, 20), 4096)
	limit := uint32(32 * 4096)
	if cn.flags&initMaxPages != 0 && len(b) >= 30 {
		limit = max(min(u32(b, 28)&0xffff*4096, maxData), 4096)
	}
	cn.maxWrite = min(cn.maxWrite, limit)
	cn.state = connOpen
	cn.ready.Notify(waitq.In)
}

// waitReady waits for INIT's answer.
func (cn *conn) waitReady(c vfs.Caller) error {
	cn.mu.Lock()
	state := cn.state
	cn.mu.Unlock()
	if state == connOpen {
		return nil
	}
	e := waitq.Entry{Waiter: c.Waiter()}
	cn.ready.Register(&e, waitq.In)
	defer cn.ready.Unregister(&e)
	for {
		cn.mu.Lock()
		state := cn.state
		cn.mu.Unlock()
		switch state {
		case connOpen:
			return nil
		case connClosed:
			return unix.ENOTCONN
		}
		if err := c.Block(e.Waiter, 0); err != nil {
			if err == errs.ERESTARTSYS {
				err = unix.EINTR
			}
			return err
		}
	}
}

// call sends a request and waits for the answer, whose length after the header is least to most.
// ENOSYS is remembered.
func (cn *conn) call(c vfs.Caller, op uint32, node uint64, args []byte, least, most int) ([]byte, error) {
	return cn.do(c, op, node, args, least, most, false)
}

// do is call; with force the request is sent even if the caller is killed.
func (cn *conn) do(c vfs.Caller, op uint32, node uint64, args []byte, least, most int, force bool) ([]byte, error) {
	if err := cn.waitReady(c); err != nil {
		return nil, err
	}
	cn.mu.Lock()
	if cn.missing[op] {
		cn.mu.Unlock()
		return nil, unix.ENOSYS
	}
	r := cn.adoptLocked(header(c, op, 0, node, len(args)), args)
	if r == nil {
		if cn.state == connClosed {
			cn.mu.Unlock()
			return nil, unix.ENOTCONN
		}
		r = cn.enqueueLocked(c, op, node, args, least, most)
	}
	r.waited = true
	cn.mu.Unlock()
	cn.queue.Notify(waitq.In | waitq.RdNorm)
	err := cn.wait(c, r, force)
	if err != nil {
		return nil, err
	}
	if r.err == unix.ENOSYS {
		cn.mu.Lock()
		cn.missing[op] = true
		cn.mu.Unlock()
	}
	if r.err != 0 {
		return nil, r.err
	}
	return r.reply, nil
}

// adoptLocked returns the request that the caller left at a checkpoint.
func (cn *conn) adoptLocked(head body, args []byte) *request {
	if len(cn.orphans) == 0 {
		return nil
	}
	data := append(head, args...)
	kept := cn.orphans[:0]
	var found *request
	for _, r := range cn.orphans {
		switch {
		case found == nil && r.same(data):
			found = r
		case time.Since(r.left) > orphanTime:
			r.waited = false
		default:
			kept = append(kept, r)
		}
	}
	clear(cn.orphans[len(kept):])
	cn.orphans = kept
	return found
}

// killable is a caller that can wait without minding signals.
type killable interface {
	BlockKillable(w *waitq.Waiter, deadline int64) error
}

// wait waits for the answer to r (Linux's request_wait_answer).
func (cn *conn) wait(c vfs.Caller, r *request, force bool) error {
	e := waitq.Entry{Waiter: c.Waiter()}
	r.queue.Register(&e, waitq.In)
	defer r.queue.Unregister(&e)
	signalled := false
	for {
		cn.mu.Lock()
		done := r.state == reqDone
		cn.mu.Unlock()
		if done {
			return nil
		}
		var err error
		if k, ok := c.(killable); ok && (signalled || force) {
			err = k.BlockKillable(e.Waiter, 0)
		} else {
			err = c.Block(e.Waiter, 0)
		}
		switch err {
		case nil:
		case errs.ERESTARTCKPT:
			cn.mu.Lock()
			r.left = time.Now()
			cn.orphans = append(cn.orphans, r)
			cn.mu.Unlock()
			return err
		case errs.ERESTARTSYS:
			if cn.interrupt(r) {
				return unix.EINTR
			}
			signalled = true
		default:
			cn.leave(r, force)
			return err
		}
	}
}

// interrupt takes back a request that the server has not read, or tells the
// server that its caller was interrupted.
func (cn *conn) interrupt(r *request) (taken bool) {
	cn.mu.Lock()
	if r.state == reqPending {
		cn.unqueueLocked(r)
		cn.mu.Unlock()
		return true
	}
	tell := r.state == reqSent && !r.interrupted && !cn.missing[opInterrupt]
	if tell {
		r.interrupted = true
		cn.interrupts = append(cn.interrupts, r)
	}
	cn.mu.Unlock()
	if tell {
		cn.queue.Notify(waitq.In | waitq.RdNorm)
	}
	return false
}

// leave is for a caller that is killed: nobody waits for r.
func (cn *conn) leave(r *request, force bool) {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	r.waited = false
	if r.state == reqPending && !force {
		cn.unqueueLocked(r)
	}
}

func (cn *conn) unqueueLocked(r *request) {
	for i, p := range cn.pending {
		if p == r {
			cn.pending = append(cn.pending[:i:i], cn.pending[i+1:]...)
			return
		}
	}
}

// maxPosted bounds the bytes of requests that nobody waits for: they are the
// Sentry's memory as long as the server does not read them.
const maxPosted = 32 << 20

// post sends a request whose answer nobody waits for. It returns false if there are too
// many bytes of those.
func (cn *conn) post(op uint32, node uint64, args []byte, most int) bool {
	cn.mu.Lock()
	if cn.state != connOpen || cn.missing[op] {
		cn.mu.Unlock()
		return true
	}
	if op == opWrite && cn.posted+len(args) > maxPosted {
		cn.mu.Unlock()
		return false
	}
	r := cn.enqueueLocked(nil, op, node, args, 0, most)
	cn.posted += len(r.data)
	r.posted = true
	cn.mu.Unlock()
	cn.queue.Notify(waitq.In | waitq.RdNorm)
	return true
}

// forget tells the server that count lookups of node are forgotten.
func (cn *conn) forget(node, count uint64) {
	if count == 0 || node == rootID {
		return
	}
	cn.mu.Lock()
	if cn.state == connClosed {
		cn.mu.Unlock()
		return
	}
	cn.forgets = append(cn.forgets, forget{node, count})
	cn.mu.Unlock()
	cn.queue.Notify(waitq.In | waitq.RdNorm)
}

// endLocked completes r.
func (cn *conn) endLocked(r *request, reply []byte, err unix.Errno) {
	if r.posted {
		r.posted = false
		cn.posted -= len(r.data)
	}
	r.state, r.reply, r.err = reqDone, reply, err
	delete(cn.sent, r.unique)
	if r.then != nil {
		r.then(r)
	}
	r.queue.Notify(waitq.In)
}

// abort ends the connection: nothing is answered any more.
func (cn *conn) abort() {
	cn.mu.Lock()
	cn.abortLocked()
	cn.mu.Unlock()
}

func (cn *conn) abortLocked() {
	if cn.state == connClosed {
		return
	}
	cn.state = connClosed
	pending := cn.pending
	cn.pending, cn.forgets, cn.interrupts = nil, nil, nil
	for _, r := range pending {
		cn.endLocked(r, nil, unix.ECONNABORTED)
	}
	for _, r := range cn.sent {
		cn.endLocked(r, nil, unix.ECONNABORTED)
	}
	cn.ready.Notify(waitq.In)
	cn.queue.Notify(waitq.In | waitq.RdNorm | waitq.Err)
}
