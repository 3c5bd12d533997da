package syscalls

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/abi/linux"
	"runsc/sentry/arch"
	"runsc/sentry/fs/pseudo"
	"runsc/sentry/kernel"
	"runsc/sentry/vfs"
)

// sysPidfdOpen implements pidfd_open(2).
func sysPidfdOpen(t *kernel.Task, a Args) (uintptr, error) {
	fd, err := t.OpenPIDFD(a.Int(0), a.Uint(1))
	return uintptr(fd), err
}

// sysPidfdSendSignal implements pidfd_send_signal(2).
func sysPidfdSendSignal(t *kernel.Task, a Args) (uintptr, error) {
	sig, flags := a.Int(1), a.Uint(3)
	switch flags {
	case 0, linux.PIDFD_SIGNAL_THREAD, linux.PIDFD_SIGNAL_THREAD_GROUP, linux.PIDFD_SIGNAL_PROCESS_GROUP:
	default: // one at most
		return 0, unix.EINVAL
	}
	f, err := t.Files().Get(a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	tg, err := signalTarget(f)
	if err != nil {
		return 0, err
	}
	if err := checkSignal(sig); err != nil {
		return 0, err
	}
	var info *arch.SigInfo
	if addr := a.Addr(2); addr != 0 {
		pid := int32(0)
		if tg == t.ThreadGroup() {
			pid = t.TGID()
		}
		if info, err = copyInSigInfo(t, addr, sig, pid); err != nil {
			return 0, err
		}
	}
	switch flags {
	case linux.PIDFD_SIGNAL_THREAD:
		return done(t.KillLeader(tg, sig, info))
	case linux.PIDFD_SIGNAL_PROCESS_GROUP:
		return done(t.KillGroupOf(tg, sig, info))
	}
	return done(t.KillGroup(tg, sig, info))
}

// signalTarget returns the process of a pidfd or of an open /proc/PID (pidfd_to_pid): EBADF.
func signalTarget(f *vfs.File) (*kernel.ThreadGroup, error) {
	tg, err := kernel.PIDFDTarget(f)
	if err == nil {
		return tg, nil
	}
	if dir, ok := pseudo.NodeOf(f.Inode()).(kernel.ProcessDir); ok {
		if tg := dir.DirProcess(); tg != nil {
			return tg, nil
		}
	}
	return nil, err
}

// sysPidfdGetfd implements pidfd_getfd(2).
func sysPidfdGetfd(t *kernel.Task, a Args) (uintptr, error) {
	if a.Uint(2) != 0 {
		return 0, unix.EINVAL
	}
	f, err := t.Files().Get(a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	tg, err := kernel.PIDFDTarget(f)
	if err != nil {
		return 0, err
	}
	o := tg.Leader()
	if o == nil {
		return 0, unix.ESRCH
	}
	if !t.MayInspect(o, false) {
		return 0, unix.EPERM
	}
	var got *vfs.File
	err = unix.ESRCH
	o.WithFiles(func(files *vfs.FDTable) { got, _, err = files.GetFlags(a.Int(1)) })
	if err != nil {
		return 0, err
	}
	fd, err := t.Files().Install(t, got, 0, true)
	if err != nil {
		got.DecRef()
		return 0, err
	}
	return uintptr(fd), nil
}
