package kernel

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"runsc/pkg/abi/linux"
	"runsc/pkg/ksync"
	"runsc/pkg/waitq"
	"runsc/sentry/mm"
	"runsc/sentry/sysvipc"
	"runsc/sentry/vfs"
)

// ThreadGroup is a process: the tasks that share a TGID, signal handlers and
// what Linux keeps in signal_struct.
type ThreadGroup struct {
	// immutable
	k         *Kernel    `save:"rebuilt"`
	container *Container `save:"rebuilt"`
	// execID names the process to the shim, with isInit or isExec set; it is
	// empty for what the guest itself forked.
	execID string `save:"none: no image has an exec'd process"`
	isInit bool   `save:"rec"`
	isExec bool   `save:"none: no image has an exec'd process"`
	// execBorn: exec'd or a descendant of such a process, which no image has.
	execBorn  bool  `save:"none: such processes are left out"`
	startTime int64 `save:"rec"` // monotonic ns; Start sets it anew
	pid       *PID  `save:"rec"` // TGID

	// k.mu guards:
	leader     *Task          `save:"rec"`
	parent     *ThreadGroup   `save:"rec"` // nil: made by the Sentry, or reparented to nobody
	parentTask *Task          `save:"rec"` // the thread that forked, for __WNOTHREAD
	children   []*ThreadGroup `save:"rebuilt"`
	pgrp       *processGroup  `save:"rec"`
	exitSignal int32          `save:"rec"` // sent to the parent at exit; 0 none
	exitState  exitState      `save:"rec"`
	waitStatus int32          `save:"rec"` // wait(2) status, valid from zombie on
	didExec    bool           `save:"rec"` // for setpgid's EACCES
	subreaper  bool           `save:"rec"` // PR_SET_CHILD_SUBREAPER
	// hasSubreaper is set if an ancestor was a subreaper at fork.
	hasSubreaper bool `save:"rec"`
	// childTimes are the resources of waited-for children.
	childTimes usage `save:"rec"`
	// deadTimes are the resources of released threads.
	deadTimes usage `save:"rec"`
	// execer is the task that runs execve and waits for the others to go.
	execer *Task `save:"none: an exec is over before the cut"`
	// started is set once a task of it may run guest code; CreateProcess
	// leaves that to Start.
	started bool `save:"rebuilt"`
	// discarded: killed before Start.
	discarded bool `save:"none: never started"`

	// k.mu and sigmu guard (either to read, both to write):
	tasks []*Task `save:"rec"`

	// sigmu guards (Linux's siglock):
	sigmu ksync.Mutex  `save:"rebuilt"`
	sig   groupSignals `save:"rec"`

	// childQ is notified when a child changes state: wait(2) sleeps here.
	childQ waitq.Queue `save:"rebuilt"`

	// atomic
	limits         atomic.Pointer[[linux.RLIM_NLIMITS]unix.Rlimit] `save:"rec"`
	oomScoreAdj    atomic.Int32                                    `save:"rec"`
	oomScoreAdjMin atomic.Int32                                    `save:"rec"` // what a task without CAP_SYS_RESOURCE may go down to
	dumpable       atomic.Int32                                    `save:"rec"`
	oomVictim      atomic.Int64                                    `save:"none: it dies"` // when the OOM killer chose it (monotonic ns), 0: not

	audit groupAudit `save:"rec"`

	timers groupTimers `save:"rec"`

	// semUndo has a lock of its own.
	semUndo sysvipc.Undo `save:"rec"`
}

// exitState is how far a thread group is on its way out.
type exitState uint8

const (
	exitNone   exitState = iota
	exitZombie           // all threads gone, waits for the parent
	exitDead             // reaped
)

// PID returns the thread group's identity, whose number is the TGID.
func (tg *ThreadGroup) PID() *PID { return tg.pid }

// ID returns the TGID in ns, 0 if it is not visible there.
func (tg *ThreadGroup) ID(ns *PIDNamespace) int32 { return tg.pid.In(ns) }

// Container returns the container the process belongs to.
func (tg *ThreadGroup) Container() *Container { return tg.container }

// Kernel returns the sandbox's kernel.
func (tg *ThreadGroup) Kernel() *Kernel { return tg.k }

// ExecID is the name of a process that the shim started by exec, and whether
// it was; Init tells whether this is the container's init.
func (tg *ThreadGroup) ExecID() (string, bool) { return tg.execID, tg.isExec }

// Init tells whether this is the container's first process.
func (tg *ThreadGroup) Init() bool { return tg.isInit }

// Leader returns the group's leader, which may be a zombie.
func (tg *ThreadGroup) Leader() *Task {
	tg.k.mu.Lock()
	defer tg.k.mu.Unlock()
	return tg.leader
}

// Tasks returns the threads that are not yet released.
func (tg *ThreadGroup) Tasks() []*Task {
	tg.sigmu.Lock()
	defer tg.sigmu.Unlock()
	return append([]*Task(nil), tg.tasks...)
}

// Parent returns the parent, nil if it is outside the sandbox's processes.
func (tg *ThreadGroup) Parent() *ThreadGroup {
	tg.k.mu.Lock()
	defer tg.k.mu.Unlock()
	return tg.parent
}

// Children returns the children that are not yet reaped.
func (tg *ThreadGroup) Children() []*ThreadGroup {
	tg.k.mu.Lock()
	defer tg.k.mu.Unlock()
	return append([]*ThreadGroup(nil), tg.children...)
}

// PPID returns the parent's TGID in ns, 0 if it has none there.
func (tg *ThreadGroup) PPID(ns *PIDNamespace) int32 {
	tg.k.mu.Lock()
	defer tg.k.mu.Unlock()
	if tg.parent == nil {
		return 0
	}
	return tg.parent.pid.In(ns)
}

// StartTime is the monotonic time of the fork, in ns.
func (tg *ThreadGroup) StartTime() int64 { return tg.startTime }

// OOMScoreAdj is /proc/PID/oom_score_adj.
func (tg *ThreadGroup) OOMScoreAdj() int32 { return tg.oomScoreAdj.Load() }

// SetOOMScoreAdj sets /proc/PID/oom_score_adj.
func (tg *ThreadGroup) SetOOMScoreAdj(v int32) { tg.oomScoreAdj.Store(v) }

// WithMM calls f with the process's memory, if it has any left.
func (tg *ThreadGroup) WithMM(f func(*mm.MM)) bool {
	for _, t := range tg.Tasks() {
		if t.WithMM(f) {
			return true
		}
	}
	return false
}

// WithFiles calls f with the descriptor table of a live thread, if there is one.
func (tg *ThreadGroup) WithFiles(f func(*vfs.FDTable)) bool {
	for _, t := range tg.Tasks() {
		if t.WithFiles(f) {
			return true
		}
	}
	return false
}

// State is the letter of /proc/PID/stat for the whole group: that of the
// leader, Z for a zombie.
func (tg *ThreadGroup) State() byte {
	tg.k.mu.Lock()
	st, l := tg.exitState, tg.leader
	tg.k.mu.Unlock()
	if st != exitNone {
		return 'Z'
	}
	return l.State()
}

// Zombie tells whether all threads have exited.
func (tg *ThreadGroup) Zombie() bool {
	tg.k.mu.Lock()
	defer tg.k.mu.Unlock()
	return tg.exitState != exitNone
}

// SemUndo is the process's list of adjustments of System V semaphores.
func (tg *ThreadGroup) SemUndo() *sysvipc.Undo { return &tg.semUndo }
