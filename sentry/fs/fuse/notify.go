package fuse

import (
	"time"

	"golang.org/x/sys/unix"
)

// notified takes a notification of the server: what it says has changed is
// asked for again.
func (cn *conn) notified(code int32, b []byte) error {
	fs := cn.fs
	if fs == nil {
		return unix.ENOTCONN
	}
	switch code {
	case notifyInvalInode:
		if len(b) != 24 {
			return unix.EINVAL
		}
		fs.mu.Lock()
		i := fs.inodes[u64(b, 0)]
		fs.mu.Unlock()
		if i == nil {
			return unix.ENOENT
		}
		i.stale()
		return nil
	case notifyInvalEntry:
		return fs.invalEntry(b, 0, 8)
	case notifyDelete:
		return fs.invalEntry(b, 8, 16)
	}
	return unix.EINVAL
}

// invalEntry makes a name be looked up again: b has the directory first, the length of the name at n
// and the name eight bytes later. child, if it is not 0, is where the node is that the name must lead to.
func (fs *FS) invalEntry(b []byte, child, n int) error {
	if len(b) < n+8 || int(u32(b, n)) != len(b)-n-9 {
		return unix.EINVAL
	}
	dir, name := u64(b, 0), string(b[n+8:len(b)-1])
	fs.mu.Lock()
	var found *inode
	for _, i := range fs.inodes {
		if i.parent == dir && i.name == name && (child == 0 || i.node == u64(b, child)) {
			found = i
		}
	}
	fs.mu.Unlock()
	if found == nil {
		return unix.ENOENT
	}
	found.mu.Lock()
	found.attrValid, found.entryValid = time.Time{}, time.Time{}
	found.mu.Unlock()
	return nil
}
