package pipe

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
)

// Fill appends to the pipe what fn puts into the buffers it is given, at most
// max bytes in all: the way from a file into a pipe (splice(2)). It holds the
// pipe's lock over fn, which must not block. EPIPE without readers, EAGAIN
// when the pipe is full; fn's error, or its short count, ends it.
func (p *Pipe) Fill(max int, fn func(b []byte) (int, error)) (int, error) {
	p.mu.Lock()
	if p.readers == 0 {
		p.mu.Unlock()
		return 0, unix.EPIPE
	}
	k := min(max, p.capacity-p.ring.n)
	if k <= 0 {
		p.mu.Unlock()
		return 0, unix.EAGAIN
	}
	if !p.ring.reserve(k) {
		p.mu.Unlock()
		return 0, unix.ENOMEM
	}
	a, b := p.ring.room(k)
	n, err := fn(a)
	if err == nil && n == len(a) && len(b) > 0 {
		var m int
		m, err = fn(b)
		n += m
	}
	p.ring.n += n
	p.mu.Unlock()
	if n > 0 {
		p.queue.Notify(waitq.In | waitq.RdNorm)
	}
	return n, err
}

// Drain hands at most max bytes of the pipe to fn and drops as many as fn
// took: the way from a pipe into a file. It holds the pipe's lock over fn,
// which must not block. 0 without error is the end of file, EAGAIN an empty
// pipe that still has writers.
func (p *Pipe) Drain(max int, fn func(b []byte) (int, error)) (int, error) {
	p.mu.Lock()
	if p.ring.n == 0 {
		writers := p.writers
		p.mu.Unlock()
		if writers == 0 {
			return 0, nil
		}
		return 0, unix.EAGAIN
	}
	a, b := p.ring.data(min(max, p.ring.n))
	n, err := fn(a)
	if err == nil && n == len(a) && len(b) > 0 {
		var m int
		m, err = fn(b)
		n += m
	}
	p.ring.drop(n)
	p.mu.Unlock()
	if n > 0 {
		p.queue.Notify(waitq.Out | waitq.WrNorm)
	}
	return n, err
}

// Side says which pipe an EAGAIN of Transfer is about.
type Side int

// The sides of a Transfer.
const (
	Neither Side = iota
	Source
	Sink
)

// Transfer copies at most max bytes from one pipe to another, and with keep
// unset takes them out of the source (tee(2), splice(2)). EINVAL when both are
// the same pipe; EPIPE without readers; EAGAIN tells which side to wait for;
// 0 without error is the end of file.
func Transfer(from, to *Pipe, max int, keep bool) (int, Side, error) {
	if from == to {
		return 0, Neither, unix.EINVAL
	}
	n, side, err := transfer(from, to, max, keep)
	if n > 0 {
		to.queue.Notify(waitq.In | waitq.RdNorm)
		if !keep {
			from.queue.Notify(waitq.Out | waitq.WrNorm)
		}
	}
	return n, side, err
}

func transfer(from, to *Pipe, max int, keep bool) (int, Side, error) {
	first, second := from, to
	if first.id > second.id {
		first, second = second, first
	}
	first.mu.Lock()
	defer first.mu.Unlock()
	second.mu.Lock()
	defer second.mu.Unlock()
	if to.readers == 0 {
		return 0, Neither, unix.EPIPE
	}
	if from.ring.n == 0 {
		if from.writers == 0 {
			return 0, Neither, nil
		}
		return 0, Source, unix.EAGAIN
	}
	n := min(max, from.ring.n, to.capacity-to.ring.n)
	if n <= 0 {
		return 0, Sink, unix.EAGAIN
	}
	if !to.ring.reserve(n) {
		return 0, Neither, unix.ENOMEM
	}
	a, b := from.ring.data(n)
	to.ring.append(a)
	to.ring.append(b)
	if !keep {
		from.ring.drop(n)
	}
	return n, Neither, nil
}

// append adds p, for which there is room.
func (r *ring) append(p []byte) {
	a, b := r.room(len(p))
	copy(b, p[copy(a, p):])
	r.n += len(p)
}
