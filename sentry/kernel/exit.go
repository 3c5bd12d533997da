package kernel

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/pkg/abi/linux"
	"runsc/pkg/waitq"
	"runsc/sentry/arch"
	"runsc/sentry/clock"
)

// Exit is exit(2): the thread ends when the call returns to the run loop. Own.
func (t *Task) Exit(code int32) {
	t.run = runState{kind: runExit, status: (code & 0xff) << 8}
}

// ExitGroup is exit_group(2). Own.
func (t *Task) ExitGroup(code int32) { t.exitGroup((code & 0xff) << 8) }

// exitGroup ends the process with a wait status.
func (t *Task) exitGroup(status int32) {
	t.tg.sigmu.Lock()
	defer t.tg.sigmu.Unlock()
	t.run = runState{kind: runExit, status: t.tg.beginExitLocked(status)}
}

// exit is the end of a task: do_exit of kernel/exit.c. It runs as the last
// thing on the task's goroutine.
func (t *Task) exit() {
	tg := t.tg
	t.endReentry()
	last := t.exitSignals()
	if last {
		tg.stopTimers()
	}
	t.ctx.Release() // before the address space: no thread may be in it
	t.releaseMM(true)
	if last {
		tg.semUndo.Exit(t.TGID())
	}
	t.releaseFiles()
	if last {
		t.waitForRest()
	}
	if last && tg.oomVictim.Load() != 0 && t.container.cfg.OnOOM != nil {
		t.container.cfg.OnOOM() // before anything else is heard of the exit
	}
	notify := t.exitNotify()
	t.phase.Store(phaseDead)
	t.k.nRunning.Add(-1)
	if t.container.freezer.active() {
		t.container.freezer.changed()
	}
	if notify {
		t.container.processExited(tg)
	}
	t.k.nLive.Add(-1)
}

// exitSignals takes the task out of everything that signals do; it tells
// whether it is the last live thread (exit_signals).
func (t *Task) exitSignals() (last bool) {
	tg := t.tg
	tg.sigmu.Lock()
	t.sig.exiting = true
	t.killed.Store(true) // nothing it still does may wait for long
	if tg.sig.exiting {
		t.run.status = tg.sig.status
	}
	stopped := false
	if t.sig.stopPending {
		t.sig.stopPending = false
		stopped = tg.taskStoppedLocked()
	}
	sig := tg.sig.stopSig
	t.retargetLocked(^arch.SigSet(0))
	t.sig.pending.discard(^arch.SigSet(0))
	tg.sig.live--
	last = tg.sig.live == 0
	if last {
		tg.sig.shared.discard(^arch.SigSet(0))
	}
	tg.sigmu.Unlock()
	if stopped {
		tg.tellParentStop(linux.CLD_STOPPED, sig)
	}
	return last
}

// releaseMM drops the address space; with registered set, it does what the
// guest asked for at this point: robust futexes, clear_child_tid, vfork
// (exit_mm, mm_release).
func (t *Task) releaseMM(registered bool) {
	if t.mm == nil {
		return
	}
	if registered {
		t.mmRelease()
	}
	t.noteRSS()
	m := t.replaceMM(nil)
	m.DecUsers()
}

// mmRelease is Linux's mm_release, for exit and exec.
func (t *Task) mmRelease() {
	if t.userAddr.robustList != 0 {
		t.exitRobustList()
		t.userAddr.robustList = 0
	}
	if addr := t.userAddr.clearChildTID; addr != 0 {
		t.userAddr.clearChildTID = 0
		var zero int32
		// Linux leaves the word alone when nobody else can see it.
		if t.mm.Users() > 1 {
			if t.CopyOut(addr, abi.Bytes(&zero)) == nil {
				t.FutexWakeAddr(addr, 1, false)
				t.FutexWakeAddr(addr, 1, true)
			}
		}
	}
	if w := t.vforkDone.Swap(nil); w != nil {
		w.Wake()
	}
}

// releaseFiles drops descriptors, working directory and namespaces.
func (t *Task) releaseFiles() {
	t.mu.Lock()
	files, fs, ns := t.files, t.fs, t.mountNS
	t.files, t.fs, t.mountNS = nil, nil, nil
	t.mu.Unlock()
	if files != nil {
		files.DecRef(t)
	}
	if fs != nil {
		fs.DecRef()
	}
	if ns != nil {
		ns.DecRef()
	}
	if t.IPC() != t.container.ipc {
		t.k.sweepIPC()
	}
}

// waitForRest is the last thing init does: it kills every task that has to go
// before it, those of its pid namespace (zap_pid_ns_processes) and, if it is a
// container's init, of its container, and waits until they are gone and the
// exits of exec'd processes were reported.
func (t *Task) waitForRest() {
	tg := t.tg
	k := t.k
	k.mu.Lock()
	reaper := tg.pid.ns.reaper == tg
	if !reaper && !tg.isInit {
		k.mu.Unlock()
		return
	}
	w := waitq.NewWaiter()
	entry := waitq.Entry{Waiter: w}
	q := &t.container.exitQ
	if reaper {
		ns := tg.pid.ns
		ns.dying = true
		// Children that die from now on reap themselves.
		tg.sigmu.Lock()
		tg.sig.handlers.set(int32(unix.SIGCHLD), arch.SigAction{Handler: linux.SIG_IGN})
		tg.sigmu.Unlock()
		for _, ch := range append([]*ThreadGroup(nil), tg.children...) {
			if ch.exitState == exitZombie {
				ch.releaseLocked()
			}
		}
		for _, p := range ns.pids {
			if p.tg != nil && p.tg != tg && p.tg.exitState == exitNone {
				p.tg.killLocked()
			}
		}
		q = &ns.exitQ
	}
	if tg.isInit {
		t.container.dying = true
		t.container.killAllLocked(tg)
		if reaper && !t.container.ownsPIDNS {
			q = &t.container.exitQ
		}
	}
	q.Register(&entry, waitq.In)
	defer q.Unregister(&entry)
	// A namespace made by the guest lies within its container, and a
	// container's namespace holds its container: one queue tells of all.
	for t.restLocked(reaper) {
		k.mu.Unlock()
		t.enterPhase(phaseKill)
		<-w.C
		t.leavePhase(phaseKill) // a pause does not hold up the dead
		k.mu.Lock()
	}
	k.mu.Unlock()
}

// restLocked tells whether live tasks, or reports of exec'd processes, are left.
func (t *Task) restLocked(reaper bool) bool {
	tg := t.tg
	if reaper {
		for _, p := range tg.pid.ns.pids {
			if o := p.task; o != nil && o.tg != tg && o.exitState == exitNone {
				return true
			}
		}
	}
	if tg.isInit {
		c := t.container
		for o := range c.tasks {
			if o.tg != tg && o.exitState == exitNone {
				return true
			}
		}
		return len(c.execs) != 0
	}
	return false
}

// exitNotify makes the task a zombie or releases it, gives its children away
// and tells the parent (exit_notify). It tells whether the whole process is
// gone and the shim is to hear of it.
func (t *Task) exitNotify() (report bool) {
	k, tg := t.k, t.tg
	k.mu.Lock()
	defer k.mu.Unlock()
	t.exitState = exitZombie
	tg.reparentLocked(t)
	if tg.leader == t {
		tg.waitStatus = t.run.status
	}
	if t != tg.leader {
		t.releaseLocked()
	}
	tg.sigmu.Lock()
	gone := len(tg.tasks) == 1 && tg.tasks[0].exitState != exitNone
	if tg.sig.exiting {
		tg.waitStatus = tg.sig.status
	}
	tg.sigmu.Unlock()
	if tg.execer != nil {
		tg.execer.run.exec.others.Wake()
	}
	t.wakeExitQueuesLocked()
	if !gone || tg.exitState != exitNone {
		return false
	}
	tg.becomeZombieLocked()
	return tg.isInit || tg.isExec
}

func (t *Task) wakeExitQueuesLocked() {
	t.container.exitQ.Notify(waitq.In)
	for ns := t.PID().ns; ns != nil; ns = ns.parent {
		ns.exitQ.Notify(waitq.In)
	}
}

// becomeZombieLocked is the end of the last thread: the parent hears of it, or
// the process reaps itself.
func (tg *ThreadGroup) becomeZombieLocked() {
	tg.exitState = exitZombie
	tg.killOrphanedLocked(tg.parent, tg)
	if s := tg.sessionOf(); s != nil && s.leader == tg {
		s.leader = nil
	}
	if tg.pid.ns.reaper == tg {
		tg.pid.ns.reaper = nil
	}
	tg.pid.exitQ.Notify(waitq.In)
	if tg.notifyParentLocked() {
		tg.releaseLocked()
	}
}

// notifyParentLocked sends the exit signal and wakes wait(2) (do_notify_parent);
// it tells whether nobody will wait for the process.
func (tg *ThreadGroup) notifyParentLocked() (autoreap bool) {
	p := tg.parent
	if p == nil {
		return true
	}
	sig := tg.exitSignal
	p.sigmu.Lock()
	if sig == int32(unix.SIGCHLD) {
		a := p.sig.handlers.get(sig)
		if a.Handler == linux.SIG_IGN {
			autoreap = true
			sig = 0
		} else if a.Flags&linux.SA_NOCLDWAIT != 0 {
			autoreap = true
		}
	}
	if sig != 0 {
		info := tg.exitInfoLocked(sig)
		// Charged: a realtime exit signal is queued once per child.
		p.sendLocked(&sendInfo{
			info: info, force: true, user: tg.k.userLocked(p.leader.Cred().UID), limit: p.Limit(unix.RLIMIT_SIGPENDING).Cur,
		}, nil)
	}
	p.sigmu.Unlock()
	p.wakeWaiters()
	return autoreap
}

func (tg *ThreadGroup) wakeWaiters() { tg.childQ.Notify(waitq.In) }

// exitInfoLocked is the siginfo of the exit signal.
func (tg *ThreadGroup) exitInfoLocked(sig int32) arch.SigInfo {
	code, status := exitCode(tg.waitStatus)
	info := tg.childInfoLocked(code, status)
	info.Signo = sig
	return info
}

// exitCode splits a wait status into si_code and si_status.
func exitCode(status int32) (code, value int32) {
	if sig := status & 0x7f; sig != 0 {
		return linux.CLD_KILLED, sig
	}
	return linux.CLD_EXITED, status >> 8 & 0xff
}

// childInfoLocked is a SIGCHLD siginfo about tg as its parent sees it.
func (tg *ThreadGroup) childInfoLocked(code, status int32) arch.SigInfo {
	info := arch.SigInfo{Signo: int32(unix.SIGCHLD), Code: code}
	info.SetPID(tg.pid.In(tg.parent.pid.ns))
	info.SetUID(tg.leader.Cred().UID)
	info.SetStatus(status)
	u := tg.useLocked()
	info.SetTimes(u.user/clock.TickNanos, u.sys/clock.TickNanos)
	return info
}

// reparentLocked gives the children of an exiting thread to another thread of
// its group, or those of the last one to a subreaper or the namespace's init
// (forget_original_parent).
func (tg *ThreadGroup) reparentLocked(t *Task) {
	var heir *Task
	for _, o := range tg.tasks {
		if o.exitState == exitNone {
			heir = o
			break
		}
	}
	if heir != nil {
		for _, ch := range tg.children {
			if ch.parentTask == t {
				ch.parentTask = heir
				ch.parentDeathLocked()
			}
		}
		return
	}
	np := tg.newParentLocked()
	children := tg.children
	tg.children = nil
	for _, ch := range children {
		ch.parent, ch.parentTask = np, nil
		if np != nil {
			ch.parentTask = np.leader
			np.children = append(np.children, ch)
		}
		ch.parentDeathLocked()
		ch.exitSignal = int32(unix.SIGCHLD)
		if ch.exitState == exitZombie && ch.notifyParentLocked() {
			ch.releaseLocked()
			continue
		}
		ch.killOrphanedLocked(tg, nil)
	}
}

// parentDeathLocked sends the signals of prctl(PR_SET_PDEATHSIG).
func (tg *ThreadGroup) parentDeathLocked() {
	for _, t := range append([]*Task(nil), tg.tasks...) {
		if sig := t.pdeathSig; sig != 0 {
			tg.sigmu.Lock()
			tg.sendLocked(&sendInfo{info: arch.SigInfo{Signo: sig, Code: linux.SI_USER}, force: true}, nil)
			tg.sigmu.Unlock()
		}
	}
}

// newParentLocked finds who adopts the children (find_new_reaper).
func (tg *ThreadGroup) newParentLocked() *ThreadGroup {
	ns := tg.pid.ns
	if tg.hasSubreaper {
		for p := tg.parent; p != nil && p.pid.ns == ns; p = p.parent {
			if p == ns.reaper {
				break
			}
			if p.subreaper && p.exitState == exitNone {
				return p
			}
		}
	}
	if ns.reaper == tg {
		// Its namespace is empty; what is left came in by setns.
		return nil
	}
	return ns.reaper
}

// releaseLocked is the end of a thread that is not the leader, or of the
// leader when its group is reaped (release_task).
func (t *Task) releaseLocked() {
	tg := t.tg
	tg.sigmu.Lock()
	for i, o := range tg.tasks {
		if o == t {
			tg.tasks = append(tg.tasks[:i:i], tg.tasks[i+1:]...)
			break
		}
	}
	tg.sigmu.Unlock()
	tg.deadTimes.add(t.use())
	t.exitState = exitDead
	p := t.PID()
	p.task = nil
	p.putLocked()
	t.k.countTaskLocked(t, -1)
}

// releaseLocked reaps a zombie process.
func (tg *ThreadGroup) releaseLocked() {
	tg.exitState = exitDead
	tg.leader.releaseLocked()
	tg.leaveLocked(tg.pgrp)
	tg.pgrp = nil
	tg.pid.tg = nil
	tg.pid.putLocked()
	tg.disownLocked()
	tg.leader.wakeExitQueuesLocked()
}

// disownLocked takes the process away from its parent.
func (tg *ThreadGroup) disownLocked() {
	p := tg.parent
	if p == nil {
		return
	}
	for i, ch := range p.children {
		if ch == tg {
			p.children = append(p.children[:i:i], p.children[i+1:]...)
			break
		}
	}
	tg.parent, tg.parentTask = nil, nil
}

// processExited reports the end of a process that the shim knows.
func (c *Container) processExited(tg *ThreadGroup) {
	if tg.started && c.cfg.OnExit != nil {
		c.cfg.OnExit(tg.execID, shellStatus(tg.ExitStatus()))
	}
	c.k.mu.Lock()
	if tg.isInit {
		c.stopped = true
	} else {
		delete(c.execs, tg.execID)
	}
	c.exitQ.Notify(waitq.In)
	for ns := c.pidNS; ns != nil; ns = ns.parent {
		ns.exitQ.Notify(waitq.In)
	}
	c.k.mu.Unlock()
}

// shellStatus is the exit code of the shim's events: 128 plus the signal.
func shellStatus(status int32) int {
	if sig := status & 0x7f; sig != 0 {
		return 128 + int(sig)
	}
	return int(status >> 8 & 0xff)
}

// ExitStatus is the wait(2) status of a dead process.
func (tg *ThreadGroup) ExitStatus() int32 {
	tg.k.mu.Lock()
	defer tg.k.mu.Unlock()
	return tg.waitStatus
}

// noteRSS keeps the peak of resident memory for getrusage.
func (t *Task) noteRSS() {
	peak := int64(t.peakRSS())
	t.k.mu.Lock()
	t.tg.deadTimes.maxRSS = max(t.tg.deadTimes.maxRSS, peak)
	t.k.mu.Unlock()
}

// peakRSS is the most memory the address space had resident, in bytes. Own.
func (t *Task) peakRSS() uint64 { return t.mm.Usage().PeakRSS }
