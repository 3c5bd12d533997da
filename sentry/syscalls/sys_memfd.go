package syscalls

import (
	"golang.org/x/sys/unix"

	"runsc/sentry/kernel"
	"runsc/sentry/vfs"
)

// memfdNameMax is the longest name, so that "memfd:" and it fit NAME_MAX.
const memfdNameMax = 255 - len("memfd:")

// memfdMaker is a file system that memfds live in: tmpfs.
type memfdMaker interface {
	vfs.Filesystem
	NewMemfd(c vfs.Caller, mode uint32) vfs.Inode
}

// sysMemfdCreate implements memfd_create(2).
func sysMemfdCreate(t *kernel.Task, a Args) (uintptr, error) {
	flags := a.Uint(1)
	const known = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING | unix.MFD_NOEXEC_SEAL | unix.MFD_EXEC
	if flags&^known != 0 || flags&unix.MFD_EXEC != 0 && flags&unix.MFD_NOEXEC_SEAL != 0 {
		return 0, unix.EINVAL
	}
	name, err := t.CopyInString(a.Addr(0), memfdNameMax+1)
	if err != nil {
		if err == unix.ENAMETOOLONG {
			err = unix.EINVAL
		}
		return 0, err
	}
	f, err := newMemfd(t, name, flags)
	if err != nil {
		return 0, err
	}
	return install(t, f, flags&unix.MFD_CLOEXEC != 0)
}

func newMemfd(t *kernel.Task, name string, flags uint32) (*vfs.File, error) {
	inode, err := memfdInode(t, flags)
	if err != nil {
		return nil, err
	}
	ops, err := inode.Open(t, nil, unix.O_RDWR)
	if err != nil {
		inode.DecRef()
		return nil, err
	}
	f := vfs.NewPseudoFile("/memfd:"+name+" (deleted)", ops, inode, unix.O_RDWR|oLargefile)
	seals := uint32(0)
	switch {
	case flags&unix.MFD_NOEXEC_SEAL != 0:
		seals = unix.F_SEAL_EXEC // implies MFD_ALLOW_SEALING
	case flags&unix.MFD_ALLOW_SEALING == 0:
		seals = unix.F_SEAL_SEAL
	}
	if s, ok := ops.(sealer); ok && seals != 0 {
		if err := s.AddSeals(seals); err != nil {
			f.DecRef()
			return nil, err
		}
	}
	return f, nil
}

// memfdInode makes the file in a tmpfs of its own that is in no mount tree
// (Linux's shm_mnt): frames are charged to the caller's container.
func memfdInode(t *kernel.Task, flags uint32) (vfs.Inode, error) {
	typ, err := vfs.LookupFSType("tmpfs")
	if err != nil {
		return nil, unix.ENOSYS
	}
	fs, err := typ.New(t, "tmpfs", "", 0)
	if err != nil {
		return nil, err
	}
	defer fs.Release() // its root directory; the file stays
	mk, ok := fs.(memfdMaker)
	if !ok {
		return nil, unix.ENOSYS
	}
	mode := uint32(0o777)
	if flags&unix.MFD_NOEXEC_SEAL != 0 {
		mode = 0o666
	}
	return mk.NewMemfd(t, mode), nil
}
