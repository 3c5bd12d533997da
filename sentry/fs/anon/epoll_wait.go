package anon

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/vfs"
)

// Event is what Wait reports of a member.
type Event struct {
	Events uint32
	Data   uint64
}

// WaitBatch is how many events are collected before they are handed out.
const WaitBatch = 16

// Wait waits until members are ready and hands their events, at most max, to
// emit, which may copy to the guest (EPOLL_WAIT). deadline is CLOCK_MONOTONIC
// of the sandbox in ns, 0 for none, negative for a mere look. The count is 0
// at the deadline. Errors: emit's, if it fails at the first batch, and
// Block's.
func (ep *Epoll) Wait(c vfs.Caller, max int, deadline int64, emit func([]Event) error) (int, error) {
	n, err := ep.collect(max, emit)
	if n > 0 || err != nil || deadline < 0 {
		return n, err
	}
	entry := waitq.Entry{Waiter: c.Waiter()}
	ep.queue.Register(&entry, waitq.In)
	defer ep.queue.Unregister(&entry)
	for {
		n, err := ep.collect(max, emit)
		if n > 0 || err != nil {
			return n, err
		}
		switch err := c.Block(entry.Waiter, deadline); err {
		case nil:
		case unix.ETIMEDOUT:
			return 0, nil
		default:
			return 0, err
		}
	}
}

// collect hands out what is ready now.
func (ep *Epoll) collect(max int, emit func([]Event) error) (int, error) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	batch, taken := &ep.batch, &ep.taken
	defer clear(taken[:])
	done := 0
	// Each member is asked once, though level-triggered ones go back.
	for left := ep.listed(); done < max && left > 0; {
		n := 0
		for ; left > 0 && n < len(batch) && done+n < max; left-- {
			it := ep.pop()
			if it == nil {
				left = 0
				break
			}
			if events := ep.poll(it); events != 0 {
				batch[n], taken[n] = Event{events, it.data}, it
				n++
			}
		}
		if n == 0 {
			break
		}
		if err := emit(batch[:n]); err != nil {
			for _, it := range taken[:n] {
				ep.push(it)
			}
			if done > 0 {
				return done, nil
			}
			return 0, err
		}
		for _, it := range taken[:n] {
			ep.reported(it)
		}
		done += n
	}
	return done, nil
}

// listed counts the ready list.
func (ep *Epoll) listed() int {
	ep.readyMu.Lock()
	defer ep.readyMu.Unlock()
	return ep.ready.n
}

// reported applies the trigger mode to a member whose event was handed out.
func (ep *Epoll) reported(it *item) {
	switch {
	case it.events&unix.EPOLLONESHOT != 0:
		it.events &= privateBits
	case it.events&unix.EPOLLET == 0:
		ep.push(it)
	}
}
