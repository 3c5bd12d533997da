package pseudo

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"runsc/sentry/vfs"
)

// Options are the settings of a file system.
type Options struct {
	Type  string // name in /proc/mounts
	Magic int64  // f_type
	Root  Dir
	// Source and MountOptions are shown in /proc/mounts. An empty source is
	// the type's name.
	Source, MountOptions string
	BlockSize            uint32 // st_blksize
	// CreateError and MkdirError are what making a file or anything else
	// gives: proc has ENOENT for both, sysfs EACCES and EPERM.
	CreateError, MkdirError unix.Errno
	// Settings, if there are any, are what a checkpoint keeps.
	Settings Settings
}

// Settings are values that were written to files and stay.
type Settings interface {
	Values() map[string]string
	SetValue(name, value string) error
}

// FS is a computed file system. It implements vfs.Filesystem.
type FS struct {
	o   Options `save:"rec"`
	dev uint64  `save:"rec"`

	live atomic.Int64 `save:"rebuilt"` // inodes
}

// New returns a file system.
func New(o Options) *FS {
	if o.Source == "" {
		o.Source = o.Type
	}
	if o.BlockSize == 0 {
		o.BlockSize = 4096
	}
	return &FS{o: o, dev: vfs.NewAnonDev()}
}

// Live is the number of inodes that exist, for tests.
func (fs *FS) Live() int64 { return fs.live.Load() }

// Dev is the file system's device number.
func (fs *FS) Dev() uint64 { return fs.dev }

// Type implements vfs.Filesystem.
func (fs *FS) Type() string { return fs.o.Type }

// Root implements vfs.Filesystem.
func (fs *FS) Root() vfs.Inode { return fs.inode(nil, fs.o.Root, rootIno, rootIno) }

// Statfs implements vfs.Filesystem.
func (fs *FS) Statfs(vfs.Caller) (vfs.Statfs, error) {
	bs := int64(unix.Getpagesize())
	return vfs.Statfs{
		Type: fs.o.Magic, Bsize: bs, Frsize: bs, Namelen: 255,
		Fsid: [2]int32{int32(fs.dev), int32(fs.dev >> 32)},
	}, nil
}

// Source implements vfs.Filesystem.
func (fs *FS) Source() string { return fs.o.Source }

// Options implements vfs.Filesystem.
func (fs *FS) Options() string { return fs.o.MountOptions }

// Cache implements vfs.Filesystem.
func (fs *FS) Cache() vfs.CachePolicy { return vfs.CacheNone }

// Sync implements vfs.Filesystem.
func (fs *FS) Sync(vfs.Caller) error { return nil }

// Release implements vfs.Filesystem.
func (fs *FS) Release() {}

// rootIno is the root's inode number, as PROC_ROOT_INO.
const rootIno = 1

// childIno computes the number of a name in a directory: FNV-1a of the name
// started from the directory's number, finished so that close names do not
// get close numbers. Numbers stay below 2^51.
func childIno(dir uint64, name string) uint64 {
	const prime = 1099511628211
	h := uint64(14695981039346656037) ^ dir*0x9e3779b97f4a7c15
	for i := 0; i < len(name); i++ {
		h = (h ^ uint64(name[i])) * prime
	}
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	h ^= h >> 32
	return h&(1<<51-1) | 2
}
