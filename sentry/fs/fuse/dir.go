package fuse

import (
	"time"

	"golang.org/x/sys/unix"

	"runsc/sentry/vfs"
)

// Lookup implements vfs.Dir.
func (d dirInode) Lookup(c vfs.Caller, name string) (vfs.Inode, error) {
	if i, restoring := d.restored(name); restoring {
		if i == nil {
			return nil, unix.ENOENT
		}
		return i.outer(), nil
	}
	if err := d.fs.allowed(c); err != nil {
		return nil, err
	}
	i, err := d.made(c, opLookup, name, body{}.str(name))
	if err != nil {
		return nil, err
	}
	return i.outer(), nil
}

// restored finds a name while an image is being restored and the server does
// not run yet.
func (i *inode) restored(name string) (*inode, bool) {
	fs := i.fs
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if !fs.restoring {
		return nil, false
	}
	for _, x := range fs.inodes {
		if x.parent == i.node && x.name == name && x != fs.root {
			x.refs++
			return x, true
		}
	}
	return nil, true
}

// made sends a request that is answered by an entry, and returns its inode
// with a new reference.
func (i *inode) made(c vfs.Caller, op uint32, name string, args body) (*inode, error) {
	b, err := i.fs.conn.call(c, op, i.node, args, entrySize, entrySize)
	if err != nil {
		return nil, err
	}
	e := decodeEntry(b)
	if e.node == 0 && op == opLookup {
		return nil, unix.ENOENT
	}
	return i.fs.get(&e, i, name)
}

// Revalidate implements vfs.Revalidator. Names that do not exist are always
// asked for again.
func (d dirInode) Revalidate(c vfs.Caller, name string, child vfs.Inode) (bool, error) {
	ch := inner(child)
	if ch == nil {
		return d.fs.isRestoring(), nil
	}
	ch.mu.Lock()
	valid := time.Now().Before(ch.entryValid)
	ch.mu.Unlock()
	if valid || d.fs.isRestoring() {
		return true, nil
	}
	i, err := d.made(c, opLookup, name, body{}.str(name))
	switch {
	case err == unix.ENOENT:
		return false, nil
	case err != nil:
		return false, err
	}
	i.DecRef()
	return i == ch, nil
}

// created is made for what creates.
func (d dirInode) created(c vfs.Caller, op uint32, name string, args body, typ uint32) (vfs.Inode, error) {
	if err := d.fs.allowed(c); err != nil {
		return nil, err
	}
	i, err := d.made(c, op, name, args)
	d.stale()
	if err != nil {
		return nil, err
	}
	if i.typ != typ {
		i.DecRef()
		return nil, unix.EIO
	}
	return i.outer(), nil
}

// Create implements vfs.Dir.
func (d dirInode) Create(c vfs.Caller, name string, a vfs.CreateAttr) (vfs.Inode, error) {
	return d.Mknod(c, name, a, 0)
}

// Mkdir implements vfs.Dir.
func (d dirInode) Mkdir(c vfs.Caller, name string, a vfs.CreateAttr) (vfs.Inode, error) {
	return d.created(c, opMkdir, name, body{}.u32(a.Mode&0o7777, 0).str(name), unix.S_IFDIR)
}

// Mknod implements vfs.Dir.
func (d dirInode) Mknod(c vfs.Caller, name string, a vfs.CreateAttr, rdev uint64) (vfs.Inode, error) {
	return d.created(c, opMknod, name, body{}.u32(a.Mode, encodeDev(rdev), 0, 0).str(name), a.Mode&unix.S_IFMT)
}

// Symlink implements vfs.Dir.
func (d dirInode) Symlink(c vfs.Caller, name, target string, _ vfs.CreateAttr) (vfs.Inode, error) {
	return d.created(c, opSymlink, name, body{}.str(name).str(target), unix.S_IFLNK)
}

// Link implements vfs.Dir.
func (d dirInode) Link(c vfs.Caller, name string, target vfs.Inode) error {
	t := inner(target)
	if t == nil || t.fs != d.fs {
		return unix.EXDEV
	}
	i, err := d.made(c, opLink, name, body{}.u64(t.node).str(name))
	d.stale()
	t.stale()
	if err != nil {
		return err
	}
	i.DecRef()
	if i != t {
		return unix.EIO
	}
	return nil
}

// CreateOpen implements vfs.CreateOpener by CREATE, or MKNOD and OPEN if the
// server does not have it.
func (d dirInode) CreateOpen(c vfs.Caller, name string, a vfs.CreateAttr, flags uint32) (vfs.Inode, vfs.FileOps, error) {
	if err := d.fs.allowed(c); err != nil {
		return nil, nil, err
	}
	args := body{}.u32(flags&^unix.O_NOCTTY|unix.O_CREAT, a.Mode, 0, 0).str(name)
	b, err := d.fs.conn.call(c, opCreate, d.node, args, entrySize+16, entrySize+16)
	d.stale()
	if err == unix.ENOSYS {
		v, err := d.Create(c, name, a)
		if err != nil {
			return nil, nil, err
		}
		ops, err := v.Open(c, nil, flags&^(unix.O_CREAT|unix.O_EXCL))
		if err != nil {
			v.DecRef()
			return nil, nil, err
		}
		return v, ops, nil
	}
	if err != nil {
		return nil, nil, err
	}
	e := decodeEntry(b)
	fh, opened := u64(b, entrySize), u32(b, entrySize+8)
	i, err := d.fs.get(&e, d.inode, name)
	if err == nil && i.typ != unix.S_IFREG {
		i.DecRef()
		err = unix.EIO
	}
	if err != nil {
		d.fs.conn.post(opRelease, e.node, releaseArgs(fh, flags), 0)
		return nil, nil, err
	}
	return i.outer(), newFileOps(i, fh, flags, opened), nil
}

// gone notes that a name does not lead to i any more.
func (i *inode) gone(parent *inode, name string) {
	fs := i.fs
	fs.mu.Lock()
	if i.parent == parent.node && i.name == name {
		i.parent, i.name = 0, ""
	}
	fs.mu.Unlock()
	i.mu.Lock()
	i.attrValid, i.entryValid = time.Time{}, time.Time{}
	i.mu.Unlock()
}

// Unlink implements vfs.Dir.
func (d dirInode) Unlink(c vfs.Caller, name string, child vfs.Inode) error {
	return d.remove(c, opUnlink, name, child)
}

// Rmdir implements vfs.Dir.
func (d dirInode) Rmdir(c vfs.Caller, name string, child vfs.Inode) error {
	return d.remove(c, opRmdir, name, child)
}

func (d dirInode) remove(c vfs.Caller, op uint32, name string, child vfs.Inode) error {
	_, err := d.fs.conn.call(c, op, d.node, body{}.str(name), 0, 0)
	d.stale()
	if err != nil {
		return err
	}
	if ch := inner(child); ch != nil {
		ch.gone(d.inode, name)
	}
	return nil
}

// Rename implements vfs.Dir.
func (d dirInode) Rename(c vfs.Caller, name string, child vfs.Inode, newDir vfs.Dir, newName string, replaced vfs.Inode, flags uint32) error {
	to, ok := newDir.(dirInode)
	if !ok || to.fs != d.fs {
		return unix.EXDEV
	}
	var err error
	if flags == 0 {
		_, err = d.fs.conn.call(c, opRename, d.node, body{}.u64(to.node).str(name).str(newName), 0, 0)
	} else {
		_, err = d.fs.conn.call(c, opRename2, d.node, body{}.u64(to.node).u32(flags, 0).str(name).str(newName), 0, 0)
		if err == unix.ENOSYS {
			err = unix.EINVAL
		}
	}
	d.stale()
	to.stale()
	if err != nil {
		return err
	}
	if r := inner(replaced); r != nil {
		r.gone(to.inode, newName)
		if flags&unix.RENAME_EXCHANGE != 0 {
			r.moved(d.inode, name)
		}
	}
	if ch := inner(child); ch != nil {
		ch.moved(to.inode, newName)
	}
	return nil
}

func (i *inode) moved(parent *inode, name string) {
	i.fs.mu.Lock()
	i.parent, i.name = parent.node, name
	i.fs.mu.Unlock()
	i.stale()
}

var (
	_ vfs.Dir          = dirInode{}
	_ vfs.CreateOpener = dirInode{}
	_ vfs.Revalidator  = dirInode{}
	_ vfs.Permitter    = fileInode{}
	_ vfs.Xattrer      = fileInode{}
)
