package syscalls

import (
	"golang.org/x/sys/unix"

	"runsc/sentry/kernel"
	"runsc/sentry/vfs"
)

const (
	// msMagic stands in the upper half of mount flags of old programs
	// (MS_MGC_VAL, mount(2), NOTES).
	msMagic     = 0xC0ED0000
	msMagicMask = 0xFFFF0000

	// propagationFlags change the propagation type alone.
	propagationFlags = unix.MS_SHARED | unix.MS_PRIVATE | unix.MS_SLAVE | unix.MS_UNBINDABLE

	// mountDataMax bounds a file system's options: a page.
	mountDataMax = 4096
)

// sysMount implements mount(2).
func sysMount(t *kernel.Task, a Args) (uintptr, error) {
	m, err := copyInMount(t, a)
	if err != nil {
		return 0, err
	}
	defer m.at.put()
	if !t.Cred().Has(unix.CAP_SYS_ADMIN) {
		return 0, unix.EPERM
	}
	recursive := m.flags&unix.MS_REC != 0
	// The order of the tests is that of path_mount().
	switch {
	case m.flags&unix.MS_REMOUNT != 0:
		return done(vfs.RemountAt(t, m.at.At, vfs.MountFlags(m.flags), m.flags&unix.MS_BIND == 0, m.data))
	case m.flags&unix.MS_BIND != 0:
		from, err := lookupName(t, unix.AT_FDCWD, m.source, 0)
		if err != nil {
			return 0, err
		}
		defer from.put()
		return done(vfs.BindAt(t, from.At, m.at.At, recursive))
	case m.flags&propagationFlags != 0:
		kind := m.flags & propagationFlags
		if kind&(kind-1) != 0 || m.flags&^(propagationFlags|unix.MS_REC|unix.MS_SILENT) != 0 {
			return 0, unix.EINVAL
		}
		return done(vfs.SetPropagationAt(t, m.at.At, uint32(kind), recursive))
	case m.flags&unix.MS_MOVE != 0:
		from, err := lookupName(t, unix.AT_FDCWD, m.source, 0)
		if err != nil {
			return 0, err
		}
		defer from.put()
		return done(vfs.MoveMountAt(t, from.At, m.at.At))
	}
	return done(m.mountNew(t))
}

// mountArgs are the decoded arguments of mount(2).
type mountArgs struct {
	source, fstype, data string
	at                   target
	flags                uint64
}

func copyInMount(t *kernel.Task, a Args) (m mountArgs, err error) {
	m.flags = a.Uint64(3)
	if m.flags&msMagicMask == msMagic {
		m.flags &^= msMagicMask
	}
	for _, s := range []struct {
		addr uint64
		to   *string
	}{{a.Addr(2), &m.fstype}, {a.Addr(0), &m.source}, {a.Addr(4), &m.data}} {
		if s.addr == 0 {
			continue
		}
		if *s.to, err = t.CopyInString(s.addr, mountDataMax); err != nil {
			if err == unix.ENAMETOOLONG {
				err = unix.EINVAL
			}
			return m, err
		}
	}
	m.at, err = lookup(t, unix.AT_FDCWD, a.Addr(1), 0)
	return m, err
}

// mountNew mounts a new file system.
func (m *mountArgs) mountNew(t *kernel.Task) error {
	if m.fstype == "" {
		return unix.EINVAL
	}
	typ, err := vfs.LookupFSType(m.fstype)
	if err != nil {
		return err
	}
	if typ.New == nil {
		return unix.ENODEV
	}
	fs, err := typ.New(t, m.source, m.data, vfs.MountFlags(m.flags))
	if err != nil {
		return err
	}
	return vfs.MountAt(t, m.at.At, fs, vfs.MountFlags(m.flags))
}

// sysUmount2 implements umount2(2).
func sysUmount2(t *kernel.Task, a Args) (uintptr, error) {
	flags := a.Int(1)
	if flags&^(unix.MNT_FORCE|unix.MNT_DETACH|unix.MNT_EXPIRE|unix.UMOUNT_NOFOLLOW) != 0 {
		return 0, unix.EINVAL
	}
	var lf vfs.LookupFlags
	if flags&unix.UMOUNT_NOFOLLOW != 0 {
		lf = vfs.NoFollow
	}
	p, err := lookup(t, unix.AT_FDCWD, a.Addr(0), lf)
	if err != nil {
		return 0, err
	}
	defer p.put()
	if !t.Cred().Has(unix.CAP_SYS_ADMIN) {
		return 0, unix.EPERM
	}
	return done(vfs.UmountAt(t, p.At, int(flags)))
}

// sysPivotRoot implements pivot_root(2).
func sysPivotRoot(t *kernel.Task, a Args) (uintptr, error) {
	if !t.Cred().Has(unix.CAP_SYS_ADMIN) {
		return 0, unix.EPERM
	}
	newRoot, err := lookup(t, unix.AT_FDCWD, a.Addr(0), 0)
	if err != nil {
		return 0, err
	}
	defer newRoot.put()
	putOld, err := lookup(t, unix.AT_FDCWD, a.Addr(1), 0)
	if err != nil {
		return 0, err
	}
	defer putOld.put()
	return done(vfs.PivotRootAt(t, newRoot.At, putOld.At, func(old, root vfs.Path) {
		replaceRoots(t, old, root)
	}))
}

// replaceRoots moves every task of the mount namespace that has the old root
// as its root or working directory to the new one (chroot_fs_refs).
func replaceRoots(t *kernel.Task, old, root vfs.Path) {
	ns := t.MountNamespace()
	for _, tg := range t.Kernel().RootPIDNamespace().ThreadGroups() {
		for _, o := range tg.Tasks() {
			same := false
			o.WithMountNamespace(func(n *vfs.Namespace) { same = n == ns })
			if same {
				o.WithFS(func(fs *vfs.FSContext) { fs.Replace(old, root) })
			}
		}
	}
}
