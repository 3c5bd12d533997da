package mm

import (
	"golang.org/x/sys/unix"

	"runsc/sentry/arch"
	"runsc/sentry/mem"
	"runsc/sentry/platform"
)

// AnyProt is every protection.
const AnyProt = platform.Read | platform.Write | platform.Exec

// MMapOpts says what to map.
type MMapOpts struct {
	Addr, Len uint64
	Prot      platform.Prot
	MaxProt   platform.Prot // what mprotect may give; 0 is everything
	Shared    bool
	Fixed     bool // MAP_FIXED
	NoReplace bool // with Fixed: MAP_FIXED_NOREPLACE
	Low2G     bool // MAP_32BIT
	GrowsDown bool
	NoReserve bool
	Locked    bool // MAP_LOCKED
	// Privileged: RLIMIT_MEMLOCK does not hold.
	Privileged bool
	Populate   bool
	// Stable: the file is a program or library, which is not written to
	// (MAP_DENYWRITE): a write to a private page may copy its neighbours too.
	Stable  bool
	Special bool // not to be merged, moved or resized: vdso, vvar

	// File is nil for anonymous memory. MMap takes its own reference.
	File mem.Mappable
	Off  uint64
	Name string // shown in maps for what has no file: "[stack]"
}

// MMap implements mmap(2) and returns the address.
func (mm *MM) MMap(o MMapOpts) (uint64, error) {
	if o.Len == 0 || o.Off&pageMask != 0 || o.GrowsDown && (o.Shared || o.File != nil) {
		return 0, unix.EINVAL
	}
	n := (o.Len + pageMask) &^ pageMask
	if n == 0 || n > arch.GuestTop {
		return 0, unix.ENOMEM
	}
	if o.Off+n < o.Off || o.Off+n > 1<<63-1 {
		return 0, unix.EOVERFLOW
	}
	if o.Fixed {
		if o.Addr&pageMask != 0 {
			return 0, unix.EINVAL
		}
		if o.Addr > arch.GuestTop-n {
			return 0, unix.ENOMEM
		}
		if o.Addr < minAddr {
			return 0, unix.EPERM
		}
	}
	if o.MaxProt == 0 {
		o.MaxProt = AnyProt
	}
	if o.File == nil && o.Shared {
		o.File = NewShm(mm.mf, mm.acct, n)
		defer o.File.DecRef()
	}
	mm.mapMu.Lock()
	defer mm.mapMu.Unlock()
	mm.mu.RLock()
	future := mm.future
	mm.mu.RUnlock()
	v := &vma{
		prot: o.Prot, maxProt: o.MaxProt, shared: o.Shared, grows: o.GrowsDown, nores: o.NoReserve,
		special: o.Special, stable: o.Stable, file: o.File, off: o.Off, name: o.Name, lock: future,
	}
	if o.Locked {
		v.lock = lockPopulate
	}
	if o.File != nil {
		v.obj = mem.MapObject(o.File)
	}
	addr, err := mm.placeVMA(v, n, &o)
	if err != nil {
		return 0, err
	}
	if o.Populate || v.lock == lockPopulate {
		_ = mm.populate(addr, addr+n, 0)
	}
	return addr, nil
}

// placeVMA finds an address for v and makes the mapping. mapMu is held.
func (mm *MM) placeVMA(v *vma, n uint64, o *MMapOpts) (uint64, error) {
	mm.mu.Lock()
	addr, freed, err := mm.chooseLocked(n, o)
	if err == nil && v.lock != unlocked && !o.Privileged && mm.space.locked+n > mm.limits(unix.RLIMIT_MEMLOCK) {
		err = unix.EAGAIN
	}
	if err == nil {
		err = mm.mayExpandLocked(v, n, freed)
	}
	mm.mu.Unlock()
	if err != nil {
		return 0, err
	}
	// The set of vmas stays as it is: mapMu is held. (A stack that grows into
	// the place meanwhile loses it, as with any MAP_FIXED.)
	if err := mm.addMapping(v, n); err != nil {
		return 0, err
	}
	mm.mu.Lock()
	var dead []deadMapping
	if !mm.freeLocked(addr, addr+n) {
		dead = mm.removeLocked(addr, addr+n)
	}
	mm.insertLocked(addr, n, v)
	mm.unlock()
	mm.dropMappings(dead)
	return addr, nil
}

// addMapping takes a reference to v's file and tells it of the mapping.
func (mm *MM) addMapping(v *vma, n uint64) error {
	if v.file == nil {
		return nil
	}
	v.file.IncRef()
	if err := v.file.AddMapping(mm, int64(v.off), int64(n), v.mapsWritable()); err != nil {
		v.file.DecRef()
		return err
	}
	return nil
}

func (mm *MM) insertLocked(addr, n uint64, v *vma) {
	mm.space.count(v, n, 1)
	mm.vmas.Insert(addr, addr+n, v)
}

// chooseLocked returns where to map n bytes, and how many mapped bytes are
// there already.
func (mm *MM) chooseLocked(n uint64, o *MMapOpts) (addr, freed uint64, err error) {
	if o.Fixed {
		if mm.freeLocked(o.Addr, o.Addr+n) {
			return o.Addr, 0, nil
		}
		if o.NoReplace {
			return 0, 0, unix.EEXIST
		}
		return o.Addr, mm.mappedLocked(o.Addr, o.Addr+n), nil
	}
	hint := o.Addr &^ pageMask
	if hint != 0 {
		hint = max(hint, minAddr)
	}
	addr, err = mm.findLocked(n, hint, o.Low2G)
	return addr, 0, err
}

// mappedLocked returns how much of [start, end) is mapped.
func (mm *MM) mappedLocked(start, end uint64) (n uint64) {
	for i := mm.vmas.Search(start); i < mm.vmas.Len() && mm.vmas.At(i).Start < end; i++ {
		s := mm.vmas.At(i)
		n += min(s.End, end) - max(s.Start, start)
	}
	return n
}

// findLocked finds n free bytes: at hint, else as high as possible below the
// mmap base, else anywhere (arch_get_unmapped_area_topdown).
func (mm *MM) findLocked(n, hint uint64, low2G bool) (uint64, error) {
	if hint != 0 && hint <= arch.GuestTop-n && mm.freeLocked(hint, hint+n) && mm.gapOKLocked(hint, hint+n) &&
		(!low2G || hint+n <= 1<<31) {
		return hint, nil
	}
	if low2G {
		// MAP_32BIT searches [1 GiB, 2 GiB) (find_start_end of sys_x86_64.c).
		if a, ok := mm.findBelowLocked(n, 1<<30, 1<<31); ok {
			return a, nil
		}
		return 0, unix.ENOMEM
	}
	if a, ok := mm.findBelowLocked(n, minAddr, mm.layout.mmapBase); ok {
		return a, nil
	}
	if a, ok := mm.findBelowLocked(n, mm.layout.mmapBase, arch.GuestTop); ok {
		return a, nil
	}
	return 0, unix.ENOMEM
}

// gapOKLocked tells whether [start, end) keeps the stack guard gap below the
// vma that follows, if that is a stack.
func (mm *MM) gapOKLocked(start, end uint64) bool {
	i := mm.vmas.Search(end)
	return i == mm.vmas.Len() || !mm.vmas.At(i).V.grows || mm.vmas.At(i).Start-end >= stackGuardGap
}

// findBelowLocked returns the highest place for n bytes in [lo, hi).
func (mm *MM) findBelowLocked(n, lo, hi uint64) (uint64, bool) {
	i := mm.vmas.Search(hi)
	top := hi
	if i < mm.vmas.Len() {
		s := mm.vmas.At(i)
		start := s.Start
		if s.V.grows {
			start -= min(start, stackGuardGap)
		}
		top = min(top, start)
	}
	for {
		floor := lo
		if i > 0 {
			floor = max(floor, mm.vmas.At(i-1).End)
		}
		if top >= floor && top-floor >= n {
			return top - n, true
		}
		if i == 0 || mm.vmas.At(i-1).Start <= lo {
			return 0, false
		}
		i--
		s := mm.vmas.At(i)
		top = s.Start
		if s.V.grows {
			top -= min(top, stackGuardGap)
		}
	}
}

// MUnmap implements munmap(2).
func (mm *MM) MUnmap(addr, n uint64) error {
	r := (n + pageMask) &^ pageMask
	if addr&pageMask != 0 || r == 0 || addr > arch.TaskSize || r > arch.TaskSize-addr {
		return unix.EINVAL
	}
	// Between GuestTop and TaskSize there never is a mapping.
	end := min(addr+r, arch.GuestTop)
	if addr >= end {
		return nil
	}
	mm.mapMu.Lock()
	defer mm.mapMu.Unlock()
	return mm.unmap(addr, end)
}

// unmap removes [addr, end). mapMu is held.
func (mm *MM) unmap(addr, end uint64) error {
	mm.mu.Lock()
	if s := mm.vmas.Find(addr); s != nil && s.Start < addr && s.End > end && mm.vmas.Len() >= mm.maxMapCount() {
		mm.mu.Unlock()
		return unix.ENOMEM
	}
	dead := mm.removeLocked(addr, end)
	mm.unlock()
	mm.dropMappings(dead)
	return nil
}

// userRange checks that addr is page aligned and that addr and n make a range
// of user addresses, and returns its end, rounded up.
func userRange(addr, n uint64) (uint64, error) {
	if addr&pageMask != 0 {
		return 0, unix.EINVAL
	}
	r := (n + pageMask) &^ pageMask
	if r < n || addr > arch.GuestTop || r > arch.GuestTop-addr {
		return 0, unix.ENOMEM
	}
	return addr + r, nil
}
