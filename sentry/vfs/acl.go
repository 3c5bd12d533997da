package vfs

import (
	"golang.org/x/sys/unix"

	"runsc/sentry/posixacl"
)

// inheritACL applies the default list of dir, or the umask if it has none, to
// a new inode (posix_acl_create).
func (w *walker) inheritACL(dir *Dentry, a *CreateAttr, umask uint32) error {
	x, ok := dir.inode.(Xattrer)
	if dir.acl == nil || !ok || a.Mode&unix.S_IFMT == unix.S_IFLNK {
		a.Mode &^= umask & 0o777
		return nil
	}
	v, err := x.Getxattr(w.c, posixacl.Default)
	var list *posixacl.ACL
	switch err {
	case nil:
		if list, err = posixacl.Parse(v); err != nil {
			return err
		}
	case unix.ENODATA, unix.EOPNOTSUPP:
	default:
		return err
	}
	if list == nil {
		a.Mode &^= umask & 0o777
		return nil
	}
	access, mode := list.Create(a.Mode)
	a.Mode = mode
	if access != nil {
		a.ACL = access.Encode()
	}
	if mode&unix.S_IFMT == unix.S_IFDIR {
		a.DefaultACL = v
	}
	return nil
}

// setACL sets an access or default list, or removes it if value is nil or has
// no entries (set_posix_acl). The mode follows an access list, which is not
// kept if the mode says it all.
func (p Path) setACL(c Caller, x Xattrer, name string, value []byte) error {
	if p.Dentry.link != nil {
		return unix.EOPNOTSUPP
	}
	var list *posixacl.ACL
	if value != nil {
		var err error
		if list, err = posixacl.Parse(value); err != nil {
			return err
		}
	}
	st, err := p.Dentry.inode.Stat(c, 0)
	if err != nil {
		return err
	}
	isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	if name == posixacl.Default && !isDir {
		if list != nil {
			return unix.EACCES
		}
		return nil
	}
	cr := c.Cred()
	if !ownerOr(cr, &st, unix.CAP_FOWNER) {
		return unix.EPERM
	}
	// A file of the host: its kernel does the rest.
	if _, ok := p.Dentry.inode.(ACLHolder); !ok && list != nil {
		return x.Setxattr(c, name, list.Encode(), 0)
	}
	if list != nil && name == posixacl.Access {
		bits, all := list.Mode()
		mode := st.Mode&0o7000 | bits
		if !cr.InGroup(st.GID) && !cr.Has(unix.CAP_FSETID) {
			mode &^= unix.S_ISGID
		}
		if err := p.Dentry.inode.SetStat(c, &SetStat{Mode: &mode}); err != nil {
			return err
		}
		if all {
			list = nil
		}
	}
	if list == nil {
		if err := x.Removexattr(c, name); err != unix.ENODATA {
			return err
		}
		return nil
	}
	return x.Setxattr(c, name, list.Encode(), 0)
}
