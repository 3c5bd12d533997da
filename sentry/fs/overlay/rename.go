package overlay

import (
	"golang.org/x/sys/unix"

	"runsc/sentry/vfs"
)

// renaming is one rename within the overlay.
type renaming struct {
	fs            *FS
	c             vfs.Caller
	from, to      *dirNode
	name, newName string
	src, dst      overNode // dst is nil if there is nothing there
	exchange      bool
}

// run does the rename in the upper layer and leaves a whiteout or an opaque
// directory where something below would show through.
func (r *renaming) run() error {
	sys := r.fs.as(r.c)
	if err := r.movable(sys); err != nil {
		return err
	}
	fromUp, err := r.from.prepare(r.c)
	if err != nil {
		return err
	}
	toUp, err := r.to.prepare(r.c)
	if err != nil {
		return err
	}
	if err := r.src.base().copyUp(r.c, false); err != nil {
		return err
	}
	if r.exchange {
		return r.swap(sys, fromUp, toUp)
	}
	_, srcDir := r.src.(*dirNode)
	if r.dst != nil {
		dst := r.dst.base()
		dst.mu.Lock()
		defer dst.mu.Unlock()
	}
	fromBelow, err := r.from.hasLower(sys, r.name)
	if err != nil {
		return err
	}
	toBelow, err := r.to.hasLower(sys, r.newName)
	if err != nil {
		return err
	}
	if srcDir && toBelow {
		if err := r.opaque(r.src.base()); err != nil {
			return err
		}
	}
	// What stands there in the upper layer: the entry replaced, or a whiteout.
	old, err := toUp.Lookup(sys, r.newName)
	if err != nil && err != unix.ENOENT {
		return err
	}
	cleared := false
	if old != nil {
		defer old.DecRef()
		if cleared, err = r.clear(sys, toUp, old, srcDir); err != nil {
			return err
		}
		if cleared {
			old = nil
		}
	}
	flags := uint32(0)
	if fromBelow {
		flags = unix.RENAME_WHITEOUT
	}
	if err := fromUp.Rename(sys, r.name, r.src.base().upper(), toUp, r.newName, old, flags); err != nil {
		if cleared {
			_ = r.to.whiteout(sys, toUp, r.newName)
		}
		return err
	}
	if r.dst != nil {
		r.dst.base().orphan.Store(true)
	}
	return nil
}

// movable refuses what Linux's ovl_rename refuses, and checks that a directory
// to be replaced is empty.
func (r *renaming) movable(sys vfs.Caller) error {
	if d, ok := r.src.(*dirNode); ok && len(d.lower) > 0 {
		// Its entries below could not follow without redirect_dir.
		return unix.EXDEV
	}
	if r.dst == nil {
		return nil
	}
	d, dstDir := r.dst.(*dirNode)
	if r.exchange {
		if dstDir && len(d.lower) > 0 {
			return unix.EXDEV
		}
		return nil
	}
	_, srcDir := r.src.(*dirNode)
	switch {
	case srcDir && !dstDir:
		return unix.ENOTDIR
	case !srcDir && dstDir:
		return unix.EISDIR
	case dstDir:
		return d.checkEmpty(sys)
	}
	return nil
}

// opaque keeps what is below from showing through a directory.
func (r *renaming) opaque(n *node) error {
	return r.fs.setPrivateXattr(r.c, n.upper(), xattrOpaque, []byte("y"))
}

// clear makes room for the source where the upper file system's own rename
// would not take the old entry's place: a whiteout under a directory, and the
// whiteouts in an empty directory. It tells whether the name is free now.
func (r *renaming) clear(sys vfs.Caller, toUp vfs.Dir, old vfs.Inode, srcDir bool) (bool, error) {
	if sub, ok := old.(vfs.Dir); ok {
		return false, clearWhiteouts(sys, sub)
	}
	if !srcDir {
		return false, nil
	}
	return true, toUp.Unlink(sys, r.newName, old)
}

// swap is RENAME_EXCHANGE.
func (r *renaming) swap(sys vfs.Caller, fromUp, toUp vfs.Dir) error {
	if err := r.dst.base().copyUp(r.c, false); err != nil {
		return err
	}
	for _, m := range []struct {
		n    overNode
		dir  *dirNode
		name string
	}{{r.src, r.to, r.newName}, {r.dst, r.from, r.name}} {
		if _, isDir := m.n.(*dirNode); !isDir {
			continue
		}
		below, err := m.dir.hasLower(sys, m.name)
		if err != nil {
			return err
		}
		if below {
			if err := r.opaque(m.n.base()); err != nil {
				return err
			}
		}
	}
	return fromUp.Rename(sys, r.name, r.src.base().upper(), toUp, r.newName, r.dst.base().upper(), unix.RENAME_EXCHANGE)
}
