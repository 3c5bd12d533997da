package syscalls

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/pkg/abi/linux"
	"runsc/sentry/kernel"
	"runsc/sentry/vfs"
)

// sysIoctl implements ioctl(2): what holds for every file here (do_vfs_ioctl),
// the rest in the file.
func sysIoctl(t *kernel.Task, a Args) (uintptr, error) {
	f, err := getFile(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	switch cmd := a.Uint(1); cmd {
	case linux.FIOCLEX, linux.FIONCLEX:
		return done(t.Files().SetCloexec(a.Int(0), cmd == linux.FIOCLEX))
	case linux.FIONBIO:
		return ioctlFlag(t, f, a.Int(0), a.Addr(2), unix.O_NONBLOCK)
	case linux.FIOASYNC:
		return ioctlFlag(t, f, a.Int(0), a.Addr(2), unix.O_ASYNC)
	case linux.FIGETBSZ:
		st, err := f.Stat(t, 0)
		if err != nil {
			return 0, err
		}
		size := int32(st.BlockSize)
		return done(t.CopyOut(a.Addr(2), abi.Bytes(&size)))
	default:
		n, err := f.Ioctl(t, t.MM(), cmd, a.Uint64(2))
		if err == unix.ENOTTY && cmd == linux.FIONREAD {
			return ioctlBytesLeft(t, f, a.Addr(2))
		}
		return n, err
	}
}

// ioctlFlag sets or clears a status flag by the int at addr.
func ioctlFlag(t *kernel.Task, f *vfs.File, fd int32, addr uint64, flag uint32) (uintptr, error) {
	var on int32
	if err := t.CopyIn(addr, abi.Bytes(&on)); err != nil {
		return 0, err
	}
	flags := f.StatusFlags() &^ flag
	if on != 0 {
		flags |= flag
	}
	return done(setFlags(t, f, fd, flags))
}

// ioctlBytesLeft is FIONREAD of a regular file: the bytes after the offset.
func ioctlBytesLeft(t *kernel.Task, f *vfs.File, addr uint64) (uintptr, error) {
	st, err := f.Stat(t, unix.STATX_SIZE)
	if err != nil {
		return 0, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return 0, unix.ENOTTY
	}
	left := int32(int64(st.Size) - f.Offset())
	return done(t.CopyOut(addr, abi.Bytes(&left)))
}
