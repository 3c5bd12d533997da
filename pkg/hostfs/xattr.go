package hostfs

import (
	"strings"

	"golang.org/x/sys/unix"
)

// MaxXattr is XATTR_SIZE_MAX, and XATTR_LIST_MAX.
const MaxXattr = 64 << 10

// Getxattr implements Backend. The host wants a descriptor opened for data.
func (l *Local) Getxattr(t Target, name string) (value []byte, err error) {
	err = l.withData(t, func(fd int) error {
		var small [256]byte
		n, err := unix.Fgetxattr(fd, name, small[:])
		if err == nil {
			value = append([]byte{}, small[:n]...)
			return nil
		}
		if err != unix.ERANGE {
			return err
		}
		value = make([]byte, MaxXattr)
		n, err = unix.Fgetxattr(fd, name, value)
		value = value[:max(n, 0)]
		return err
	})
	return value, err
}

// Setxattr implements Backend.
func (l *Local) Setxattr(t Target, name string, value []byte, flags int) error {
	return l.withData(t, func(fd int) error { return unix.Fsetxattr(fd, name, value, flags) })
}

// Listxattr implements Backend.
func (l *Local) Listxattr(t Target) (names []string, err error) {
	err = l.withData(t, func(fd int) error {
		buf := make([]byte, 1024)
		n, err := unix.Flistxattr(fd, buf)
		if err == unix.ERANGE {
			buf = make([]byte, MaxXattr)
			n, err = unix.Flistxattr(fd, buf)
		}
		if err != nil {
			return err
		}
		for _, name := range strings.Split(string(buf[:n]), "\x00") {
			if name != "" {
				names = append(names, name)
			}
		}
		return nil
	})
	return names, err
}

// Removexattr implements Backend.
func (l *Local) Removexattr(t Target, name string) error {
	return l.withData(t, func(fd int) error { return unix.Fremovexattr(fd, name) })
}
