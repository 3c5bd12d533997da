package mm

import (
	"runsc/sentry/mem"
	"runsc/sentry/platform"
)

// VMAInfo describes one mapping, for /proc/PID/maps and smaps.
type VMAInfo struct {
	Start, End uint64
	Prot       platform.Prot
	Shared     bool
	Off        uint64
	Name       string // path, "[heap]", or empty
	Dev, Ino   uint64 // of the file
	RSS        uint64 // bytes resident
	Anon       uint64 // bytes of RSS that are private copies
	Locked     bool
	GrowsDown  bool
	NoReserve  bool
}

// MapsFor calls fn for each vma in order.
func (mm *MM) MapsFor(fn func(VMAInfo)) {
	type entry struct {
		VMAInfo
		file mem.Mappable
	}
	var list []entry
	mm.mu.RLock()
	for i := 0; i < mm.vmas.Len(); i++ {
		s := mm.vmas.At(i)
		v := s.V
		e := entry{VMAInfo{
			Start: s.Start, End: s.End, Prot: v.prot, Shared: v.shared, Off: v.off, Name: v.name,
			Locked: v.lock != unlocked, GrowsDown: v.grows, NoReserve: v.nores,
		}, v.file}
		for j := mm.pages.Search(s.Start); j < mm.pages.Len() && mm.pages.At(j).Start < s.End; j++ {
			p := mm.pages.At(j)
			n := min(p.End, s.End) - max(p.Start, s.Start)
			e.RSS += n
			if p.V.owned {
				e.Anon += n
			}
		}
		if v.file != nil {
			v.file.IncRef()
		}
		list = append(list, e)
	}
	mm.mu.RUnlock()
	for _, e := range list {
		if e.file != nil {
			name, dev, ino := e.file.MapName()
			e.Dev, e.Ino = dev, ino
			if e.Name == "" {
				e.Name = name
			} else {
				e.Off, e.Dev, e.Ino = 0, 0, 0 // [vdso] and the like have no file
			}
			e.file.DecRef()
		}
		fn(e.VMAInfo)
	}
}

// Usage has the figures of /proc/PID/statm and status, in bytes.
type Usage struct {
	Size, PeakSize        uint64 // VmSize, VmPeak
	RSS, PeakRSS          uint64 // VmRSS, VmHWM
	RSSAnon, RSSFile      uint64
	Data, Stack, Text     uint64 // VmData, VmStk, VmExe with VmLib
	Locked, Shared, Pages uint64
}

// Usage returns the figures of now.
func (mm *MM) Usage() Usage {
	mm.mu.RLock()
	defer mm.mu.RUnlock()
	s := &mm.space
	return Usage{
		Size: s.total, PeakSize: s.peakTotal, RSS: s.anon + s.file, PeakRSS: s.peakRSS, RSSAnon: s.anon, RSSFile: s.file,
		Data: s.data, Stack: s.stack, Text: s.exec, Locked: s.locked, Shared: s.shared, Pages: (s.anon + s.file) / pageSize,
	}
}

// Mapped tells whether all of [addr, addr+n) is mapped.
func (mm *MM) Mapped(addr, n uint64) bool {
	mm.mu.RLock()
	defer mm.mu.RUnlock()
	return addr+n >= addr && mm.mappedLocked(addr, addr+n) == n
}

// committed is what counts for vm.overcommit_memory.
func (mm *MM) committed() uint64 {
	mm.mu.RLock()
	defer mm.mu.RUnlock()
	return mm.space.commit
}

// Resident calls fn for the pages of [start, end) that are there, anon for
// private copies.
func (mm *MM) Resident(start, end uint64, fn func(from, to uint64, anon bool)) {
	mm.mu.RLock()
	defer mm.mu.RUnlock()
	for i := mm.pages.Search(start); i < mm.pages.Len() && mm.pages.At(i).Start < end; i++ {
		p := mm.pages.At(i)
		if from, to := max(p.Start, start), min(p.End, end); from < to {
			fn(from, to, p.V.owned)
		}
	}
}

// FileAt returns a new reference to the file of the vma [start, end), nil if
// there is none.
func (mm *MM) FileAt(start, end uint64) mem.Mappable {
	mm.mu.RLock()
	defer mm.mu.RUnlock()
	s := mm.vmas.Find(start)
	if s == nil || s.Start != start || s.End != end || s.V.file == nil {
		return nil
	}
	s.V.file.IncRef()
	return s.V.file
}

// ResetPeak sets VmHWM back to what is resident now.
func (mm *MM) ResetPeak() {
	mm.mu.Lock()
	defer mm.mu.Unlock()
	mm.space.peakRSS = mm.space.anon + mm.space.file
}
