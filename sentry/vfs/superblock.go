package vfs

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"runsc/pkg/ref"
)

var superblockKind = ref.NewKind("vfs.superblock")

// Superblock is a Filesystem in use: its dentry tree and the locks of that.
type Superblock struct {
	// immutable after newSuperblock:
	fs     Filesystem
	policy CachePolicy
	root   *Dentry
	anon   *anonFilesystem // set for the superblock of things without a path

	refs ref.Count // one for each Mount

	// renameMu is held across a rename between two directories, so that
	// ancestry does not change meanwhile (Linux's s_vfs_rename_mutex).
	renameMu sync.Mutex

	// nameMu guards name and parent of all dentries; a writer also holds mu
	// of the parents concerned.
	nameMu sync.RWMutex

	readOnly atomic.Bool
}

// newSuperblock takes over fs.
func newSuperblock(fs Filesystem) *Superblock {
	sb := &Superblock{fs: fs, policy: fs.Cache()}
	sb.refs.Init()
	sb.root = newDentry(sb, nil, "", fs.Root())
	superblockKind.Born()
	return sb
}

// Filesystem borrows the file system.
func (sb *Superblock) Filesystem() Filesystem { return sb.fs }

func (sb *Superblock) decRef() {
	if !sb.refs.Dec() {
		return
	}
	// Nothing outside refers to a dentry any more: whoever does holds a mount.
	sb.root.shrink()
	sb.root.DecRef()
	sb.fs.Release()
	superblockKind.Died()
}

var anonMinor atomic.Uint32

// NewAnonDev returns an unused device number for a file system without a
// block device, as Linux's get_anon_bdev.
func NewAnonDev() uint64 { return unix.Mkdev(0, anonMinor.Add(1)) }
