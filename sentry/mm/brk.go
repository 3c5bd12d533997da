package mm

import (
	"golang.org/x/sys/unix"

	"runsc/sentry/arch"
	"runsc/sentry/platform"
)

// brkRange is the heap: [start, end).
type brkRange struct {
	start, end uint64 `save:"rec"`
}

// SetBrk makes addr the start of an empty heap. The loader calls it.
func (mm *MM) SetBrk(addr uint64) {
	mm.mu.Lock()
	defer mm.mu.Unlock()
	mm.brk = brkRange{addr, addr}
}

// BrkStart returns where the heap starts and ends.
func (mm *MM) BrkStart() (start, end uint64) {
	mm.mu.RLock()
	defer mm.mu.RUnlock()
	return mm.brk.start, mm.brk.end
}

// Brk implements brk(2): it returns the new end of the heap, which is the old
// one if it cannot be moved.
func (mm *MM) Brk(addr uint64) uint64 {
	mm.mapMu.Lock()
	defer mm.mapMu.Unlock()
	mm.mu.Lock()
	old := mm.brk.end
	if addr < mm.brk.start || addr > arch.GuestTop-pageSize {
		mm.mu.Unlock()
		return old
	}
	// RLIMIT_DATA counts the heap and the data segment (check_data_rlimit).
	data := addr - mm.brk.start + (mm.info.DataEnd - mm.info.DataStart)
	if data > mm.limits(unix.RLIMIT_DATA) {
		mm.mu.Unlock()
		return old
	}
	from, to := (old+pageMask)&^pageMask, (addr+pageMask)&^pageMask
	switch {
	case to < from:
		dead := mm.removeLocked(to, from)
		mm.brk.end = addr
		mm.unlock()
		mm.dropMappings(dead)
		return addr
	case to > from:
		v := &vma{prot: platform.Read | platform.Write, maxProt: AnyProt, name: "[heap]", lock: mm.future}
		if mm.mayExpandLocked(v, to-from, 0) != nil || !mm.freeLocked(from, to) ||
			!mm.gapOKLocked(from, to) ||
			v.lock != unlocked && mm.space.locked+to-from > mm.limits(unix.RLIMIT_MEMLOCK) {
			mm.mu.Unlock()
			return old
		}
		mm.insertLocked(from, to-from, v)
		mm.brk.end = addr
		mm.unlock()
		if v.lock == lockPopulate {
			_ = mm.populate(from, to, 0)
		}
		return addr
	}
	mm.brk.end = addr
	mm.mu.Unlock()
	return addr
}
