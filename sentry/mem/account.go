package mem

import (
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// ErrLimit is the error of an allocation that would exceed an account's limit.
const ErrLimit = unix.ENOMEM

// Kind says what frames are used for.
type Kind uint8

// Kinds of frames.
const (
	Anonymous Kind = iota
	Tmpfs
	PageCache
	// Kernel is no kind of frames: memory of the Sentry's own that a guest
	// can make grow, such as inodes (Charge).
	Kernel
	// Disk frames are in a host file, not in memory (File.AddDisk).
	Disk
	numKinds
)

// Account is charged for the frames of one container. Containers of a pod may
// share a parent, whose limit holds for the sum.
type Account struct {
	// immutable after NewAccount:
	parent *Account

	// OnLimit, if set, is told that need more bytes would exceed the limit
	// of this account or a parent: the Sentry's OOM killer chooses a victim.
	// It is called with locks of the caller held: it must neither block nor
	// allocate frames. Set before first use.
	OnLimit func(a *Account, need uint64)

	// atomic:
	limit atomic.Int64 // bytes, 0 is none
	total atomic.Int64
	peak  atomic.Int64
	fails atomic.Uint64
	used  [numKinds]atomic.Int64

	policy Policy

	// Upper, if set, is charged for the files of the root's upper layer
	// instead of this account. Set before first use.
	Upper *Account

	// disk has the frames of kind Disk; nil without one (AddDisk).
	disk *store

	// File.mu guards: windows with room for further pages.
	partial [numKinds][]*window
}

// NewAccount returns an account below parent, which may be nil.
func NewAccount(parent *Account, limit uint64) *Account {
	a := &Account{parent: parent}
	a.policy.init()
	a.SetLimit(limit)
	return a
}

// SetLimit sets the limit in bytes, 0 for none. A limit below what is in use
// only stops further allocations.
func (a *Account) SetLimit(n uint64) { a.limit.Store(int64(min(n, 1<<62))) }

// Limit returns the limit in bytes, 0 for none.
func (a *Account) Limit() uint64 { return uint64(a.limit.Load()) }

// Used returns the bytes in use for kind k.
func (a *Account) Used(k Kind) uint64 { return uint64(max(a.used[k].Load(), 0)) }

// Total returns the bytes in use.
func (a *Account) Total() uint64 { return uint64(max(a.total.Load(), 0)) }

// Peak returns the most bytes that were in use.
func (a *Account) Peak() uint64 { return uint64(a.peak.Load()) }

// ResetPeak makes the peak what is in use now.
func (a *Account) ResetPeak() { a.peak.Store(a.total.Load()) }

// Failures counts the allocations that the limit refused.
func (a *Account) Failures() uint64 { return a.fails.Load() }

// Charge adds n bytes that are not frames, for kind Kernel. The error is
// ErrLimit.
func (a *Account) Charge(n uint64) error {
	if err := a.charge(n, Kernel); err != nil {
		a.limitHit(n)
		return err
	}
	return nil
}

// Uncharge undoes Charge.
func (a *Account) Uncharge(n uint64) { a.uncharge(n, Kernel) }

// Room returns how many bytes may be allocated before the limit is reached.
func (a *Account) Room() uint64 {
	room := uint64(1) << 62
	for p := a; p != nil; p = p.parent {
		if l := p.limit.Load(); l > 0 {
			room = min(room, uint64(max(l-p.total.Load(), 0)))
		}
	}
	return room
}

// charge adds n bytes to a and its parents, or fails without a change.
func (a *Account) charge(n uint64, k Kind) error {
	for p := a; p != nil; p = p.parent {
		if !p.chargeOne(int64(n), k) {
			for q := a; q != p; q = q.parent {
				q.uncharge1(int64(n), k)
			}
			p.fails.Add(1)
			if p != a {
				a.fails.Add(1)
			}
			return ErrLimit
		}
	}
	return nil
}

func (a *Account) chargeOne(n int64, k Kind) bool {
	t := a.total.Add(n)
	if l := a.limit.Load(); l > 0 && t > l {
		a.total.Add(-n)
		return false
	}
	a.used[k].Add(n)
	for {
		p := a.peak.Load()
		if t <= p || a.peak.CompareAndSwap(p, t) {
			return true
		}
	}
}

func (a *Account) uncharge1(n int64, k Kind) {
	a.total.Add(-n)
	a.used[k].Add(-n)
}

func (a *Account) uncharge(n uint64, k Kind) {
	for p := a; p != nil; p = p.parent {
		p.uncharge1(int64(n), k)
	}
}

// limitHit tells the OOM killer.
func (a *Account) limitHit(need uint64) {
	for p := a; p != nil; p = p.parent {
		if p.OnLimit != nil {
			p.OnLimit(p, need)
			return
		}
	}
}
