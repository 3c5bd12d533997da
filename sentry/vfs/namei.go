package vfs

import (
	"golang.org/x/sys/unix"
)

// withParent walks to the directory of at's last component, which must be a
// name, not "." or ".." or "/": those give the errno dots. fn runs with w.cur
// the directory and w.last the name.
func withParent(c Caller, at *At, dots error, fn func(w *walker) error) error {
	var w walker
	if err := w.init(c, at); err != nil {
		return err
	}
	defer w.done()
	if err := w.parent(); err != nil {
		return err
	}
	if w.last == "" || w.last == "." || w.last == ".." {
		return dots
	}
	if err := w.mayLookup(); err != nil {
		return err
	}
	if len(w.last) > nameMax {
		return unix.ENAMETOOLONG
	}
	return fn(&w)
}

// makeAt makes a new entry through fn, which gets the directory's dentry with
// dirMu held and returns the new inode. The order of errors is that of Linux's
// filename_create: EEXIST, EROFS, then permission.
func makeAt(c Caller, at At, isDir bool, mask uint32, fn func(w *walker, dir *Dentry) (Inode, error)) error {
	return makeChecked(c, at, isDir, mask, nil, fn)
}

// makeChecked is makeAt with a check, if it is not nil, that comes before that of the
// caller's permission in the directory.
func makeChecked(c Caller, at At, isDir bool, mask uint32, check func(w *walker) error, fn func(w *walker, dir *Dentry) (Inode, error)) error {
	return withParent(c, &at, unix.EEXIST, func(w *walker) error {
		dir := w.cur.Dentry
		dir.dirMu.Lock()
		err := w.makeLocked(dir, isDir, check, fn)
		dir.dirMu.Unlock()
		if err == nil {
			notifyEntry(dir, mask, 0, w.last, isDir)
		}
		return err
	})
}

func (w *walker) makeLocked(dir *Dentry, isDir bool, check func(w *walker) error, fn func(w *walker, dir *Dentry) (Inode, error)) error {
	ch, err := dir.lookupLocked(w.c, w.last)
	if err != nil {
		return err
	}
	if ch != nil {
		ch.DecRef()
		return unix.EEXIST
	}
	if w.slash && !isDir {
		return unix.ENOENT
	}
	if check != nil {
		if err := check(w); err != nil {
			return err
		}
	}
	if err := w.mayCreate(dir); err != nil {
		return err
	}
	inode, err := fn(w, dir)
	if err != nil {
		return err
	}
	dir.instantiate(w.last, inode).DecRef()
	return nil
}

func umaskOf(at *At) uint32 {
	if at.FS == nil {
		return 0
	}
	return at.FS.Umask()
}

// MkdirAt implements mkdir(2); mode is before the umask.
func MkdirAt(c Caller, at At, mode uint32) error {
	return makeAt(c, at, true, unix.IN_CREATE, func(w *walker, dir *Dentry) (Inode, error) {
		a, err := w.createAttr(dir, unix.S_IFDIR|mode&0o1777, umaskOf(&at))
		if err != nil {
			return nil, err
		}
		return dir.dir.Mkdir(c, w.last, a)
	})
}

// MknodAt implements mknod(2); mode has the type and is before the umask.
func MknodAt(c Caller, at At, mode uint32, dev uint64) error {
	switch mode & unix.S_IFMT {
	case 0:
		mode |= unix.S_IFREG
	case unix.S_IFREG, unix.S_IFIFO, unix.S_IFSOCK:
	case unix.S_IFCHR, unix.S_IFBLK:
	case unix.S_IFDIR:
		return unix.EPERM
	default:
		return unix.EINVAL
	}
	return makeAt(c, at, false, unix.IN_CREATE, func(w *walker, dir *Dentry) (Inode, error) {
		a, err := w.createAttr(dir, mode&(unix.S_IFMT|0o7777), umaskOf(&at))
		if err != nil {
			return nil, err
		}
		// A 0/0 character device is an overlay whiteout: anybody's (vfs_mknod).
		kind := mode & unix.S_IFMT
		if (kind == unix.S_IFBLK || kind == unix.S_IFCHR && dev != 0) && !c.Cred().Has(unix.CAP_MKNOD) {
			return nil, unix.EPERM
		}
		if kind == unix.S_IFREG {
			return dir.dir.Create(c, w.last, a)
		}
		return dir.dir.Mknod(c, w.last, a, dev)
	})
}

// BindSocketAt makes a socket node for bind(2) of an AF_UNIX socket and
// returns a new reference to it. EADDRINUSE if the name exists.
func BindSocketAt(c Caller, at At, mode uint32) (Path, error) {
	if err := MknodAt(c, at, unix.S_IFSOCK|mode&0o777, 0); err != nil {
		if err == unix.EEXIST {
			err = unix.EADDRINUSE
		}
		return Path{}, err
	}
	at.Flags |= NoFollow
	return LookupAt(c, at)
}

// SymlinkAt implements symlink(2).
func SymlinkAt(c Caller, target string, at At) error {
	if target == "" {
		return unix.ENOENT
	}
	if len(target) >= pathMax {
		return unix.ENAMETOOLONG
	}
	return makeAt(c, at, false, unix.IN_CREATE, func(w *walker, dir *Dentry) (Inode, error) {
		a, err := w.createAttr(dir, unix.S_IFLNK|0o777, 0)
		if err != nil {
			return nil, err
		}
		return dir.dir.Symlink(c, w.last, target, a)
	})
}

// LinkAt implements link(2) and linkat(2): old follows symlinks unless its
// Flags have NoFollow.
func LinkAt(c Caller, old, at At) error {
	src, err := LookupAt(c, old)
	if err != nil {
		return err
	}
	defer src.DecRef()
	check := func(w *walker) error {
		if src.Mount != w.cur.Mount {
			return unix.EXDEV
		}
		return w.mayLinkFrom(src.Dentry)
	}
	err = makeChecked(c, at, false, unix.IN_CREATE, check, func(w *walker, dir *Dentry) (Inode, error) {
		inode := src.Dentry.inode
		st, err := inode.Stat(c, unix.STATX_NLINK)
		switch { // vfs_link
		case err != nil:
			return nil, err
		case st.Attributes&fixedAttrs != 0, src.Dentry.IsDir():
			return nil, unix.EPERM
		case st.Nlink == 0 && src.Dentry.state.Load()&dentryLinkable == 0:
			return nil, unix.ENOENT
		}
		if err := dir.dir.Link(c, w.last, inode); err != nil {
			return nil, err
		}
		inode.IncRef()
		return inode, nil
	})
	if err == nil {
		notifySelf(src.Dentry, unix.IN_ATTRIB)
	}
	return err
}

// mayLinkFrom is the protected_hardlinks check of proc(5) (may_linkat).
func (w *walker) mayLinkFrom(d *Dentry) error {
	st, err := d.inode.Stat(w.c, 0)
	if err != nil {
		return err
	}
	if !ownerOr(w.cr, &st, unix.CAP_FOWNER) {
		special := st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&unix.S_ISUID != 0 ||
			st.Mode&(unix.S_ISGID|unix.S_IXGRP) == unix.S_ISGID|unix.S_IXGRP
		if special || w.permit(d, MayRead|MayWrite) != nil {
			return unix.EPERM
		}
	}
	return nil
}

// UnlinkAt implements unlink(2).
func UnlinkAt(c Caller, at At) error {
	return withParent(c, &at, unix.EISDIR, func(w *walker) error { return w.remove(false) })
}

// RmdirAt implements rmdir(2).
func RmdirAt(c Caller, at At) error {
	var w walker
	if err := w.init(c, &at); err != nil {
		return err
	}
	defer w.done()
	if err := w.parent(); err != nil {
		return err
	}
	// rmdir(2): "." is EINVAL, ".." is not empty, the root is busy.
	switch w.last {
	case "":
		return unix.EBUSY
	case ".":
		return unix.EINVAL
	case "..":
		return unix.ENOTEMPTY
	}
	if err := w.mayLookup(); err != nil {
		return err
	}
	if len(w.last) > nameMax {
		return unix.ENAMETOOLONG
	}
	return w.remove(true)
}

// remove unlinks last, a directory if isDir is set, from cur.
func (w *walker) remove(isDir bool) error {
	if err := w.cur.Mount.wantWrite(); err != nil {
		return err
	}
	dir := w.cur.Dentry
	dir.dirMu.Lock()
	ch, err := w.removeLocked(dir, isDir)
	dir.dirMu.Unlock()
	if ch != nil {
		if err == nil {
			notifyGone(w.c, ch)
			notifyEntry(dir, unix.IN_DELETE, 0, w.last, isDir)
			if isDir {
				ch.shrink()
			}
		}
		ch.DecRef()
	}
	return err
}

// removeLocked returns the dentry that it looked up, also with an error.
func (w *walker) removeLocked(dir *Dentry, isDir bool) (*Dentry, error) {
	ch, err := dir.lookupLocked(w.c, w.last)
	if err != nil {
		return nil, err
	}
	if ch == nil {
		return nil, unix.ENOENT
	}
	if w.slash && !isDir {
		// do_unlinkat: a trailing slash never names a file.
		if ch.IsDir() {
			return ch, unix.EISDIR
		}
		return ch, unix.ENOTDIR
	}
	if err := w.mayDelete(dir, ch, isDir); err != nil {
		return ch, err
	}
	if !isDir {
		if err := dir.dir.Unlink(w.c, w.last, ch.inode); err != nil {
			return ch, err
		}
		ch.unhash()
		return ch, nil
	}
	ch.dirMu.Lock()
	defer ch.dirMu.Unlock()
	if err := dir.dir.Rmdir(w.c, w.last, ch.inode); err != nil {
		return ch, err
	}
	ch.state.Or(dentryDead)
	ch.unhash()
	return ch, nil
}
