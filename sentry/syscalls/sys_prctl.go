package syscalls

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/pkg/abi/linux"
	"runsc/sentry/arch"
	"runsc/sentry/cred"
	"runsc/sentry/kernel"
)

// sysPrctl implements prctl(2).
func sysPrctl(t *kernel.Task, a Args) (uintptr, error) {
	switch a.Int(0) {
	case unix.PR_SET_PDEATHSIG:
		sig := a.Uint64(1)
		if sig > linux.NSIG {
			return 0, unix.EINVAL
		}
		t.SetPDeathSig(int32(sig))
		return 0, nil
	case unix.PR_GET_PDEATHSIG:
		sig := t.PDeathSig()
		return done(t.CopyOut(a.Addr(1), abi.Bytes(&sig)))
	case unix.PR_GET_DUMPABLE:
		return uintptr(t.ThreadGroup().Dumpable()), nil
	case unix.PR_SET_DUMPABLE:
		if a.Uint64(1) > 1 {
			return 0, unix.EINVAL
		}
		t.ThreadGroup().SetDumpable(int32(a.Uint64(1)))
		return 0, nil
	case unix.PR_SET_NAME:
		return prSetName(t, a.Addr(1))
	case unix.PR_GET_NAME:
		var name [16]byte
		copy(name[:15], t.Comm())
		return done(t.CopyOut(a.Addr(1), name[:]))
	case unix.PR_GET_TIMERSLACK:
		return uintptr(t.TimerSlack()), nil
	case unix.PR_SET_TIMERSLACK:
		t.SetTimerSlack(a.Uint64(1))
		return 0, nil
	case unix.PR_GET_TIMING:
		return 0, nil // PR_TIMING_STATISTICAL
	case unix.PR_SET_TIMING:
		if a.Uint64(1) != 0 {
			return 0, unix.EINVAL
		}
		return 0, nil
	case unix.PR_SET_CHILD_SUBREAPER:
		t.SetSubreaper(a.Uint64(1) != 0)
		return 0, nil
	case unix.PR_GET_CHILD_SUBREAPER:
		v := int32(0)
		if t.Subreaper() {
			v = 1
		}
		return done(t.CopyOut(a.Addr(1), abi.Bytes(&v)))
	case unix.PR_GET_TID_ADDRESS:
		addr := t.ClearChildTID()
		return done(t.CopyOut(a.Addr(1), abi.Bytes(&addr)))
	case unix.PR_SET_THP_DISABLE:
		if a.Uint64(2)|a.Uint64(3)|a.Uint64(4) != 0 {
			return 0, unix.EINVAL
		}
		t.SetTHPDisable(a.Uint64(1) != 0)
		return 0, nil
	case unix.PR_GET_THP_DISABLE:
		if a.Uint64(1)|a.Uint64(2)|a.Uint64(3)|a.Uint64(4) != 0 {
			return 0, unix.EINVAL
		}
		if t.THPDisable() {
			return 1, nil
		}
		return 0, nil
	case unix.PR_GET_SECCOMP:
		if len(t.SeccompFilters()) > 0 {
			return linux.SECCOMP_MODE_FILTER, nil
		}
		return linux.SECCOMP_MODE_DISABLED, nil
	case unix.PR_SET_SECCOMP:
		return prSetSeccomp(t, a)
	case unix.PR_MCE_KILL, unix.PR_MCE_KILL_GET, unix.PR_SET_MM, unix.PR_SET_VMA:
		return 0, unix.EINVAL
	case unix.PR_GET_UNALIGN, unix.PR_SET_UNALIGN, unix.PR_GET_ENDIAN, unix.PR_SET_ENDIAN, unix.PR_GET_FPEMU, unix.PR_SET_FPEMU:
		return 0, unix.EINVAL // not of this architecture
	case unix.PR_GET_TSC:
		v := int32(unix.PR_TSC_ENABLE)
		return done(t.CopyOut(a.Addr(1), abi.Bytes(&v)))
	case unix.PR_SET_TSC:
		if a.Int(1) != unix.PR_TSC_ENABLE {
			return 0, unix.EINVAL
		}
		return 0, nil
	}
	return prctlCred(t, a)
}

// prSetName sets the name, cut to 15 bytes (strncpy_from_user).
func prSetName(t *kernel.Task, addr uint64) (uintptr, error) {
	name, err := t.CopyInString(addr, 15)
	if err == unix.ENAMETOOLONG {
		b := make([]byte, 15)
		if err = t.CopyIn(addr, b); err == nil {
			name = string(b)
		}
	}
	if err != nil {
		return 0, err
	}
	t.SetComm(name)
	return 0, nil
}

// prctlCred are the codes that concern credentials (cap_task_prctl).
func prctlCred(t *kernel.Task, a Args) (uintptr, error) {
	old := t.Cred()
	arg2 := a.Uint64(1)
	n := old.Copy()
	switch a.Int(0) {
	case unix.PR_SET_NO_NEW_PRIVS:
		if arg2 != 1 || a.Uint64(2)|a.Uint64(3)|a.Uint64(4) != 0 {
			return 0, unix.EINVAL
		}
		n.NoNewPrivs = true
	case unix.PR_GET_NO_NEW_PRIVS:
		if arg2|a.Uint64(2)|a.Uint64(3)|a.Uint64(4) != 0 {
			return 0, unix.EINVAL
		}
		return boolResult(old.NoNewPrivs), nil
	case unix.PR_CAPBSET_READ:
		if arg2 > unix.CAP_LAST_CAP {
			return 0, unix.EINVAL
		}
		return boolResult(old.Bounding.Has(int(arg2))), nil
	case unix.PR_CAPBSET_DROP:
		if !old.Has(unix.CAP_SETPCAP) {
			return 0, unix.EPERM
		}
		if arg2 > unix.CAP_LAST_CAP {
			return 0, unix.EINVAL
		}
		n.Bounding &^= 1 << arg2
	case unix.PR_GET_KEEPCAPS:
		return boolResult(old.SecureBits&cred.SecKeepCaps != 0), nil
	case unix.PR_SET_KEEPCAPS:
		if arg2 > 1 {
			return 0, unix.EINVAL
		}
		if old.SecureBits&(cred.SecKeepCaps<<1) != 0 {
			return 0, unix.EPERM
		}
		n.SecureBits &^= cred.SecKeepCaps
		if arg2 == 1 {
			n.SecureBits |= cred.SecKeepCaps
		}
	case unix.PR_GET_SECUREBITS:
		return uintptr(old.SecureBits), nil
	case unix.PR_SET_SECUREBITS:
		if err := checkSecureBits(old, arg2); err != nil {
			return 0, err
		}
		n.SecureBits = uint32(arg2)
	case unix.PR_CAP_AMBIENT:
		return prAmbient(t, n, a)
	default:
		return 0, unix.EINVAL
	}
	t.SetCred(n)
	return 0, nil
}

func boolResult(b bool) uintptr {
	if b {
		return 1
	}
	return 0
}

// checkSecureBits follows the conditions of PR_SET_SECUREBITS: each odd bit
// locks the one below.
func checkSecureBits(old *cred.Creds, bits uint64) error {
	const all, locks = 0xff, 0xaa
	locked := uint64(old.SecureBits) & locks
	if bits&^all != 0 || locked&^bits != 0 || (locked>>1)&(uint64(old.SecureBits)^bits) != 0 || !old.Has(unix.CAP_SETPCAP) {
		return unix.EPERM
	}
	return nil
}

// prAmbient is PR_CAP_AMBIENT on the copy n of the credentials.
func prAmbient(t *kernel.Task, n *cred.Creds, a Args) (uintptr, error) {
	op, c := a.Uint64(1), a.Uint64(2)
	if a.Uint64(3)|a.Uint64(4) != 0 {
		return 0, unix.EINVAL
	}
	if op == unix.PR_CAP_AMBIENT_CLEAR_ALL {
		if c != 0 {
			return 0, unix.EINVAL
		}
		n.Ambient = 0
		t.SetCred(n)
		return 0, nil
	}
	if c > unix.CAP_LAST_CAP {
		return 0, unix.EINVAL
	}
	bit := cred.Caps(1) << c
	switch op {
	case unix.PR_CAP_AMBIENT_IS_SET:
		return boolResult(n.Ambient&bit != 0), nil
	case unix.PR_CAP_AMBIENT_RAISE:
		if n.Permitted&bit == 0 || n.Inheritable&bit == 0 || n.SecureBits&cred.SecNoAmbient != 0 {
			return 0, unix.EPERM
		}
		n.Ambient |= bit
	case unix.PR_CAP_AMBIENT_LOWER:
		n.Ambient &^= bit
	default:
		return 0, unix.EINVAL
	}
	t.SetCred(n)
	return 0, nil
}

// sysArchPrctl implements arch_prctl(2).
func sysArchPrctl(t *kernel.Task, a Args) (uintptr, error) {
	r, v := t.Regs(), a.Uint64(1)
	switch a.Int(0) {
	case linux.ARCH_SET_FS, linux.ARCH_SET_GS:
		if v >= arch.GuestTop {
			return 0, unix.EPERM
		}
		if a.Int(0) == linux.ARCH_SET_FS {
			r.FsBase = v
		} else {
			r.GsBase = v
		}
		return 0, nil
	case linux.ARCH_GET_FS:
		return done(t.CopyOut(v, abi.Bytes(&r.FsBase)))
	case linux.ARCH_GET_GS:
		return done(t.CopyOut(v, abi.Bytes(&r.GsBase)))
	case linux.ARCH_GET_CPUID:
		return 1, nil
	case linux.ARCH_SET_CPUID: // as on a processor without CPUID faulting
		return 0, unix.ENODEV
	}
	return 0, unix.EINVAL
}
