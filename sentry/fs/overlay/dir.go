package overlay

import (
	"golang.org/x/sys/unix"

	"runsc/sentry/vfs"
)

// dirNode is a directory: that of the upper layer, if there is one, merged
// with those below.
type dirNode struct{ node }

// merged tells whether more than one directory shows.
func (d *dirNode) merged() bool {
	n := len(d.lower)
	if d.upper() != nil {
		n++
	}
	return n > 1
}

// Stat implements vfs.Inode.
func (d *dirNode) Stat(c vfs.Caller, mask uint32) (vfs.Stat, error) {
	st, err := d.stat(c, mask)
	switch {
	case err != nil:
	case d.orphan.Load():
		st.Nlink = 0
	case d.merged():
		// The true count is not known; 1 tells find(1) and others so
		// (ovl_getattr).
		st.Nlink = 1
	}
	return st, err
}

// Lookup implements vfs.Dir.
func (d *dirNode) Lookup(c vfs.Caller, name string) (vfs.Inode, error) {
	sys := d.fs.as(c)
	var up vfs.Inode
	var upMode uint32
	if u, ok := d.upper().(vfs.Dir); ok {
		i, err := u.Lookup(sys, name)
		switch {
		case err == nil:
			st, err := i.Stat(sys, 0)
			if err != nil {
				i.DecRef()
				return nil, err
			}
			if isWhiteout(&st) {
				i.DecRef()
				return nil, unix.ENOENT
			}
			if st.Mode&unix.S_IFMT != unix.S_IFDIR || d.fs.isOpaque(sys, i) {
				return d.found(sys, name, i, nil, st.Mode), nil
			}
			up, upMode = i, st.Mode
		case err != unix.ENOENT:
			return nil, err
		}
	}
	lower, mode, err := d.lookupLower(sys, name, up != nil)
	if err != nil {
		if up != nil {
			up.DecRef()
		}
		return nil, err
	}
	if up == nil && len(lower) == 0 {
		return nil, unix.ENOENT
	}
	if up != nil {
		mode = upMode
	}
	return d.found(sys, name, up, lower, mode), nil
}

func isWhiteout(st *vfs.Stat) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0
}

// lookupLower returns what shows of name below the upper layer: one inode, or
// the directories that merge. dirsOnly leaves out what is no directory,
// because one of the upper layer covers it.
func (d *dirNode) lookupLower(c vfs.Caller, name string, dirsOnly bool) (found []vfs.Inode, mode uint32, err error) {
	for _, l := range d.lower {
		i, err := l.(vfs.Dir).Lookup(c, name)
		if err == unix.ENOENT {
			continue
		}
		var st vfs.Stat
		if err == nil {
			if st, err = i.Stat(c, unix.STATX_SIZE); err != nil {
				i.DecRef()
			}
		}
		if err != nil {
			release(found)
			return nil, 0, err
		}
		isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
		if isWhiteout(&st) || len(d.lower) > 1 && d.fs.fileWhiteout(c, l, i, &st) || !isDir && (dirsOnly || len(found) > 0) {
			i.DecRef()
			break
		}
		if len(found) == 0 {
			mode = st.Mode
		}
		found = append(found, i)
		if !isDir || len(d.lower) > 1 && d.fs.isOpaque(c, i) {
			break
		}
	}
	return found, mode, nil
}

func release(list []vfs.Inode) {
	for _, i := range list {
		i.DecRef()
	}
}

// found makes the node, taking over the inodes.
func (d *dirNode) found(c vfs.Caller, name string, up vfs.Inode, lower []vfs.Inode, mode uint32) vfs.Inode {
	if mode&unix.S_IFMT != unix.S_IFDIR {
		return newNode(c, d, name, up, lower, mode)
	}
	n := &dirNode{}
	n.init(d.fs, d, name)
	n.lower = lower
	if up != nil {
		n.origin.Store(n.fs.readOrigin(c, up))
		n.setUpper(up)
	}
	return n
}

// hasLower tells whether name shows in the layers below, so that removing it
// above needs a whiteout.
func (d *dirNode) hasLower(c vfs.Caller, name string) (bool, error) {
	found, _, err := d.lookupLower(c, name, false)
	if err != nil {
		return false, err
	}
	release(found)
	return len(found) > 0, nil
}

// prepare copies the directory up and returns it.
func (d *dirNode) prepare(c vfs.Caller) (vfs.Dir, error) {
	if err := d.copyUp(c, false); err != nil {
		return nil, err
	}
	u, ok := d.upper().(vfs.Dir)
	if !ok {
		return nil, unix.EIO
	}
	return u, nil
}

// clearWhiteout removes a whiteout that is in the way of a new entry and tells
// whether there was one.
func (d *dirNode) clearWhiteout(c vfs.Caller, up vfs.Dir, name string) (bool, error) {
	i, err := up.Lookup(c, name)
	if err == unix.ENOENT {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer i.DecRef()
	st, err := i.Stat(c, 0)
	if err != nil {
		return false, err
	}
	if !isWhiteout(&st) {
		return false, unix.EEXIST
	}
	return true, up.Unlink(c, name, i)
}

// whiteout hides what is below name.
func (d *dirNode) whiteout(c vfs.Caller, up vfs.Dir, name string) error {
	i, err := up.Mknod(c, name, vfs.CreateAttr{Mode: unix.S_IFCHR}, 0)
	if err != nil {
		return err
	}
	i.DecRef()
	return nil
}

// make adds an entry through fn, over a whiteout if there is one.
func (d *dirNode) make(c vfs.Caller, name string, fn func(sys vfs.Caller, up vfs.Dir) (vfs.Inode, error)) (vfs.Inode, bool, error) {
	sys := d.fs.as(c)
	up, err := d.prepare(c)
	if err != nil {
		return nil, false, err
	}
	covered, err := d.clearWhiteout(sys, up, name)
	if err != nil {
		return nil, false, err
	}
	i, err := fn(sys, up)
	if err != nil && covered {
		_ = d.whiteout(sys, up, name)
	}
	return i, covered, err
}

// Create implements vfs.Dir.
func (d *dirNode) Create(c vfs.Caller, name string, a vfs.CreateAttr) (vfs.Inode, error) {
	i, _, err := d.make(c, name, func(sys vfs.Caller, up vfs.Dir) (vfs.Inode, error) {
		return up.Create(sys, name, a)
	})
	if err != nil {
		return nil, err
	}
	return newNode(c, d, name, i, nil, a.Mode), nil
}

// Mkdir implements vfs.Dir.
func (d *dirNode) Mkdir(c vfs.Caller, name string, a vfs.CreateAttr) (vfs.Inode, error) {
	i, covered, err := d.make(c, name, func(sys vfs.Caller, up vfs.Dir) (vfs.Inode, error) {
		return up.Mkdir(sys, name, a)
	})
	if err != nil {
		return nil, err
	}
	if covered {
		if err := d.fs.setPrivateXattr(c, i, xattrOpaque, []byte("y")); err != nil {
			sys, up := d.fs.as(c), d.upper().(vfs.Dir)
			_ = up.Rmdir(sys, name, i)
			i.DecRef()
			_ = d.whiteout(sys, up, name)
			return nil, err
		}
	}
	return d.found(c, name, i, nil, a.Mode), nil
}

// Mknod implements vfs.Dir. A node that would read as a whiteout is EPERM, as
// on Linux.
func (d *dirNode) Mknod(c vfs.Caller, name string, a vfs.CreateAttr, rdev uint64) (vfs.Inode, error) {
	if a.Mode&unix.S_IFMT == unix.S_IFCHR && rdev == 0 {
		return nil, unix.EPERM
	}
	i, _, err := d.make(c, name, func(sys vfs.Caller, up vfs.Dir) (vfs.Inode, error) {
		return up.Mknod(sys, name, a, rdev)
	})
	if err != nil {
		return nil, err
	}
	return newNode(c, d, name, i, nil, a.Mode), nil
}

// Symlink implements vfs.Dir.
func (d *dirNode) Symlink(c vfs.Caller, name, target string, a vfs.CreateAttr) (vfs.Inode, error) {
	i, _, err := d.make(c, name, func(sys vfs.Caller, up vfs.Dir) (vfs.Inode, error) {
		return up.Symlink(sys, name, target, a)
	})
	if err != nil {
		return nil, err
	}
	return newNode(c, d, name, i, nil, a.Mode), nil
}

// Tmpfile implements vfs.TmpfileMaker.
func (d *dirNode) Tmpfile(c vfs.Caller, a vfs.CreateAttr) (vfs.Inode, error) {
	up, err := d.prepare(c)
	if err != nil {
		return nil, err
	}
	maker, ok := up.(vfs.TmpfileMaker)
	if !ok {
		return nil, unix.EOPNOTSUPP
	}
	i, err := maker.Tmpfile(d.fs.as(c), a)
	if err != nil {
		return nil, err
	}
	return newNode(c, d, "", i, nil, a.Mode), nil
}

// Link implements vfs.Dir.
func (d *dirNode) Link(c vfs.Caller, name string, target vfs.Inode) error {
	t, ok := target.(overNode)
	if !ok || t.base().fs != d.fs {
		return unix.EXDEV
	}
	if err := t.base().copyUp(c, false); err != nil {
		return err
	}
	_, _, err := d.make(c, name, func(sys vfs.Caller, up vfs.Dir) (vfs.Inode, error) {
		return nil, up.Link(sys, name, t.base().upper())
	})
	return err
}

// Unlink implements vfs.Dir.
func (d *dirNode) Unlink(c vfs.Caller, name string, child vfs.Inode) error {
	n, ok := child.(overNode)
	if !ok {
		return unix.EIO
	}
	return d.remove(c, name, n.base(), false)
}

// Rmdir implements vfs.Dir.
func (d *dirNode) Rmdir(c vfs.Caller, name string, child vfs.Inode) error {
	sub, ok := child.(*dirNode)
	if !ok {
		return unix.ENOTDIR
	}
	if err := sub.checkEmpty(c); err != nil {
		return err
	}
	return d.remove(c, name, &sub.node, true)
}

// remove takes n's name away, in the upper layer and by a whiteout over what
// is below.
func (d *dirNode) remove(c vfs.Caller, name string, n *node, isDir bool) error {
	sys := d.fs.as(c)
	up, err := d.prepare(c)
	if err != nil {
		return err
	}
	below, err := d.hasLower(sys, name)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	// n may be one of several names of an upper file, so it is the name that
	// decides what to remove above.
	i, err := up.Lookup(sys, name)
	switch {
	case err == nil:
		err = removeUpper(sys, up, name, i, isDir)
		i.DecRef()
		if err != nil {
			return err
		}
	case err != unix.ENOENT:
		return err
	}
	if below {
		if err := d.whiteout(sys, up, name); err != nil {
			return err
		}
	}
	n.orphan.Store(true)
	return nil
}

// removeUpper removes i from an upper directory, with the whiteouts in it if
// it is a directory.
func removeUpper(c vfs.Caller, up vfs.Dir, name string, i vfs.Inode, isDir bool) error {
	if !isDir {
		return up.Unlink(c, name, i)
	}
	if sub, ok := i.(vfs.Dir); ok {
		if err := clearWhiteouts(c, sub); err != nil {
			return err
		}
	}
	return up.Rmdir(c, name, i)
}

// Rename implements vfs.Dir.
func (d *dirNode) Rename(c vfs.Caller, name string, child vfs.Inode, newDir vfs.Dir, newName string, replaced vfs.Inode, flags uint32) error {
	to, ok := newDir.(*dirNode)
	if !ok || to.fs != d.fs {
		return unix.EXDEV
	}
	r := &renaming{fs: d.fs, c: c, from: d, to: to, name: name, newName: newName, exchange: flags&unix.RENAME_EXCHANGE != 0}
	if flags&unix.RENAME_WHITEOUT != 0 {
		return unix.EINVAL // ovl_rename: no whiteouts of whiteouts
	}
	r.src = child.(overNode)
	if replaced != nil {
		r.dst = replaced.(overNode)
	}
	return r.run()
}

var (
	_ vfs.Dir          = (*dirNode)(nil)
	_ vfs.TmpfileMaker = (*dirNode)(nil)
	_ vfs.Xattrer      = (*fileNode)(nil)
)
