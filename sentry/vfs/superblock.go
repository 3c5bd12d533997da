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
	fs     Filesystem  `save:"rec"`
	policy CachePolicy `save:"rebuilt"`
	// prefetch is set if the directories are Prefetchers that mean it.
	prefetch bool            `save:"rebuilt"`
	root     *Dentry         `save:"rebuilt"`
	anon     *anonFilesystem `save:"rebuilt"` // set for the superblock of things without a path

	refs ref.Count `save:"rebuilt"` // one for each Mount

	// renameMu is held across a rename between two directories, so that
	// ancestry does not change meanwhile (Linux's s_vfs_rename_mutex).
	renameMu sync.Mutex `save:"none: not held at a stop"`

	// nameMu guards name and parent of all dentries; a writer also holds mu
	// of the parents concerned.
	nameMu sync.RWMutex `save:"none: not held at a stop"`

	readOnly atomic.Bool   `save:"rec"`
	flags    atomic.Uint32 `save:"rec"` // of superFlagMask
}

// superFlagMask has the flags of mount(2) that a file system as a whole keeps,
// MS_RDONLY apart. They are shown; nothing here writes in another way for them.
const superFlagMask = unix.MS_SYNCHRONOUS | unix.MS_DIRSYNC | unix.MS_MANDLOCK | unix.MS_LAZYTIME

// setFlags changes those flags of mask to what set says.
func (sb *Superblock) setFlags(set, mask uint32) {
	if mask&unix.MS_RDONLY != 0 {
		sb.readOnly.Store(set&unix.MS_RDONLY != 0)
	}
	mask &= superFlagMask
	sb.flags.Store(sb.flags.Load()&^mask | set&mask)
}

// newSuperblock takes over fs.
func newSuperblock(fs Filesystem) *Superblock {
	sb := &Superblock{fs: fs, policy: fs.Cache()}
	sb.refs.Init()
	if p, ok := fs.(interface{ Prefetches() bool }); ok {
		sb.prefetch = p.Prefetches()
	}
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
	// Names that went away while they were unused are found on the list only.
	unused.drop(sb)
	sb.root.shrink()
	unused.drop(sb)
	sb.root.DecRef()
	sb.fs.Release()
	superblockKind.Died()
}

// anonDevs numbers the file systems without a block device.
var anonDevs struct {
	mu sync.Mutex
	// mu guards:
	last uint32
	// claimed are numbers beyond last that restored file systems have.
	claimed map[uint32]bool
}

// NewAnonDev returns an unused device number for a file system without a
// block device, as Linux's get_anon_bdev.
func NewAnonDev() uint64 {
	a := &anonDevs
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		a.last++
		if !a.claimed[a.last] {
			return unix.Mkdev(0, a.last)
		}
		delete(a.claimed, a.last)
	}
}

// maxClaimed bounds the numbers that can be claimed.
const maxClaimed = 1 << 20

// claimAnonDev makes dev the caller's; false if it may be somebody's.
func claimAnonDev(dev uint64) bool {
	n := unix.Minor(dev)
	a := &anonDevs
	a.mu.Lock()
	defer a.mu.Unlock()
	if dev != unix.Mkdev(0, n) || n <= a.last || n > maxClaimed || a.claimed[n] {
		return false
	}
	if a.claimed == nil {
		a.claimed = make(map[uint32]bool)
	}
	a.claimed[n] = true
	return true
}

// Noder is implemented by inodes that are not the only ones for their file:
// several file systems of the sandbox show it.
type Noder interface {
	// Node is the same, and comparable, for all inodes of the file.
	Node() any
}

// Node is what sockets and fifos go by, to be found by who opens their inode.
func Node(i Inode) any {
	if n, ok := i.(Noder); ok {
		return n.Node()
	}
	return i
}
