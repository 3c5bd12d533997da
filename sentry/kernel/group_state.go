package kernel

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/abi/linux"
	"runsc/sentry/image"
)

// groupRecord makes the record of a process but for its timers; k.mu is held.
func (s *containerSaver) groupRecord(tg *ThreadGroup) *image.ThreadGroup {
	rec := &image.ThreadGroup{
		ID: s.e.Known(tg), PID: s.pidID(tg.pid), Leader: s.e.Known(tg.leader),
		ProcessGroup: s.pgrpID(tg.pgrp), ExitSignal: tg.exitSignal, WaitStatus: tg.waitStatus, DidExec: tg.didExec,
		Subreaper: tg.subreaper, HasSubreaper: tg.hasSubreaper, StartTime: tg.startTime,
		ChildTimes: usageRecord(tg.childTimes), DeadTimes: usageRecord(tg.deadTimes),
		OOMScore: tg.oomScoreAdj.Load(), OOMScoreMin: tg.oomScoreAdjMin.Load(), Dumpable: tg.dumpable.Load(),
		DeadIO: tg.deadTimes.io.record(), ChildIO: tg.childTimes.io.record(),
		DumpFilter: tg.audit.dumpFilter.Load(), Login: tg.audit.login.Load(), SessionID: tg.audit.session.Load(),
	}
	if tg.exitState != exitNone {
		rec.State = image.StateZombie
	}
	switch p := tg.parent; {
	case p == nil:
	case s.in[p]:
		rec.Parent = s.e.Known(p)
		if tg.parentTask != nil {
			rec.ParentTask = s.e.Known(tg.parentTask)
		}
	default:
		rec.Adopted = true
	}
	for _, l := range tg.limits.Load() {
		rec.Limits = append(rec.Limits, l.Cur, l.Max)
	}
	tg.sigmu.Lock()
	defer tg.sigmu.Unlock()
	for _, t := range tg.tasks {
		rec.Tasks = append(rec.Tasks, s.e.Known(t))
	}
	g := &tg.sig
	rec.Handlers = s.handlersID(g.handlers)
	rec.Shared = queueRecord(&g.shared)
	rec.Exiting, rec.Status = g.exiting, g.status
	rec.StopSig, rec.StopCount, rec.Stopped, rec.StopCode = g.stopSig, g.stopCount, g.stopped, g.stopCode
	rec.Continued, rec.TellContinued, rec.Unkillable = g.continued, g.tellContinued, g.unkillable
	return rec
}

// makeGroup makes a process and its tasks of their records, but for what needs
// other objects.
func (r *restored) makeGroup(id image.ID) (*ThreadGroup, error) {
	rec := new(image.ThreadGroup)
	if err := r.e.Get(image.KindThreadGroup, id, rec); err != nil {
		return nil, err
	}
	tg := newThreadGroup(r.c)
	r.grecs[tg] = rec
	r.groups = append(r.groups, tg)
	tg.isInit = id == r.rec.Init
	tg.startTime = rec.StartTime + r.shift
	tg.exitSignal, tg.waitStatus, tg.didExec = rec.ExitSignal, rec.WaitStatus, rec.DidExec
	tg.subreaper, tg.hasSubreaper = rec.Subreaper, rec.HasSubreaper
	tg.childTimes, tg.deadTimes = restoredUsage(rec.ChildTimes), restoredUsage(rec.DeadTimes)
	tg.deadTimes.io, tg.childTimes.io = restoredIO(rec.DeadIO), restoredIO(rec.ChildIO)
	tg.audit.dumpFilter.Store(min(rec.DumpFilter, 1<<32))
	tg.audit.login.Store(min(rec.Login, 1<<32))
	tg.audit.session.Store(rec.SessionID)
	tg.k.keepSession(rec.SessionID)
	tg.oomScoreAdj.Store(min(max(rec.OOMScore, -oomAdjMax), oomAdjMax))
	tg.oomScoreAdjMin.Store(min(max(rec.OOMScoreMin, -oomAdjMax), oomAdjMax))
	tg.dumpable.Store(rec.Dumpable)
	if tg.exitSignal != 0 && !ValidSignal(tg.exitSignal) {
		return nil, bad("exit signal %d", tg.exitSignal)
	}
	if len(rec.Limits) != 2*linux.RLIM_NLIMITS {
		return nil, bad("%d limits", len(rec.Limits))
	}
	var limits [linux.RLIM_NLIMITS]unix.Rlimit
	for i := range limits {
		limits[i] = unix.Rlimit{Cur: rec.Limits[2*i], Max: rec.Limits[2*i+1]}
	}
	tg.limits.Store(&limits)

	var err error
	if tg.pid, err = r.pid(rec.PID); err != nil {
		return nil, err
	}
	if tg.pid.tg != nil {
		return nil, bad("two processes with one pid")
	}
	tg.pid.tg = tg
	g := &tg.sig
	if g.handlers, err = r.handlers(rec.Handlers); err != nil {
		return nil, err
	}
	g.exiting, g.status, g.unkillable = rec.Exiting, rec.Status, rec.Unkillable
	g.stopSig, g.stopCount, g.stopped, g.stopCode = rec.StopSig, rec.StopCount, rec.Stopped, rec.StopCode
	g.continued, g.tellContinued = rec.Continued, rec.TellContinued
	if rec.State != image.StateLive {
		tg.exitState = exitZombie
		tg.timers.dead = true
	}
	for _, tid := range rec.Tasks {
		t, err := r.makeTask(tg, tid)
		if err != nil {
			return nil, err
		}
		if t.tg != tg {
			return nil, bad("task %d is of two processes", tid)
		}
		tg.tasks = append(tg.tasks, t)
		if tid == rec.Leader {
			tg.leader = t
		}
		if t.exitState == exitNone {
			g.live++
		} else if tid != rec.Leader {
			return nil, bad("a thread that has ended")
		}
	}
	switch {
	case tg.leader == nil || tg.leader.PID() != tg.pid:
		return nil, bad("process %d has no leader", id)
	case (g.live == 0) != (tg.exitState != exitNone):
		return nil, bad("process %d lives without threads, or the other way round", id)
	}
	return tg, nil
}

// linkGroup makes the relations of a process to others, all of which are made.
func (r *restored) linkGroup(tg *ThreadGroup) error {
	rec := r.grecs[tg]
	if rec.Parent != 0 {
		p, ok := image.Object[*ThreadGroup](r.e.Restorer, rec.Parent)
		if !ok || r.place[p] >= r.place[tg] {
			return bad("the parent of a process comes after it")
		}
		if p.exitState != exitNone {
			return bad("the parent of a process has ended")
		}
		tg.parent, tg.parentTask = p, p.leader
		if rec.ParentTask != 0 {
			t, err := r.threadOf(p, rec.ParentTask)
			if err != nil {
				return err
			}
			tg.parentTask = t
		}
		p.children = append(p.children, tg)
	}
	pg, err := r.pgrp(rec.ProcessGroup)
	if err != nil {
		return err
	}
	tg.joinLocked(pg)
	return r.restoreTimers(tg, rec)
}

// queuesLocked restores the pending signals of a process, whose timers exist.
func (r *restored) queuesLocked(tg *ThreadGroup) error {
	if err := r.queueLocked(tg, &tg.sig.shared, r.grecs[tg].Shared); err != nil {
		return err
	}
	for _, t := range tg.tasks {
		if err := r.queueLocked(tg, &t.sig.pending, r.trecs[t].Pending); err != nil {
			return err
		}
	}
	return nil
}

func (r *restored) pgrp(id image.ID) (*processGroup, error) {
	return image.Once(r.e.Restorer, id, func() (*processGroup, error) {
		var rec image.ProcessGroup
		if err := r.e.Get(image.KindProcessGroup, id, &rec); err != nil {
			return nil, err
		}
		pid, err := r.pid(rec.PID)
		if err != nil {
			return nil, err
		}
		s, err := r.session(rec.Session)
		if err != nil {
			return nil, err
		}
		if pid.pgrp != nil {
			return nil, bad("two process groups with one pid")
		}
		pg := &processGroup{id: pid, session: s}
		pid.pgrp = pg
		s.groups++
		return pg, nil
	})
}

func (r *restored) session(id image.ID) (*session, error) {
	return image.Once(r.e.Restorer, id, func() (*session, error) {
		var rec image.Session
		if err := r.e.Get(image.KindSession, id, &rec); err != nil {
			return nil, err
		}
		pid, err := r.pid(rec.PID)
		if err != nil {
			return nil, err
		}
		if pid.session != nil {
			return nil, bad("two sessions with one pid")
		}
		s := &session{id: pid}
		if rec.Leader != 0 {
			tg, ok := image.Object[*ThreadGroup](r.e.Restorer, rec.Leader)
			if !ok || tg.pid != pid {
				return nil, bad("a session's leader")
			}
			s.leader = tg
		}
		pid.session = s
		return s, nil
	})
}
