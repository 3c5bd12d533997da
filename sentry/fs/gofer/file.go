package gofer

import (
	"sync"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// ioBuf is the size of the buffers between host files and guest memory.
const ioBuf = 128 << 10

var ioBufs = sync.Pool{New: func() any { b := make([]byte, ioBuf); return &b }}

// regular is a regular file.
type regular struct{ *inode }

// Open implements vfs.Inode.
func (r *regular) Open(c vfs.Caller, _ *vfs.Dentry, flags uint32) (vfs.FileOps, error) {
	k := forRead
	switch {
	case flags&unix.O_ACCMODE != unix.O_RDONLY:
		k = forWrite
	case flags&unix.O_NOATIME != 0:
		k = readQuiet
	}
	h, err := r.open(k)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.seenBy = nil // an fstat later asks again
	r.mu.Unlock()
	return newRegularFile(r.inode, h, flags), nil
}

// regularFile is an open regular file. All descriptions of an inode share its
// host descriptors: every access has an explicit offset.
type regularFile struct {
	i *inode  `save:"rebuilt"`
	h *handle `save:"rebuilt"`

	// i.mu guards:
	mapping *fileMapping `save:"rebuilt"` // made by the first mmap
}

// newRegularFile takes over the reference to h.
func newRegularFile(i *inode, h *handle, flags uint32) *regularFile {
	return &regularFile{i: i, h: h}
}

// Release implements vfs.FileOps.
func (f *regularFile) Release() { f.i.fs.put(f.h) }

// Ready implements vfs.FileOps: files are always ready.
func (f *regularFile) Ready(mask waitq.Mask) waitq.Mask {
	return mask & (waitq.In | waitq.Out | waitq.RdNorm | waitq.WrNorm)
}

// ReadAt implements vfs.ReaderAt.
func (f *regularFile) ReadAt(c vfs.Caller, _ *vfs.File, dst *mem.UserBuf, off int64) (int, error) {
	buf := ioBufs.Get().(*[]byte)
	defer ioBufs.Put(buf)
	done := 0
	for dst.Len() > 0 {
		want := min(dst.Len(), ioBuf)
		n, err := pread(f.h.fd, (*buf)[:want], off)
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
		if n < want {
			break
		}
	}
	return done, nil
}

// WriteAt implements vfs.WriterAt.
func (f *regularFile) WriteAt(c vfs.Caller, file *vfs.File, src *mem.UserBuf, off int64) (int, int64, error) {
	if off < 0 {
		f.i.appendMu.Lock()
		defer f.i.appendMu.Unlock()
	}
	buf := ioBufs.Get().(*[]byte)
	defer ioBufs.Put(buf)
	defer f.i.changing().done()
	defer f.i.stale()
	bits := f.i.writing(c)
	defer func() { f.i.written(bits, f.h) }()
	flags := syncFlags(file)
	done := 0
	var err error
	for src.Len() > 0 && err == nil {
		var n, w int
		n, err = src.CopyIn((*buf)[:min(src.Len(), ioBuf)])
		if n > 0 {
			var werr error
			w, werr = pwrite(f.h.fd, (*buf)[:n], off, flags)
			done += w
			if off >= 0 {
				off += int64(w)
			}
			if werr != nil {
				err = werr
			} else if w < n {
				break
			}
		}
	}
	if off < 0 {
		var stx unix.Statx_t
		if serr := f.i.fs.client.backend.Stat(f.h.target(), "", &stx); serr != nil {
			return done, 0, serr
		}
		off = int64(stx.Size)
	}
	return done, off, err
}

// syncFlags returns the RWF_* flags for a description's O_SYNC and O_DSYNC;
// the host descriptor, being shared, does not have them.
func syncFlags(file *vfs.File) int {
	if file == nil {
		return 0
	}
	switch fl := file.StatusFlags(); {
	case fl&unix.O_SYNC == unix.O_SYNC:
		return unix.RWF_SYNC
	case fl&unix.O_DSYNC != 0:
		return unix.RWF_DSYNC
	}
	return 0
}

// Seek implements vfs.Seeker for SEEK_DATA and SEEK_HOLE; ENOTSUP leaves the
// rest to vfs. The host descriptor's own offset means nothing.
func (f *regularFile) Seek(c vfs.Caller, _ *vfs.File, off int64, whence int) (int64, error) {
	if whence != unix.SEEK_DATA && whence != unix.SEEK_HOLE {
		return 0, unix.ENOTSUP
	}
	return unix.Seek(f.h.fd, off, whence)
}

// Fsync implements vfs.Syncer.
func (f *regularFile) Fsync(c vfs.Caller, dataOnly bool) error {
	for {
		var err error
		if dataOnly {
			err = unix.Fdatasync(f.h.fd)
		} else {
			err = unix.Fsync(f.h.fd)
		}
		if err != unix.EINTR {
			return err
		}
	}
}

// Fallocate implements vfs.Allocator.
func (f *regularFile) Fallocate(c vfs.Caller, mode uint32, off, n int64) error {
	defer f.i.changing().done()
	defer f.i.stale()
	bits := f.i.writing(c)
	defer func() { f.i.written(bits, f.h) }()
	for {
		if err := unix.Fallocate(f.h.fd, mode, off, n); err != unix.EINTR {
			return err
		}
	}
}

// Flush implements vfs.Flusher: network and FUSE file systems report write
// errors at close(2), so there a descriptor is closed for each of the guest's.
func (f *regularFile) Flush(c vfs.Caller) error {
	if f.h.kind != forWrite {
		return nil
	}
	switch f.i.fs.magic {
	case unix.NFS_SUPER_MAGIC, unix.FUSE_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CEPH_SUPER_MAGIC, unix.V9FS_MAGIC:
	default:
		return nil
	}
	fd, err := unix.FcntlInt(uintptr(f.h.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	if err := unix.Close(fd); err != unix.EINTR {
		return err
	}
	return nil
}

// pread reads until p is full, the end of the file or an error.
func pread(fd int, p []byte, off int64) (int, error) {
	done := 0
	for done < len(p) {
		n, err := unix.Pread(fd, p[done:], off+int64(done))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return done, err
		}
		if n == 0 {
			break
		}
		done += n
	}
	return done, nil
}

// pwrite writes p at off, or appends it if off is negative.
func pwrite(fd int, p []byte, off int64, flags int) (int, error) {
	if off >= 0 && flags == 0 {
		for {
			n, err := unix.Pwrite(fd, p, off)
			if err != unix.EINTR {
				return max(n, 0), err
			}
		}
	}
	if off < 0 {
		off, flags = 0, flags|unix.RWF_APPEND
	}
	for {
		n, err := unix.Pwritev2(fd, [][]byte{p}, off, flags)
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}
