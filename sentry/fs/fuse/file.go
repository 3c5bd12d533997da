package fuse

import (
	"sync"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/errs"
	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// handle is what the server knows an open file by.
type handle struct {
	// immutable:
	i     *inode `save:"rec"`
	fh    uint64 `save:"rec"`
	flags uint32 `save:"rec"` // of open(2)
	none  bool   `save:"rec"` // the server does not want to know of opens
}

// fileOps is an open regular file.
type fileOps struct {
	handle `save:"rec"`
	opened uint32 `save:"rec"` // flags of OPEN's answer
}

// dirOps is an open directory.
type dirOps struct {
	handle `save:"rec"`
}

func newFileOps(i *inode, fh uint64, flags, opened uint32) *fileOps {
	i.IncRef()
	return &fileOps{handle{i: i, fh: fh, flags: flags}, opened}
}

// open sends OPEN or OPENDIR.
func (i *inode) open(c vfs.Caller, op, flags uint32, optional uint32) (h handle, opened uint32, err error) {
	if err := i.fs.allowed(c); err != nil {
		return h, 0, err
	}
	cn := i.fs.conn
	sent := flags &^ (unix.O_CREAT | unix.O_EXCL | unix.O_NOCTTY | unix.O_TRUNC)
	b, err := cn.call(c, op, i.node, body{}.u32(sent, 0), 16, 16)
	h = handle{i: i, flags: flags}
	if err == unix.ENOSYS && cn.has(optional) {
		h.none = true
	} else if err != nil {
		return h, 0, err
	} else {
		h.fh, opened = u64(b, 0), u32(b, 8)
	}
	i.IncRef()
	return h, opened, nil
}

func (cn *conn) has(flag uint32) bool {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	return cn.flags&flag != 0
}

// Open implements vfs.Inode. vfs has dealt with O_TRUNC.
func (f fileInode) Open(c vfs.Caller, _ *vfs.Dentry, flags uint32) (vfs.FileOps, error) {
	h, opened, err := f.open(c, opOpen, flags, initNoOpen)
	if err != nil {
		return nil, err
	}
	return &fileOps{h, opened}, nil
}

// Open implements vfs.Inode.
func (d dirInode) Open(c vfs.Caller, _ *vfs.Dentry, flags uint32) (vfs.FileOps, error) {
	h, _, err := d.open(c, opOpendir, flags, initNoOpendir)
	if err != nil {
		return nil, err
	}
	return &dirOps{h}, nil
}

func releaseArgs(fh uint64, flags uint32) body {
	return body{}.u64(fh).u32(flags, 0).u64(0)
}

func (h *handle) release(op uint32) {
	if !h.none {
		h.i.fs.conn.post(op, h.i.node, releaseArgs(h.fh, h.flags), 0)
	}
	h.i.DecRef()
}

// Ready implements vfs.FileOps.
func (*handle) Ready(mask waitq.Mask) waitq.Mask {
	return mask & (waitq.In | waitq.Out | waitq.RdNorm | waitq.WrNorm)
}

// Release implements vfs.FileOps.
func (o *fileOps) Release() {
	o.i.postPages(o)
	o.release(opRelease)
}

// Release implements vfs.FileOps.
func (o *dirOps) Release() { o.release(opReleasedir) }

// Flush implements vfs.Flusher: each close of a descriptor, also that of a process that is killed.
func (o *fileOps) Flush(c vfs.Caller) error {
	if err := o.i.flushPages(c); err != nil {
		return err
	}
	if o.none {
		return nil
	}
	_, err := o.i.fs.conn.do(c, opFlush, o.i.node, body{}.u64(o.fh).u32(0, 0).u64(0), 0, 0, true)
	if err == unix.ENOSYS || err == unix.ENOTCONN {
		return nil
	}
	return err
}

// partial is the result of a transfer of which done bytes are through.
func partial(done int, err error) (int, error) {
	if done > 0 && (err == errs.ERESTARTCKPT || err == unix.EINTR) {
		return done, nil // short: the caller goes on where it stopped
	}
	return done, err
}

// ReadAt implements vfs.ReaderAt.
func (o *fileOps) ReadAt(c vfs.Caller, _ *vfs.File, dst *mem.UserBuf, off int64) (int, error) {
	if p := o.i.mapped(); p != nil && o.opened&openDirectIO == 0 {
		return p.reader.ReadAt(c, nil, dst, off)
	}
	done := 0
	for dst.Len() > 0 {
		want := min(dst.Len(), o.maxRead())
		b, err := o.read(c, off, want)
		if err != nil {
			return partial(done, err)
		}
		n, err := dst.CopyOut(b)
		done, off = done+n, off+int64(n)
		if err != nil || len(b) < want {
			return done, err
		}
	}
	return done, nil
}

func (o *fileOps) maxRead() int {
	n := maxData
	if !o.i.fs.conn.has(initMaxPages) {
		n = 32 * 4096
	}
	if m := int(o.i.fs.maxRead); m > 0 {
		n = min(n, max(m, 4096))
	}
	return n
}

func (o *fileOps) read(c vfs.Caller, off int64, n int) ([]byte, error) {
	args := body{}.u64(o.fh, uint64(off)).u32(uint32(n), 0).u64(0).u32(o.flags, 0)
	return o.i.fs.conn.call(c, opRead, o.i.node, args, 0, n)
}

// WriteAt implements vfs.WriterAt.
func (o *fileOps) WriteAt(c vfs.Caller, _ *vfs.File, src *mem.UserBuf, off int64) (int, int64, error) {
	if off < 0 {
		if err := o.i.refresh(c); err != nil {
			return 0, 0, err
		}
		o.i.mu.Lock()
		off = int64(o.i.attr.Size)
		o.i.mu.Unlock()
	}
	if err := o.i.flushPages(c); err != nil {
		return 0, off, err
	}
	o.i.fs.conn.mu.Lock()
	most := int(o.i.fs.conn.maxWrite)
	if o.i.fs.conn.flags&initBigWrites == 0 {
		most = min(most, 4096)
	}
	o.i.fs.conn.mu.Unlock()
	done := 0
	defer o.i.stale()
	for src.Len() > 0 {
		buf := make([]byte, min(src.Len(), most))
		peek := *src
		k, cerr := peek.CopyIn(buf)
		if k == 0 {
			return done, off, cerr
		}
		n, err := o.write(c, buf[:k], off)
		if err != nil {
			done, err = partial(done, err)
			return done, off, err
		}
		o.i.updatePages(c, buf[:n], off)
		src.Skip(n)
		done, off = done+n, off+int64(n)
		if n < k || cerr != nil {
			return done, off, cerr
		}
	}
	return done, off, nil
}

func writeArgs(fh uint64, flags uint32, off int64, b []byte) body {
	return append(body{}.u64(fh, uint64(off)).u32(uint32(len(b)), 0).u64(0).u32(flags, 0), b...)
}

func (o *fileOps) write(c vfs.Caller, b []byte, off int64) (int, error) {
	r, err := o.i.fs.conn.call(c, opWrite, o.i.node, writeArgs(o.fh, o.flags, off, b), 8, 8)
	if err != nil {
		return 0, err
	}
	n := int(u32(r, 0))
	if n > len(b) || n == 0 {
		return 0, unix.EIO
	}
	return n, nil
}

// Seek implements vfs.Seeker. What cannot be asked is told by the size.
func (o *fileOps) Seek(c vfs.Caller, _ *vfs.File, off int64, whence int) (int64, error) {
	if o.opened&(openNonseekable|openStream) != 0 {
		return 0, unix.ESPIPE
	}
	if whence != unix.SEEK_DATA && whence != unix.SEEK_HOLE {
		return 0, unix.ENOTSUP
	}
	b, err := o.i.fs.conn.call(c, opLseek, o.i.node, body{}.u64(o.fh, uint64(off)).u32(uint32(whence), 0), 8, 8)
	if err == nil {
		return int64(u64(b, 0)), nil
	}
	if err != unix.ENOSYS {
		return 0, err
	}
	if err := o.i.refresh(c); err != nil {
		return 0, err
	}
	o.i.mu.Lock()
	size := int64(o.i.attr.Size)
	o.i.mu.Unlock()
	switch {
	case off < 0 || off >= size:
		return 0, unix.ENXIO
	case whence == unix.SEEK_HOLE:
		return size, nil
	}
	return off, nil
}

// fsync sends FSYNC or FSYNCDIR; a server without it has nothing to do.
func (h *handle) fsync(c vfs.Caller, op uint32, dataOnly bool) error {
	flags := uint32(0)
	if dataOnly {
		flags = 1
	}
	_, err := h.i.fs.conn.call(c, op, h.i.node, body{}.u64(h.fh).u32(flags, 0), 0, 0)
	if err == unix.ENOSYS {
		return nil
	}
	return err
}

// Fsync implements vfs.Syncer.
func (o *fileOps) Fsync(c vfs.Caller, dataOnly bool) error {
	if err := o.i.flushPages(c); err != nil {
		return err
	}
	return o.fsync(c, opFsync, dataOnly)
}

// Fsync implements vfs.Syncer.
func (o *dirOps) Fsync(c vfs.Caller, dataOnly bool) error { return o.fsync(c, opFsyncdir, dataOnly) }

// Fallocate implements vfs.Allocator.
func (o *fileOps) Fallocate(c vfs.Caller, mode uint32, off, n int64) error {
	if err := o.i.flushPages(c); err != nil {
		return err
	}
	args := body{}.u64(o.fh, uint64(off), uint64(n)).u32(mode, 0)
	_, err := o.i.fs.conn.call(c, opFallocate, o.i.node, args, 0, 0)
	o.i.stale()
	return unsupported(err)
}

// direntBuf is how much of a directory is asked for at once.
const direntBuf = 32 << 10

// ReadDir implements vfs.DirReader: positions are the server's.
func (o *dirOps) ReadDir(c vfs.Caller, _ *vfs.File, pos int64, emit func(vfs.Dirent) bool) error {
	for {
		args := body{}.u64(o.fh, uint64(pos)).u32(direntBuf, 0).u64(0).u32(o.flags, 0)
		b, err := o.i.fs.conn.call(c, opReaddir, o.i.node, args, 0, direntBuf)
		if err != nil || len(b) < direntMin {
			return err
		}
		for len(b) >= direntMin {
			n := int(u32(b, 16))
			size := (direntMin + n + 7) &^ 7
			if n == 0 || n > 255 {
				return unix.EIO
			}
			if direntMin+n > len(b) {
				break
			}
			d := vfs.Dirent{Name: string(b[direntMin : direntMin+n]), Ino: u64(b, 0), Type: uint8(u32(b, 20) & 15), Next: int64(u64(b, 8))}
			for k := range d.Name {
				if d.Name[k] == '/' || d.Name[k] == 0 {
					return unix.EIO
				}
			}
			if d.Next == pos {
				return unix.EIO // would never end
			}
			if !emit(d) {
				return nil
			}
			pos = d.Next
			b = b[min(size, len(b)):]
		}
	}
}

// Seek implements vfs.Seeker: positions are cookies.
func (*dirOps) Seek(_ vfs.Caller, _ *vfs.File, _ int64, whence int) (int64, error) {
	if whence == unix.SEEK_END {
		return 0, unix.EINVAL
	}
	return 0, unix.ENOTSUP
}

var pageBufs = sync.Pool{New: func() any { return new([4096]byte) }}
