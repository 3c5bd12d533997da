package syscalls

import (
	"golang.org/x/sys/unix"

	"runsc/sentry/kernel"
	"runsc/sentry/vfs"
)

// sysReadlink implements readlink(2).
func sysReadlink(t *kernel.Task, a Args) (uintptr, error) {
	return readlinkAt(t, unix.AT_FDCWD, a.Addr(0), a.Addr(1), a.Int(2))
}

// sysReadlinkat implements readlinkat(2).
func sysReadlinkat(t *kernel.Task, a Args) (uintptr, error) {
	return readlinkAt(t, a.Int(0), a.Addr(1), a.Addr(2), a.Int(3))
}

func readlinkAt(t *kernel.Task, dirfd int32, name, buf uint64, size int32) (uintptr, error) {
	if size <= 0 {
		return 0, unix.EINVAL
	}
	// An empty name reads the link that an O_PATH descriptor is.
	p, err := lookup(t, dirfd, name, vfs.NoFollow|vfs.EmptyPath)
	if err != nil {
		return 0, err
	}
	defer p.put()
	if p.Name == "" && p.dir == nil {
		return 0, unix.ENOENT
	}
	target, err := vfs.ReadlinkAt(t, p.At)
	if err != nil {
		if p.Name == "" && err == unix.EINVAL {
			err = unix.ENOENT // do_readlinkat: an empty name of what is no link
		}
		return 0, err
	}
	target = target[:min(len(target), int(size))] // no NUL, cut without notice
	if err := t.CopyOut(buf, []byte(target)); err != nil {
		return 0, err
	}
	return uintptr(len(target)), nil
}

// sysSymlink implements symlink(2).
func sysSymlink(t *kernel.Task, a Args) (uintptr, error) {
	return symlinkAt(t, a.Addr(0), unix.AT_FDCWD, a.Addr(1))
}

// sysSymlinkat implements symlinkat(2).
func sysSymlinkat(t *kernel.Task, a Args) (uintptr, error) {
	return symlinkAt(t, a.Addr(0), a.Int(1), a.Addr(2))
}

func symlinkAt(t *kernel.Task, target uint64, dirfd int32, name uint64) (uintptr, error) {
	s, err := t.CopyInPath(target)
	if err != nil {
		return 0, err
	}
	if s == "" {
		return 0, unix.ENOENT
	}
	p, err := lookup(t, dirfd, name, 0)
	if err != nil {
		return 0, err
	}
	defer p.put()
	return done(vfs.SymlinkAt(t, s, p.At))
}

// sysLink implements link(2).
func sysLink(t *kernel.Task, a Args) (uintptr, error) {
	return linkAt(t, unix.AT_FDCWD, a.Addr(0), unix.AT_FDCWD, a.Addr(1), 0)
}

// sysLinkat implements linkat(2).
func sysLinkat(t *kernel.Task, a Args) (uintptr, error) {
	return linkAt(t, a.Int(0), a.Addr(1), a.Int(2), a.Addr(3), a.Int(4))
}

func linkAt(t *kernel.Task, oldfd int32, oldname uint64, newfd int32, newname uint64, flags int32) (uintptr, error) {
	if flags&^(unix.AT_SYMLINK_FOLLOW|unix.AT_EMPTY_PATH) != 0 {
		return 0, unix.EINVAL
	}
	lf := vfs.NoFollow
	if flags&unix.AT_SYMLINK_FOLLOW != 0 {
		lf = 0
	}
	if flags&unix.AT_EMPTY_PATH != 0 {
		lf |= vfs.EmptyPath
	}
	from, err := lookup(t, oldfd, oldname, lf)
	if err != nil {
		return 0, err
	}
	defer from.put()
	// AT_EMPTY_PATH links a file one holds: since Linux 6.10 one opened with
	// the same credentials, before with this capability. Here the owner's is
	// taken for that.
	if from.Name == "" && !t.Cred().Has(unix.CAP_DAC_READ_SEARCH) {
		if from.dir == nil {
			return 0, unix.ENOENT
		}
		if st, err := from.dir.Stat(t, unix.STATX_UID); err != nil || st.UID != t.Cred().FSUID {
			return 0, unix.ENOENT
		}
	}
	to, err := lookup(t, newfd, newname, 0)
	if err != nil {
		return 0, err
	}
	defer to.put()
	return done(vfs.LinkAt(t, from.At, to.At))
}

// sysUnlink implements unlink(2).
func sysUnlink(t *kernel.Task, a Args) (uintptr, error) {
	return unlinkAt(t, unix.AT_FDCWD, a.Addr(0), 0)
}

// sysRmdir implements rmdir(2).
func sysRmdir(t *kernel.Task, a Args) (uintptr, error) {
	return unlinkAt(t, unix.AT_FDCWD, a.Addr(0), unix.AT_REMOVEDIR)
}

// sysUnlinkat implements unlinkat(2).
func sysUnlinkat(t *kernel.Task, a Args) (uintptr, error) {
	return unlinkAt(t, a.Int(0), a.Addr(1), a.Int(2))
}

func unlinkAt(t *kernel.Task, dirfd int32, name uint64, flags int32) (uintptr, error) {
	if flags&^unix.AT_REMOVEDIR != 0 {
		return 0, unix.EINVAL
	}
	p, err := lookup(t, dirfd, name, 0)
	if err != nil {
		return 0, err
	}
	defer p.put()
	if flags&unix.AT_REMOVEDIR != 0 {
		return done(vfs.RmdirAt(t, p.At))
	}
	return done(vfs.UnlinkAt(t, p.At))
}

// sysRename implements rename(2).
func sysRename(t *kernel.Task, a Args) (uintptr, error) {
	return renameAt(t, unix.AT_FDCWD, a.Addr(0), unix.AT_FDCWD, a.Addr(1), 0)
}

// sysRenameat implements renameat(2).
func sysRenameat(t *kernel.Task, a Args) (uintptr, error) {
	return renameAt(t, a.Int(0), a.Addr(1), a.Int(2), a.Addr(3), 0)
}

// sysRenameat2 implements renameat2(2).
func sysRenameat2(t *kernel.Task, a Args) (uintptr, error) {
	return renameAt(t, a.Int(0), a.Addr(1), a.Int(2), a.Addr(3), a.Uint(4))
}

func renameAt(t *kernel.Task, oldfd int32, oldname uint64, newfd int32, newname uint64, flags uint32) (uintptr, error) {
	if flags&^(unix.RENAME_NOREPLACE|unix.RENAME_EXCHANGE|unix.RENAME_WHITEOUT) != 0 {
		return 0, unix.EINVAL
	}
	if flags&unix.RENAME_EXCHANGE != 0 && flags&(unix.RENAME_NOREPLACE|unix.RENAME_WHITEOUT) != 0 {
		return 0, unix.EINVAL
	}
	from, err := lookup(t, oldfd, oldname, 0)
	if err != nil {
		return 0, err
	}
	defer from.put()
	to, err := lookup(t, newfd, newname, 0)
	if err != nil {
		return 0, err
	}
	defer to.put()
	return done(vfs.RenameAt(t, from.At, to.At, flags))
}
