package kernel

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/abi/linux"
	"runsc/pkg/waitq"
	"runsc/sentry/arch"
	"runsc/sentry/cred"
)

// ValidSignal tells whether sig is a signal number (0 is not).
func ValidSignal(sig int32) bool { return sig >= 1 && sig <= linux.NSIG }

// interrupt makes the task look for work soon: it leaves the guest, or its
// interruptible sleep.
func (t *Task) interrupt() {
	t.work.Store(true)
	if t.inGuest.Load() {
		t.ctx.Interrupt()
	}
	select {
	case t.intr <- struct{}{}:
	default:
	}
}

// sendInfo is a signal on its way to a queue.
type sendInfo struct {
	info arch.SigInfo
	// force: from the kernel or an ancestor namespace, so that SIGKILL and
	// SIGSTOP reach a namespace's init.
	force bool
	user  *user       // to charge; nil for the kernel's signals
	limit uint64      // the sender's RLIMIT_SIGPENDING
	timer *posixTimer // the timer it comes from
}

// sendLocked queues a signal for the thread group, or for one task of it;
// sigmu is held. EAGAIN when a queued realtime signal exceeds the limit.
func (tg *ThreadGroup) sendLocked(s *sendInfo, target *Task) error {
	sig := s.info.Signo
	if tg.sig.exiting && sig != int32(unix.SIGKILL) {
		return nil
	}
	tg.prepareLocked(sig)
	if tg.ignoredLocked(sig, target, s.force) {
		return nil
	}
	if sig == int32(unix.SIGKILL) {
		// complete_signal: fatal at once for all, stopped or frozen or not.
		tg.beginExitLocked(int32(unix.SIGKILL))
		return nil
	}
	q := &tg.sig.shared
	if target != nil {
		q = &target.sig.pending
	}
	if sig < linux.SIGRTMIN && q.set.Has(sig) {
		return nil // legacy_queue: one is enough
	}
	e := &queuedSignal{info: s.info, timer: s.timer}
	if s.user != nil {
		if n := s.user.sigPending.Add(1); sig >= linux.SIGRTMIN && uint64(n) > s.limit && s.info.Code != linux.SI_USER {
			s.user.sigPending.Add(-1)
			return unix.EAGAIN
		} else if uint64(n) > s.limit {
			// The signal arrives, its siginfo does not.
			s.user.sigPending.Add(-1)
			e = nil
		} else {
			e.user = s.user
		}
	}
	if e != nil {
		q.list = append(q.list, e)
	}
	q.set |= arch.SigBit(sig)
	tg.wakeForLocked(sig, target)
	tg.sig.queueQ.Notify(waitq.In)
	return nil
}

// prepareLocked does what stop signals and SIGCONT do at once, whether they
// are blocked, ignored or handled (prepare_signal).
func (tg *ThreadGroup) prepareLocked(sig int32) {
	switch {
	case sigStopSet.Has(sig):
		tg.discardAllLocked(sigSet(unix.SIGCONT))
	case sig == int32(unix.SIGCONT):
		tg.discardAllLocked(sigStopSet)
		tg.continueLocked()
	}
}

func (tg *ThreadGroup) discardAllLocked(s arch.SigSet) {
	tg.sig.shared.discard(s)
	for _, t := range tg.tasks {
		t.sig.pending.discard(s)
	}
}

// continueLocked ends a group stop. The first of its tasks to run on tells the
// parent, which needs locks that may not be taken here.
func (tg *ThreadGroup) continueLocked() {
	if tg.sig.stopSig == 0 {
		return
	}
	wasStopped := tg.sig.stopped
	tg.sig.stopSig, tg.sig.stopCount, tg.sig.stopped, tg.sig.stopCode = 0, 0, false, 0
	if wasStopped {
		tg.sig.continued = true
		tg.sig.tellContinued = true
	}
	for _, t := range tg.tasks {
		t.sig.stopPending = false
		if t.sig.stopped {
			t.sig.stopped = false
			t.interrupt()
		}
	}
}

// ignoredLocked tells whether a signal would have no effect at all
// (sig_ignored). A blocked signal is kept: its action may change.
func (tg *ThreadGroup) ignoredLocked(sig int32, target *Task, force bool) bool {
	t := target
	if t == nil {
		if len(tg.tasks) == 0 {
			return true
		}
		t = tg.tasks[0]
	}
	if (t.sig.mask | t.sig.waiting).Has(sig) {
		return false
	}
	h := tg.sig.handlers.get(sig).Handler
	if h == linux.SIG_DFL && tg.sig.unkillable && !(force && sigKernelOnly.Has(sig)) {
		return true
	}
	return h == linux.SIG_IGN || h == linux.SIG_DFL && sigDflIgnored.Has(sig)
}

// wakeForLocked interrupts a task that can take sig (complete_signal).
func (tg *ThreadGroup) wakeForLocked(sig int32, target *Task) {
	if target != nil {
		if target.wantsLocked(sig) {
			target.interrupt()
		}
		return
	}
	for _, t := range tg.tasks {
		if t.wantsLocked(sig) {
			t.interrupt()
			return
		}
	}
}

// wantsLocked tells whether the task would take sig now (wants_signal).
func (t *Task) wantsLocked(sig int32) bool {
	return !t.sig.exiting && !t.sig.mask.Has(sig) && !t.sig.stopped
}

// beginExitLocked makes every thread exit with the wait status, unless an exit
// is under way already; it returns the status that holds.
func (tg *ThreadGroup) beginExitLocked(status int32) int32 {
	if tg.sig.exiting {
		return tg.sig.status
	}
	tg.sig.exiting, tg.sig.status = true, status
	tg.sig.stopSig, tg.sig.stopCount, tg.sig.stopped = 0, 0, false
	for _, t := range tg.tasks {
		t.killLocked()
	}
	return status
}

// killLocked makes one thread exit; sigmu is held.
func (t *Task) killLocked() {
	t.sig.stopPending, t.sig.stopped = false, false
	t.killed.Store(true)
	t.interrupt()
}

// Kill ends the process as by SIGKILL from the kernel.
func (tg *ThreadGroup) Kill() {
	tg.sigmu.Lock()
	defer tg.sigmu.Unlock()
	tg.beginExitLocked(int32(unix.SIGKILL))
}

// SignalFromOutside sends a signal as a process of an ancestor pid namespace
// would: siginfo shows pid 0, and SIGKILL and SIGSTOP reach init. Signal 0
// checks that the process lives. ESRCH, EINVAL.
func (tg *ThreadGroup) SignalFromOutside(sig int32) error {
	if sig != 0 && !ValidSignal(sig) {
		return unix.EINVAL
	}
	if tg.Zombie() {
		return unix.ESRCH
	}
	if sig == 0 {
		return nil
	}
	if sig == int32(unix.SIGKILL) && !tg.Started() {
		tg.Discard()
		return nil
	}
	tg.sigmu.Lock()
	defer tg.sigmu.Unlock()
	return tg.sendLocked(&sendInfo{info: arch.SigInfo{Signo: sig, Code: linux.SI_USER}, force: true}, nil)
}

// SendSignal queues a signal of the kernel's own making (SI_KERNEL and the
// like) for the task's thread group.
func (t *Task) SendSignal(info *arch.SigInfo) error { return t.tg.SendKernelSignal(info) }

// SendKernelSignal queues a signal of the kernel's own making for the group.
func (tg *ThreadGroup) SendKernelSignal(info *arch.SigInfo) error {
	tg.sigmu.Lock()
	defer tg.sigmu.Unlock()
	return tg.sendLocked(&sendInfo{info: *info, force: true}, nil)
}

// SendSelf queues a signal without data for the task itself, such as SIGPIPE.
func (t *Task) SendSelf(sig unix.Signal) {
	t.tg.sigmu.Lock()
	defer t.tg.sigmu.Unlock()
	// send_sig: as if the task had sent it to itself.
	info := arch.SigInfo{Signo: int32(sig), Code: linux.SI_USER}
	info.SetPID(t.TGID())
	info.SetUID(t.Cred().UID)
	t.tg.sendLocked(&sendInfo{info: info}, t)
}

// forceSignal queues a signal that the task's own instruction caused. A
// blocked or ignored one gets the default action, also for a namespace's init
// (force_sig_info_to_task). Own.
func (t *Task) forceSignal(info *arch.SigInfo) {
	tg := t.tg
	tg.sigmu.Lock()
	defer tg.sigmu.Unlock()
	sig := info.Signo
	a := tg.sig.handlers.get(sig)
	if t.sig.mask.Has(sig) || a.Handler == linux.SIG_IGN {
		a.Handler = linux.SIG_DFL
		tg.sig.handlers.set(sig, a)
		t.sig.mask &^= arch.SigBit(sig)
	}
	if a.Handler == linux.SIG_DFL {
		tg.sig.unkillable = false
	}
	if !t.sig.pending.set.Has(sig) {
		t.sig.pending.list = append(t.sig.pending.list, &queuedSignal{info: *info})
		t.sig.pending.set |= arch.SigBit(sig)
	}
	t.work.Store(true)
}

// mayKill tells whether t may signal the task's process (kill_ok_by_cred).
func (t *Task) mayKill(target *Task, sig int32) bool {
	c, o := t.Cred(), target.Cred()
	if t.tg == target.tg || c.Has(unix.CAP_KILL) || sameUser(c, o) {
		return true
	}
	return sig == int32(unix.SIGCONT) && t.tg.sessionOf() == target.tg.sessionOf()
}

func sameUser(c, o *cred.Creds) bool {
	return c.EUID == o.SUID || c.EUID == o.UID || c.UID == o.SUID || c.UID == o.UID
}

// userInfo returns the siginfo of kill(2) and tgkill(2) as seen by ns.
func (t *Task) userInfo(sig, code int32, ns *PIDNamespace) arch.SigInfo {
	info := arch.SigInfo{Signo: sig, Code: code}
	info.SetPID(t.tg.pid.In(ns))
	info.SetUID(t.Cred().UID)
	return info
}

// send checks permission and sends to a group or, with thread, one task of it;
// k.mu is held. info is nil for kill and tgkill.
func (t *Task) sendToLocked(target *Task, sig, code int32, info *arch.SigInfo, thread bool) error {
	if !t.mayKill(target, sig) {
		return unix.EPERM
	}
	if sig == 0 {
		return nil
	}
	tns := target.PID().ns
	s := &sendInfo{
		force: t.PID().In(tns) == 0, // from an ancestor
		user:  t.k.userLocked(target.Cred().UID),
		limit: target.Rlimit(unix.RLIMIT_SIGPENDING),
	}
	if info != nil {
		s.info = *info
		if s.force {
			s.info.SetPID(0) // the sender has no number there
		}
	} else {
		s.info = t.userInfo(sig, code, tns)
	}
	var one *Task
	if thread {
		one = target
	}
	target.tg.sigmu.Lock()
	defer target.tg.sigmu.Unlock()
	return target.tg.sendLocked(s, one)
}

// KillProcess is kill(2) for pid > 0: ESRCH, EPERM, EAGAIN. A nil info is that
// of kill, another that of rt_sigqueueinfo(2). Own.
func (t *Task) KillProcess(pid, sig int32, info *arch.SigInfo) error {
	t.k.mu.Lock()
	defer t.k.mu.Unlock()
	// kill(2) takes thread ids too and signals their process.
	target := t.PID().ns.taskLocked(pid)
	if target == nil {
		return unix.ESRCH
	}
	return t.sendToLocked(target, sig, linux.SI_USER, info, false)
}

// KillGroup signals a thread group found otherwise (pidfds). Own.
func (t *Task) KillGroup(tg *ThreadGroup, sig int32, info *arch.SigInfo) error {
	t.k.mu.Lock()
	defer t.k.mu.Unlock()
	if tg.exitState == exitDead {
		return unix.ESRCH
	}
	return t.sendToLocked(tg.leader, sig, linux.SI_USER, info, false)
}

// KillLeader signals the first thread of a group alone
// (PIDFD_SIGNAL_THREAD). Own.
func (t *Task) KillLeader(tg *ThreadGroup, sig int32, info *arch.SigInfo) error {
	t.k.mu.Lock()
	defer t.k.mu.Unlock()
	if tg.exitState == exitDead {
		return unix.ESRCH
	}
	return t.sendToLocked(tg.leader, sig, linux.SI_USER, info, true)
}

// KillThread is tgkill(2), and tkill(2) with tgid 0. Own.
func (t *Task) KillThread(tgid, tid, sig int32, info *arch.SigInfo) error {
	t.k.mu.Lock()
	defer t.k.mu.Unlock()
	ns := t.PID().ns
	target := ns.taskLocked(tid)
	if target == nil || tgid > 0 && target.tg.pid.In(ns) != tgid {
		return unix.ESRCH
	}
	return t.sendToLocked(target, sig, linux.SI_TKILL, info, true)
}

// KillProcessGroup is kill(2) for pid < -1 and, with pgid 0, pid 0. Own.
func (t *Task) KillProcessGroup(pgid, sig int32) error {
	t.k.mu.Lock()
	defer t.k.mu.Unlock()
	pg := t.tg.pgrp
	if pgid != 0 {
		pg = nil
		if p := t.PID().ns.pids[pgid]; p != nil {
			pg = p.pgrp
		}
	}
	if pg == nil {
		return unix.ESRCH
	}
	return t.killManyLocked(append([]*ThreadGroup(nil), pg.members...), sig, nil)
}

// KillGroupOf signals the process group that has tg's number
// (PIDFD_SIGNAL_PROCESS_GROUP). Own.
func (t *Task) KillGroupOf(tg *ThreadGroup, sig int32, info *arch.SigInfo) error {
	t.k.mu.Lock()
	defer t.k.mu.Unlock()
	pg := tg.pid.pgrp
	if pg == nil {
		return unix.ESRCH
	}
	return t.killManyLocked(append([]*ThreadGroup(nil), pg.members...), sig, info)
}

// KillEverything is kill(-1): every process of the namespace but its init and
// the caller. Own.
func (t *Task) KillEverything(sig int32) error {
	t.k.mu.Lock()
	defer t.k.mu.Unlock()
	ns := t.PID().ns
	var all []*ThreadGroup
	for num, p := range ns.pids {
		if num != 1 && p.tg != nil && p.tg != t.tg {
			all = append(all, p.tg)
		}
	}
	return t.killManyLocked(all, sig, nil)
}

// killManyLocked succeeds if one was signalled; else the last error counts.
func (t *Task) killManyLocked(all []*ThreadGroup, sig int32, info *arch.SigInfo) error {
	err := error(unix.ESRCH)
	ok := false
	for _, tg := range all {
		if e := t.sendToLocked(tg.leader, sig, linux.SI_USER, info, false); e == nil {
			ok = true
		} else {
			err = e
		}
	}
	if ok {
		return nil
	}
	return err
}
