package fuse

import (
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"runsc/sentry/vfs"
)

// inode is a file that the server told of. dirInode, linkInode and fileInode
// give it the methods of its type.
type inode struct {
	// immutable:
	fs         *FS    `save:"rec"`
	node       uint64 `save:"rec"`
	generation uint64 `save:"rec"`
	typ        uint32 `save:"rec"`

	// fs.mu guards:
	refs    int64  `save:"rebuilt"`
	lookups uint64 `save:"rec"` // that the server counts
	parent  uint64 `save:"rec"` // node of the directory it was last found in
	name    string `save:"rec"` // there

	mu sync.Mutex `save:"none: not held at a stop"`
	// mu guards:
	attr       vfs.Stat  `save:"rec"`
	attrValid  time.Time `save:"none: asked again after a restore"`
	entryValid time.Time `save:"none: asked again after a restore"`
	pages      *pages    `save:"rec"`                           // what mappings see, once there was one
	lost       bool      `save:"none: the image has the pages"` // a change by a mapping could not be sent
}

type (
	dirInode     struct{ *inode }
	linkInode    struct{ *inode }
	fileInode    struct{ *inode }
	specialInode struct{ *inode }
)

// outer is the inode as vfs sees it.
func (i *inode) outer() vfs.Inode {
	switch i.typ {
	case unix.S_IFDIR:
		return dirInode{i}
	case unix.S_IFLNK:
		return linkInode{i}
	case unix.S_IFREG:
		return fileInode{i}
	}
	return specialInode{i}
}

// inner is the inode behind one that vfs gives; nil for another file system's.
func inner(v vfs.Inode) *inode {
	switch v := v.(type) {
	case dirInode:
		return v.inode
	case linkInode:
		return v.inode
	case fileInode:
		return v.inode
	case specialInode:
		return v.inode
	}
	return nil
}

// IncRef implements vfs.Inode.
func (i *inode) IncRef() {
	i.fs.mu.Lock()
	i.refs++
	i.fs.mu.Unlock()
}

// DecRef implements vfs.Inode. The server is told when nobody knows the file.
func (i *inode) DecRef() {
	fs := i.fs
	fs.mu.Lock()
	if i.refs--; i.refs > 0 {
		fs.mu.Unlock()
		return
	}
	if fs.inodes[i.node] == i {
		delete(fs.inodes, i.node)
	}
	n := i.lookups
	i.lookups = 0
	fs.mu.Unlock()
	inodeKind.Died()
	fs.conn.forget(i.node, n)
	if p := i.pages; p != nil {
		p.ops.Release()
		p.file.DecRef()
	}
}

// setAttr takes attributes of the server.
func (i *inode) setAttr(st *vfs.Stat, valid uint64, nanos uint32) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.attr = *st
	i.attr.Mode = i.typ | st.Mode&0o7777
	i.attr.Dev = i.fs.dev
	i.attrValid = deadline(valid, nanos)
}

// stale makes the next stat ask the server.
func (i *inode) stale() {
	i.mu.Lock()
	i.attrValid = time.Time{}
	i.mu.Unlock()
}

// takeAttr decodes a struct fuse_attr_out. Another type is EIO.
func (i *inode) takeAttr(b []byte) error {
	st := decodeAttr(b[16:])
	if st.Mode&unix.S_IFMT != i.typ || st.Size > 1<<63-1 {
		return unix.EIO
	}
	i.setAttr(&st, u64(b, 0), u32(b, 8))
	return nil
}

// refresh asks for the attributes.
func (i *inode) refresh(c vfs.Caller) error {
	b, err := i.fs.conn.call(c, opGetattr, i.node, body{}.u32(0, 0).u64(0), 104, 104)
	if err != nil {
		return err
	}
	return i.takeAttr(b)
}

// Stat implements vfs.Inode.
func (i *inode) Stat(c vfs.Caller, mask uint32) (vfs.Stat, error) {
	i.mu.Lock()
	fresh := time.Now().Before(i.attrValid) || mask == unix.STATX_INO && i.attr.Ino != 0
	st := i.attr
	i.mu.Unlock()
	st.Dev = i.fs.dev
	if fresh || i.fs.isRestoring() || c == nil {
		return st, nil
	}
	if err := i.refresh(c); err != nil {
		return st, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.attr, nil
}

func (fs *FS) isRestoring() bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.restoring
}

// Permission implements vfs.Permitter (fuse_permission): without the option
// default_permissions the server decides, operation by operation.
func (i *inode) Permission(c vfs.Caller, mask uint32) error {
	if err := i.fs.allowed(c); err != nil {
		return err
	}
	if !i.fs.permissions && (mask&vfs.MayExec == 0 || i.typ != unix.S_IFREG) {
		return nil
	}
	st, err := i.Stat(c, 0)
	if err != nil {
		return err
	}
	if i.fs.permissions {
		return vfs.CheckMode(c.Cred(), &st, mask)
	}
	if st.Mode&0o111 == 0 {
		return unix.EACCES
	}
	return nil
}

// Access implements vfs.Accesser.
func (i *inode) Access(c vfs.Caller, mask uint32) error {
	if i.fs.permissions {
		return nil
	}
	_, err := i.fs.conn.call(c, opAccess, i.node, body{}.u32(mask, 0), 0, 0)
	if err == unix.ENOSYS {
		return nil
	}
	return err
}

// SetStat implements vfs.Inode.
func (i *inode) SetStat(c vfs.Caller, s *vfs.SetStat) error {
	if err := i.fs.allowed(c); err != nil {
		return err
	}
	if s.Size != nil {
		if err := i.flushPages(c); err != nil {
			return err
		}
	}
	var valid, mode, uid, gid, anano, mnano uint32
	var size, atime, mtime uint64
	if s.Mode != nil {
		valid, mode = valid|setMode, *s.Mode|i.typ
	}
	if s.UID != nil {
		valid, uid = valid|setUID, *s.UID
	}
	if s.GID != nil {
		valid, gid = valid|setGID, *s.GID
	}
	if s.Size != nil {
		valid, size = valid|setSize, *s.Size
	}
	if s.Atime != nil {
		valid, atime, anano = valid|setAtime, uint64(s.Atime.Sec), s.Atime.Nsec
	} else if s.AtimeNow {
		valid |= setAtime | setAtimeNow
	}
	if s.Mtime != nil {
		valid, mtime, mnano = valid|setMtime, uint64(s.Mtime.Sec), s.Mtime.Nsec
	} else if s.MtimeNow {
		valid |= setMtime | setMtimeNow
	}
	args := body{}.u32(valid, 0).u64(0, size, 0, atime, mtime, 0).u32(anano, mnano, 0, mode, 0, uid, gid, 0)
	b, err := i.fs.conn.call(c, opSetattr, i.node, args, 104, 104)
	if err != nil {
		i.stale()
		return err
	}
	if err := i.takeAttr(b); err != nil {
		return err
	}
	if s.Size != nil {
		i.resizePages(c, *s.Size)
	}
	return nil
}

// Readlink implements vfs.Symlink.
func (l linkInode) Readlink(c vfs.Caller) (string, error) {
	b, err := l.fs.conn.call(c, opReadlink, l.node, nil, 0, unix.PathMax-1)
	if err != nil {
		return "", err
	}
	s, _, _ := strings.Cut(string(b), "\x00")
	return s, nil
}

// Open implements vfs.Inode.
func (linkInode) Open(vfs.Caller, *vfs.Dentry, uint32) (vfs.FileOps, error) { return nil, unix.ELOOP }

// Open implements vfs.Inode: vfs opens fifos, sockets and devices.
func (specialInode) Open(vfs.Caller, *vfs.Dentry, uint32) (vfs.FileOps, error) {
	return nil, unix.ENXIO
}

const maxXattr = 64 << 10

// unsupported turns the answer of a server without extended attributes into
// Linux's.
func unsupported(err error) error {
	if err == unix.ENOSYS {
		return unix.EOPNOTSUPP
	}
	return err
}

// Getxattr implements vfs.Xattrer.
func (i *inode) Getxattr(c vfs.Caller, name string) ([]byte, error) {
	if err := i.fs.allowed(c); err != nil {
		return nil, err
	}
	b, err := i.fs.conn.call(c, opGetxattr, i.node, body{}.u32(maxXattr, 0).str(name), 0, maxXattr)
	return b, unsupported(err)
}

// Setxattr implements vfs.Xattrer.
func (i *inode) Setxattr(c vfs.Caller, name string, value []byte, flags uint32) error {
	if err := i.fs.allowed(c); err != nil {
		return err
	}
	args := append(body{}.u32(uint32(len(value)), flags).str(name), value...)
	_, err := i.fs.conn.call(c, opSetxattr, i.node, args, 0, 0)
	i.stale()
	return unsupported(err)
}

// Listxattr implements vfs.Xattrer.
func (i *inode) Listxattr(c vfs.Caller) ([]string, error) {
	if err := i.fs.allowed(c); err != nil {
		return nil, err
	}
	b, err := i.fs.conn.call(c, opListxattr, i.node, body{}.u32(maxXattr, 0), 0, maxXattr)
	if err != nil {
		return nil, unsupported(err)
	}
	if len(b) == 0 {
		return nil, nil
	}
	if b[len(b)-1] != 0 {
		return nil, unix.EIO
	}
	names := strings.Split(string(b[:len(b)-1]), "\x00")
	for _, n := range names {
		if n == "" {
			return nil, unix.EIO
		}
	}
	return names, nil
}

// Removexattr implements vfs.Xattrer.
func (i *inode) Removexattr(c vfs.Caller, name string) error {
	if err := i.fs.allowed(c); err != nil {
		return err
	}
	_, err := i.fs.conn.call(c, opRemovexattr, i.node, body{}.str(name), 0, 0)
	i.stale()
	return unsupported(err)
}
