package syscalls

import (
	"strings"

	"golang.org/x/sys/unix"

	"runsc/pkg/abi/linux"
	"runsc/sentry/kernel"
	"runsc/sentry/vfs"
)

// xattrTarget decodes argument 0 of the xattr calls: a path, or with fd set a
// descriptor.
func xattrTarget(t *kernel.Task, a Args, fd bool, flags vfs.LookupFlags) (target, error) {
	if !fd {
		return lookup(t, unix.AT_FDCWD, a.Addr(0), flags)
	}
	f, err := getFile(t, a.Int(0))
	if err != nil {
		return target{}, err
	}
	return target{At: vfs.At{FS: t.FS(), Dir: f.Path(), Flags: vfs.EmptyPath}, dir: f}, nil
}

// copyInXattrName reads an attribute's name (ERANGE: empty or too long).
func copyInXattrName(t *kernel.Task, addr uint64) (string, error) {
	name, err := t.CopyInString(addr, linux.XATTR_NAME_MAX+1)
	if err == unix.ENAMETOOLONG || err == nil && name == "" {
		return "", unix.ERANGE
	}
	return name, err
}

// sysSetxattr implements setxattr(2).
func sysSetxattr(t *kernel.Task, a Args) (uintptr, error) { return setxattr(t, a, false, 0) }

// sysLsetxattr implements lsetxattr(2).
func sysLsetxattr(t *kernel.Task, a Args) (uintptr, error) {
	return setxattr(t, a, false, vfs.NoFollow)
}

// sysFsetxattr implements fsetxattr(2).
func sysFsetxattr(t *kernel.Task, a Args) (uintptr, error) { return setxattr(t, a, true, 0) }

func setxattr(t *kernel.Task, a Args, fd bool, lf vfs.LookupFlags) (uintptr, error) {
	flags := a.Uint(4)
	if flags&^(unix.XATTR_CREATE|unix.XATTR_REPLACE) != 0 {
		return 0, unix.EINVAL
	}
	name, err := copyInXattrName(t, a.Addr(1))
	if err != nil {
		return 0, err
	}
	if a.Size(3) > linux.XATTR_SIZE_MAX {
		return 0, unix.E2BIG
	}
	value := make([]byte, a.Size(3))
	if err := t.CopyIn(a.Addr(2), value); err != nil {
		return 0, err
	}
	p, err := xattrTarget(t, a, fd, lf)
	if err != nil {
		return 0, err
	}
	defer p.put()
	return done(vfs.SetxattrAt(t, p.At, name, value, flags))
}

// sysGetxattr implements getxattr(2).
func sysGetxattr(t *kernel.Task, a Args) (uintptr, error) { return getxattr(t, a, false, 0) }

// sysLgetxattr implements lgetxattr(2).
func sysLgetxattr(t *kernel.Task, a Args) (uintptr, error) {
	return getxattr(t, a, false, vfs.NoFollow)
}

// sysFgetxattr implements fgetxattr(2).
func sysFgetxattr(t *kernel.Task, a Args) (uintptr, error) { return getxattr(t, a, true, 0) }

func getxattr(t *kernel.Task, a Args, fd bool, lf vfs.LookupFlags) (uintptr, error) {
	name, err := copyInXattrName(t, a.Addr(1))
	if err != nil {
		return 0, err
	}
	p, err := xattrTarget(t, a, fd, lf)
	if err != nil {
		return 0, err
	}
	defer p.put()
	value, err := vfs.GetxattrAt(t, p.At, name)
	if err != nil {
		return 0, err
	}
	return copyOutSized(t, a.Addr(2), a.Size(3), value)
}

// copyOutSized returns bytes through a buffer of the caller's size: with size
// 0 only their number, ERANGE when they do not fit (xattr(7)).
func copyOutSized(t *kernel.Task, addr, size uint64, b []byte) (uintptr, error) {
	if size == 0 {
		return uintptr(len(b)), nil
	}
	if uint64(len(b)) > size {
		return 0, unix.ERANGE
	}
	if err := t.CopyOut(addr, b); err != nil {
		return 0, err
	}
	return uintptr(len(b)), nil
}

// sysListxattr implements listxattr(2).
func sysListxattr(t *kernel.Task, a Args) (uintptr, error) { return listxattr(t, a, false, 0) }

// sysLlistxattr implements llistxattr(2).
func sysLlistxattr(t *kernel.Task, a Args) (uintptr, error) {
	return listxattr(t, a, false, vfs.NoFollow)
}

// sysFlistxattr implements flistxattr(2).
func sysFlistxattr(t *kernel.Task, a Args) (uintptr, error) { return listxattr(t, a, true, 0) }

func listxattr(t *kernel.Task, a Args, fd bool, lf vfs.LookupFlags) (uintptr, error) {
	p, err := xattrTarget(t, a, fd, lf)
	if err != nil {
		return 0, err
	}
	defer p.put()
	names, err := vfs.ListxattrAt(t, p.At)
	if err != nil {
		return 0, err
	}
	var b strings.Builder
	for _, name := range names {
		b.WriteString(name)
		b.WriteByte(0)
	}
	if b.Len() > linux.XATTR_LIST_MAX {
		return 0, unix.E2BIG
	}
	return copyOutSized(t, a.Addr(1), a.Size(2), []byte(b.String()))
}

// sysRemovexattr implements removexattr(2).
func sysRemovexattr(t *kernel.Task, a Args) (uintptr, error) { return removexattr(t, a, false, 0) }

// sysLremovexattr implements lremovexattr(2).
func sysLremovexattr(t *kernel.Task, a Args) (uintptr, error) {
	return removexattr(t, a, false, vfs.NoFollow)
}

// sysFremovexattr implements fremovexattr(2).
func sysFremovexattr(t *kernel.Task, a Args) (uintptr, error) { return removexattr(t, a, true, 0) }

func removexattr(t *kernel.Task, a Args, fd bool, lf vfs.LookupFlags) (uintptr, error) {
	name, err := copyInXattrName(t, a.Addr(1))
	if err != nil {
		return 0, err
	}
	p, err := xattrTarget(t, a, fd, lf)
	if err != nil {
		return 0, err
	}
	defer p.put()
	return done(vfs.RemovexattrAt(t, p.At, name))
}
