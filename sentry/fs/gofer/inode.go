package gofer

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"runsc/pkg/hostfs"
	"runsc/pkg/waitq"
	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// inodeKey identifies a host file. The birth time tells a file from a later
// one with the same number, on file systems that keep it.
type inodeKey struct {
	dev, ino uint64
	birth    int64
}

// object is an inode of any type.
type object interface {
	vfs.Inode
	base() *inode
}

// inode is a host file in use. It has no host descriptor of its own: one is
// opened by its place (parent and name) when needed and kept in handles.
type inode struct {
	// immutable after Filesystem.inode:
	fs   *Filesystem `save:"rec"`
	self object      `save:"rebuilt"`
	key  inodeKey    `save:"rebuilt"`
	dev  *device     `save:"rebuilt"`
	typ  uint32      `save:"rec"` // S_IFMT bits

	refs atomic.Int64 `save:"rebuilt"`

	// fdCache.mu guards:
	handles [kinds]*handle `save:"none: a cache"`
	gone    bool           `save:"rebuilt"` // keeps no idle descriptor any more

	// notifier.mu guards:
	watchers int `save:"rebuilt"` // of guests
	wd       int `save:"rebuilt"` // the host's watch, or -1

	mu sync.Mutex `save:"none: not held at a stop"`
	// mu guards:
	parent *inode  `save:"rec"` // nil for the root and a file without a known name
	name   string  `save:"rec"`
	pinned *handle `save:"none: the contents are in the image"` // holds a file that lost its name
	// guest is the last known attributes, current if fresh is set. Dev and
	// Ino never change. changes counts the operations that made it stale.
	guest   vfs.Stat `save:"rec"`
	fresh   bool     `save:"none: a cache"`
	changes uint64   `save:"none: a cache"`
	// seenBy is the caller, by its waiter, whose walk has just read guest
	// from a shared mount, at seenAt: its next stat need not ask again.
	seenBy *waitq.Waiter `save:"none: a cache"`
	seenAt time.Time     `save:"none: a cache"`
	// maybeSetID is whether the file may have set-id bits, though guest may be older.
	maybeSetID  bool      `save:"none: a cache"`
	acl         aclCache  `save:"none: a cache"`
	aclChanges  uint64    `save:"none: a cache"` // counts forgetACL
	writeMapped int       `save:"rebuilt"`       // shared writable mappings
	mappings    []mapping `save:"rebuilt"`
	dead        bool      `save:"none: a dead inode is not saved"` // out of Filesystem.inodes

	// appendMu makes an append and the look at the size after it one step.
	appendMu sync.Mutex `save:"none: not held at a stop"`
}

// mapping is a range of a file in an address space.
type mapping struct {
	space    mem.MappingSpace
	m        mem.Mappable
	off, n   int64
	writable bool // shared and writable
}

func (i *inode) base() *inode { return i }

// keyOf returns the identity of a host file.
func (fs *Filesystem) keyOf(stx *unix.Statx_t) inodeKey {
	k := inodeKey{dev: unix.Mkdev(stx.Dev_major, stx.Dev_minor), ino: stx.Ino}
	// On an overlay the birth time changes when a file is copied up.
	if stx.Mask&unix.STATX_BTIME != 0 && fs.magic != unix.OVERLAYFS_SUPER_MAGIC {
		k.birth = stx.Btime.Sec*1e9 + int64(stx.Btime.Nsec)
	}
	return k
}

// inode returns a new reference to the inode of a host file that was just
// found as name in parent (nil for the root), creating it if it is not in use.
func (fs *Filesystem) inode(parent *inode, name string, stx *unix.Statx_t) object {
	key := fs.keyOf(stx)
	fs.mu.Lock()
	if o := fs.inodes[key]; o != nil && o.base().typ == uint32(stx.Mode)&unix.S_IFMT {
		i := o.base()
		i.refs.Add(1)
		fs.mu.Unlock()
		if parent != nil {
			i.setPlace(parent, name)
		}
		if !fs.exclusive {
			i.update(stx)
		}
		return o
	}
	i := &inode{fs: fs, key: key, dev: fs.client.numbers.device(key.dev), typ: uint32(stx.Mode) & unix.S_IFMT, wd: -1}
	i.refs.Store(1)
	switch i.typ {
	case unix.S_IFDIR:
		i.self = &dir{i}
	case unix.S_IFREG:
		i.self = &regular{i}
	case unix.S_IFLNK:
		i.self = &symlink{i}
	case unix.S_IFIFO:
		i.self = &special{i}
		if !fs.exclusive && fs.client.objects.OpenFifos {
			i.self = &hostFifo{i}
		}
	default:
		i.self = &special{i}
	}
	if parent != nil {
		parent.IncRef()
		i.parent, i.name = parent, name
	}
	i.guest.Ino, i.guest.Dev = fs.client.numbers.inode(i.dev, key.ino), i.dev.guest
	i.update(stx)
	fs.inodes[key] = i.self
	fs.mu.Unlock()
	return i.self
}

// IncRef implements vfs.Inode.
func (i *inode) IncRef() { i.refs.Add(1) }

// DecRef implements vfs.Inode.
func (i *inode) DecRef() {
	for i != nil && i.refs.Add(-1) == 0 {
		i = i.release()
	}
}

// release takes an unused inode out of the table and returns its parent, of
// which the caller is to drop the reference.
func (i *inode) release() *inode {
	fs := i.fs
	fs.mu.Lock()
	if i.refs.Load() != 0 || i.dead {
		// Found again meanwhile, and perhaps released again by that user.
		fs.mu.Unlock()
		return nil
	}
	i.dead = true
	if fs.inodes[i.key] == i.self {
		delete(fs.inodes, i.key)
	}
	fs.mu.Unlock()
	i.mu.Lock()
	parent, pinned := i.parent, i.pinned
	i.parent, i.pinned = nil, nil
	i.mu.Unlock()
	if pinned != nil {
		fs.client.fds.put(pinned, false)
	}
	fs.client.fds.drop(i)
	return parent
}

// setPlace records where the file can be found.
func (i *inode) setPlace(parent *inode, name string) {
	i.mu.Lock()
	old := i.parent
	if old == parent && i.name == name {
		i.mu.Unlock()
		return
	}
	if parent != nil {
		parent.IncRef()
	}
	i.parent, i.name = parent, name
	i.mu.Unlock()
	if old != nil {
		old.DecRef()
	}
}

// place borrows the parent, which stays while the caller has a reference to i
// and its name does not change; nil if there is none.
func (i *inode) place() (*inode, string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.parent != nil {
		i.parent.IncRef()
	}
	return i.parent, i.name
}

// pin holds the file open before its name goes away.
func (i *inode) pin() {
	h, err := i.open(byPath)
	if err != nil {
		return // gone already, or no descriptor left: later uses get ESTALE
	}
	i.pinTo(h)
}

// pinTo takes over the reference to h.
func (i *inode) pinTo(h *handle) {
	i.mu.Lock()
	if i.pinned == nil {
		i.pinned, h = h, nil
	}
	i.mu.Unlock()
	if h != nil {
		i.fs.put(h)
	}
}

// unpin undoes pin when the name stays.
func (i *inode) unpin() {
	i.mu.Lock()
	h := i.pinned
	if i.parent == nil {
		h = nil // has no name to be found by
	} else {
		i.pinned = nil
	}
	i.mu.Unlock()
	if h != nil {
		i.fs.put(h)
	}
}

// unlinked tells that the name is gone.
func (i *inode) unlinked() {
	i.setPlace(nil, "")
	i.stale()
}

// at calls fn with a target and a name that lead to the file: the file itself
// and "", or its directory and its name.
func (i *inode) at(fn func(t hostfs.Target, name string) error) error {
	fds := i.fs.client.fds
	if h := fds.getAny(i); h != nil {
		defer i.fs.put(h)
		return fn(h.target(), "")
	}
	parent, name := i.place()
	if parent == nil {
		return unix.ESTALE
	}
	defer parent.DecRef()
	h, err := parent.open(byPath)
	if err != nil {
		return err
	}
	defer i.fs.put(h)
	return fn(h.target(), name)
}
