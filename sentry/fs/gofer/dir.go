package gofer

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/hostfs"
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
	var stx unix.Statx_t
	if err := d.lookup(c, name, &stx); err != nil {
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
	var stx unix.Statx_t
	err := d.lookup(c, name, &stx)
	switch {
	case err == unix.EMFILE || err == unix.ENFILE || err == unix.EIO:
		return false, err
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
	cl := d.fs.client
	var stx unix.Statx_t
	attr := newAttr(a)
	defer cl.notifier.changing(place{d.inode, name}).done()
	fd, err := cl.fds.retry(func() (int, error) { return cl.backend.Create(h.fd, name, &attr, &stx) })
	if err != nil {
		return nil, nil, err
	}
	d.stale()
	o := d.fs.inode(d.inode, name, &stx)
	return o, cl.fds.add(o.base(), forWrite, fd, false), nil
}

// newAttr is a for the backend.
func newAttr(a vfs.CreateAttr) hostfs.NewAttr {
	return hostfs.NewAttr{Mode: a.Mode, UID: a.UID, GID: a.GID}
}

// make makes a name other than a regular file's.
func (d *dir) make(name string, a *hostfs.NewAttr) (vfs.Inode, error) {
	h, err := d.open(byPath)
	if err != nil {
		return nil, err
	}
	defer d.fs.put(h)
	cl := d.fs.client
	defer cl.notifier.changing(place{d.inode, name}).done()
	var stx unix.Statx_t
	err = cl.backend.Make(h.fd, name, a, &stx)
	if kind := a.Mode & unix.S_IFMT; err == unix.EPERM && cl.remote != nil && (kind == unix.S_IFCHR || kind == unix.S_IFBLK) {
		// The host does not allow device nodes in a user namespace
		// (mknod(2), EPERM), so the gofer makes them.
		err = cl.remote.MakeIn(hostfs.Data(h.fd), name, a, &stx)
	}
	if err != nil {
		return nil, err
	}
	d.stale()
	return d.fs.inode(d.inode, name, &stx), nil
}

// Mkdir implements vfs.Dir.
func (d *dir) Mkdir(c vfs.Caller, name string, a vfs.CreateAttr) (vfs.Inode, error) {
	attr := newAttr(a)
	attr.Mode = a.Mode&0o7777 | unix.S_IFDIR
	return d.make(name, &attr)
}

// Mknod implements vfs.Dir.
func (d *dir) Mknod(c vfs.Caller, name string, a vfs.CreateAttr, rdev uint64) (vfs.Inode, error) {
	attr := newAttr(a)
	attr.Rdev = rdev
	return d.make(name, &attr)
}

// Symlink implements vfs.Dir.
func (d *dir) Symlink(c vfs.Caller, name, target string, a vfs.CreateAttr) (vfs.Inode, error) {
	attr := newAttr(a)
	attr.Mode, attr.Link = 0o777|unix.S_IFLNK, target
	return d.make(name, &attr)
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
	defer d.fs.client.notifier.changing(place{d.inode, name}, place{i: i}).done()
	if err := d.fs.client.backend.Link(t.target(), h.fd, name); err != nil {
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
	defer d.fs.client.notifier.changing(place{d.inode, name}, place{i: i}).done()
	if err := d.fs.client.backend.Unlink(h.fd, name, flags); err != nil {
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
	places := []place{{d.inode, name}, {to.inode, newName}, {i: child.(object).base()}}
	if victim != nil {
		places = append(places, place{i: victim})
	}
	defer d.fs.client.notifier.changing(places...).done()
	if err := d.fs.client.backend.Rename(from.fd, name, dest.fd, newName, flags); err != nil {
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
	cl := d.fs.client
	var stx unix.Statx_t
	attr := newAttr(a)
	fd, err := cl.fds.retry(func() (int, error) { return cl.backend.Tmpfile(h.fd, &attr, &stx) })
	if err != nil {
		return nil, err
	}
	o := d.fs.inode(d.inode, "", &stx)
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
	err = l.at(func(t hostfs.Target, name string) error {
		target, err = l.fs.client.backend.Readlink(t, name)
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
