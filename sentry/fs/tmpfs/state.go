package tmpfs

import (
	"fmt"
	"sort"
	"strings"

	"golang.org/x/sys/unix"

	"runsc/sentry/image"
	"runsc/sentry/vfs"
)

// StateKind implements vfs.StateSaver.
func (fs *FS) StateKind() image.Kind { return image.KindTmpfs }

// SaveState implements vfs.StateSaver: the file system with every inode that
// has a name.
func (fs *FS) SaveState(e *vfs.SaveEnv, id image.ID) error {
	rec := image.Tmpfs{
		ID: id, Source: fs.source, Options: fs.Options(), Dev: fs.dev,
		MaxPages: fs.maxPages.Load(), MaxInodes: fs.maxInodes.Load(), LastIno: fs.lastIno.Load(),
		NoAccount: fs.acct == nil, SharedDev: fs.sharedDev, Upper: fs.upper,
	}
	nodes := fs.named()
	var fresh []node
	for _, n := range nodes {
		nid, isNew := e.ID(n)
		rec.Inodes = append(rec.Inodes, nid)
		if isNew {
			fresh = append(fresh, n) // the others are being saved
		}
	}
	rec.Root = rec.Inodes[0]
	for _, n := range fresh {
		if err := saveInode(e, n, e.Known(n)); err != nil {
			return err
		}
	}
	return e.Put(image.KindTmpfs, &rec)
}

// named returns the inodes with a name, each after its directory, in an order
// that depends on the tree alone.
func (fs *FS) named() []node {
	fs.treeMu.RLock()
	defer fs.treeMu.RUnlock()
	nodes := []node{fs.root}
	seen := map[node]bool{}
	for i := 0; i < len(nodes); i++ {
		d, ok := nodes[i].(*dir)
		if !ok {
			continue
		}
		for _, en := range d.order {
			if !en.gone && !seen[en.child] {
				seen[en.child] = true
				nodes = append(nodes, en.child)
			}
		}
	}
	return nodes
}

// StateKind implements vfs.StateSaver.
func (i *inode) StateKind() image.Kind { return image.KindTmpfsInode }

// SaveState implements vfs.StateSaver.
func (f *file) SaveState(e *vfs.SaveEnv, id image.ID) error { return saveNode(e, f, id) }

// SaveState implements vfs.StateSaver.
func (d *dir) SaveState(e *vfs.SaveEnv, id image.ID) error { return saveNode(e, d, id) }

// SaveState implements vfs.StateSaver.
func (l *symlink) SaveState(e *vfs.SaveEnv, id image.ID) error { return saveNode(e, l, id) }

// SaveState implements vfs.StateSaver.
func (s *special) SaveState(e *vfs.SaveEnv, id image.ID) error { return saveNode(e, s, id) }

// saveNode saves an inode that something refers to, and its file system.
func saveNode(e *vfs.SaveEnv, n node, id image.ID) error {
	if _, err := e.Save(n.base().fs); err != nil {
		return err
	}
	return saveInode(e, n, id)
}

// saveInode writes the record of an inode, whose file system is or will be
// saved.
func saveInode(e *vfs.SaveEnv, n node, id image.ID) error {
	i := n.base()
	rec := image.TmpfsInode{ID: id, FS: e.Known(i.fs), Ino: i.ino, Rdev: i.rdev}
	i.mu.Lock()
	rec.Mode, rec.UID, rec.GID, rec.Attributes = i.mode, i.uid, i.gid, i.attrs
	rec.Atime, rec.Mtime = vfs.TimeRecord(i.atime), vfs.TimeRecord(i.mtime)
	rec.Ctime, rec.Btime = vfs.TimeRecord(i.ctime), vfs.TimeRecord(i.btime)
	for name, v := range i.xattrs {
		rec.Xattrs = append(rec.Xattrs, image.Xattr{Name: name, Value: v})
	}
	i.mu.Unlock()
	sort.Slice(rec.Xattrs, func(a, b int) bool { return rec.Xattrs[a].Name < rec.Xattrs[b].Name })
	switch n := n.(type) {
	case *symlink:
		rec.Target = n.target
	case *dir:
		n.fs.treeMu.RLock()
		rec.Cookie, rec.Removed = n.last, n.removed
		for _, en := range n.order {
			if !en.gone {
				rec.Entries = append(rec.Entries, image.TmpfsEntry{Name: en.name, Inode: e.Known(en.child), Cookie: en.cookie})
			}
		}
		n.fs.treeMu.RUnlock()
	case *file:
		n.savePages(e, &rec)
	}
	return e.Put(image.KindTmpfsInode, &rec)
}

// StateKind implements vfs.StateSaver.
func (o *fileOps) StateKind() image.Kind { return image.KindTmpfsFile }

// SaveState implements vfs.StateSaver.
func (o *fileOps) SaveState(e *vfs.SaveEnv, id image.ID) error {
	ref, err := e.Save(o.f)
	if err != nil {
		return err
	}
	return e.Put(image.KindTmpfsFile, &image.TmpfsFile{ID: id, Inode: ref.ID, Writes: o.writes})
}

func init() {
	vfs.RegisterState(image.KindTmpfs, func(e *vfs.RestoreEnv, id image.ID) (any, error) {
		var rec image.Tmpfs
		if err := e.Get(image.KindTmpfs, id, &rec); err != nil {
			return nil, err
		}
		return restoreFS(e, &rec)
	})
	vfs.RegisterState(image.KindTmpfsInode, func(e *vfs.RestoreEnv, id image.ID) (any, error) {
		var rec image.TmpfsInode
		if err := e.Get(image.KindTmpfsInode, id, &rec); err != nil {
			return nil, err
		}
		fs, err := vfs.Restored[*FS](e, image.Ref{Kind: image.KindTmpfs, ID: rec.FS})
		if err != nil {
			return nil, err
		}
		return fs.restoredInode(e, id)
	})
	vfs.RegisterState(image.KindTmpfsFile, func(e *vfs.RestoreEnv, id image.ID) (any, error) {
		var rec image.TmpfsFile
		if err := e.Get(image.KindTmpfsFile, id, &rec); err != nil {
			return nil, err
		}
		f, err := vfs.Restored[*file](e, image.Ref{Kind: image.KindTmpfsInode, ID: rec.Inode})
		if err != nil {
			return nil, err
		}
		if rec.Writes {
			f.writers.Add(1)
		}
		return &fileOps{f: f, writes: rec.Writes}, nil
	})
}

// restoreFS makes the file system with every inode that has a name.
func restoreFS(e *vfs.RestoreEnv, rec *image.Tmpfs) (_ *FS, err error) {
	fs := &FS{mf: e.Memory, acct: e.Account, source: rec.Source, restored: map[image.ID]node{}}
	if rec.NoAccount {
		fs.acct = nil
	}
	fs.setData(rec.Upper)
	defer func() {
		if err != nil {
			fs.unname()
		}
	}()
	fs.maxPages.Store(max(rec.MaxPages, 0))
	fs.maxInodes.Store(max(rec.MaxInodes, 0))
	fs.lastIno.Store(rec.LastIno)
	options := rec.Options
	fs.opts.Store(&options)
	if len(rec.Inodes) == 0 || rec.Inodes[0] != rec.Root {
		return nil, fmt.Errorf("tmpfs %d of the image has no root", rec.ID)
	}
	dirs := make([]*image.TmpfsInode, len(rec.Inodes))
	for k, id := range rec.Inodes {
		if fs.restored[id] != nil {
			return nil, fmt.Errorf("tmpfs %d of the image has inode %d twice", rec.ID, id)
		}
		var i image.TmpfsInode
		if err := e.Get(image.KindTmpfsInode, id, &i); err != nil {
			return nil, err
		}
		n, err := fs.restoreInode(e, &i)
		if err != nil {
			return nil, err
		}
		if _, ok := n.(*dir); ok {
			dirs[k] = &i
		}
	}
	root, ok := fs.restored[rec.Root].(*dir)
	if !ok {
		return nil, fmt.Errorf("the root of tmpfs %d of the image is no directory", rec.ID)
	}
	fs.root = root
	fs.root.nlink = 2
	after := map[image.ID]int{}
	for k, id := range rec.Inodes {
		after[id] = k
	}
	for k, d := range dirs {
		if d == nil {
			continue
		}
		for _, en := range d.Entries {
			// A directory comes after the one it is in; a file may have a
			// name in an earlier one too.
			if at, ok := after[en.Inode]; !ok || dirs[at] != nil && at <= k {
				return nil, fmt.Errorf("entry %q of directory %d of the image leads nowhere", en.Name, d.ID)
			}
			if err := fs.restoreEntry(fs.restored[d.ID].(*dir), &en); err != nil {
				return nil, err
			}
		}
	}
	for id, n := range fs.restored {
		if d, ok := n.(*dir); ok && n != node(fs.root) && d.parent.Load() == nil || n.base().nlink == 0 {
			return nil, fmt.Errorf("inode %d of tmpfs %d of the image has no name", id, rec.ID)
		}
	}
	if fs.sharedDev = rec.SharedDev; rec.SharedDev {
		fs.dev = e.Dev(rec.Dev)
	} else {
		fs.dev = e.KeepDev(rec.Dev)
	}
	e.Hold(0, func() { fs.restored = nil })
	fs.root.IncRef() // Release drops it
	return fs, nil
}

// unname takes all names away after a failed restore, so that the inodes go
// with the environment's references.
func (fs *FS) unname() {
	fs.treeMu.Lock()
	defer fs.treeMu.Unlock()
	for _, n := range fs.restored {
		if d, ok := n.(*dir); ok {
			fs.unchargeKernel(nameCost * len(d.entries))
			d.entries, d.order = nil, nil
		}
		n.base().nlink = 0
	}
}

// restoreEntry gives an inode a name.
func (fs *FS) restoreEntry(d *dir, en *image.TmpfsEntry) error {
	child := fs.restored[en.Inode]
	sub, isDir := child.(*dir)
	switch {
	case en.Name == "" || en.Name == "." || en.Name == ".." || len(en.Name) > 255 || strings.Contains(en.Name, "/"):
		return fmt.Errorf("the image has a file name %.300q", en.Name)
	case d.removed || d.entries[en.Name] != nil || en.Cookie < firstCookie:
		return fmt.Errorf("the image has a second file %q, or one where there cannot be any", en.Name)
	case len(d.order) > 0 && d.order[len(d.order)-1].cookie >= en.Cookie:
		return fmt.Errorf("entry %q of the image is out of order", en.Name)
	case isDir && (sub.parent.Load() != nil || sub.removed):
		return fmt.Errorf("directory %q of the image has two names, or should have none", en.Name)
	}
	if err := fs.chargeKernel(nameCost); err != nil {
		return err
	}
	if isDir {
		sub.parent.Store(d)
		sub.nlink = 2
		d.nlink++
	} else {
		child.base().nlink++
	}
	if d.entries == nil {
		d.entries = make(map[string]*entry)
	}
	x := &entry{name: en.Name, child: child, cookie: en.Cookie}
	d.entries[en.Name] = x
	d.order = append(d.order, x)
	d.last = max(d.last, en.Cookie)
	return nil
}

// restoredInode borrows an inode, making one without a name.
func (fs *FS) restoredInode(e *vfs.RestoreEnv, id image.ID) (node, error) {
	if n := fs.restored[id]; n != nil {
		return n, nil
	}
	var rec image.TmpfsInode
	if err := e.Get(image.KindTmpfsInode, id, &rec); err != nil {
		return nil, err
	}
	if len(rec.Entries) > 0 {
		return nil, fmt.Errorf("directory %d of the image has no name but entries", id)
	}
	return fs.restoreInode(e, &rec)
}

// restoreInode makes an inode, without names and entries. The environment has
// its reference.
func (fs *FS) restoreInode(e *vfs.RestoreEnv, rec *image.TmpfsInode) (node, error) {
	var n node
	switch rec.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		f := &file{}
		f.seals.Store(rec.Seals)
		n = f
	case unix.S_IFDIR:
		n = &dir{last: rec.Cookie, removed: rec.Removed}
	case unix.S_IFLNK:
		n = &symlink{target: rec.Target}
	case unix.S_IFIFO, unix.S_IFSOCK, unix.S_IFCHR, unix.S_IFBLK:
		n = &special{}
	default:
		return nil, fmt.Errorf("inode %d of the image has mode %#o", rec.ID, rec.Mode)
	}
	i := n.base()
	size := 0
	for _, x := range rec.Xattrs {
		size += len(x.Name) + len(x.Value)
	}
	if size > maxXattrBytes || len(rec.Target) >= unix.PathMax {
		return nil, fmt.Errorf("inode %d of the image has %d bytes of extended attributes and a target of %d", rec.ID, size, len(rec.Target))
	}
	if err := fs.chargeKernel(inodeCost + size); err != nil {
		return nil, err
	}
	i.fs, i.ino, i.rdev = fs, rec.Ino, rec.Rdev
	i.mode, i.uid, i.gid = rec.Mode&(unix.S_IFMT|0o7777), rec.UID, rec.GID
	i.attrs = rec.Attributes & knownAttrs
	i.atime, i.mtime = vfs.RestoredTime(rec.Atime), vfs.RestoredTime(rec.Mtime)
	i.ctime, i.btime = vfs.RestoredTime(rec.Ctime), vfs.RestoredTime(rec.Btime)
	if len(rec.Xattrs) > 0 {
		i.xattrs, i.xattrBytes = make(map[string][]byte), size
		for _, x := range rec.Xattrs {
			i.xattrs[x.Name] = append([]byte{}, x.Value...)
		}
		if len(i.xattrs) != len(rec.Xattrs) {
			return nil, fmt.Errorf("inode %d of the image has an extended attribute twice", rec.ID)
		}
		i.refreshACLLocked()
	}
	i.refs.Init()
	fs.inodes.Add(1)
	inodeKind.Born()
	fs.restored[rec.ID] = n
	e.Hold(rec.ID, func() { put(n) })
	if f, ok := n.(*file); ok {
		if err := f.restorePages(e, rec); err != nil {
			return nil, fmt.Errorf("file %d of the image: %w", rec.ID, err)
		}
	}
	return n, nil
}

// EachXattr calls fn for the value of an extended attribute of each inode that
// has it, which fn may change in place.
func (fs *FS) EachXattr(name string, fn func(value []byte)) {
	for _, n := range fs.named() {
		i := n.base()
		i.mu.Lock()
		if v, ok := i.xattrs[name]; ok {
			fn(v)
		}
		i.mu.Unlock()
	}
}
