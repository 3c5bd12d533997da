package syscalls

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/pkg/abi/linux"
	"runsc/pkg/waitq"
	"runsc/sentry/kernel"
	"runsc/sentry/sysvipc"
)

// sysSemget implements semget(2).
func sysSemget(t *kernel.Task, a Args) (uintptr, error) {
	id, err := t.IPC().SysV().SemGet(sysvCaller(t), a.Int(0), a.Int(1), a.Uint(2))
	return uintptr(id), err
}

// sysSemop implements semop(2).
func sysSemop(t *kernel.Task, a Args) (uintptr, error) { return semop(t, a, 0) }

// sysSemtimedop implements semtimedop(2).
func sysSemtimedop(t *kernel.Task, a Args) (uintptr, error) {
	if a.Addr(3) == 0 {
		return semop(t, a, 0)
	}
	ns, err := copyInTimespec(t, a.Addr(3))
	if err != nil {
		return 0, err
	}
	return semop(t, a, max(t.ReentryDeadline(deadlineIn(t, ns)), 1))
}

func semop(t *kernel.Task, a Args, deadline int64) (uintptr, error) {
	n := a.Uint(2)
	if n < 1 || a.Int(0) < 0 {
		return 0, unix.EINVAL
	}
	if n > sysvipc.SemOPM {
		return 0, unix.E2BIG
	}
	ops := make([]sysvipc.SemOp, n)
	if err := t.CopyIn(a.Addr(1), abi.SliceBytes(ops)); err != nil {
		return 0, err
	}
	c := sysvCaller(t)
	set, err := t.IPC().SysV().SemCheck(c, a.Int(0), ops)
	if err != nil {
		return 0, removed(t, err)
	}
	undo := t.ThreadGroup().SemUndo()
	wait, err := set.Op(c, ops, undo, nil)
	if err != unix.EAGAIN || !wait {
		return 0, err
	}
	var w sysvipc.SemWait
	set.Wait(&w)
	defer w.Done()
	stop := false
	err = waitIPC(t, set.Queue(), waitq.In, deadline, func() error {
		wait, err := set.Op(c, ops, undo, &w)
		stop = err == unix.EAGAIN && !wait
		if stop {
			return nil
		}
		return err
	})
	if stop {
		err = unix.EAGAIN // an operation with IPC_NOWAIT is in the way now
	}
	return 0, err
}

// semidDS is struct semid64_ds.
type semidDS struct {
	Perm  ipcPerm
	Otime int64
	_     uint64
	Ctime int64
	_     uint64
	Count uint64
	_, _  uint64
}

// semInfo is struct seminfo.
type semInfo struct{ Map, MNI, MNS, MNU, MSL, OPM, UME, USZ, VMX, AEM int32 }

// sysSemctl implements semctl(2).
func sysSemctl(t *kernel.Task, a Args) (uintptr, error) {
	id, num, cmd, arg := a.Int(0), a.Int(1), a.Int(2), a.Addr(3)
	if id < 0 {
		return 0, unix.EINVAL
	}
	ns, c := t.IPC().SysV(), sysvCaller(t)
	switch cmd {
	case linux.IPC_INFO, linux.SEM_INFO:
		sets, sems, top := ns.SemUse()
		info := semInfo{
			Map: sysvipc.SemMNS, MNI: sysvipc.MaxIDs, MNS: sysvipc.SemMNS, MNU: sysvipc.SemMNS, MSL: sysvipc.SemMSL, OPM: sysvipc.SemOPM,
			UME: sysvipc.SemOPM, USZ: 20, VMX: sysvipc.SemVMX, AEM: sysvipc.SemAEM,
		}
		if cmd == linux.SEM_INFO {
			info.USZ, info.AEM = int32(sets), int32(sems)
		}
		return uintptr(top), t.CopyOut(arg, abi.Bytes(&info))
	case unix.IPC_STAT, linux.SEM_STAT, linux.SEM_STAT_ANY:
		st, err := ns.SemStat(c, id, cmd != unix.IPC_STAT, cmd == linux.SEM_STAT_ANY)
		if err != nil {
			return 0, err
		}
		ret := uintptr(0)
		if cmd != unix.IPC_STAT {
			ret = uintptr(st.ID)
		}
		return ret, t.CopyOut(arg, abi.Bytes(&semidDS{Perm: permOut(&st.Perm), Otime: st.Otime, Ctime: st.Ctime, Count: uint64(st.Count)}))
	case unix.IPC_SET:
		var ds semidDS
		if err := t.CopyIn(arg, abi.Bytes(&ds)); err != nil {
			return 0, err
		}
		return 0, ns.SemSet(c, id, ds.Perm.change())
	case unix.IPC_RMID:
		return 0, ns.SemRemove(c, id)
	case linux.GETALL:
		all, err := ns.SemValues(c, id)
		if err != nil {
			return 0, err
		}
		return 0, t.CopyOut(arg, abi.SliceBytes(all))
	case linux.SETALL:
		n, err := ns.SemCount(c, id, 0o222)
		if err != nil {
			return 0, err
		}
		vals := make([]uint16, n)
		if err := t.CopyIn(arg, abi.SliceBytes(vals)); err != nil {
			return 0, err
		}
		return 0, ns.SemSetAll(c, id, vals)
	case linux.SETVAL:
		return 0, ns.SemSetOne(c, id, num, int32(arg))
	case linux.GETVAL, linux.GETPID, linux.GETNCNT, linux.GETZCNT:
		one, err := ns.SemGetOne(c, id, num)
		if err != nil {
			return 0, err
		}
		return uintptr(map[int32]int32{linux.GETVAL: one.Val, linux.GETPID: one.PID, linux.GETNCNT: one.NCount, linux.GETZCNT: one.ZCount}[cmd]), nil
	}
	return 0, unix.EINVAL
}
