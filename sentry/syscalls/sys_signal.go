package syscalls

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/pkg/abi/linux"
	"runsc/sentry/arch"
	"runsc/sentry/errs"
	"runsc/sentry/kernel"
)

// sigsetSize is sizeof(sigset_t) of the kernel.
const sigsetSize = 8

// sysRtSigaction implements rt_sigaction(2).
func sysRtSigaction(t *kernel.Task, a Args) (uintptr, error) {
	if a.Size(3) != sigsetSize {
		return 0, unix.EINVAL
	}
	var act *arch.SigAction
	if addr := a.Addr(1); addr != 0 {
		act = new(arch.SigAction)
		if err := kernel.CopyInObj(t, addr, act); err != nil {
			return 0, err
		}
	}
	old, err := t.SigAction(a.Int(0), act)
	if err != nil || a.Addr(2) == 0 {
		return 0, err
	}
	return done(kernel.CopyOutObj(t, a.Addr(2), &old))
}

// sysRtSigprocmask implements rt_sigprocmask(2).
func sysRtSigprocmask(t *kernel.Task, a Args) (uintptr, error) {
	if a.Size(3) != sigsetSize {
		return 0, unix.EINVAL
	}
	old := t.Mask()
	if addr := a.Addr(1); addr != 0 {
		var set arch.SigSet
		if err := kernel.CopyInObj(t, addr, &set); err != nil {
			return 0, err
		}
		switch a.Int(0) {
		case linux.SIG_BLOCK:
			set |= old
		case linux.SIG_UNBLOCK:
			set = old &^ set
		case linux.SIG_SETMASK:
		default:
			return 0, unix.EINVAL
		}
		t.SetMask(set)
	}
	if a.Addr(2) == 0 {
		return 0, nil
	}
	return done(kernel.CopyOutObj(t, a.Addr(2), &old))
}

// sysRtSigreturn implements rt_sigreturn(2).
func sysRtSigreturn(t *kernel.Task, a Args) (uintptr, error) {
	t.KeepRegs()
	t.SigReturn()
	return 0, nil
}

// sysRtSigpending implements rt_sigpending(2).
func sysRtSigpending(t *kernel.Task, a Args) (uintptr, error) {
	if a.Size(1) > sigsetSize {
		return 0, unix.EINVAL
	}
	set := t.PendingSignals() & t.Mask()
	return done(t.CopyOut(a.Addr(0), abi.Bytes(&set)[:a.Size(1)]))
}

// sysRtSigtimedwait implements rt_sigtimedwait(2).
func sysRtSigtimedwait(t *kernel.Task, a Args) (uintptr, error) {
	if a.Size(3) != sigsetSize {
		return 0, unix.EINVAL
	}
	var set arch.SigSet
	if err := kernel.CopyInObj(t, a.Addr(0), &set); err != nil {
		return 0, err
	}
	deadline := int64(0)
	if addr := a.Addr(2); addr != 0 {
		ns, err := copyInTimespec(t, addr)
		if err != nil {
			return 0, err
		}
		if deadline = -1; ns > 0 {
			deadline = t.Kernel().Deadline(unix.CLOCK_MONOTONIC, false, ns)
		}
	}
	info, err := t.SigWait(set, t.ReentryDeadline(deadline))
	if err != nil {
		return 0, err
	}
	if addr := a.Addr(1); addr != 0 {
		if err := kernel.CopyOutObj(t, addr, &info); err != nil {
			return 0, err
		}
	}
	return uintptr(info.Signo), nil
}

// sysRtSigsuspend implements rt_sigsuspend(2).
func sysRtSigsuspend(t *kernel.Task, a Args) (uintptr, error) {
	if a.Size(1) != sigsetSize {
		return 0, unix.EINVAL
	}
	var set arch.SigSet
	if err := kernel.CopyInObj(t, a.Addr(0), &set); err != nil {
		return 0, err
	}
	t.SetTempMask(set)
	return pause(t)
}

// sysPause implements pause(2).
func sysPause(t *kernel.Task, a Args) (uintptr, error) { return pause(t) }

// pause sleeps until a signal is to be handled; others, and stops, let it go on.
func pause(t *kernel.Task) (uintptr, error) {
	for {
		t.Waiter().Clear()
		switch err := t.Block(t.Waiter(), 0); err {
		case nil:
		case errs.ERESTARTCKPT:
			return 0, err
		default:
			return 0, errs.ERESTARTNOHAND
		}
	}
}

// sysSigaltstack implements sigaltstack(2).
func sysSigaltstack(t *kernel.Task, a Args) (uintptr, error) {
	sp := t.Regs().Rsp
	old := t.AltStack(sp)
	if addr := a.Addr(0); addr != 0 {
		var s arch.SigStack
		if err := kernel.CopyInObj(t, addr, &s); err != nil {
			return 0, err
		}
		if err := t.SetAltStack(s, sp); err != nil {
			return 0, err
		}
	}
	if a.Addr(1) == 0 {
		return 0, nil
	}
	return done(kernel.CopyOutObj(t, a.Addr(1), &old))
}

// checkSignal is the check of a signal number that may be 0.
func checkSignal(sig int32) error {
	if sig != 0 && !kernel.ValidSignal(sig) {
		return unix.EINVAL
	}
	return nil
}

// sysKill implements kill(2).
func sysKill(t *kernel.Task, a Args) (uintptr, error) {
	pid, sig := a.Int(0), a.Int(1)
	if err := checkSignal(sig); err != nil {
		return 0, err
	}
	switch {
	case pid > 0:
		return done(t.KillProcess(pid, sig, nil))
	case pid == -1<<31:
		return 0, unix.ESRCH
	case pid == -1:
		return done(t.KillEverything(sig))
	}
	return done(t.KillProcessGroup(-pid, sig))
}

// sysTkill implements tkill(2).
func sysTkill(t *kernel.Task, a Args) (uintptr, error) {
	if a.Int(0) <= 0 || checkSignal(a.Int(1)) != nil {
		return 0, unix.EINVAL
	}
	return done(t.KillThread(0, a.Int(0), a.Int(1), nil))
}

// sysTgkill implements tgkill(2).
func sysTgkill(t *kernel.Task, a Args) (uintptr, error) {
	if a.Int(0) <= 0 || a.Int(1) <= 0 || checkSignal(a.Int(2)) != nil {
		return 0, unix.EINVAL
	}
	return done(t.KillThread(a.Int(0), a.Int(1), a.Int(2), nil))
}

// copyInSigInfo reads the siginfo of a sigqueue call for another process: it
// may not pretend to come from the kernel or from kill(2).
func copyInSigInfo(t *kernel.Task, addr uint64, sig, pid int32) (*arch.SigInfo, error) {
	info := new(arch.SigInfo)
	if err := kernel.CopyInObj(t, addr, info); err != nil {
		return nil, err
	}
	if (info.Code >= 0 || info.Code == linux.SI_TKILL) && pid != t.TGID() {
		return nil, unix.EPERM
	}
	info.Signo = sig
	return info, nil
}

// sysRtSigqueueinfo implements rt_sigqueueinfo(2).
func sysRtSigqueueinfo(t *kernel.Task, a Args) (uintptr, error) {
	pid, sig := a.Int(0), a.Int(1)
	info, err := copyInSigInfo(t, a.Addr(2), sig, pid)
	if err != nil {
		return 0, err
	}
	if err := checkSignal(sig); err != nil {
		return 0, err
	}
	return done(t.KillProcess(pid, sig, info))
}

// sysRtTgsigqueueinfo implements rt_tgsigqueueinfo(2).
func sysRtTgsigqueueinfo(t *kernel.Task, a Args) (uintptr, error) {
	tgid, tid, sig := a.Int(0), a.Int(1), a.Int(2)
	if tgid <= 0 || tid <= 0 {
		return 0, unix.EINVAL
	}
	info, err := copyInSigInfo(t, a.Addr(3), sig, tgid)
	if err != nil {
		return 0, err
	}
	if err := checkSignal(sig); err != nil {
		return 0, err
	}
	return done(t.KillThread(tgid, tid, sig, info))
}

// sysRestartSyscall implements restart_syscall(2).
func sysRestartSyscall(t *kernel.Task, a Args) (uintptr, error) { return t.RestartSyscall() }
