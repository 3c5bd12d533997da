package syscalls

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/pkg/abi/linux"
	"runsc/sentry/errs"
	"runsc/sentry/futex"
	"runsc/sentry/kernel"
)

// sysFutex implements futex(2).
func sysFutex(t *kernel.Task, a Args) (uintptr, error) {
	op := a.Uint(1)
	cmd := op &^ (linux.FUTEX_PRIVATE_FLAG | linux.FUTEX_CLOCK_REALTIME)
	private := op&linux.FUTEX_PRIVATE_FLAG != 0
	realtime := op&linux.FUTEX_CLOCK_REALTIME != 0
	addr, val := a.Addr(0), a.Uint(2)
	switch cmd {
	case linux.FUTEX_WAIT, linux.FUTEX_WAIT_BITSET, linux.FUTEX_LOCK_PI, linux.FUTEX_LOCK_PI2:
		deadline, wall, err := futexDeadline(t, cmd, realtime, a.Addr(3))
		if err != nil {
			return 0, err
		}
		if cmd == linux.FUTEX_LOCK_PI || cmd == linux.FUTEX_LOCK_PI2 {
			return done(futexLockPI(t, addr, private, deadline, false))
		}
		bits := futex.AllBits
		if cmd == linux.FUTEX_WAIT_BITSET {
			bits = a.Uint(5)
		}
		w := futexWait{addr: addr, val: val, bits: bits, private: private, deadline: deadline, wall: wall}
		return w.Restart(t)
	}
	if realtime {
		return 0, unix.ENOSYS // do_futex: the other calls have no timeout
	}
	switch cmd {
	case linux.FUTEX_WAKE:
		return futexWake(t, addr, private, a.Int(2), futex.AllBits)
	case linux.FUTEX_WAKE_BITSET:
		return futexWake(t, addr, private, a.Int(2), a.Uint(5))
	case linux.FUTEX_REQUEUE:
		return futexRequeue(t, a, private, nil)
	case linux.FUTEX_CMP_REQUEUE:
		want := a.Uint(5)
		return futexRequeue(t, a, private, &want)
	case linux.FUTEX_WAKE_OP:
		return futexWakeOp(t, a, private)
	case linux.FUTEX_UNLOCK_PI:
		return done(futexUnlockPI(t, addr, private))
	case linux.FUTEX_TRYLOCK_PI:
		return done(futexLockPI(t, addr, private, 0, true))
	}
	return 0, unix.ENOSYS
}

// futexDeadline reads the timeout: relative for FUTEX_WAIT, absolute for the
// others, on CLOCK_REALTIME for FUTEX_LOCK_PI. It returns a monotonic deadline
// and, for an absolute time of CLOCK_REALTIME, that.
func futexDeadline(t *kernel.Task, cmd uint32, realtime bool, addr uint64) (deadline, wall int64, err error) {
	if addr == 0 {
		return 0, 0, nil
	}
	ns, err := copyInTimespec(t, addr)
	if err != nil {
		return 0, 0, err
	}
	clk := int32(unix.CLOCK_MONOTONIC)
	if realtime || cmd == linux.FUTEX_LOCK_PI {
		clk = unix.CLOCK_REALTIME
	}
	abs := cmd != linux.FUTEX_WAIT
	deadline = t.Kernel().Deadline(clk, abs, ns)
	switch {
	case !abs:
		deadline = t.ReentryDeadline(deadline)
	case clk == unix.CLOCK_REALTIME:
		wall = ns
	}
	return deadline, wall, nil
}

// futexWait is a wait, also one that restart_syscall(2) resumes.
type futexWait struct {
	addr      uint64
	val, bits uint32
	private   bool
	deadline  int64
	wall      int64 // not 0: the deadline on CLOCK_REALTIME
}

// Restart implements kernel.Restarter.
func (w futexWait) Restart(t *kernel.Task) (uintptr, error) {
	if w.bits == 0 {
		return 0, unix.EINVAL
	}
	if w.wall != 0 {
		w.deadline = t.Kernel().Deadline(unix.CLOCK_REALTIME, true, w.wall)
	}
	fw := t.KeptFutex()
	if fw == nil {
		key, err := t.FutexKey(w.addr, w.private)
		if err != nil {
			return 0, err
		}
		t.Waiter().Clear()
		fw = futex.NewWaiter(t.Waiter(), w.bits)
		fw.SetPlace(t.MM(), w.addr, w.private)
		err = t.Kernel().Futexes().Queue(fw, key, func() error {
			v, err := t.MM().LoadUint32(w.addr)
			if err == nil && v != w.val {
				err = unix.EAGAIN
			}
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	woken, err := blockFutex(t, fw, w.deadline)
	if woken {
		return 0, nil // whatever else happened
	}
	if err == errs.ERESTARTSYS && w.deadline != 0 {
		return 0, t.SetRestart(w)
	}
	return 0, err
}

// blockFutex sleeps until fw is woken or, with an error, takes it off its
// queue; for a save it stays there.
func blockFutex(t *kernel.Task, fw *futex.Waiter, deadline int64) (woken bool, err error) {
	t.KeepFutex(nil)
	for !fw.Woken() {
		switch err := t.Block(t.Waiter(), deadline); err {
		case nil:
		case errs.ERESTARTCKPT:
			t.KeepFutex(fw)
			return false, err
		default:
			return fw.Cancel(), err
		}
	}
	return true, nil
}

func futexWake(t *kernel.Task, addr uint64, private bool, n int32, bits uint32) (uintptr, error) {
	if bits == 0 {
		return 0, unix.EINVAL
	}
	key, err := t.FutexKey(addr, private)
	if err != nil {
		return 0, err
	}
	// Linux wakes one even when asked for none or a negative number.
	return uintptr(t.Kernel().Futexes().Wake(key, max(int(n), 1), bits)), nil
}

func futexRequeue(t *kernel.Task, a Args, private bool, want *uint32) (uintptr, error) {
	nWake, nMove := a.Int(2), a.Int(3)
	if nWake < 0 || nMove < 0 {
		return 0, unix.EINVAL
	}
	from, err := t.FutexKey(a.Addr(0), private)
	if err != nil {
		return 0, err
	}
	to, err := t.FutexKey(a.Addr(4), private)
	if err != nil {
		return 0, err
	}
	place := futex.Place{MM: t.MM(), Addr: a.Addr(4), Private: private}
	woken, moved, err := t.Kernel().Futexes().Requeue(from, to, place, int(nWake), int(nMove), func() error {
		if want == nil {
			return nil
		}
		v, err := t.MM().LoadUint32(a.Addr(0))
		if err == nil && v != *want {
			err = unix.EAGAIN
		}
		return err
	})
	return uintptr(woken + moved), err
}

// futexWakeOp is FUTEX_WAKE_OP: the operation on the second word is encoded in
// val3 (futex(2)).
func futexWakeOp(t *kernel.Task, a Args, private bool) (uintptr, error) {
	k1, err := t.FutexKey(a.Addr(0), private)
	if err != nil {
		return 0, err
	}
	addr2 := a.Addr(4)
	k2, err := t.FutexKey(addr2, private)
	if err != nil {
		return 0, err
	}
	enc := a.Uint(5)
	n, err := t.Kernel().Futexes().WakeOp(k1, k2, max(int(a.Int(2)), 1), max(int(a.Int(3)), 1), func() (bool, error) {
		return futexAtomicOp(t, addr2, enc)
	})
	return uintptr(n), err
}

// futexAtomicOp is futex_atomic_op_inuser.
func futexAtomicOp(t *kernel.Task, addr uint64, enc uint32) (bool, error) {
	op, cmp := enc>>28&7, enc>>24&15
	// 12-bit arguments are signed.
	arg, cmparg := int32(enc<<8)>>20, int32(enc<<20)>>20
	if enc>>28&8 != 0 {
		arg = 1 << uint(arg&31)
	}
	for {
		old, err := t.MM().LoadUint32(addr)
		if err != nil {
			return false, err
		}
		v := uint32(arg)
		switch op {
		case 0: // FUTEX_OP_SET
		case 1:
			v = old + uint32(arg)
		case 2:
			v = old | uint32(arg)
		case 3:
			v = old &^ uint32(arg)
		case 4:
			v = old ^ uint32(arg)
		default:
			return false, unix.ENOSYS
		}
		cur, err := t.MM().CompareAndSwapUint32(addr, old, v)
		if err != nil {
			return false, err
		}
		if cur != old {
			continue
		}
		switch o := int32(old); cmp {
		case 0:
			return o == cmparg, nil
		case 1:
			return o != cmparg, nil
		case 2:
			return o < cmparg, nil
		case 3:
			return o <= cmparg, nil
		case 4:
			return o > cmparg, nil
		case 5:
			return o >= cmparg, nil
		}
		return false, unix.ENOSYS
	}
}

// errQueued says, inside this file, that the caller has to sleep.
const errQueued = unix.EINPROGRESS

// futexLockPI takes a lock whose word holds its owner's id. Priorities do not
// exist here, so that inheriting them comes down to handing over in order.
func futexLockPI(t *kernel.Task, addr uint64, private bool, deadline int64, try bool) error {
	fw := t.KeptFutex()
	if fw == nil {
		var taken bool
		var err error
		if fw, taken, err = queuePI(t, addr, private, try); taken || err != nil {
			return err
		}
	}
	woken, err := blockFutex(t, fw, deadline)
	if woken {
		return nil
	}
	if err == errs.ERESTARTSYS {
		return errs.ERESTARTNOINTR
	}
	return err
}

// queuePI takes the lock or queues the task for it.
func queuePI(t *kernel.Task, addr uint64, private, try bool) (fw *futex.Waiter, taken bool, err error) {
	key, err := t.FutexKey(addr, private)
	if err != nil {
		return nil, false, err
	}
	tid := uint32(t.TID())
	t.Waiter().Clear()
	fw = futex.NewPIWaiter(t.Waiter(), tid)
	fw.SetPlace(t.MM(), addr, private)
	err = t.Kernel().Futexes().Queue(fw, key, func() error {
		for {
			v, err := t.MM().LoadUint32(addr)
			if err != nil {
				return err
			}
			n := v | kernel.FutexWaiters
			switch owner := v & kernel.FutexTIDMask; {
			case owner == tid:
				return unix.EDEADLK
			case owner == 0:
				n = tid | v&kernel.FutexOwnerDied
			case try:
				return unix.EAGAIN
			case t.PIDNamespace().Task(int32(owner)) == nil:
				return unix.ESRCH
			}
			cur, err := t.MM().CompareAndSwapUint32(addr, v, n)
			if err != nil {
				return err
			}
			if cur != v {
				continue
			}
			if v&kernel.FutexTIDMask == 0 {
				taken = true
				return errQueued // not queued: the lock is ours
			}
			return nil
		}
	})
	if taken {
		return nil, true, nil
	}
	return fw, false, err
}

func futexUnlockPI(t *kernel.Task, addr uint64, private bool) error {
	key, err := t.FutexKey(addr, private)
	if err != nil {
		return err
	}
	return t.Kernel().Futexes().HandOver(key, func(next uint32, more bool) error {
		v, err := t.MM().LoadUint32(addr)
		if err != nil {
			return err
		}
		if v&kernel.FutexTIDMask != uint32(t.TID()) {
			return unix.EPERM
		}
		n := next
		if more {
			n |= kernel.FutexWaiters
		}
		_, err = t.MM().SwapUint32(addr, n)
		return err
	})
}

// sysSetRobustList implements set_robust_list(2).
func sysSetRobustList(t *kernel.Task, a Args) (uintptr, error) {
	if a.Size(1) != 24 { // sizeof(struct robust_list_head)
		return 0, unix.EINVAL
	}
	t.SetRobustList(a.Addr(0))
	return 0, nil
}

// sysGetRobustList implements get_robust_list(2) for the caller's own list.
func sysGetRobustList(t *kernel.Task, a Args) (uintptr, error) {
	o, err := t.TaskByID(a.Int(0))
	if err != nil {
		return 0, err
	}
	if o != t {
		return 0, unix.EPERM
	}
	head, size := t.RobustList(), uint64(24)
	if err := t.CopyOut(a.Addr(2), abi.Bytes(&size)); err != nil {
		return 0, err
	}
	return done(t.CopyOut(a.Addr(1), abi.Bytes(&head)))
}
