package kernel

import (
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/cred"
	"runsc/sentry/mem"
	"runsc/sentry/platform"
	"runsc/sentry/seccompbpf"
	"runsc/sentry/vfs"
)

// ContainerConfig is what a container is made of.
type ContainerConfig struct {
	ID string
	// PIDNamespace is another container's, for a pod that shares one; nil
	// gives the container its own, whose pid 1 is its init.
	PIDNamespace *PIDNamespace
	// UTS and IPC likewise; nil makes new ones.
	UTS      *UTSNamespace
	IPC      *IPCNamespace
	Hostname string // of a new UTS namespace
	// Group has the container's stubs, Account its memory.
	Group   platform.Group
	Account *mem.Account
	// PidsLimit bounds guest tasks; 0 is no limit.
	PidsLimit int64
	// OnExit is called when a process made by CreateProcess and started has
	// ended: status is the exit code or 128 plus the signal. Init comes last,
	// when every other task of the container is gone.
	OnExit func(execID string, status int)
	// OnOOM is called when the memory limit cost a process its life, before
	// that process's OnExit.
	OnOOM func()
}

// Container is one container of the pod.
type Container struct {
	// immutable
	k     *Kernel         `save:"rebuilt"`
	cfg   ContainerConfig `save:"none: the new specification's"`
	pidNS *PIDNamespace   `save:"rec"`
	// ownsPIDNS is set if the namespace was made for this container.
	ownsPIDNS bool          `save:"none: the new specification's"`
	uts       *UTSNamespace `save:"rec"`
	ipc       *IPCNamespace `save:"rec"`

	// k.mu guards:
	init    *ThreadGroup            `save:"rec"`
	execs   map[string]*ThreadGroup `save:"none: no image has an exec'd process"`
	tasks   map[*Task]struct{}      `save:"rec"`                                 // not yet released
	dying   bool                    `save:"none: such a container is not saved"` // init exits or KillAll was called: no new tasks
	stopped bool                    `save:"none: such a container is not saved"` // init's exit was notified
	// restored is set from a restore to the start of init.
	restored *restored `save:"none: runs"`
	// exitQ is notified as tasks are released.
	exitQ waitq.Queue `save:"rebuilt"`

	// atomic
	pidsLimit atomic.Int64  `save:"none: the new specification's"`
	pidsFails atomic.Uint64 `save:"none: counts anew"`
	oomKills  atomic.Uint64 `save:"none: counts anew"`
	oomLast   atomic.Int64  `save:"none: paces the killer"` // monotonic ns of the last kill, 0 none

	tun Tunables `save:"none: sysctls, which proc saves"`

	freezer freezer `save:"none: a restored container runs"`
}

// NewContainer adds a container to the sandbox. The id must be new.
func (k *Kernel) NewContainer(cfg ContainerConfig) (*Container, error) {
	c := &Container{
		k: k, cfg: cfg, pidNS: cfg.PIDNamespace, uts: cfg.UTS, ipc: cfg.IPC,
		execs: make(map[string]*ThreadGroup), tasks: make(map[*Task]struct{}),
	}
	c.pidsLimit.Store(cfg.PidsLimit)
	c.freezer.init()
	c.tun.init()
	if c.pidNS == nil {
		c.pidNS = k.newPIDNamespace(k.rootNS)
		c.ownsPIDNS = true
	}
	if c.uts == nil {
		c.uts = k.NewUTSNamespace(cfg.Hostname)
	}
	if c.ipc == nil {
		c.ipc = k.NewIPCNamespace()
	}
	if cfg.Account != nil {
		cfg.Account.OnLimit = c.onLimit
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.containers[cfg.ID] != nil {
		return nil, fmt.Errorf("container %s: exists", cfg.ID)
	}
	k.containers[cfg.ID] = c
	return c, nil
}

// ID returns the container's id.
func (c *Container) ID() string { return c.cfg.ID }

// Kernel returns the sandbox's kernel.
func (c *Container) Kernel() *Kernel { return c.k }

// PIDNamespace returns the namespace of the container's processes.
func (c *Container) PIDNamespace() *PIDNamespace { return c.pidNS }

// UTS returns the namespace of the container's host name.
func (c *Container) UTS() *UTSNamespace { return c.uts }

// IPC returns the container's IPC namespace.
func (c *Container) IPC() *IPCNamespace { return c.ipc }

// Group returns the container's stubs.
func (c *Container) Group() platform.Group { return c.cfg.Group }

// Account returns the container's memory account.
func (c *Container) Account() *mem.Account { return c.cfg.Account }

// SetPidsLimit changes the limit on guest tasks; 0 is none.
func (c *Container) SetPidsLimit(n int64) { c.pidsLimit.Store(n) }

// PidsLimit returns the limit on guest tasks, 0 for none.
func (c *Container) PidsLimit() int64 { return c.pidsLimit.Load() }

// OOMKills counts victims of the memory limit.
func (c *Container) OOMKills() uint64 { return c.oomKills.Load() }

// NumTasks is the number of live guest tasks. A zombie whose parent, in a
// shared namespace, does not wait for it may stay behind.
func (c *Container) NumTasks() int64 {
	c.k.mu.Lock()
	defer c.k.mu.Unlock()
	return c.liveLocked()
}

func (c *Container) liveLocked() int64 {
	n := int64(0)
	for t := range c.tasks {
		if t.exitState == exitNone {
			n++
		}
	}
	return n
}

// InitProcess returns the first process, nil before it is made.
func (c *Container) InitProcess() *ThreadGroup {
	c.k.mu.Lock()
	defer c.k.mu.Unlock()
	return c.init
}

// ExecProcess returns the live process with the exec id, or nil.
func (c *Container) ExecProcess(execID string) *ThreadGroup {
	c.k.mu.Lock()
	defer c.k.mu.Unlock()
	return c.execs[execID]
}

// Running tells whether init was made and has not been reported dead.
func (c *Container) Running() bool {
	c.k.mu.Lock()
	defer c.k.mu.Unlock()
	return c.init != nil && !c.stopped
}

// Processes returns the live thread groups of the container.
func (c *Container) Processes() []*ThreadGroup {
	c.k.mu.Lock()
	defer c.k.mu.Unlock()
	return c.processesLocked()
}

func (c *Container) processesLocked() []*ThreadGroup {
	seen := make(map[*ThreadGroup]bool)
	var all []*ThreadGroup
	for t := range c.tasks {
		if tg := t.tg; !seen[tg] && tg.exitState == exitNone {
			seen[tg] = true
			all = append(all, tg)
		}
	}
	sortBy(all, func(tg *ThreadGroup) int32 { return tg.pid.In(c.k.rootNS) })
	return all
}

// KillAll kills every task of the container, frozen ones included, and lets
// no new one in.
func (c *Container) KillAll() {
	c.k.mu.Lock()
	defer c.k.mu.Unlock()
	c.dying = true
	c.killAllLocked(nil)
}

// killAllLocked kills all thread groups but one.
func (c *Container) killAllLocked(but *ThreadGroup) {
	for _, tg := range c.processesLocked() {
		if tg != but {
			tg.killLocked()
		}
	}
}

// SignalInit sends a signal to init as kill(2) from outside its namespace does.
func (c *Container) SignalInit(sig int32) error {
	tg := c.InitProcess()
	if tg == nil {
		return unix.ESRCH
	}
	return tg.SignalFromOutside(sig)
}

// SignalAll sends a signal to every process of the container.
func (c *Container) SignalAll(sig int32) error {
	all := c.Processes()
	if len(all) == 0 {
		return unix.ESRCH
	}
	for _, tg := range all {
		tg.SignalFromOutside(sig)
	}
	return nil
}

// Destroy forgets the container. All its tasks must have ended.
func (c *Container) Destroy() error {
	c.k.mu.Lock()
	if n := c.liveLocked(); n != 0 {
		c.k.mu.Unlock()
		return fmt.Errorf("container %s: %d tasks are left", c.cfg.ID, n)
	}
	c.dying = true
	delete(c.k.containers, c.cfg.ID)
	c.k.mu.Unlock()
	c.k.sweepIPC()
	return nil
}

// ProcessConfig describes a process that the shim asks for. CreateProcess
// takes over the references, also on error.
type ProcessConfig struct {
	// ExecID names an exec'd process; empty for init.
	ExecID string
	// Init is set for the container's first process.
	Init bool
	// Filename is looked up from Cwd; Argv and Env are the program's.
	Filename  string
	Argv, Env []string
	Cred      *cred.Creds
	FS        *vfs.FSContext
	Files     *vfs.FDTable
	MountNS   *vfs.Namespace
	// Limits overrides Linux's defaults.
	Limits      map[int]unix.Rlimit
	OOMScoreAdj int32
	// Seccomp, if set, filters the system calls of the process and its
	// children.
	Seccomp seccompbpf.Filter
}

// ErrNotRunning is returned for an exec into a container whose init is gone.
var ErrNotRunning = errors.New("the container's init process is not running")
