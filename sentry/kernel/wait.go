package kernel

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/abi/linux"
	"runsc/pkg/waitq"
)

// WaitRequest is what wait4(2) and waitid(2) ask for.
type WaitRequest struct {
	Type int32 // unix.P_ALL, P_PID, P_PGID; P_PIDFD with Target set
	ID   int32 // P_PGID 0 is the caller's group
	// Target is the process of a pidfd.
	Target  *ThreadGroup
	Options uint32 // WEXITED, WSTOPPED, WCONTINUED, WNOHANG, WNOWAIT, __WALL...
}

// WaitResult tells of one child.
type WaitResult struct {
	PID    int32 // in the caller's namespace; 0: none yet (WNOHANG)
	UID    uint32
	Status int32 // as wait4 stores it
	Code   int32 // CLD_*
	Value  int32 // si_status: exit code or signal
	Rusage unix.Rusage
}

// Wait waits for a child: ECHILD, EINTR by way of errs.ERESTARTSYS. Own.
func (t *Task) Wait(r *WaitRequest) (WaitResult, error) {
	e := waitq.Entry{Waiter: t.waiter}
	t.waiter.Clear()
	t.tg.childQ.Register(&e, waitq.In)
	defer t.tg.childQ.Unregister(&e)
	for {
		res, err := t.tryWait(r)
		if err != nil || res.PID != 0 || r.Options&unix.WNOHANG != 0 {
			return res, err
		}
		if err := t.Block(t.waiter, 0); err != nil {
			return WaitResult{}, err
		}
	}
}

// tryWait looks through the children once.
func (t *Task) tryWait(r *WaitRequest) (WaitResult, error) {
	t.k.mu.Lock()
	defer t.k.mu.Unlock()
	any := false
	for _, ch := range t.tg.children {
		if !t.eligibleLocked(r, ch) {
			continue
		}
		any = true
		if res, ok := t.reportLocked(r, ch); ok {
			return res, nil
		}
	}
	if !any {
		return WaitResult{}, unix.ECHILD
	}
	return WaitResult{}, nil
}

// eligibleLocked is eligible_child of kernel/exit.c.
func (t *Task) eligibleLocked(r *WaitRequest, ch *ThreadGroup) bool {
	ns := t.PID().ns
	switch r.Type {
	case unix.P_PID:
		if ch.pid.In(ns) != r.ID {
			return false
		}
	case unix.P_PGID:
		pg := t.tg.pgrp
		if r.ID != 0 {
			p := ns.pids[r.ID]
			if p == nil {
				return false
			}
			pg = p.pgrp
		}
		if ch.pgrp == nil || ch.pgrp != pg {
			return false
		}
	case unix.P_PIDFD:
		if ch != r.Target {
			return false
		}
	}
	if r.Options&unix.WNOTHREAD != 0 && ch.parentTask != t {
		return false
	}
	if r.Options&unix.WALL != 0 {
		return true
	}
	clone := ch.exitSignal != int32(unix.SIGCHLD)
	return clone == (r.Options&unix.WCLONE != 0)
}

// reportLocked takes what ch has to report, if it is asked for.
func (t *Task) reportLocked(r *WaitRequest, ch *ThreadGroup) (WaitResult, bool) {
	keep := r.Options&unix.WNOWAIT != 0
	if ch.exitState == exitZombie && r.Options&unix.WEXITED != 0 {
		res := t.resultLocked(ch)
		res.Status = ch.waitStatus
		res.Code, res.Value = exitCode(ch.waitStatus)
		if !keep {
			u := ch.useLocked()
			u.add(ch.childTimes)
			t.tg.childTimes.add(u)
			ch.releaseLocked()
		}
		return res, true
	}
	if ch.exitState != exitNone {
		return WaitResult{}, false
	}
	ch.sigmu.Lock()
	defer ch.sigmu.Unlock()
	if sig := ch.sig.stopCode; sig != 0 && r.Options&unix.WSTOPPED != 0 {
		if !keep {
			ch.sig.stopCode = 0
		}
		res := t.resultLocked(ch)
		res.Status, res.Code, res.Value = sig<<8|0x7f, linux.CLD_STOPPED, sig
		return res, true
	}
	if ch.sig.continued && r.Options&unix.WCONTINUED != 0 {
		if !keep {
			ch.sig.continued = false
		}
		res := t.resultLocked(ch)
		res.Status, res.Code, res.Value = 0xffff, linux.CLD_CONTINUED, int32(unix.SIGCONT)
		return res, true
	}
	return WaitResult{}, false
}

func (t *Task) resultLocked(ch *ThreadGroup) WaitResult {
	u := ch.useLocked()
	u.add(ch.childTimes)
	return WaitResult{PID: ch.pid.In(t.PID().ns), UID: ch.leader.Cred().UID, Rusage: u.Rusage()}
}
