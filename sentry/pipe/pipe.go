package pipe

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// ids numbers the pipes, for the lock order.
var ids atomic.Uint64

// Pipe is one pipe or fifo, pipe_inode_info in Linux.
type Pipe struct {
	mu sync.Mutex `save:"none: not held at a stop"`
	// mu guards:
	ring     ring `save:"rec"`
	capacity int  `save:"rec"`
	readers  int  `save:"rebuilt"`
	writers  int  `save:"rebuilt"`
	// opens of each kind so far, for the opens of a fifo that wait
	readOpens, writeOpens uint64 `save:"rec"`

	// immutable after New
	id uint64 `save:"rebuilt"`

	// queue has its own lock, which is taken after mu was released. Readers
	// wait for In, writers for Out.
	queue waitq.Queue `save:"rebuilt"`
}

// New returns a pipe with no ends.
func New() *Pipe {
	p := &Pipe{id: ids.Add(1), capacity: DefaultSize}
	if total.Load() > softTotal {
		p.capacity = smallSize
	}
	return p
}

// NewPair returns a new pipe's read and write ends.
func NewPair() (r, w *End) {
	p := New()
	p.readers, p.writers, p.readOpens, p.writeOpens = 1, 1, 1, 1
	return &End{p: p, reads: true}, &End{p: p, writes: true}
}

// End is an open end of a pipe (both, for a fifo opened O_RDWR). It
// implements vfs.FileOps and the interfaces of a stream.
type End struct {
	p             *Pipe `save:"rec"`
	reads, writes bool  `save:"rec"`

	// quiet is the value of writeOpens as long as no writer has come since
	// this end was opened: no POLLHUP yet (fifo_open's f_version).
	quiet   uint64 `save:"rec"`
	isQuiet bool   `save:"rec"`
}

var (
	_ vfs.Reader   = (*End)(nil)
	_ vfs.Writer   = (*End)(nil)
	_ vfs.Waitable = (*End)(nil)
	_ vfs.Ioctler  = (*End)(nil)
)

// Pipe returns the end's pipe.
func (e *End) Pipe() *Pipe { return e.p }

// CanRead and CanWrite tell which ends it is.
func (e *End) CanRead() bool { return e.reads }

// CanWrite is CanRead's counterpart.
func (e *End) CanWrite() bool { return e.writes }

// Release implements vfs.FileOps.
func (e *End) Release() { e.p.release(e.reads, e.writes) }

// release drops an end; the other side sees EOF or EPIPE.
func (p *Pipe) release(reads, writes bool) {
	p.mu.Lock()
	p.dropLocked(reads, writes)
	p.mu.Unlock()
	p.notifyDropped()
}

func (p *Pipe) dropLocked(reads, writes bool) {
	if reads {
		p.readers--
	}
	if writes {
		p.writers--
	}
	if p.readers == 0 && p.writers == 0 {
		p.ring.n, p.ring.start = 0, 0
		p.ring.resize(0)
	}
}

func (p *Pipe) notifyDropped() {
	p.queue.Notify(waitq.In | waitq.Out | waitq.RdNorm | waitq.WrNorm | waitq.Err | waitq.Hup)
}

// Queue implements vfs.Waitable.
func (e *End) Queue() *waitq.Queue { return &e.p.queue }

// Ready implements vfs.FileOps, as pipe_poll does.
func (e *End) Ready(mask waitq.Mask) waitq.Mask {
	p := e.p
	p.mu.Lock()
	defer p.mu.Unlock()
	var m waitq.Mask
	if e.reads {
		if p.ring.n > 0 {
			m |= waitq.In | waitq.RdNorm
		}
		if p.writers == 0 && !(e.isQuiet && e.quiet == p.writeOpens) {
			m |= waitq.Hup
		}
	}
	if e.writes {
		if p.capacity-p.ring.n >= atomicSize {
			m |= waitq.Out | waitq.WrNorm
		}
		if p.readers == 0 {
			m |= waitq.Err
		}
	}
	return m & (mask | waitq.Always)
}

// Read implements vfs.Reader.
func (e *End) Read(_ vfs.Caller, _ *vfs.File, dst *mem.UserBuf) (int, error) {
	p := e.p
	want := dst.Len()
	if want == 0 {
		return 0, nil
	}
	p.mu.Lock()
	if p.ring.n == 0 {
		writers := p.writers
		p.mu.Unlock()
		if writers == 0 {
			return 0, nil
		}
		return 0, unix.EAGAIN
	}
	n, err := p.ring.copyOut(dst, min(want, p.ring.n))
	p.mu.Unlock()
	if n > 0 {
		p.queue.Notify(waitq.Out | waitq.WrNorm)
	}
	return n, err
}

// Write implements vfs.Writer. EAGAIN with a count says that the rest does
// not fit now.
func (e *End) Write(_ vfs.Caller, _ *vfs.File, src *mem.UserBuf) (int, error) {
	p := e.p
	want := src.Len()
	if want == 0 {
		return 0, nil
	}
	p.mu.Lock()
	if p.readers == 0 {
		p.mu.Unlock()
		return 0, unix.EPIPE
	}
	k := min(want, p.capacity-p.ring.n)
	if k <= 0 || k < want && want <= atomicSize {
		p.mu.Unlock()
		return 0, unix.EAGAIN
	}
	if !p.ring.reserve(k) {
		p.mu.Unlock()
		return 0, unix.ENOMEM
	}
	n, err := p.ring.copyIn(src, k)
	p.mu.Unlock()
	if n > 0 {
		p.queue.Notify(waitq.In | waitq.RdNorm)
	}
	if err == nil && n < want {
		err = unix.EAGAIN
	}
	return n, err
}

// Ioctl implements vfs.Ioctler: FIONREAD.
func (e *End) Ioctl(_ vfs.Caller, _ *vfs.File, m mem.Memory, cmd uint32, arg uint64) (uintptr, error) {
	if cmd != unix.TIOCINQ {
		return 0, unix.ENOTTY
	}
	n := e.p.Len()
	b := [4]byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)}
	_, err := m.CopyOut(arg, b[:])
	return 0, err
}

// Len returns the number of bytes in the pipe.
func (p *Pipe) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ring.n
}

// Size returns the capacity (F_GETPIPE_SZ).
func (p *Pipe) Size() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.capacity
}

// SetSize sets the capacity (F_SETPIPE_SZ) to size rounded up to a power of
// two of pages and returns it. EBUSY when the bytes held do not fit, EPERM
// above fs.pipe-max-size without CAP_SYS_RESOURCE.
func (p *Pipe) SetSize(c vfs.Caller, size uint32) (int, error) {
	if size > 1<<31 {
		return 0, unix.EINVAL
	}
	n := pageSize
	for n < int(size) {
		n *= 2
	}
	// The hard stop is ours: rings are memory of the Sentry.
	if int64(n) > vfs.TunablesOf(c).PipeMaxSize.Load() && !c.Cred().Has(unix.CAP_SYS_RESOURCE) || n > 16*MaxSize {
		return 0, unix.EPERM
	}
	p.mu.Lock()
	if n < p.ring.n {
		p.mu.Unlock()
		return 0, unix.EBUSY
	}
	if n < len(p.ring.buf) {
		p.ring.resize(n)
	}
	p.capacity = n
	p.mu.Unlock()
	p.queue.Notify(waitq.Out | waitq.WrNorm)
	return n, nil
}
