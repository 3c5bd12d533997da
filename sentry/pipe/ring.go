package pipe

import (
	"sync/atomic"

	"runsc/sentry/mem"
)

const (
	pageSize = 4096

	// atomicSize is PIPE_BUF: writes of up to so many bytes are not
	// interleaved with others' (pipe(7)).
	atomicSize = 4096

	// DefaultSize is the capacity of a new pipe.
	DefaultSize = 16 * pageSize

	// MaxSize is the initial fs.pipe-max-size, the largest capacity that an
	// unprivileged caller may set.
	MaxSize = 1 << 20

	// softTotal and smallSize play the part of pipe-user-pages-soft: when
	// all pipes together hold more, new ones get a small capacity. Linux
	// counts per user, the Sentry for the sandbox.
	softTotal = 64 << 20
	smallSize = 2 * pageSize

	// hardTotal bounds the rings of a sandbox, which are memory of the
	// Sentry: a write that needs more fails with ENOMEM, as on Linux when
	// there is no page.
	hardTotal = 256 << 20
)

// total is the number of bytes of all rings.
var total atomic.Int64

// ring is a queue of bytes in a buffer that grows on demand, in powers of two,
// up to the pipe's capacity. Pipe.mu guards it.
type ring struct {
	buf   []byte `save:"rec"`     // length is a power of two, or zero
	start int    `save:"rebuilt"` // index of the first byte
	n     int    `save:"rebuilt"` // bytes held
}

// reserve makes room for n more bytes, which the capacity allows. It tells
// whether there is memory for them.
func (r *ring) reserve(n int) bool {
	if r.n+n <= len(r.buf) {
		return true
	}
	size := pageSize
	for size < r.n+n {
		size *= 2
	}
	if total.Load()+int64(size) > hardTotal {
		return false
	}
	r.resize(size)
	return true
}

// resize moves the bytes to a buffer of size bytes, at least r.n.
func (r *ring) resize(size int) {
	if size == len(r.buf) {
		return
	}
	total.Add(int64(size - len(r.buf)))
	var buf []byte
	if size > 0 {
		buf = make([]byte, size)
	}
	a, b := r.data(r.n)
	copy(buf[copy(buf, a):], b)
	r.buf, r.start = buf, 0
}

// data returns the first n bytes held, in two pieces.
func (r *ring) data(n int) (a, b []byte) {
	if n == 0 {
		return nil, nil
	}
	if end := r.start + n; end > len(r.buf) {
		return r.buf[r.start:], r.buf[:end-len(r.buf)]
	}
	return r.buf[r.start : r.start+n], nil
}

// room returns the n bytes after those held, in two pieces; they are reserved.
func (r *ring) room(n int) (a, b []byte) {
	if n == 0 {
		return nil, nil
	}
	from := (r.start + r.n) & (len(r.buf) - 1)
	if end := from + n; end > len(r.buf) {
		return r.buf[from:], r.buf[:end-len(r.buf)]
	}
	return r.buf[from : from+n], nil
}

// drop forgets the first n bytes.
func (r *ring) drop(n int) {
	r.n -= n
	if r.n == 0 {
		r.start = 0 // stay on the pages that are warm
		return
	}
	r.start = (r.start + n) & (len(r.buf) - 1)
}

// copyOut moves up to n bytes to dst.
func (r *ring) copyOut(dst *mem.UserBuf, n int) (int, error) {
	a, b := r.data(n)
	done, err := dst.CopyOut(a)
	if err == nil && b != nil {
		var k int
		k, err = dst.CopyOut(b)
		done += k
	}
	r.drop(done)
	return done, err
}

// copyIn appends up to n bytes, which are reserved, from src.
func (r *ring) copyIn(src *mem.UserBuf, n int) (int, error) {
	a, b := r.room(n)
	done, err := src.CopyIn(a)
	if err == nil && b != nil {
		var k int
		k, err = src.CopyIn(b)
		done += k
	}
	r.n += done
	return done, err
}
