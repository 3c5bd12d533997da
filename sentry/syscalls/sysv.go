package syscalls

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/errs"
	"runsc/sentry/kernel"
	"runsc/sentry/sysvipc"
)

// sysvCaller is the caller of a System V call.
func sysvCaller(t *kernel.Task) *sysvipc.Caller {
	return &sysvipc.Caller{
		Cred: t.Cred(), TGID: t.TGID(), Now: t.Kernel().Clock().Realtime() / 1e9,
		MemFile: t.Kernel().MemFile(), Account: t.Container().Account(),
	}
}

// removed turns EINVAL, for an object that a call waited for before it was
// entered again, into EIDRM.
func removed(t *kernel.Task, err error) error {
	if err == unix.EINVAL && t.ReentryCount() > 0 {
		return unix.EIDRM
	}
	return err
}

// waitIPC is waitFor for calls that are never restarted (signal(7)).
func waitIPC(t *kernel.Task, q *waitq.Queue, mask waitq.Mask, deadline int64, try func() error) error {
	t.SetReentryCount(1)
	err := waitFor(t, q, mask, deadline, try)
	if err == errs.ERESTARTSYS {
		return unix.EINTR
	}
	return err
}

// ipcPerm is struct ipc64_perm.
type ipcPerm struct {
	Key                  int32
	UID, GID, CUID, CGID uint32
	Mode                 uint32
	Seq                  uint16
	_                    uint16
	_                    uint32
	_, _                 uint64
}

func permOut(p *sysvipc.Perm) ipcPerm {
	return ipcPerm{Key: p.Key, UID: p.UID, GID: p.GID, CUID: p.CUID, CGID: p.CGID, Mode: p.Mode, Seq: uint16(p.Seq)}
}

func (p *ipcPerm) change() *sysvipc.Change {
	return &sysvipc.Change{UID: p.UID, GID: p.GID, Mode: p.Mode}
}
