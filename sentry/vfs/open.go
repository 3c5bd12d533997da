package vfs

import (
	"golang.org/x/sys/unix"
)

// oTmpfile is __O_TMPFILE, the bit that tells O_TMPFILE from O_DIRECTORY.
const oTmpfile = unix.O_TMPFILE &^ unix.O_DIRECTORY

// pathFlags are the flags that mean anything together with O_PATH (open(2)).
const pathFlags = unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_PATH | unix.O_CLOEXEC

// OpenAt implements open(2) and openat(2), and openat2(2) through at.Flags.
// mode is that of a file to be created, before the umask.
func OpenAt(c Caller, at At, flags, mode uint32) (*File, error) {
	if flags&unix.O_PATH != 0 {
		flags &= pathFlags
	}
	if flags&unix.O_NOFOLLOW != 0 {
		at.Flags |= NoFollow
	}
	if flags&unix.O_DIRECTORY != 0 {
		at.Flags |= MustDir
		if flags&unix.O_CREAT != 0 {
			return nil, unix.EINVAL
		}
	}
	if flags&oTmpfile != 0 && (flags&unix.O_DIRECTORY == 0 || openMask(flags)&MayWrite == 0) {
		return nil, unix.EINVAL
	}
	var w walker
	if err := w.init(c, &at); err != nil {
		return nil, err
	}
	defer w.done()
	var umask uint32
	if at.FS != nil {
		umask = at.FS.Umask()
	}
	if flags&unix.O_CREAT != 0 {
		return w.openCreate(flags, mode&0o7777, umask)
	}
	if err := w.lookup(); err != nil {
		return nil, err
	}
	if flags&oTmpfile != 0 {
		return w.openTmpfile(flags, mode&0o7777, umask)
	}
	return w.openFound(flags)
}

// OpenPath opens what is at p, as OpenAt does a path that leads there.
func OpenPath(c Caller, p Path, flags uint32) (*File, error) {
	w := walker{c: c, cr: c.Cred(), cur: p}
	return w.openFound(flags &^ uint32(unix.O_CREAT|unix.O_EXCL))
}

// openMask is the access that open(2) asks for. Access mode 3 asks for read
// and write permission, and gives neither (Linux's ACC_MODE).
func openMask(flags uint32) uint32 {
	var mask uint32
	switch flags & unix.O_ACCMODE {
	case unix.O_RDONLY:
		mask = MayRead
	case unix.O_WRONLY:
		mask = MayWrite
	default:
		mask = MayRead | MayWrite
	}
	if flags&unix.O_TRUNC != 0 {
		mask |= MayWrite
	}
	return mask
}

// openFound opens cur.
func (w *walker) openFound(flags uint32) (*File, error) {
	d := w.cur.Dentry
	if flags&unix.O_DIRECTORY != 0 && !d.IsDir() {
		return nil, unix.ENOTDIR
	}
	if flags&unix.O_PATH != 0 {
		w.cur.IncRef()
		return NewFile(w.cur, pathOps{}, flags), nil
	}
	st, err := w.mayOpen(flags)
	if err != nil {
		return nil, err
	}
	return w.finishOpen(&st, flags)
}

// mayOpen is Linux's may_open: type, mount flags and permissions.
func (w *walker) mayOpen(flags uint32) (Stat, error) {
	d, m := w.cur.Dentry, w.cur.Mount
	if d.link != nil {
		return Stat{}, unix.ELOOP
	}
	st, err := d.inode.Stat(w.c, 0)
	if err != nil {
		return st, err
	}
	mask := openMask(flags)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		if mask&MayWrite != 0 {
			return st, unix.EISDIR
		}
	case unix.S_IFBLK, unix.S_IFCHR:
		if m != nil && m.has(unix.MS_NODEV) {
			return st, unix.EACCES
		}
	case unix.S_IFIFO, unix.S_IFSOCK:
	default:
		if mask&MayWrite != 0 && m != nil {
			if err := m.wantWrite(); err != nil {
				return st, err
			}
		}
	}
	if d.perm != nil {
		err = d.perm.Permission(w.c, mask)
	} else {
		err = w.permitStat(d, &st, mask)
	}
	if err != nil {
		return st, err
	}
	if st.Attributes&unix.STATX_ATTR_APPEND != 0 && (flags&unix.O_ACCMODE != unix.O_RDONLY && flags&unix.O_APPEND == 0 || flags&unix.O_TRUNC != 0) {
		return st, unix.EPERM
	}
	if flags&unix.O_NOATIME != 0 && !ownerOr(w.cr, &st, unix.CAP_FOWNER) {
		return st, unix.EPERM
	}
	return st, nil
}

// finishOpen makes the file; permissions have been checked.
func (w *walker) finishOpen(st *Stat, flags uint32) (*File, error) {
	d := w.cur.Dentry
	kind := st.Mode & unix.S_IFMT
	writer := false
	if kind == unix.S_IFREG {
		var err error
		if writer, err = w.claim(flags); err != nil {
			return nil, err
		}
	}
	f, err := w.openClaimed(st, flags)
	if err != nil && writer {
		endWrite(d.inode)
	}
	return f, err
}

// claim makes room for an open regular file among the others: leases are
// broken, and what runs is not written. It tells whether a writer was counted.
func (w *walker) claim(flags uint32) (writer bool, err error) {
	i := w.cur.Dentry.inode
	write := flags&unix.O_ACCMODE != unix.O_RDONLY
	if write && w.cur.Mount != nil && flags&unix.O_ACCMODE != unix.O_ACCMODE {
		if err := beginWrite(i); err != nil {
			return false, err
		}
		writer = true
	}
	if flags&unix.O_TRUNC != 0 && !writer && running(i) {
		return false, unix.ETXTBSY
	}
	if err := breakLeases(w.c, i, write || flags&unix.O_TRUNC != 0, flags&unix.O_NONBLOCK != 0); err != nil {
		if writer {
			endWrite(i)
		}
		return false, err
	}
	return writer, nil
}

// openClaimed is finishOpen after that.
func (w *walker) openClaimed(st *Stat, flags uint32) (*File, error) {
	d := w.cur.Dentry
	kind := st.Mode & unix.S_IFMT
	if flags&unix.O_TRUNC != 0 && kind == unix.S_IFREG {
		// Before Open, so that a file system that copies files up to be
		// written need not copy what goes at once.
		zero := uint64(0)
		set := SetStat{Size: &zero}
		if m, strip := WriteStripsMode(w.c, st.Mode, st.GID); strip {
			m &^= unix.S_IFMT
			set.Mode = &m
		}
		if err := d.inode.SetStat(w.c, &set); err != nil {
			return nil, err
		}
		if watches.n.Load() != 0 {
			notifySelf(d, unix.IN_MODIFY)
		}
	}
	var ops FileOps
	var err error
	switch kind {
	case unix.S_IFREG, unix.S_IFDIR, 0:
		ops, err = d.inode.Open(w.c, d, flags)
	default:
		ops, err = openSpecial(w.c, d, st, flags)
	}
	if err != nil {
		return nil, err
	}
	return w.newFile(ops, kind, flags), nil
}

// newFile makes the description of cur over ops.
func (w *walker) newFile(ops FileOps, kind, flags uint32) *File {
	w.cur.IncRef()
	f := NewFile(w.cur, ops, flags)
	if kind == unix.S_IFREG {
		f.mode |= fileRegular
		if f.mode&fileWrite != 0 && w.cur.Mount != nil {
			f.mode |= fileWriter
			w.cur.Mount.writers.Add(1)
		}
	}
	f.notifyOpen()
	return f
}

// openCreate is open with O_CREAT (Linux's open_last_lookups).
func (w *walker) openCreate(flags, mode, umask uint32) (*File, error) {
	excl := flags&unix.O_EXCL != 0
	for {
		if err := w.parent(); err != nil {
			return nil, err
		}
		if w.last == "" || w.last == "." || w.last == ".." || w.slash {
			if w.cur.Dentry.dir == nil {
				return nil, unix.ENOTDIR
			}
			return nil, w.createNonName(excl)
		}
		if err := w.mayLookup(); err != nil {
			return nil, err
		}
		if len(w.last) > nameMax {
			return nil, unix.ENAMETOOLONG
		}
		ch, err := w.cur.Dentry.lookup(w.c, w.last)
		if err != nil {
			return nil, err
		}
		if ch == nil {
			var f *File
			if f, ch, err = w.create(flags, mode, umask); f != nil || err != nil {
				return f, err
			}
		}
		if excl {
			ch.DecRef()
			return nil, unix.EEXIST
		}
		more, err := w.into(ch, w.flags&NoFollow == 0)
		if err != nil {
			return nil, err
		}
		if more {
			continue
		}
		if w.cur.Dentry.IsDir() {
			return nil, unix.EISDIR
		}
		return w.openFound(flags)
	}
}

// createNonName is the error of O_CREAT for what cannot be a new name.
func (w *walker) createNonName(excl bool) error {
	if w.slash && w.last != "." && w.last != ".." {
		return unix.EISDIR
	}
	if excl {
		return unix.EEXIST
	}
	return unix.EISDIR
}

// create makes the regular file last in cur and opens it. If somebody else
// was faster it returns that dentry instead.
func (w *walker) create(flags, mode, umask uint32) (*File, *Dentry, error) {
	dir := w.cur.Dentry
	dir.dirMu.Lock()
	ch, err := dir.lookupLocked(w.c, w.last)
	if ch != nil || err != nil {
		dir.dirMu.Unlock()
		return nil, ch, err
	}
	ops, err := w.createLocked(dir, flags, mode, umask)
	dir.dirMu.Unlock()
	if err != nil {
		return nil, nil, err
	}
	notifyEntry(dir, unix.IN_CREATE, 0, w.last, false)
	dir.DecRef()
	if ops != nil {
		// It was made a moment ago: nobody runs it and nobody has a lease.
		_, _ = w.claim(flags &^ unix.O_TRUNC)
		return w.newFile(ops, unix.S_IFREG, flags), nil, nil
	}
	// A new file is opened whatever its mode says (open(2), O_CREAT).
	f, err := w.finishOpen(&Stat{Mode: unix.S_IFREG}, flags&^unix.O_TRUNC)
	return f, nil, err
}

// createLocked makes the file and makes it current, without dropping the
// reference to dir. dirMu is held.
func (w *walker) createLocked(dir *Dentry, flags, mode, umask uint32) (FileOps, error) {
	if err := w.mayCreate(dir); err != nil {
		return nil, err
	}
	a, err := w.createAttr(dir, unix.S_IFREG|mode, umask)
	if err != nil {
		return nil, err
	}
	var inode Inode
	var ops FileOps
	if co, ok := dir.inode.(CreateOpener); ok {
		inode, ops, err = co.CreateOpen(w.c, w.last, a, flags)
	} else {
		inode, err = dir.dir.Create(w.c, w.last, a)
	}
	if err != nil {
		return nil, err
	}
	w.cur.Dentry = dir.instantiate(w.last, inode)
	return ops, nil
}

// mayCreate checks that an entry can be made in dir: a mount that can be
// written, a directory that still exists, permission.
func (w *walker) mayCreate(dir *Dentry) error {
	if err := w.cur.Mount.wantWrite(); err != nil {
		return err
	}
	if dir.state.Load()&dentryDead != 0 {
		return unix.ENOENT
	}
	return w.permit(dir, MayWrite|MayExec)
}

// openTmpfile is open with O_TMPFILE in the directory cur.
func (w *walker) openTmpfile(flags, mode, umask uint32) (*File, error) {
	dir := w.cur.Dentry
	if err := w.mayCreate(dir); err != nil {
		return nil, err
	}
	maker, ok := dir.inode.(TmpfileMaker)
	if !ok {
		return nil, unix.EOPNOTSUPP
	}
	a, err := w.createAttr(dir, unix.S_IFREG|mode, umask)
	if err != nil {
		return nil, err
	}
	inode, err := maker.Tmpfile(w.c, a)
	if err != nil {
		return nil, err
	}
	d := newDentry(dir.sb, dir, "#tmpfile", inode)
	d.state.Or(dentryUnhashed)
	if flags&unix.O_EXCL == 0 {
		d.state.Or(dentryLinkable)
	}
	dir.DecRef()
	w.cur.Dentry = d
	return w.finishOpen(&Stat{Mode: unix.S_IFREG}, flags&^uint32(unix.O_EXCL|oTmpfile|unix.O_DIRECTORY))
}

// OpenExec opens a program for execve(2): a regular file with execute
// permission on a mount that allows it. EACCES otherwise.
func OpenExec(c Caller, at At) (*File, error) {
	var w walker
	if err := w.init(c, &at); err != nil {
		return nil, err
	}
	defer w.done()
	if err := w.lookup(); err != nil {
		return nil, err
	}
	d := w.cur.Dentry
	if d.link != nil {
		return nil, unix.ELOOP
	}
	st, err := d.inode.Stat(c, 0)
	if err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || w.cur.Mount.has(unix.MS_NOEXEC) {
		return nil, unix.EACCES
	}
	if err := w.permit(d, MayExec); err != nil {
		return nil, err
	}
	f, err := w.finishOpen(&st, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	if err := beginProgram(d.inode); err != nil {
		f.DecRef()
		return nil, err
	}
	f.program = true // nobody else has it yet
	return f, nil
}
