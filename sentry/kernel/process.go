package kernel

import (
	"fmt"

	"golang.org/x/sys/unix"

	"runsc/pkg/abi/linux"
	"runsc/sentry/vfs"
)

// defaultLimits are those of Linux's init (INIT_RLIMITS), with the limit on
// open files that systemd gives.
var defaultLimits = func() (l [linux.RLIM_NLIMITS]unix.Rlimit) {
	for i := range l {
		l[i] = unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	}
	l[unix.RLIMIT_STACK].Cur = 8 << 20
	l[unix.RLIMIT_CORE].Cur = 0
	l[unix.RLIMIT_NOFILE] = unix.Rlimit{Cur: 1024, Max: 4096}
	l[unix.RLIMIT_MEMLOCK] = unix.Rlimit{Cur: 8 << 20, Max: 8 << 20}
	l[unix.RLIMIT_MSGQUEUE] = unix.Rlimit{Cur: 819200, Max: 819200}
	l[unix.RLIMIT_NICE] = unix.Rlimit{}
	l[unix.RLIMIT_RTPRIO] = unix.Rlimit{}
	// Linux takes half the threads that fit into memory; a round number does.
	l[unix.RLIMIT_NPROC] = unix.Rlimit{Cur: 30000, Max: 30000}
	l[unix.RLIMIT_SIGPENDING] = unix.Rlimit{Cur: 30000, Max: 30000}
	return l
}()

// CreateProcess makes a process with its program loaded, which runs from Start
// on. It is the container's init or, by exec, a further one. Errors of the
// program (ENOENT, EACCES, ENOEXEC...) are bare errnos.
func (c *Container) CreateProcess(cfg ProcessConfig) (*ThreadGroup, error) {
	k := c.k
	tg := newThreadGroup(c)
	tg.execID, tg.isInit, tg.isExec = cfg.ExecID, cfg.Init, !cfg.Init
	tg.execBorn = tg.isExec
	l := defaultLimits
	for r, v := range cfg.Limits {
		l[r] = v
	}
	tg.limits.Store(&l)
	tg.oomScoreAdj.Store(cfg.OOMScoreAdj)
	tg.oomScoreAdjMin.Store(cfg.OOMScoreAdj)
	tg.sig.handlers = newSigHandlers()
	tg.sig.live = 1

	t := newTask(k, c)
	t.tg, tg.leader, tg.tasks = tg, t, []*Task{t}
	t.sig.altStack.Flags = linux.SS_DISABLE
	t.misc.timerSlack.Store(defaultTimerSlack)
	t.creds.Store(cfg.Cred)
	if cfg.Seccomp != nil {
		t.seccomp.Store(&seccompFilters{cfg.Seccomp})
	}
	t.fs, t.files, t.mountNS = cfg.FS, cfg.Files, cfg.MountNS
	t.uts, t.ipc = c.uts, c.ipc
	t.ctx = k.cfg.Platform.NewContext()

	x, err := t.loadProgram(&ExecArgs{At: vfs.At{FS: t.fs, Name: cfg.Filename}, Filename: cfg.Filename, Argv: cfg.Argv, Env: cfg.Env})
	if err != nil {
		t.discard(nil)
		return nil, err
	}
	// Before attach: from then on whoever kills the container starts the task,
	// for it to die.
	t.commitExec(x)
	if err := c.attach(t); err != nil {
		t.discard(nil)
		return nil, err
	}
	tg.armCPULimit()
	return tg, nil
}

// attach gives a process made by the Sentry its ids; it leads a session of its
// own and has no parent.
func (c *Container) attach(t *Task) error {
	k, tg := c.k, t.tg
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case tg.isInit && c.init != nil:
		return fmt.Errorf("container %s: has an init process", c.cfg.ID)
	case tg.isExec && (c.init == nil || c.init.exitState != exitNone), c.dying:
		return ErrNotRunning
	case tg.isExec && c.execs[tg.execID] != nil:
		return fmt.Errorf("container %s: process %s exists", c.cfg.ID, tg.execID)
	}
	if l := c.pidsLimit.Load(); l > 0 && int64(len(c.tasks)) >= l {
		return unix.EAGAIN
	}
	pid, err := c.pidNS.allocPIDLocked(nil)
	if err != nil {
		return err
	}
	tg.pid, pid.tg, pid.task = pid, tg, t
	t.pid.Store(pid)
	tg.newSessionLocked()
	tg.exitSignal = int32(unix.SIGCHLD)
	if pid.nums[pid.ns.level] == 1 {
		pid.ns.reaper = tg
		tg.sig.unkillable = true
	}
	if tg.isInit {
		c.init = tg
	} else {
		c.execs[tg.execID] = tg
	}
	k.countTaskLocked(t, 1)
	return nil
}

// Start lets a process made by CreateProcess run. It fails if the process was
// started or killed before.
func (tg *ThreadGroup) Start() error {
	tg.k.mu.Lock()
	defer tg.k.mu.Unlock()
	if tg.started || tg.discarded {
		return ErrNotRunning
	}
	tg.started = true
	if tg.container.restored != nil && tg.isInit {
		tg.container.startRestoredLocked()
		return nil
	}
	tg.startTime = tg.k.clock.Monotonic()
	tg.leader.start()
	return nil
}

// Discard ends a process that was not started, without a report.
func (tg *ThreadGroup) Discard() {
	tg.k.mu.Lock()
	defer tg.k.mu.Unlock()
	tg.killLocked()
}

// killLocked sends the group a SIGKILL that nothing holds back; k.mu is held.
// One that was never started gets its goroutine to die on.
func (tg *ThreadGroup) killLocked() {
	tg.sigmu.Lock()
	tg.beginExitLocked(int32(unix.SIGKILL))
	tg.sigmu.Unlock()
	if !tg.started && !tg.discarded {
		tg.discarded = true
		for _, t := range tg.tasks {
			if t.exitState == exitNone {
				t.start()
			}
		}
	}
}

// Started tells whether Start was called.
func (tg *ThreadGroup) Started() bool {
	tg.k.mu.Lock()
	defer tg.k.mu.Unlock()
	return tg.started
}

// defaultTimerSlack is the timer slack of init, in ns.
const defaultTimerSlack = 50000
