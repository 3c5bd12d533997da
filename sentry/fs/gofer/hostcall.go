package gofer

import (
	"strconv"

	"golang.org/x/sys/unix"

	"runsc/sentry/vfs"
)

// resolve restricts every name given to the host: one component, no links.
const resolve = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// openFlags are added at every open of a host file. O_NONBLOCK: an object that
// is not what it was taken for must not block the open.
const openFlags = unix.O_CLOEXEC | unix.O_NOFOLLOW | unix.O_NOCTTY | unix.O_NONBLOCK

const statxMask = unix.STATX_BASIC_STATS | unix.STATX_BTIME

// openat opens the one component name (or ".") below dirfd.
func openat(dirfd int, name string, flags int, mode uint32) (int, error) {
	if flags&unix.O_PATH != 0 {
		flags |= unix.O_CLOEXEC | unix.O_NOFOLLOW // openat2 takes no other with O_PATH
	} else {
		flags |= openFlags
	}
	return unix.Openat2(dirfd, name, &unix.OpenHow{
		Flags:   uint64(flags),
		Mode:    uint64(mode),
		Resolve: resolve,
	})
}

// statx reads the attributes of name below fd, or of fd itself for "".
func statx(fd int, name string, stx *unix.Statx_t) error {
	flags := unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT
	if name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	return unix.Statx(fd, name, flags, statxMask, stx)
}

// reopen opens what the O_PATH descriptor fd stands for.
func (cl *Client) reopen(fd, flags int) (int, error) {
	if cl.procSelfFD < 0 {
		return -1, unix.EOPNOTSUPP
	}
	return cl.fds.retry(func() (int, error) {
		return unix.Openat(cl.procSelfFD, strconv.Itoa(fd), flags|openFlags&^unix.O_NOFOLLOW, 0)
	})
}

// chmodFD changes the mode of what fd, perhaps O_PATH, stands for.
func (cl *Client) chmodFD(fd int, mode uint32) error {
	err := unix.Fchmodat(fd, "", mode, unix.AT_EMPTY_PATH)
	if (err == unix.EOPNOTSUPP || err == unix.ENOSYS || err == unix.EINVAL) && cl.procSelfFD >= 0 {
		// A kernel before fchmodat2(2), 6.6.
		return unix.Fchmodat(cl.procSelfFD, strconv.Itoa(fd), mode, 0)
	}
	return err
}

// linkFD makes a name for what fd stands for.
func (cl *Client) linkFD(fd, dirfd int, name string) error {
	err := unix.Linkat(fd, "", dirfd, name, unix.AT_EMPTY_PATH)
	if err == unix.ENOENT && cl.procSelfFD >= 0 {
		// linkat(2): AT_EMPTY_PATH may need CAP_DAC_READ_SEARCH outside
		// of our user namespace.
		return unix.Linkat(cl.procSelfFD, strconv.Itoa(fd), dirfd, name, unix.AT_SYMLINK_FOLLOW)
	}
	return err
}

func readlinkat(fd int, name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, name, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

func timespec(t unix.StatxTimestamp) vfs.Timespec {
	return vfs.Timespec{Sec: t.Sec, Nsec: t.Nsec}
}

// utimes returns the times of a SetStat for utimensat.
func utimes(s *vfs.SetStat) []unix.Timespec {
	one := func(t *vfs.Timespec, now bool) unix.Timespec {
		switch {
		case now:
			return unix.Timespec{Nsec: unix.UTIME_NOW}
		case t != nil:
			return unix.Timespec{Sec: t.Sec, Nsec: int64(t.Nsec)}
		}
		return unix.Timespec{Nsec: unix.UTIME_OMIT}
	}
	return []unix.Timespec{one(s.Atime, s.AtimeNow), one(s.Mtime, s.MtimeNow)}
}
