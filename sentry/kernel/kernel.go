package kernel

import (
	"sync"
	"sync/atomic"
	"time"

	"runsc/pkg/cpufeature"
	"runsc/pkg/ksync"
	"runsc/sentry/clock"
	"runsc/sentry/futex"
	"runsc/sentry/loader"
	"runsc/sentry/mem"
	"runsc/sentry/platform"
)

// SyscallTable carries out system calls; package syscalls implements it.
type SyscallTable interface {
	// Dispatch runs call nr of t. The error is an errno or a restart code.
	Dispatch(t *Task, nr uintptr, args *[6]uint64) (uintptr, error)
}

// Config is what a Kernel is made of.
type Config struct {
	Platform platform.Platform
	MemFile  *mem.File
	Syscalls SyscallTable
	// VDSO is mapped into each program; nil for none.
	VDSO loader.VDSO
	// Clock may be nil for one that shows the host's time.
	Clock *clock.Clock
	// NumCPUs is what the guest sees; 0 means 1.
	NumCPUs int
	// CPUMask hides features of the processor; nil hides none. The platform
	// lets CPUID fault then.
	CPUMask *cpufeature.Mask
	// Log takes lines about what is not the guest's fault; nil drops them.
	Log func(level, line string)
}

// Kernel is the state of one sandbox.
type Kernel struct {
	// immutable after New
	cfg     Config
	clock   *clock.Clock
	futexes *futex.Table
	rootNS  *PIDNamespace

	// mu is Linux's tasklist_lock.
	mu ksync.Mutex
	// mu guards: every PID and PIDNamespace, the parents, children, groups
	// and sessions of all thread groups, their thread lists (with sigmu),
	// exit and wait states, containers and these:
	containers map[string]*Container
	users      map[uint32]*user
	forks      uint64 // tasks ever made, for /proc/stat
	// clockFrom names the image that the clocks continue from: its first
	// container's times.
	clockFrom [2]int64

	ipcs sync.Map // IPC namespaces that may have System V objects

	// taskWG counts task goroutines and OOM killers.
	taskWG sync.WaitGroup

	// atomic
	start       atomic.Int64  // monotonic ns at boot, for uptime
	nextSerial  atomic.Uint64 // serial numbers of timers and namespaces
	nextSession atomic.Uint32 // the last audit session
	nTasks      atomic.Int64  // tasks not yet released
	nLive       atomic.Int64  // task goroutines
	nRunning    atomic.Int64  // tasks not blocked, for the load average
}

// New returns a kernel without containers.
func New(cfg Config) *Kernel {
	if cfg.Clock == nil {
		cfg.Clock = clock.New()
	}
	if cfg.NumCPUs <= 0 {
		cfg.NumCPUs = 1
	}
	k := &Kernel{
		cfg:        cfg,
		clock:      cfg.Clock,
		futexes:    futex.NewTable(),
		containers: make(map[string]*Container),
		users:      make(map[uint32]*user),
	}
	ksync.Rank(&k.mu, "kernel.Kernel.mu")
	k.start.Store(cfg.Clock.Monotonic())
	k.nextSerial.Store(firstNamespaceInode)
	k.rootNS = k.newPIDNamespace(nil)
	return k
}

// Clock returns the sandbox's clock.
func (k *Kernel) Clock() *clock.Clock { return k.clock }

// Futexes returns the table of futex waiters.
func (k *Kernel) Futexes() *futex.Table { return k.futexes }

// MemFile returns the frames of all guests.
func (k *Kernel) MemFile() *mem.File { return k.cfg.MemFile }

// Platform returns what runs guest code.
func (k *Kernel) Platform() platform.Platform { return k.cfg.Platform }

// NumCPUs is the number of CPUs the guest sees.
func (k *Kernel) NumCPUs() int { return k.cfg.NumCPUs }

// CPUMask returns what hides features of the processor, nil for nothing.
func (k *Kernel) CPUMask() *cpufeature.Mask { return k.cfg.CPUMask }

// RootPIDNamespace is the namespace whose numbers the shim uses. It has no
// init of its own: each container's namespace is a child of it.
func (k *Kernel) RootPIDNamespace() *PIDNamespace { return k.rootNS }

// Uptime is the time since the sandbox booted, in ns.
func (k *Kernel) Uptime() int64 { return k.clock.Monotonic() - k.start.Load() }

// Forks is the number of tasks ever made.
func (k *Kernel) Forks() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.forks
}

// Tasks is the number of live tasks; Running of those not blocked.
func (k *Kernel) Tasks() (total, running int64) { return k.nTasks.Load(), k.nRunning.Load() }

// Container returns the container with the id, or nil.
func (k *Kernel) Container(id string) *Container {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.containers[id]
}

// Containers returns all containers.
func (k *Kernel) Containers() []*Container {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := make([]*Container, 0, len(k.containers))
	for _, c := range k.containers {
		all = append(all, c)
	}
	return all
}

// KillAll kills every task of every container.
func (k *Kernel) KillAll() {
	for _, c := range k.Containers() {
		c.KillAll()
	}
}

// WaitTasks waits until every task goroutine has ended, at most for d; it
// tells whether they have.
func (k *Kernel) WaitTasks(d time.Duration) bool {
	deadline := time.Now().Add(d)
	for k.nLive.Load() != 0 {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(time.Millisecond)
	}
	k.taskWG.Wait()
	return true
}

func (k *Kernel) logf(level, line string) {
	if k.cfg.Log != nil {
		k.cfg.Log(level, line)
	}
}
