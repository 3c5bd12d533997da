package boot

import (
	"time"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/cred"
)

// caller is the Sentry itself as vfs.Caller: root with every capability,
// without limits, that no signal interrupts. One is made for each container
// that is built, so that calls at the same time do not share a waiter.
type caller struct {
	cred   cred.Creds
	waiter *waitq.Waiter
}

func newCaller() *caller {
	return &caller{
		cred:   cred.Creds{Effective: cred.AllCaps, Permitted: cred.AllCaps, Bounding: cred.AllCaps},
		waiter: waitq.NewWaiter(),
	}
}

// Cred implements vfs.Caller.
func (c *caller) Cred() *cred.Creds { return &c.cred }

// Block implements vfs.Caller. Building a container must not wait for what a
// guest does, so a wait that would last is an error.
func (c *caller) Block(w *waitq.Waiter, deadline int64) error {
	select {
	case <-w.C:
		return nil
	case <-time.After(time.Second):
		return unix.ETIMEDOUT
	}
}

// Waiter implements vfs.Caller.
func (c *caller) Waiter() *waitq.Waiter { return c.waiter }

// RealTime implements vfs.Caller.
func (c *caller) RealTime() int64 { return time.Now().UnixNano() }

// Rlimit implements vfs.Caller.
func (c *caller) Rlimit(r int) uint64 {
	if r == unix.RLIMIT_NOFILE {
		return 1 << 20
	}
	return unix.RLIM_INFINITY
}

// TGID implements vfs.Caller.
func (c *caller) TGID() int32 { return 0 }
