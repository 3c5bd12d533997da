package gofer

import (
	"time"

	"golang.org/x/sys/unix"

	"runsc/sentry/posixacl"
	"runsc/sentry/vfs"
)

// settled is how old the last change of a file on a shared mount must be so
// that a later one is sure to have another time: file systems count it in ticks.
const settled = 50 * time.Millisecond

// aclCache is an access list as the host has it.
type aclCache struct {
	known bool
	list  *posixacl.ACL
	ctime vfs.Timespec // of the file when it was read
}

// AccessACL implements vfs.ACLReader. The host is asked once, and on a shared
// mount again after each change of the file.
func (i *inode) AccessACL(c vfs.Caller) (*posixacl.ACL, error) {
	if i.typ != unix.S_IFREG && i.typ != unix.S_IFDIR || i.dev.noACL.Load() {
		return nil, nil
	}
	i.mu.Lock()
	a, changes, ctime := i.acl, i.aclChanges, i.guest.Ctime
	i.mu.Unlock()
	if a.known && (i.fs.exclusive || a.ctime == ctime) {
		return a.list, nil
	}
	asked := time.Now()
	v, err := i.Getxattr(c, posixacl.Access)
	var list *posixacl.ACL
	switch err {
	case nil:
		if list, err = posixacl.Parse(v); err != nil {
			return nil, unix.EIO
		}
	case unix.EOPNOTSUPP:
		// Other files of an overlay may be on another file system, and a
		// FUSE server may say anything.
		if m := i.fs.magic; m != unix.OVERLAYFS_SUPER_MAGIC && m != unix.FUSE_SUPER_MAGIC {
			i.dev.noACL.Store(true)
		}
	case unix.ENODATA, unix.EACCES, unix.EPERM: // what we may not see we cannot apply
	default:
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.aclChanges == changes && (i.fs.exclusive || asked.Sub(time.Unix(ctime.Sec, int64(ctime.Nsec))) > settled) {
		i.acl = aclCache{known: true, list: list, ctime: ctime}
	}
	return list, nil
}

// forgetACL is called after each change through here of the mode or a list.
func (i *inode) forgetACL() {
	i.mu.Lock()
	i.acl = aclCache{}
	i.aclChanges++
	i.mu.Unlock()
}
