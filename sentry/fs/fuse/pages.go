package fuse

import (
	"hash/maphash"

	"golang.org/x/sys/unix"

	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// maxMapped bounds the size of a file that can be mapped: all of it is read.
const maxMapped = 1 << 30

// pages are a file's contents as mappings see them: a file in memory, and
// what its pages had when they were last the server's.
type pages struct {
	// immutable:
	file   vfs.Inode    `save:"rec"`
	ops    vfs.FileOps  `save:"rebuilt"`
	reader vfs.ReaderAt `save:"rebuilt"`
	writer vfs.WriterAt `save:"rebuilt"`
	mapper vfs.Mapper   `save:"rebuilt"`

	// inode.mu guards:
	sums []uint64       `save:"rebuilt"` // of each page; nil after a restore: all are sent
	fh   uint64         `save:"rec"`     // to write through
	maps map[bool]int64 `save:"rebuilt"` // bytes mapped, by whether for writing
}

var seed = maphash.MakeSeed()

func newPages(c vfs.Caller, file vfs.Inode) (*pages, error) {
	ops, err := file.Open(c, nil, unix.O_RDWR)
	if err != nil {
		return nil, err
	}
	p := &pages{file: file, ops: ops, maps: map[bool]int64{}}
	p.reader, _ = ops.(vfs.ReaderAt)
	p.writer, _ = ops.(vfs.WriterAt)
	p.mapper, _ = ops.(vfs.Mapper)
	if p.reader == nil || p.writer == nil || p.mapper == nil {
		return nil, unix.ENODEV
	}
	return p, nil
}

// mapped borrows the pages if some mapping may write to them, so that reads
// must see them.
func (i *inode) mapped() *pages {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.pages != nil && i.pages.maps[true] > 0 {
		return i.pages
	}
	return nil
}

func (i *inode) anyPages() *pages {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.pages
}

// Mappable implements vfs.Mapper. The whole file is read when nothing maps it
// yet.
func (o *fileOps) Mappable(c vfs.Caller, f *vfs.File) (mem.Mappable, error) {
	i := o.i
	p := i.anyPages()
	if p == nil || !p.used(i) && !i.fs.isRestoring() {
		var err error
		if p, err = o.load(c, p); err != nil {
			return nil, err
		}
	}
	m, err := p.mapper.Mappable(c, f)
	if err != nil {
		return nil, err
	}
	return &mapping{m, o, p}, nil
}

func (p *pages) used(i *inode) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return p.maps[true]+p.maps[false] > 0
}

// load reads the file into memory.
func (o *fileOps) load(c vfs.Caller, p *pages) (*pages, error) {
	i := o.i
	if err := i.refresh(c); err != nil {
		return nil, err
	}
	i.mu.Lock()
	size := int64(i.attr.Size)
	i.mu.Unlock()
	if size > maxMapped {
		return nil, unix.ENODEV
	}
	if p == nil {
		file := i.fs.newFile(c)
		if file == nil {
			return nil, unix.ENODEV
		}
		var err error
		if p, err = newPages(c, file); err != nil {
			return nil, err
		}
	}
	zero := uint64(0)
	if err := p.file.SetStat(c, &vfs.SetStat{Size: &zero}); err != nil {
		return nil, err
	}
	for off := int64(0); off < size; {
		want := int(min(int64(o.maxRead()), size-off))
		b, err := o.read(c, off, want)
		if err != nil {
			return nil, err
		}
		src := mem.KernelBuf(b)
		if _, _, err := p.writer.WriteAt(c, nil, &src, off); err != nil {
			return nil, err
		}
		off += int64(len(b))
		if len(b) < want {
			break
		}
	}
	n := uint64(size)
	if err := p.file.SetStat(c, &vfs.SetStat{Size: &n}); err != nil {
		return nil, err
	}
	sums := p.sum(c, size)
	i.mu.Lock()
	p.sums, p.fh = sums, o.fh
	i.pages = p
	i.mu.Unlock()
	return p, nil
}

func (fs *FS) newFile(c vfs.Caller) vfs.Inode {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.memory == nil && memories != nil {
		fs.memory = memories(c)
	}
	if fs.memory == nil {
		return nil
	}
	return fs.memory(c)
}

// sum returns the checksums of all pages.
func (p *pages) sum(c vfs.Caller, size int64) []uint64 {
	sums := make([]uint64, 0, (size+4095)/4096)
	p.each(c, size, func(_ int64, b []byte) { sums = append(sums, maphash.Bytes(seed, b)) })
	return sums
}

// each calls fn with each page.
func (p *pages) each(c vfs.Caller, size int64, fn func(off int64, b []byte)) {
	buf := pageBufs.Get().(*[4096]byte)
	defer pageBufs.Put(buf)
	for off := int64(0); off < size; off += 4096 {
		dst := mem.KernelBuf(buf[:min(4096, size-off)])
		n, err := p.reader.ReadAt(c, nil, &dst, off)
		if err != nil || n == 0 {
			return
		}
		fn(off, buf[:n])
	}
}

// changed calls fn with the pages that mappings changed since they were the
// server's, and takes them for sent.
func (i *inode) changed(c vfs.Caller, fn func(fh uint64, off int64, b []byte) error) error {
	i.mu.Lock()
	p := i.pages
	if p == nil || p.maps[true] == 0 {
		i.mu.Unlock()
		return nil
	}
	old := p.sums
	fh := p.fh
	i.mu.Unlock()
	st, err := p.file.Stat(c, unix.STATX_SIZE)
	if err != nil {
		return err
	}
	sums := make([]uint64, 0, len(old))
	p.each(c, int64(st.Size), func(off int64, b []byte) {
		s := maphash.Bytes(seed, b)
		if k := int(off / 4096); err == nil && (k >= len(old) || old[k] != s) {
			err = fn(fh, off, b)
		}
		sums = append(sums, s)
	})
	if err != nil {
		return err
	}
	i.mu.Lock()
	p.sums = sums
	i.mu.Unlock()
	return nil
}

// flushPages writes what mappings changed to the server and waits for it. What
// could not be sent before is told once, as EIO.
func (i *inode) flushPages(c vfs.Caller) error {
	i.mu.Lock()
	lost := i.lost
	i.lost = false
	i.mu.Unlock()
	if lost {
		return unix.EIO
	}
	return i.changed(c, func(fh uint64, off int64, b []byte) error {
		_, err := i.fs.conn.call(c, opWrite, i.node, writeArgs(fh, unix.O_RDWR, off, b), 8, 8)
		return err
	})
}

// postPages is flushPages without waiting.
func (i *inode) postPages(o *fileOps) {
	err := i.changed(kernelCaller(), func(_ uint64, off int64, b []byte) error {
		if !i.fs.conn.post(opWrite, i.node, writeArgs(o.fh, unix.O_RDWR, off, b), 8) {
			return unix.EIO
		}
		return nil
	})
	if err != nil {
		i.mu.Lock()
		i.lost = true
		i.mu.Unlock()
	}
}

func kernelCaller() vfs.Caller { return vfs.KernelCaller() }

// updatePages makes mappings see what was written.
func (i *inode) updatePages(c vfs.Caller, b []byte, off int64) {
	p := i.anyPages()
	if p == nil {
		return
	}
	src := mem.KernelBuf(b)
	if _, _, err := p.writer.WriteAt(c, nil, &src, off); err != nil {
		return
	}
	st, err := p.file.Stat(c, unix.STATX_SIZE)
	if err != nil {
		return
	}
	sums := p.sum(c, int64(st.Size))
	i.mu.Lock()
	p.sums = sums
	i.mu.Unlock()
}

func (i *inode) resizePages(c vfs.Caller, size uint64) {
	if p := i.anyPages(); p != nil {
		_ = p.file.SetStat(c, &vfs.SetStat{Size: &size})
		sums := p.sum(c, int64(size))
		i.mu.Lock()
		p.sums = sums
		i.mu.Unlock()
	}
}

// mapping is the memory file's, which tells the server of changes.
type mapping struct {
	mem.Mappable
	o *fileOps
	p *pages
}

// File implements vfs.MappedFile.
func (m *mapping) File() *vfs.File { return m.Mappable.(vfs.MappedFile).File() }

// MapObject implements mem.MapObjecter.
func (m *mapping) MapObject() any { return mem.MapObject(m.Mappable) }

// AddMapping implements mem.Mappable.
func (m *mapping) AddMapping(s mem.MappingSpace, off, n int64, writable bool) error {
	err := m.Mappable.AddMapping(s, off, n, writable)
	if err == nil {
		m.o.i.mu.Lock()
		m.p.maps[writable] += n
		m.o.i.mu.Unlock()
	}
	return err
}

// RemoveMapping implements mem.Mappable: what is not mapped any more is sent.
func (m *mapping) RemoveMapping(s mem.MappingSpace, off, n int64, writable bool) {
	m.Mappable.RemoveMapping(s, off, n, writable)
	if writable {
		m.o.i.postPages(m.o)
	}
	m.o.i.mu.Lock()
	m.p.maps[writable] -= n
	m.o.i.mu.Unlock()
}

// SyncMapping sends what was changed, for msync(2). It does not wait: whoever
// asks the server later is answered later.
func (m *mapping) SyncMapping(_, _ int64) error {
	m.o.i.postPages(m.o)
	return nil
}
