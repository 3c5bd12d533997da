package gofer

import (
	"strings"

	"golang.org/x/sys/unix"

	"runsc/sentry/vfs"
)

// maxXattr is XATTR_SIZE_MAX.
const maxXattr = 64 << 10

// xattrAllowed tells which attributes of host files a guest may see. What
// security modules of the host keep there is not its business.
func xattrAllowed(name string) bool {
	switch {
	case strings.HasPrefix(name, "user."), strings.HasPrefix(name, "trusted."):
		return true
	}
	switch name {
	case "security.capability", "system.posix_acl_access", "system.posix_acl_default":
		return true
	}
	return false
}

// withXattrFD calls fn with a descriptor on which the f*xattr calls work. The
// host wants one opened for data, which only regular files and directories
// have; on others user attributes do not exist anyway (xattr(7)).
func (i *inode) withXattrFD(fn func(fd int) error) error {
	if i.typ != unix.S_IFREG && i.typ != unix.S_IFDIR {
		return unix.EOPNOTSUPP
	}
	h, err := i.open(forRead)
	if err != nil {
		return err
	}
	defer i.fs.put(h)
	return fn(h.fd)
}

// Getxattr implements vfs.Xattrer.
func (i *inode) Getxattr(c vfs.Caller, name string) (value []byte, err error) {
	if !xattrAllowed(name) {
		return nil, unix.EOPNOTSUPP
	}
	err = i.withXattrFD(func(fd int) error {
		var small [256]byte
		n, err := unix.Fgetxattr(fd, name, small[:])
		if err == nil {
			value = append([]byte{}, small[:n]...)
			return nil
		}
		if err != unix.ERANGE {
			return err
		}
		value = make([]byte, maxXattr)
		n, err = unix.Fgetxattr(fd, name, value)
		value = value[:max(n, 0)]
		return err
	})
	if err == unix.EOPNOTSUPP && i.typ != unix.S_IFREG && i.typ != unix.S_IFDIR {
		return nil, unix.ENODATA
	}
	return value, err
}

// Setxattr implements vfs.Xattrer.
func (i *inode) Setxattr(c vfs.Caller, name string, value []byte, flags uint32) error {
	if !xattrAllowed(name) {
		return unix.EOPNOTSUPP
	}
	defer i.stale()
	return i.withXattrFD(func(fd int) error { return unix.Fsetxattr(fd, name, value, int(flags)) })
}

// Listxattr implements vfs.Xattrer.
func (i *inode) Listxattr(c vfs.Caller) (names []string, err error) {
	err = i.withXattrFD(func(fd int) error {
		buf := make([]byte, 1024)
		n, err := unix.Flistxattr(fd, buf)
		if err == unix.ERANGE {
			buf = make([]byte, maxXattr)
			n, err = unix.Flistxattr(fd, buf)
		}
		if err != nil {
			return err
		}
		for _, name := range strings.Split(string(buf[:n]), "\x00") {
			if name != "" && xattrAllowed(name) {
				names = append(names, name)
			}
		}
		return nil
	})
	if err == unix.EOPNOTSUPP {
		err = nil // listxattr(2) gives an empty list
	}
	return names, err
}

// Removexattr implements vfs.Xattrer.
func (i *inode) Removexattr(c vfs.Caller, name string) error {
	if !xattrAllowed(name) {
		return unix.EOPNOTSUPP
	}
	defer i.stale()
	return i.withXattrFD(func(fd int) error { return unix.Fremovexattr(fd, name) })
}
