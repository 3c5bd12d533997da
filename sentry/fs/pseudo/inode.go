package pseudo

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"runsc/sentry/vfs"
)

// inode is a node while vfs holds it. It implements vfs.Inode; dirInode,
// linkInode and magicInode are those of other types.
type inode struct {
	// immutable
	fs        *FS
	node      Node
	ino       uint64
	parentIno uint64
	born      vfs.Timespec

	refs atomic.Int64
}

type dirInode struct {
	*inode
	dir Dir
}

type permitDirInode struct {
	dirInode
	perm Permitter
}

type linkInode struct {
	*inode
	link Link
}

type magicInode struct {
	linkInode
	magic Magic
}

// inode returns the inode of a node, with a new reference.
func (fs *FS) inode(c vfs.Caller, n Node, ino, parentIno uint64) vfs.Inode {
	i := &inode{fs: fs, node: n, ino: ino, parentIno: parentIno}
	if c != nil {
		i.born = vfs.TimespecOf(c.RealTime())
	}
	i.refs.Store(1)
	fs.live.Add(1)
	switch n := n.(type) {
	case Dir:
		if p, ok := n.(Permitter); ok {
			return &permitDirInode{dirInode{i, n}, p}
		}
		return &dirInode{i, n}
	case Magic:
		return &magicInode{linkInode{i, n}, n}
	case Link:
		return &linkInode{i, n}
	}
	return i
}

// NodeOf returns the node behind an inode of this package, or nil.
func NodeOf(i vfs.Inode) Node {
	switch i := i.(type) {
	case *inode:
		return i.node
	case *dirInode:
		return i.node
	case *permitDirInode:
		return i.node
	case *linkInode:
		return i.node
	case *magicInode:
		return i.node
	}
	return nil
}

// IncRef implements vfs.Inode.
func (i *inode) IncRef() { i.refs.Add(1) }

// DecRef implements vfs.Inode.
func (i *inode) DecRef() {
	if i.refs.Add(-1) == 0 {
		i.fs.live.Add(-1)
	}
}

// Stat implements vfs.Inode.
func (i *inode) Stat(c vfs.Caller, mask uint32) (vfs.Stat, error) {
	n, err := i.node.Info(c)
	if err != nil {
		return vfs.Stat{}, err
	}
	return vfs.Stat{
		Mask: unix.STATX_BASIC_STATS,
		Mode: n.Mode, UID: n.UID, GID: n.GID,
		Ino: i.ino, Dev: i.fs.dev, Rdev: n.Rdev,
		Nlink: max(n.Nlink, 1), Size: n.Size, BlockSize: i.fs.o.BlockSize,
		Atime: i.born, Mtime: i.born, Ctime: i.born,
	}, nil
}

// SetStat implements vfs.Inode. A size is taken and ignored, for O_TRUNC.
func (i *inode) SetStat(c vfs.Caller, s *vfs.SetStat) error {
	if set, ok := i.node.(Setter); ok {
		return set.SetStat(c, s)
	}
	if s.Mode != nil || s.UID != nil || s.GID != nil {
		return unix.EPERM
	}
	return nil
}

// Open implements vfs.Inode.
func (i *inode) Open(c vfs.Caller, d *vfs.Dentry, flags uint32) (vfs.FileOps, error) {
	if o, ok := i.node.(Opener); ok {
		if ops, err := o.Open(c, flags); ops != nil || err != nil {
			return ops, err
		}
	}
	r, _ := i.node.(Reader)
	w, _ := i.node.(Writer)
	return &file{r: r, w: w}, nil
}

// Lookup implements vfs.Dir.
func (d *dirInode) Lookup(c vfs.Caller, name string) (vfs.Inode, error) {
	n, err := d.dir.Lookup(c, name)
	if err != nil {
		return nil, err
	}
	return d.fs.inode(c, n, childIno(d.ino, name), d.ino), nil
}

// Permission implements vfs.Permitter.
func (d *permitDirInode) Permission(c vfs.Caller, mask uint32) error {
	st, err := d.Stat(c, 0)
	if err == nil && !d.perm.Permits(c, mask) {
		err = vfs.CheckMode(c.Cred(), &st, mask)
	}
	return err
}

// Open implements vfs.Inode.
func (d *dirInode) Open(c vfs.Caller, _ *vfs.Dentry, flags uint32) (vfs.FileOps, error) {
	if o, ok := d.node.(Opener); ok {
		if ops, err := o.Open(c, flags); ops != nil || err != nil {
			return ops, err
		}
	}
	return &openDir{d}, nil
}

// Create implements vfs.Dir.
func (d *dirInode) Create(vfs.Caller, string, vfs.CreateAttr) (vfs.Inode, error) {
	return nil, d.fs.o.CreateError
}

// Mkdir implements vfs.Dir.
func (d *dirInode) Mkdir(vfs.Caller, string, vfs.CreateAttr) (vfs.Inode, error) {
	return nil, d.fs.o.MkdirError
}

// Mknod implements vfs.Dir.
func (d *dirInode) Mknod(vfs.Caller, string, vfs.CreateAttr, uint64) (vfs.Inode, error) {
	return nil, d.fs.o.MkdirError
}

// Symlink implements vfs.Dir.
func (d *dirInode) Symlink(vfs.Caller, string, string, vfs.CreateAttr) (vfs.Inode, error) {
	return nil, d.fs.o.MkdirError
}

// Link implements vfs.Dir.
func (d *dirInode) Link(vfs.Caller, string, vfs.Inode) error { return d.fs.o.MkdirError }

// Unlink implements vfs.Dir.
func (d *dirInode) Unlink(vfs.Caller, string, vfs.Inode) error { return unix.EPERM }

// Rmdir implements vfs.Dir.
func (d *dirInode) Rmdir(vfs.Caller, string, vfs.Inode) error { return unix.EPERM }

// Rename implements vfs.Dir.
func (d *dirInode) Rename(vfs.Caller, string, vfs.Inode, vfs.Dir, string, vfs.Inode, uint32) error {
	return unix.EPERM
}

// Readlink implements vfs.Symlink.
func (l *linkInode) Readlink(c vfs.Caller) (string, error) { return l.link.Readlink(c) }

// Open implements vfs.Inode.
func (l *linkInode) Open(vfs.Caller, *vfs.Dentry, uint32) (vfs.FileOps, error) {
	return nil, unix.ELOOP
}

// Follow implements vfs.MagicLink.
func (m *magicInode) Follow(c vfs.Caller) (vfs.Path, error) { return m.magic.Follow(c) }
