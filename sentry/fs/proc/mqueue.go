package proc

import (
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"runsc/sentry/fs/mqueue"
	"runsc/sentry/kernel"
	"runsc/sentry/vfs"
)

// mqueueLimit is a file of /proc/sys/fs/mqueue, with the bounds that s has:
// the limits are those of the caller's IPC namespace.
func mqueueLimit(name string, field func(*mqueue.Limits) *atomic.Int64, s sysctl) sysctl {
	s.path, s.perm = "fs/mqueue/"+name, 0o644
	s.get = func(in *instance, c vfs.Caller) string {
		return strconv.FormatInt(field(&in.queues(c).Limits).Load(), 10)
	}
	s.set = func(in *instance, c vfs.Caller, value string) error {
		n, err := strconv.ParseInt(strings.TrimSpace(value), 0, 64)
		if err != nil {
			return unix.EINVAL
		}
		field(&in.queues(c).Limits).Store(n)
		return nil
	}
	return s
}

// queues returns the message queues of the caller's IPC namespace, for the
// Sentry the container's.
func (in *instance) queues(c vfs.Caller) *mqueue.FS {
	i := in.container.IPC()
	if t, ok := c.(*kernel.Task); ok {
		if own := t.IPC(); own != nil {
			i = own
		}
	}
	q := i.Queues(func() kernel.MessageQueues { return mqueue.New(in.container.Account()) })
	return q.(*mqueue.FS) // there is no other kind
}
