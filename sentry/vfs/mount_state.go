package vfs

import (
	"fmt"

	"runsc/sentry/image"
)

// SaveNamespace saves a mount namespace and its mounts once.
func SaveNamespace(e *SaveEnv, ns *Namespace) (image.ID, error) {
	id, fresh := e.ID(ns)
	if !fresh {
		return id, nil
	}
	var all []*Mount
	mounts.RLock()
	ns.root.eachLocked(func(m *Mount) {
		m.IncRef()
		all = append(all, m)
	})
	mounts.RUnlock()
	defer func() {
		for _, m := range all {
			m.DecRef()
		}
	}()
	rec := image.MountNamespace{ID: id, Number: ns.id, Detached: ns.anon}
	for _, m := range all {
		mid, err := saveMount(e, m)
		if err != nil {
			return 0, err
		}
		rec.Mounts = append(rec.Mounts, mid)
	}
	return id, e.Put(image.KindMountNamespace, &rec)
}

// saveMount saves a mount, and those it is on, once.
func saveMount(e *SaveEnv, m *Mount) (image.ID, error) {
	id, fresh := e.ID(m)
	if !fresh {
		return id, nil
	}
	mounts.RLock()
	if name, outside := e.Outside[m.ns]; outside {
		mounts.RUnlock()
		return 0, fmt.Errorf("it is a file of container %q, which is not in the image", name)
	}
	rec := image.Mount{ID: id, Number: m.id, Flags: uint32(m.Flags()),
		Peer: m.prop.peer, Master: m.prop.master, Unbindable: m.prop.unbindable}
	parent, point := m.parent, m.mountpoint
	if parent != nil {
		parent.IncRef()
		point.IncRef()
	}
	mounts.RUnlock()
	var err error
	if parent != nil {
		defer parent.DecRef()
		defer point.DecRef()
		if rec.Parent, err = saveMount(e, parent); err != nil {
			return 0, err
		}
		if rec.Point, err = saveDentry(e, point); err != nil {
			return 0, err
		}
	}
	if rec.Superblock, err = saveSuperblock(e, m.sb); err != nil {
		return 0, err
	}
	if rec.Root, err = saveDentry(e, m.root); err != nil {
		return 0, err
	}
	return id, e.Put(image.KindMount, &rec)
}

func saveSuperblock(e *SaveEnv, sb *Superblock) (image.ID, error) {
	id, fresh := e.ID(sb)
	if !fresh {
		return id, nil
	}
	rec := image.Superblock{ID: id, ReadOnly: sb.readOnly.Load(), Flags: sb.flags.Load()}
	var err error
	if rec.FS, err = e.Save(sb.fs); err != nil {
		return 0, fmt.Errorf("file system of type %s: %w", sb.fs.Type(), err)
	}
	return id, e.Put(image.KindSuperblock, &rec)
}

// restoreSuperblock borrows a file system in use.
func restoreSuperblock(e *RestoreEnv, id image.ID) (*Superblock, error) {
	return once(e, id, func() (*Superblock, error) {
		var rec image.Superblock
		if err := e.Get(image.KindSuperblock, id, &rec); err != nil {
			return nil, err
		}
		fs, err := e.OwnFilesystem(rec.FS)
		if err != nil {
			return nil, err
		}
		sb := newSuperblock(fs)
		sb.readOnly.Store(rec.ReadOnly)
		sb.flags.Store(rec.Flags & superFlagMask)
		e.Hold(id, sb.decRef)
		return sb, nil
	})
}

// RestoreNamespace returns a new reference to a mount namespace.
func RestoreNamespace(e *RestoreEnv, id image.ID) (*Namespace, error) {
	ns, err := once(e, id, func() (*Namespace, error) {
		var rec image.MountNamespace
		if err := e.Get(image.KindMountNamespace, id, &rec); err != nil {
			return nil, err
		}
		return restoreNamespace(e, &rec)
	})
	if err == nil {
		ns.IncRef()
	}
	return ns, err
}

func restoreNamespace(e *RestoreEnv, rec *image.MountNamespace) (*Namespace, error) {
	if n := len(rec.Mounts); n == 0 || n > maxMounts {
		return nil, fmt.Errorf("mount namespace %d of the image has %d mounts", rec.ID, n)
	}
	var all []*Mount
	for _, id := range rec.Mounts {
		m, err := restoreMount(e, id)
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	ns := &Namespace{id: keepNamespaceID(rec.Number), anon: rec.Detached}
	ns.refs.Init()
	mounts.Lock()
	defer mounts.Unlock()
	root := all[0]
	if root.parent != nil || root.ns != nil || len(mounts.at) > maxAllMounts {
		return nil, fmt.Errorf("mount namespace %d of the image has no root", rec.ID)
	}
	root.IncRef()
	ns.root = root
	root.setNamespaceLocked(ns)
	if ns.mounts != len(all) {
		root.setNamespaceLocked(nil)
		defer root.DecRef()
		return nil, fmt.Errorf("mount namespace %d of the image is not one tree", rec.ID)
	}
	e.Hold(rec.ID, ns.DecRef)
	return ns, nil
}

// keepNamespaceID returns n if no namespace can have it yet, else a new number.
func keepNamespaceID(n uint64) uint64 {
	last := namespaceID.Load()
	if n > last && n < 1<<32 && namespaceID.CompareAndSwap(last, n) {
		return n
	}
	return namespaceID.Add(1)
}

// restoreMount borrows a mount, attached where it was.
func restoreMount(e *RestoreEnv, id image.ID) (*Mount, error) {
	return once(e, id, func() (*Mount, error) {
		var rec image.Mount
		if err := e.Get(image.KindMount, id, &rec); err != nil {
			return nil, err
		}
		if e.Absent != nil {
			if name, absent := e.Absent(id); absent {
				return nil, fmt.Errorf("it leads to a file of container %q of the image, which was not restored before", name)
			}
		}
		var parent *Mount
		if rec.Parent != 0 {
			var err error
			if parent, err = restoreMount(e, rec.Parent); err != nil {
				return nil, err
			}
		}
		sb, err := restoreSuperblock(e, rec.Superblock)
		if err != nil {
			return nil, err
		}
		root, err := restoreDentry(e, sb, rec.Root)
		if err != nil {
			return nil, err
		}
		defer root.DecRef()
		var point *Dentry
		if parent != nil {
			if point, err = restoreDentry(e, parent.sb, rec.Point); err != nil {
				return nil, err
			}
			defer point.DecRef()
			if point.IsDir() != root.IsDir() {
				return nil, fmt.Errorf("mount %d of the image is on something of another type", id)
			}
		}
		return e.attach(&rec, sb, root, parent, point)
	})
}

// attach makes the mount. The environment has a reference of its own.
func (e *RestoreEnv) attach(rec *image.Mount, sb *Superblock, root *Dentry, parent *Mount, point *Dentry) (*Mount, error) {
	mounts.Lock()
	defer mounts.Unlock()
	if parent != nil && mounts.at[mountKey{parent, point}] != nil {
		return nil, fmt.Errorf("the image has two mounts at the place of mount %d", rec.ID)
	}
	sb.refs.Inc()
	m := newMount(sb, root, MountFlags(rec.Flags))
	m.keepNumber(rec.Number, e)
	m.setPropLocked(propagation{peer: e.group(rec.Peer), master: e.group(rec.Master), unbindable: rec.Unbindable})
	e.Hold(rec.ID, func() { e.dropMount(m) })
	if parent != nil {
		m.IncRef()
		m.attachLocked(Path{parent, point})
	}
	return m, nil
}

// dropMount drops the environment's reference. A mount that is in no
// namespace belongs to nobody else: it is taken out of the tree if the
// restore failed, and stays the root of an island if paths refer to it.
func (e *RestoreEnv) dropMount(m *Mount) {
	var x detached
	mounts.Lock()
	if !e.done && m.ns == nil && m.parent != nil {
		x = detachTreeLocked(m)
	}
	mounts.Unlock()
	x.drop()
	m.DecRef()
}

// keepNumber gives m its number in mountinfo if nobody else can have it.
func (m *Mount) keepNumber(n uint64, e *RestoreEnv) {
	if !e.started {
		e.started, e.firstID = true, m.id
	}
	if n < e.firstID || n >= 1<<32 {
		e.firstID = max(e.firstID, m.id+1)
		return
	}
	m.id = n
	for {
		last := mountID.Load()
		if last+20 >= n || mountID.CompareAndSwap(last, n-20) {
			return
		}
	}
}

// group translates the number of a peer group.
func (e *RestoreEnv) group(n uint32) uint32 {
	if n == 0 {
		return 0
	}
	g, ok := e.groups[n]
	if !ok {
		g = lastGroup.Add(1)
		if e.groups == nil {
			e.groups = map[uint32]uint32{}
		}
		e.groups[n] = g
	}
	return g
}

// StateKind implements StateSaver.
func (o *treeOps) StateKind() image.Kind { return image.KindMountFile }

// SaveState implements StateSaver.
func (o *treeOps) SaveState(e *SaveEnv, id image.ID) (err error) {
	rec := image.MountFile{ID: id}
	mounts.RLock()
	has := o.ns.root != nil
	mounts.RUnlock()
	if has {
		if rec.Namespace, err = SaveNamespace(e, o.ns); err != nil {
			return err
		}
	}
	return e.Put(image.KindMountFile, &rec)
}

func init() {
	RegisterState(image.KindMountFile, func(e *RestoreEnv, id image.ID) (any, error) {
		var rec image.MountFile
		if err := e.Get(image.KindMountFile, id, &rec); err != nil {
			return nil, err
		}
		if rec.Namespace == 0 {
			ns := &Namespace{id: namespaceID.Add(1), anon: true}
			ns.refs.Init()
			return &treeOps{ns: ns}, nil
		}
		ns, err := RestoreNamespace(e, rec.Namespace)
		if err != nil {
			return nil, err
		}
		if !ns.anon || !e.FirstTime(ns) {
			ns.DecRef()
			return nil, fmt.Errorf("mount namespace %d of the image is held by a descriptor", rec.Namespace)
		}
		return &treeOps{ns: ns}, nil
	})
}
