package mm

import (
	"golang.org/x/sys/unix"

	"runsc/sentry/mem"
	"runsc/sentry/platform"
)

// holePuncher is implemented by a Mappable that can free a range
// (MADV_REMOVE).
type holePuncher interface {
	PunchHole(off, n int64) error
}

// MAdvise implements madvise(2).
func (mm *MM) MAdvise(addr, n uint64, advice int) error {
	if !knownAdvice(advice) {
		return unix.EINVAL
	}
	end, err := userRange(addr, n)
	if err != nil {
		return unix.EINVAL
	}
	if end == addr {
		return nil
	}
	switch advice {
	case unix.MADV_POPULATE_READ, unix.MADV_POPULATE_WRITE:
		access := platform.Read
		if advice == unix.MADV_POPULATE_WRITE {
			access = platform.Write
		}
		err := mm.populate(addr, end, access)
		if f, ok := err.(*Fault); ok {
			if f.Signal == int32(unix.SIGSEGV) {
				return unix.EINVAL // protections do not allow the access
			}
			return unix.EFAULT
		}
		return err
	case unix.MADV_REMOVE:
		return mm.adviseRemove(addr, end)
	}
	mm.mapMu.Lock()
	defer mm.mapMu.Unlock()
	mm.mu.Lock()
	defer mm.unlock()
	hole := false
	at := addr
	for at < end {
		i := mm.vmas.Search(at)
		if i == mm.vmas.Len() || mm.vmas.At(i).Start >= end {
			hole = true
			break
		}
		s := mm.vmas.At(i)
		if s.Start > at {
			hole = true
			at = s.Start
		}
		stop := min(s.End, end)
		if err := mm.adviseLocked(s, at, stop, advice); err != nil {
			return err
		}
		at = stop
	}
	if hole {
		// The advice applies to what is mapped, and the hole is told.
		return unix.ENOMEM
	}
	return nil
}

// knownAdvice is madvise_behavior_valid.
func knownAdvice(advice int) bool {
	switch advice {
	case unix.MADV_NORMAL, unix.MADV_RANDOM, unix.MADV_SEQUENTIAL, unix.MADV_WILLNEED, unix.MADV_DONTNEED,
		unix.MADV_FREE, unix.MADV_REMOVE, unix.MADV_DONTFORK, unix.MADV_DOFORK, unix.MADV_MERGEABLE,
		unix.MADV_UNMERGEABLE, unix.MADV_HUGEPAGE, unix.MADV_NOHUGEPAGE, unix.MADV_DONTDUMP, unix.MADV_DODUMP,
		unix.MADV_WIPEONFORK, unix.MADV_KEEPONFORK, unix.MADV_COLD, unix.MADV_PAGEOUT,
		unix.MADV_POPULATE_READ, unix.MADV_POPULATE_WRITE, madvDontneedLocked:
		return true
	}
	return false
}

const madvDontneedLocked = 24 // MADV_DONTNEED_LOCKED

// adviseLocked applies advice to [lo, hi), part of s.
func (mm *MM) adviseLocked(s *vmaSeg, lo, hi uint64, advice int) error {
	v := s.V
	set := func(change func(*vma)) {
		i, j := mm.vmas.Isolate(lo, hi)
		for ; i < j; i++ {
			change(mm.vmas.At(i).V)
		}
		mm.vmas.MergeRange(lo, hi)
	}
	switch advice {
	case unix.MADV_DONTNEED, madvDontneedLocked:
		if v.lock != unlocked && advice == unix.MADV_DONTNEED {
			return unix.EINVAL
		}
		if v.special {
			return nil
		}
		mm.dropPagesLocked(lo, hi, true)
		v.next, v.ahead = 0, 0
	case unix.MADV_FREE:
		if v.file != nil || v.shared {
			return unix.EINVAL
		}
		// The pages may go at any time; they go now.
		mm.dropPagesLocked(lo, hi, true)
	case unix.MADV_DONTFORK:
		set(func(v *vma) { v.noFork = true })
	case unix.MADV_DOFORK:
		if v.special {
			return unix.EINVAL
		}
		set(func(v *vma) { v.noFork = false })
	case unix.MADV_WIPEONFORK:
		if v.file != nil || v.shared {
			return unix.EINVAL
		}
		set(func(v *vma) { v.wipe = true })
	case unix.MADV_KEEPONFORK:
		set(func(v *vma) { v.wipe = false })
	case unix.MADV_DONTDUMP:
		set(func(v *vma) { v.noDump = true })
	case unix.MADV_DODUMP:
		set(func(v *vma) { v.noDump = false })
	}
	return nil
}

// adviseRemove frees the file's pages behind a shared writable mapping.
func (mm *MM) adviseRemove(addr, end uint64) error {
	for at := addr; at < end; {
		mm.mu.RLock()
		s := mm.vmas.Find(at)
		if s == nil {
			mm.mu.RUnlock()
			return unix.ENOMEM
		}
		v, stop := s.V, min(s.End, end)
		off := v.off + (at - s.Start)
		if v.lock != unlocked || v.file == nil {
			mm.mu.RUnlock()
			return unix.EINVAL
		}
		if !v.shared || v.maxProt&platform.Write == 0 {
			mm.mu.RUnlock()
			return unix.EACCES
		}
		file := v.file
		file.IncRef()
		mm.mu.RUnlock()
		err := punch(file, int64(off), int64(stop-at))
		file.DecRef()
		if err != nil {
			return err
		}
		at = stop
	}
	return nil
}

func punch(file mem.Mappable, off, n int64) error {
	if h, ok := file.(holePuncher); ok {
		return h.PunchHole(off, n)
	}
	return unix.EOPNOTSUPP
}
