package syscalls

import (
	"math"

	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/pkg/abi/linux"
	"runsc/sentry/kernel"
	"runsc/sentry/vfs"
)

const (
	// openFlags are the flags that openat2(2) knows (VALID_OPEN_FLAGS).
	openFlags = unix.O_ACCMODE | unix.O_CREAT | unix.O_EXCL | unix.O_NOCTTY | unix.O_TRUNC |
		unix.O_APPEND | unix.O_NONBLOCK | unix.O_DSYNC | unix.O_SYNC | unix.O_ASYNC | unix.O_DIRECT |
		unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_NOATIME | unix.O_CLOEXEC | unix.O_PATH |
		unix.O_TMPFILE | oLargefile
	// oLargefile is O_LARGEFILE, which x/sys has as 0: every 64-bit open gets it.
	oLargefile = linux.O_LARGEFILE
	// pathFlags are the flags that count along with O_PATH (O_PATH_FLAGS).
	pathFlags = unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_PATH | unix.O_CLOEXEC
)

// sysOpen implements open(2).
func sysOpen(t *kernel.Task, a Args) (uintptr, error) {
	return openAt(t, unix.AT_FDCWD, a.Addr(0), a.Uint(1), a.Uint(2))
}

// sysCreat implements creat(2).
func sysCreat(t *kernel.Task, a Args) (uintptr, error) {
	return openAt(t, unix.AT_FDCWD, a.Addr(0), unix.O_CREAT|unix.O_WRONLY|unix.O_TRUNC, a.Uint(1))
}

// sysOpenat implements openat(2).
func sysOpenat(t *kernel.Task, a Args) (uintptr, error) {
	return openAt(t, a.Int(0), a.Addr(1), a.Uint(2), a.Uint(3))
}

// openAt is the common part of the calls that ignore unknown flags.
func openAt(t *kernel.Task, dirfd int32, name uint64, flags, mode uint32) (uintptr, error) {
	flags &= openFlags
	if flags&unix.O_PATH != 0 {
		flags &= pathFlags
	} else {
		flags |= oLargefile // force_o_largefile()
	}
	if err := checkOpenFlags(flags); err != nil {
		return 0, err
	}
	p, err := lookup(t, dirfd, name, 0)
	if err != nil {
		return 0, err
	}
	defer p.put()
	return openTarget(t, &p, flags, mode&0o7777)
}

// openTarget opens p and installs the description.
func openTarget(t *kernel.Task, p *target, flags, mode uint32) (uintptr, error) {
	fd, err := t.Files().Reserve(t)
	if err != nil {
		return 0, err
	}
	f, err := vfs.OpenAt(t, p.At, flags, mode)
	if err != nil {
		t.Files().Unreserve(fd)
		return 0, err
	}
	t.Files().Fill(fd, f, flags&unix.O_CLOEXEC != 0)
	return uintptr(fd), nil
}

// install gives f the lowest free descriptor and takes over the reference.
func install(t *kernel.Task, f *vfs.File, cloexec bool) (uintptr, error) {
	fd, err := t.Files().Install(t, f, 0, cloexec)
	if err != nil {
		f.DecRef()
		return 0, err
	}
	return uintptr(fd), nil
}

// checkOpenFlags refuses combinations as build_open_flags() does.
func checkOpenFlags(flags uint32) error {
	if flags&unix.O_TMPFILE&^unix.O_DIRECTORY != 0 {
		if flags&unix.O_TMPFILE != unix.O_TMPFILE || flags&unix.O_CREAT != 0 || flags&unix.O_ACCMODE == unix.O_RDONLY {
			return unix.EINVAL
		}
	} else if flags&(unix.O_DIRECTORY|unix.O_CREAT) == unix.O_DIRECTORY|unix.O_CREAT {
		return unix.EINVAL // since Linux 6.4
	}
	return nil
}

// resolveFlags maps openat2(2)'s resolve bits to the walker's.
var resolveFlags = []struct {
	bit  uint64
	flag vfs.LookupFlags
}{
	{unix.RESOLVE_NO_XDEV, vfs.ResolveNoXdev},
	{unix.RESOLVE_NO_MAGICLINKS, vfs.NoMagic},
	{unix.RESOLVE_NO_SYMLINKS, vfs.ResolveNoSymlinks},
	{unix.RESOLVE_BENEATH, vfs.ResolveBeneath},
	{unix.RESOLVE_IN_ROOT, vfs.ResolveInRoot},
}

// sysOpenat2 implements openat2(2).
func sysOpenat2(t *kernel.Task, a Args) (uintptr, error) {
	how, err := copyInOpenHow(t, a.Addr(2), a.Size(3))
	if err != nil {
		return 0, err
	}
	flags := uint32(how.Flags)
	creates := flags&(unix.O_CREAT|unix.O_TMPFILE&^unix.O_DIRECTORY) != 0
	if how.Flags&^openFlags != 0 || how.Mode&^0o7777 != 0 || how.Mode != 0 && !creates {
		return 0, unix.EINVAL
	}
	if flags&unix.O_PATH != 0 && flags&^pathFlags != 0 {
		return 0, unix.EINVAL
	}
	if err := checkOpenFlags(flags); err != nil {
		return 0, err
	}
	var lf vfs.LookupFlags
	for _, r := range resolveFlags {
		if how.Resolve&r.bit != 0 {
			lf |= r.flag
			how.Resolve &^= r.bit
		}
	}
	if how.Resolve == linux.RESOLVE_CACHED {
		return 0, unix.EAGAIN // nothing is promised to be in the cache
	}
	if how.Resolve != 0 || lf&vfs.ResolveBeneath != 0 && lf&vfs.ResolveInRoot != 0 {
		return 0, unix.EINVAL
	}
	p, err := lookup(t, a.Int(0), a.Addr(1), lf)
	if err != nil {
		return 0, err
	}
	defer p.put()
	return openTarget(t, &p, flags, uint32(how.Mode))
}

// copyInOpenHow reads a struct open_how of any size: what this version does
// not know must be zero (E2BIG).
func copyInOpenHow(t *kernel.Task, addr, size uint64) (unix.OpenHow, error) {
	var how unix.OpenHow
	if size < unix.SizeofOpenHow {
		return how, unix.EINVAL
	}
	if size > 4096 {
		return how, unix.E2BIG
	}
	return how, copyInExtensible(t, addr, size, abi.Bytes(&how))
}

// copyInExtensible reads a structure that later versions make longer, as
// copy_struct_from_user does. size is not less than that of known and bounded.
func copyInExtensible(t *kernel.Task, addr, size uint64, known []byte) error {
	if err := t.CopyIn(addr, known); err != nil {
		return err
	}
	rest := make([]byte, size-uint64(len(known)))
	if err := t.CopyIn(addr+uint64(len(known)), rest); err != nil {
		return err
	}
	for _, b := range rest {
		if b != 0 {
			return unix.E2BIG
		}
	}
	return nil
}

// sysClose implements close(2).
func sysClose(t *kernel.Task, a Args) (uintptr, error) {
	return done(t.Files().Close(t, a.Int(0)))
}

// sysCloseRange implements close_range(2).
func sysCloseRange(t *kernel.Task, a Args) (uintptr, error) {
	flags := a.Uint(2)
	if flags&^(unix.CLOSE_RANGE_UNSHARE|unix.CLOSE_RANGE_CLOEXEC) != 0 || a.Uint(0) > a.Uint(1) {
		return 0, unix.EINVAL
	}
	first, last := int32(min(a.Uint(0), math.MaxInt32)), int32(min(a.Uint(1), math.MaxInt32))
	if flags&unix.CLOSE_RANGE_UNSHARE != 0 {
		t.UnshareFiles()
	}
	if flags&unix.CLOSE_RANGE_CLOEXEC != 0 {
		t.Files().SetCloexecRange(first, last)
	} else {
		t.Files().CloseRange(t, first, last)
	}
	return 0, nil
}
