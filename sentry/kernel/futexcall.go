package kernel

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/sentry/futex"
	"runsc/sentry/mm"
)

// Bits of a futex word that holds an owner (linux/futex.h).
const (
	FutexWaiters   = 0x80000000
	FutexOwnerDied = 0x40000000
	FutexTIDMask   = 0x3fffffff
)

// robustListLimit bounds the walk of a robust list, which the guest may have
// made a ring (ROBUST_LIST_LIMIT).
const robustListLimit = 2048

// FutexKey returns the identity of the word at addr: EINVAL, EFAULT. Own.
func (t *Task) FutexKey(addr uint64, private bool) (futex.Key, error) {
	return keyOf(t.mm, addr, private)
}

func keyOf(m *mm.MM, addr uint64, private bool) (futex.Key, error) {
	k, err := m.FutexKey(addr, private)
	if err != nil {
		return futex.Key{}, err
	}
	if k.MM != nil {
		return futex.Key{Object: k.MM, Offset: k.Off}, nil
	}
	return futex.Key{Object: k.Obj, Offset: k.Off}, nil
}

// FutexWakeAddr wakes up to n waiters of the word at addr. Own.
func (t *Task) FutexWakeAddr(addr uint64, n int, private bool) {
	if key, err := t.FutexKey(addr, private); err == nil {
		t.k.futexes.Wake(key, n, futex.AllBits)
	}
}

// robustHead is struct robust_list_head.
type robustHead struct {
	Next    uint64
	Offset  int64
	Pending uint64
}

// exitRobustList marks the futexes that the dying thread holds and wakes a
// waiter of each (exit_robust_list).
func (t *Task) exitRobustList() {
	head := t.userAddr.robustList
	var h robustHead
	if CopyInObj(t, head, &h) != nil {
		return
	}
	// The lowest bit of a pointer says that the futex is a PI one.
	entry, pi := h.Next&^1, h.Next&1 != 0
	pending, pendingPI := h.Pending&^1, h.Pending&1 != 0
	for i := 0; i < robustListLimit && entry != head; i++ {
		var next uint64
		err := t.CopyIn(entry, abi.Bytes(&next))
		// A pending entry may be on the list too: it is done last.
		if entry != pending && t.robustDeath(entry+uint64(h.Offset), pi, false) != nil {
			return
		}
		if err != nil {
			return
		}
		entry, pi = next&^1, next&1 != 0
	}
	if pending != 0 {
		_ = t.robustDeath(pending+uint64(h.Offset), pendingPI, true)
	}
}

// robustDeath is handle_futex_death.
func (t *Task) robustDeath(addr uint64, pi, pending bool) error {
	if addr%4 != 0 {
		return unix.EINVAL
	}
	for {
		v, err := t.mm.LoadUint32(addr)
		if err != nil {
			return err
		}
		if pending && !pi && v == 0 {
			// The word was released but the waiter not yet woken.
			t.futexWakeBoth(addr)
			return nil
		}
		if v&FutexTIDMask != uint32(t.TID()) {
			return nil
		}
		if pi && v&FutexWaiters != 0 {
			if t.handOverPI(addr) {
				return nil
			}
		}
		old, err := t.mm.CompareAndSwapUint32(addr, v, v&FutexWaiters|FutexOwnerDied)
		if err != nil {
			return err
		}
		if old != v {
			continue
		}
		if !pi && v&FutexWaiters != 0 {
			t.futexWakeBoth(addr)
		}
		return nil
	}
}

// futexWakeBoth wakes a waiter that may have used either kind of key.
func (t *Task) futexWakeBoth(addr uint64) {
	t.FutexWakeAddr(addr, 1, true)
	if k, err := t.FutexKey(addr, false); err == nil {
		if p, err := t.FutexKey(addr, true); err == nil && k != p {
			t.k.futexes.Wake(k, 1, futex.AllBits)
		}
	}
}

// handOverPI gives a PI futex of the dying owner to its first waiter.
func (t *Task) handOverPI(addr uint64) bool {
	done := false
	for _, private := range []bool{true, false} {
		key, err := t.FutexKey(addr, private)
		if err != nil {
			continue
		}
		_ = t.k.futexes.HandOver(key, func(tid uint32, more bool) error {
			if tid == 0 {
				return unix.ESRCH
			}
			v := tid | FutexOwnerDied
			if more {
				v |= FutexWaiters
			}
			if _, err := t.mm.SwapUint32(addr, v); err != nil {
				return err
			}
			done = true
			return nil
		})
		if done {
			return true
		}
	}
	return false
}
