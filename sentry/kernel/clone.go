package kernel

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/pkg/abi/linux"
	"runsc/pkg/ksync"
	"runsc/pkg/waitq"
	"runsc/sentry/errs"
	"runsc/sentry/mm"
	"runsc/sentry/platform"
	"runsc/sentry/vfs"
)

// CloneArgs are the arguments of clone(2) and clone3(2).
type CloneArgs struct {
	Flags      uint64
	PIDFD      uint64 // address for CLONE_PIDFD
	ChildTID   uint64 // address
	ParentTID  uint64 // address
	ExitSignal int32
	SP         uint64 // 0 keeps the stack pointer
	TLS        uint64
	SetTID     []int32 // innermost namespace first
}

const (
	cloneNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWPID
	// cloneUnsupported are namespaces that this kernel is built without:
	// EINVAL, as Linux without the configuration options.
	cloneUnsupported = unix.CLONE_NEWUSER | unix.CLONE_NEWNET | unix.CLONE_NEWCGROUP | unix.CLONE_NEWTIME | unix.CLONE_INTO_CGROUP
)

// checkCloneFlags follows the ERRORS section of clone(2) and copy_process.
func (t *Task) checkCloneFlags(a *CloneArgs) error {
	f := a.Flags
	all := func(bits uint64) bool { return f&bits == bits }
	switch {
	case f&cloneUnsupported != 0,
		all(unix.CLONE_NEWNS | unix.CLONE_FS),
		f&unix.CLONE_THREAD != 0 && f&unix.CLONE_SIGHAND == 0,
		f&unix.CLONE_SIGHAND != 0 && f&unix.CLONE_VM == 0,
		f&unix.CLONE_THREAD != 0 && f&(unix.CLONE_NEWPID|unix.CLONE_PIDFD) != 0,
		all(unix.CLONE_PIDFD | unix.CLONE_DETACHED),
		all(unix.CLONE_SIGHAND | unix.CLONE_CLEAR_SIGHAND):
		return unix.EINVAL
	}
	if f&unix.CLONE_PARENT != 0 && t.isReaper() {
		return unix.EINVAL
	}
	if f&unix.CLONE_THREAD != 0 && t.childPIDNS != nil && t.childPIDNS != t.PIDNamespace() {
		return unix.EINVAL
	}
	if f&cloneNamespaces != 0 && !t.Cred().Has(unix.CAP_SYS_ADMIN) {
		return unix.EPERM
	}
	return nil
}

// isReaper tells whether the task's process is pid 1 of its namespace.
func (t *Task) isReaper() bool { return t.TGID() == 1 }

// Clone makes a child process or thread and starts it; it returns the child's
// id in the caller's namespace. With CLONE_VFORK the caller waits before its
// guest code runs on. Errors as in clone(2). Own.
func (t *Task) Clone(a *CloneArgs) (int32, error) {
	if err := t.checkCloneFlags(a); err != nil {
		return 0, err
	}
	if t.SignalPending() {
		// A signal to the group is to reach parent and child as one, or the
		// parent before the fork (copy_process).
		return 0, errs.ERESTARTNOINTR
	}
	c, err := t.newChild(a)
	if err != nil {
		return 0, err
	}
	var vfork *waitq.Waiter
	if a.Flags&unix.CLONE_VFORK != 0 {
		vfork = waitq.NewWaiter()
		c.vforkDone.Store(vfork)
	}
	// The descriptor comes before the point of no return: it may fail.
	var pidfd int32 = -1
	if err := t.attach(c, a); err != nil {
		c.discard(a)
		return 0, err
	}
	if a.Flags&unix.CLONE_THREAD == 0 {
		c.tg.armCPULimit()
	}
	id := c.TIDIn(t.PIDNamespace())
	if a.Flags&unix.CLONE_PIDFD != 0 {
		pidfd, err = t.installPIDFD(c.tg, 0)
		if err == nil {
			err = t.CopyOut(a.PIDFD, abi.Bytes(&pidfd))
		}
		if err != nil {
			// Too late to undo: the child dies before it ran, and nobody
			// waits for it.
			t.k.mu.Lock()
			c.tg.disownLocked()
			t.k.mu.Unlock()
			c.tg.Kill()
			c.start()
			return 0, err
		}
	}
	if a.Flags&unix.CLONE_PARENT_SETTID != 0 {
		_ = t.CopyOut(a.ParentTID, abi.Bytes(&id)) // schedule_tail ignores faults too
	}
	if a.Flags&unix.CLONE_CHILD_SETTID != 0 {
		own := c.TID()
		_, _ = c.mm.CopyOut(a.ChildTID, abi.Bytes(&own))
	}
	c.start()
	if vfork != nil {
		t.run = runState{kind: runVfork, vfork: vfork}
	}
	return id, nil
}

// newChild makes the task and everything it does not share; nobody else sees
// it yet.
func (t *Task) newChild(a *CloneArgs) (*Task, error) {
	f := a.Flags
	c := newTask(t.k, t.container)
	c.regs = t.regs
	c.regs.SetReturn(0)
	c.regs.OrigRax = ^uint64(0)
	if a.SP != 0 {
		c.regs.Rsp = a.SP
	}
	if f&unix.CLONE_SETTLS != 0 {
		c.regs.FsBase = a.TLS
	}
	if f&unix.CLONE_CHILD_CLEARTID != 0 {
		c.userAddr.clearChildTID = a.ChildTID
	}
	c.creds.Store(t.Cred())
	c.seccomp.Store(t.seccomp.Load())
	c.comm = t.comm
	c.copyMisc(t)

	if f&unix.CLONE_THREAD != 0 {
		c.tg = t.tg
	} else {
		c.tg = t.forkGroup(f)
		c.tg.leader = c
		c.tg.exitSignal = a.ExitSignal
	}
	var err error
	if f&unix.CLONE_VM != 0 {
		t.mm.IncUsers()
		c.mm = t.mm
	} else {
		if c.mm, err = t.mm.Fork(c.tg.limit); err != nil {
			return nil, err
		}
		// What the child touches first.
		c.mm.Hint(c.regs.Rip, platform.Exec)
		c.mm.Hint(c.regs.Rsp, platform.Write)
		c.mm.Hint(c.regs.FsBase, platform.Write)
	}
	c.files = shared(f&unix.CLONE_FILES != 0, t.files, t.files.Fork)
	c.fs = shared(f&unix.CLONE_FS != 0, t.fs, t.fs.Fork)
	c.uts, c.ipc = t.uts, t.ipc
	if f&unix.CLONE_NEWNS != 0 {
		if c.mountNS, err = t.mountNS.Clone(c.fs); err != nil {
			c.discard(a)
			return nil, err
		}
	} else {
		t.mountNS.IncRef()
		c.mountNS = t.mountNS
	}
	if f&unix.CLONE_NEWUTS != 0 {
		c.uts = t.k.copyUTS(t.uts)
	}
	if f&unix.CLONE_NEWIPC != 0 {
		c.ipc = t.k.NewIPCNamespace()
	}
	t.tg.sigmu.Lock()
	c.sig.mask = t.sig.mask
	if f&unix.CLONE_VM == 0 || f&unix.CLONE_VFORK != 0 {
		c.sig.altStack = t.sig.altStack
	} else {
		c.sig.altStack.Flags = linux.SS_DISABLE
	}
	t.tg.sigmu.Unlock()
	c.ctx = t.k.cfg.Platform.NewContext()
	if err := c.ctx.SetFPState(t.ctx.FPState()); err != nil {
		c.discard(a)
		return nil, unix.ENOMEM
	}
	return c, nil
}

type counted interface{ IncRef() }

// shared returns v with a new reference, or a copy.
func shared[T counted](share bool, v T, fork func() T) T {
	if share {
		v.IncRef()
		return v
	}
	return fork()
}

func newTask(k *Kernel, c *Container) *Task {
	t := &Task{
		k: k, container: c, waiter: waitq.NewWaiter(), intr: make(chan struct{}, 1),
		startTime: k.clock.Monotonic(),
	}
	ksync.Rank(&t.mu, "kernel.Task.mu")
	return t
}

func newThreadGroup(c *Container) *ThreadGroup {
	tg := &ThreadGroup{k: c.k, container: c, startTime: c.k.clock.Monotonic()}
	ksync.Rank(&tg.sigmu, "kernel.ThreadGroup.sigmu")
	ksync.Rank(&tg.timers.mu, "kernel.groupTimers.mu")
	return tg
}

// discard undoes newChild.
func (t *Task) discard(*CloneArgs) {
	if t.ctx != nil {
		t.ctx.Release()
	}
	t.releaseMM(false)
	t.releaseFiles()
}

// forkGroup returns the new process's thread group, without a task.
func (t *Task) forkGroup(flags uint64) *ThreadGroup {
	p := t.tg
	tg := newThreadGroup(t.container)
	tg.started = true
	tg.execBorn = p.execBorn
	tg.limits.Store(p.limits.Load())
	tg.oomScoreAdj.Store(p.oomScoreAdj.Load())
	tg.oomScoreAdjMin.Store(p.oomScoreAdjMin.Load())
	tg.dumpable.Store(p.dumpable.Load())
	tg.audit.inherit(&p.audit)
	p.sigmu.Lock()
	defer p.sigmu.Unlock()
	h := p.sig.handlers
	switch {
	case flags&unix.CLONE_SIGHAND != 0:
		h.refs.Add(1)
		tg.sig.handlers = h
	default:
		tg.sig.handlers = h.copy()
		if flags&unix.CLONE_CLEAR_SIGHAND != 0 {
			tg.sig.handlers.resetForExec(false)
		}
	}
	return tg
}

// limit is mm.LimitFunc.
func (tg *ThreadGroup) limit(r int) uint64 { return tg.Limit(r).Cur }

// attach gives the child its ids and relations. On error nothing was done:
// EAGAIN for the limits, what allocPIDLocked returns, ENOMEM in a container
// that ends.
func (t *Task) attach(c *Task, a *CloneArgs) error {
	k := t.k
	k.mu.Lock()
	defer k.mu.Unlock()
	if t.container.dying || t.killed.Load() {
		return unix.ENOMEM
	}
	if err := t.limitsLocked(); err != nil {
		return err
	}
	ns := t.PID().ns
	if t.childPIDNS != nil {
		ns = t.childPIDNS
	}
	if a.Flags&unix.CLONE_NEWPID != 0 {
		if ns.level >= maxPIDLevel {
			return unix.ENOSPC
		}
		ns = k.newPIDNamespace(ns)
	}
	pid, err := ns.allocPIDLocked(a.SetTID)
	if err != nil {
		return err
	}
	if a.Flags&unix.CLONE_THREAD != 0 {
		if !t.tg.addThreadLocked(c) {
			ns.freeNumbersLocked(pid, -1)
			return unix.ENOMEM // the group exits
		}
	} else {
		t.attachGroupLocked(c, pid, a)
	}
	pid.task = c
	c.pid.Store(pid)
	k.countTaskLocked(c, 1)
	return nil
}

// limitsLocked checks RLIMIT_NPROC and the container's pids limit.
func (t *Task) limitsLocked() error {
	cr := t.Cred()
	if u := t.k.userLocked(cr.UID); cr.UID != 0 && !cr.Has(unix.CAP_SYS_RESOURCE) && !cr.Has(unix.CAP_SYS_ADMIN) {
		if uint64(u.tasks) >= t.Rlimit(unix.RLIMIT_NPROC) {
			return unix.EAGAIN
		}
	}
	if l := t.container.pidsLimit.Load(); l > 0 && int64(len(t.container.tasks)) >= l {
		t.container.pidsFails.Add(1)
		return unix.EAGAIN
	}
	if int64(len(t.container.tasks)) >= t.container.tun.ThreadsMax.Load() {
		return unix.EAGAIN
	}
	return nil
}

// addThreadLocked adds a thread unless the group exits or one of it execs.
func (tg *ThreadGroup) addThreadLocked(c *Task) bool {
	tg.sigmu.Lock()
	defer tg.sigmu.Unlock()
	if tg.sig.exiting || tg.execer != nil {
		return false
	}
	tg.tasks = append(tg.tasks, c)
	tg.sig.live++
	if tg.sig.stopSig != 0 {
		c.sig.stopPending = true
		c.work.Store(true)
		tg.sig.stopCount++
		tg.sig.stopped = false
	}
	return true
}

// attachGroupLocked makes the relations of a new process.
func (t *Task) attachGroupLocked(c *Task, pid *PID, a *CloneArgs) {
	tg := c.tg
	tg.pid = pid
	pid.tg = tg
	tg.tasks = []*Task{c}
	tg.sig.live = 1
	parent, parentTask := t.tg, t
	if a.Flags&unix.CLONE_PARENT != 0 {
		parent, parentTask = t.tg.parent, t.tg.parentTask
		tg.exitSignal = t.tg.exitSignal
	}
	if parent != nil {
		tg.parent, tg.parentTask = parent, parentTask
		parent.children = append(parent.children, tg)
		tg.hasSubreaper = parent.hasSubreaper || parent.subreaper
	}
	tg.joinLocked(t.tg.pgrp)
	if pid.nums[pid.ns.level] == 1 {
		pid.ns.reaper = tg
		tg.sig.unkillable = true
	}
}

// countTaskLocked keeps the counts of tasks.
func (k *Kernel) countTaskLocked(t *Task, n int) {
	k.nTasks.Add(int64(n))
	k.addTasksLocked(t.Cred().UID, n)
	if n > 0 {
		k.forks++
		t.container.tasks[t] = struct{}{}
	} else {
		delete(t.container.tasks, t)
	}
}

func (t *Task) copyMisc(p *Task) {
	m, o := &t.misc, &p.misc
	m.timerSlack.Store(o.timerSlack.Load())
	m.nice.Store(o.nice.Load())
	m.policy.Store(o.policy.Load())
	m.rtPriority.Store(o.rtPriority.Load())
	m.affinity.Store(o.affinity.Load())
	m.ioprio.Store(o.ioprio.Load())
	m.personality.Store(o.personality.Load())
	m.thpDisable.Store(o.thpDisable.Load())
}

// Unshare is unshare(2) for what the Sentry has: EINVAL, EPERM. Own.
func (t *Task) Unshare(flags uint64) error {
	const known = unix.CLONE_THREAD | unix.CLONE_FS | unix.CLONE_SIGHAND | unix.CLONE_VM | unix.CLONE_FILES |
		unix.CLONE_SYSVSEM | cloneNamespaces | cloneUnsupported
	if flags&^known != 0 || flags&cloneUnsupported != 0 {
		return unix.EINVAL
	}
	if flags&(unix.CLONE_THREAD|unix.CLONE_SIGHAND|unix.CLONE_VM) != 0 && len(t.tg.Tasks()) > 1 {
		return unix.EINVAL
	}
	if flags&cloneNamespaces != 0 && !t.Cred().Has(unix.CAP_SYS_ADMIN) {
		return unix.EPERM
	}
	if flags&unix.CLONE_NEWPID != 0 && t.PIDNamespace().level >= maxPIDLevel {
		return unix.ENOSPC
	}
	if flags&(unix.CLONE_FS|unix.CLONE_NEWNS) != 0 && t.fs.Shared() {
		t.replaceFS(t.fs.Fork())
	}
	if flags&unix.CLONE_FILES != 0 && t.files.Shared() {
		t.replaceFiles(t.files.Fork())
	}
	var newNS, oldNS *vfs.Namespace
	if flags&unix.CLONE_NEWNS != 0 {
		var err error
		if newNS, err = t.mountNS.Clone(t.fs); err != nil {
			return err
		}
	}
	t.mu.Lock()
	if newNS != nil {
		oldNS, t.mountNS = t.mountNS, newNS
	}
	if flags&unix.CLONE_NEWUTS != 0 {
		t.uts = t.k.copyUTS(t.uts)
	}
	if flags&unix.CLONE_NEWIPC != 0 {
		t.ipc = t.k.NewIPCNamespace()
	}
	if flags&unix.CLONE_NEWPID != 0 {
		t.childPIDNS = t.k.newPIDNamespace(t.PIDNamespace())
	}
	t.mu.Unlock()
	if oldNS != nil {
		oldNS.DecRef()
	}
	return nil
}

func (t *Task) replaceFS(n *vfs.FSContext) {
	t.mu.Lock()
	old := t.fs
	t.fs = n
	t.mu.Unlock()
	old.DecRef()
}

func (t *Task) replaceFiles(n *vfs.FDTable) {
	t.mu.Lock()
	old := t.files
	t.files = n
	t.mu.Unlock()
	old.DecRef(t)
}

// UnshareFiles makes the descriptor table private, as exec and close_range(2)
// with CLOSE_RANGE_UNSHARE do. Own.
func (t *Task) UnshareFiles() {
	if t.files.Shared() {
		t.replaceFiles(t.files.Fork())
	}
}

// replaceMM makes m, whose user it takes over, the task's address space and
// returns the old one.
func (t *Task) replaceMM(m *mm.MM) *mm.MM {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.mm
	t.mm = m
	return old
}

var _ vfs.Caller = (*Task)(nil)
