package vfs

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"runsc/pkg/ref"
)

var mountKind = ref.NewKind("vfs.mount")

// MountFlags are the per-mount flags of mount(2): MS_RDONLY, MS_NOSUID,
// MS_NODEV, MS_NOEXEC, MS_NOATIME, MS_NODIRATIME, MS_RELATIME, MS_STRICTATIME,
// MS_NOSYMFOLLOW.
type MountFlags uint32

// MountFlagMask has the flags that a Mount keeps.
const MountFlagMask = MountFlags(unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC |
	unix.MS_NOATIME | unix.MS_NODIRATIME | unix.MS_RELATIME | unix.MS_STRICTATIME | unix.MS_NOSYMFOLLOW)

// Mount is a superblock, or a part of one, made visible at a place of the
// tree.
type Mount struct {
	// immutable after newMount:
	id   uint64      `save:"rec"`
	sb   *Superblock `save:"rec"`
	root *Dentry     `save:"rec"`

	refs    ref.Count     `save:"rebuilt"` // one for the place in the tree
	flags   atomic.Uint32 `save:"rec"`
	writers atomic.Int32  `save:"rebuilt"`                              // files open for writing: a remount to read-only is EBUSY
	watched atomic.Int32  `save:"rebuilt"`                              // references of inotify watches, which do not keep it busy
	expired atomic.Bool   `save:"none: a mark that any use takes away"` // umount2(2), MNT_EXPIRE

	// mounts guards:
	parent     *Mount      `save:"rec"` // nil: the root of a namespace, or detached
	mountpoint *Dentry     `save:"rec"`
	children   []*Mount    `save:"rebuilt"`
	ns         *Namespace  `save:"rebuilt"`
	prop       propagation `save:"rec"`
}

type mountKey struct {
	parent *Mount
	point  *Dentry
}

// mountTable is every attached mount by place. The lock guards all mount
// trees; it is a leaf but for Superblock.nameMu.
type mountTable struct {
	sync.RWMutex
	at     map[mountKey]*Mount
	groups map[uint32]*peerGroup
}

var (
	mounts    = mountTable{at: make(map[mountKey]*Mount), groups: make(map[uint32]*peerGroup)}
	mountID   atomic.Uint64
	lastGroup atomic.Uint32
)

// newMount returns a detached mount with one reference. It takes over the
// reference to sb, not the one to root.
func newMount(sb *Superblock, root *Dentry, flags MountFlags) *Mount {
	m := &Mount{id: mountID.Add(1) + 20, sb: sb, root: root}
	m.refs.Init()
	root.IncRef()
	m.SetFlags(flags)
	mountKind.Born()
	return m
}

// NewMount returns a mount of fs, which it takes over, that is not in any
// tree.
func NewMount(fs Filesystem, flags MountFlags) *Mount {
	if m := sharedMount(fs); m != nil {
		fs.Release()
		return m.Again(flags)
	}
	sb := newSuperblock(fs)
	return newMount(sb, sb.root, flags)
}

// Shared is implemented by file systems of which all mounts show one
// superblock: that of SharedMount, if it is not nil.
type Shared interface{ SharedMount() *Mount }

func sharedMount(fs Filesystem) *Mount {
	if s, ok := fs.(Shared); ok {
		return s.SharedMount()
	}
	return nil
}

// IncRef takes a reference.
func (m *Mount) IncRef() { m.refs.Inc() }

// DecRef drops a reference; with the last one the superblock may go.
func (m *Mount) DecRef() {
	if m.expired.Load() {
		m.expired.Store(false)
	}
	if !m.refs.Dec() {
		return
	}
	m.root.DecRef()
	m.sb.decRef()
	mountKind.Died()
}

// ID is the number in mountinfo.
func (m *Mount) ID() uint64 { return m.id }

// Root borrows the path of the mount's root.
func (m *Mount) Root() Path { return Path{m, m.root} }

// Filesystem borrows the file system.
func (m *Mount) Filesystem() Filesystem { return m.sb.fs }

// Flags returns the per-mount flags.
func (m *Mount) Flags() MountFlags { return MountFlags(m.flags.Load()) }

// SetFlags replaces the per-mount flags.
func (m *Mount) SetFlags(f MountFlags) {
	f &= MountFlagMask
	// Linux has relatime as the default (do_mount).
	if f&(unix.MS_NOATIME|unix.MS_STRICTATIME) == 0 {
		f |= unix.MS_RELATIME
	} else {
		f &^= unix.MS_RELATIME
	}
	m.flags.Store(uint32(f))
}

func (m *Mount) has(f MountFlags) bool { return MountFlags(m.flags.Load())&f != 0 }

// ReadOnly tells whether the mount or its file system is.
func (m *Mount) ReadOnly() bool { return m.has(unix.MS_RDONLY) || m.sb.readOnly.Load() }

// wantWrite is Linux's mnt_want_write.
func (m *Mount) wantWrite() error {
	if m.ReadOnly() {
		return unix.EROFS
	}
	return nil
}

// cross turns p, of which it takes over the reference, into the root of what
// is mounted there, if anything is.
func cross(p Path) Path {
	for p.Dentry.mounted.Load() > 0 {
		mounts.RLock()
		m := mounts.at[mountKey{p.Mount, p.Dentry}]
		if m == nil {
			mounts.RUnlock()
			break
		}
		next := m.Root()
		next.IncRef()
		mounts.RUnlock()
		p.DecRef()
		p = next
	}
	return p
}

// above returns a new reference to where m is mounted; false at the top.
func (m *Mount) above() (Path, bool) {
	mounts.RLock()
	defer mounts.RUnlock()
	if m.parent == nil {
		return Path{}, false
	}
	p := Path{m.parent, m.mountpoint}
	p.IncRef()
	return p, true
}

// attachLocked puts m, of which it takes over a reference, at p.
func (m *Mount) attachLocked(p Path) {
	m.parent, m.mountpoint = p.Mount, p.Dentry
	p.Dentry.IncRef()
	p.Dentry.mounted.Add(1)
	p.Mount.children = append(p.Mount.children, m)
	mounts.at[mountKey{p.Mount, p.Dentry}] = m
	m.setNamespaceLocked(p.Mount.ns)
}

// detachLocked undoes attachLocked; the caller drops the references to m and
// to the dentry returned after unlocking.
func (m *Mount) detachLocked() *Dentry {
	point := m.mountpoint
	delete(mounts.at, mountKey{m.parent, point})
	point.mounted.Add(-1)
	m.parent.children = without(m.parent.children, m)
	m.parent, m.mountpoint = nil, nil
	return point
}

func (m *Mount) setNamespaceLocked(ns *Namespace) {
	if m.ns != nil {
		m.ns.mounts--
	}
	if ns != nil {
		ns.mounts++
	}
	m.ns = ns
	for _, ch := range m.children {
		ch.setNamespaceLocked(ns)
	}
}

// eachLocked calls fn for m and all below it, parents first.
func (m *Mount) eachLocked(fn func(*Mount)) {
	fn(m)
	for _, ch := range m.children {
		ch.eachLocked(fn)
	}
}

// Namespace is a mount namespace.
type Namespace struct {
	refs ref.Count `save:"rebuilt"`
	id   uint64    `save:"rec"`
	anon bool      `save:"rec"` // that of a detached tree, which no task is in

	// mounts guards:
	root   *Mount `save:"rec"`
	mounts int    `save:"rebuilt"` // how many there are
}

var namespaceID atomic.Uint64

// NewNamespace returns a namespace whose root is a mount of fs, which it takes
// over.
func NewNamespace(fs Filesystem, flags MountFlags) *Namespace {
	ns := &Namespace{root: NewMount(fs, flags), id: namespaceID.Add(1)}
	ns.refs.Init()
	ns.root.setNamespaceLocked(ns) // nobody else knows it yet
	return ns
}

// ID tells namespaces apart (for the inode number of /proc/PID/ns/mnt).
func (ns *Namespace) ID() uint64 { return ns.id }

// IncRef takes a reference.
func (ns *Namespace) IncRef() { ns.refs.Inc() }

// DecRef drops a reference; the last one unmounts everything.
func (ns *Namespace) DecRef() {
	if !ns.refs.Dec() {
		return
	}
	mounts.Lock()
	var dropped detached
	if root := ns.root; root != nil {
		ns.root = nil
		dropped = detachTreeLocked(root)
	}
	mounts.Unlock()
	dropped.drop()
}

// Root returns a new reference to the root of the namespace's tree, with what
// is mounted over it.
func (ns *Namespace) Root() Path {
	mounts.RLock()
	p := ns.root.Root()
	p.IncRef()
	mounts.RUnlock()
	return cross(p)
}

// detached collects what unmounting releases once the lock is gone.
type detached struct {
	mounts   []*Mount
	dentries []*Dentry
}

func (x *detached) drop() {
	for _, m := range x.mounts {
		m.DecRef()
	}
	for _, d := range x.dentries {
		d.DecRef()
	}
}

// detachTreeLocked takes m and all below it out of the tree. Each becomes its
// own island, as umount_tree of Linux makes them.
func detachTreeLocked(m *Mount) (x detached) {
	m.eachLocked(func(m *Mount) { x.mounts = append(x.mounts, m) })
	for i := len(x.mounts) - 1; i >= 0; i-- {
		m := x.mounts[i]
		if m.ns != nil {
			m.ns.mounts--
			m.ns = nil
		}
		m.setPropLocked(propagation{})
		if m.parent != nil {
			x.dentries = append(x.dentries, m.detachLocked())
		}
	}
	return x
}

// copyTreeLocked clones m and, with recursive, all below it; the clones are
// attached to each other only. Unbindable mounts are left out when skip is set.
func copyTreeLocked(m *Mount, root *Dentry, recursive, skip bool, made map[*Mount]*Mount) *Mount {
	m.sb.refs.Inc()
	n := newMount(m.sb, root, m.Flags())
	n.setPropLocked(propagation{peer: m.prop.peer, master: m.prop.master})
	if made != nil {
		made[m] = n
	}
	if !recursive {
		return n
	}
	m.sb.nameMu.RLock()
	var keep []*Mount
	for _, ch := range m.children {
		if !(skip && ch.prop.unbindable) && root.isAncestorOf(ch.mountpoint) {
			keep = append(keep, ch)
		}
	}
	m.sb.nameMu.RUnlock()
	for _, ch := range keep {
		copyTreeLocked(ch, ch.root, true, skip, made).attachLocked(Path{n, ch.mountpoint})
	}
	return n
}

// Clone returns a copy of the namespace. The root and cwd of fs, if given,
// move to the copies of their mounts (CLONE_NEWNS, unshare(2)). ENOSPC if there
// would be too many mounts.
func (ns *Namespace) Clone(fs *FSContext) (*Namespace, error) {
	n := &Namespace{id: namespaceID.Add(1)}
	n.refs.Init()
	made := make(map[*Mount]*Mount)
	mounts.Lock()
	if len(mounts.at)+ns.mounts > maxAllMounts {
		mounts.Unlock()
		return nil, unix.ENOSPC
	}
	n.root = copyTreeLocked(ns.root, ns.root.root, true, false, made)
	n.root.setNamespaceLocked(n)
	mounts.Unlock()
	if fs != nil {
		fs.translate(made)
	}
	return n, nil
}
