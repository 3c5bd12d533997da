package syscalls

import (
	"strings"

	"golang.org/x/sys/unix"

	"runsc/sentry/kernel"
	"runsc/sentry/vfs"
)

// target is a path argument, and the directory it starts at, ready for the
// At functions of vfs. put drops what it holds.
type target struct {
	vfs.At
	dir *vfs.File
}

func (p *target) put() {
	if p.dir != nil {
		p.dir.DecRef()
	}
}

// lookup decodes the pair of a directory descriptor and a path name that the
// *at calls take (openat(2)). The order is Linux's: EFAULT, ENAMETOOLONG of
// the name first, then EBADF, and that only for a relative name.
func lookup(t *kernel.Task, dirfd int32, name uint64, flags vfs.LookupFlags) (target, error) {
	s, err := t.CopyInPath(name)
	if err != nil {
		return target{}, err
	}
	return lookupName(t, dirfd, s, flags)
}

// lookupName is lookup with the name already copied in.
func lookupName(t *kernel.Task, dirfd int32, name string, flags vfs.LookupFlags) (target, error) {
	p := target{At: vfs.At{FS: t.FS(), Name: name, Flags: flags}}
	if name == "" && flags&vfs.EmptyPath == 0 {
		return target{}, unix.ENOENT // before EBADF, as getname() has it
	}
	if dirfd == unix.AT_FDCWD || strings.HasPrefix(name, "/") && flags&vfs.ResolveInRoot == 0 {
		return p, nil
	}
	f, err := t.Files().Get(dirfd)
	if err != nil {
		return target{}, err
	}
	p.dir, p.Dir = f, f.Path()
	return p, nil
}

// atFlags turns AT_SYMLINK_NOFOLLOW and AT_EMPTY_PATH into lookup flags, for
// calls that follow links by default.
func atFlags(flags int32) vfs.LookupFlags {
	var l vfs.LookupFlags
	if flags&unix.AT_SYMLINK_NOFOLLOW != 0 {
		l |= vfs.NoFollow
	}
	if flags&unix.AT_EMPTY_PATH != 0 {
		l |= vfs.EmptyPath
	}
	return l
}

// getFile returns a new reference to the description of fd, which must be
// more than a path (O_PATH): EBADF.
func getFile(t *kernel.Task, fd int32) (*vfs.File, error) {
	f, err := t.Files().Get(fd)
	if err != nil {
		return nil, err
	}
	if f.StatusFlags()&unix.O_PATH != 0 {
		f.DecRef()
		return nil, unix.EBADF
	}
	return f, nil
}
