package pipe

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/vfs"
)

// OpenFifo opens an end of p as open(2) of a fifo does: it waits for a
// partner, but not with O_NONBLOCK or O_RDWR (fifo(7)). Errors: ENXIO for a
// non-blocking writer without a reader, what Block returns.
func (p *Pipe) OpenFifo(c vfs.Caller, flags uint32) (*End, error) {
	e := &End{p: p}
	switch flags & unix.O_ACCMODE {
	case unix.O_RDONLY:
		e.reads = true
	case unix.O_WRONLY:
		e.writes = true
	case unix.O_RDWR:
		e.reads, e.writes = true, true
	default:
		return nil, unix.EINVAL
	}
	nonblock := flags&unix.O_NONBLOCK != 0
	p.mu.Lock()
	if nonblock && !e.reads && p.readers == 0 {
		p.mu.Unlock()
		return nil, unix.ENXIO
	}
	if e.reads {
		p.readers++
		p.readOpens++
	}
	if e.writes {
		p.writers++
		p.writeOpens++
	}
	alone := p.readers == 0 || p.writers == 0
	seenReads, seenWrites := p.readOpens, p.writeOpens
	if alone && nonblock {
		e.isQuiet, e.quiet = true, seenWrites
	}
	p.mu.Unlock()
	p.queue.Notify(waitq.In | waitq.Out | waitq.RdNorm | waitq.WrNorm)
	if !alone || nonblock {
		return e, nil
	}
	counter, seen := &p.readOpens, seenReads
	if e.reads {
		counter, seen = &p.writeOpens, seenWrites
	}
	if err := p.waitPartner(c, counter, seen); err != nil {
		p.mu.Lock()
		if *counter != seen {
			// Here at last, and it counts on this end.
			p.mu.Unlock()
			return e, nil
		}
		p.dropLocked(e.reads, e.writes)
		p.mu.Unlock()
		p.notifyDropped()
		return nil, err
	}
	return e, nil
}

// waitPartner waits until the other side's counter of opens, which mu guards,
// has left seen: a partner that came and went in the meantime counts, as in
// Linux's wait_for_partner.
func (p *Pipe) waitPartner(c vfs.Caller, counter *uint64, seen uint64) error {
	entry := waitq.Entry{Waiter: c.Waiter()}
	p.queue.Register(&entry, waitq.In|waitq.Out)
	defer p.queue.Unregister(&entry)
	for {
		p.mu.Lock()
		came := *counter != seen
		p.mu.Unlock()
		if came {
			return nil
		}
		if err := c.Block(entry.Waiter, 0); err != nil {
			return err
		}
	}
}
