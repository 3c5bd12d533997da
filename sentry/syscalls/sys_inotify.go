package syscalls

import (
	"golang.org/x/sys/unix"

	"runsc/sentry/fs/anon"
	"runsc/sentry/kernel"
	"runsc/sentry/vfs"
)

// sysInotifyInit implements inotify_init(2).
func sysInotifyInit(t *kernel.Task, _ Args) (uintptr, error) { return inotifyInit(t, 0) }

// sysInotifyInit1 implements inotify_init1(2).
func sysInotifyInit1(t *kernel.Task, a Args) (uintptr, error) { return inotifyInit(t, a.Uint(0)) }

func inotifyInit(t *kernel.Task, flags uint32) (uintptr, error) {
	if flags&^(unix.IN_CLOEXEC|unix.IN_NONBLOCK) != 0 {
		return 0, unix.EINVAL
	}
	in, err := anon.NewInotifyOf(t.Tunables(), t.Cred().UID)
	if err != nil {
		return 0, err
	}
	f := vfs.NewAnonFile("anon_inode:inotify", in, unix.O_RDONLY|flags&unix.O_NONBLOCK)
	return install(t, f, flags&unix.O_CLOEXEC != 0)
}

// getInotify returns the instance of a descriptor and its file's new reference.
func getInotify(t *kernel.Task, fd int32) (*anon.Inotify, *vfs.File, error) {
	f, err := getFile(t, fd)
	if err != nil {
		return nil, nil, err
	}
	if in, ok := f.Ops().(*anon.Inotify); ok {
		return in, f, nil
	}
	f.DecRef()
	return nil, nil, unix.EINVAL
}

// inotifyBits are the bits of a watch's mask that the caller may set.
const inotifyBits = unix.IN_ALL_EVENTS | unix.IN_ONESHOT | unix.IN_EXCL_UNLINK | unix.IN_DONT_FOLLOW |
	unix.IN_ONLYDIR | unix.IN_MASK_ADD | unix.IN_MASK_CREATE | unix.IN_ISDIR | unix.IN_UNMOUNT |
	unix.IN_Q_OVERFLOW | unix.IN_IGNORED

// sysInotifyAddWatch implements inotify_add_watch(2).
func sysInotifyAddWatch(t *kernel.Task, a Args) (uintptr, error) {
	mask := a.Uint(2)
	if mask&inotifyBits == 0 || mask&unix.IN_MASK_ADD != 0 && mask&unix.IN_MASK_CREATE != 0 {
		return 0, unix.EINVAL
	}
	in, f, err := getInotify(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	var lf vfs.LookupFlags
	if mask&unix.IN_DONT_FOLLOW != 0 {
		lf |= vfs.NoFollow
	}
	if mask&unix.IN_ONLYDIR != 0 {
		lf |= vfs.MustDir
	}
	p, err := lookup(t, unix.AT_FDCWD, a.Addr(1), lf)
	if err != nil {
		return 0, err
	}
	defer p.put()
	path, err := vfs.LookupAt(t, p.At)
	if err != nil {
		return 0, err
	}
	defer path.DecRef()
	self := vfs.At{FS: t.FS(), Dir: path, Flags: vfs.EmptyPath}
	if err := vfs.AccessAt(t, self, unix.R_OK, true); err != nil {
		return 0, err
	}
	wd, err := in.Add(path, mask)
	return uintptr(wd), err
}

// sysInotifyRmWatch implements inotify_rm_watch(2).
func sysInotifyRmWatch(t *kernel.Task, a Args) (uintptr, error) {
	in, f, err := getInotify(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	return done(in.Remove(a.Int(1)))
}
