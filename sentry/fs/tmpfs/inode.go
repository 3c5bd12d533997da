package tmpfs

import (
	"sort"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"runsc/pkg/ref"
	"runsc/sentry/posixacl"
	"runsc/sentry/vfs"
)

// node is any inode of this package.
type node interface {
	vfs.Inode
	base() *inode
	free() // the last name and the last reference are gone
}

// inode is what all kinds have in common.
type inode struct {
	// immutable:
	fs   *FS    `save:"rec"`
	ino  uint64 `save:"rec"`
	rdev uint64 `save:"rec"`

	// refs counts dentries and mappings; names are counted by nlink.
	refs ref.Count `save:"rebuilt"`

	// fs.treeMu guards:
	nlink uint32 `save:"rebuilt"`

	mu sync.Mutex `save:"none: not held at a stop"`
	// mu guards:
	mode, uid, gid             uint32            `save:"rec"`
	atime, mtime, ctime, btime vfs.Timespec      `save:"rec"`
	xattrs                     map[string][]byte `save:"rec"`
	xattrBytes                 int               `save:"rebuilt"`
	acl                        *posixacl.ACL     `save:"rebuilt"` // xattrs has it too
	attrs                      uint64            `save:"rec"`     // STATX_ATTR_* of chattr(1)
	freed                      bool              `save:"none: a freed inode is not saved"`
}

// initInode sets up i with one reference and no name.
func (fs *FS) initInode(i *inode, c vfs.Caller, a vfs.CreateAttr) {
	now := vfs.TimespecOf(c.RealTime())
	i.fs, i.ino = fs, fs.lastIno.Add(1)
	i.mode, i.uid, i.gid = a.Mode, a.UID, a.GID
	i.atime, i.mtime, i.ctime, i.btime = now, now, now, now
	if a.ACL != nil {
		i.inheritXattr(posixacl.Access, a.ACL)
	}
	if a.DefaultACL != nil {
		i.inheritXattr(posixacl.Default, a.DefaultACL)
	}
	i.refs.Init()
	fs.inodes.Add(1)
	inodeKind.Born()
}

// roomForInode pays for an inode; it is ENOSPC when nr_inodes are in use.
// Racing creations may overshoot by as many as they are.
func (fs *FS) roomForInode() error {
	if limit := fs.maxInodes.Load(); limit > 0 && fs.inodes.Load() >= limit {
		return unix.ENOSPC
	}
	return fs.chargeKernel(inodeCost)
}

func (i *inode) base() *inode { return i }

// IncRef implements vfs.Inode.
func (i *inode) IncRef() { i.refs.Inc() }

// put drops a reference to n.
func put(n node) {
	i := n.base()
	if !i.refs.Dec() {
		return
	}
	i.fs.treeMu.RLock()
	named := i.nlink > 0
	i.fs.treeMu.RUnlock()
	if !named {
		i.release(n)
	}
}

// lost is called after n lost its last name.
func (i *inode) lost(n node) {
	if i.refs.Load() == 0 {
		i.release(n)
	}
}

// release frees n once: losing the last name and the last reference may race.
func (i *inode) release(n node) {
	i.mu.Lock()
	freed := i.freed
	i.freed = true
	cost := inodeCost + i.xattrBytes
	i.xattrs, i.xattrBytes = nil, 0
	i.mu.Unlock()
	if freed {
		return
	}
	i.fs.unchargeKernel(cost)
	n.free()
	i.fs.inodes.Add(-1)
	inodeKind.Died()
}

// stat fills all but size and blocks.
func (i *inode) stat() vfs.Stat {
	i.fs.treeMu.RLock()
	nlink := i.nlink
	i.fs.treeMu.RUnlock()
	i.mu.Lock()
	defer i.mu.Unlock()
	return vfs.Stat{
		Mask: unix.STATX_BASIC_STATS | unix.STATX_BTIME,
		Mode: i.mode, UID: i.uid, GID: i.gid, Ino: i.ino, Nlink: nlink, BlockSize: pageSize,
		Dev: i.fs.dev, Rdev: i.rdev, Atime: i.atime, Mtime: i.mtime, Ctime: i.ctime, Btime: i.btime,
		Attributes: i.attrs,
	}
}

// setStat changes all but the size.
func (i *inode) setStat(c vfs.Caller, s *vfs.SetStat) {
	i.mu.Lock()
	defer i.mu.Unlock()
	st := vfs.Stat{Mode: i.mode, UID: i.uid, GID: i.gid, Atime: i.atime, Mtime: i.mtime}
	s.Apply(&st, c.RealTime())
	i.mode, i.uid, i.gid, i.atime, i.mtime, i.ctime = st.Mode, st.UID, st.GID, st.Atime, st.Mtime, st.Ctime
	if s.Mode != nil {
		i.chmodACLLocked()
	}
	if s.UID != nil || s.GID != nil || s.Size != nil {
		i.dropCapsLocked()
	}
}

// dropCapsLocked removes file capabilities: they go with a change of owner or
// contents (cap_inode_killpriv).
func (i *inode) dropCapsLocked() {
	const name = "security.capability"
	if v, ok := i.xattrs[name]; ok {
		delete(i.xattrs, name)
		i.xattrBytes -= len(name) + len(v)
		i.fs.unchargeKernel(len(name) + len(v))
	}
}

// ACL implements vfs.ACLHolder.
func (i *inode) ACL(vfs.Caller) (*posixacl.ACL, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.acl, nil
}

// inheritXattr gives a new inode a list of its directory, if there is memory
// for it: without it nobody gets more than the mode says.
func (i *inode) inheritXattr(name string, v []byte) {
	size := len(name) + len(v)
	if i.fs.chargeKernel(size) != nil {
		return
	}
	if i.xattrs == nil {
		i.xattrs = make(map[string][]byte)
	}
	i.xattrs[name] = v
	i.xattrBytes += size
	i.refreshACLLocked()
}

// refreshACLLocked reads the access list again. It was checked when it was
// set; what an image brings and is none has no effect.
func (i *inode) refreshACLLocked() {
	i.acl = nil
	if v, ok := i.xattrs[posixacl.Access]; ok {
		i.acl, _ = posixacl.Parse(v)
	}
}

// chmodACLLocked makes the access list agree with the mode.
func (i *inode) chmodACLLocked() {
	if i.acl != nil {
		i.acl = i.acl.Chmod(i.mode)
		i.xattrs[posixacl.Access] = i.acl.Encode() // as long as before
	}
}

// touch sets mtime and ctime, or ctime alone.
func (i *inode) touch(now vfs.Timespec, modified bool) {
	i.mu.Lock()
	if modified {
		i.mtime = now
	}
	i.ctime = now
	i.mu.Unlock()
}

// accessed sets atime if f's mount and flags want it.
func (i *inode) accessed(c vfs.Caller, f *vfs.File, isDir bool) {
	now := c.RealTime()
	i.mu.Lock()
	if f.AtimeDue(i.atime, i.mtime, i.ctime, now, isDir) {
		i.atime = vfs.TimespecOf(now)
	}
	i.mu.Unlock()
}

// maxXattrBytes bounds names and values of one inode.
const maxXattrBytes = 128 << 10

func xattrSupported(name string) bool {
	return !strings.HasPrefix(name, "system.") || name == posixacl.Access || name == posixacl.Default
}

// Getxattr implements vfs.Xattrer.
func (i *inode) Getxattr(_ vfs.Caller, name string) ([]byte, error) {
	if !xattrSupported(name) {
		return nil, unix.EOPNOTSUPP
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	v, ok := i.xattrs[name]
	if !ok {
		return nil, unix.ENODATA
	}
	return append([]byte{}, v...), nil
}

// Setxattr implements vfs.Xattrer.
func (i *inode) Setxattr(c vfs.Caller, name string, value []byte, flags uint32) error {
	if !xattrSupported(name) {
		return unix.EOPNOTSUPP
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	old, ok := i.xattrs[name]
	switch {
	case ok && flags&unix.XATTR_CREATE != 0:
		return unix.EEXIST
	case !ok && flags&unix.XATTR_REPLACE != 0:
		return unix.ENODATA
	}
	size := i.xattrBytes + len(value) - len(old)
	if !ok {
		size += len(name)
	}
	if size > maxXattrBytes {
		return unix.ENOSPC
	}
	if err := i.fs.chargeKernel(size - i.xattrBytes); err != nil {
		return err
	}
	i.fs.unchargeKernel(i.xattrBytes - size)
	if i.xattrs == nil {
		i.xattrs = make(map[string][]byte)
	}
	i.xattrs[name] = append([]byte{}, value...)
	i.xattrBytes = size
	i.refreshACLLocked()
	i.ctime = vfs.TimespecOf(c.RealTime())
	return nil
}

// Listxattr implements vfs.Xattrer.
func (i *inode) Listxattr(vfs.Caller) ([]string, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.xattrs) == 0 {
		return nil, nil
	}
	names := make([]string, 0, len(i.xattrs))
	for n := range i.xattrs {
		names = append(names, n)
	}
	sort.Strings(names)
	return names, nil
}

// Removexattr implements vfs.Xattrer.
func (i *inode) Removexattr(c vfs.Caller, name string) error {
	if !xattrSupported(name) {
		return unix.EOPNOTSUPP
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	v, ok := i.xattrs[name]
	if !ok {
		return unix.ENODATA
	}
	delete(i.xattrs, name)
	i.xattrBytes -= len(name) + len(v)
	i.fs.unchargeKernel(len(name) + len(v))
	i.refreshACLLocked()
	i.ctime = vfs.TimespecOf(c.RealTime())
	return nil
}

// symlink is a symbolic link.
type symlink struct {
	inode  `save:"rec"`
	target string `save:"rec"`
}

func (l *symlink) DecRef() { put(l) }
func (l *symlink) free()   {}

// Stat implements vfs.Inode.
func (l *symlink) Stat(vfs.Caller, uint32) (vfs.Stat, error) {
	st := l.stat()
	st.Size = uint64(len(l.target))
	return st, nil
}

// SetStat implements vfs.Inode.
func (l *symlink) SetStat(c vfs.Caller, s *vfs.SetStat) error {
	l.setStat(c, s)
	return nil
}

// Open implements vfs.Inode.
func (l *symlink) Open(vfs.Caller, *vfs.Dentry, uint32) (vfs.FileOps, error) { return nil, unix.ELOOP }

// Readlink implements vfs.Symlink.
func (l *symlink) Readlink(vfs.Caller) (string, error) { return l.target, nil }

// special is a fifo, a socket or a device node.
type special struct {
	inode `save:"rec"`
}

func (s *special) DecRef() { put(s) }
func (s *special) free()   {}

// Stat implements vfs.Inode.
func (s *special) Stat(vfs.Caller, uint32) (vfs.Stat, error) { return s.stat(), nil }

// SetStat implements vfs.Inode.
func (s *special) SetStat(c vfs.Caller, set *vfs.SetStat) error {
	s.setStat(c, set)
	return nil
}

// Open implements vfs.Inode; vfs opens special files by itself.
func (s *special) Open(vfs.Caller, *vfs.Dentry, uint32) (vfs.FileOps, error) { return nil, unix.ENXIO }
