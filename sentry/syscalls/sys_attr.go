package syscalls

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/sentry/kernel"
	"runsc/sentry/vfs"
)

// sysChmod implements chmod(2).
func sysChmod(t *kernel.Task, a Args) (uintptr, error) {
	return chmodAt(t, unix.AT_FDCWD, a.Addr(0), a.Uint(1), 0)
}

// sysFchmodat implements the system call fchmodat, which has no flags.
func sysFchmodat(t *kernel.Task, a Args) (uintptr, error) {
	return chmodAt(t, a.Int(0), a.Addr(1), a.Uint(2), 0)
}

// sysFchmodat2 implements fchmodat2(2).
func sysFchmodat2(t *kernel.Task, a Args) (uintptr, error) {
	return chmodAt(t, a.Int(0), a.Addr(1), a.Uint(2), a.Int(3))
}

func chmodAt(t *kernel.Task, dirfd int32, name uint64, mode uint32, flags int32) (uintptr, error) {
	if flags&^(unix.AT_SYMLINK_NOFOLLOW|unix.AT_EMPTY_PATH) != 0 {
		return 0, unix.EINVAL
	}
	p, err := lookup(t, dirfd, name, atFlags(flags))
	if err != nil {
		return 0, err
	}
	defer p.put()
	return done(vfs.ChmodAt(t, p.At, mode&0o7777))
}

// sysFchmod implements fchmod(2).
func sysFchmod(t *kernel.Task, a Args) (uintptr, error) {
	f, err := getFile(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	return done(f.Chmod(t, a.Uint(1)&0o7777))
}

// sysChown implements chown(2).
func sysChown(t *kernel.Task, a Args) (uintptr, error) {
	return chownAt(t, unix.AT_FDCWD, a.Addr(0), a.Uint(1), a.Uint(2), 0)
}

// sysLchown implements lchown(2).
func sysLchown(t *kernel.Task, a Args) (uintptr, error) {
	return chownAt(t, unix.AT_FDCWD, a.Addr(0), a.Uint(1), a.Uint(2), unix.AT_SYMLINK_NOFOLLOW)
}

// sysFchownat implements fchownat(2).
func sysFchownat(t *kernel.Task, a Args) (uintptr, error) {
	return chownAt(t, a.Int(0), a.Addr(1), a.Uint(2), a.Uint(3), a.Int(4))
}

func chownAt(t *kernel.Task, dirfd int32, name uint64, uid, gid uint32, flags int32) (uintptr, error) {
	if flags&^(unix.AT_SYMLINK_NOFOLLOW|unix.AT_EMPTY_PATH) != 0 {
		return 0, unix.EINVAL
	}
	p, err := lookup(t, dirfd, name, atFlags(flags))
	if err != nil {
		return 0, err
	}
	defer p.put()
	return done(vfs.ChownAt(t, p.At, uid, gid))
}

// sysFchown implements fchown(2).
func sysFchown(t *kernel.Task, a Args) (uintptr, error) {
	f, err := getFile(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	return done(f.Chown(t, a.Uint(1), a.Uint(2)))
}

// timesNow is what a null pointer to times means.
var timesNow = [2]vfs.TimeSet{{Now: true}, {Now: true}}

// sysUtime implements utime(2).
func sysUtime(t *kernel.Task, a Args) (uintptr, error) {
	s := timesNow
	if a.Addr(1) != 0 {
		var u unix.Utimbuf
		if err := t.CopyIn(a.Addr(1), abi.Bytes(&u)); err != nil {
			return 0, err
		}
		s = [2]vfs.TimeSet{{Time: vfs.Timespec{Sec: u.Actime}}, {Time: vfs.Timespec{Sec: u.Modtime}}}
	}
	return utimesAt(t, unix.AT_FDCWD, a.Addr(0), s, 0)
}

// sysUtimes implements utimes(2).
func sysUtimes(t *kernel.Task, a Args) (uintptr, error) {
	return futimesAt(t, unix.AT_FDCWD, a.Addr(0), a.Addr(1))
}

// sysFutimesat implements futimesat(2).
func sysFutimesat(t *kernel.Task, a Args) (uintptr, error) {
	return futimesAt(t, a.Int(0), a.Addr(1), a.Addr(2))
}

func futimesAt(t *kernel.Task, dirfd int32, name, times uint64) (uintptr, error) {
	s := timesNow
	if times != 0 {
		var tv [2]unix.Timeval
		if err := t.CopyIn(times, abi.SliceBytes(tv[:])); err != nil {
			return 0, err
		}
		for i, v := range tv {
			if v.Usec < 0 || v.Usec >= 1e6 {
				return 0, unix.EINVAL
			}
			s[i] = vfs.TimeSet{Time: vfs.Timespec{Sec: v.Sec, Nsec: uint32(v.Usec) * 1000}}
		}
	}
	return utimesAt(t, dirfd, name, s, 0)
}

// sysUtimensat implements utimensat(2).
func sysUtimensat(t *kernel.Task, a Args) (uintptr, error) {
	s := timesNow
	if a.Addr(2) != 0 {
		var ts [2]unix.Timespec
		if err := t.CopyIn(a.Addr(2), abi.SliceBytes(ts[:])); err != nil {
			return 0, err
		}
		for i := range ts {
			var err error
			if s[i], err = timeSet(ts[i]); err != nil {
				return 0, err
			}
		}
		if s[0].Omit && s[1].Omit {
			return 0, nil // even if the file does not exist
		}
	}
	return utimesAt(t, a.Int(0), a.Addr(1), s, a.Int(3))
}

// timeSet decodes one time of utimensat(2).
func timeSet(ts unix.Timespec) (vfs.TimeSet, error) {
	switch {
	case ts.Nsec == unix.UTIME_NOW:
		return vfs.TimeSet{Now: true}, nil
	case ts.Nsec == unix.UTIME_OMIT:
		return vfs.TimeSet{Omit: true}, nil
	case ts.Nsec < 0 || ts.Nsec >= 1e9:
		return vfs.TimeSet{}, unix.EINVAL
	}
	return vfs.TimeSet{Time: vfs.Timespec{Sec: ts.Sec, Nsec: uint32(ts.Nsec)}}, nil
}

// utimesAt sets the times of a path; a null name means the descriptor itself.
func utimesAt(t *kernel.Task, dirfd int32, name uint64, s [2]vfs.TimeSet, flags int32) (uintptr, error) {
	if flags&^(unix.AT_SYMLINK_NOFOLLOW|unix.AT_EMPTY_PATH) != 0 {
		return 0, unix.EINVAL
	}
	if name == 0 && dirfd != unix.AT_FDCWD {
		if flags != 0 {
			return 0, unix.EINVAL
		}
		f, err := getFile(t, dirfd)
		if err != nil {
			return 0, err
		}
		defer f.DecRef()
		return done(f.Utimes(t, s[0], s[1]))
	}
	p, err := lookup(t, dirfd, name, atFlags(flags))
	if err != nil {
		return 0, err
	}
	defer p.put()
	return done(vfs.UtimesAt(t, p.At, s[0], s[1]))
}

// sysTruncate implements truncate(2).
func sysTruncate(t *kernel.Task, a Args) (uintptr, error) {
	size := a.Int64(1)
	if size < 0 {
		return 0, unix.EINVAL
	}
	p, err := lookup(t, unix.AT_FDCWD, a.Addr(0), 0)
	if err != nil {
		return 0, err
	}
	defer p.put()
	return ioResult(t, 0, vfs.TruncateAt(t, p.At, size))
}

// sysFtruncate implements ftruncate(2).
func sysFtruncate(t *kernel.Task, a Args) (uintptr, error) {
	size := a.Int64(1)
	if size < 0 {
		return 0, unix.EINVAL
	}
	f, err := getFile(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	return ioResult(t, 0, f.Truncate(t, size))
}

// sysFallocate implements fallocate(2).
func sysFallocate(t *kernel.Task, a Args) (uintptr, error) {
	f, err := getFile(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	off, n := a.Int64(2), a.Int64(3)
	if off < 0 || n <= 0 {
		return 0, unix.EINVAL
	}
	if off+n < 0 {
		return 0, unix.EFBIG
	}
	return ioResult(t, 0, f.Fallocate(t, a.Uint(1), off, n))
}
