package erofs

import (
	"encoding/hex"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// Options are the settings of a file system.
type Options struct {
	// Image is taken over by New, if it succeeds.
	Image *os.File
	// Memory holds copies of mapped pages that the image does not have as a
	// whole; they are charged to Account.
	Memory  *mem.File
	Account *mem.Account
	// Source is shown in /proc/mounts.
	Source string
	// Destination is where the container's specification has it; a restore
	// asks for the file system there.
	Destination string
}

// FS is a mounted image. It implements vfs.Filesystem.
type FS struct {
	o   Options `save:"rec"`
	v   *volume `save:"rebuilt"`
	dev uint64  `save:"rec"`

	mu sync.Mutex `save:"none: not held at a stop"`
	// mu guards:
	inodes map[uint64]object `save:"rebuilt"` // those that somebody holds
}

// New opens an image. What is wrong with it is said in a sentence.
func New(o Options) (*FS, error) {
	v, err := openVolume(o.Image)
	if err != nil {
		return nil, err
	}
	if o.Source == "" {
		o.Source = "none"
	}
	return &FS{o: o, v: v, dev: vfs.NewAnonDev(), inodes: map[uint64]object{}}, nil
}

// identity tells images from one another.
func (fs *FS) identity() string { return hex.EncodeToString(fs.v.id[:]) }

// Type implements vfs.Filesystem.
func (fs *FS) Type() string { return "erofs" }

// Source implements vfs.Filesystem.
func (fs *FS) Source() string { return fs.o.Source }

// Options implements vfs.Filesystem.
func (fs *FS) Options() string { return "" }

// Cache implements vfs.Filesystem.
func (fs *FS) Cache() vfs.CachePolicy { return vfs.CacheAll }

// Sync implements vfs.Filesystem.
func (fs *FS) Sync(vfs.Caller) error { return nil }

// Release implements vfs.Filesystem.
func (fs *FS) Release() { fs.v.f.Close() }

// Statfs implements vfs.Filesystem.
func (fs *FS) Statfs(vfs.Caller) (vfs.Statfs, error) {
	bs := fs.v.blockSize()
	return vfs.Statfs{
		Type: unix.EROFS_SUPER_MAGIC_V1, Bsize: bs, Frsize: bs, Blocks: fs.v.blocks, Files: fs.v.inodes,
		Namelen: maxName, Fsid: [2]int32{int32(fs.dev), int32(fs.dev >> 32)},
	}, nil
}

// Root implements vfs.Filesystem.
func (fs *FS) Root() vfs.Inode {
	i, err := fs.get(fs.v.root)
	if err != nil {
		// It was there when the image was opened, and is not any more.
		i = fs.hold(attrs{nid: fs.v.root, mode: unix.S_IFDIR | 0o555, nlink: 2})
	}
	return i
}

// get returns a new reference to an inode.
func (fs *FS) get(nid uint64) (object, error) {
	fs.mu.Lock()
	if i := fs.inodes[nid]; i != nil {
		i.IncRef()
		fs.mu.Unlock()
		return i, nil
	}
	fs.mu.Unlock()
	a, err := fs.v.inode(nid)
	if err != nil {
		return nil, err
	}
	return fs.hold(a), nil
}

// hold returns the inode with these attributes, unless somebody holds it by now.
func (fs *FS) hold(a attrs) object {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if i := fs.inodes[a.nid]; i != nil {
		i.IncRef()
		return i
	}
	base := &inode{fs: fs, a: a}
	base.refs.Store(1)
	var o object
	switch a.mode & unix.S_IFMT {
	case unix.S_IFDIR:
		o = &dir{base}
	case unix.S_IFLNK:
		o = &symlink{base}
	case unix.S_IFREG:
		o = &regular{base}
	default:
		o = &special{base}
	}
	fs.inodes[a.nid] = o
	return o
}

// drop forgets an inode that nobody holds.
func (fs *FS) drop(i *inode) {
	fs.mu.Lock()
	gone := i.refs.Load() == 0 && fs.inodes[i.a.nid] != nil && fs.inodes[i.a.nid].base() == i
	if gone {
		delete(fs.inodes, i.a.nid)
	}
	fs.mu.Unlock()
	if gone {
		i.freePages()
	}
}
