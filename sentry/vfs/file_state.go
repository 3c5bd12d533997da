package vfs

import (
	"fmt"

	"golang.org/x/sys/unix"

	"runsc/sentry/image"
	"runsc/sentry/mem"
)

// HostBacked is implemented by inodes whose contents are a file of the host
// now, which others may change between a checkpoint and a restore.
type HostBacked interface{ HostBacked() bool }

// ReopenSaver is implemented by FileOps that come back by opening the path
// again, and then need to be told something.
type ReopenSaver interface {
	FileOps
	// SaveReopened writes a record with the number if there is anything to
	// tell; kind 0 if there is not.
	SaveReopened(e *SaveEnv, id image.ID) (image.Kind, error)
	// RestoreReopened reads it.
	RestoreReopened(e *RestoreEnv, ref image.Ref) error
}

// PathBound is implemented by FileOps that have a record and need to know
// what their path leads to.
type PathBound interface {
	FileOps
	BindPath(p Path) error
}

// SaveFile saves an open file description once.
func SaveFile(e *SaveEnv, f *File) (image.ID, error) {
	id, fresh := e.ID(f)
	if !fresh {
		return id, nil
	}
	e.files = append(e.files, f)
	rec := image.File{ID: id, Flags: f.flags.Load(), Offset: f.off.Load(), Regular: f.mode&fileRegular != 0}
	o := f.Owner()
	rec.OwnerType, rec.OwnerPID, rec.Signal, rec.OwnerUID, rec.OwnerEUID = o.Type, o.PID, o.Signal, o.UID, o.EUID
	f.saveUse(&rec)
	if err := f.saveOps(e, &rec); err != nil {
		return 0, err
	}
	var err error
	if rec.Path, err = SavePath(e, f.path); err != nil {
		return 0, fmt.Errorf("%s: %w", f.describe(), err)
	}
	if err := f.saveHost(e, &rec); err != nil {
		return 0, err
	}
	return id, e.Put(image.KindFile, &rec)
}

// saveUse records what others may notice of the file.
func (f *File) saveUse(rec *image.File) {
	f.mu.Lock()
	rec.Program = f.program
	if f.async != nil {
		rec.Async, rec.AsyncFD = true, f.async.fd
	}
	f.mu.Unlock()
	if fd, mask := f.notified(); mask != 0 {
		rec.Notify, rec.NotifyFD = mask, fd
	}
	inUse.mu.Lock()
	defer inUse.mu.Unlock()
	if l := f.leaseLocked(); l != nil {
		rec.Lease, rec.LeaseFD = 1, l.fd
		if l.write {
			rec.Lease = 2
		}
		if l.breaking {
			rec.LeaseBreak = 1 + uint8(l.target)
		}
	}
}

// restoreUse brings it back.
func (f *File) restoreUse(e *RestoreEnv, rec *image.File) error {
	if e.SignalTarget != nil && rec.OwnerPID != 0 {
		f.owner.Target = e.SignalTarget(rec.OwnerType, rec.OwnerPID)
	}
	if rec.Program {
		if err := beginProgram(f.Inode()); err != nil {
			return err
		}
		f.program = true
	}
	if rec.Lease != 0 && f.mode&fileRegular != 0 {
		l := &lease{file: f, fd: rec.LeaseFD, write: rec.Lease == 2}
		if rec.LeaseBreak != 0 {
			l.breaking, l.target = true, unix.F_RDLCK
			if rec.LeaseBreak == 1+unix.F_UNLCK {
				l.target = unix.F_UNLCK
			}
			l.deadline = e.Caller.RealTime() + LeaseBreakTime.Load()*1e9
		}
		inUse.mu.Lock()
		u := useLocked(f.Inode())
		u.leases = append(u.leases, l)
		inUse.leases.Add(1)
		inUse.mu.Unlock()
	}
	if rec.Notify != 0 {
		if err := f.Notify(rec.NotifyFD, rec.Notify); err != nil {
			return err
		}
	}
	if rec.Async {
		f.SetAsync(rec.AsyncFD, true)
	}
	return nil
}

// saveOps saves the file system's part, if opening the path again would not
// bring it back.
func (f *File) saveOps(e *SaveEnv, rec *image.File) (err error) {
	if _, ok := f.ops.(StateSaver); ok {
		rec.Ops, err = e.Save(f.ops)
		return err
	}
	if f.IsPath() {
		return nil
	}
	if _, ok := f.Inode().(StateSaver); f.path.Dentry.sb.anon != nil && !(ok && f.mode&fileRegular != 0) {
		return fmt.Errorf("%s cannot be saved yet", f.describe())
	}
	if r, ok := f.ops.(ReopenSaver); ok {
		id, _ := e.ID(r)
		kind, err := r.SaveReopened(e, id)
		if kind != 0 {
			rec.Extra = image.Ref{Kind: kind, ID: id}
		}
		return err
	}
	return nil
}

// saveHost records what a file of the host keeps, or has to be.
func (f *File) saveHost(e *SaveEnv, rec *image.File) error {
	if n, ok := f.Inode().(Numbered); ok {
		rec.Ino = n.Number()
	}
	h, ok := f.Inode().(HostBacked)
	if !e.Validate || !ok || !h.HostBacked() || f.mode&fileRegular == 0 {
		return nil
	}
	st, err := f.Inode().Stat(e.Caller, unix.STATX_SIZE|unix.STATX_MTIME)
	if err != nil {
		return fmt.Errorf("%s: %w", f.describe(), err)
	}
	rec.Check, rec.Size, rec.Mtime = true, st.Size, TimeRecord(st.Mtime)
	return nil
}

// describe names f for a message.
func (f *File) describe() string {
	name, _ := f.path.Resolve(Path{})
	if f.path.Dentry.sb.anon == nil {
		return fmt.Sprintf("file %q", name)
	}
	if st, err := f.Inode().Stat(nil, 0); err == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK {
		return fmt.Sprintf("socket %q", name)
	}
	return fmt.Sprintf("%q", name)
}

// RestoreFile returns a new reference to an open file description.
func RestoreFile(e *RestoreEnv, id image.ID) (*File, error) {
	f, err := once(e, id, func() (*File, error) {
		var rec image.File
		if err := e.Get(image.KindFile, id, &rec); err != nil {
			return nil, err
		}
		f, err := restoreFile(e, &rec)
		if err == nil {
			e.Hold(id, f.DecRef)
		}
		return f, err
	})
	if err == nil {
		f.IncRef()
	}
	return f, err
}

func restoreFile(e *RestoreEnv, rec *image.File) (*File, error) {
	p, err := RestorePath(e, rec.Path)
	if err != nil {
		return nil, err
	}
	if !p.Ok() || p.Inode() == nil {
		return nil, fmt.Errorf("open file %d of the image has no path", rec.ID)
	}
	if n, ok := p.Inode().(Numbered); ok && rec.Ino != 0 {
		n.KeepNumber(rec.Ino)
	}
	name, _ := p.Resolve(Path{})
	if err := checkHost(e, p, name, rec); err != nil {
		p.DecRef()
		return nil, err
	}
	var ops FileOps
	switch {
	case rec.Flags&unix.O_PATH != 0 && rec.Ops.Kind != image.KindMountFile:
		ops = pathOps{}
	case rec.Ops.ID != 0:
		if ops, err = e.takeOps(rec.Ops); err == nil {
			if b, ok := ops.(PathBound); ok {
				err = b.BindPath(p)
			}
			if err != nil {
				ops.Release()
			}
		}
	default:
		if ops, err = reopen(e.Caller, p, rec.Flags); err == nil && rec.Extra.ID != 0 {
			if r, ok := ops.(ReopenSaver); ok {
				err = r.RestoreReopened(e, rec.Extra)
			}
			if err != nil {
				ops.Release()
			}
		}
	}
	if err != nil {
		p.DecRef()
		return nil, fmt.Errorf("cannot open %q again: %w", name, err)
	}
	f := NewFile(p, ops, rec.Flags)
	f.off.Store(rec.Offset)
	f.owner = FileOwner{Type: rec.OwnerType, PID: rec.OwnerPID, Signal: rec.Signal, UID: rec.OwnerUID, EUID: rec.OwnerEUID}
	if rec.Regular && f.mode&filePath == 0 {
		f.mode |= fileRegular
		if f.mode&fileWrite != 0 && p.Dentry.sb.anon == nil {
			if err := beginWrite(p.Inode()); err != nil {
				f.DecRef()
				return nil, fmt.Errorf("cannot open %q again: %w", name, err)
			}
			f.mode |= fileWriter
			p.Mount.writers.Add(1)
		}
	}
	if err := f.restoreUse(e, rec); err != nil {
		f.DecRef()
		return nil, fmt.Errorf("cannot open %q again: %w", name, err)
	}
	return f, nil
}

// takeOps returns the operations of one description. Those of two are an error
// but for values, which have no state.
func (e *RestoreEnv) takeOps(ref image.Ref) (FileOps, error) {
	if e.taken == nil {
		e.taken = map[image.ID]bool{}
	}
	ops, err := Restored[FileOps](e, ref)
	if err != nil {
		return nil, err
	}
	if e.taken[ref.ID] {
		return nil, fmt.Errorf("two open files of the image share object %d", ref.ID)
	}
	e.taken[ref.ID] = true
	return ops, nil
}

// DropOps releases operations that were made for a description which never
// came.
func (e *RestoreEnv) DropOps(ref image.Ref) {
	if ops, ok := image.Object[FileOps](e.Restorer, ref.ID); ok && !e.taken[ref.ID] {
		if e.taken == nil {
			e.taken = map[image.ID]bool{}
		}
		e.taken[ref.ID] = true
		ops.Release()
	}
}

// reopen opens what is at p as it was open: permissions were checked then.
func reopen(c Caller, p Path, flags uint32) (FileOps, error) {
	st, err := p.Inode().Stat(c, 0)
	if _, late := p.Dentry.sb.fs.(LateLooker); late && (err == unix.ENOENT || err == unix.ESRCH) {
		return p.Inode().Open(c, p.Dentry, flags)
	}
	if err != nil {
		return nil, err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFDIR, 0:
		return p.Inode().Open(c, p.Dentry, flags)
	case unix.S_IFCHR, unix.S_IFBLK:
		return openSpecial(c, p.Dentry, &st, flags)
	}
	if r, ok := p.Inode().(Reopener); ok {
		return r.Reopen(c, flags)
	}
	return nil, unix.ENXIO
}

// checkHost compares a file of the host with what the image demands.
func checkHost(e *RestoreEnv, p Path, name string, rec *image.File) error {
	if !e.Validate || !rec.Check {
		return nil
	}
	st, err := p.Inode().Stat(e.Caller, unix.STATX_SIZE|unix.STATX_MTIME)
	switch {
	case err != nil:
		return fmt.Errorf("%q: %w", name, err)
	case st.Size != rec.Size:
		return fmt.Errorf("%q has changed since the checkpoint: its size is %d, not %d", name, st.Size, rec.Size)
	case st.Mtime != RestoredTime(rec.Mtime):
		return fmt.Errorf("%q has changed since the checkpoint: its mtime is %d.%09d, not %d.%09d", name,
			st.Mtime.Sec, st.Mtime.Nsec, rec.Mtime.Sec, rec.Mtime.Nsec)
	}
	return nil
}

// MappedFile is implemented by what an open file gives to mmap(2).
type MappedFile interface {
	// File borrows the description that was mapped.
	File() *File
}

// SaveMappable saves the open file description behind a mapping.
func SaveMappable(e *SaveEnv, m mem.Mappable) (image.ID, error) {
	f, ok := m.(MappedFile)
	if !ok || f.File() == nil {
		name, _, _ := m.MapName()
		return 0, fmt.Errorf("the mapping of %q cannot be saved yet", name)
	}
	return SaveFile(e, f.File())
}

// RestoreMappable returns a new reference to what a file gives to mmap(2).
func RestoreMappable(e *RestoreEnv, id image.ID) (mem.Mappable, error) {
	if m := e.mappables[id]; m != nil {
		m.IncRef()
		return m, nil
	}
	f, err := RestoreFile(e, id)
	if err != nil {
		return nil, err
	}
	m, err := f.Mappable(e.Caller)
	if err != nil {
		name, _ := f.path.Resolve(Path{})
		f.DecRef()
		return nil, fmt.Errorf("cannot map %q again: %w", name, err)
	}
	if e.mappables == nil {
		e.mappables = map[image.ID]mem.Mappable{}
	}
	e.mappables[id] = m
	return m, nil // the reference to f is m's
}

// SaveFDTable saves a table of descriptors once.
func SaveFDTable(e *SaveEnv, t *FDTable) (image.ID, error) {
	id, fresh := e.ID(t)
	if !fresh {
		return id, nil
	}
	e.tables = append(e.tables, t)
	rec := image.FDTable{ID: id}
	var err error
	t.Each(func(fd int32, f *File, cloexec bool) {
		if err != nil {
			return
		}
		var file image.ID
		if file, err = SaveFile(e, f); err != nil {
			err = fmt.Errorf("fd %d: %w", fd, err)
			return
		}
		rec.FDs = append(rec.FDs, image.FD{FD: fd, File: file, Cloexec: cloexec})
	})
	if err != nil {
		return 0, err
	}
	return id, e.Put(image.KindFDTable, &rec)
}

// RestoreFDTable returns a new reference to a table of descriptors.
func RestoreFDTable(e *RestoreEnv, id image.ID) (*FDTable, error) {
	t, err := once(e, id, func() (*FDTable, error) {
		var rec image.FDTable
		if err := e.Get(image.KindFDTable, id, &rec); err != nil {
			return nil, err
		}
		t := NewFDTable()
		e.Cleanup(func() { t.DecRef(e.Caller) })
		for _, x := range rec.FDs {
			if x.FD < 0 || x.FD >= maxFDs {
				return nil, fmt.Errorf("the image has a descriptor %d", x.FD)
			}
			f, err := RestoreFile(e, x.File)
			if err != nil {
				return nil, fmt.Errorf("fd %d: %w", x.FD, err)
			}
			t.mu.Lock()
			old := t.setLocked(x.FD, f, x.Cloexec)
			t.mu.Unlock()
			if old != nil {
				old.DecRef()
				return nil, fmt.Errorf("the image has descriptor %d twice", x.FD)
			}
		}
		return t, nil
	})
	if err == nil {
		t.IncRef()
	}
	return t, err
}

// SaveFSContext saves root, working directory and umask once.
func SaveFSContext(e *SaveEnv, f *FSContext) (image.ID, error) {
	id, fresh := e.ID(f)
	if !fresh {
		return id, nil
	}
	root, cwd := f.Root(), f.Cwd()
	defer root.DecRef()
	defer cwd.DecRef()
	rec := image.FSContext{ID: id, Umask: f.Umask()}
	var err error
	if rec.Root, err = SavePath(e, root); err != nil {
		return 0, fmt.Errorf("root directory: %w", err)
	}
	if rec.Cwd, err = SavePath(e, cwd); err != nil {
		return 0, fmt.Errorf("working directory: %w", err)
	}
	return id, e.Put(image.KindFSContext, &rec)
}

// RestoreFSContext returns a new reference to root, working directory and
// umask.
func RestoreFSContext(e *RestoreEnv, id image.ID) (*FSContext, error) {
	f, err := once(e, id, func() (*FSContext, error) {
		var rec image.FSContext
		if err := e.Get(image.KindFSContext, id, &rec); err != nil {
			return nil, err
		}
		root, err := restoreDir(e, rec.Root)
		if err != nil {
			return nil, fmt.Errorf("root directory: %w", err)
		}
		defer root.DecRef()
		cwd, err := restoreDir(e, rec.Cwd)
		if err != nil {
			return nil, fmt.Errorf("working directory: %w", err)
		}
		defer cwd.DecRef()
		f := NewFSContext(root, cwd, rec.Umask)
		e.Cleanup(f.DecRef)
		return f, nil
	})
	if err == nil {
		f.IncRef()
	}
	return f, err
}

// restoreDir is RestorePath for a directory.
func restoreDir(e *RestoreEnv, rec image.Path) (Path, error) {
	p, err := RestorePath(e, rec)
	if err == nil && (!p.Ok() || !p.Dentry.IsDir()) {
		p.DecRef()
		err = unix.ENOTDIR
	}
	return p, err
}
