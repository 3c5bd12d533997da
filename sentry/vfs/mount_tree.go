package vfs

import (
	"golang.org/x/sys/unix"
)

// namespaceCaller is a Caller that is in a mount namespace. Others, which are
// the Sentry itself, may change all of them.
type namespaceCaller interface{ MountNamespace() *Namespace }

// ours tells whether m is in the caller's mount namespace, Linux's check_mnt:
// only such mounts can be changed, or mounted on. mounts is held.
func (m *Mount) ours(c Caller) bool {
	if m.ns == nil || m.ns.anon {
		return false
	}
	t, ok := c.(namespaceCaller)
	return !ok || t.MountNamespace() == m.ns
}

// loose tells whether m belongs to a detached tree. mounts is held.
func (m *Mount) loose() bool { return m.ns != nil && m.ns.anon }

// treeOps are the operations of an O_PATH file that a detached tree lives by.
// What has not found a place by its last close goes.
type treeOps struct {
	pathOps `save:"none: nothing to save"`
	ns      *Namespace `save:"rec"`
}

// Release implements FileOps.
func (o *treeOps) Release() { o.ns.DecRef() }

// NewMountFile returns a file that is the only hold on the detached mount m,
// which it takes over, and all below it (fsmount(2), open_tree(2)).
func NewMountFile(m *Mount) *File {
	ns := &Namespace{id: namespaceID.Add(1), root: m, anon: true}
	ns.refs.Init()
	mounts.Lock()
	m.setNamespaceLocked(ns)
	mounts.Unlock()
	p := m.Root()
	p.IncRef()
	return NewFile(p, &treeOps{ns: ns}, unix.O_PATH)
}

// Again returns another mount of the whole file system of m, detached.
func (m *Mount) Again(flags MountFlags) *Mount {
	m.sb.refs.Inc()
	return newMount(m.sb, m.sb.root, flags)
}

// NewSuper returns a detached mount of the new file system fs, which it takes
// over, with flags of the file system as a whole: what fsconfig(2) makes.
func NewSuper(fs Filesystem, superFlags uint32) *Mount {
	m := NewMount(fs, 0)
	if sharedMount(fs) == nil {
		m.sb.setFlags(superFlags, ^uint32(0))
	}
	return m
}

// MoveMount moves the mount whose root src is, attached or detached, to dst;
// with beneath under the one whose root dst is (move_mount(2)).
func MoveMount(c Caller, src, dst Path, beneath bool) error {
	mounts.Lock()
	point, err := moveLocked(c, src, dst, beneath)
	mounts.Unlock()
	for _, d := range point {
		d.DecRef()
	}
	return err
}

// moveLocked has the checks of Linux's do_move_mount in their order. It
// returns dentries to drop.
func moveLocked(c Caller, src, dst Path, beneath bool) ([]*Dentry, error) {
	m := src.Mount
	attached := m.parent != nil
	switch {
	case src.Dentry != m.root:
		return nil, unix.EINVAL
	case attached && !m.ours(c), !attached && !m.loose(), !dst.Mount.ours(c):
		return nil, unix.EINVAL
	case m.root.IsDir() != dst.Dentry.IsDir():
		return nil, unix.EINVAL
	case attached && m.parent.prop.peer != 0:
		return nil, unix.EINVAL
	case dst.Mount.prop.peer != 0 && m.anyUnbindableLocked():
		return nil, unix.EINVAL
	}
	for up := dst.Mount; up != nil; up = up.parent {
		if up == m {
			return nil, unix.ELOOP
		}
	}
	if dst.Dentry.Unlinked() {
		return nil, unix.ENOENT
	}
	if beneath {
		if p := dst.Mount; dst.Dentry != p.root || p.parent == nil || p.parent.prop.peer != 0 {
			return nil, unix.EINVAL
		}
	}
	from, loose := m.parent, m.ns
	var point []*Dentry
	if attached {
		point = append(point, m.detachLocked())
	} else {
		loose.root = nil
	}
	if beneath {
		return append(point, m.slipUnderLocked(dst.Mount)), nil
	}
	err := attachTreeLocked(c, m, dst)
	if err != nil && attached {
		m.attachLocked(Path{from, point[0]})
	} else if err != nil {
		loose.root = m
	}
	return point, err
}

// slipUnderLocked puts m where top is and top on m. It returns a dentry to
// drop.
func (m *Mount) slipUnderLocked(top *Mount) *Dentry {
	place := Path{top.parent, top.mountpoint}
	point := top.detachLocked()
	m.attachLocked(place)
	top.attachLocked(m.Root())
	return point
}

func (m *Mount) anyUnbindableLocked() bool {
	found := false
	m.eachLocked(func(o *Mount) { found = found || o.prop.unbindable })
	return found
}

// ShareGroup makes the private mount at to a peer of the one at from, and a
// slave of the same master (MOVE_MOUNT_SET_GROUP).
func ShareGroup(c Caller, from, to Path) error {
	mounts.Lock()
	defer mounts.Unlock()
	f, t := from.Mount, to.Mount
	switch {
	case from.Dentry != f.root || to.Dentry != t.root:
		return unix.EINVAL
	case !f.ours(c) && !f.loose() || !t.ours(c) && !t.loose():
		return unix.EINVAL
	case t.prop.peer != 0 || t.prop.master != 0:
		return unix.EINVAL
	case f.prop.peer == 0 && f.prop.master == 0:
		return unix.EINVAL
	case f.sb != t.sb || !f.shows(t.root):
		return unix.EINVAL
	}
	t.setPropLocked(propagation{peer: f.prop.peer, master: f.prop.master})
	return nil
}

// MountAttr is what mount_setattr(2) changes.
type MountAttr struct {
	Set, Clear  MountFlags
	Propagation uint32 // MS_SHARED, MS_PRIVATE, MS_SLAVE, MS_UNBINDABLE or 0
}

// SetMountAttr changes the mount whose root is at p, with recursive also all
// below it: all of them or none.
func (p Path) SetMountAttr(c Caller, a MountAttr, recursive bool) error {
	mounts.Lock()
	defer mounts.Unlock()
	m := p.Mount
	if p.Dentry != m.root || !m.ours(c) && !m.loose() {
		return unix.EINVAL
	}
	list := []*Mount{m}
	if recursive {
		list = list[:0]
		m.eachLocked(func(o *Mount) { list = append(list, o) })
	}
	for _, o := range list {
		if a.Set&unix.MS_RDONLY != 0 && !o.has(unix.MS_RDONLY) && o.writers.Load() > 0 {
			return unix.EBUSY
		}
	}
	for _, o := range list {
		o.SetFlags(o.Flags()&^a.Clear | a.Set)
		if a.Propagation != 0 {
			o.changeLocked(a.Propagation)
		}
	}
	return nil
}
