package anon

import (
	"encoding/binary"
	"math"
	"sync"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// Eventfd is a counter to wait on, eventfd(2).
type Eventfd struct {
	mu sync.Mutex `save:"none: not held at a stop"`
	// mu guards:
	count uint64 `save:"rec"`

	// immutable after NewEventfd
	semaphore bool `save:"rec"`

	queue waitq.Queue `save:"rebuilt"`
}

// NewEventfd returns an eventfd that starts with count; semaphore is
// EFD_SEMAPHORE.
func NewEventfd(count uint32, semaphore bool) *Eventfd {
	return &Eventfd{count: uint64(count), semaphore: semaphore}
}

// Release implements vfs.FileOps.
func (e *Eventfd) Release() {}

// Queue implements vfs.Waitable.
func (e *Eventfd) Queue() *waitq.Queue { return &e.queue }

// Ready implements vfs.FileOps.
func (e *Eventfd) Ready(mask waitq.Mask) waitq.Mask {
	e.mu.Lock()
	defer e.mu.Unlock()
	var m waitq.Mask
	if e.count > 0 {
		m |= waitq.In | waitq.RdNorm
	}
	if e.count < math.MaxUint64-1 {
		m |= waitq.Out | waitq.WrNorm
	}
	if e.count == math.MaxUint64 {
		m |= waitq.Err
	}
	return m & (mask | waitq.Always)
}

// Read implements vfs.Reader: it takes the counter, or one of it.
func (e *Eventfd) Read(_ vfs.Caller, _ *vfs.File, dst *mem.UserBuf) (int, error) {
	if dst.Len() < 8 {
		return 0, unix.EINVAL
	}
	e.mu.Lock()
	if e.count == 0 {
		e.mu.Unlock()
		return 0, unix.EAGAIN
	}
	v := e.count
	if e.semaphore {
		v = 1
	}
	e.count -= v
	e.mu.Unlock()
	e.queue.Notify(waitq.Out | waitq.WrNorm)
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	return dst.CopyOut(b[:])
}

// Write implements vfs.Writer: it adds to the counter.
func (e *Eventfd) Write(_ vfs.Caller, _ *vfs.File, src *mem.UserBuf) (int, error) {
	if src.Len() < 8 {
		return 0, unix.EINVAL
	}
	var b [8]byte
	peek := *src // src advances only when the value is taken
	if _, err := peek.CopyIn(b[:]); err != nil {
		return 0, err
	}
	v := binary.LittleEndian.Uint64(b[:])
	if v == math.MaxUint64 {
		return 0, unix.EINVAL
	}
	e.mu.Lock()
	if v > math.MaxUint64-1-e.count {
		e.mu.Unlock()
		return 0, unix.EAGAIN
	}
	e.count += v
	e.mu.Unlock()
	// Eight bytes are all that counts: a longer write is done with them.
	src.Skip(src.Len())
	e.queue.Notify(waitq.In | waitq.RdNorm)
	return 8, nil
}

// Count returns the counter, for /proc/PID/fdinfo.
func (e *Eventfd) Count() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.count
}
