package vfs

import (
	"golang.org/x/sys/unix"
)

// RenameAt implements rename(2) and renameat2(2).
func RenameAt(c Caller, old, at At, flags uint32) error {
	const known = unix.RENAME_NOREPLACE | unix.RENAME_EXCHANGE | unix.RENAME_WHITEOUT
	if flags&^known != 0 || flags&unix.RENAME_EXCHANGE != 0 && flags&^unix.RENAME_EXCHANGE != 0 {
		return unix.EINVAL
	}
	dots := error(unix.EBUSY)
	return withParent(c, &old, dots, func(from *walker) error {
		if flags&unix.RENAME_NOREPLACE != 0 {
			dots = unix.EEXIST
		}
		return withParent(c, &at, dots, func(to *walker) error {
			if from.cur.Mount != to.cur.Mount {
				return unix.EXDEV
			}
			if err := from.cur.Mount.wantWrite(); err != nil {
				return err
			}
			r := rename{from: from, to: to, flags: flags}
			return r.run()
		})
	})
}

// rename is one rename in progress: both directories are found, on one mount.
type rename struct {
	from, to *walker
	flags    uint32
	src, dst *Dentry // references; dst is nil if there is nothing there
}

func (r *rename) run() error {
	fromDir, toDir := r.from.cur.Dentry, r.to.cur.Dentry
	unlock := lockRename(fromDir, toDir)
	err := r.locked(fromDir, toDir)
	unlock()
	if err == nil && r.src != r.dst {
		r.notify(fromDir, toDir)
	}
	if r.dst != nil {
		if err == nil && r.flags&unix.RENAME_EXCHANGE == 0 && r.dst.IsDir() {
			r.dst.shrink()
		}
		r.dst.DecRef()
	}
	if r.src != nil {
		r.src.DecRef()
	}
	return err
}

// lockRename locks two directories, an ancestor first (Linux's lock_rename).
func lockRename(a, b *Dentry) (unlock func()) {
	if a == b {
		a.dirMu.Lock()
		return a.dirMu.Unlock
	}
	sb := a.sb
	sb.renameMu.Lock()
	first, second := a, b
	if b.isAncestorOf(a) {
		first, second = b, a
	}
	first.dirMu.Lock()
	second.dirMu.Lock()
	return func() {
		second.dirMu.Unlock()
		first.dirMu.Unlock()
		sb.renameMu.Unlock()
	}
}

// locked does the work under both directories' locks, with the checks in the
// order of Linux's do_renameat2 and vfs_rename.
func (r *rename) locked(fromDir, toDir *Dentry) error {
	c := r.from.c
	exchange := r.flags&unix.RENAME_EXCHANGE != 0
	var err error
	if r.src, err = fromDir.lookupLocked(c, r.from.last); err != nil {
		return err
	}
	if r.src == nil {
		return unix.ENOENT
	}
	if r.dst, err = toDir.lookupLocked(c, r.to.last); err != nil {
		return err
	}
	if r.dst != nil && r.flags&unix.RENAME_NOREPLACE != 0 {
		return unix.EEXIST
	}
	if exchange {
		if r.dst == nil {
			return unix.ENOENT
		}
		if r.to.slash && !r.dst.IsDir() {
			return unix.ENOTDIR
		}
	}
	if !r.src.IsDir() && (r.from.slash || !exchange && r.to.slash) {
		return unix.ENOTDIR
	}
	if r.src.isAncestorOf(toDir) {
		return unix.EINVAL
	}
	if r.dst != nil && r.dst.isAncestorOf(fromDir) {
		if exchange {
			return unix.EINVAL
		}
		return unix.ENOTEMPTY
	}
	if r.src == r.dst || r.dst != nil && sameFile(c, r.src, r.dst) {
		// rename(2): two names of one file: nothing happens.
		r.dst.DecRef()
		r.dst = r.src
		r.dst.IncRef()
		return nil
	}
	if err := r.permitted(fromDir, toDir, exchange); err != nil {
		return err
	}
	if !exchange && r.dst != nil && r.dst.IsDir() {
		r.dst.dirMu.Lock()
		defer r.dst.dirMu.Unlock()
	}
	var replaced Inode
	if r.dst != nil {
		replaced = r.dst.inode
	}
	err = fromDir.dir.Rename(c, r.from.last, r.src.inode, toDir.dir, r.to.last, replaced, r.flags&^unix.RENAME_NOREPLACE)
	if err != nil {
		return err
	}
	r.move(fromDir, toDir, exchange)
	return nil
}

// sameFile tells whether two dentries are hard links of one inode.
func sameFile(c Caller, a, b *Dentry) bool {
	if a.inode == b.inode {
		return true
	}
	if a.IsDir() || b.IsDir() {
		return false
	}
	as, err1 := a.inode.Stat(c, unix.STATX_INO)
	bs, err2 := b.inode.Stat(c, unix.STATX_INO)
	return err1 == nil && err2 == nil && as.Ino == bs.Ino && as.Dev == bs.Dev
}

func (r *rename) permitted(fromDir, toDir *Dentry, exchange bool) error {
	w := r.from
	if err := w.mayDelete(fromDir, r.src, r.src.IsDir()); err != nil {
		return err
	}
	switch {
	case r.dst == nil:
		if toDir.state.Load()&dentryDead != 0 {
			return unix.ENOENT
		}
		if err := w.permit(toDir, MayWrite|MayExec); err != nil {
			return err
		}
	case exchange:
		if err := w.mayDelete(toDir, r.dst, r.dst.IsDir()); err != nil {
			return err
		}
	default:
		if err := w.mayDelete(toDir, r.dst, r.src.IsDir()); err != nil {
			return err
		}
	}
	if fromDir == toDir {
		return nil
	}
	// A directory whose ".." changes must be writable.
	if r.src.IsDir() {
		if err := w.permit(r.src, MayWrite); err != nil {
			return err
		}
	}
	if exchange && r.dst.IsDir() {
		return w.permit(r.dst, MayWrite)
	}
	return nil
}

// move changes the dentries after the file system did the rename.
func (r *rename) move(fromDir, toDir *Dentry, exchange bool) {
	sb := fromDir.sb
	if !exchange && r.dst != nil {
		if r.dst.IsDir() {
			r.dst.state.Or(dentryDead)
		}
		r.dst.unhash()
	}
	if r.dst == nil {
		if neg := toDir.cached(r.to.last); neg != nil {
			neg.unhash()
			neg.DecRef()
		}
	}
	sb.nameMu.Lock()
	fromDir.mu.Lock()
	if toDir != fromDir {
		toDir.mu.Lock()
	}
	delete(fromDir.children, r.from.last)
	if exchange {
		delete(toDir.children, r.to.last)
		r.dst.placeLocked(fromDir, r.from.last)
	}
	r.src.placeLocked(toDir, r.to.last)
	if toDir != fromDir {
		toDir.mu.Unlock()
	}
	fromDir.mu.Unlock()
	if r.src.IsDir() || exchange {
		renames.Add(1)
	}
	sb.nameMu.Unlock()
	if toDir != fromDir {
		// src now holds a reference to toDir, and dst one to fromDir.
		toDir.IncRef()
		if exchange {
			fromDir.IncRef()
			toDir.DecRef()
		}
		fromDir.DecRef()
	}
}

// placeLocked makes d the child of p called name. sb.nameMu and mu of the old
// and new parent are held; the caller moves the reference to the parent.
func (d *Dentry) placeLocked(p *Dentry, name string) {
	d.name = name
	d.parent.Store(p)
	if p.children == nil {
		p.children = make(map[string]*Dentry)
	}
	p.children[name] = d
}

func (r *rename) notify(fromDir, toDir *Dentry) {
	if watches.n.Load() == 0 {
		return
	}
	pair := func(src *Dentry, fromDir, toDir *Dentry, from, to string) {
		cookie := renameCookie.Add(1)
		notifyEntry(fromDir, unix.IN_MOVED_FROM, cookie, from, src.IsDir())
		notifyEntry(toDir, unix.IN_MOVED_TO, cookie, to, src.IsDir())
		notifyInode(src.inode, unix.IN_MOVE_SELF, 0, "")
	}
	pair(r.src, fromDir, toDir, r.from.last, r.to.last)
	if r.flags&unix.RENAME_EXCHANGE != 0 {
		pair(r.dst, toDir, fromDir, r.to.last, r.from.last)
	} else if r.dst != nil {
		notifyGone(r.from.c, r.dst)
	}
}
