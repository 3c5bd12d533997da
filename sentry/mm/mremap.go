package mm

import (
	"golang.org/x/sys/unix"

	"runsc/sentry/arch"
)

// MRemap implements mremap(2). flags are unix.MREMAP_*.
func (mm *MM) MRemap(old, oldLen, newLen uint64, flags int, newAddr uint64) (uint64, error) {
	const all = unix.MREMAP_MAYMOVE | unix.MREMAP_FIXED | unix.MREMAP_DONTUNMAP
	fixed, keep := flags&unix.MREMAP_FIXED != 0, flags&unix.MREMAP_DONTUNMAP != 0
	if flags&^all != 0 || (fixed || keep) && flags&unix.MREMAP_MAYMOVE == 0 || keep && oldLen != newLen {
		return 0, unix.EINVAL
	}
	if old&pageMask != 0 {
		return 0, unix.EINVAL
	}
	oldLen = (oldLen + pageMask) &^ pageMask
	newLen = (newLen + pageMask) &^ pageMask
	if newLen == 0 || newLen > arch.GuestTop || old > arch.GuestTop || oldLen > arch.GuestTop-old {
		return 0, unix.EINVAL
	}
	mm.mapMu.Lock()
	defer mm.mapMu.Unlock()
	if fixed {
		if newAddr&pageMask != 0 || newAddr > arch.GuestTop-newLen {
			return 0, unix.EINVAL
		}
		if newAddr < minAddr {
			return 0, unix.EPERM
		}
		if newAddr < old+oldLen && old < newAddr+newLen {
			return 0, unix.EINVAL
		}
		if err := mm.unmap(newAddr, newAddr+newLen); err != nil {
			return 0, err
		}
	}
	if oldLen > newLen && !keep {
		// Shrinking, with or without a move.
		if err := mm.unmap(old+newLen, old+oldLen); err != nil {
			return 0, err
		}
		oldLen = newLen
	}
	grown, err := mm.remap(old, oldLen, newLen, fixed, keep, flags&unix.MREMAP_MAYMOVE != 0, newAddr)
	if err != nil {
		return 0, err
	}
	if grown.lock == lockPopulate && newLen > oldLen {
		_ = mm.populate(grown.addr+oldLen, grown.addr+newLen, 0)
	}
	return grown.addr, nil
}

type remapped struct {
	addr uint64
	lock lockMode
}

// remap grows or moves. mapMu is held.
func (mm *MM) remap(old, oldLen, newLen uint64, fixed, keep, mayMove bool, newAddr uint64) (remapped, error) {
	mm.mu.Lock()
	s := mm.vmas.Find(old)
	if s == nil {
		mm.mu.Unlock()
		return remapped{}, unix.EFAULT
	}
	v, vend := s.V, s.End
	if oldLen == 0 && (!v.shared || !mayMove) {
		mm.mu.Unlock()
		return remapped{}, unix.EINVAL
	}
	if old+oldLen > vend {
		mm.mu.Unlock()
		return remapped{}, unix.EFAULT
	}
	if v.special && (newLen != oldLen || keep) || keep && v.file != nil && !v.shared {
		mm.mu.Unlock()
		return remapped{}, unix.EINVAL
	}
	grow := newLen - oldLen
	if !fixed && !keep && grow == 0 {
		mm.mu.Unlock()
		return remapped{old, v.lock}, nil
	}
	foff := v.off + (old - s.Start)
	if grow > 0 && v.file != nil && foff+newLen < foff {
		mm.mu.Unlock()
		return remapped{}, unix.EINVAL
	}
	extra := grow
	if keep {
		extra = newLen
	}
	if v.lock != unlocked && mm.space.locked+extra > mm.limits(unix.RLIMIT_MEMLOCK) {
		mm.mu.Unlock()
		return remapped{}, unix.EAGAIN
	}
	if err := mm.mayExpandLocked(v, extra, 0); err != nil {
		mm.mu.Unlock()
		return remapped{}, err
	}
	inPlace := !fixed && !keep && oldLen > 0 && old+oldLen == vend && vend <= arch.GuestTop-grow &&
		mm.freeLocked(vend, vend+grow) && mm.gapOKLocked(vend, vend+grow)
	piece := *v
	piece.next, piece.ahead = 0, 0
	mm.mu.Unlock()

	if inPlace {
		piece.off = v.off + (vend - s.Start)
		if v.file == nil {
			piece.off = 0
		}
		return remapped{old, v.lock}, mm.extend(vend, grow, &piece)
	}
	if !mayMove {
		return remapped{}, unix.ENOMEM
	}
	piece.off = foff
	if v.file == nil {
		piece.off = 0
	}
	to, err := mm.move(old, oldLen, newLen, fixed, keep, newAddr, &piece)
	return remapped{to, v.lock}, err
}

// extend adds n bytes of v at addr, which merge with what precedes.
func (mm *MM) extend(addr, n uint64, v *vma) error {
	if err := mm.addMapping(v, n); err != nil {
		return err
	}
	mm.mu.Lock()
	if !mm.freeLocked(addr, addr+n) {
		// A stack grew into the place since it was looked at.
		mm.mu.Unlock()
		mm.undoMapping(v, n)
		return unix.ENOMEM
	}
	mm.insertLocked(addr, n, v)
	mm.unlock()
	return nil
}

// undoMapping takes back addMapping.
func (mm *MM) undoMapping(v *vma, n uint64) {
	if v.file != nil {
		v.file.RemoveMapping(mm, int64(v.off), int64(n), v.mapsWritable())
		v.file.DecRef()
	}
}

// move makes v, newLen bytes, at a new address and moves the pages there.
func (mm *MM) move(old, oldLen, newLen uint64, fixed, keep bool, to uint64, v *vma) (uint64, error) {
	if err := mm.addMapping(v, newLen); err != nil {
		return 0, err
	}
	mm.mu.Lock()
	if !fixed {
		var err error
		hint := uint64(0)
		if keep {
			hint = to // MREMAP_DONTUNMAP takes the new address as a hint
		}
		if to, err = mm.findLocked(newLen, hint, false); err != nil {
			mm.mu.Unlock()
			mm.undoMapping(v, newLen)
			return 0, err
		}
	}
	if keep {
		v.lock = unlocked
	}
	var dead []deadMapping
	if !mm.freeLocked(to, to+newLen) {
		dead = mm.removeLocked(to, to+newLen) // a stack grew into it
	}
	mm.insertLocked(to, newLen, v)
	mm.movePagesLocked(old, to, oldLen)
	if !keep {
		dead = append(dead, mm.removeLocked(old, old+oldLen)...)
	}
	mm.unlock()
	mm.dropMappings(dead)
	return to, nil
}

// movePagesLocked moves the pages of [from, from+n) to an address without any.
func (mm *MM) movePagesLocked(from, to, n uint64) {
	if n == 0 || !mm.pages.Overlaps(from, from+n) {
		return
	}
	mm.unhostLocked(from, from+n)
	var moved []pageSeg
	mm.pages.Remove(from, from+n, func(s pageSeg) { moved = append(moved, s) })
	for _, s := range moved {
		mm.pages.Insert(to+(s.Start-from), to+(s.End-from), s.V)
	}
}
