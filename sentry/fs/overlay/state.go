package overlay

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"runsc/sentry/image"
	"runsc/sentry/vfs"
)

// StateKind implements vfs.StateSaver.
func (fs *FS) StateKind() image.Kind { return image.KindOverlay }

// SaveState implements vfs.StateSaver: an overlay is its layers.
func (fs *FS) SaveState(e *vfs.SaveEnv, id image.ID) error {
	rec := image.Overlay{ID: id, Source: fs.source, Options: fs.options, Dev: fs.dev}
	for k, l := range fs.layers {
		ref, err := e.Save(l)
		if err != nil {
			return err
		}
		if l == fs.upper && k == len(fs.layers)-1 {
			rec.Upper = ref
		} else {
			rec.Lower = append(rec.Lower, ref)
		}
	}
	rec.HasUpper = len(fs.held) > 0 && fs.root.upper() != nil
	for _, p := range fs.held {
		at, err := vfs.SavePath(e, p)
		if err != nil {
			return err
		}
		rec.Held = append(rec.Held, at)
	}
	return e.Put(image.KindOverlay, &rec)
}

// HostBacked implements vfs.HostBacked.
func (n *node) HostBacked() bool {
	if n.upper() != nil {
		return false
	}
	h, ok := n.lower[0].(vfs.HostBacked)
	return ok && h.HostBacked()
}

// Number implements vfs.Numbered: that of a file which is not copied up.
func (n *node) Number() uint64 {
	if n.upper() == nil {
		if l, ok := n.lower[0].(vfs.Numbered); ok {
			return l.Number()
		}
	}
	return 0
}

// KeepNumber implements vfs.Numbered.
func (n *node) KeepNumber(ino uint64) {
	if n.upper() == nil {
		if l, ok := n.lower[0].(vfs.Numbered); ok {
			l.KeepNumber(ino)
		}
	}
}

// StateKind implements vfs.StateSaver.
func (n *node) StateKind() image.Kind { return image.KindOverlayInode }

// SaveState implements vfs.StateSaver. Only inodes without a name are saved:
// others are found by it.
func (d *dirNode) SaveState(e *vfs.SaveEnv, id image.ID) error {
	return saveNode(e, d.base(), id, unix.S_IFDIR)
}

// SaveState implements vfs.StateSaver.
func (f *fileNode) SaveState(e *vfs.SaveEnv, id image.ID) error {
	return saveNode(e, f.base(), id, unix.S_IFREG)
}

// SaveState implements vfs.StateSaver.
func (l *linkNode) SaveState(e *vfs.SaveEnv, id image.ID) error {
	return saveNode(e, l.base(), id, unix.S_IFLNK)
}

// SaveState implements vfs.StateSaver.
func (s *specialNode) SaveState(e *vfs.SaveEnv, id image.ID) error {
	return saveNode(e, s.base(), id, unix.S_IFIFO)
}

func saveNode(e *vfs.SaveEnv, n *node, id image.ID, mode uint32) error {
	fs, err := e.Save(n.fs)
	if err != nil {
		return err
	}
	// A lower inode without an upper one must never get a name again.
	rec := image.OverlayInode{ID: id, FS: fs.ID, Mode: mode, Orphan: n.orphan.Load() || n.upper() == nil}
	if up := n.upper(); up != nil {
		if rec.Upper, err = e.Save(up); err != nil {
			return err
		}
	}
	// A directory that was removed is empty above; what it covered does not show.
	if rec.Upper.ID == 0 || mode != unix.S_IFDIR {
		for _, l := range n.lower {
			ref, err := e.Save(l)
			if err != nil {
				return err
			}
			rec.Lower = append(rec.Lower, ref)
		}
	}
	return e.Put(image.KindOverlayInode, &rec)
}

// SaveReopened implements vfs.ReopenSaver: the listing of several layers goes
// on where it was.
func (o *dirOps) SaveReopened(e *vfs.SaveEnv, id image.ID) (image.Kind, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.listed || o.single != nil {
		return 0, nil
	}
	rec := image.OverlayDir{ID: id}
	for _, d := range o.entries {
		rec.Entries = append(rec.Entries, image.Dirent{Name: d.Name, Ino: d.Ino, Type: d.Type})
	}
	return image.KindOverlayDir, e.Put(image.KindOverlayDir, &rec)
}

// RestoreReopened implements vfs.ReopenSaver.
func (o *dirOps) RestoreReopened(e *vfs.RestoreEnv, ref image.Ref) error {
	var rec image.OverlayDir
	if err := e.Get(image.KindOverlayDir, ref.ID, &rec); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.listed, o.entries = true, nil
	for _, d := range rec.Entries {
		if len(d.Name) > 255 {
			return unix.ENAMETOOLONG
		}
		o.entries = append(o.entries, vfs.Dirent{Name: d.Name, Ino: d.Ino, Type: d.Type})
	}
	return nil
}

func init() {
	vfs.RegisterState(image.KindOverlay, func(e *vfs.RestoreEnv, id image.ID) (any, error) {
		var rec image.Overlay
		if err := e.Get(image.KindOverlay, id, &rec); err != nil {
			return nil, err
		}
		return restoreFS(e, &rec)
	})
	vfs.RegisterState(image.KindOverlayInode, func(e *vfs.RestoreEnv, id image.ID) (any, error) {
		var rec image.OverlayInode
		if err := e.Get(image.KindOverlayInode, id, &rec); err != nil {
			return nil, err
		}
		return restoreNode(e, &rec)
	})
}

func restoreFS(e *vfs.RestoreEnv, rec *image.Overlay) (_ *FS, err error) {
	cfg := Config{Source: rec.Source, Options: rec.Options}
	defer func() {
		if err != nil {
			release(cfg.LowerRoots)
			dropPaths(cfg.Held)
			for _, l := range cfg.Lower {
				l.Release()
			}
			if cfg.Upper != nil {
				cfg.Upper.Release()
			}
		}
	}()
	if len(rec.Lower)+len(rec.Held) > maxLower+1 || len(rec.Lower) > 0 && len(rec.Held) > 0 {
		return nil, fmt.Errorf("overlay %d of the image has %d layers", rec.ID, len(rec.Lower)+len(rec.Held))
	}
	for _, ref := range rec.Lower {
		fs, err := e.OwnFilesystem(ref)
		if err != nil {
			return nil, err
		}
		cfg.Lower = append(cfg.Lower, fs)
	}
	if rec.Upper.ID != 0 {
		if cfg.Upper, err = e.OwnFilesystem(rec.Upper); err != nil {
			return nil, err
		}
	}
	for _, at := range rec.Held {
		p, err := vfs.RestorePath(e, at)
		if err != nil {
			return nil, err
		}
		if !p.Ok() || !p.Dentry.IsDir() {
			p.DecRef()
			return nil, fmt.Errorf("layer %d of overlay %d of the image is no directory", len(cfg.Held), rec.ID)
		}
		cfg.Held = append(cfg.Held, p)
	}
	upper := cfg.Upper
	if n := len(cfg.Held); rec.HasUpper && n > 0 {
		upper = cfg.Held[n-1].Mount.Filesystem()
	}
	translateOrigins(e, upper)
	for k, p := range cfg.Held {
		p.Inode().IncRef()
		if rec.HasUpper && k == len(cfg.Held)-1 {
			cfg.UpperRoot = p.Inode()
		} else {
			cfg.LowerRoots = append(cfg.LowerRoots, p.Inode())
		}
	}
	if cfg.Upper == nil && cfg.UpperRoot == nil && len(cfg.Lower) == 0 && len(cfg.LowerRoots) == 0 {
		return nil, fmt.Errorf("overlay %d of the image has no layers", rec.ID)
	}
	made := cfg
	cfg = Config{} // New has taken it over, also when it fails
	fs, err := New(e.Caller, made)
	if err != nil {
		return nil, err
	}
	fs.dev = e.KeepDev(rec.Dev)
	return fs, nil
}

// translateOrigins changes the device numbers that files copied up remember,
// where those of lower layers could not be kept.
func translateOrigins(e *vfs.RestoreEnv, upper vfs.Filesystem) {
	fs, ok := upper.(interface {
		EachXattr(name string, fn func(value []byte))
	})
	if !ok || !e.FirstTime(upper) {
		return
	}
	for _, prefix := range []string{xattrTrusted, xattrUser} {
		fs.EachXattr(prefix+xattrOrigin, func(v []byte) {
			if len(v) == 17 && v[0] == originVersion {
				dev := binary.LittleEndian.Uint64(v[1:])
				binary.LittleEndian.PutUint64(v[1:], e.Dev(dev))
			}
		})
	}
}

// restoreNode makes an inode without a name. The environment has its
// reference.
func restoreNode(e *vfs.RestoreEnv, rec *image.OverlayInode) (_ overNode, err error) {
	fs, err := vfs.Restored[*FS](e, image.Ref{Kind: image.KindOverlay, ID: rec.FS})
	if err != nil {
		return nil, err
	}
	mode := rec.Mode & unix.S_IFMT
	var up vfs.Inode
	var lower []vfs.Inode
	defer func() {
		if err != nil {
			release(lower)
			if up != nil {
				up.DecRef()
			}
		}
	}()
	if rec.Upper.ID != 0 {
		if up, err = e.RestoreInode(rec.Upper); err != nil {
			return nil, err
		}
		if err := sameType(e, up, mode, rec.ID); err != nil {
			return nil, err
		}
	}
	for _, ref := range rec.Lower {
		l, err := e.RestoreInode(ref)
		if err != nil {
			return nil, err
		}
		lower = append(lower, l)
		if err := sameType(e, l, mode, rec.ID); err != nil {
			return nil, err
		}
	}
	if up == nil && (len(lower) == 0 || !rec.Orphan) {
		return nil, fmt.Errorf("overlay inode %d of the image has no layer", rec.ID)
	}
	sys := fs.as(e.Caller)
	var o overNode
	if mode == unix.S_IFDIR {
		o = fs.root.found(sys, "", up, lower, mode).(*dirNode)
	} else {
		o = newNode(sys, fs.root, "", up, lower, mode)
	}
	o.base().orphan.Store(rec.Orphan)
	e.Hold(rec.ID, o.DecRef)
	return o, nil
}

// sameType checks that a layer's inode is a directory, a file or a link as the
// overlay's; special ones are all alike.
func sameType(e *vfs.RestoreEnv, i vfs.Inode, mode uint32, id image.ID) error {
	st, err := i.Stat(e.Caller, 0)
	if err != nil {
		return err
	}
	kind := st.Mode & unix.S_IFMT
	switch kind {
	case unix.S_IFCHR, unix.S_IFBLK, unix.S_IFSOCK:
		kind = unix.S_IFIFO
	}
	if kind != mode {
		return fmt.Errorf("overlay inode %d of the image has layers of different types", id)
	}
	if _, isDir := i.(vfs.Dir); isDir != (mode == unix.S_IFDIR) {
		return fmt.Errorf("overlay inode %d of the image has layers of different types", id)
	}
	return nil
}
