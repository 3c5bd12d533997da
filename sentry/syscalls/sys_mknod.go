package syscalls

import (
	"golang.org/x/sys/unix"

	"runsc/sentry/kernel"
	"runsc/sentry/vfs"
)

// sysMkdir implements mkdir(2).
func sysMkdir(t *kernel.Task, a Args) (uintptr, error) {
	return mkdirAt(t, unix.AT_FDCWD, a.Addr(0), a.Uint(1))
}

// sysMkdirat implements mkdirat(2).
func sysMkdirat(t *kernel.Task, a Args) (uintptr, error) {
	return mkdirAt(t, a.Int(0), a.Addr(1), a.Uint(2))
}

func mkdirAt(t *kernel.Task, dirfd int32, name uint64, mode uint32) (uintptr, error) {
	p, err := lookup(t, dirfd, name, 0)
	if err != nil {
		return 0, err
	}
	defer p.put()
	// Only these bits count for a directory (vfs_prepare_mode in vfs_mkdir).
	return done(vfs.MkdirAt(t, p.At, mode&0o1777))
}

// sysMknod implements mknod(2).
func sysMknod(t *kernel.Task, a Args) (uintptr, error) {
	return mknodAt(t, unix.AT_FDCWD, a.Addr(0), a.Uint(1), a.Uint(2))
}

// sysMknodat implements mknodat(2).
func sysMknodat(t *kernel.Task, a Args) (uintptr, error) {
	return mknodAt(t, a.Int(0), a.Addr(1), a.Uint(2), a.Uint(3))
}

func mknodAt(t *kernel.Task, dirfd int32, name uint64, mode, dev uint32) (uintptr, error) {
	switch mode & unix.S_IFMT {
	case 0:
		mode |= unix.S_IFREG
	case unix.S_IFREG, unix.S_IFCHR, unix.S_IFBLK, unix.S_IFIFO, unix.S_IFSOCK:
	case unix.S_IFDIR:
		return 0, unix.EPERM
	default:
		return 0, unix.EINVAL
	}
	p, err := lookup(t, dirfd, name, 0)
	if err != nil {
		return 0, err
	}
	defer p.put()
	// The argument is of 32 bits: 12 of the major and 20 of the minor
	// number (new_decode_dev).
	rdev := unix.Mkdev(dev&0xfff00>>8, dev&0xff|dev>>12&0xfff00)
	return done(vfs.MknodAt(t, p.At, mode, rdev))
}

// sysUmask implements umask(2).
func sysUmask(t *kernel.Task, a Args) (uintptr, error) {
	return uintptr(t.FS().SetUmask(a.Uint(0))), nil
}
