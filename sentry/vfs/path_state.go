package vfs

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"runsc/sentry/image"
)

// SavePath returns the record of a place, and saves the mount.
func SavePath(e *SaveEnv, p Path) (image.Path, error) {
	if p.Dentry == nil {
		return image.Path{}, nil
	}
	if p.Dentry.sb.anon != nil {
		ref, err := e.Save(p.Dentry.inode)
		return image.Path{Name: p.Dentry.Name(), Inode: ref}, err
	}
	rec, err := saveDentry(e, p.Dentry)
	if err != nil {
		return rec, err
	}
	rec.Mount, err = saveMount(e, p.Mount)
	return rec, err
}

// saveDentry returns the record of a dentry within its file system.
func saveDentry(e *SaveEnv, d *Dentry) (image.Path, error) {
	names, ok := d.namesFromRoot()
	if ok {
		return image.Path{Names: names, Dir: d.IsDir()}, nil
	}
	id, err := saveUnlinked(e, d)
	return image.Path{Dentry: id}, err
}

// namesFromRoot returns the way from the root of the file system; false if
// some name on it does not exist any more.
func (d *Dentry) namesFromRoot() (string, bool) {
	d.sb.nameMu.RLock()
	defer d.sb.nameMu.RUnlock()
	var parts []string
	for ; d != d.sb.root; d = d.parent.Load() {
		if d == nil || d.Unlinked() {
			return "", false
		}
		parts = append(parts, d.name)
	}
	for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
		parts[i], parts[j] = parts[j], parts[i]
	}
	return strings.Join(parts, "/"), true
}

// saveUnlinked saves a dentry that no walk finds, and the directories above
// that are gone too.
func saveUnlinked(e *SaveEnv, d *Dentry) (image.ID, error) {
	id, fresh := e.ID(d)
	if !fresh {
		return id, nil
	}
	name, parent := d.nameAndParent()
	state := d.state.Load()
	rec := image.Dentry{ID: id, Name: name, Dead: state&dentryDead != 0, Linkable: state&dentryLinkable != 0}
	if d.inode == nil || parent == nil {
		return 0, fmt.Errorf("%q is nowhere", name)
	}
	up, err := saveDentry(e, parent)
	if err != nil {
		return 0, err
	}
	rec.Parent, rec.ParentNames = up.Dentry, up.Names
	if rec.Superblock, err = saveSuperblock(e, d.sb); err != nil {
		return 0, err
	}
	if rec.Inode, err = e.Save(d.inode); err != nil {
		return 0, fmt.Errorf("%q, which has no name any more: %w", name, err)
	}
	return id, e.Put(image.KindDentry, &rec)
}

// RestorePath returns a new reference to a place; the zero Path for the zero
// record.
func RestorePath(e *RestoreEnv, rec image.Path) (Path, error) {
	switch {
	case rec.Mount != 0:
		m, err := restoreMount(e, rec.Mount)
		if err != nil {
			return Path{}, err
		}
		d, err := restoreDentry(e, m.sb, rec)
		if err != nil {
			return Path{}, err
		}
		m.IncRef()
		return Path{m, d}, nil
	case rec.Inode.ID != 0:
		i, err := e.RestoreInode(rec.Inode)
		if err != nil {
			return Path{}, err
		}
		return NewPseudoPath(rec.Name, i), nil
	}
	return Path{}, nil
}

// restoreDentry returns a new reference to a dentry of sb.
func restoreDentry(e *RestoreEnv, sb *Superblock, rec image.Path) (*Dentry, error) {
	if rec.Dentry != 0 {
		d, err := restoreUnlinked(e, rec.Dentry)
		if err != nil {
			return nil, err
		}
		if d.sb != sb {
			return nil, fmt.Errorf("name %d of the image is of another file system", rec.Dentry)
		}
		d.IncRef()
		return d, nil
	}
	return e.find(sb, rec.Names, rec.Dir)
}

// LateLooker is implemented by file systems with names that appear only when
// the restore is complete: those of processes.
type LateLooker interface {
	// Late returns an inode for a name of a directory inode of this file
	// system that is to be looked up when it is used.
	Late(dir Inode, name string, isDir bool) Inode
}

// find walks from the root of a file system, over no mounts and links.
func (e *RestoreEnv) find(sb *Superblock, names string, isDir bool) (*Dentry, error) {
	d := sb.root
	d.IncRef()
	for rest, more := names, names != ""; more; {
		var name string
		name, rest, more = strings.Cut(rest, "/")
		ch, err := e.child(sb, d, name, more || isDir)
		d.DecRef()
		if err != nil {
			return nil, fmt.Errorf("cannot find %q again: %w", "/"+names, err)
		}
		d = ch
	}
	return d, nil
}

func (e *RestoreEnv) child(sb *Superblock, d *Dentry, name string, isDir bool) (*Dentry, error) {
	switch {
	case name == "" || name == "." || name == "..":
		return nil, unix.EINVAL
	case len(name) > nameMax:
		return nil, unix.ENAMETOOLONG
	case !d.IsDir():
		return nil, unix.ENOTDIR
	}
	ch, err := d.lookup(e.Caller, name)
	if ch != nil || err != nil && err != unix.ESRCH {
		return ch, err
	}
	if l, ok := sb.fs.(LateLooker); ok {
		d.dirMu.Lock()
		defer d.dirMu.Unlock()
		if i := l.Late(d.inode, name, isDir); i != nil {
			return d.instantiate(name, i), nil
		}
	}
	return nil, unix.ENOENT
}

// restoreUnlinked borrows a dentry without a name.
func restoreUnlinked(e *RestoreEnv, id image.ID) (*Dentry, error) {
	return once(e, id, func() (*Dentry, error) {
		var rec image.Dentry
		if err := e.Get(image.KindDentry, id, &rec); err != nil {
			return nil, err
		}
		sb, err := restoreSuperblock(e, rec.Superblock)
		if err != nil {
			return nil, err
		}
		parent, err := restoreDentry(e, sb, image.Path{Names: rec.ParentNames, Dentry: rec.Parent, Dir: true})
		if err != nil {
			return nil, err
		}
		defer parent.DecRef()
		if !parent.IsDir() || len(rec.Name) > nameMax || strings.Contains(rec.Name, "/") {
			return nil, fmt.Errorf("name %d of the image is none", id)
		}
		inode, err := e.RestoreInode(rec.Inode)
		if err != nil {
			return nil, err
		}
		d := newDentry(sb, parent, rec.Name, inode)
		d.state.Or(dentryUnhashed)
		if rec.Dead {
			d.state.Or(dentryDead)
		}
		if rec.Linkable {
			d.state.Or(dentryLinkable)
		}
		e.Hold(id, d.DecRef)
		return d, nil
	})
}
