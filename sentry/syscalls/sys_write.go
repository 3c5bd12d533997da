package syscalls

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/kernel"
)

// sysWrite implements write(2).
func sysWrite(t *kernel.Task, a Args) (uintptr, error) {
	f, err := t.Files().Get(a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	src, err := t.IOBuf(a.Addr(1), a.Size(2))
	if err != nil {
		return 0, err
	}
	n, err := f.Write(t, src)
	t.CountWrite(n)
	return ioResult(t, n, err)
}

// sysPwrite64 implements pwrite64(2).
func sysPwrite64(t *kernel.Task, a Args) (uintptr, error) {
	off := a.Int64(3)
	if off < 0 { // before EBADF, as ksys_pwrite64 has it
		return 0, unix.EINVAL
	}
	f, err := t.Files().Get(a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	src, err := t.IOBuf(a.Addr(1), a.Size(2))
	if err != nil {
		return 0, err
	}
	n, err := f.WriteAt(t, src, off)
	t.CountWrite(n)
	return ioResult(t, n, err)
}

// sysWritev implements writev(2).
func sysWritev(t *kernel.Task, a Args) (uintptr, error) {
	f, err := t.Files().Get(a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	src, err := t.CopyInIovecs(a.Addr(1), a.Size(2))
	if err != nil {
		return 0, err
	}
	n, err := f.Write(t, &src)
	t.CountWrite(n)
	return ioResult(t, n, err)
}

// sysPwritev implements pwritev(2). The offset's upper half is an argument of
// its own that a 64-bit kernel does not look at.
func sysPwritev(t *kernel.Task, a Args) (uintptr, error) {
	off := a.Int64(3)
	if off < 0 {
		return 0, unix.EINVAL
	}
	f, err := t.Files().Get(a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	src, err := t.CopyInIovecs(a.Addr(1), a.Size(2))
	if err != nil {
		return 0, err
	}
	n, err := f.WriteAt(t, &src, off)
	t.CountWrite(n)
	return ioResult(t, n, err)
}

// sysPwritev2 implements pwritev2(2).
func sysPwritev2(t *kernel.Task, a Args) (uintptr, error) {
	off, flags := a.Int64(3), a.Int(5)
	if off < -1 {
		return 0, unix.EINVAL
	}
	f, err := t.Files().Get(a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	src, err := t.CopyInIovecs(a.Addr(1), a.Size(2))
	if err != nil {
		return 0, err
	}
	if flags&^rwfMask != 0 {
		return 0, unix.EOPNOTSUPP
	}
	if flags&(unix.RWF_APPEND|rwfNoAppend) == unix.RWF_APPEND|rwfNoAppend {
		return 0, unix.EINVAL
	}
	if flags&unix.RWF_NOWAIT != 0 && f.Ready(waitq.Out)&waitq.Out == 0 {
		return 0, unix.EAGAIN
	}
	var n int
	switch {
	case flags&(unix.RWF_APPEND|rwfNoAppend) != 0:
		n, err = f.WriteAs(t, &src, off, flags&unix.RWF_APPEND != 0)
	case off == -1:
		n, err = f.Write(t, &src)
	default:
		n, err = f.WriteAt(t, &src, off)
	}
	if n > 0 && flags&(unix.RWF_DSYNC|unix.RWF_SYNC) != 0 {
		if err := f.Fsync(t, flags&unix.RWF_SYNC == 0); err != nil {
			return 0, err
		}
	}
	t.CountWrite(n)
	return ioResult(t, n, err)
}
