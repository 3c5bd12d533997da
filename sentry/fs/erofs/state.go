package erofs

import (
	"fmt"

	"runsc/sentry/image"
	"runsc/sentry/vfs"
)

// StateKind implements vfs.StateSaver.
func (fs *FS) StateKind() image.Kind { return image.KindErofs }

// SaveState implements vfs.StateSaver: the file system is not in the image,
// only which one it is.
func (fs *FS) SaveState(e *vfs.SaveEnv, id image.ID) error {
	return e.Put(image.KindErofs, &image.Erofs{ID: id, Destination: fs.o.Destination, Identity: fs.identity(), Dev: fs.dev})
}

// StateKind implements vfs.StateSaver.
func (i *inode) StateKind() image.Kind { return image.KindErofsInode }

// SaveState implements vfs.StateSaver.
func (i *inode) SaveState(e *vfs.SaveEnv, id image.ID) error {
	fs, err := e.Save(i.fs)
	if err != nil {
		return err
	}
	return e.Put(image.KindErofsInode, &image.ErofsInode{ID: id, FS: fs.ID, Nid: i.a.nid})
}

func init() {
	vfs.RegisterState(image.KindErofs, func(e *vfs.RestoreEnv, id image.ID) (any, error) {
		var rec image.Erofs
		if err := e.Get(image.KindErofs, id, &rec); err != nil {
			return nil, err
		}
		x, err := e.HostFS(rec.Destination)
		if err != nil {
			return nil, fmt.Errorf("mount at %q: %w", rec.Destination, err)
		}
		fs, ok := x.(*FS)
		if !ok {
			x.Release()
			return nil, fmt.Errorf("mount at %q: it was an EROFS image, now it is a %s", rec.Destination, x.Type())
		}
		if fs.identity() != rec.Identity {
			fs.Release()
			return nil, fmt.Errorf("mount at %q: it is not the EROFS image that the container was saved with", rec.Destination)
		}
		fs.dev = e.KeepDev(rec.Dev) // nobody has seen it yet
		return fs, nil
	})
	vfs.RegisterState(image.KindErofsInode, func(e *vfs.RestoreEnv, id image.ID) (any, error) {
		var rec image.ErofsInode
		if err := e.Get(image.KindErofsInode, id, &rec); err != nil {
			return nil, err
		}
		fs, err := vfs.Restored[*FS](e, image.Ref{Kind: image.KindErofs, ID: rec.FS})
		if err != nil {
			return nil, err
		}
		i, err := fs.get(rec.Nid)
		if err != nil {
			return nil, fmt.Errorf("mount at %q: inode %d: %w", fs.o.Destination, rec.Nid, err)
		}
		e.Cleanup(i.DecRef)
		return i, nil
	})
}
