package kernel

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/abi/linux"
	"runsc/sentry/arch"
)

// session is a session (setsid(2)); k.mu guards it.
type session struct {
	id     *PID         `save:"rec"`
	leader *ThreadGroup `save:"rec"`     // nil when it has exited
	groups int          `save:"rebuilt"` // process groups
}

// processGroup is a process group (setpgid(2)); k.mu guards it.
type processGroup struct {
	id      *PID           `save:"rec"`
	session *session       `save:"rec"`
	members []*ThreadGroup `save:"rebuilt"`
}

// newSessionLocked puts tg into a session and a group of its own.
func (tg *ThreadGroup) newSessionLocked() {
	s := &session{id: tg.pid, leader: tg}
	tg.pid.session = s
	tg.joinLocked(tg.newGroupLocked(s))
}

func (tg *ThreadGroup) newGroupLocked(s *session) *processGroup {
	pg := &processGroup{id: tg.pid, session: s}
	tg.pid.pgrp = pg
	s.groups++
	return pg
}

// joinLocked moves tg into a group.
func (tg *ThreadGroup) joinLocked(pg *processGroup) {
	old := tg.pgrp
	pg.members = append(pg.members, tg)
	tg.pgrp = pg
	if old != nil {
		tg.leaveLocked(old)
	}
}

// leaveLocked takes tg out of a group, which goes with its last member.
func (tg *ThreadGroup) leaveLocked(pg *processGroup) {
	for i, m := range pg.members {
		if m == tg {
			pg.members = append(pg.members[:i:i], pg.members[i+1:]...)
			break
		}
	}
	if len(pg.members) != 0 {
		return
	}
	pg.id.pgrp = nil
	pg.id.putLocked()
	s := pg.session
	if s.groups--; s.groups == 0 {
		s.id.session = nil
		s.id.putLocked()
	}
}

// SetSID is setsid(2): EPERM for a process group's leader. Own.
func (t *Task) SetSID() (int32, error) {
	t.k.mu.Lock()
	defer t.k.mu.Unlock()
	tg := t.tg
	if tg.pid.pgrp != nil || tg.pid.session != nil {
		return 0, unix.EPERM
	}
	tg.newSessionLocked()
	return tg.pid.In(tg.pid.ns), nil
}

// SetPGID is setpgid(2), whose ERRORS it follows. Own.
func (t *Task) SetPGID(pid, pgid int32) error {
	t.k.mu.Lock()
	defer t.k.mu.Unlock()
	ns := t.PID().ns
	tg := t.tg
	if pid != 0 {
		if tg = ns.groupLocked(pid); tg == nil {
			return unix.ESRCH
		}
	}
	if pgid == 0 {
		pgid = tg.pid.In(ns)
	}
	if pgid < 0 {
		return unix.EINVAL
	}
	switch {
	case tg.parent == t.tg && tg != t.tg:
		if tg.pgrp.session != t.tg.pgrp.session {
			return unix.EPERM
		}
		if tg.didExec {
			return unix.EACCES
		}
	case tg != t.tg:
		return unix.ESRCH
	}
	if tg.pid.session != nil && tg.pid.session.leader == tg {
		return unix.EPERM
	}
	if pgid == tg.pid.In(ns) {
		if tg.pid.pgrp == nil {
			tg.joinLocked(tg.newGroupLocked(tg.pgrp.session))
		} else if tg.pgrp != tg.pid.pgrp {
			tg.joinLocked(tg.pid.pgrp)
		}
		return nil
	}
	p := ns.pids[pgid]
	if p == nil || p.pgrp == nil || p.pgrp.session != t.tg.pgrp.session {
		return unix.EPERM
	}
	if p.pgrp != tg.pgrp {
		tg.joinLocked(p.pgrp)
	}
	return nil
}

// GetPGID is getpgid(2), GetSID getsid(2); pid 0 is the caller: ESRCH. Own.
func (t *Task) GetPGID(pid int32) (int32, error) {
	return t.idOf(pid, func(tg *ThreadGroup) *PID { return tg.pgrp.id })
}

// GetSID is getsid(2).
func (t *Task) GetSID(pid int32) (int32, error) {
	return t.idOf(pid, func(tg *ThreadGroup) *PID { return tg.pgrp.session.id })
}

func (t *Task) idOf(pid int32, id func(*ThreadGroup) *PID) (int32, error) {
	t.k.mu.Lock()
	defer t.k.mu.Unlock()
	ns := t.PID().ns
	tg := t.tg
	if pid != 0 {
		o := ns.taskLocked(pid)
		if o == nil {
			return 0, unix.ESRCH
		}
		tg = o.tg
	}
	if tg.pgrp == nil {
		return 0, unix.ESRCH
	}
	return id(tg).In(ns), nil
}

// PGID and SID return the ids in ns, for /proc.
func (tg *ThreadGroup) PGID(ns *PIDNamespace) int32 {
	tg.k.mu.Lock()
	defer tg.k.mu.Unlock()
	if tg.pgrp == nil {
		return 0
	}
	return tg.pgrp.id.In(ns)
}

// SID is the session id in ns.
func (tg *ThreadGroup) SID(ns *PIDNamespace) int32 {
	tg.k.mu.Lock()
	defer tg.k.mu.Unlock()
	if tg.pgrp == nil {
		return 0
	}
	return tg.pgrp.session.id.In(ns)
}

// sessionOf returns the session; k.mu is held.
func (tg *ThreadGroup) sessionOf() *session {
	if tg.pgrp == nil {
		return nil
	}
	return tg.pgrp.session
}

// orphanedLocked tells whether no member but the ones of ignore has a parent
// in another group of the session (will_become_orphaned_pgrp).
func (pg *processGroup) orphanedLocked(ignore *ThreadGroup) bool {
	for _, tg := range pg.members {
		if tg == ignore || tg.exitState != exitNone || tg.parent == nil || tg.parent == tg.pid.ns.reaper {
			continue
		}
		if pp := tg.parent.pgrp; pp != nil && pp != pg && pp.session == pg.session {
			return false
		}
	}
	return true
}

func (tg *ThreadGroup) pgrpOrphaned() bool {
	tg.k.mu.Lock()
	defer tg.k.mu.Unlock()
	return tg.pgrp == nil || tg.pgrp.orphanedLocked(nil)
}

// stoppedJobsLocked tells whether a member is stopped.
func (pg *processGroup) stoppedJobsLocked() bool {
	for _, tg := range pg.members {
		tg.sigmu.Lock()
		stopped := tg.sig.stopped
		tg.sigmu.Unlock()
		if stopped {
			return true
		}
	}
	return false
}

// killOrphanedLocked sends SIGHUP and SIGCONT to the group of tg when, with tg
// exiting or its parent gone, it becomes an orphan with stopped jobs
// (kill_orphaned_pgrp).
func (tg *ThreadGroup) killOrphanedLocked(parent *ThreadGroup, ignore *ThreadGroup) {
	pg := tg.pgrp
	if pg == nil || parent == nil || parent.pgrp == nil || parent.pgrp == pg || parent.pgrp.session != pg.session {
		return
	}
	if !pg.orphanedLocked(ignore) || !pg.stoppedJobsLocked() {
		return
	}
	for _, sig := range []unix.Signal{unix.SIGHUP, unix.SIGCONT} {
		pg.signalLocked(sig)
	}
}

// signalLocked sends a signal of the kernel's to all members.
func (pg *processGroup) signalLocked(sig unix.Signal) {
	for _, tg := range pg.members {
		tg.sigmu.Lock()
		tg.sendLocked(&sendInfo{info: arch.SigInfo{Signo: int32(sig), Code: linux.SI_KERNEL}, force: true}, nil)
		tg.sigmu.Unlock()
	}
}
