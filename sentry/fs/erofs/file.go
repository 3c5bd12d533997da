package erofs

import (
	"sync"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

const pageSize = mem.PageSize

// ioBuf is the size of the buffers between image and guest memory.
const ioBuf = 128 << 10

var ioBufs = sync.Pool{New: func() any { b := make([]byte, ioBuf); return &b }}

// regular is a regular file.
type regular struct{ *inode }

// Open implements vfs.Inode.
func (r *regular) Open(_ vfs.Caller, _ *vfs.Dentry, flags uint32) (vfs.FileOps, error) {
	if flags&unix.O_ACCMODE != unix.O_RDONLY {
		return nil, unix.EROFS
	}
	return &file{i: r.inode}, nil
}

// file is an open regular file.
type file struct {
	i *inode `save:"rebuilt"`

	// i.mu guards:
	mapping *mapping `save:"rebuilt"` // made by the first mmap
}

// Release implements vfs.FileOps.
func (f *file) Release() {}

// Ready implements vfs.FileOps.
func (f *file) Ready(mask waitq.Mask) waitq.Mask {
	return mask & (waitq.In | waitq.Out | waitq.RdNorm | waitq.WrNorm)
}

// Fsync implements vfs.Syncer.
func (f *file) Fsync(vfs.Caller, bool) error { return nil }

// ReadAt implements vfs.ReaderAt.
func (f *file) ReadAt(_ vfs.Caller, _ *vfs.File, dst *mem.UserBuf, off int64) (int, error) {
	buf := ioBufs.Get().(*[]byte)
	defer ioBufs.Put(buf)
	done := 0
	for dst.Len() > 0 && off < f.i.a.size {
		n, err := f.i.fs.v.readData(&f.i.a, (*buf)[:min(dst.Len(), ioBuf)], off)
		if n > 0 {
			m, cerr := dst.CopyOut((*buf)[:n])
			done += m
			off += int64(m)
			if cerr != nil {
				return done, cerr
			}
		}
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// mapping is what an open file gives to mmap(2).
type mapping struct {
	i    *inode
	file *vfs.File
}

// Mappable implements vfs.Mapper. A description has one Mappable, so that its
// adjacent mappings can merge.
func (f *file) Mappable(_ vfs.Caller, file *vfs.File) (mem.Mappable, error) {
	f.i.mu.Lock()
	defer f.i.mu.Unlock()
	if f.mapping == nil {
		f.mapping = &mapping{f.i, file}
	}
	return f.mapping, nil
}

// File implements vfs.MappedFile.
func (m *mapping) File() *vfs.File { return m.file }

// MapObject implements mem.MapObjecter.
func (m *mapping) MapObject() any { return m.i }

// AddMapping implements mem.Mappable: nothing is ever invalidated.
func (m *mapping) AddMapping(mem.MappingSpace, int64, int64, bool) error { return nil }

// RemoveMapping implements mem.Mappable.
func (m *mapping) RemoveMapping(mem.MappingSpace, int64, int64, bool) {}

// IncRef implements mem.Mappable.
func (m *mapping) IncRef() { m.file.IncRef() }

// DecRef implements mem.Mappable.
func (m *mapping) DecRef() { m.file.DecRef() }

// MapName implements mem.Mappable.
func (m *mapping) MapName() (string, uint64, uint64) {
	name, _ := m.file.Path().Resolve(vfs.Path{})
	return name, m.i.fs.dev, m.i.a.nid
}

// Region implements mem.Mappable: pages that the image has as a whole are
// mapped from it, the others are copied.
func (m *mapping) Region(off, n int64, _ bool) (mem.Region, error) {
	i := m.i
	if off < 0 || off >= i.a.size {
		return mem.Region{}, unix.EFAULT
	}
	v := i.fs.v
	x, err := v.find(&i.a, off)
	if err != nil {
		return mem.Region{}, unix.EFAULT // as SIGBUS, which a read error is on Linux too
	}
	if whole := min(x.n, n) &^ (pageSize - 1); !x.hole && whole > 0 && x.at&(pageSize-1) == 0 {
		if x.at > v.size || whole > v.size-x.at {
			return mem.Region{}, unix.EFAULT
		}
		return mem.Region{FD: int(v.f.Fd()), Off: x.at, Len: whole}, nil
	}
	frame, err := i.page(off / pageSize)
	if err != nil {
		return mem.Region{}, err
	}
	return mem.Region{FD: i.fs.o.Memory.FD(), Off: int64(frame), Len: pageSize, Frames: true}, nil
}

// page returns the frame with a copy of a page.
func (i *inode) page(page int64) (uint64, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if frame, ok := i.pages[page]; ok {
		return frame, nil
	}
	buf := make([]byte, pageSize)
	if _, err := i.fs.v.readData(&i.a, buf, page*pageSize); err != nil {
		return 0, unix.EFAULT
	}
	mf := i.fs.o.Memory
	r, err := mf.Allocate(pageSize, i.fs.o.Account, mem.PageCache)
	if err != nil {
		return 0, err
	}
	if err := mf.WriteAt(buf, r.Start); err != nil {
		mf.DecRef(r)
		return 0, err
	}
	if i.pages == nil {
		i.pages = map[int64]uint64{}
	}
	i.pages[page] = r.Start
	return r.Start, nil
}

// freePages frees the copies: nobody maps the file any more.
func (i *inode) freePages() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, frame := range i.pages {
		i.fs.o.Memory.DecRef(mem.Range{Start: frame, End: frame + pageSize})
	}
	i.pages = nil
}
