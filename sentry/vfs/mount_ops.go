package vfs

import (
	"golang.org/x/sys/unix"
)

// MountAt mounts fs, which it takes over also when it fails, at a path
// (mount(2)). flags are MS_* flags of the mount; MS_RDONLY and the like.
func MountAt(c Caller, at At, fs Filesystem, flags MountFlags) error {
	m := NewMount(fs, flags)
	if sharedMount(fs) == nil {
		m.sb.setFlags(uint32(flags), ^uint32(0))
	}
	return AttachAt(c, at, m)
}

// AttachAt puts a detached mount (NewMount, CloneTree) at a path, taking it
// over also when it fails (move_mount(2)).
func AttachAt(c Caller, at At, m *Mount) error {
	p, err := LookupAt(c, at)
	if err != nil {
		m.discard()
		return err
	}
	mounts.Lock()
	err = attachTreeLocked(c, m, p)
	mounts.Unlock()
	p.DecRef()
	if err != nil {
		m.discard()
	}
	return err
}

// attachTreeLocked is Linux's graft_tree: the place must be in a namespace, and
// directories go on directories, files on files.
func attachTreeLocked(c Caller, m *Mount, p Path) error {
	p = topLocked(p) // somebody may have mounted there since p was looked up
	if !p.Mount.ours(c) {
		return unix.EINVAL
	}
	if m.root.IsDir() != p.Dentry.IsDir() {
		return unix.ENOTDIR
	}
	if p.Dentry.Unlinked() {
		return unix.ENOENT
	}
	size := 0
	m.eachLocked(func(*Mount) { size++ })
	if err := p.Mount.ns.roomLocked(size); err != nil {
		return err
	}
	if m.prop.unbindable && p.Mount.prop.peer != 0 {
		return unix.EINVAL
	}
	if p.Mount.prop.peer != 0 {
		return m.attachSharedLocked(p)
	}
	m.attachLocked(p)
	return nil
}

// BindAt makes what source names visible at target too (MS_BIND, with
// MS_REC when recursive is set).
func BindAt(c Caller, source, target At, recursive bool) error {
	m, err := CloneTree(c, source, recursive)
	if err != nil {
		return err
	}
	return AttachAt(c, target, m)
}

// CloneTree returns a detached copy of the mounts at source (open_tree(2) with
// OPEN_TREE_CLONE).
func CloneTree(c Caller, source At, recursive bool) (*Mount, error) {
	src, err := LookupAt(c, source)
	if err != nil {
		return nil, err
	}
	defer src.DecRef()
	mounts.Lock()
	defer mounts.Unlock()
	if src.Mount.prop.unbindable || !src.Mount.ours(c) && !src.Mount.loose() {
		return nil, unix.EINVAL
	}
	if recursive {
		size := 0
		src.Mount.eachLocked(func(*Mount) { size++ })
		if err := src.Mount.ns.roomLocked(size); err != nil {
			return nil, err
		}
	}
	return copyTreeLocked(src.Mount, src.Dentry, recursive, true, nil), nil
}

// discard drops a detached mount with all below it.
func (m *Mount) discard() {
	mounts.Lock()
	x := detachTreeLocked(m)
	mounts.Unlock()
	x.drop()
}

// MoveMountAt moves the mount at source to target (MS_MOVE).
func MoveMountAt(c Caller, source, target At) error {
	src, err := LookupAt(c, source)
	if err != nil {
		return err
	}
	defer src.DecRef()
	dst, err := LookupAt(c, target)
	if err != nil {
		return err
	}
	defer dst.DecRef()
	return MoveMount(c, src, dst, false)
}

// UmountAt implements umount2(2); flags are MNT_DETACH, MNT_FORCE, which
// changes nothing, and MNT_EXPIRE. UMOUNT_NOFOLLOW goes through at.Flags.
func UmountAt(c Caller, at At, flags int) error {
	expire := flags&unix.MNT_EXPIRE != 0
	if expire && flags&(unix.MNT_DETACH|unix.MNT_FORCE) != 0 {
		return unix.EINVAL
	}
	p, err := LookupAt(c, at)
	if err != nil {
		return err
	}
	p = cross(p) // also for ".", as LOOKUP_MOUNTPOINT has it
	mounts.Lock()
	m := p.Mount
	if p.Dentry != m.root || !m.ours(c) || m.parent == nil {
		mounts.Unlock()
		p.DecRef()
		return unix.EINVAL
	}
	// The tree's reference and the walk's are the only ones of an idle mount.
	if flags&unix.MNT_DETACH == 0 && (m.busyLocked(2) || m.copyBusyLocked()) {
		mounts.Unlock()
		p.DecRef()
		return unix.EBUSY
	}
	if expire && !m.expired.Load() {
		mounts.Unlock()
		p.DecRef()
		m.expired.Store(true) // after DecRef, which is a use
		return unix.EAGAIN
	}
	x := umountTreeLocked(m)
	mounts.Unlock()
	for _, m := range x.mounts {
		dropWatches(m)
	}
	p.DecRef()
	x.drop()
	return nil
}

// busyLocked tells whether more than refs references to m exist, or mounts
// below it.
func (m *Mount) busyLocked(refs int64) bool {
	return len(m.children) > 0 || m.refs.Load() > refs+int64(m.watched.Load())
}

func (m *Mount) copyBusyLocked() bool {
	for _, o := range m.copiesLocked() {
		if o.busyLocked(1) {
			return true
		}
	}
	return false
}

// umountTreeLocked detaches m and all below it, and what propagation made of
// them elsewhere, unless something else is mounted on that.
func umountTreeLocked(m *Mount) (x detached) {
	copies := m.copiesLocked()
	x = detachTreeLocked(m)
	for i := len(copies) - 1; i >= 0; i-- {
		if o := copies[i]; o.parent != nil && len(o.children) == 0 {
			y := detachTreeLocked(o)
			x.mounts = append(x.mounts, y.mounts...)
			x.dentries = append(x.dentries, y.dentries...)
		}
	}
	return x
}

// atimeFlags are those of which a remount keeps what it does not name.
const atimeFlags = unix.MS_NOATIME | unix.MS_NODIRATIME | unix.MS_RELATIME | unix.MS_STRICTATIME

// RemountAt changes the flags of the mount at a path (MS_REMOUNT|MS_BIND), and
// with super set also those of the file system as a whole and its options
// (MS_REMOUNT). EBUSY if files are open for writing.
func RemountAt(c Caller, at At, flags MountFlags, super bool, options string) error {
	p, err := LookupAt(c, at)
	if err != nil {
		return err
	}
	defer p.DecRef()
	m := p.Mount
	mounts.RLock()
	ours := m.ours(c)
	mounts.RUnlock()
	if p.Dentry != m.root || !ours {
		return unix.EINVAL
	}
	if flags&atimeFlags == 0 {
		flags |= m.Flags() & atimeFlags
	}
	if !super && flags&unix.MS_RDONLY != 0 && m.writers.Load() > 0 {
		return unix.EBUSY
	}
	if super {
		const mask = unix.MS_RDONLY | unix.MS_SYNCHRONOUS | unix.MS_MANDLOCK | unix.MS_LAZYTIME // MS_RMT_MASK
		if err := m.Reconfigure(c, uint32(flags), mask, options); err != nil {
			return err
		}
	}
	m.SetFlags(flags)
	return nil
}

// Reconfigure changes flags of m's file system as a whole, those of mask to
// what set says, and its options.
func (m *Mount) Reconfigure(c Caller, set, mask uint32, options string) error {
	if set&mask&unix.MS_RDONLY != 0 && !m.sb.readOnly.Load() && m.sb.written() {
		return unix.EBUSY
	}
	if r, ok := m.sb.fs.(Remounter); ok {
		flags := set & mask
		if mask&unix.MS_RDONLY == 0 && m.sb.readOnly.Load() {
			flags |= unix.MS_RDONLY
		}
		if err := r.Remount(c, MountFlags(flags), options); err != nil {
			return err
		}
	}
	m.sb.setFlags(set, mask)
	return nil
}

// written tells whether files are open for writing through any mount of sb.
func (sb *Superblock) written() bool {
	mounts.RLock()
	defer mounts.RUnlock()
	for _, m := range mounts.at {
		if m.sb == sb && m.writers.Load() > 0 {
			return true
		}
	}
	return false
}

// SetPropagationAt changes the propagation type of the mount at a path, and
// with recursive of all below: flag is MS_SHARED, MS_PRIVATE, MS_SLAVE or
// MS_UNBINDABLE.
func SetPropagationAt(c Caller, at At, flag uint32, recursive bool) error {
	p, err := LookupAt(c, at)
	if err != nil {
		return err
	}
	defer p.DecRef()
	mounts.Lock()
	defer mounts.Unlock()
	if p.Dentry != p.Mount.root || !p.Mount.ours(c) {
		return unix.EINVAL
	}
	set := func(m *Mount) { m.changeLocked(flag) }
	if recursive {
		p.Mount.eachLocked(set)
	} else {
		set(p.Mount)
	}
	return nil
}

// PivotRootAt implements pivot_root(2): the mount at newRoot becomes the root
// of the namespace, the old root is moved to putOld. fn is called with the old
// and the new root, borrowed, so that the kernel can change every task's root
// and working directory (FSContext.Replace).
func PivotRootAt(c Caller, newRoot, putOld At, fn func(oldRoot, newRoot Path)) error {
	newRoot.Flags |= MustDir
	putOld.Flags |= MustDir
	to, err := LookupAt(c, newRoot)
	if err != nil {
		return err
	}
	defer to.DecRef()
	old, err := LookupAt(c, putOld)
	if err != nil {
		return err
	}
	defer old.DecRef()
	root := newRoot.FS.Root()
	defer root.DecRef()
	mounts.Lock()
	if err := pivotLocked(c, root, to, old); err != nil {
		mounts.Unlock()
		return err
	}
	point := pivotTreesLocked(root.Mount, to.Mount, old)
	mounts.Unlock()
	for _, d := range point {
		d.DecRef()
	}
	fn(root, to)
	return nil
}

// pivotLocked has the checks of Linux's pivot_root, in its order.
func pivotLocked(c Caller, root, to, old Path) error {
	ns := root.Mount.ns
	switch {
	case old.Mount.prop.peer != 0 || to.Mount.parent != nil && to.Mount.parent.prop.peer != 0 ||
		root.Mount.parent != nil && root.Mount.parent.prop.peer != 0:
		return unix.EINVAL
	case !root.Mount.ours(c) || to.Mount.ns != ns || old.Mount.ns != ns:
		return unix.EINVAL
	case to.Dentry.Unlinked():
		return unix.ENOENT
	case to.Mount == root.Mount || old.Mount == root.Mount:
		return unix.EBUSY
	case root.Dentry != root.Mount.root || to.Dentry != to.Mount.root || to.Mount.parent == nil:
		return unix.EINVAL
	case !below(old, to):
		return unix.EINVAL
	case !below(to, root):
		return unix.EINVAL
	}
	return nil
}

// below tells whether p lies at or below top. mounts is held.
func below(p, top Path) bool {
	d, m := p.Dentry, p.Mount
	for {
		if m == top.Mount {
			m.sb.nameMu.RLock()
			defer m.sb.nameMu.RUnlock()
			return top.Dentry.isAncestorOf(d)
		}
		if m.parent == nil {
			return false
		}
		d, m = m.mountpoint, m.parent
	}
}

// pivotTreesLocked rearranges the trees and returns dentries to drop.
func pivotTreesLocked(root, to *Mount, old Path) []*Dentry {
	ns := root.ns
	points := []*Dentry{to.detachLocked()}
	if root.parent == nil {
		// The root of the namespace itself.
		ns.root = to
		to.setNamespaceLocked(ns)
	} else {
		above := Path{root.parent, root.mountpoint}
		points = append(points, root.detachLocked())
		to.attachLocked(above)
	}
	root.attachLocked(old)
	return points
}

// Remounter is implemented by file systems with options that
// mount(MS_REMOUNT) can change.
type Remounter interface {
	Remount(c Caller, flags MountFlags, options string) error
}
