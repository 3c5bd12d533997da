package tmpfs

import (
	"sort"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/vfs"
)

// dir is a directory. Entries keep the number that they got when they were
// made; it is the cookie of readdir, so that names can come and go during a
// listing.
type dir struct {
	inode  `save:"rec"`
	parent atomic.Pointer[dir] `save:"rebuilt"` // nil: the root, or removed

	// fs.treeMu guards:
	entries map[string]*entry `save:"rec"`
	order   []*entry          `save:"rec"`                                // by cookie; removed ones stay until there are many
	dead    int               `save:"none: removed entries are left out"` // removed entries in order
	last    int64             `save:"rec"`                                // the newest cookie
	removed bool              `save:"rec"`
}

type entry struct {
	name   string `save:"rec"`
	child  node   `save:"rec"`
	cookie int64  `save:"rec"`
	gone   bool   `save:"none: removed entries are left out"`
}

// firstCookie leaves 0 and 1 to "." and "..".
const firstCookie = 2

func (d *dir) DecRef() { put(d) }
func (d *dir) free()   {}

// insertLocked gives child a name.
func (d *dir) insertLocked(name string, child node) {
	if d.entries == nil {
		d.entries = make(map[string]*entry)
	}
	d.last = max(d.last+1, firstCookie)
	e := &entry{name: name, child: child, cookie: d.last}
	d.entries[name] = e
	d.order = append(d.order, e)
}

// deleteLocked takes the name away.
func (d *dir) deleteLocked(e *entry) {
	delete(d.entries, e.name)
	e.gone = true
	d.dead++
	if len(d.entries) == 0 {
		d.entries, d.order, d.dead = nil, nil, 0
		return
	}
	if d.dead > 32 && d.dead > len(d.order)/2 {
		live := make([]*entry, 0, len(d.entries))
		for _, o := range d.order {
			if !o.gone {
				live = append(live, o)
			}
		}
		d.order, d.dead = live, 0
	}
}

// Stat implements vfs.Inode.
func (d *dir) Stat(vfs.Caller, uint32) (vfs.Stat, error) {
	st := d.stat()
	d.fs.treeMu.RLock()
	// shmem counts 20 bytes an entry (BOGO_DIRENT_SIZE).
	st.Size = 20 * uint64(len(d.entries)+2)
	d.fs.treeMu.RUnlock()
	return st, nil
}

// SetStat implements vfs.Inode.
func (d *dir) SetStat(c vfs.Caller, s *vfs.SetStat) error {
	d.setStat(c, s)
	return nil
}

// Lookup implements vfs.Dir.
func (d *dir) Lookup(_ vfs.Caller, name string) (vfs.Inode, error) {
	d.fs.treeMu.RLock()
	defer d.fs.treeMu.RUnlock()
	e := d.entries[name]
	if e == nil {
		return nil, unix.ENOENT
	}
	e.child.IncRef()
	return e.child, nil
}

// add enters a new inode, which has its reference for the caller already.
func (d *dir) add(c vfs.Caller, name string, n node) error {
	i := n.base()
	if err := d.fs.chargeKernel(nameCost); err != nil {
		put(n)
		return err
	}
	d.fs.treeMu.Lock()
	if d.removed || d.entries[name] != nil {
		d.fs.treeMu.Unlock()
		d.fs.unchargeKernel(nameCost)
		put(n)
		if d.removed {
			return unix.ENOENT
		}
		return unix.EEXIST
	}
	i.nlink = 1
	if sub, ok := n.(*dir); ok {
		i.nlink = 2
		sub.parent.Store(d)
		d.nlink++
	}
	d.insertLocked(name, n)
	d.fs.treeMu.Unlock()
	d.touch(vfs.TimespecOf(c.RealTime()), true)
	return nil
}

// Create implements vfs.Dir.
func (d *dir) Create(c vfs.Caller, name string, a vfs.CreateAttr) (vfs.Inode, error) {
	if err := d.fs.roomForInode(); err != nil {
		return nil, err
	}
	f := d.fs.newFile(c, a)
	if err := d.add(c, name, f); err != nil {
		return nil, err
	}
	return f, nil
}

// Tmpfile implements vfs.TmpfileMaker.
func (d *dir) Tmpfile(c vfs.Caller, a vfs.CreateAttr) (vfs.Inode, error) {
	if err := d.fs.roomForInode(); err != nil {
		return nil, err
	}
	return d.fs.newFile(c, a), nil
}

// Mkdir implements vfs.Dir.
func (d *dir) Mkdir(c vfs.Caller, name string, a vfs.CreateAttr) (vfs.Inode, error) {
	if err := d.fs.roomForInode(); err != nil {
		return nil, err
	}
	n := &dir{}
	d.fs.initInode(&n.inode, c, a)
	if err := d.add(c, name, n); err != nil {
		return nil, err
	}
	return n, nil
}

// Mknod implements vfs.Dir.
func (d *dir) Mknod(c vfs.Caller, name string, a vfs.CreateAttr, rdev uint64) (vfs.Inode, error) {
	if err := d.fs.roomForInode(); err != nil {
		return nil, err
	}
	n := d.fs.newSpecial(c, a, rdev)
	if err := d.add(c, name, n); err != nil {
		return nil, err
	}
	return n, nil
}

func (fs *FS) newSpecial(c vfs.Caller, a vfs.CreateAttr, rdev uint64) *special {
	n := &special{}
	if kind := a.Mode & unix.S_IFMT; kind == unix.S_IFCHR || kind == unix.S_IFBLK {
		n.rdev = rdev
	}
	fs.initInode(&n.inode, c, a)
	return n
}

// Symlink implements vfs.Dir.
func (d *dir) Symlink(c vfs.Caller, name, target string, a vfs.CreateAttr) (vfs.Inode, error) {
	if err := d.fs.roomForInode(); err != nil {
		return nil, err
	}
	n := &symlink{target: target}
	d.fs.initInode(&n.inode, c, a)
	if err := d.add(c, name, n); err != nil {
		return nil, err
	}
	return n, nil
}

// maxLinks bounds the names of a file.
const maxLinks = 1 << 31

// Link implements vfs.Dir.
func (d *dir) Link(c vfs.Caller, name string, target vfs.Inode) error {
	n, ok := target.(node)
	if !ok || n.base().fs != d.fs {
		return unix.EXDEV
	}
	if _, isDir := n.(*dir); isDir {
		return unix.EPERM
	}
	i := n.base()
	if err := d.fs.chargeKernel(nameCost); err != nil {
		return err
	}
	d.fs.treeMu.Lock()
	var err error
	switch {
	case d.removed:
		err = unix.ENOENT
	case d.entries[name] != nil:
		err = unix.EEXIST
	case i.nlink >= maxLinks:
		err = unix.EMLINK
	}
	if err != nil {
		d.fs.treeMu.Unlock()
		d.fs.unchargeKernel(nameCost)
		return err
	}
	i.nlink++
	d.insertLocked(name, n)
	d.fs.treeMu.Unlock()
	now := vfs.TimespecOf(c.RealTime())
	i.touch(now, false)
	d.touch(now, true)
	return nil
}

// findLocked returns the entry name if it is child.
func (d *dir) findLocked(name string, child vfs.Inode) (*entry, error) {
	e := d.entries[name]
	if e == nil || vfs.Inode(e.child) != child {
		return nil, unix.ENOENT
	}
	return e, nil
}

// Unlink implements vfs.Dir.
func (d *dir) Unlink(c vfs.Caller, name string, child vfs.Inode) error {
	d.fs.treeMu.Lock()
	e, err := d.findLocked(name, child)
	if err == nil {
		if _, isDir := e.child.(*dir); isDir {
			err = unix.EISDIR
		}
	}
	if err != nil {
		d.fs.treeMu.Unlock()
		return err
	}
	d.deleteLocked(e)
	i := e.child.base()
	i.nlink--
	last := i.nlink == 0
	d.fs.treeMu.Unlock()
	d.fs.unchargeKernel(nameCost)
	now := vfs.TimespecOf(c.RealTime())
	i.touch(now, false)
	d.touch(now, true)
	if last {
		i.lost(e.child)
	}
	return nil
}

// Rmdir implements vfs.Dir.
func (d *dir) Rmdir(c vfs.Caller, name string, child vfs.Inode) error {
	d.fs.treeMu.Lock()
	e, err := d.findLocked(name, child)
	if err != nil {
		d.fs.treeMu.Unlock()
		return err
	}
	sub, ok := e.child.(*dir)
	switch {
	case !ok:
		err = unix.ENOTDIR
	case len(sub.entries) > 0:
		err = unix.ENOTEMPTY
	}
	if err != nil {
		d.fs.treeMu.Unlock()
		return err
	}
	d.deleteLocked(e)
	sub.removeLocked()
	d.nlink--
	d.fs.treeMu.Unlock()
	d.fs.unchargeKernel(nameCost)
	now := vfs.TimespecOf(c.RealTime())
	sub.touch(now, false)
	d.touch(now, true)
	sub.lost(sub)
	return nil
}

// removeLocked marks an empty directory as removed.
func (d *dir) removeLocked() {
	d.removed = true
	d.nlink = 0
	d.parent.Store(nil)
}

// Rename implements vfs.Dir.
func (d *dir) Rename(c vfs.Caller, name string, child vfs.Inode, newDir vfs.Dir, newName string, replaced vfs.Inode, flags uint32) error {
	to, ok := newDir.(*dir)
	if !ok || to.fs != d.fs {
		return unix.EXDEV
	}
	var whiteout *special
	if flags&unix.RENAME_WHITEOUT != 0 {
		if err := d.fs.roomForInode(); err != nil {
			return err
		}
		cr := c.Cred()
		if err := d.fs.chargeKernel(nameCost); err != nil {
			d.fs.unchargeKernel(inodeCost)
			return err
		}
		a := vfs.CreateAttr{Mode: unix.S_IFCHR, UID: cr.FSUID, GID: cr.FSGID}
		if ds := d.stat(); ds.Mode&unix.S_ISGID != 0 {
			a.GID = ds.GID // inode_init_owner
		}
		whiteout = d.fs.newSpecial(c, a, 0)
	}
	d.fs.treeMu.Lock()
	moved, lost, err := d.renameLocked(name, child, to, newName, replaced, flags)
	if err == nil && whiteout != nil {
		whiteout.nlink = 1
		d.insertLocked(name, whiteout)
	}
	d.fs.treeMu.Unlock()
	if whiteout != nil {
		put(whiteout)
		if err != nil {
			d.fs.unchargeKernel(nameCost)
		}
	}
	if err != nil {
		return err
	}
	now := vfs.TimespecOf(c.RealTime())
	d.touch(now, true)
	to.touch(now, true)
	moved.base().touch(now, false)
	if lost != nil {
		lost.base().touch(now, false)
		lost.base().lost(lost)
	}
	return nil
}

// renameLocked returns what moved, and what lost its last name.
func (d *dir) renameLocked(name string, child vfs.Inode, to *dir, newName string, replaced vfs.Inode, flags uint32) (moved, lost node, err error) {
	src, err := d.findLocked(name, child)
	if err != nil {
		return nil, nil, err
	}
	dst := to.entries[newName]
	if to.removed || flags&unix.RENAME_EXCHANGE != 0 && dst == nil {
		return nil, nil, unix.ENOENT
	}
	if dst != nil && vfs.Inode(dst.child) != replaced || dst == nil && replaced != nil {
		return nil, nil, unix.ENOENT
	}
	if flags&unix.RENAME_EXCHANGE != 0 {
		a, b := src.child, dst.child
		src.child, dst.child = b, a
		moveDir(a, d, to)
		moveDir(b, to, d)
		return a, nil, nil
	}
	if dst != nil {
		if lost, err = to.replaceLocked(src, dst); err != nil {
			return nil, nil, err
		}
	}
	d.deleteLocked(src)
	to.insertLocked(newName, src.child)
	moveDir(src.child, d, to)
	return src.child, lost, nil
}

// replaceLocked removes dst from d to make room for src; it returns the inode
// if that was its last name.
func (d *dir) replaceLocked(src, dst *entry) (node, error) {
	_, srcDir := src.child.(*dir)
	sub, dstDir := dst.child.(*dir)
	switch {
	case srcDir && !dstDir:
		return nil, unix.ENOTDIR
	case !srcDir && dstDir:
		return nil, unix.EISDIR
	case dstDir && len(sub.entries) > 0:
		return nil, unix.ENOTEMPTY
	}
	d.deleteLocked(dst)
	d.fs.unchargeKernel(nameCost)
	if dstDir {
		sub.removeLocked()
		d.nlink--
		return sub, nil
	}
	i := dst.child.base()
	if i.nlink--; i.nlink == 0 {
		return dst.child, nil
	}
	return nil, nil
}

// moveDir accounts for a directory's new parent.
func moveDir(n node, from, to *dir) {
	if sub, ok := n.(*dir); ok {
		from.nlink--
		to.nlink++
		sub.parent.Store(to)
	}
}

// dropTreeLocked removes everything below d and returns what lost its last
// name.
func (d *dir) dropTreeLocked(gone []node) []node {
	d.fs.unchargeKernel(nameCost * len(d.entries))
	for _, e := range d.entries {
		i := e.child.base()
		if sub, ok := e.child.(*dir); ok {
			gone = sub.dropTreeLocked(gone)
			sub.removeLocked()
		} else {
			i.nlink--
		}
		if i.nlink == 0 {
			gone = append(gone, e.child)
		}
	}
	d.entries, d.order, d.dead = nil, nil, 0
	if d == d.fs.root {
		d.removeLocked()
	}
	return gone
}

// Open implements vfs.Inode.
func (d *dir) Open(vfs.Caller, *vfs.Dentry, uint32) (vfs.FileOps, error) { return dirOps{d}, nil }

// dirOps is an open directory.
type dirOps struct{ d *dir }

func (dirOps) Release() {}

// Ready implements vfs.FileOps.
func (dirOps) Ready(mask waitq.Mask) waitq.Mask {
	return mask & (waitq.In | waitq.Out | waitq.RdNorm | waitq.WrNorm)
}

// ReadDir implements vfs.DirReader.
func (o dirOps) ReadDir(c vfs.Caller, f *vfs.File, pos int64, emit func(vfs.Dirent) bool) error {
	d := o.d
	d.accessed(c, f, true)
	if pos == 0 {
		if !emit(vfs.Dirent{Name: ".", Ino: d.ino, Type: unix.DT_DIR, Next: 1}) {
			return nil
		}
		pos = 1
	}
	if pos == 1 {
		up := d.parent.Load()
		if up == nil {
			up = d
		}
		if !emit(vfs.Dirent{Name: "..", Ino: up.ino, Type: unix.DT_DIR, Next: firstCookie}) {
			return nil
		}
		pos = firstCookie
	}
	// emit may copy to the guest, so it runs without the lock.
	var batch [32]vfs.Dirent
	for {
		n := d.list(pos, batch[:])
		if n == 0 {
			return nil
		}
		for _, e := range batch[:n] {
			if !emit(e) {
				return nil
			}
			pos = e.Next
		}
	}
}

// list fills batch with entries from cookie pos on.
func (d *dir) list(pos int64, batch []vfs.Dirent) int {
	d.fs.treeMu.RLock()
	defer d.fs.treeMu.RUnlock()
	i := sort.Search(len(d.order), func(i int) bool { return d.order[i].cookie >= pos })
	n := 0
	for ; i < len(d.order) && n < len(batch); i++ {
		e := d.order[i]
		if e.gone {
			continue
		}
		b := e.child.base()
		b.mu.Lock()
		mode := b.mode
		b.mu.Unlock()
		batch[n] = vfs.Dirent{Name: e.name, Ino: b.ino, Type: uint8(mode >> 12 & 15), Next: e.cookie + 1}
		n++
	}
	return n
}

// Seek implements vfs.Seeker: positions of a directory are cookies.
func (dirOps) Seek(_ vfs.Caller, f *vfs.File, off int64, whence int) (int64, error) {
	if whence == unix.SEEK_END {
		return 0, unix.EINVAL
	}
	return 0, unix.ENOTSUP
}

var (
	_ vfs.Dir          = (*dir)(nil)
	_ vfs.TmpfileMaker = (*dir)(nil)
	_ vfs.Xattrer      = (*dir)(nil)
)
