package syscalls

import (
	"math"

	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/pkg/abi/linux"
	"runsc/sentry/kernel"
	"runsc/sentry/vfs"
)

// sysFlock implements flock(2).
func sysFlock(t *kernel.Task, a Args) (uintptr, error) {
	f, err := getFile(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	return done(f.Flock(t, int(a.Int(1))))
}

// copyInFlock reads a struct flock and makes its start absolute.
func copyInFlock(t *kernel.Task, f *vfs.File, addr uint64, ofd bool) (vfs.FileLock, error) {
	var l linux.Flock
	if err := t.CopyIn(addr, abi.Bytes(&l)); err != nil {
		return vfs.FileLock{}, err
	}
	if ofd && l.PID != 0 {
		return vfs.FileLock{}, unix.EINVAL
	}
	base := int64(0)
	switch l.Whence {
	case unix.SEEK_SET:
	case unix.SEEK_CUR:
		base = f.Offset()
	case unix.SEEK_END:
		st, err := f.Stat(t, unix.STATX_SIZE)
		if err != nil {
			return vfs.FileLock{}, err
		}
		base = int64(st.Size)
	default:
		return vfs.FileLock{}, unix.EINVAL
	}
	if l.Start > math.MaxInt64-base {
		return vfs.FileLock{}, unix.EOVERFLOW
	}
	return vfs.FileLock{Type: l.Type, Start: base + l.Start, Len: l.Len}, nil
}

// lockOwner is whose record locks a command is about: the descriptor table's,
// or nil for those of the description.
func lockOwner(t *kernel.Task, ofd bool) *vfs.FDTable {
	if ofd {
		return nil
	}
	return t.Files()
}

func fcntlGetLock(t *kernel.Task, f *vfs.File, addr uint64, ofd bool) (uintptr, error) {
	want, err := copyInFlock(t, f, addr, ofd)
	if err != nil {
		return 0, err
	}
	l, err := f.GetLock(t, lockOwner(t, ofd), want)
	if err != nil {
		return 0, err
	}
	if l.Type == unix.F_UNLCK {
		// Only the type changes then (fcntl(2)).
		typ := l.Type
		return done(t.CopyOut(addr, abi.Bytes(&typ)))
	}
	out := linux.Flock{Type: l.Type, Whence: unix.SEEK_SET, Start: l.Start, Len: l.Len, PID: l.PID}
	return done(t.CopyOut(addr, abi.Bytes(&out)))
}

func fcntlSetLock(t *kernel.Task, f *vfs.File, addr uint64, ofd, wait bool) (uintptr, error) {
	l, err := copyInFlock(t, f, addr, ofd)
	if err != nil {
		return 0, err
	}
	return done(f.SetLock(t, lockOwner(t, ofd), l, wait))
}
