package hostfs

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// Create implements Backend.
func (l *Local) Create(dir int, name string, a *NewAttr, stx *unix.Statx_t) (int, error) {
	fd, err := openat(dir, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, a.Mode&0o7777)
	if err != nil {
		return -1, err
	}
	if err := l.adopt(fd, -1, "", a, stx); err != nil {
		unix.Close(fd)
		_ = unix.Unlinkat(dir, name, 0)
		return -1, err
	}
	return fd, nil
}

// Tmpfile implements Backend.
func (l *Local) Tmpfile(dir int, a *NewAttr, stx *unix.Statx_t) (int, error) {
	fd, err := openat(dir, ".", unix.O_RDWR|unix.O_TMPFILE, a.Mode&0o7777)
	if err != nil {
		return -1, err
	}
	if err := l.adopt(fd, -1, "", a, stx); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// Make implements Backend.
func (l *Local) Make(dir int, name string, a *NewAttr, stx *unix.Statx_t) error {
	var err error
	undo := 0
	switch a.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		err, undo = unix.Mkdirat(dir, name, a.Mode&0o7777), unix.AT_REMOVEDIR
	case unix.S_IFLNK:
		err = unix.Symlinkat(a.Link, dir, name)
	default:
		err = unix.Mknodat(dir, name, a.Mode, int(a.Rdev))
	}
	if err != nil {
		return err
	}
	if err := l.adopt(-1, dir, name, a, stx); err != nil {
		_ = unix.Unlinkat(dir, name, undo)
		return err
	}
	return nil
}

// adopt gives a new file its owner and reads its attributes. fd is the file,
// or -1 to go by its name.
func (l *Local) adopt(fd, dirfd int, name string, a *NewAttr, stx *unix.Statx_t) error {
	at, rel, flags := fd, "", unix.AT_EMPTY_PATH
	if fd < 0 {
		at, rel, flags = dirfd, name, unix.AT_SYMLINK_NOFOLLOW
	}
	if err := statx(at, rel, stx); err != nil {
		return err
	}
	if stx.Uid != a.UID || stx.Gid != a.GID {
		if err := unix.Fchownat(at, rel, int(a.UID), int(a.GID), flags); err != nil {
			return err
		}
		stx.Uid, stx.Gid = a.UID, a.GID
	}
	// The mode is the host's work (a default ACL may have a say); only what
	// the change of owner clears is set again.
	special := a.Mode & 0o7000
	if special&^uint32(stx.Mode) == 0 && special&0o6000 == 0 || stx.Mode&unix.S_IFMT == unix.S_IFLNK {
		return nil
	}
	mode := uint32(stx.Mode)&0o777 | special
	var err error
	if fd >= 0 {
		err = unix.Fchmod(fd, mode)
	} else {
		err = unix.Fchmodat(at, rel, mode, unix.AT_SYMLINK_NOFOLLOW)
	}
	if err == nil {
		stx.Mode = stx.Mode&unix.S_IFMT | uint16(mode)
	}
	return err
}

// Link implements Backend.
func (l *Local) Link(t Target, dir int, name string) error {
	err := unix.Linkat(t.FD, "", dir, name, unix.AT_EMPTY_PATH)
	if err == unix.ENOENT && l.procSelfFD >= 0 {
		// linkat(2): AT_EMPTY_PATH may need CAP_DAC_READ_SEARCH outside
		// of our user namespace.
		return unix.Linkat(l.procSelfFD, strconv.Itoa(t.FD), dir, name, unix.AT_SYMLINK_FOLLOW)
	}
	return err
}

// Unlink implements Backend.
func (l *Local) Unlink(dir int, name string, flags int) error {
	return unix.Unlinkat(dir, name, flags)
}

// Rename implements Backend.
func (l *Local) Rename(from int, name string, to int, newName string, flags uint32) error {
	return unix.Renameat2(from, name, to, newName, uint(flags))
}

// SetAttr implements Backend.
func (l *Local) SetAttr(t Target, a *SetAttr) error {
	if a.SetOwner {
		if err := unix.Fchownat(t.FD, "", a.UID, a.GID, unix.AT_EMPTY_PATH); err != nil {
			return err
		}
	}
	if a.SetMode { // after the owner, a change of which clears set-id bits
		if err := l.chmod(t.FD, a.Mode&0o7777); err != nil {
			return err
		}
	}
	if a.SetTimes {
		return unix.UtimesNanoAt(t.FD, "", a.Times[:], unix.AT_EMPTY_PATH)
	}
	return nil
}

// chmod changes the mode of what fd, perhaps O_PATH, stands for.
func (l *Local) chmod(fd int, mode uint32) error {
	err := unix.Fchmodat(fd, "", mode, unix.AT_EMPTY_PATH)
	if (err == unix.EOPNOTSUPP || err == unix.ENOSYS || err == unix.EINVAL) && l.procSelfFD >= 0 {
		// A kernel before fchmodat2(2), 6.6.
		return unix.Fchmodat(l.procSelfFD, strconv.Itoa(fd), mode, 0)
	}
	return err
}
