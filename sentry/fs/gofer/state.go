package gofer

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"runsc/sentry/image"
	"runsc/sentry/vfs"
)

// StateKind implements vfs.StateSaver.
func (fs *Filesystem) StateKind() image.Kind { return image.KindGofer }

// SaveState implements vfs.StateSaver: of the host's files nothing but where
// they are mounted. The host is not asked.
func (fs *Filesystem) SaveState(e *vfs.SaveEnv, id image.ID) error {
	if fs.destination == "" {
		return fmt.Errorf("the tree of the host's files is of no mount of the specification")
	}
	return e.Put(image.KindGofer, &image.Gofer{ID: id, Destination: fs.destination, Dev: fs.root.base().number().Dev})
}

// number returns the device and inode numbers.
func (i *inode) number() vfs.Stat {
	i.mu.Lock()
	defer i.mu.Unlock()
	return vfs.Stat{Dev: i.guest.Dev, Ino: i.guest.Ino}
}

// Number implements vfs.Numbered.
func (i *inode) Number() uint64 { return i.number().Ino }

// KeepNumber implements vfs.Numbered.
func (i *inode) KeepNumber(ino uint64) {
	i.mu.Lock()
	i.guest.Ino = ino
	i.mu.Unlock()
}

// HostBacked implements vfs.HostBacked.
func (i *inode) HostBacked() bool { return true }

// Node implements vfs.Noder: all mounts of a host file are one file to those
// who rendezvous at it.
func (i *inode) Node() any { return i.key }

// names returns the way from the root; false for a file without a name.
func (i *inode) names() (string, bool) {
	var parts []string
	var held *inode
	defer func() {
		if held != nil {
			held.DecRef()
		}
	}()
	for at := i; at != i.fs.root.base(); {
		parent, name := at.place()
		if parent == nil {
			return "", false
		}
		parts = append(parts, name)
		if held != nil {
			held.DecRef()
		}
		at, held = parent, parent
	}
	slices.Reverse(parts)
	return strings.Join(parts, "/"), true
}

// stillNamed is names for an inode that is referred to other than by a path:
// on a shared mount the host may have deleted the file, which its open
// descriptor tells.
func (i *inode) stillNamed() (string, bool) {
	names, ok := i.names()
	if !ok || i.fs.exclusive {
		return names, ok
	}
	if h := i.fs.client.fds.getAny(i); h != nil {
		defer i.fs.put(h)
		var st unix.Stat_t
		if unix.Fstat(h.fd, &st) == nil && st.Nlink == 0 {
			return "", false
		}
	}
	return names, true
}

// StateKind implements vfs.StateSaver: a file without a name is carried along
// as one in memory.
func (i *inode) StateKind() image.Kind {
	if _, ok := i.stillNamed(); ok {
		return image.KindGoferInode
	}
	return image.KindTmpfsInode
}

// SaveState implements vfs.StateSaver.
func (i *inode) SaveState(e *vfs.SaveEnv, id image.ID) error {
	names, ok := i.stillNamed()
	if !ok {
		return i.carry(e, id)
	}
	fs, err := e.Save(i.fs)
	if err != nil {
		return err
	}
	return e.Put(image.KindGoferInode, &image.GoferInode{ID: id, FS: fs.ID, Names: names, Ino: i.Number(), Mode: i.typ})
}

// carryKey stands for the file system in memory that takes the files without
// a name.
type carryKey struct{ fs *Filesystem }

// maxCarried bounds the size of a file that an image takes along.
const maxCarried = 1 << 30

// carry writes the file as one of a tmpfs.
func (i *inode) carry(e *vfs.SaveEnv, id image.ID) error {
	tmpfs, err := i.fs.carrier(e)
	if err != nil {
		return err
	}
	st, err := i.Stat(e.Caller, unix.STATX_BASIC_STATS)
	if err != nil {
		return err
	}
	rec := image.TmpfsInode{
		ID: id, FS: tmpfs, Ino: st.Ino, Mode: st.Mode, UID: st.UID, GID: st.GID, Rdev: st.Rdev,
		Atime: vfs.TimeRecord(st.Atime), Mtime: vfs.TimeRecord(st.Mtime),
		Ctime: vfs.TimeRecord(st.Ctime), Btime: vfs.TimeRecord(st.Btime),
	}
	switch o := i.self.(type) {
	case *dir:
		rec.Removed = true
	case *symlink:
		if rec.Target, err = o.Readlink(e.Caller); err != nil {
			return err
		}
	case *regular:
		rec.Size, rec.Seals = int64(st.Size), unix.F_SEAL_SEAL
		if rec.Data, err = i.carryData(e, rec.Size); err != nil {
			return err
		}
	}
	if x, ok := i.self.(vfs.Xattrer); ok {
		names, _ := x.Listxattr(e.Caller) // not every host file system has any
		slices.Sort(names)
		for _, name := range names {
			if v, err := x.Getxattr(e.Caller, name); err == nil {
				rec.Xattrs = append(rec.Xattrs, image.Xattr{Name: name, Value: v})
			}
		}
	}
	return e.Put(image.KindTmpfsInode, &rec)
}

// carryData writes the bytes but for pieces of zeros.
func (i *inode) carryData(e *vfs.SaveEnv, size int64) ([]image.ID, error) {
	if size > maxCarried {
		return nil, fmt.Errorf("an image can take along %d bytes of an unlinked file, this one has %d", maxCarried, size)
	}
	h, err := i.open(forRead)
	if err != nil {
		return nil, err
	}
	defer i.fs.put(h)
	const piece = 1 << 20
	buf := make([]byte, min(piece, size))
	zero := make([]byte, len(buf))
	var ids []image.ID
	for off := int64(0); off < size; off += piece {
		n, err := pread(h.fd, buf[:min(piece, size-off)], off)
		if err != nil {
			return nil, err
		}
		if bytes.Equal(buf[:n], zero[:n]) {
			continue
		}
		id, _ := e.ID(&image.FileData{}) // a number of its own
		if err := e.Put(image.KindFileData, &image.FileData{ID: id, Offset: off, Data: buf[:n]}); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// carrier writes the record of the tmpfs for files without a name, once.
func (fs *Filesystem) carrier(e *vfs.SaveEnv) (image.ID, error) {
	id, fresh := e.ID(carryKey{fs})
	if !fresh {
		return id, nil
	}
	root, _ := e.ID(&image.TmpfsInode{})
	if err := e.Put(image.KindTmpfsInode, &image.TmpfsInode{ID: root, FS: id, Ino: 1, Mode: unix.S_IFDIR | 0o700}); err != nil {
		return 0, err
	}
	return id, e.Put(image.KindTmpfs, &image.Tmpfs{
		ID: id, Source: "none", Dev: fs.root.base().number().Dev, SharedDev: true, LastIno: 1, Root: root, Inodes: []image.ID{root},
	})
}

func init() {
	vfs.RegisterState(image.KindGofer, func(e *vfs.RestoreEnv, id image.ID) (any, error) {
		var rec image.Gofer
		if err := e.Get(image.KindGofer, id, &rec); err != nil {
			return nil, err
		}
		x, err := e.HostFS(rec.Destination)
		if err != nil {
			return nil, fmt.Errorf("mount at %q: %w", rec.Destination, err)
		}
		fs, ok := x.(*Filesystem)
		if !ok {
			x.Release()
			return nil, fmt.Errorf("mount at %q: it was a tree of the host, now it is a %s", rec.Destination, x.Type())
		}
		fs.keepDev(e, rec.Dev)
		return fs, nil
	})
	vfs.RegisterState(image.KindGoferInode, func(e *vfs.RestoreEnv, id image.ID) (any, error) {
		var rec image.GoferInode
		if err := e.Get(image.KindGoferInode, id, &rec); err != nil {
			return nil, err
		}
		return restoreInode(e, &rec)
	})
}

// keepDev gives the root's device its saved number, if the device was not
// known before this file system was made: nobody has seen its number then.
func (fs *Filesystem) keepDev(e *vfs.RestoreEnv, saved uint64) {
	i := fs.root.base()
	if !fs.client.numbers.rename(i.dev, func() uint64 { return e.KeepDev(saved) }) {
		e.SetDev(saved, i.dev.guest)
		return
	}
	i.mu.Lock()
	i.guest.Dev = i.dev.guest
	i.mu.Unlock()
}

// used counts a file system on a device.
func (n *Numbers) used(d *device) {
	n.mu.Lock()
	d.users++
	n.mu.Unlock()
}

// rename gives a device that only one file system is on, and that has been
// looked up once, another number.
func (n *Numbers) rename(d *device, number func() uint64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if d.users != 1 || d.kept {
		return false
	}
	d.guest, d.kept = number(), true
	return true
}

// restoreInode finds a file by its names.
func restoreInode(e *vfs.RestoreEnv, rec *image.GoferInode) (object, error) {
	fs, err := vfs.Restored[*Filesystem](e, image.Ref{Kind: image.KindGofer, ID: rec.FS})
	if err != nil {
		return nil, err
	}
	o := fs.Root().(object)
	for rest, more := rec.Names, rec.Names != ""; more; {
		var name string
		name, rest, more = strings.Cut(rest, "/")
		d, ok := o.(*dir)
		err := error(unix.ENOTDIR)
		var next vfs.Inode
		if ok {
			if name == "" || name == "." || name == ".." || len(name) > 255 {
				err = unix.EINVAL
			} else {
				next, err = d.Lookup(e.Caller, name)
			}
		}
		o.DecRef()
		if err != nil {
			return nil, fmt.Errorf("mount at %q: cannot find %q again: %w", fs.destination, "/"+rec.Names, err)
		}
		o = next.(object)
	}
	e.Hold(rec.ID, o.DecRef)
	i := o.base()
	if i.typ != rec.Mode&unix.S_IFMT {
		return nil, fmt.Errorf("mount at %q: %q is of another type now", fs.destination, "/"+rec.Names)
	}
	if rec.Ino != 0 {
		i.KeepNumber(rec.Ino)
	}
	return o, nil
}
