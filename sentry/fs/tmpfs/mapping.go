package tmpfs

import (
	"golang.org/x/sys/unix"

	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// mapping is a file as mapped through one open file description.
type mapping struct {
	f        *file
	file     *vfs.File // nil in what Invalidate gets
	dev, ino uint64
}

// mapUse counts the bytes that a space maps.
type mapUse struct {
	bytes, writable int64
}

// File implements vfs.MappedFile.
func (m *mapping) File() *vfs.File { return m.file }

// MapObject implements mem.MapObjecter.
func (m *mapping) MapObject() any { return m.f }

// IncRef implements mem.Mappable.
func (m *mapping) IncRef() { m.file.IncRef() }

// DecRef implements mem.Mappable.
func (m *mapping) DecRef() { m.file.DecRef() }

// MapName implements mem.Mappable.
func (m *mapping) MapName() (name string, dev, ino uint64) {
	name, _ = m.file.Path().Resolve(vfs.Path{})
	return name, m.dev, m.ino
}

// Region implements mem.Mappable. Pages get frames even for a read, so that
// readers and writers share them.
func (m *mapping) Region(off, n int64, _ bool) (mem.Region, error) {
	f := m.f
	page, pages := off/pageSize, max(n/pageSize, 1)
	f.pagesMu.RLock()
	frame, k, ok := f.presentLocked(page, pages)
	size := f.size
	f.pagesMu.RUnlock()
	if page >= pagesOf(size) {
		return mem.Region{}, unix.EFAULT
	}
	if !ok {
		f.pagesMu.Lock()
		defer f.pagesMu.Unlock()
		if page >= pagesOf(f.size) {
			return mem.Region{}, unix.EFAULT
		}
		limit := min(pages, pagesOf(f.size)-page, faultAround)
		if _, err := f.fillLocked(page, limit, limit); err != nil {
			if _, err := f.fillLocked(page, 1, 1); err != nil {
				return mem.Region{}, err
			}
		}
		frame, k, _ = f.presentLocked(page, limit)
	}
	return mem.Region{FD: f.fs.mf.FD(), Off: int64(frame), Len: k * pageSize, Frames: true}, nil
}

// presentLocked returns the run of frames at page within the file.
func (f *file) presentLocked(page, n int64) (frame uint64, k int64, ok bool) {
	n = min(n, pagesOf(f.size)-page)
	if n <= 0 {
		return 0, 0, false
	}
	return f.pages.run(page, n)
}

// faultAround is how many pages of a hole one fault fills.
const faultAround = 16

// AddMapping implements mem.Mappable.
func (m *mapping) AddMapping(s mem.MappingSpace, _, n int64, writable bool) error {
	f := m.f
	f.pagesMu.Lock()
	defer f.pagesMu.Unlock()
	if writable && f.seals.Load()&(unix.F_SEAL_WRITE|unix.F_SEAL_FUTURE_WRITE) != 0 {
		return unix.EPERM
	}
	if f.spaces == nil {
		f.spaces = make(map[mem.MappingSpace]mapUse)
	}
	u := f.spaces[s]
	u.bytes += n
	if writable {
		u.writable += n
	}
	f.spaces[s] = u
	return nil
}

// RemoveMapping implements mem.Mappable.
func (m *mapping) RemoveMapping(s mem.MappingSpace, _, n int64, writable bool) {
	f := m.f
	f.pagesMu.Lock()
	defer f.pagesMu.Unlock()
	u := f.spaces[s]
	u.bytes -= n
	if writable {
		u.writable -= n
	}
	if u.bytes <= 0 {
		delete(f.spaces, s)
		return
	}
	f.spaces[s] = u
}

func (f *file) writableLocked() bool {
	for _, u := range f.spaces {
		if u.writable > 0 {
			return true
		}
	}
	return false
}

// invalidate tells every address space that pages changed their frames.
func (f *file) invalidate(off, n int64, private bool) {
	f.pagesMu.RLock()
	var spaces []mem.MappingSpace
	for s := range f.spaces {
		spaces = append(spaces, s)
	}
	f.pagesMu.RUnlock()
	m := &mapping{f: f}
	for _, s := range spaces {
		s.Invalidate(m, off, n, private)
	}
}
