package mm

import "golang.org/x/sys/unix"

// MLock implements mlock(2) and, with onFault, MLOCK_ONFAULT of mlock2(2).
// privileged (CAP_IPC_LOCK) ignores RLIMIT_MEMLOCK. Memory is never swapped
// by the Sentry: locking is an account and a MAP_POPULATE.
func (mm *MM) MLock(addr, n uint64, onFault, privileged bool) error {
	n += addr & pageMask
	addr &^= pageMask
	end, err := userRange(addr, n)
	if err != nil {
		return unix.ENOMEM
	}
	limit := mm.limits(unix.RLIMIT_MEMLOCK)
	if limit == 0 && !privileged {
		return unix.EPERM
	}
	mode := lockPopulate
	if onFault {
		mode = lockOnFault
	}
	mm.mapMu.Lock()
	defer mm.mapMu.Unlock()
	mm.mu.Lock()
	if !privileged && mm.space.locked+(end-addr)-mm.lockedLocked(addr, end) > limit {
		mm.mu.Unlock()
		return unix.ENOMEM
	}
	err = mm.setLockLocked(addr, end, mode)
	mm.unlock()
	if err != nil {
		return err
	}
	if mode == lockPopulate {
		if mm.populate(addr, end, 0) != nil {
			return unix.ENOMEM // __mm_populate: a fault becomes ENOMEM or EAGAIN
		}
	}
	return nil
}

// MUnlock implements munlock(2).
func (mm *MM) MUnlock(addr, n uint64) error {
	n += addr & pageMask
	addr &^= pageMask
	end, err := userRange(addr, n)
	if err != nil {
		return unix.ENOMEM
	}
	mm.mapMu.Lock()
	defer mm.mapMu.Unlock()
	mm.mu.Lock()
	defer mm.unlock()
	return mm.setLockLocked(addr, end, unlocked)
}

// MLockAll implements mlockall(2) for flags (unix.MCL_*).
func (mm *MM) MLockAll(flags int, privileged bool) error {
	if flags == 0 || flags&^(unix.MCL_CURRENT|unix.MCL_FUTURE|unix.MCL_ONFAULT) != 0 || flags == unix.MCL_ONFAULT {
		return unix.EINVAL
	}
	limit := mm.limits(unix.RLIMIT_MEMLOCK)
	if limit == 0 && !privileged {
		return unix.EPERM
	}
	mode := lockPopulate
	if flags&unix.MCL_ONFAULT != 0 {
		mode = lockOnFault
	}
	mm.mapMu.Lock()
	defer mm.mapMu.Unlock()
	mm.mu.Lock()
	if flags&unix.MCL_CURRENT != 0 && !privileged && mm.space.total > limit {
		mm.mu.Unlock()
		return unix.ENOMEM
	}
	mm.future = unlocked
	if flags&unix.MCL_FUTURE != 0 {
		mm.future = mode
	}
	type span struct{ lo, hi uint64 }
	var spans []span
	if flags&unix.MCL_CURRENT != 0 {
		for i := 0; i < mm.vmas.Len(); i++ {
			s := mm.vmas.At(i)
			spans = append(spans, span{s.Start, s.End})
		}
		for _, s := range spans {
			_ = mm.setLockLocked(s.lo, s.hi, mode)
		}
	}
	mm.unlock()
	if mode == lockPopulate {
		for _, s := range spans {
			_ = mm.populate(s.lo, s.hi, 0)
		}
	}
	return nil
}

// MUnlockAll implements munlockall(2).
func (mm *MM) MUnlockAll() {
	mm.mapMu.Lock()
	defer mm.mapMu.Unlock()
	mm.mu.Lock()
	defer mm.unlock()
	mm.future = unlocked
	if n := mm.vmas.Len(); n > 0 {
		for i := 0; i < n; i++ {
			if v := mm.vmas.At(i); v.V.lock != unlocked {
				mm.space.locked -= v.End - v.Start
				v.V.lock = unlocked
			}
		}
		mm.vmas.MergeRange(mm.vmas.At(0).Start, mm.vmas.At(n-1).End)
	}
}

// lockedLocked returns how many bytes of [start, end) are locked.
func (mm *MM) lockedLocked(start, end uint64) (n uint64) {
	for i := mm.vmas.Search(start); i < mm.vmas.Len() && mm.vmas.At(i).Start < end; i++ {
		if s := mm.vmas.At(i); s.V.lock != unlocked {
			n += min(s.End, end) - max(s.Start, start)
		}
	}
	return n
}

// setLockLocked changes the mode of [start, end): ENOMEM at the first hole.
func (mm *MM) setLockLocked(start, end uint64, mode lockMode) error {
	stop, err := start, error(nil)
	for i := mm.vmas.Search(start); stop < end; i++ {
		if i == mm.vmas.Len() || mm.vmas.At(i).Start > stop {
			err = unix.ENOMEM
			break
		}
		stop = min(mm.vmas.At(i).End, end)
	}
	if stop == start {
		return err
	}
	lo, hi := mm.vmas.Isolate(start, stop)
	for i := lo; i < hi; i++ {
		s := mm.vmas.At(i)
		mm.space.count(s.V, s.End-s.Start, -1)
		s.V.lock = mode
		mm.space.count(s.V, s.End-s.Start, 1)
	}
	mm.vmas.MergeRange(start, stop)
	return err
}
