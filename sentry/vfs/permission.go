package vfs

import (
	"cmp"

	"golang.org/x/sys/unix"

	"runsc/sentry/cred"
	"runsc/sentry/posixacl"
)

// permit checks mask (May*) for the walker's credentials on d.
func (w *walker) permit(d *Dentry, mask uint32) error {
	if d.perm != nil {
		return d.perm.Permission(w.c, mask)
	}
	st, err := d.inode.Stat(w.c, 0)
	if err != nil {
		return err
	}
	return w.permitStat(d, &st, mask)
}

// permitStat is permit with the attributes at hand.
func (w *walker) permitStat(d *Dentry, st *Stat, mask uint32) error {
	if mask&MayWrite != 0 && st.Attributes&unix.STATX_ATTR_IMMUTABLE != 0 {
		return unix.EPERM
	}
	// As acl_permission_check: a list counts for all but the owner, and only
	// if the mode leaves its mask anything.
	if (d.acl != nil || d.acls != nil) && w.cr.FSUID != st.UID && st.Mode&0o070 != 0 && overrideMode(w.cr, st, mask) != nil {
		list, err := d.accessACL(w.c)
		if err != nil {
			return err
		}
		if list != nil {
			if list.Check(w.cr, st.UID, st.GID, mask) {
				return nil
			}
			return unix.EACCES
		}
	}
	return CheckMode(w.cr, st, mask)
}

// accessACL is the list of d, whoever keeps it.
func (d *Dentry) accessACL(c Caller) (*posixacl.ACL, error) {
	if d.acl != nil {
		return d.acl.ACL(c)
	}
	return d.acls.AccessACL(c)
}

// permitDentry is permit outside a walk.
func permitDentry(c Caller, d *Dentry, mask uint32) error {
	w := walker{c: c, cr: c.Cred()}
	return w.permit(d, mask)
}

// CheckMode is the check by owner, group, others and capabilities that Linux
// calls generic_permission.
func CheckMode(cr *cred.Creds, st *Stat, mask uint32) error {
	bits := st.Mode
	switch {
	case cr.FSUID == st.UID:
		bits >>= 6
	case (bits>>3^bits)&mask&7 != 0 && cr.InGroup(st.GID):
		bits >>= 3
	}
	if mask&^bits&7 == 0 {
		return nil
	}
	return overrideMode(cr, st, mask)
}

// overrideMode is what capabilities permit that the mode does not.
func overrideMode(cr *cred.Creds, st *Stat, mask uint32) error {
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		if mask&MayWrite == 0 && cr.Has(unix.CAP_DAC_READ_SEARCH) || cr.Has(unix.CAP_DAC_OVERRIDE) {
			return nil
		}
		return unix.EACCES
	}
	if mask == MayRead && cr.Has(unix.CAP_DAC_READ_SEARCH) {
		return nil
	}
	if (mask&MayExec == 0 || st.Mode&0o111 != 0) && cr.Has(unix.CAP_DAC_OVERRIDE) {
		return nil
	}
	return unix.EACCES
}

// ownerOr checks that the caller owns the inode or has the capability.
func ownerOr(cr *cred.Creds, st *Stat, capability int) bool {
	return cr.FSUID == st.UID || cr.Has(capability)
}

// mayDelete is Linux's may_delete: write and search permission on dir, the
// sticky bit, and the kind of the victim. wantDir is set for rmdir.
func (w *walker) mayDelete(dir, victim *Dentry, wantDir bool) error {
	if err := w.permit(dir, MayWrite|MayExec); err != nil {
		return err
	}
	ds, err := dir.inode.Stat(w.c, 0)
	if err != nil {
		return err
	}
	if ds.Mode&unix.S_ISVTX != 0 && !ownerOr(w.cr, &ds, unix.CAP_FOWNER) {
		vs, err := victim.inode.Stat(w.c, 0)
		if err != nil {
			return err
		}
		if vs.UID != w.cr.FSUID {
			return unix.EPERM
		}
	}
	if ds.Attributes&unix.STATX_ATTR_APPEND != 0 {
		return unix.EPERM
	}
	if vs, err := victim.inode.Stat(w.c, 0); err != nil || vs.Attributes&fixedAttrs != 0 {
		return cmp.Or(err, error(unix.EPERM))
	}
	if wantDir {
		if !victim.IsDir() {
			return unix.ENOTDIR
		}
	} else if victim.IsDir() {
		return unix.EISDIR
	}
	if victim.mounted.Load() > 0 {
		return unix.EBUSY
	}
	return nil
}

// fixedAttrs are the attributes of files of which little can be changed
// (chattr(1)).
const fixedAttrs = unix.STATX_ATTR_IMMUTABLE | unix.STATX_ATTR_APPEND

// createAttr computes owner and mode of a new inode in dir, as Linux's
// inode_init_owner and mode_strip_sgid do.
func (w *walker) createAttr(dir *Dentry, mode, umask uint32) (CreateAttr, error) {
	a := CreateAttr{Mode: mode, UID: w.cr.FSUID, GID: w.cr.FSGID}
	ds, err := dir.inode.Stat(w.c, 0)
	if err != nil {
		return a, err
	}
	if err := w.inheritACL(dir, &a, umask); err != nil {
		return a, err
	}
	if ds.Mode&unix.S_ISGID == 0 {
		return a, nil
	}
	a.GID = ds.GID
	if mode&unix.S_IFMT == unix.S_IFDIR {
		a.Mode |= unix.S_ISGID
	} else if a.Mode&(unix.S_ISGID|unix.S_IXGRP) == unix.S_ISGID|unix.S_IXGRP &&
		!w.cr.InGroup(ds.GID) && !w.cr.Has(unix.CAP_FSETID) {
		a.Mode &^= unix.S_ISGID
	}
	return a, nil
}

// WriteStripsMode tells which mode a regular file has after a write by c, and
// whether it differs: set-user-ID, and set-group-ID of a file that the group may execute or that
// belongs to another group than the writer's, go unless the writer has CAP_FSETID (Linux's
// file_remove_privs, setattr_should_drop_suidgid). File systems that
// keep their own modes call it in WriteAt and when the size changes.
func WriteStripsMode(c Caller, mode, gid uint32) (uint32, bool) {
	if mode&(unix.S_ISUID|unix.S_ISGID) == 0 || mode&unix.S_IFMT != unix.S_IFREG {
		return mode, false
	}
	n := mode &^ unix.S_ISUID
	if mode&unix.S_IXGRP != 0 || !c.Cred().InGroup(gid) {
		n &^= unix.S_ISGID
	}
	if n == mode || c.Cred().Has(unix.CAP_FSETID) {
		return mode, false
	}
	return n, true
}
