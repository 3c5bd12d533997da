package gofer

import (
	"golang.org/x/sys/unix"

	"runsc/sentry/vfs"
)

// dir is a directory. It implements vfs.Dir.
type dir struct{ *inode }

// symlink is a symbolic link.
type symlink struct{ *inode }

// special is a socket, fifo or device node: a name and attributes, whose
// contents live in the Sentry.
type special struct{ *inode }

// Lookup implements vfs.Dir.
func (d *dir) Lookup(c vfs.Caller, name string) (vfs.Inode, error) {
	h, err := d.open(byPath)
	if err != nil {
		return nil, err
	}
	defer d.fs.put(h)
	var stx unix.Statx_t
	if err := statx(h.fd, name, &stx); err != nil {
		return nil, err
	}
	o := d.fs.inode(d.inode, name, &stx)
	o.base().seen(c)
	return o, nil
}

// Revalidate implements vfs.Revalidator.
func (d *dir) Revalidate(c vfs.Caller, name string, child vfs.Inode) (bool, error) {
	if d.fs.exclusive {
		return true, nil
	}
	h, err := d.open(byPath)
	if err == unix.ESTALE {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer d.fs.put(h)
	var stx unix.Statx_t
	err = statx(h.fd, name, &stx)
	switch {
	case err == unix.ENOENT:
		return child == nil, nil
	case err != nil:
		return false, nil // the lookup that follows reports it
	case child == nil:
		return false, nil
	}
	o, ok := child.(object)
	if !ok || d.fs.keyOf(&stx) != o.base().key || uint32(stx.Mode)&unix.S_IFMT != o.base().typ {
		return false, nil
	}
	o.base().update(&stx)
	o.base().seen(c)
	return true, nil
}

// Create implements vfs.Dir.
func (d *dir) Create(c vfs.Caller, name string, a vfs.CreateAttr) (vfs.Inode, error) {
	i, h, err := d.create(name, a)
	if err != nil {
		return nil, err
	}
	d.fs.put(h)
	return i, nil
}

// CreateOpen implements vfs.CreateOpener.
func (d *dir) CreateOpen(c vfs.Caller, name string, a vfs.CreateAttr, flags uint32) (vfs.Inode, vfs.FileOps, error) {
	i, h, err := d.create(name, a)
	if err != nil {
		return nil, nil, err
	}
	return i, newRegularFile(i.base(), h, flags), nil
}

// create makes a regular file and returns it with a handle for writing.
func (d *dir) create(name string, a vfs.CreateAttr) (object, *handle, error) {
	h, err := d.open(byPath)
	if err != nil {
		return nil, nil, err
	}
	defer d.fs.put(h)
	fd, err := d.fs.client.fds.retry(func() (int, error) {
		return openat(h.fd, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, a.Mode&0o7777)
	})
	if err != nil {
		return nil, nil, err
	}
	d.stale()
	o, err := d.adopt(fd, h.fd, name, a)
	if err != nil {
		unix.Close(fd)
		_ = unix.Unlinkat(h.fd, name, 0)
		return nil, nil, err
	}
	return o, d.fs.client.fds.add(o.base(), forWrite, fd, false), nil
}

// adopt gives a new file its owner and returns its inode. fd is the file, or
// -1 to go by its name.
func (d *dir) adopt(fd, dirfd int, name string, a vfs.CreateAttr) (object, error) {
	at, rel, flags := fd, "", unix.AT_EMPTY_PATH
	if fd < 0 {
		at, rel, flags = dirfd, name, unix.AT_SYMLINK_NOFOLLOW
	}
	var stx unix.Statx_t
	if err := statx(at, rel, &stx); err != nil {
		return nil, err
	}
	if stx.Uid != a.UID || stx.Gid != a.GID {
		if err := unix.Fchownat(at, rel, int(a.UID), int(a.GID), flags); err != nil {
			return nil, err
		}
		stx.Uid, stx.Gid = a.UID, a.GID
	}
	// The mode is the host's work (a default ACL may have a say); only what
	// the change of owner clears is set again.
	if special := a.Mode & 0o7000; special&^uint32(stx.Mode) != 0 || special&0o6000 != 0 {
		if stx.Mode&unix.S_IFMT != unix.S_IFLNK {
			mode := uint32(stx.Mode)&0o777 | special
			var err error
			if fd >= 0 {
				err = unix.Fchmod(fd, mode)
			} else {
				err = unix.Fchmodat(at, rel, mode, unix.AT_SYMLINK_NOFOLLOW)
			}
			if err != nil {
				return nil, err
			}
			stx.Mode = stx.Mode&unix.S_IFMT | uint16(mode)
		}
	}
	return d.fs.inode(d.inode, name, &stx), nil
}

// make runs a call that makes a name other than a regular file's.
func (d *dir) make(name string, a vfs.CreateAttr, call func(dirfd int) error) (vfs.Inode, error) {
	h, err := d.open(byPath)
	if err != nil {
		return nil, err
	}
	defer d.fs.put(h)
	if err := call(h.fd); err != nil {
		return nil, err
	}
	d.stale()
	o, err := d.adopt(-1, h.fd, name, a)
	if err != nil {
		flags := 0
		if a.Mode&unix.S_IFMT == unix.S_IFDIR {
			flags = unix.AT_REMOVEDIR
		}
		_ = unix.Unlinkat(h.fd, name, flags)
		return nil, err
	}
	return o, nil
}

// Mkdir implements vfs.Dir.
func (d *dir) Mkdir(c vfs.Caller, name string, a vfs.CreateAttr) (vfs.Inode, error) {
	a.Mode = a.Mode&0o7777 | unix.S_IFDIR
	return d.make(name, a, func(dirfd int) error { return unix.Mkdirat(dirfd, name, a.Mode&0o7777) })
}

// Mknod implements vfs.Dir. The host does not allow device nodes in a user
// namespace (mknod(2), EPERM), so the gofer makes them.
func (d *dir) Mknod(c vfs.Caller, name string, a vfs.CreateAttr, rdev uint64) (vfs.Inode, error) {
	return d.make(name, a, func(dirfd int) error {
		err := unix.Mknodat(dirfd, name, a.Mode, int(rdev))
		if err == unix.EPERM && d.fs.client.remote != nil {
			switch a.Mode & unix.S_IFMT {
			case unix.S_IFCHR, unix.S_IFBLK:
				err = d.fs.client.remote.Mknod(dirfd, name, a.Mode, rdev)
			}
		}
		return err
	})
}

// Symlink implements vfs.Dir.
func (d *dir) Symlink(c vfs.Caller, name, target string, a vfs.CreateAttr) (vfs.Inode, error) {
	a.Mode = 0o777 | unix.S_IFLNK
	return d.make(name, a, func(dirfd int) error { return unix.Symlinkat(target, dirfd, name) })
}

// Link implements vfs.Dir.
func (d *dir) Link(c vfs.Caller, name string, target vfs.Inode) error {
	o, ok := target.(object)
	if !ok || o.base().fs != d.fs {
		return unix.EXDEV
	}
	i := o.base()
	h, err := d.open(byPath)
	if err != nil {
		return err
	}
	defer d.fs.put(h)
	t := d.fs.client.fds.getAny(i)
	if t == nil {
		if t, err = i.open(byPath); err != nil {
			return err
		}
	}
	defer d.fs.put(t)
	if err := d.fs.client.linkFD(t.fd, h.fd, name); err != nil {
		return err
	}
	i.mu.Lock()
	nameless := i.parent == nil
	i.mu.Unlock()
	if nameless {
		i.setPlace(d.inode, name)
	}
	i.stale()
	d.stale()
	return nil
}

// Unlink implements vfs.Dir.
func (d *dir) Unlink(c vfs.Caller, name string, child vfs.Inode) error {
	return d.remove(name, child, 0)
}

// Rmdir implements vfs.Dir.
func (d *dir) Rmdir(c vfs.Caller, name string, child vfs.Inode) error {
	return d.remove(name, child, unix.AT_REMOVEDIR)
}

func (d *dir) remove(name string, child vfs.Inode, flags int) error {
	h, err := d.open(byPath)
	if err != nil {
		return err
	}
	defer d.fs.put(h)
	i := child.(object).base()
	i.pin()
	if err := unix.Unlinkat(h.fd, name, flags); err != nil {
		if err != unix.ENOENT {
			i.unpin()
		}
		return err
	}
	i.unlinked()
	d.stale()
	return nil
}

// Rename implements vfs.Dir.
func (d *dir) Rename(c vfs.Caller, name string, child vfs.Inode, newDir vfs.Dir, newName string, replaced vfs.Inode, flags uint32) error {
	to, ok := newDir.(*dir)
	if !ok || to.fs != d.fs {
		return unix.EXDEV
	}
	from, err := d.open(byPath)
	if err != nil {
		return err
	}
	defer d.fs.put(from)
	dest, err := to.open(byPath)
	if err != nil {
		return err
	}
	defer d.fs.put(dest)
	var victim *inode
	if replaced != nil {
		victim = replaced.(object).base()
		if flags&unix.RENAME_EXCHANGE == 0 {
			victim.pin()
		}
	}
	if err := unix.Renameat2(from.fd, name, dest.fd, newName, uint(flags)); err != nil {
		if victim != nil && flags&unix.RENAME_EXCHANGE == 0 {
			victim.unpin()
		}
		return err
	}
	i := child.(object).base()
	switch {
	case victim == i: // two names of one file: rename(2) does nothing
	case flags&unix.RENAME_EXCHANGE != 0 && victim != nil:
		victim.setPlace(d.inode, name)
		victim.stale()
	case victim != nil:
		victim.unlinked()
	}
	i.setPlace(to.inode, newName)
	i.stale()
	d.stale()
	to.stale()
	return nil
}

// Tmpfile implements vfs.TmpfileMaker.
func (d *dir) Tmpfile(c vfs.Caller, a vfs.CreateAttr) (vfs.Inode, error) {
	h, err := d.open(byPath)
	if err != nil {
		return nil, err
	}
	defer d.fs.put(h)
	fd, err := d.fs.client.fds.retry(func() (int, error) {
		return openat(h.fd, ".", unix.O_RDWR|unix.O_TMPFILE, a.Mode&0o7777)
	})
	if err != nil {
		return nil, err
	}
	o, err := d.adopt(fd, -1, "", a)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	i := o.base()
	i.setPlace(nil, "")
	i.pinTo(d.fs.client.fds.add(i, forWrite, fd, false))
	return o, nil
}

// Open implements vfs.Inode.
func (d *dir) Open(c vfs.Caller, _ *vfs.Dentry, flags uint32) (vfs.FileOps, error) {
	return &dirFile{d: d}, nil
}

// Readlink implements vfs.Symlink.
func (l *symlink) Readlink(c vfs.Caller) (target string, err error) {
	err = l.at(func(fd int, name string) error {
		target, err = readlinkat(fd, name)
		if err == unix.ENOENT || err == unix.EINVAL {
			return unix.ESTALE
		}
		return err
	})
	return target, err
}

// Open implements vfs.Inode.
func (l *symlink) Open(c vfs.Caller, _ *vfs.Dentry, flags uint32) (vfs.FileOps, error) {
	return nil, unix.ELOOP
}

// Open implements vfs.Inode. Fifos and devices are opened by vfs's hooks; what
// reaches this has none. Opening a socket is ENXIO (open(2)).
func (s *special) Open(c vfs.Caller, _ *vfs.Dentry, flags uint32) (vfs.FileOps, error) {
	return nil, unix.ENXIO
}
