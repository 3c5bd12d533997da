package vfs

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
)

// LeaseBreakTime is how long an open waits for the holder of a lease, in
// seconds (/proc/sys/fs/lease-break-time).
var LeaseBreakTime atomic.Int64

func init() { LeaseBreakTime.Store(45) }

// lease is what F_SETLEASE took on an open file.
type lease struct {
	file *File
	fd   int32

	// inUse.mu guards:
	write    bool
	breaking bool
	target   int16 // F_RDLCK or F_UNLCK, what a break asks for
	deadline int64 // of the break, CLOCK_REALTIME in ns
}

// leaseQueue is woken when a lease changes: leases are rare.
var leaseQueue waitq.Queue

// Lease implements F_GETLEASE: the lease that f has, or what it is to become.
func (f *File) Lease() int16 {
	inUse.mu.Lock()
	defer inUse.mu.Unlock()
	if l := f.leaseLocked(); l != nil {
		return l.typ()
	}
	return unix.F_UNLCK
}

func (l *lease) typ() int16 {
	switch {
	case l.breaking:
		return l.target
	case l.write:
		return unix.F_WRLCK
	}
	return unix.F_RDLCK
}

func (f *File) leaseLocked() *lease {
	if u := inUse.at[f.Inode()]; u != nil {
		for _, l := range u.leases {
			if l.file == f {
				return l
			}
		}
	}
	return nil
}

// SetLease implements F_SETLEASE for a file known as fd: EACCES, EINVAL, EAGAIN
// if it is open otherwise.
func (f *File) SetLease(c Caller, fd int32, typ int16) error {
	st, err := f.Inode().Stat(c, 0)
	if err != nil {
		return err
	}
	if !ownerOr(c.Cred(), &st, unix.CAP_LEASE) {
		return unix.EACCES
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || typ != unix.F_RDLCK && typ != unix.F_WRLCK && typ != unix.F_UNLCK {
		return unix.EINVAL
	}
	inUse.mu.Lock()
	defer inUse.mu.Unlock()
	if typ == unix.F_UNLCK {
		if !f.dropLeaseLocked() {
			return unix.EAGAIN // generic_delete_lease
		}
		return nil
	}
	u := useLocked(f.Inode())
	defer u.putLocked(f.Inode())
	// The dentry has one reference for this file and more for others.
	if typ == unix.F_RDLCK && u.writers > 0 || typ == unix.F_WRLCK && f.path.Dentry.refs.Load() > 1 {
		return unix.EAGAIN
	}
	own := f.leaseLocked()
	for _, l := range u.leases {
		if l != own && (typ == unix.F_WRLCK || l.write || l.breaking) {
			return unix.EAGAIN
		}
	}
	if own == nil {
		own = &lease{file: f, fd: fd}
		u.leases = append(u.leases, own)
		inUse.leases.Add(1)
	} else if own.breaking && (typ == unix.F_WRLCK || own.target == unix.F_UNLCK) {
		return unix.EAGAIN
	}
	own.write, own.breaking = typ == unix.F_WRLCK, false
	leaseQueue.Notify(waitq.In)
	return nil
}

// dropLeaseLocked ends f's lease and tells whether it had one.
func (f *File) dropLeaseLocked() bool {
	u := inUse.at[f.Inode()]
	if u == nil {
		return false
	}
	for k, l := range u.leases {
		if l.file == f {
			u.leases = append(u.leases[:k:k], u.leases[k+1:]...)
			inUse.leases.Add(-1)
			u.putLocked(f.Inode())
			leaseQueue.Notify(waitq.In)
			return true
		}
	}
	return false
}

// endLease is dropLeaseLocked at the last close.
func (f *File) endLease() {
	if inUse.leases.Load() == 0 {
		return
	}
	inUse.mu.Lock()
	f.dropLeaseLocked()
	inUse.mu.Unlock()
}

// breakLeases asks the holders of leases on an inode to give them up for an
// open to write or to read, and waits until they have or their time is over;
// EWOULDBLOCK with nonblock (Linux's __break_lease).
func breakLeases(c Caller, i Inode, write, nonblock bool) error {
	if inUse.leases.Load() == 0 || !askLeases(c, i, write) {
		return nil
	}
	if nonblock {
		return unix.EWOULDBLOCK
	}
	e := waitq.Entry{Waiter: c.Waiter()}
	leaseQueue.Register(&e, waitq.In)
	defer leaseQueue.Unregister(&e)
	for {
		left, wait := leaseTimeLeft(c, i, write)
		if !wait {
			return nil
		}
		if err := blockFor(c, e.Waiter, left); err != nil && err != unix.ETIMEDOUT {
			return err
		}
	}
}

// askLeases marks the leases in the way as breaking, tells their holders once,
// and tells whether there are any.
func askLeases(c Caller, i Inode, write bool) bool {
	inUse.mu.Lock()
	defer inUse.mu.Unlock()
	found := false
	u := inUse.at[i]
	if u == nil {
		return false
	}
	for _, l := range u.leases {
		if !l.conflicts(write) {
			continue
		}
		found = true
		target := int16(unix.F_RDLCK)
		if write {
			target = unix.F_UNLCK
		}
		if l.breaking && (l.target == unix.F_UNLCK || target == unix.F_RDLCK) {
			continue
		}
		if !l.breaking {
			l.deadline = c.RealTime() + LeaseBreakTime.Load()*1e9
		}
		l.breaking, l.target = true, target
		postIO(l.file.Owner(), l.fd, pollMsg)
	}
	return found
}

func (l *lease) conflicts(write bool) bool { return write || l.write }

// leaseTimeLeft is how long to wait for the leases in the way, in ns. Those whose
// time is over become what was asked.
func leaseTimeLeft(c Caller, i Inode, write bool) (left int64, wait bool) {
	now := c.RealTime()
	inUse.mu.Lock()
	defer inUse.mu.Unlock()
	u := inUse.at[i]
	if u == nil {
		return 0, false
	}
	for _, l := range append([]*lease{}, u.leases...) {
		if !l.conflicts(write) {
			continue
		}
		if l.breaking && now >= l.deadline {
			if l.target == unix.F_UNLCK {
				l.file.dropLeaseLocked()
			} else {
				l.write, l.breaking = false, false
			}
			continue
		}
		if d := l.deadline - now; !wait || d < left {
			left = d
		}
		wait = true
	}
	return left, wait
}

// timedCaller is a Caller that knows CLOCK_MONOTONIC, for deadlines.
type timedCaller interface{ Now() int64 }

// blockFor is Block with a duration; without a clock it waits for the event.
func blockFor(c Caller, w *waitq.Waiter, ns int64) error {
	deadline := int64(0)
	if t, ok := c.(timedCaller); ok {
		deadline = t.Now() + max(ns, 1)
	}
	return c.Block(w, deadline)
}
