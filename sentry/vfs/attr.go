package vfs

import (
	"cmp"
	"encoding/binary"
	"strings"

	"golang.org/x/sys/unix"

	"runsc/sentry/cred"
	"runsc/sentry/posixacl"
)

// KeepID as a user or group id leaves it as it is (chown(2)'s -1).
const KeepID = ^uint32(0)

// TimeSet is one of the times of utimensat(2).
type TimeSet struct {
	Omit, Now bool
	Time      Timespec
}

// withPath runs fn on the path that at names.
func withPath(c Caller, at *At, fn func(p Path) error) error {
	p, err := LookupAt(c, *at)
	if err != nil {
		return err
	}
	err = fn(p)
	p.DecRef()
	return err
}

// StatAt implements stat(2) and statx(2); mask has STATX_* bits.
func StatAt(c Caller, at At, mask uint32) (Stat, error) {
	var w walker
	if err := w.init(c, &at); err != nil {
		return Stat{}, err
	}
	defer w.done()
	if err := w.lookup(); err != nil {
		return Stat{}, err
	}
	return w.cur.stat(c, mask)
}

// stat is what statx(2) tells of p.
func (p Path) stat(c Caller, mask uint32) (Stat, error) {
	st, err := p.Dentry.inode.Stat(c, mask)
	if err == nil && p.Mount != nil {
		st.MountID = p.Mount.id
		if p.Dentry == p.Mount.root {
			st.Attributes |= unix.STATX_ATTR_MOUNT_ROOT
		}
	}
	return st, err
}

// ReadlinkAt implements readlink(2) and readlinkat(2), which looks at Dir
// itself for an empty name. EINVAL if it is no symlink.
func ReadlinkAt(c Caller, at At) (target string, err error) {
	at.Flags |= NoFollow
	err = withPath(c, &at, func(p Path) error {
		if p.Dentry.link == nil {
			if at.Name == "" {
				return unix.ENOENT // readlinkat(2), ERRORS
			}
			return unix.EINVAL
		}
		target, err = p.Dentry.link.Readlink(c)
		return err
	})
	return target, err
}

// AccessAt implements access(2); mask is of May* bits. The real ids count,
// and the capabilities that they would have, unless effective is set.
func AccessAt(c Caller, at At, mask uint32, effective bool) error {
	var w walker
	if err := w.init(c, &at); err != nil {
		return err
	}
	defer w.done()
	if !effective {
		w.cr = accessCreds(c.Cred())
	}
	if err := w.lookup(); err != nil {
		return err
	}
	m := w.cur.Mount
	st, err := w.cur.Dentry.inode.Stat(c, 0)
	if err != nil {
		return err
	}
	kind := st.Mode & unix.S_IFMT
	if mask&MayExec != 0 && kind == unix.S_IFREG && m.has(unix.MS_NOEXEC) {
		return unix.EACCES
	}
	if mask != 0 {
		if err := w.permit(w.cur.Dentry, mask); err != nil {
			return err
		}
		if a, ok := w.cur.Dentry.inode.(Accesser); ok {
			if err := a.Access(c, mask); err != nil {
				return err
			}
		}
	}
	if mask&MayWrite != 0 && (kind == unix.S_IFREG || kind == unix.S_IFDIR || kind == unix.S_IFLNK) {
		return m.wantWrite()
	}
	return nil
}

// accessCreds is Linux's access_override_creds.
func accessCreds(cr *cred.Creds) *cred.Creds {
	n := cr.Copy()
	n.FSUID, n.FSGID = cr.UID, cr.GID
	if cr.SecureBits&cred.SecNoSetuidFixup == 0 {
		if cr.UID == 0 {
			n.Effective = n.Permitted
		} else {
			n.Effective = 0
		}
	}
	return n
}

// StatfsAt implements statfs(2); flags are the f_flags of the mount.
func StatfsAt(c Caller, at At) (s Statfs, flags int64, err error) {
	err = withPath(c, &at, func(p Path) error {
		s, flags, err = p.Statfs(c)
		return err
	})
	return s, flags, err
}

// Statfs is what statfs(2) tells of the file system at p; flags are the
// f_flags of the mount.
func (p Path) Statfs(c Caller) (s Statfs, flags int64, err error) {
	s, err = p.Dentry.sb.fs.Statfs(c)
	const stValid, stRelatime, stNosymfollow = 0x20, 0x1000, 0x2000
	flags = stValid
	if p.Mount != nil {
		f := p.Mount.Flags()
		// The ST_* bits are MS_*'s, but for relatime.
		flags |= int64(f & (unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC))
		if f&unix.MS_NOATIME != 0 {
			flags |= unix.ST_NOATIME
		}
		if f&unix.MS_NODIRATIME != 0 {
			flags |= unix.ST_NODIRATIME
		}
		if f&unix.MS_RELATIME != 0 {
			flags |= stRelatime
		}
		if f&unix.MS_NOSYMFOLLOW != 0 {
			flags |= stNosymfollow
		}
		flags |= int64(p.Dentry.sb.flags.Load() & (unix.MS_SYNCHRONOUS | unix.MS_MANDLOCK))
		if p.Mount.ReadOnly() {
			flags |= unix.ST_RDONLY
		}
	}
	return s, flags, err
}

// TruncateAt implements truncate(2).
func TruncateAt(c Caller, at At, size int64) error {
	if size < 0 {
		return unix.EINVAL
	}
	return withPath(c, &at, func(p Path) error {
		st, err := p.Dentry.inode.Stat(c, 0)
		if err != nil {
			return err
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
		case unix.S_IFDIR:
			return unix.EISDIR
		default:
			return unix.EINVAL
		}
		if err := p.Mount.wantWrite(); err != nil {
			return err
		}
		if err := permitDentry(c, p.Dentry, MayWrite); err != nil {
			return err
		}
		if st.Attributes&unix.STATX_ATTR_APPEND != 0 {
			return unix.EPERM
		}
		if err := beginWrite(p.Dentry.inode); err != nil {
			return err
		}
		defer endWrite(p.Dentry.inode)
		if err := breakLeases(c, p.Dentry.inode, true, false); err != nil {
			return err
		}
		return truncate(c, p.Dentry, &st, size)
	})
}

func truncate(c Caller, d *Dentry, st *Stat, size int64) error {
	if uint64(size) > c.Rlimit(unix.RLIMIT_FSIZE) {
		if cur, err := d.inode.Stat(c, unix.STATX_SIZE); err != nil || uint64(size) > cur.Size {
			return unix.EFBIG
		}
	}
	n := uint64(size)
	set := SetStat{Size: &n}
	if m, strip := WriteStripsMode(c, st.Mode, st.GID); strip {
		m &^= unix.S_IFMT
		set.Mode = &m
	}
	if err := d.inode.SetStat(c, &set); err != nil {
		return err
	}
	if watches.n.Load() != 0 {
		notifySelf(d, unix.IN_MODIFY)
	}
	return nil
}

// Chmod implements chmod(2) on what is at p.
func (p Path) Chmod(c Caller, mode uint32) error {
	st, err := p.startChange(c)
	if err != nil {
		return err
	}
	if p.Dentry.link != nil {
		return unix.EOPNOTSUPP
	}
	cr := c.Cred()
	if !ownerOr(cr, &st, unix.CAP_FOWNER) {
		return unix.EPERM
	}
	mode &= 0o7777
	if !cr.InGroup(st.GID) && !cr.Has(unix.CAP_FSETID) {
		mode &^= unix.S_ISGID
	}
	return p.change(c, &SetStat{Mode: &mode})
}

// Chown implements chown(2) on what is at p; KeepID keeps an id. As
// chown_common of Linux does, set-user-ID and set-group-ID of a file that is
// no directory go, whoever the caller is.
func (p Path) Chown(c Caller, uid, gid uint32) error {
	st, err := p.startChange(c)
	if err != nil {
		return err
	}
	cr := c.Cred()
	var set SetStat
	if uid != KeepID {
		if !(cr.FSUID == st.UID && uid == st.UID) && !cr.Has(unix.CAP_CHOWN) {
			return unix.EPERM
		}
		set.UID = &uid
	}
	if gid != KeepID {
		if !(cr.FSUID == st.UID && (gid == st.GID || cr.InGroup(gid))) && !cr.Has(unix.CAP_CHOWN) {
			return unix.EPERM
		}
		set.GID = &gid
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		mode := st.Mode & 0o7777 &^ unix.S_ISUID
		if mode&unix.S_IXGRP != 0 || !cr.InGroup(st.GID) && !cr.Has(unix.CAP_FSETID) {
			mode &^= unix.S_ISGID
		}
		if mode != st.Mode&0o7777 {
			// A change of the mode, which is the owner's (setattr_prepare).
			if !ownerOr(cr, &st, unix.CAP_FOWNER) {
				return unix.EPERM
			}
			set.Mode = &mode
		}
	}
	return p.change(c, &set)
}

// Utimes implements utimensat(2) on what is at p.
func (p Path) Utimes(c Caller, atime, mtime TimeSet) error {
	if atime.Omit && mtime.Omit {
		return nil
	}
	st, err := p.startChange(c)
	if err != nil {
		return err
	}
	if !ownerOr(c.Cred(), &st, unix.CAP_FOWNER) {
		if !atime.Now || !mtime.Now {
			return unix.EPERM
		}
		// Whoever may write may set both times to now (utimensat(2)).
		if err := permitDentry(c, p.Dentry, MayWrite); err != nil {
			return err
		}
	}
	set := SetStat{AtimeNow: atime.Now && !atime.Omit, MtimeNow: mtime.Now && !mtime.Omit}
	if !atime.Omit && !atime.Now {
		set.Atime = &atime.Time
	}
	if !mtime.Omit && !mtime.Now {
		set.Mtime = &mtime.Time
	}
	return p.change(c, &set)
}

func (p Path) startChange(c Caller) (Stat, error) {
	if p.Mount != nil {
		if err := p.Mount.wantWrite(); err != nil {
			return Stat{}, err
		}
	}
	st, err := p.Dentry.inode.Stat(c, 0)
	if err == nil && st.Attributes&fixedAttrs != 0 {
		err = unix.EPERM
	}
	return st, err
}

func (p Path) change(c Caller, set *SetStat) error {
	err := p.Dentry.inode.SetStat(c, set)
	if err == nil {
		notifySelf(p.Dentry, unix.IN_ATTRIB)
	}
	return err
}

// ChmodAt implements chmod(2) and fchmodat(2).
func ChmodAt(c Caller, at At, mode uint32) error {
	return withPath(c, &at, func(p Path) error { return p.Chmod(c, mode) })
}

// ChownAt implements chown(2), lchown(2) and fchownat(2).
func ChownAt(c Caller, at At, uid, gid uint32) error {
	return withPath(c, &at, func(p Path) error { return p.Chown(c, uid, gid) })
}

// UtimesAt implements utimensat(2) and its older kin.
func UtimesAt(c Caller, at At, atime, mtime TimeSet) error {
	return withPath(c, &at, func(p Path) error { return p.Utimes(c, atime, mtime) })
}

// Stat implements fstat(2).
func (f *File) Stat(c Caller, mask uint32) (Stat, error) { return f.path.stat(c, mask) }

// Statfs implements fstatfs(2).
func (f *File) Statfs(c Caller) (Statfs, int64, error) { return f.path.Statfs(c) }

// Chmod implements fchmod(2).
func (f *File) Chmod(c Caller, mode uint32) error {
	if f.IsPath() {
		return unix.EBADF
	}
	return f.path.Chmod(c, mode)
}

// Chown implements fchown(2).
func (f *File) Chown(c Caller, uid, gid uint32) error {
	if f.IsPath() {
		return unix.EBADF
	}
	return f.path.Chown(c, uid, gid)
}

// Utimes implements futimens(3).
func (f *File) Utimes(c Caller, atime, mtime TimeSet) error {
	if f.IsPath() {
		return unix.EBADF
	}
	return f.path.Utimes(c, atime, mtime)
}

// Truncate implements ftruncate(2).
func (f *File) Truncate(c Caller, size int64) error {
	if f.IsPath() {
		return unix.EBADF
	}
	if size < 0 || f.mode&(fileRegular|fileWrite) != fileRegular|fileWrite {
		return unix.EINVAL
	}
	st, err := f.Inode().Stat(c, 0)
	if err != nil {
		return err
	}
	return truncate(c, f.path.Dentry, &st, size)
}

// ChdirAt implements chdir(2).
func ChdirAt(c Caller, at At) error {
	at.Flags |= MustDir
	return withPath(c, &at, func(p Path) error { return p.Chdir(c, at.FS) })
}

// Chdir makes p, which must be a searchable directory, the working directory
// of fs (fchdir(2)).
func (p Path) Chdir(c Caller, fs *FSContext) error {
	if err := p.searchable(c); err != nil {
		return err
	}
	fs.SetCwd(p)
	return nil
}

func (p Path) searchable(c Caller) error {
	if !p.Dentry.IsDir() {
		return unix.ENOTDIR
	}
	return permitDentry(c, p.Dentry, MayExec)
}

// ChrootAt implements chroot(2).
func ChrootAt(c Caller, at At) error {
	at.Flags |= MustDir
	return withPath(c, &at, func(p Path) error {
		if err := p.searchable(c); err != nil {
			return err
		}
		if !c.Cred().Has(unix.CAP_SYS_CHROOT) {
			return unix.EPERM
		}
		at.FS.SetRoot(p)
		return nil
	})
}

// Getcwd is the path of the working directory below the root. ENOENT if it was
// removed.
func (f *FSContext) Getcwd() (string, error) {
	root, cwd := f.Root(), f.Cwd()
	defer root.DecRef()
	defer cwd.DecRef()
	if cwd.Dentry.Unlinked() {
		return "", unix.ENOENT
	}
	s, reached := cwd.Resolve(root)
	if !reached {
		s = "(unreachable)" + s // getcwd(2), NOTES
	}
	return s, nil
}

// Limits of xattr(7).
const (
	xattrNameMax = 255
	xattrSizeMax = 65536
	xattrListMax = 65536
)

const capabilityXattr = "security.capability"

// validCaps checks the form of file capabilities: version 2 or, with the root
// user of a namespace, 3 (cap_convert_nscap).
func validCaps(v []byte) bool {
	if len(v) != 20 && len(v) != 24 {
		return false
	}
	const versionMask, effective = 0xff000000, 1
	magic := binary.LittleEndian.Uint32(v)
	if magic&^(versionMask|effective) != 0 {
		return false
	}
	return len(v) == 20 && magic&versionMask == 0x02000000 || len(v) == 24 && magic&versionMask == 0x03000000
}

// xattrCheck is Linux's xattr_permission.
func (p Path) xattrCheck(c Caller, name string, write bool) (Xattrer, error) {
	if name == "" || len(name) > xattrNameMax {
		return nil, unix.ERANGE
	}
	if write && p.Mount != nil {
		if err := p.Mount.wantWrite(); err != nil {
			return nil, err
		}
	}
	mask := uint32(MayRead)
	if write {
		mask = MayWrite
	}
	cr := c.Cred()
	switch {
	case name == capabilityXattr:
		if write && !cr.Has(unix.CAP_SETFCAP) {
			return nil, unix.EPERM
		}
	case strings.HasPrefix(name, "security."):
		if write && !cr.Has(unix.CAP_SYS_ADMIN) {
			return nil, unix.EPERM
		}
	case strings.HasPrefix(name, "system."):
	case strings.HasPrefix(name, "trusted."):
		if !cr.Has(unix.CAP_SYS_ADMIN) {
			if write {
				return nil, unix.EPERM
			}
			return nil, unix.ENODATA
		}
	case strings.HasPrefix(name, "user."):
		st, err := p.Dentry.inode.Stat(c, 0)
		if err != nil {
			return nil, err
		}
		kind := st.Mode & unix.S_IFMT
		if kind != unix.S_IFREG && kind != unix.S_IFDIR {
			if write {
				return nil, unix.EPERM
			}
			return nil, unix.ENODATA
		}
		if write && kind == unix.S_IFDIR && st.Mode&unix.S_ISVTX != 0 && !ownerOr(cr, &st, unix.CAP_FOWNER) {
			return nil, unix.EPERM
		}
		if err := permitDentry(c, p.Dentry, mask); err != nil {
			return nil, err
		}
	default:
		if err := permitDentry(c, p.Dentry, mask); err != nil {
			return nil, err
		}
		return nil, unix.EOPNOTSUPP
	}
	if i := strings.IndexByte(name, '.'); i == len(name)-1 && name != "system." {
		return nil, unix.EINVAL // xattr_resolve_name: a prefix alone
	}
	x, ok := p.Dentry.inode.(Xattrer)
	if !ok {
		return nil, unix.EOPNOTSUPP
	}
	if write {
		if st, err := p.Dentry.inode.Stat(c, 0); err != nil || st.Attributes&fixedAttrs != 0 {
			return nil, cmp.Or(err, error(unix.EPERM))
		}
	}
	return x, nil
}

// Getxattr implements getxattr(2) on what is at p.
func (p Path) Getxattr(c Caller, name string) ([]byte, error) {
	x, err := p.xattrCheck(c, name, false)
	if err != nil {
		return nil, err
	}
	return x.Getxattr(c, name)
}

// Setxattr implements setxattr(2); flags are XATTR_CREATE, XATTR_REPLACE.
func (p Path) Setxattr(c Caller, name string, value []byte, flags uint32) error {
	if flags&^uint32(unix.XATTR_CREATE|unix.XATTR_REPLACE) != 0 {
		return unix.EINVAL
	}
	if len(value) > xattrSizeMax {
		return unix.E2BIG
	}
	if value == nil {
		value = []byte{}
	}
	if name == capabilityXattr && !validCaps(value) {
		return unix.EINVAL
	}
	x, err := p.xattrCheck(c, name, true)
	if err != nil {
		return err
	}
	switch name {
	case posixacl.Access, posixacl.Default:
		err = p.setACL(c, x, name, value)
	default:
		err = x.Setxattr(c, name, value, flags)
	}
	if err != nil {
		return err
	}
	notifySelf(p.Dentry, unix.IN_ATTRIB)
	return nil
}

// Listxattr implements listxattr(2): names, without those of trusted for
// callers that may not see them.
func (p Path) Listxattr(c Caller) ([]string, error) {
	x, ok := p.Dentry.inode.(Xattrer)
	if !ok {
		return nil, nil
	}
	names, err := x.Listxattr(c)
	if err != nil {
		return nil, err
	}
	admin := c.Cred().Has(unix.CAP_SYS_ADMIN)
	seen := names[:0:0]
	size := 0
	for _, n := range names {
		if !admin && strings.HasPrefix(n, "trusted.") {
			continue
		}
		seen = append(seen, n)
		size += len(n) + 1
	}
	if size > xattrListMax {
		return nil, unix.E2BIG
	}
	return seen, nil
}

// Removexattr implements removexattr(2).
func (p Path) Removexattr(c Caller, name string) error {
	x, err := p.xattrCheck(c, name, true)
	if err != nil {
		return err
	}
	switch name {
	case posixacl.Access, posixacl.Default:
		err = p.setACL(c, x, name, nil)
	default:
		err = x.Removexattr(c, name)
	}
	if err != nil {
		return err
	}
	notifySelf(p.Dentry, unix.IN_ATTRIB)
	return nil
}

// GetxattrAt and the three below are the path forms.
func GetxattrAt(c Caller, at At, name string) (v []byte, err error) {
	err = withPath(c, &at, func(p Path) error {
		v, err = p.Getxattr(c, name)
		return err
	})
	return v, err
}

// SetxattrAt implements setxattr(2) and lsetxattr(2).
func SetxattrAt(c Caller, at At, name string, value []byte, flags uint32) error {
	return withPath(c, &at, func(p Path) error { return p.Setxattr(c, name, value, flags) })
}

// ListxattrAt implements listxattr(2) and llistxattr(2).
func ListxattrAt(c Caller, at At) (names []string, err error) {
	err = withPath(c, &at, func(p Path) error {
		names, err = p.Listxattr(c)
		return err
	})
	return names, err
}

// RemovexattrAt implements removexattr(2) and lremovexattr(2).
func RemovexattrAt(c Caller, at At, name string) error {
	return withPath(c, &at, func(p Path) error { return p.Removexattr(c, name) })
}
