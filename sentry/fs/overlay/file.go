package overlay

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// fileNode is a regular file.
type fileNode struct{ node }

// Open implements vfs.Inode. A file that is in the upper layer, or comes there
// now, is opened there and the overlay is out of the way; one that is only
// read is read from the layer below, until somebody writes to it.
func (f *fileNode) Open(c vfs.Caller, d *vfs.Dentry, flags uint32) (vfs.FileOps, error) {
	if flags&unix.O_ACCMODE != unix.O_RDONLY {
		if err := f.copyUp(c, false); err != nil {
			return nil, err
		}
	}
	if up := f.upper(); up != nil {
		return up.Open(f.fs.as(c), d, flags)
	}
	ops, err := f.lower[0].Open(f.fs.as(c), d, flags)
	if err != nil {
		return nil, err
	}
	o := &lowerOps{f: f, flags: flags, low: ops}
	o.reader, _ = ops.(vfs.ReaderAt)
	return o, nil
}

// lowerOps is a description opened for reading before the file was copied up.
type lowerOps struct {
	// immutable:
	f      *fileNode    `save:"rebuilt"`
	flags  uint32       `save:"rebuilt"`
	low    vfs.FileOps  `save:"rebuilt"`
	reader vfs.ReaderAt `save:"rebuilt"`

	// up is the same description in the upper layer, opened at the first use
	// after the copy-up (Linux's ovl_real_fdget).
	up atomic.Pointer[upperOps] `save:"none: opened again"`
}

type upperOps struct{ ops vfs.FileOps }

// Release implements vfs.FileOps.
func (o *lowerOps) Release() {
	o.low.Release()
	if u := o.up.Load(); u != nil {
		u.ops.Release()
	}
}

// current borrows the operations that count now.
func (o *lowerOps) current(c vfs.Caller) (vfs.FileOps, error) {
	up := o.f.upper()
	if up == nil {
		return o.low, nil
	}
	if u := o.up.Load(); u != nil {
		return u.ops, nil
	}
	ops, err := up.Open(o.f.fs.as(c), nil, o.flags)
	if err != nil {
		return nil, err
	}
	if !o.up.CompareAndSwap(nil, &upperOps{ops}) {
		ops.Release()
		return o.up.Load().ops, nil
	}
	return ops, nil
}

// Ready implements vfs.FileOps.
func (o *lowerOps) Ready(mask waitq.Mask) waitq.Mask { return o.low.Ready(mask) }

// ReadAt implements vfs.ReaderAt.
func (o *lowerOps) ReadAt(c vfs.Caller, f *vfs.File, dst *mem.UserBuf, off int64) (int, error) {
	if o.f.up.Load() == nil && o.reader != nil {
		return o.reader.ReadAt(c, f, dst, off)
	}
	ops, err := o.current(c)
	if err != nil {
		return 0, err
	}
	r, ok := ops.(vfs.ReaderAt)
	if !ok {
		return 0, unix.EINVAL
	}
	return r.ReadAt(c, f, dst, off)
}

// Seek implements vfs.Seeker.
func (o *lowerOps) Seek(c vfs.Caller, f *vfs.File, off int64, whence int) (int64, error) {
	ops, err := o.current(c)
	if err != nil {
		return 0, err
	}
	if s, ok := ops.(vfs.Seeker); ok {
		return s.Seek(c, f, off, whence)
	}
	return 0, unix.ENOTSUP
}

// Mappable implements vfs.Mapper: pages of the layer that has the data now.
// Mappings made before a copy-up keep the lower file's pages.
func (o *lowerOps) Mappable(c vfs.Caller, f *vfs.File) (mem.Mappable, error) {
	ops, err := o.current(c)
	if err != nil {
		return nil, err
	}
	m, ok := ops.(vfs.Mapper)
	if !ok {
		return nil, unix.ENODEV
	}
	return m.Mappable(c, f)
}

// Ioctl implements vfs.Ioctler.
func (o *lowerOps) Ioctl(c vfs.Caller, f *vfs.File, m mem.Memory, cmd uint32, arg uint64) (uintptr, error) {
	ops, err := o.current(c)
	if err != nil {
		return 0, err
	}
	if i, ok := ops.(vfs.Ioctler); ok {
		return i.Ioctl(c, f, m, cmd, arg)
	}
	return 0, unix.ENOTTY
}

// Fsync implements vfs.Syncer.
func (o *lowerOps) Fsync(c vfs.Caller, dataOnly bool) error {
	ops, err := o.current(c)
	if err != nil {
		return err
	}
	if s, ok := ops.(vfs.Syncer); ok {
		return s.Fsync(c, dataOnly)
	}
	return nil
}
