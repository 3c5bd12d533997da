package overlay

import (
	"encoding/binary"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"runsc/pkg/ref"
	"runsc/sentry/cred"
	"runsc/sentry/posixacl"
	"runsc/sentry/vfs"
)

// systemCreds are root's, for what the overlay does to its layers on its own.
type systemCreds struct{ cr *cred.Creds }

func newSystemCreds() *systemCreds { return &systemCreds{cred.Root()} }

// systemCaller is the caller with the overlay's credentials.
type systemCaller struct {
	vfs.Caller
	s *systemCreds
}

func (s systemCaller) Cred() *cred.Creds { return s.s.cr }

func (fs *FS) as(c vfs.Caller) vfs.Caller { return systemCaller{c, fs.system} }

// upperRef is a layer's inode behind an atomic pointer.
type upperRef struct{ inode vfs.Inode }

// overNode is any inode of this package.
type overNode interface {
	vfs.Inode
	base() *node
}

// node is what all inodes of the overlay have in common: the inode in the
// upper layer once there is one, else the one below.
type node struct {
	// immutable after init:
	fs     *FS      `save:"rec"`
	parent *dirNode `save:"rebuilt"` // a reference; nil for the root
	name   string   `save:"rebuilt"` // in parent, when this node was looked up there
	self   overNode `save:"rebuilt"` // the node as its type; nil for a directory
	// lower are the inodes below, references: one, or for a directory every
	// one that is merged, the topmost first. For a file that has an upper
	// inode from the start there are none.
	lower []vfs.Inode `save:"rec"`

	refs ref.Count                `save:"rebuilt"`
	up   atomic.Pointer[upperRef] `save:"rec"`
	// orphan: the name is gone, a copy-up makes no new one. Changed under mu.
	orphan atomic.Bool `save:"rec"`
	// origin is the lower file that the upper one was copied from, nil if
	// there is none. It is written before up is.
	origin atomic.Pointer[origin] `save:"rebuilt"`

	// mu is held while the node is copied up and while it loses its name.
	mu sync.Mutex `save:"none: not held at a stop"`
}

// origin names a lower file.
type origin struct {
	dev, ino uint64
}

func (n *node) init(fs *FS, parent *dirNode, name string) {
	n.fs, n.parent, n.name = fs, parent, name
	if parent != nil {
		parent.IncRef()
	}
	n.refs.Init()
	nodeKind.Born()
}

func (n *node) base() *node { return n }

// IncRef implements vfs.Inode.
func (n *node) IncRef() { n.refs.Inc() }

// DecRef implements vfs.Inode.
func (n *node) DecRef() {
	for n != nil {
		if !n.refs.Dec() {
			return
		}
		for _, l := range n.lower {
			l.DecRef()
		}
		if up := n.upper(); up != nil {
			n.fs.nodesMu.Lock()
			if x := n.fs.byUpper[up]; x != nil && x.base() == n {
				delete(n.fs.byUpper, up)
			}
			n.fs.nodesMu.Unlock()
			up.DecRef()
		}
		nodeKind.Died()
		if n.parent == nil {
			return
		}
		n = &n.parent.node
	}
}

// upper borrows the upper inode, nil if there is none yet.
func (n *node) upper() vfs.Inode {
	if u := n.up.Load(); u != nil {
		return u.inode
	}
	return nil
}

// setUpper takes over inode.
func (n *node) setUpper(inode vfs.Inode) { n.up.Store(&upperRef{inode}) }

// real borrows the inode whose attributes and data count.
func (n *node) real() vfs.Inode {
	if up := n.upper(); up != nil {
		return up
	}
	return n.lower[0]
}

// stat is Stat but for directories' link counts.
func (n *node) stat(c vfs.Caller, mask uint32) (vfs.Stat, error) {
	up := n.upper()
	st, err := n.real().Stat(c, mask)
	if err != nil {
		return st, err
	}
	if up != nil {
		// The number must not change with the copy-up.
		if o := n.origin.Load(); o != nil {
			st.Dev, st.Ino = o.dev, o.ino
		}
	} else if n.orphan.Load() {
		st.Nlink = 0 // the layer below does not know
	}
	n.fs.number(&st)
	return st, nil
}

// Stat implements vfs.Inode.
func (n *node) Stat(c vfs.Caller, mask uint32) (vfs.Stat, error) { return n.stat(c, mask) }

// SetStat implements vfs.Inode.
func (n *node) SetStat(c vfs.Caller, s *vfs.SetStat) error {
	if err := n.copyUp(c, s.Size != nil && *s.Size == 0); err != nil {
		return err
	}
	return n.upper().SetStat(n.fs.as(c), s)
}

const originVersion = 1

func (o *origin) encode() []byte {
	b := binary.LittleEndian.AppendUint64([]byte{originVersion}, o.dev)
	return binary.LittleEndian.AppendUint64(b, o.ino)
}

// readOrigin returns what is stored in an upper inode, nil if nothing is.
func (fs *FS) readOrigin(c vfs.Caller, up vfs.Inode) *origin {
	x, ok := up.(vfs.Xattrer)
	if !ok {
		return nil
	}
	v, err := x.Getxattr(c, fs.prefix+xattrOrigin)
	if err != nil || len(v) != 17 || v[0] != originVersion {
		return nil
	}
	return &origin{binary.LittleEndian.Uint64(v[1:]), binary.LittleEndian.Uint64(v[9:])}
}

func (fs *FS) isOpaque(c vfs.Caller, dir vfs.Inode) bool { return fs.opaque(c, dir) == 'y' }

// opaque is the value of a directory's attribute: 'y' hides what is below, 'x' says that there may be
// whiteouts that are files with an attribute.
func (fs *FS) opaque(c vfs.Caller, dir vfs.Inode) byte {
	x, ok := dir.(vfs.Xattrer)
	if !ok {
		return 0
	}
	v, err := x.Getxattr(c, fs.prefix+xattrOpaque)
	if err != nil || len(v) != 1 {
		return 0
	}
	return v[0]
}

// fileWhiteout tells whether an empty file of lower directory dir is a whiteout
// (overlayfs.rst, whiteouts and opaque directories).
func (fs *FS) fileWhiteout(c vfs.Caller, dir, i vfs.Inode, st *vfs.Stat) bool {
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size != 0 || fs.opaque(c, dir) != 'x' {
		return false
	}
	x, ok := i.(vfs.Xattrer)
	if !ok {
		return false
	}
	_, err := x.Getxattr(c, fs.prefix+xattrWhiteout)
	return err == nil
}

// setPrivateXattr sets one of the overlay's attributes on an upper inode.
func (fs *FS) setPrivateXattr(c vfs.Caller, up vfs.Inode, name string, v []byte) error {
	x, ok := up.(vfs.Xattrer)
	if !ok {
		return unix.EOPNOTSUPP
	}
	return x.Setxattr(fs.as(c), fs.prefix+name, v, 0)
}

// Getxattr implements vfs.Xattrer. The overlay's own attributes do not show.
func (n *node) Getxattr(c vfs.Caller, name string) ([]byte, error) {
	if strings.HasPrefix(name, n.fs.prefix) {
		return nil, unix.EOPNOTSUPP
	}
	x, ok := n.real().(vfs.Xattrer)
	if !ok {
		return nil, unix.EOPNOTSUPP
	}
	return x.Getxattr(c, name)
}

// Setxattr implements vfs.Xattrer.
func (n *node) Setxattr(c vfs.Caller, name string, value []byte, flags uint32) error {
	if strings.HasPrefix(name, n.fs.prefix) {
		return unix.EOPNOTSUPP
	}
	if err := n.copyUp(c, false); err != nil {
		return err
	}
	x, ok := n.upper().(vfs.Xattrer)
	if !ok {
		return unix.EOPNOTSUPP
	}
	return x.Setxattr(n.fs.as(c), name, value, flags)
}

// ACL implements vfs.ACLHolder: the list of the file that counts.
func (n *node) ACL(c vfs.Caller) (*posixacl.ACL, error) {
	if h, ok := n.real().(vfs.ACLHolder); ok {
		return h.ACL(c)
	}
	if h, ok := n.real().(vfs.ACLReader); ok {
		return h.AccessACL(c)
	}
	return nil, nil
}

// Listxattr implements vfs.Xattrer.
func (n *node) Listxattr(c vfs.Caller) ([]string, error) {
	x, ok := n.real().(vfs.Xattrer)
	if !ok {
		return nil, nil
	}
	names, err := x.Listxattr(c)
	if err != nil {
		return nil, err
	}
	kept := names[:0:0]
	for _, s := range names {
		if !strings.HasPrefix(s, n.fs.prefix) {
			kept = append(kept, s)
		}
	}
	return kept, nil
}

// Removexattr implements vfs.Xattrer.
func (n *node) Removexattr(c vfs.Caller, name string) error {
	if _, err := n.Getxattr(c, name); err != nil {
		return err // do not copy up for nothing
	}
	if err := n.copyUp(c, false); err != nil {
		return err
	}
	x, ok := n.upper().(vfs.Xattrer)
	if !ok {
		return unix.EOPNOTSUPP
	}
	return x.Removexattr(n.fs.as(c), name)
}

// linkNode is a symbolic link.
type linkNode struct{ node }

// Open implements vfs.Inode.
func (*linkNode) Open(vfs.Caller, *vfs.Dentry, uint32) (vfs.FileOps, error) { return nil, unix.ELOOP }

// Readlink implements vfs.Symlink.
func (l *linkNode) Readlink(c vfs.Caller) (string, error) {
	s, ok := l.real().(vfs.Symlink)
	if !ok {
		return "", unix.EIO
	}
	return s.Readlink(c)
}

// specialNode is a fifo, a socket or a device node. vfs opens it; what a layer
// would make of it does not count, as on Linux.
type specialNode struct{ node }

// Open implements vfs.Inode.
func (*specialNode) Open(vfs.Caller, *vfs.Dentry, uint32) (vfs.FileOps, error) {
	return nil, unix.ENXIO
}

// share makes o the node of an upper file, unless another one is.
func (fs *FS) share(o overNode, up vfs.Inode) {
	fs.nodesMu.Lock()
	if x := fs.byUpper[up]; x == nil || x.base().refs.Load() == 0 {
		fs.byUpper[up] = o
	}
	fs.nodesMu.Unlock()
}

// shared returns a new reference to the node of an upper file, nil if there is
// none.
func (fs *FS) shared(up vfs.Inode) overNode {
	fs.nodesMu.Lock()
	defer fs.nodesMu.Unlock()
	if x := fs.byUpper[up]; x != nil && x.base().refs.TryInc() {
		return x
	}
	return nil
}

// newNode returns the node for the inodes found at name of parent; it takes over
// up and lower. It is not for directories.
func newNode(c vfs.Caller, parent *dirNode, name string, up vfs.Inode, lower []vfs.Inode, mode uint32) overNode {
	if up != nil {
		if x := parent.fs.shared(up); x != nil {
			up.DecRef()
			release(lower)
			return x
		}
	}
	var o overNode
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		o = &fileNode{}
	case unix.S_IFLNK:
		o = &linkNode{}
	default:
		o = &specialNode{}
	}
	n := o.base()
	n.init(parent.fs, parent, name)
	n.lower, n.self = lower, o
	if up != nil {
		n.origin.Store(n.fs.readOrigin(c, up))
		n.setUpper(up)
		n.fs.share(o, up)
	}
	return o
}
