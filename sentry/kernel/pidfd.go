package kernel

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/vfs"
)

// pidfd is the open file of pidfd_open(2) and CLONE_PIDFD: readable when the
// process is a zombie or gone.
type pidfd struct {
	pid *PID         `save:"rebuilt"`
	tg  *ThreadGroup `save:"rec"`
}

func (p *pidfd) Release() {}

// Queue is notified when the process ends.
func (p *pidfd) Queue() *waitq.Queue { return &p.pid.exitQ }

// Ready is In from the end of the process on, with Hup once it is reaped.
func (p *pidfd) Ready(mask waitq.Mask) waitq.Mask {
	p.tg.k.mu.Lock()
	defer p.tg.k.mu.Unlock()
	switch p.tg.exitState {
	case exitZombie:
		return mask & (waitq.In | waitq.RdNorm)
	case exitDead:
		return mask & (waitq.In | waitq.RdNorm | waitq.Hup)
	}
	return 0
}

// installPIDFD gives the task a descriptor for tg; flags are pidfd_open(2)'s.
func (t *Task) installPIDFD(tg *ThreadGroup, flags uint32) (int32, error) {
	f := vfs.NewAnonFile("anon_inode:[pidfd]", &pidfd{pid: tg.pid, tg: tg}, unix.O_RDWR|flags&unix.O_NONBLOCK)
	fd, err := t.files.Install(t, f, 0, true)
	if err != nil {
		f.DecRef()
	}
	return fd, err
}

// OpenPIDFD is pidfd_open(2): EINVAL for a thread that is no leader, ESRCH. Own.
func (t *Task) OpenPIDFD(pid int32, flags uint32) (int32, error) {
	if flags&^uint32(unix.O_NONBLOCK) != 0 || pid <= 0 {
		return 0, unix.EINVAL
	}
	t.k.mu.Lock()
	p := t.PID().ns.pids[pid]
	var tg *ThreadGroup
	if p != nil {
		tg = p.tg
	}
	t.k.mu.Unlock()
	switch {
	case p == nil:
		return 0, unix.ESRCH
	case tg == nil:
		return 0, unix.EINVAL
	}
	return t.installPIDFD(tg, flags)
}

// PIDFDTarget returns the process behind a pidfd file: EBADF for another file.
func PIDFDTarget(f *vfs.File) (*ThreadGroup, error) {
	if p, ok := f.Ops().(*pidfd); ok {
		return p.tg, nil
	}
	return nil, unix.EBADF
}
