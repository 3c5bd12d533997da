package syscalls

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/sentry/fs/fscontext"
	"runsc/sentry/kernel"
	"runsc/sentry/vfs"
)

// mayMount is Linux's may_mount.
func mayMount(t *kernel.Task) error {
	if !t.Cred().Has(unix.CAP_SYS_ADMIN) {
		return unix.EPERM
	}
	return nil
}

// copyInKey reads a name as strndup_user does: EINVAL for one that is too
// long.
func copyInKey(t *kernel.Task, addr uint64, size int) (string, error) {
	s, err := t.CopyInString(addr, size)
	if err == unix.ENAMETOOLONG {
		err = unix.EINVAL
	}
	return s, err
}

// sysFsopen implements fsopen(2).
func sysFsopen(t *kernel.Task, a Args) (uintptr, error) {
	if err := mayMount(t); err != nil {
		return 0, err
	}
	flags := a.Uint(1)
	if flags&^unix.FSOPEN_CLOEXEC != 0 {
		return 0, unix.EINVAL
	}
	name, err := copyInKey(t, a.Addr(0), 4096)
	if err != nil {
		return 0, err
	}
	x, err := fscontext.Open(name)
	if err != nil {
		return 0, err
	}
	return install(t, vfs.NewAnonFile(fscontext.Name, x, unix.O_RDWR), flags&unix.FSOPEN_CLOEXEC != 0)
}

// sysFspick implements fspick(2).
func sysFspick(t *kernel.Task, a Args) (uintptr, error) {
	if err := mayMount(t); err != nil {
		return 0, err
	}
	flags := a.Uint(2)
	if flags&^(unix.FSPICK_CLOEXEC|unix.FSPICK_SYMLINK_NOFOLLOW|unix.FSPICK_NO_AUTOMOUNT|unix.FSPICK_EMPTY_PATH) != 0 {
		return 0, unix.EINVAL
	}
	var lf vfs.LookupFlags
	if flags&unix.FSPICK_SYMLINK_NOFOLLOW != 0 {
		lf |= vfs.NoFollow
	}
	if flags&unix.FSPICK_EMPTY_PATH != 0 {
		lf |= vfs.EmptyPath
	}
	p, err := lookup(t, a.Int(0), a.Addr(1), lf)
	if err != nil {
		return 0, err
	}
	defer p.put()
	place, err := vfs.LookupAt(t, p.At)
	if err != nil {
		return 0, err
	}
	defer place.DecRef()
	x, err := fscontext.Pick(place)
	if err != nil {
		return 0, err
	}
	return install(t, vfs.NewAnonFile(fscontext.Name, x, unix.O_RDWR), flags&unix.FSPICK_CLOEXEC != 0)
}

// getContext returns the context of fd and its file, of which the caller
// drops the reference.
func getContext(t *kernel.Task, fd int32) (*fscontext.Context, *vfs.File, error) {
	f, err := getFile(t, fd)
	if err != nil {
		return nil, nil, err
	}
	x, ok := f.Ops().(*fscontext.Context)
	if !ok {
		f.DecRef()
		return nil, nil, unix.EINVAL
	}
	return x, f, nil
}

// checkFsconfig is the check of arguments by command, before the descriptor is
// looked at.
func checkFsconfig(fd int32, cmd uint32, key, value uint64, aux int32) error {
	if fd < 0 {
		return unix.EINVAL
	}
	bad := false
	switch cmd {
	case unix.FSCONFIG_SET_FLAG:
		bad = key == 0 || value != 0 || aux != 0
	case unix.FSCONFIG_SET_STRING:
		bad = key == 0 || value == 0 || aux != 0
	case unix.FSCONFIG_SET_BINARY:
		bad = key == 0 || value == 0 || aux <= 0 || aux > 1<<20
	case unix.FSCONFIG_SET_PATH, unix.FSCONFIG_SET_PATH_EMPTY:
		bad = key == 0 || value == 0 || aux != unix.AT_FDCWD && aux < 0
	case unix.FSCONFIG_SET_FD:
		bad = key == 0 || value != 0 || aux < 0
	case unix.FSCONFIG_CMD_CREATE, unix.FSCONFIG_CMD_RECONFIGURE, fsconfigCreateExcl:
		bad = key != 0 || value != 0 || aux != 0
	default:
		return unix.EOPNOTSUPP
	}
	if bad {
		return unix.EINVAL
	}
	return nil
}

// fsconfigCreateExcl is FSCONFIG_CMD_CREATE_EXCL: no file system here is
// shared between mounts, so that every creation is exclusive.
const fsconfigCreateExcl = 8

// sysFsconfig implements fsconfig(2).
func sysFsconfig(t *kernel.Task, a Args) (uintptr, error) {
	cmd, aux := a.Uint(1), a.Int(4)
	if err := checkFsconfig(a.Int(0), cmd, a.Addr(2), a.Addr(3), aux); err != nil {
		return 0, err
	}
	x, f, err := getContext(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	var key, value string
	if a.Addr(2) != 0 {
		if key, err = copyInKey(t, a.Addr(2), 256); err != nil {
			return 0, err
		}
	}
	if cmd == unix.FSCONFIG_SET_STRING {
		if value, err = copyInKey(t, a.Addr(3), 256); err != nil {
			return 0, err
		}
	}
	switch cmd {
	case unix.FSCONFIG_SET_FLAG, unix.FSCONFIG_SET_STRING:
		err = x.Set(key, value, cmd == unix.FSCONFIG_SET_FLAG)
	case unix.FSCONFIG_CMD_CREATE, fsconfigCreateExcl:
		err = x.Create(t)
	case unix.FSCONFIG_CMD_RECONFIGURE:
		if err = mayMount(t); err == nil {
			err = x.Reconfigure(t)
		}
	default:
		err = x.Unset(key)
	}
	return 0, err
}

// mountAttrs turns MOUNT_ATTR_* bits, but for those of the access time, into
// flags of mount(2).
func mountAttrs(attr uint64) vfs.MountFlags {
	var f vfs.MountFlags
	for _, b := range []struct {
		attr uint64
		flag vfs.MountFlags
	}{
		{unix.MOUNT_ATTR_RDONLY, unix.MS_RDONLY}, {unix.MOUNT_ATTR_NOSUID, unix.MS_NOSUID},
		{unix.MOUNT_ATTR_NODEV, unix.MS_NODEV}, {unix.MOUNT_ATTR_NOEXEC, unix.MS_NOEXEC},
		{unix.MOUNT_ATTR_NODIRATIME, unix.MS_NODIRATIME}, {unix.MOUNT_ATTR_NOSYMFOLLOW, unix.MS_NOSYMFOLLOW},
	} {
		if attr&b.attr != 0 {
			f |= b.flag
		}
	}
	return f
}

// atimeAttr is mountAttrs for the field of the access time.
func atimeAttr(attr uint64) (vfs.MountFlags, error) {
	switch attr & unix.MOUNT_ATTR__ATIME {
	case unix.MOUNT_ATTR_RELATIME:
		return unix.MS_RELATIME, nil
	case unix.MOUNT_ATTR_NOATIME:
		return unix.MS_NOATIME, nil
	case unix.MOUNT_ATTR_STRICTATIME:
		return unix.MS_STRICTATIME, nil
	}
	return 0, unix.EINVAL
}

// fsmountAttrs are the attributes that fsmount(2) takes; mount_setattr(2)
// knows MOUNT_ATTR_IDMAP too.
const fsmountAttrs = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC |
	unix.MOUNT_ATTR__ATIME | unix.MOUNT_ATTR_NODIRATIME | unix.MOUNT_ATTR_NOSYMFOLLOW

// sysFsmount implements fsmount(2).
func sysFsmount(t *kernel.Task, a Args) (uintptr, error) {
	if err := mayMount(t); err != nil {
		return 0, err
	}
	flags, attr := a.Uint(1), uint64(a.Uint(2))
	if flags&^unix.FSMOUNT_CLOEXEC != 0 || attr&^fsmountAttrs != 0 {
		return 0, unix.EINVAL
	}
	atime, err := atimeAttr(attr)
	if err != nil {
		return 0, err
	}
	x, f, err := getContext(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	m, err := x.Mount(mountAttrs(attr) | atime)
	if err != nil {
		return 0, err
	}
	return install(t, vfs.NewMountFile(m), flags&unix.FSMOUNT_CLOEXEC != 0)
}

// sysOpenTree implements open_tree(2).
func sysOpenTree(t *kernel.Task, a Args) (uintptr, error) {
	flags := a.Uint(2)
	const atBits = unix.AT_EMPTY_PATH | unix.AT_NO_AUTOMOUNT | unix.AT_RECURSIVE | unix.AT_SYMLINK_NOFOLLOW
	if flags&^(atBits|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC) != 0 ||
		flags&(unix.AT_RECURSIVE|unix.OPEN_TREE_CLONE) == unix.AT_RECURSIVE {
		return 0, unix.EINVAL
	}
	clone := flags&unix.OPEN_TREE_CLONE != 0
	if clone {
		if err := mayMount(t); err != nil {
			return 0, err
		}
	}
	p, err := lookup(t, a.Int(0), a.Addr(1), atFlags(int32(flags)))
	if err != nil {
		return 0, err
	}
	defer p.put()
	var f *vfs.File
	if clone {
		m, err := vfs.CloneTree(t, p.At, flags&unix.AT_RECURSIVE != 0)
		if err != nil {
			return 0, err
		}
		f = vfs.NewMountFile(m)
	} else if f, err = vfs.OpenAt(t, p.At, unix.O_PATH, 0); err != nil {
		return 0, err
	}
	return install(t, f, flags&unix.OPEN_TREE_CLOEXEC != 0)
}

// lookupPlace resolves a path argument and returns a new reference to the
// result.
func lookupPlace(t *kernel.Task, dirfd int32, name uint64, lf vfs.LookupFlags) (vfs.Path, error) {
	p, err := lookup(t, dirfd, name, lf)
	if err != nil {
		return vfs.Path{}, err
	}
	defer p.put()
	return vfs.LookupAt(t, p.At)
}

// moveBeneath is MOVE_MOUNT_BENEATH.
const moveBeneath = 0x200

// sysMoveMount implements move_mount(2).
func sysMoveMount(t *kernel.Task, a Args) (uintptr, error) {
	if err := mayMount(t); err != nil {
		return 0, err
	}
	flags := a.Uint(4)
	const both = unix.MOVE_MOUNT_SET_GROUP | moveBeneath
	if flags&^(0x77|both) != 0 || flags&both == both {
		return 0, unix.EINVAL
	}
	half := func(follow, empty uint32) vfs.LookupFlags {
		lf := vfs.NoFollow
		if flags&follow != 0 {
			lf = 0
		}
		if flags&empty != 0 {
			lf |= vfs.EmptyPath
		}
		return lf
	}
	to, err := lookupPlace(t, a.Int(2), a.Addr(3), half(unix.MOVE_MOUNT_T_SYMLINKS, unix.MOVE_MOUNT_T_EMPTY_PATH))
	if err != nil {
		return 0, err
	}
	defer to.DecRef()
	from, err := lookupPlace(t, a.Int(0), a.Addr(1), half(unix.MOVE_MOUNT_F_SYMLINKS, unix.MOVE_MOUNT_F_EMPTY_PATH))
	if err != nil {
		return 0, err
	}
	defer from.DecRef()
	if flags&unix.MOVE_MOUNT_SET_GROUP != 0 {
		return done(vfs.ShareGroup(t, from, to))
	}
	return done(vfs.MoveMount(t, from, to, flags&moveBeneath != 0))
}

// sysMountSetattr implements mount_setattr(2).
func sysMountSetattr(t *kernel.Task, a Args) (uintptr, error) {
	flags := a.Uint(2)
	if flags&^(unix.AT_EMPTY_PATH|unix.AT_RECURSIVE|unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT) != 0 {
		return 0, unix.EINVAL
	}
	size := a.Size(4)
	switch {
	case size > 4096:
		return 0, unix.E2BIG
	case size < sizeofMountAttr:
		return 0, unix.EINVAL
	}
	if err := mayMount(t); err != nil {
		return 0, err
	}
	var in unix.MountAttr
	if err := copyInExtensible(t, a.Addr(3), size, abi.Bytes(&in)); err != nil {
		return 0, err
	}
	if in.Attr_set == 0 && in.Attr_clr == 0 && in.Propagation == 0 {
		return 0, nil
	}
	attr, err := decodeMountAttr(t, &in)
	if err != nil {
		return 0, err
	}
	p, err := lookupPlace(t, a.Int(0), a.Addr(1), atFlags(int32(flags)))
	if err != nil {
		return 0, err
	}
	defer p.DecRef()
	if in.Attr_set&unix.MOUNT_ATTR_IDMAP != 0 {
		return 0, unix.EINVAL // no file system here can be id-mapped
	}
	return done(p.SetMountAttr(t, attr, flags&unix.AT_RECURSIVE != 0))
}

const sizeofMountAttr = 32

// decodeMountAttr is Linux's build_mount_kattr.
func decodeMountAttr(t *kernel.Task, in *unix.MountAttr) (vfs.MountAttr, error) {
	a := vfs.MountAttr{Set: mountAttrs(in.Attr_set), Clear: mountAttrs(in.Attr_clr), Propagation: uint32(in.Propagation)}
	if in.Propagation&^propagationFlags != 0 || in.Propagation&(in.Propagation-1) != 0 ||
		(in.Attr_set|in.Attr_clr)&^(fsmountAttrs|unix.MOUNT_ATTR_IDMAP) != 0 {
		return a, unix.EINVAL
	}
	if in.Attr_clr&unix.MOUNT_ATTR__ATIME != 0 {
		// The access time is one field of several bits: cleared as a whole,
		// and only then set.
		atime, err := atimeAttr(in.Attr_set)
		if err != nil || in.Attr_clr&unix.MOUNT_ATTR__ATIME != unix.MOUNT_ATTR__ATIME {
			return a, unix.EINVAL
		}
		a.Clear |= unix.MS_NOATIME | unix.MS_RELATIME | unix.MS_STRICTATIME
		a.Set |= atime
	} else if in.Attr_set&unix.MOUNT_ATTR__ATIME != 0 {
		return a, unix.EINVAL
	}
	if in.Attr_clr&unix.MOUNT_ATTR_IDMAP != 0 {
		return a, unix.EINVAL
	}
	if in.Attr_set&unix.MOUNT_ATTR_IDMAP != 0 {
		if in.Userns_fd > 1<<31-1 {
			return a, unix.EINVAL
		}
		f, err := getFile(t, int32(in.Userns_fd))
		if err != nil {
			return a, err
		}
		f.DecRef()
	}
	return a, nil
}
