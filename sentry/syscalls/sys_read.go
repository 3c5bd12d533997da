package syscalls

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/kernel"
)

// rwfMask are the per-call flags of preadv2(2) and pwritev2(2) that work;
// others give EOPNOTSUPP as for a file system that lacks them.
const rwfMask = unix.RWF_HIPRI | unix.RWF_DSYNC | unix.RWF_SYNC | unix.RWF_NOWAIT | unix.RWF_APPEND | rwfNoAppend

// rwfNoAppend is RWF_NOAPPEND (Linux 6.9).
const rwfNoAppend = 0x20

// sysRead implements read(2).
func sysRead(t *kernel.Task, a Args) (uintptr, error) {
	f, err := t.Files().Get(a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	dst, err := t.IOBuf(a.Addr(1), a.Size(2))
	if err != nil {
		return 0, err
	}
	n, err := f.Read(t, dst)
	t.CountRead(n)
	return ioResult(t, n, err)
}

// sysPread64 implements pread64(2).
func sysPread64(t *kernel.Task, a Args) (uintptr, error) {
	off := a.Int64(3)
	if off < 0 { // before EBADF, as ksys_pread64 has it
		return 0, unix.EINVAL
	}
	f, err := t.Files().Get(a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	dst, err := t.IOBuf(a.Addr(1), a.Size(2))
	if err != nil {
		return 0, err
	}
	n, err := f.ReadAt(t, dst, off)
	t.CountRead(n)
	return ioResult(t, n, err)
}

// sysReadv implements readv(2).
func sysReadv(t *kernel.Task, a Args) (uintptr, error) {
	f, err := t.Files().Get(a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	dst, err := t.CopyInIovecs(a.Addr(1), a.Size(2))
	if err != nil {
		return 0, err
	}
	n, err := f.Read(t, &dst)
	t.CountRead(n)
	return ioResult(t, n, err)
}

// sysPreadv implements preadv(2). The offset's upper half is an argument of
// its own that a 64-bit kernel does not look at.
func sysPreadv(t *kernel.Task, a Args) (uintptr, error) {
	off := a.Int64(3)
	if off < 0 {
		return 0, unix.EINVAL
	}
	f, err := t.Files().Get(a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	dst, err := t.CopyInIovecs(a.Addr(1), a.Size(2))
	if err != nil {
		return 0, err
	}
	n, err := f.ReadAt(t, &dst, off)
	t.CountRead(n)
	return ioResult(t, n, err)
}

// sysPreadv2 implements preadv2(2).
func sysPreadv2(t *kernel.Task, a Args) (uintptr, error) {
	off, flags := a.Int64(3), a.Int(5)
	if off < -1 {
		return 0, unix.EINVAL
	}
	f, err := t.Files().Get(a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	dst, err := t.CopyInIovecs(a.Addr(1), a.Size(2))
	if err != nil {
		return 0, err
	}
	if flags&^rwfMask != 0 {
		return 0, unix.EOPNOTSUPP
	}
	if flags&unix.RWF_NOWAIT != 0 && f.Ready(waitq.In)&waitq.In == 0 {
		return 0, unix.EAGAIN
	}
	var n int
	if off == -1 {
		n, err = f.Read(t, &dst)
	} else {
		n, err = f.ReadAt(t, &dst, off)
	}
	t.CountRead(n)
	return ioResult(t, n, err)
}
