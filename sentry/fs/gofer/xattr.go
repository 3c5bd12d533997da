package gofer

import (
	"strings"

	"golang.org/x/sys/unix"

	"runsc/pkg/hostfs"
	"runsc/sentry/vfs"
)

// xattrAllowed tells which attributes of host files a guest may see. What
// security modules of the host keep there is not its business.
func xattrAllowed(name string) bool {
	switch {
	case strings.HasPrefix(name, "user."), strings.HasPrefix(name, "trusted."):
		return true
	}
	switch name {
	case "security.capability", "system.posix_acl_access", "system.posix_acl_default":
		return true
	}
	return false
}

// withXattrs calls fn with a target on which the calls for extended attributes
// work. The host wants one opened for data, which only regular files and
// directories have; on others user attributes do not exist anyway (xattr(7)).
// In direct mode it is kept for the next call, in remote mode the gofer opens
// it: a directory's would be a way around the protocol.
func (i *inode) withXattrs(fn func(b hostfs.Backend, t hostfs.Target) error) error {
	if i.typ != unix.S_IFREG && i.typ != unix.S_IFDIR {
		return unix.EOPNOTSUPP
	}
	b := i.fs.client.backend
	var h *handle
	var err error
	if b.Direct() {
		h, err = i.open(forRead)
	} else if h = i.fs.client.fds.getAny(i); h == nil {
		h, err = i.open(byPath)
	}
	if err != nil {
		return err
	}
	defer i.fs.put(h)
	return fn(b, h.target())
}

// Getxattr implements vfs.Xattrer.
func (i *inode) Getxattr(c vfs.Caller, name string) (value []byte, err error) {
	if !xattrAllowed(name) {
		return nil, unix.EOPNOTSUPP
	}
	err = i.withXattrs(func(b hostfs.Backend, t hostfs.Target) error {
		value, err = b.Getxattr(t, name)
		return err
	})
	if err == unix.EOPNOTSUPP && i.typ != unix.S_IFREG && i.typ != unix.S_IFDIR {
		return nil, unix.ENODATA
	}
	return value, err
}

// Setxattr implements vfs.Xattrer.
func (i *inode) Setxattr(c vfs.Caller, name string, value []byte, flags uint32) error {
	if !xattrAllowed(name) {
		return unix.EOPNOTSUPP
	}
	defer i.changing().done()
	defer i.stale()
	defer i.forgetACL()
	return i.withXattrs(func(b hostfs.Backend, t hostfs.Target) error { return b.Setxattr(t, name, value, int(flags)) })
}

// Listxattr implements vfs.Xattrer.
func (i *inode) Listxattr(c vfs.Caller) (names []string, err error) {
	err = i.withXattrs(func(b hostfs.Backend, t hostfs.Target) error {
		all, err := b.Listxattr(t)
		for _, name := range all {
			if xattrAllowed(name) {
				names = append(names, name)
			}
		}
		return err
	})
	if err == unix.EOPNOTSUPP {
		err = nil // listxattr(2) gives an empty list
	}
	return names, err
}

// Removexattr implements vfs.Xattrer.
func (i *inode) Removexattr(c vfs.Caller, name string) error {
	if !xattrAllowed(name) {
		return unix.EOPNOTSUPP
	}
	defer i.changing().done()
	defer i.stale()
	defer i.forgetACL()
	return i.withXattrs(func(b hostfs.Backend, t hostfs.Target) error { return b.Removexattr(t, name) })
}
