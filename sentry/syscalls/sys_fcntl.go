package syscalls

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/pkg/abi/linux"
	"runsc/sentry/kernel"
	"runsc/sentry/pipe"
	"runsc/sentry/vfs"
)

// sysFcntl implements fcntl(2): the commands on the descriptor here, those on
// the description below.
func sysFcntl(t *kernel.Task, a Args) (uintptr, error) {
	fd, cmd := a.Int(0), a.Uint(1)
	switch cmd {
	case unix.F_DUPFD, unix.F_DUPFD_CLOEXEC:
		return dupFD(t, fd, a.Int(2), cmd == unix.F_DUPFD_CLOEXEC)
	case unix.F_SETFD:
		return done(t.Files().SetCloexec(fd, a.Uint(2)&unix.FD_CLOEXEC != 0))
	}
	f, flags, err := t.Files().GetFlags(fd)
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	switch cmd {
	case unix.F_GETFD:
		return uintptr(flags), nil
	case unix.F_GETFL:
		return uintptr(f.StatusFlags()), nil
	case unix.F_DUPFD_QUERY:
		return sameDescription(t, f, a.Int(2))
	case linux.F_CREATED_QUERY:
		return 0, unix.EINVAL
	}
	if f.IsPath() {
		return 0, unix.EBADF
	}
	return fcntlFile(t, f, cmd, a)
}

// sameDescription implements F_DUPFD_QUERY.
func sameDescription(t *kernel.Task, f *vfs.File, fd int32) (uintptr, error) {
	g, err := t.Files().Get(fd)
	if err != nil {
		return 0, err
	}
	defer g.DecRef()
	if f == g {
		return 1, nil
	}
	return 0, nil
}

// fcntlFile carries out the commands on an open description.
func fcntlFile(t *kernel.Task, f *vfs.File, cmd uint32, a Args) (uintptr, error) {
	switch cmd {
	case unix.F_SETFL:
		return done(setFlags(t, f, a.Int(0), a.Uint(2)))
	case unix.F_GETLK, unix.F_OFD_GETLK:
		return fcntlGetLock(t, f, a.Addr(2), cmd == unix.F_OFD_GETLK)
	case unix.F_SETLK, linux.F_SETLKW, unix.F_OFD_SETLK, unix.F_OFD_SETLKW:
		wait := cmd == linux.F_SETLKW || cmd == unix.F_OFD_SETLKW
		return fcntlSetLock(t, f, a.Addr(2), cmd >= unix.F_OFD_SETLK, wait)
	case linux.F_SETOWN, unix.F_GETOWN, unix.F_SETOWN_EX, unix.F_GETOWN_EX, linux.F_GETOWNER_UIDS, unix.F_SETSIG, unix.F_GETSIG:
		return fcntlOwner(t, f, cmd, a)
	case unix.F_SETPIPE_SZ, linux.F_GETPIPE_SZ:
		return fcntlPipe(t, f, cmd, a.Uint(2))
	case unix.F_ADD_SEALS, unix.F_GET_SEALS:
		return fcntlSeals(f, cmd, a.Uint(2))
	case linux.F_GETLEASE:
		return uintptr(f.Lease()), nil
	case linux.F_SETLEASE:
		if err := f.SetLease(t, a.Int(0), int16(a.Int(2))); err != nil {
			return 0, err
		}
		return 0, ownByDefault(t, f)
	case linux.F_NOTIFY:
		if err := f.Notify(a.Int(0), a.Uint(2)); err != nil {
			return 0, err
		}
		return 0, ownByDefault(t, f)
	case unix.F_GET_RW_HINT, unix.F_SET_RW_HINT:
		return fcntlHint(t, f, cmd, a.Addr(2))
	}
	return 0, unix.EINVAL
}

// setFlags changes the status flags of f, which the caller knows as fd.
func setFlags(t *kernel.Task, f *vfs.File, fd int32, flags uint32) error {
	was := f.StatusFlags()
	if err := f.SetStatusFlags(t, flags); err != nil {
		return err
	}
	if (was^flags)&unix.O_ASYNC != 0 {
		f.SetAsync(fd, flags&unix.O_ASYNC != 0)
	}
	return nil
}

// ownByDefault makes the caller's process the owner of f if it has none.
func ownByDefault(t *kernel.Task, f *vfs.File) error {
	o := f.Owner()
	if o.Target != nil {
		return nil
	}
	return setFileOwner(t, f, o, linux.F_OWNER_PID, t.TGID())
}

func setFileOwner(t *kernel.Task, f *vfs.File, o vfs.FileOwner, typ, pid int32) error {
	o.Type, o.PID, o.Target = typ, pid, nil
	if pid != 0 {
		var err error
		if o.Target, err = t.IOTarget(typ, pid); err != nil {
			return err
		}
	}
	cr := t.Cred()
	o.UID, o.EUID = cr.UID, cr.EUID
	f.SetOwner(o)
	return nil
}

// fcntlHint gets or sets how long written data will live, which nothing here
// depends on.
func fcntlHint(t *kernel.Task, f *vfs.File, cmd uint32, addr uint64) (uintptr, error) {
	const longest = 5 // RWH_WRITE_LIFE_EXTREME
	h := f.WriteHint()
	if cmd == unix.F_GET_RW_HINT {
		return done(t.CopyOut(addr, abi.Bytes(&h)))
	}
	if err := t.CopyIn(addr, abi.Bytes(&h)); err != nil {
		return 0, err
	}
	if h > longest {
		return 0, unix.EINVAL
	}
	f.SetWriteHint(h)
	return 0, nil
}

func fcntlPipe(t *kernel.Task, f *vfs.File, cmd, size uint32) (uintptr, error) {
	end := pipe.Of(f.Ops())
	if end == nil {
		return 0, unix.EBADF // pipe_fcntl
	}
	if cmd == linux.F_GETPIPE_SZ {
		return uintptr(end.Pipe().Size()), nil
	}
	n, err := end.Pipe().SetSize(t, size)
	return uintptr(n), err
}

// sealer is a file with seals, which tmpfs makes for memfd_create(2).
type sealer interface {
	Seals() uint32
	AddSeals(seals uint32) error
}

func fcntlSeals(f *vfs.File, cmd, seals uint32) (uintptr, error) {
	s, ok := f.Ops().(sealer)
	if !ok {
		return 0, unix.EINVAL
	}
	if cmd == unix.F_GET_SEALS {
		return uintptr(s.Seals()), nil
	}
	return done(s.AddSeals(seals))
}

// fcntlOwner carries out the commands about who gets SIGIO.
func fcntlOwner(t *kernel.Task, f *vfs.File, cmd uint32, a Args) (uintptr, error) {
	o := f.Owner()
	switch cmd {
	case unix.F_GETOWN:
		if o.Type == linux.F_OWNER_PGRP {
			return uintptr(-o.PID), nil
		}
		return uintptr(o.PID), nil
	case unix.F_GETOWN_EX:
		out := linux.FOwnerEx{Type: o.Type, PID: o.PID}
		return done(t.CopyOut(a.Addr(2), abi.Bytes(&out)))
	case linux.F_GETOWNER_UIDS:
		out := [2]uint32{o.UID, o.EUID}
		return done(t.CopyOut(a.Addr(2), abi.SliceBytes(out[:])))
	case unix.F_GETSIG:
		return uintptr(o.Signal), nil
	case unix.F_SETSIG:
		if a.Uint64(2) > linux.NSIG {
			return 0, unix.EINVAL
		}
		o.Signal = a.Int(2)
		f.SetOwner(o)
		return 0, nil
	}
	return setOwner(t, f, o, cmd, a)
}

func setOwner(t *kernel.Task, f *vfs.File, o vfs.FileOwner, cmd uint32, a Args) (uintptr, error) {
	ex := linux.FOwnerEx{Type: linux.F_OWNER_PID, PID: a.Int(2)}
	if cmd == unix.F_SETOWN_EX {
		if err := t.CopyIn(a.Addr(2), abi.Bytes(&ex)); err != nil {
			return 0, err
		}
	} else if ex.PID < 0 {
		if ex.PID == -1<<31 {
			return 0, unix.EINVAL
		}
		ex = linux.FOwnerEx{Type: linux.F_OWNER_PGRP, PID: -ex.PID}
	}
	if ex.Type < linux.F_OWNER_TID || ex.Type > linux.F_OWNER_PGRP {
		return 0, unix.EINVAL
	}
	return 0, setFileOwner(t, f, o, ex.Type, ex.PID)
}
