package pseudo

import (
	"bytes"
	"fmt"
	"sort"

	"golang.org/x/sys/unix"

	"runsc/sentry/image"
	"runsc/sentry/vfs"
)

// StateKind implements vfs.StateSaver.
func (fs *FS) StateKind() image.Kind { return image.KindPseudo }

// SaveState implements vfs.StateSaver: the files are computed again.
func (fs *FS) SaveState(e *vfs.SaveEnv, id image.ID) error {
	rec := image.Pseudo{ID: id, Type: fs.o.Type, Source: fs.o.Source, Options: fs.o.MountOptions, Dev: fs.dev}
	if fs.o.Settings != nil {
		for name, v := range fs.o.Settings.Values() {
			rec.Values = append(rec.Values, image.NamedValue{Name: name, Value: v})
		}
		sort.Slice(rec.Values, func(i, j int) bool { return rec.Values[i].Name < rec.Values[j].Name })
	}
	return e.Put(image.KindPseudo, &rec)
}

func init() {
	vfs.RegisterState(image.KindPseudo, func(e *vfs.RestoreEnv, id image.ID) (any, error) {
		var rec image.Pseudo
		if err := e.Get(image.KindPseudo, id, &rec); err != nil {
			return nil, err
		}
		x, err := e.NewFS(rec.Type, rec.Source, rec.Options)
		if err != nil {
			return nil, fmt.Errorf("file system of type %.100q: %w", rec.Type, err)
		}
		fs, ok := x.(*FS)
		if !ok {
			x.Release()
			return nil, fmt.Errorf("file system of type %.100q is not computed", rec.Type)
		}
		for _, v := range rec.Values {
			if fs.o.Settings == nil {
				err = unix.ENOENT
			} else {
				err = fs.o.Settings.SetValue(v.Name, v.Value)
			}
			if err != nil {
				fs.Release()
				return nil, fmt.Errorf("setting %.100q of a file system of type %.100q: %w", v.Name, rec.Type, err)
			}
		}
		fs.dev = e.KeepDev(rec.Dev) // nobody has seen it yet
		return fs, nil
	})
}

// Late implements vfs.LateLooker: while tasks are being restored, a name that
// is not there yet is that of a process, or of something in its directory. It
// is looked up each time that it is used.
func (fs *FS) Late(dir vfs.Inode, name string, isDir bool) vfs.Inode {
	d, ok := dir.(*dirInode)
	if p, permits := dir.(*permitDirInode); permits {
		d, ok = &p.dirInode, true
	}
	if !ok || d.fs != fs {
		return nil
	}
	l := late{d.dir, name}
	ino := childIno(d.ino, name)
	if isDir {
		return fs.inode(nil, lateDir{l}, ino, d.ino)
	}
	return fs.inode(nil, lateFile{l}, ino, d.ino)
}

// late is a name in a directory.
type late struct {
	dir  Dir
	name string
}

func (l late) node(c vfs.Caller) (Node, error) { return l.dir.Lookup(c, l.name) }

// Info implements Node.
func (l late) Info(c vfs.Caller) (Info, error) {
	n, err := l.node(c)
	if err != nil {
		return Info{}, err
	}
	return n.Info(c)
}

// lateDir is a late directory.
type lateDir struct{ late }

// Lookup implements Dir.
func (l lateDir) Lookup(c vfs.Caller, name string) (Node, error) {
	n, err := l.node(c)
	if err != nil {
		return nil, err
	}
	d, ok := n.(Dir)
	if !ok {
		return nil, unix.ENOTDIR
	}
	return d.Lookup(c, name)
}

// Each implements Dir.
func (l lateDir) Each(c vfs.Caller, pos int64, emit func(name string, typ uint8, next int64) bool) error {
	n, err := l.node(c)
	if err != nil {
		return err
	}
	d, ok := n.(Dir)
	if !ok {
		return unix.ENOTDIR
	}
	return d.Each(c, pos, emit)
}

// lateFile is a late file.
type lateFile struct{ late }

// Read implements Reader.
func (l lateFile) Read(c vfs.Caller, b *bytes.Buffer) error {
	n, err := l.node(c)
	if err != nil {
		return err
	}
	if r, ok := n.(Reader); ok {
		return r.Read(c, b)
	}
	return unix.EIO
}

// Write implements Writer.
func (l lateFile) Write(c vfs.Caller, data []byte) (int, error) {
	n, err := l.node(c)
	if err != nil {
		return 0, err
	}
	if w, ok := n.(Writer); ok {
		return w.Write(c, data)
	}
	return 0, unix.EIO
}
