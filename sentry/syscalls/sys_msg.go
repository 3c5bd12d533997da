package syscalls

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/pkg/abi/linux"
	"runsc/pkg/waitq"
	"runsc/sentry/kernel"
	"runsc/sentry/sysvipc"
)

// sysMsgget implements msgget(2).
func sysMsgget(t *kernel.Task, a Args) (uintptr, error) {
	id, err := t.IPC().SysV().MsgGet(sysvCaller(t), a.Int(0), a.Uint(1))
	return uintptr(id), err
}

// sysMsgsnd implements msgsnd(2).
func sysMsgsnd(t *kernel.Task, a Args) (uintptr, error) {
	var typ int64
	if err := t.CopyIn(a.Addr(1), abi.Bytes(&typ)); err != nil {
		return 0, err
	}
	if a.Size(2) > sysvipc.MsgMax || a.Int(0) < 0 || typ < 1 {
		return 0, unix.EINVAL
	}
	data := make([]byte, a.Size(2))
	if err := t.CopyIn(a.Addr(1)+8, data); err != nil {
		return 0, err
	}
	c := sysvCaller(t)
	q, err := t.IPC().SysV().MsgFind(c, a.Int(0), 0o222)
	if err != nil {
		return 0, removed(t, err)
	}
	try := func() error { return q.Send(c, typ, data) }
	if err = try(); err == unix.EAGAIN && a.Uint(3)&unix.IPC_NOWAIT == 0 {
		err = waitIPC(t, q.Queue(), waitq.Out, 0, try)
	}
	return 0, err
}

// sysMsgrcv implements msgrcv(2).
func sysMsgrcv(t *kernel.Task, a Args) (uintptr, error) {
	size, typ, flags := a.Size(2), a.Int64(3), a.Uint(4)
	if a.Int(0) < 0 || size > 1<<63-1 {
		return 0, unix.EINVAL
	}
	if flags&sysvipc.MsgCopy != 0 && (flags&sysvipc.MsgExcept != 0 || flags&unix.IPC_NOWAIT == 0) {
		return 0, unix.EINVAL
	}
	c := sysvCaller(t)
	q, err := t.IPC().SysV().MsgFind(c, a.Int(0), 0o444)
	if err != nil {
		return 0, removed(t, err)
	}
	var got int64
	var data []byte
	try := func() (err error) {
		if got, data, err = q.Receive(c, size, typ, flags); err == unix.ENOMSG {
			err = unix.EAGAIN
		}
		return err
	}
	if err = try(); err == unix.EAGAIN {
		if flags&unix.IPC_NOWAIT != 0 {
			return 0, unix.ENOMSG
		}
		err = waitIPC(t, q.Queue(), waitq.In, 0, try)
	}
	if err != nil {
		return 0, err
	}
	if err := t.CopyOut(a.Addr(1), abi.Bytes(&got)); err != nil {
		return 0, err
	}
	return uintptr(len(data)), t.CopyOut(a.Addr(1)+8, data)
}

// msqidDS is struct msqid64_ds.
type msqidDS struct {
	Perm                ipcPerm
	Stime, Rtime, Ctime int64
	Bytes, Num, QBytes  uint64
	LSPID, LRPID        int32
	_, _                uint64
}

// msgInfo is struct msginfo.
type msgInfo struct {
	Pool, Map, Max, MNB, MNI, SSZ, TQL int32
	Seg                                uint16
	_                                  uint16
}

// sysMsgctl implements msgctl(2).
func sysMsgctl(t *kernel.Task, a Args) (uintptr, error) {
	id, cmd, addr := a.Int(0), a.Int(1), a.Addr(2)
	if id < 0 || cmd < 0 {
		return 0, unix.EINVAL
	}
	ns, c := t.IPC().SysV(), sysvCaller(t)
	switch cmd {
	case linux.IPC_INFO, linux.MSG_INFO:
		queues, messages, bytes, top := ns.MsgUse()
		info := msgInfo{Pool: sysvipc.MaxIDs * sysvipc.MsgMNB / 1024, Map: sysvipc.MsgMNB, Max: sysvipc.MsgMax, MNB: sysvipc.MsgMNB, MNI: sysvipc.MaxIDs, SSZ: 16, TQL: sysvipc.MsgMNB, Seg: 0xffff}
		if cmd == linux.MSG_INFO {
			info.Pool, info.Map, info.TQL = int32(queues), int32(messages), int32(bytes)
		}
		return uintptr(top), t.CopyOut(addr, abi.Bytes(&info))
	case unix.IPC_STAT, linux.MSG_STAT, linux.MSG_STAT_ANY:
		st, err := ns.MsgStat(c, id, cmd != unix.IPC_STAT, cmd == linux.MSG_STAT_ANY)
		if err != nil {
			return 0, err
		}
		ret := uintptr(0)
		if cmd != unix.IPC_STAT {
			ret = uintptr(st.ID)
		}
		return ret, t.CopyOut(addr, abi.Bytes(&msqidDS{
			Perm: permOut(&st.Perm), Stime: st.Stime, Rtime: st.Rtime, Ctime: st.Ctime, Bytes: st.Bytes, Num: uint64(st.Messages),
			QBytes: st.QBytes, LSPID: st.LSPID, LRPID: st.LRPID,
		}))
	case unix.IPC_SET:
		var ds msqidDS
		if err := t.CopyIn(addr, abi.Bytes(&ds)); err != nil {
			return 0, err
		}
		ch := ds.Perm.change()
		ch.QBytes = ds.QBytes
		return 0, ns.MsgSet(c, id, ch)
	case unix.IPC_RMID:
		return 0, ns.MsgRemove(c, id)
	}
	return 0, unix.EINVAL
}
