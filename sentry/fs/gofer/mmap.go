package gofer

import (
	"golang.org/x/sys/unix"

	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

const pageSize = 4096

// fileMapping is what an open file gives to mmap(2): the host descriptor is
// mapped directly, so that guests, Sentry and host share the page cache.
type fileMapping struct {
	f    *regularFile
	file *vfs.File
}

// Mappable implements vfs.Mapper. A description has one Mappable, so that its
// adjacent mappings can merge.
func (f *regularFile) Mappable(c vfs.Caller, file *vfs.File) (mem.Mappable, error) {
	f.i.mu.Lock()
	defer f.i.mu.Unlock()
	if f.mapping == nil {
		f.mapping = &fileMapping{f, file}
	}
	return f.mapping, nil
}

// SyncMapping writes dirty pages back, for msync(2).
func (m *fileMapping) SyncMapping(off, n int64) error { return m.f.Fsync(nil, true) }

// PunchHole frees a range, for madvise(2) with MADV_REMOVE.
func (m *fileMapping) PunchHole(off, n int64) error {
	return m.f.Fallocate(nil, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
}

// File implements vfs.MappedFile.
func (m *fileMapping) File() *vfs.File { return m.file }

// MapObject implements mem.MapObjecter.
func (m *fileMapping) MapObject() any { return m.f.i.Node() }

// Region implements mem.Mappable.
func (m *fileMapping) Region(off, n int64, write bool) (mem.Region, error) {
	size, err := m.f.i.size(m.f.h)
	if err != nil {
		return mem.Region{}, err
	}
	end := (size + pageSize - 1) &^ (pageSize - 1)
	if off < 0 || off >= end {
		return mem.Region{}, unix.EFAULT
	}
	return mem.Region{FD: m.f.h.fd, Off: off, Len: min(n, end-off)}, nil
}

// size returns the current size of the file.
func (i *inode) size(h *handle) (int64, error) {
	i.mu.Lock()
	if i.fs.exclusive && i.fresh {
		n := int64(i.guest.Size)
		i.mu.Unlock()
		return n, nil
	}
	i.mu.Unlock()
	var st unix.Stat_t
	if err := unix.Fstat(h.fd, &st); err != nil {
		return 0, err
	}
	return st.Size, nil
}

// AddMapping implements mem.Mappable.
func (m *fileMapping) AddMapping(s mem.MappingSpace, off, n int64, writable bool) error {
	i := m.f.i
	i.mu.Lock()
	defer i.mu.Unlock()
	i.mappings = append(i.mappings, mapping{s, m, off, n, writable})
	if writable {
		i.writeMapped++
	}
	return nil
}

// RemoveMapping implements mem.Mappable. The range may be a part of one that
// was added: an unmapped middle leaves two.
func (m *fileMapping) RemoveMapping(s mem.MappingSpace, off, n int64, writable bool) {
	i := m.f.i
	i.mu.Lock()
	defer i.mu.Unlock()
	for k := 0; k < len(i.mappings) && n > 0; k++ {
		x := i.mappings[k]
		if x.space != s || x.m != mem.Mappable(m) || x.writable != writable || x.off > off || x.off+x.n < off+n {
			continue
		}
		last := len(i.mappings) - 1
		i.mappings[k], i.mappings[last] = i.mappings[last], mapping{}
		i.mappings = i.mappings[:last]
		if x.off < off {
			i.mappings = append(i.mappings, mapping{s, m, x.off, off - x.off, writable})
		}
		if end := x.off + x.n; end > off+n {
			i.mappings = append(i.mappings, mapping{s, m, off + n, end - (off + n), writable})
		}
		break
	}
	if writable {
		i.writeMapped = 0
		for _, x := range i.mappings {
			if x.writable {
				i.writeMapped++
			}
		}
		i.fresh = false
		i.changes++
	}
}

// IncRef implements mem.Mappable.
func (m *fileMapping) IncRef() { m.file.IncRef() }

// DecRef implements mem.Mappable.
func (m *fileMapping) DecRef() { m.file.DecRef() }

// MapName implements mem.Mappable.
func (m *fileMapping) MapName() (string, uint64, uint64) {
	i := m.f.i
	i.mu.Lock()
	dev, ino := i.guest.Dev, i.guest.Ino
	i.mu.Unlock()
	name, _ := m.file.Path().Resolve(vfs.Path{})
	return name, dev, ino
}
