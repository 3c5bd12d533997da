package kernel

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"runsc/pkg/ksync"
	"runsc/pkg/waitq"
	"runsc/sentry/arch"
	"runsc/sentry/cred"
	"runsc/sentry/mm"
	"runsc/sentry/platform"
	"runsc/sentry/vfs"
)

// Task is a thread (struct task_struct). It implements vfs.Caller. Methods
// that say "own" are for the task's own goroutine, which is where system call
// handlers run; all others may be called by anyone.
type Task struct {
	// immutable
	k         *Kernel          `save:"rebuilt"`
	container *Container       `save:"rebuilt"`
	tg        *ThreadGroup     `save:"rec"`
	ctx       platform.Context `save:"rebuilt"`
	waiter    *waitq.Waiter    `save:"rebuilt"`
	intr      chan struct{}    `save:"rebuilt"` // holds at most one interruption
	startTime int64            `save:"rec"`     // monotonic ns

	// owned by the task's goroutine:
	regs     arch.Regs    `save:"rec"`
	trap     trapInfo     `save:"rec"`
	run      runState     `save:"rec"`
	restart  restartState `save:"rec"`
	reentry  reentry      `save:"rec"`
	userAddr taskAddrs    `save:"rec"`
	blockTmr blockTimer   `save:"none: a timer of the host"`
	lastFlt  faultLoop    `save:"none: counts faults in a row"`
	// skipReturn: the call that runs has set all registers itself.
	skipReturn bool   `save:"none: false between calls"`
	io         taskIO `save:"none: the buffer of a call"`
	// when page faults found no memory: first of a row and last
	oomSince, oomLast int64 `save:"none: a wait that starts again"`

	// k.mu guards:
	exitState exitState `save:"rec"`
	pdeathSig int32     `save:"rec"` // PR_SET_PDEATHSIG

	// tg.sigmu guards:
	sig taskSignals `save:"rec"`

	mu ksync.Mutex `save:"rebuilt"`
	// mu guards (the task's goroutine alone writes, so that it may read
	// without mu); nil or zero after exit:
	mm      *mm.MM         `save:"rec"`
	files   *vfs.FDTable   `save:"rec"`
	fs      *vfs.FSContext `save:"rec"`
	mountNS *vfs.Namespace `save:"rec"`
	uts     *UTSNamespace  `save:"rec"`
	ipc     *IPCNamespace  `save:"rec"`
	comm    string         `save:"rec"`
	// childPIDNS is where the next clone puts its child (unshare, setns).
	childPIDNS *PIDNamespace `save:"rec"`

	// atomic
	pid       atomic.Pointer[PID]            `save:"rec"` // TID; exec by a thread that is not the leader changes it
	creds     atomic.Pointer[cred.Creds]     `save:"rec"`
	seccomp   atomic.Pointer[seccompFilters] `save:"rec"`
	work      atomic.Bool                    `save:"rebuilt"`                     // something to do before the next guest instruction
	inGuest   atomic.Bool                    `save:"none: false while stopped"`   // Switch is, or is about to be, running
	killed    atomic.Bool                    `save:"rec"`                         // SIGKILL or group exit: killable waits end
	untimed   atomic.Bool                    `save:"none: false outside a sleep"` // asleep without a deadline
	phase     atomic.Uint32                  `save:"rebuilt"`
	acct      accounting                     `save:"rec"`
	misc      taskMisc                       `save:"rec"`
	vforkDone atomic.Pointer[waitq.Waiter]   `save:"rec"` // the parent waiting in vfork
}

// taskAddrs are guest addresses registered by system calls.
type taskAddrs struct {
	clearChildTID uint64 `save:"rec"` // set_tid_address(2)
	robustList    uint64 `save:"rec"` // set_robust_list(2)
}

// taskMisc are small settings of prctl(2) and sched_*(2) that have no effect
// on how the Sentry runs the task.
type taskMisc struct {
	timerSlack  atomic.Uint64          `save:"rec"`
	nice        atomic.Int32           `save:"rec"`
	policy      atomic.Int32           `save:"rec"`
	rtPriority  atomic.Int32           `save:"rec"`
	affinity    atomic.Pointer[[]byte] `save:"rec"`
	personality atomic.Uint32          `save:"rec"`
	ioprio      atomic.Int32           `save:"rec"`
	thpDisable  atomic.Bool            `save:"rec"`
}

// phases of a task, for State and for freezing.
const (
	phaseRun     uint32 = iota // in the guest or running in the Sentry
	phaseBlock                 // asleep, interruptible
	phaseKill                  // asleep, killable only (D)
	phaseStopped               // job control stop
	phaseFrozen                // kept in a sleep by Container.Pause
	phaseParked                // stopped between two steps
	phaseDead
)

// Kernel returns the sandbox's kernel.
func (t *Task) Kernel() *Kernel { return t.k }

// Container returns the container of the task.
func (t *Task) Container() *Container { return t.container }

// ThreadGroup returns the task's process.
func (t *Task) ThreadGroup() *ThreadGroup { return t.tg }

// Regs returns the guest's registers; own.
func (t *Task) Regs() *arch.Regs { return &t.regs }

// Context returns the platform's context; own.
func (t *Task) Context() platform.Context { return t.ctx }

// MM returns the address space; own.
func (t *Task) MM() *mm.MM { return t.mm }

// Files returns the descriptor table; own, borrowed.
func (t *Task) Files() *vfs.FDTable { return t.files }

// FS returns root, working directory and umask; own, borrowed.
func (t *Task) FS() *vfs.FSContext { return t.fs }

// MountNamespace returns the mount namespace; own, borrowed.
func (t *Task) MountNamespace() *vfs.Namespace { return t.mountNS }

// WithMM calls f with the address space, if the task still has one. The space
// cannot go away during the call; f must not block on guest progress.
func (t *Task) WithMM(f func(*mm.MM)) bool {
	t.mu.Lock()
	m := t.mm
	if m != nil {
		m.IncUsers()
	}
	t.mu.Unlock()
	if m == nil {
		return false
	}
	defer m.DecUsers()
	f(m)
	return true
}

// WithFiles calls f with the descriptor table, if the task still has one.
func (t *Task) WithFiles(f func(*vfs.FDTable)) bool {
	t.mu.Lock()
	ft := t.files
	if ft != nil {
		ft.IncRef()
	}
	t.mu.Unlock()
	if ft == nil {
		return false
	}
	defer ft.DecRef(t)
	f(ft)
	return true
}

// WithFS calls f with root and working directory, if the task still has them.
func (t *Task) WithFS(f func(*vfs.FSContext)) bool {
	t.mu.Lock()
	fs := t.fs
	if fs != nil {
		fs.IncRef()
	}
	t.mu.Unlock()
	if fs == nil {
		return false
	}
	defer fs.DecRef()
	f(fs)
	return true
}

// WithMountNamespace calls f with the mount namespace, if the task still has one.
func (t *Task) WithMountNamespace(f func(*vfs.Namespace)) bool {
	t.mu.Lock()
	ns := t.mountNS
	if ns != nil {
		ns.IncRef()
	}
	t.mu.Unlock()
	if ns == nil {
		return false
	}
	defer ns.DecRef()
	f(ns)
	return true
}

// Cred returns the credentials, which are immutable.
func (t *Task) Cred() *cred.Creds { return t.creds.Load() }

// SetCred replaces the credentials; own.
func (t *Task) SetCred(c *cred.Creds) {
	old := t.creds.Swap(c)
	if old != nil && old.UID != c.UID {
		t.k.moveUser(old.UID, c.UID)
	}
	if old != nil && (old.EUID != c.EUID || old.EGID != c.EGID || old.FSUID != c.FSUID || old.FSGID != c.FSGID || c.Permitted&^old.Permitted != 0) {
		// commit_creds: no dump, and the parent's death signal is forgotten.
		t.tg.dumpable.Store(0)
		t.k.mu.Lock()
		t.pdeathSig = 0
		t.k.mu.Unlock()
	}
}

// Waiter is the task's waiter for Block; own.
func (t *Task) Waiter() *waitq.Waiter { return t.waiter }

// RealTime is CLOCK_REALTIME in ns.
func (t *Task) RealTime() int64 { return t.k.clock.Realtime() }

// Now is CLOCK_MONOTONIC in ns.
func (t *Task) Now() int64 { return t.k.clock.Monotonic() }

// PID returns the task's identity, whose number is the TID.
func (t *Task) PID() *PID { return t.pid.Load() }

// PIDNamespace returns the namespace the task's ids are in.
func (t *Task) PIDNamespace() *PIDNamespace { return t.PID().ns }

// TID returns the thread id in the task's own namespace.
func (t *Task) TID() int32 {
	p := t.PID()
	return p.nums[p.ns.level]
}

// TGID returns the process id in the process's own namespace.
func (t *Task) TGID() int32 {
	p := t.tg.pid
	return p.nums[p.ns.level]
}

// TIDIn returns the thread id in ns, 0 if the task is not visible there.
func (t *Task) TIDIn(ns *PIDNamespace) int32 { return t.PID().In(ns) }

// StartTime is the monotonic time of the clone, in ns.
func (t *Task) StartTime() int64 { return t.startTime }

// Comm returns the name of prctl(PR_GET_NAME).
func (t *Task) Comm() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.comm
}

// SetComm sets the name, cut to 15 bytes.
func (t *Task) SetComm(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.comm = name[:min(len(name), 15)]
}

// UTS returns the task's UTS namespace.
func (t *Task) UTS() *UTSNamespace {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.uts
}

// IPC returns the task's IPC namespace.
func (t *Task) IPC() *IPCNamespace {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ipc
}

// State is the letter of /proc/PID/stat.
func (t *Task) State() byte {
	switch t.phase.Load() {
	case phaseRun:
		return 'R'
	case phaseBlock, phaseFrozen, phaseParked:
		return 'S'
	case phaseKill:
		return 'D'
	case phaseStopped:
		return 'T'
	}
	return 'Z'
}

// Rlimit is the soft limit of resource r.
func (t *Task) Rlimit(r int) uint64 { return t.tg.Limit(r).Cur }

// ClearChildTID is the address of set_tid_address(2); own.
func (t *Task) ClearChildTID() uint64 { return t.userAddr.clearChildTID }

// SetClearChildTID sets it; own.
func (t *Task) SetClearChildTID(addr uint64) { t.userAddr.clearChildTID = addr }

// RobustList is the head of set_robust_list(2); own.
func (t *Task) RobustList() uint64 { return t.userAddr.robustList }

// SetRobustList sets it; own.
func (t *Task) SetRobustList(addr uint64) { t.userAddr.robustList = addr }

// Limit returns a resource limit of the process; r must be a known resource.
func (tg *ThreadGroup) Limit(r int) unix.Rlimit { return tg.limits.Load()[r] }

// SetLimit replaces a resource limit; the caller has checked it.
func (tg *ThreadGroup) SetLimit(r int, l unix.Rlimit) {
	for {
		old := tg.limits.Load()
		n := *old
		n[r] = l
		if tg.limits.CompareAndSwap(old, &n) {
			break
		}
	}
	if r == unix.RLIMIT_CPU {
		tg.armCPULimit()
	}
}
