package syscalls

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/pkg/abi/linux"
	"runsc/sentry/arch"
	"runsc/sentry/kernel"
)

// csignal is the part of clone(2)'s flags that holds the exit signal.
const csignal = 0xff

// sysClone implements clone(2).
func sysClone(t *kernel.Task, a Args) (uintptr, error) {
	flags := uint64(uint32(a.Uint64(0)))
	c := kernel.CloneArgs{
		Flags: flags &^ csignal, ExitSignal: int32(flags & csignal), SP: a.Addr(1),
		ParentTID: a.Addr(2), ChildTID: a.Addr(3), TLS: a.Uint64(4),
	}
	if c.Flags&unix.CLONE_PIDFD != 0 {
		// Both use the same argument.
		if c.Flags&unix.CLONE_PARENT_SETTID != 0 {
			return 0, unix.EINVAL
		}
		c.PIDFD = c.ParentTID
	}
	return clone(t, &c)
}

func clone(t *kernel.Task, c *kernel.CloneArgs) (uintptr, error) {
	if c.Flags&unix.CLONE_SETTLS != 0 && c.TLS >= arch.GuestTop {
		return 0, unix.EPERM // do_arch_prctl_64
	}
	if c.ExitSignal > linux.NSIG {
		// clone(2) takes any number; one that is no signal sends none.
		c.ExitSignal = 0
	}
	id, err := t.Clone(c)
	return uintptr(id), err
}

// sysFork implements fork(2).
func sysFork(t *kernel.Task, a Args) (uintptr, error) {
	return clone(t, &kernel.CloneArgs{ExitSignal: int32(unix.SIGCHLD)})
}

// sysVfork implements vfork(2).
func sysVfork(t *kernel.Task, a Args) (uintptr, error) {
	return clone(t, &kernel.CloneArgs{Flags: unix.CLONE_VM | unix.CLONE_VFORK, ExitSignal: int32(unix.SIGCHLD)})
}

// clone3Flags are the flags of clone3(2) that Linux 6.1 knows, but for
// CLONE_DETACHED, which it refuses.
const clone3Flags = 0xffffffff&^(csignal|unix.CLONE_DETACHED) | unix.CLONE_CLEAR_SIGHAND | unix.CLONE_INTO_CGROUP

// sysClone3 implements clone3(2).
func sysClone3(t *kernel.Task, a Args) (uintptr, error) {
	size := a.Size(1)
	if size > 4096 {
		return 0, unix.E2BIG
	}
	if size < unix.CLONE_ARGS_SIZE_VER0 {
		return 0, unix.EINVAL
	}
	var c linux.CloneArgs
	if err := copyInStruct(t, a.Addr(0), size, abi.Bytes(&c)); err != nil {
		return 0, err
	}
	if c.Flags&^uint64(clone3Flags|unix.CLONE_NEWTIME) != 0 || c.ExitSignal > linux.NSIG {
		return 0, unix.EINVAL
	}
	if c.Flags&(unix.CLONE_THREAD|unix.CLONE_PARENT) != 0 && c.ExitSignal != 0 {
		return 0, unix.EINVAL
	}
	if c.SetTIDSize > 32 || (c.SetTID == 0) != (c.SetTIDSize == 0) {
		return 0, unix.EINVAL
	}
	// Unlike clone(2), stack is the lowest byte (clone3_stack_valid).
	if (c.Stack == 0) != (c.StackSize == 0) || c.Stack+c.StackSize < c.Stack || c.Stack+c.StackSize > arch.GuestTop {
		return 0, unix.EINVAL
	}
	k := kernel.CloneArgs{
		Flags: c.Flags, ExitSignal: int32(c.ExitSignal), PIDFD: c.PIDFD, ParentTID: c.ParentTID, ChildTID: c.ChildTID, TLS: c.TLS,
	}
	if c.Stack != 0 {
		k.SP = c.Stack + c.StackSize
	}
	if c.SetTIDSize != 0 {
		if !t.Cred().Has(unix.CAP_SYS_ADMIN) && !t.Cred().Has(unix.CAP_CHECKPOINT_RESTORE) {
			return 0, unix.EPERM
		}
		k.SetTID = make([]int32, c.SetTIDSize)
		if err := t.CopyIn(c.SetTID, abi.SliceBytes(k.SetTID)); err != nil {
			return 0, err
		}
		for _, id := range k.SetTID {
			if id <= 0 {
				return 0, unix.EINVAL
			}
		}
	}
	return clone(t, &k)
}

// copyInStruct reads an extensible structure of size bytes: what the guest
// has beyond dst must be zero (E2BIG), what it lacks is zero
// (copy_struct_from_user).
func copyInStruct(t *kernel.Task, addr, size uint64, dst []byte) error {
	n := min(size, uint64(len(dst)))
	if err := t.CopyIn(addr, dst[:n]); err != nil {
		return err
	}
	if size <= n {
		return nil
	}
	rest := make([]byte, size-n)
	if err := t.CopyIn(addr+n, rest); err != nil {
		return err
	}
	for _, b := range rest {
		if b != 0 {
			return unix.E2BIG
		}
	}
	return nil
}

// sysUnshare implements unshare(2).
func sysUnshare(t *kernel.Task, a Args) (uintptr, error) { return done(t.Unshare(a.Uint64(0))) }

// sysSetTidAddress implements set_tid_address(2).
func sysSetTidAddress(t *kernel.Task, a Args) (uintptr, error) {
	t.SetClearChildTID(a.Addr(0))
	return uintptr(t.TID()), nil
}
