package syscalls

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/pkg/abi/linux"
	"runsc/sentry/kernel"
	"runsc/sentry/mm"
	"runsc/sentry/platform"
	"runsc/sentry/sysvipc"
)

// sysShmget implements shmget(2).
func sysShmget(t *kernel.Task, a Args) (uintptr, error) {
	if a.Uint(2)&linux.SHM_HUGETLB != 0 {
		return 0, unix.EINVAL
	}
	id, err := t.IPC().SysV().ShmGet(sysvCaller(t), a.Int(0), a.Size(1), a.Uint(2))
	return uintptr(id), err
}

// sysShmat implements shmat(2).
func sysShmat(t *kernel.Task, a Args) (uintptr, error) {
	id, addr, flags := a.Int(0), a.Addr(1), a.Uint(2)
	if id < 0 {
		return 0, unix.EINVAL
	}
	o := mm.MMapOpts{Shared: true, Prot: platform.Read | platform.Write}
	access := uint32(0o666)
	if addr != 0 {
		if addr&4095 != 0 {
			if flags&unix.SHM_RND == 0 {
				return 0, unix.EINVAL
			}
			if addr &^= 4095; addr == 0 && flags&linux.SHM_REMAP != 0 {
				return 0, unix.EINVAL
			}
		}
		o.Addr, o.Fixed, o.NoReplace = addr, true, flags&linux.SHM_REMAP == 0
	} else if flags&linux.SHM_REMAP != 0 {
		return 0, unix.EINVAL
	}
	if flags&unix.SHM_RDONLY != 0 {
		o.Prot, access = platform.Read, 0o444
		o.MaxProt = platform.Read | platform.Exec
	}
	if flags&linux.SHM_EXEC != 0 {
		o.Prot |= platform.Exec
		access |= 0o111
	}
	seg, done, err := t.IPC().SysV().ShmAttach(sysvCaller(t), id, access)
	if err != nil {
		return 0, err
	}
	o.Len, o.File = seg.Mem.Len(), seg.Mem
	if o.Fixed && o.Addr+o.Len < o.Addr {
		done(false)
		return 0, unix.EINVAL
	}
	at, err := t.MM().MMap(o)
	done(err == nil)
	if err == unix.EEXIST {
		err = unix.EINVAL // something is mapped there
	}
	return uintptr(at), err
}

// sysShmdt implements shmdt(2).
func sysShmdt(t *kernel.Task, a Args) (uintptr, error) {
	var seg *sysvipc.Segment
	_, err := t.MM().Detach(a.Addr(0), func(s *mm.Shm) bool {
		seg = sysvipc.SegmentOf(s)
		return seg != nil
	})
	if err == nil {
		seg.Detached(sysvCaller(t))
	}
	return 0, err
}

// shmidDS is struct shmid64_ds.
type shmidDS struct {
	Perm                ipcPerm
	Size                uint64
	Atime, Dtime, Ctime int64
	CPID, LPID          int32
	Attached            uint64
	_, _                uint64
}

// shmInfo64 is struct shminfo64, shmUse struct shm_info.
type (
	shmInfo64 struct{ Max, Min, MNI, Seg, All, _, _, _, _ uint64 }
	shmUse    struct {
		Used                int32
		_                   int32
		Total, RSS, Swap    uint64
		Attempts, Successes uint64
	}
)

// sysShmctl implements shmctl(2).
func sysShmctl(t *kernel.Task, a Args) (uintptr, error) {
	id, cmd, addr := a.Int(0), a.Int(1), a.Addr(2)
	if id < 0 || cmd < 0 {
		return 0, unix.EINVAL
	}
	ns, c := t.IPC().SysV(), sysvCaller(t)
	switch cmd {
	case linux.IPC_INFO:
		_, _, _, top := ns.ShmUse()
		return uintptr(top), t.CopyOut(addr, abi.Bytes(&shmInfo64{Max: sysvipc.ShmMax, Min: 1, MNI: sysvipc.ShmMNI, Seg: sysvipc.ShmMNI, All: sysvipc.ShmMax}))
	case linux.SHM_INFO:
		n, pages, rss, top := ns.ShmUse()
		return uintptr(top), t.CopyOut(addr, abi.Bytes(&shmUse{Used: int32(n), Total: pages, RSS: rss}))
	case unix.IPC_STAT, linux.SHM_STAT, linux.SHM_STAT_ANY:
		st, err := ns.ShmStat(c, id, cmd != unix.IPC_STAT, cmd == linux.SHM_STAT_ANY)
		if err != nil {
			return 0, err
		}
		ret := uintptr(0)
		if cmd != unix.IPC_STAT {
			ret = uintptr(st.ID)
		}
		return ret, t.CopyOut(addr, abi.Bytes(&shmidDS{
			Perm: permOut(&st.Perm), Size: st.Size, Atime: st.Atime, Dtime: st.Dtime, Ctime: st.Ctime, CPID: st.CPID, LPID: st.LPID,
			Attached: uint64(st.Attached),
		}))
	case unix.IPC_SET:
		var ds shmidDS
		if err := t.CopyIn(addr, abi.Bytes(&ds)); err != nil {
			return 0, err
		}
		return 0, ns.ShmSet(c, id, ds.Perm.change())
	case unix.IPC_RMID:
		return 0, ns.ShmRemove(c, id)
	case linux.SHM_LOCK, linux.SHM_UNLOCK:
		return 0, ns.ShmLock(c, id, cmd == linux.SHM_LOCK, t.Cred().Has(unix.CAP_IPC_LOCK))
	}
	return 0, unix.EINVAL
}
