package vfs

import (
	"math"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/errs"
	"runsc/sentry/mem"
)

// Read implements read(2) and readv(2).
func (f *File) Read(c Caller, dst *mem.UserBuf) (int, error) {
	if f.mode&fileRead == 0 {
		return 0, unix.EBADF
	}
	if f.readerAt != nil {
		f.offMu.Lock()
		n, err := f.readerAt.ReadAt(c, f, dst, f.off.Load())
		f.off.Add(int64(n))
		f.offMu.Unlock()
		f.notifyAccess(n)
		return n, err
	}
	if f.reader == nil {
		return 0, f.noIO()
	}
	n, err := f.reader.Read(c, f, dst)
	if err == unix.EAGAIN && n == 0 && f.flags.Load()&unix.O_NONBLOCK == 0 {
		n, err = f.readWait(c, dst)
	}
	f.notifyAccess(n)
	return n, err
}

// noIO is the error for a file that cannot be read or written at all.
func (f *File) noIO() error {
	if f.path.Dentry.IsDir() {
		return unix.EISDIR
	}
	return unix.EINVAL
}

// readWait retries a read until there is something. The listener is in place
// before each try, so that no event is missed.
func (f *File) readWait(c Caller, dst *mem.UserBuf) (int, error) {
	w, ok := f.ops.(Waitable)
	if !ok {
		return 0, unix.EAGAIN
	}
	e := waitq.Entry{Waiter: c.Waiter()}
	w.Queue().Register(&e, waitq.In|waitq.RdNorm|waitq.RdHup)
	defer w.Queue().Unregister(&e)
	for {
		n, err := f.reader.Read(c, f, dst)
		if err != unix.EAGAIN || n > 0 || f.NonBlocking() {
			return n, err
		}
		if err := c.Block(e.Waiter, 0); err != nil {
			return 0, err
		}
	}
}

// Write implements write(2) and writev(2).
func (f *File) Write(c Caller, src *mem.UserBuf) (int, error) {
	if f.mode&fileWrite == 0 {
		return 0, unix.EBADF
	}
	if f.writerAt != nil {
		f.offMu.Lock()
		off := f.off.Load()
		if f.flags.Load()&unix.O_APPEND != 0 {
			off = -1
		}
		n, end, err := f.writeAt(c, src, off)
		if n > 0 {
			f.off.Store(end)
		}
		f.offMu.Unlock()
		return n, err
	}
	if f.writer == nil {
		return 0, f.noIO()
	}
	n, err := f.writer.Write(c, f, src)
	if err == unix.EAGAIN && f.flags.Load()&unix.O_NONBLOCK == 0 {
		n, err = f.writeWait(c, src, n)
	}
	f.notifyModify(n)
	if n > 0 && err != errs.ERESTARTCKPT {
		err = nil
	}
	return n, err
}

// writeWait goes on with a write of which done bytes are through.
func (f *File) writeWait(c Caller, src *mem.UserBuf, done int) (int, error) {
	w, ok := f.ops.(Waitable)
	if !ok {
		return done, unix.EAGAIN
	}
	e := waitq.Entry{Waiter: c.Waiter()}
	w.Queue().Register(&e, waitq.Out|waitq.WrNorm)
	defer w.Queue().Unregister(&e)
	for {
		n, err := f.writer.Write(c, f, src)
		done += n
		if err != unix.EAGAIN || f.NonBlocking() {
			return done, err
		}
		if err := c.Block(e.Waiter, 0); err != nil {
			return done, err
		}
	}
}

// writeAt writes at off, or at the end if that is negative, within
// RLIMIT_FSIZE. EFBIG makes the caller's system call send SIGXFSZ.
func (f *File) writeAt(c Caller, src *mem.UserBuf, off int64) (int, int64, error) {
	limit := uint64(math.MaxUint64)
	if f.mode&fileRegular != 0 {
		limit = c.Rlimit(unix.RLIMIT_FSIZE)
	}
	if limit >= math.MaxInt64 {
		n, end, err := f.writerAt.WriteAt(c, f, src, off)
		f.notifyModify(n)
		return n, end, err
	}
	return f.writeLimited(c, src, off, limit)
}

// writeLimited writes no further than limit, as generic_write_check_limits.
func (f *File) writeLimited(c Caller, src *mem.UserBuf, off int64, limit uint64) (int, int64, error) {
	at := off
	if at < 0 {
		st, err := f.Inode().Stat(c, unix.STATX_SIZE)
		if err != nil {
			return 0, 0, err
		}
		at = int64(st.Size)
	}
	if uint64(at) >= limit {
		if src.Len() == 0 {
			return 0, at, nil
		}
		return 0, at, unix.EFBIG
	}
	if room := limit - uint64(at); uint64(src.Len()) > room {
		src.Truncate(int(room))
	}
	n, end, err := f.writerAt.WriteAt(c, f, src, off)
	f.notifyModify(n)
	return n, end, err
}

// ReadAt implements pread64(2) and preadv(2).
func (f *File) ReadAt(c Caller, dst *mem.UserBuf, off int64) (int, error) {
	if off < 0 {
		return 0, unix.EINVAL
	}
	if f.readerAt == nil {
		switch {
		case f.IsPath():
			return 0, unix.EBADF
		case f.reader != nil && f.seekable():
			// A device like /dev/zero, for which the offset means nothing.
			return f.Read(c, dst)
		case f.reader != nil || f.mode&fileHasOffset == 0:
			return 0, unix.ESPIPE
		case f.mode&fileRead == 0:
			return 0, unix.EBADF
		}
		return 0, f.noIO()
	}
	if f.mode&fileRead == 0 {
		return 0, unix.EBADF
	}
	n, err := f.readerAt.ReadAt(c, f, dst, off)
	f.notifyAccess(n)
	return n, err
}

// WriteAt implements pwrite64(2) and pwritev(2). As on Linux, O_APPEND wins
// over the offset (pwrite(2), BUGS).
func (f *File) WriteAt(c Caller, src *mem.UserBuf, off int64) (int, error) {
	if off < 0 {
		return 0, unix.EINVAL
	}
	if f.writerAt == nil {
		switch {
		case f.IsPath():
			return 0, unix.EBADF
		case f.writer != nil && f.seekable():
			return f.Write(c, src)
		case f.writer != nil || f.mode&fileHasOffset == 0:
			return 0, unix.ESPIPE
		case f.mode&fileWrite == 0:
			return 0, unix.EBADF
		}
		return 0, f.noIO()
	}
	if f.mode&fileWrite == 0 {
		return 0, unix.EBADF
	}
	if f.flags.Load()&unix.O_APPEND != 0 {
		off = -1
	}
	n, _, err := f.writeAt(c, src, off)
	return n, err
}

// seekable tells whether a stream takes positions all the same.
func (f *File) seekable() bool {
	_, ok := f.ops.(Seeker)
	return ok && f.mode&fileHasOffset != 0
}

// WriteAs is Write, for off -1, or WriteAt, where atEnd decides instead of
// O_APPEND (pwritev2(2)).
func (f *File) WriteAs(c Caller, src *mem.UserBuf, off int64, atEnd bool) (int, error) {
	if f.writerAt == nil || f.mode&fileWrite == 0 {
		if off == -1 {
			return f.Write(c, src)
		}
		return f.WriteAt(c, src, off)
	}
	if off != -1 {
		if atEnd {
			off = -1
		}
		n, _, err := f.writeAt(c, src, off)
		return n, err
	}
	f.offMu.Lock()
	defer f.offMu.Unlock()
	if !atEnd {
		off = f.off.Load()
	}
	n, end, err := f.writeAt(c, src, off)
	if n > 0 {
		f.off.Store(end)
	}
	return n, err
}

// Offset is the file offset, for /proc/PID/fdinfo. It does not wait for a read
// in progress, which may be that of the fdinfo file itself.
func (f *File) Offset() int64 { return f.off.Load() }

// Seek implements lseek(2).
func (f *File) Seek(c Caller, off int64, whence int) (int64, error) {
	if f.IsPath() {
		return 0, unix.EBADF
	}
	if f.mode&fileHasOffset == 0 {
		return 0, unix.ESPIPE
	}
	f.offMu.Lock()
	defer f.offMu.Unlock()
	if s, ok := f.ops.(Seeker); ok {
		switch n, err := s.Seek(c, f, off, whence); {
		case err == nil:
			f.off.Store(n)
			return n, nil
		case err != unix.ENOTSUP:
			return 0, err
		}
	}
	base := int64(0)
	switch whence {
	case unix.SEEK_SET:
	case unix.SEEK_CUR:
		base = f.off.Load()
	case unix.SEEK_END, unix.SEEK_DATA, unix.SEEK_HOLE:
		st, err := f.Inode().Stat(c, unix.STATX_SIZE)
		if err != nil {
			return 0, err
		}
		base = int64(st.Size)
		if whence != unix.SEEK_END {
			// Without holes all is data up to the end (generic_file_llseek_size).
			if off < 0 || off >= base {
				return 0, unix.ENXIO
			}
			if whence == unix.SEEK_DATA {
				base = 0
			} else {
				off = 0
			}
		}
	default:
		return 0, unix.EINVAL
	}
	n := base + off
	if off > 0 && n < base {
		return 0, unix.EOVERFLOW
	}
	if n < 0 {
		return 0, unix.EINVAL
	}
	f.off.Store(n)
	return n, nil
}

// ReadDir calls emit for the entries from the file offset on and moves the
// offset after the last one that emit took (getdents64(2)).
func (f *File) ReadDir(c Caller, emit func(Dirent) bool) error {
	if f.IsPath() {
		return unix.EBADF
	}
	d, ok := f.ops.(DirReader)
	if !ok {
		return unix.ENOTDIR
	}
	if f.path.Dentry.state.Load()&dentryDead != 0 {
		return unix.ENOENT
	}
	f.offMu.Lock()
	defer f.offMu.Unlock()
	err := d.ReadDir(c, f, f.off.Load(), func(e Dirent) bool {
		if !emit(e) {
			return false
		}
		f.off.Store(e.Next)
		return true
	})
	f.notifyAccess(1)
	return err
}

// Fsync implements fsync(2) and fdatasync(2).
func (f *File) Fsync(c Caller, dataOnly bool) error {
	if f.IsPath() {
		return unix.EBADF
	}
	if s, ok := f.ops.(Syncer); ok {
		return s.Fsync(c, dataOnly)
	}
	if f.mode&fileHasOffset != 0 && f.reader == nil {
		return nil
	}
	return unix.EINVAL
}

// SyncFS implements syncfs(2).
func (f *File) SyncFS(c Caller) error {
	if f.IsPath() {
		return unix.EBADF
	}
	return f.path.Dentry.sb.fs.Sync(c)
}

// Fallocate implements fallocate(2).
func (f *File) Fallocate(c Caller, mode uint32, off, n int64) error {
	if f.mode&fileWrite == 0 {
		return unix.EBADF
	}
	if off < 0 || n <= 0 {
		return unix.EINVAL
	}
	a, ok := f.ops.(Allocator)
	if !ok {
		switch {
		case f.path.Dentry.IsDir():
			return unix.EISDIR
		case f.mode&fileHasOffset == 0:
			return unix.ESPIPE
		case f.mode&fileRegular == 0:
			return unix.ENODEV
		}
		return unix.EOPNOTSUPP
	}
	if off+n < 0 {
		return unix.EFBIG
	}
	if mode&unix.FALLOC_FL_KEEP_SIZE == 0 && uint64(off+n) > c.Rlimit(unix.RLIMIT_FSIZE) {
		return unix.EFBIG
	}
	err := a.Fallocate(c, mode, off, n)
	if err == nil {
		f.notifyModify(1)
	}
	return err
}
