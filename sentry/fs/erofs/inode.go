package erofs

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"runsc/sentry/vfs"
)

// object is an inode of one of the types.
type object interface {
	vfs.Inode
	base() *inode
}

// inode is what the types have in common.
type inode struct {
	// immutable:
	fs *FS   `save:"rec"`
	a  attrs `save:"rebuilt"` // but for nid, which is in the record

	refs atomic.Int64 `save:"rebuilt"`

	mu sync.Mutex `save:"none: not held at a stop"`
	// mu guards:
	pages map[int64]uint64 `save:"none: copies of what is in the image"` // frames by page
}

func (i *inode) base() *inode { return i }

// IncRef implements vfs.Inode.
func (i *inode) IncRef() { i.refs.Add(1) }

// DecRef implements vfs.Inode.
func (i *inode) DecRef() {
	if i.refs.Add(-1) == 0 {
		i.fs.drop(i)
	}
}

// Stat implements vfs.Inode.
func (i *inode) Stat(vfs.Caller, uint32) (vfs.Stat, error) {
	t := vfs.Timespec{Sec: i.a.mtime.sec, Nsec: i.a.mtime.nsec}
	return vfs.Stat{
		Mask: unix.STATX_BASIC_STATS,
		Mode: i.a.mode, UID: i.a.uid, GID: i.a.gid, Ino: i.a.nid, Dev: i.fs.dev, Rdev: i.a.rdev,
		Nlink: max(i.a.nlink, 1), Size: uint64(i.a.size), Blocks: (uint64(i.a.size) + 511) / 512,
		BlockSize: uint32(i.fs.v.blockSize()), Atime: t, Mtime: t, Ctime: t,
	}, nil
}

// SetStat implements vfs.Inode.
func (i *inode) SetStat(vfs.Caller, *vfs.SetStat) error { return unix.EROFS }

// special is a device, a fifo or a socket.
type special struct{ *inode }

// Open implements vfs.Inode: vfs opens what the node stands for.
func (s *special) Open(vfs.Caller, *vfs.Dentry, uint32) (vfs.FileOps, error) {
	return nil, unix.ENXIO
}

// symlink is a symbolic link.
type symlink struct{ *inode }

// Open implements vfs.Inode.
func (l *symlink) Open(vfs.Caller, *vfs.Dentry, uint32) (vfs.FileOps, error) {
	return nil, unix.ELOOP
}

// Readlink implements vfs.Symlink.
func (l *symlink) Readlink(vfs.Caller) (string, error) {
	if l.a.size <= 0 || l.a.size >= unix.PathMax {
		return "", errCorrupt
	}
	b := make([]byte, l.a.size)
	n, err := l.fs.v.readData(&l.a, b, 0)
	if err != nil {
		return "", err
	}
	for _, c := range b[:n] {
		if c == 0 {
			return "", errCorrupt
		}
	}
	return string(b[:n]), nil
}
