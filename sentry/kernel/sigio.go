package kernel

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/abi/linux"
	"runsc/sentry/arch"
	"runsc/sentry/vfs"
)

// ioTarget is the owner of a file as F_SETOWN_EX names it. It implements
// vfs.SignalTarget.
type ioTarget struct {
	k   *Kernel
	ns  *PIDNamespace
	typ int32
	pid int32
}

// IOTarget is who a file's owner is for t; ESRCH if there is nobody.
func (t *Task) IOTarget(typ, pid int32) (vfs.SignalTarget, error) {
	i := &ioTarget{t.k, t.PID().ns, typ, pid}
	t.k.mu.Lock()
	defer t.k.mu.Unlock()
	if len(i.tasksLocked()) == 0 {
		return nil, unix.ESRCH
	}
	return i, nil
}

// tasksLocked are those to be signalled: for a process its leader.
func (i *ioTarget) tasksLocked() (list []*Task) {
	switch i.typ {
	case linux.F_OWNER_PGRP:
		if p := i.ns.pids[i.pid]; p != nil && p.pgrp != nil {
			for _, tg := range p.pgrp.members {
				list = append(list, tg.leader)
			}
		}
	case linux.F_OWNER_TID:
		if t := i.ns.taskLocked(i.pid); t != nil {
			list = append(list, t)
		}
	default:
		if tg := i.ns.groupLocked(i.pid); tg != nil {
			list = append(list, tg.leader)
		}
	}
	return list
}

// SendIO implements vfs.SignalTarget: SIGIO without details unless F_SETSIG
// chose a signal (send_sigio_to_task).
func (i *ioTarget) SendIO(o vfs.FileOwner, info *arch.SigInfo) {
	i.k.mu.Lock()
	defer i.k.mu.Unlock()
	for _, t := range i.tasksLocked() {
		// sigio_perm
		cr := t.Cred()
		if o.EUID != 0 && o.EUID != cr.SUID && o.EUID != cr.UID && o.UID != cr.SUID && o.UID != cr.UID {
			continue
		}
		s := &sendInfo{info: *info, user: i.k.userLocked(cr.UID), limit: t.Rlimit(unix.RLIMIT_SIGPENDING)}
		if o.Signal == 0 {
			s.info = arch.SigInfo{Signo: int32(unix.SIGIO), Code: linux.SI_KERNEL}
		}
		var one *Task
		if i.typ == linux.F_OWNER_TID {
			one = t
		}
		t.tg.sigmu.Lock()
		_ = t.tg.sendLocked(s, one) // a full queue loses it
		t.tg.sigmu.Unlock()
	}
}
