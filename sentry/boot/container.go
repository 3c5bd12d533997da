package boot

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"runsc/pkg/controlapi"
	"runsc/sentry/kernel"
	"runsc/sentry/mem"
	"runsc/sentry/platform"
	"runsc/sentry/seccompbpf"
	"runsc/sentry/vfs"
)

// container joins a kernel container with what boot made for it.
type container struct {
	// immutable after newContainer
	sentry  *Sentry
	id      string
	root    bool // the pod's first container
	kind    string
	spec    *specs.Spec
	kernel  *kernel.Container
	account *mem.Account
	group   platform.Group
	mounts  *vfs.Namespace
	seccomp *seccompbpf.Profile // nil without one

	mu sync.Mutex
	// mu guards:
	init      *kernel.ThreadGroup
	restore   *pendingRestore // until start, of a container from an image
	started   bool
	destroyed bool
}

// newContainer builds a container from its spec. On error nothing is left.
func (s *Sentry) newContainer(req *controlapi.CreateContainerRequest, fds *fileSet) (_ *container, err error) {
	var spec specs.Spec
	if err := json.Unmarshal(req.Spec, &spec); err != nil {
		return nil, errInvalid("cannot read the container's spec: %v", err)
	}
	if spec.Process == nil || spec.Root == nil {
		return nil, errInvalid("the container's spec has no process or no root")
	}
	c := &container{sentry: s, id: req.ID, root: req.Root, kind: req.Kind, spec: &spec}
	c.account = mem.NewAccount(s.account, uint64(max(req.Limits.MemoryBytes, 0)))
	defer func() {
		if err != nil {
			c.destroy()
		}
	}()
	if c.group, err = s.platform.NewGroup(); err != nil {
		return nil, fmt.Errorf("cannot start the container's stub: %w", err)
	}
	if c.kernel, err = s.kernel.NewContainer(c.kernelConfig(req)); err != nil {
		return nil, err
	}
	if l := spec.Linux; l != nil && l.Seccomp != nil {
		if c.seccomp, err = seccompbpf.NewProfile(l.Seccomp); err != nil {
			return nil, errInvalid("%v", err)
		}
	}
	if err := c.openUpper(req, fds); err != nil {
		return nil, err
	}
	if req.Restore != nil {
		if err := s.checkRestore(req.Restore); err != nil {
			return nil, errInvalid("cannot restore container %q: %v", c.id, err)
		}
		c.restore = &pendingRestore{req, newFileSet(fds.files)}
		fds.files = nil
		return c, nil
	}
	if c.mounts, err = s.mountTree(c, req, fds); err != nil {
		return nil, err
	}
	if req.Terminal {
		return nil, controlapi.Errorf(controlapi.CodeUnimplemented, "process.terminal: terminals are not supported yet, start the container without one")
	}
	c.init, err = c.load(processRequest{process: spec.Process, stdio: req.Stdio, init: true}, fds)
	return c, err
}

// openUpper makes an account for the files of the upper layer if a file of the
// host holds them: they are no memory of the container's.
func (c *container) openUpper(req *controlapi.CreateContainerRequest, fds *fileSet) error {
	if req.Upper == nil {
		return nil
	}
	f, err := fds.take(req.Upper.File)
	if f == nil || err != nil {
		return err
	}
	fd, err := detach(f)
	if err != nil {
		return err
	}
	c.account.Upper = mem.NewAccount(nil, 0)
	return c.sentry.memory.AddDisk(fd, c.account.Upper)
}

// kernelConfig decides which namespaces the container has to itself and which
// it shares with another of the pod.
func (c *container) kernelConfig(req *controlapi.CreateContainerRequest) kernel.ContainerConfig {
	s := c.sentry
	conf := kernel.ContainerConfig{
		ID: c.id, Hostname: req.Hostname, Group: c.group, Account: c.account, PidsLimit: max(req.Limits.Pids, 0),
		OnExit: func(execID string, status int) { s.control.NotifyExit(c.id, execID, status) },
		OnOOM:  func() { s.control.NotifyOOM(c.id) },
	}
	// The shim has checked that the containers named are of this pod.
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.containers[req.JoinPID]; o != nil {
		conf.PIDNamespace = o.kernel.PIDNamespace()
	}
	if o := s.containers[req.JoinUTS]; o != nil {
		conf.UTS = o.kernel.UTS()
	}
	if o := s.containers[req.JoinIPC]; o != nil {
		conf.IPC = o.kernel.IPC()
	}
	return conf
}

// initPID is init's number in the sandbox's root pid namespace.
func (c *container) initPID() int {
	if c.init == nil {
		return 0 // of a container to be restored
	}
	return int(c.init.PID().In(c.sentry.kernel.RootPIDNamespace()))
}

// start lets init run.
func (c *container) start() (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.destroyed:
		return 0, controlapi.Errorf(controlapi.CodeNotFound, "container %q is gone", c.id)
	case c.started:
		return 0, controlapi.Errorf(controlapi.CodeFailedPrecondition, "container %q was started before", c.id)
	}
	var pages *podImage
	if p := c.restore; p != nil {
		c.restore = nil
		var err error
		if pages, err = c.restoreProcesses(p); err != nil {
			return 0, err
		}
		c.init = c.kernel.InitProcess()
		c.init.Leader().WithMountNamespace(func(ns *vfs.Namespace) {
			ns.IncRef()
			c.mounts = ns
		})
		c.adoptShm()
	}
	if c.init == nil {
		return 0, controlapi.Errorf(controlapi.CodeFailedPrecondition, "container %q could not be restored", c.id)
	}
	if err := c.init.Start(); err != nil {
		return 0, err
	}
	if pages != nil {
		c.watchPages(pages)
	}
	c.started = true
	return c.initPID(), nil
}

// exec loads and runs one more process.
func (c *container) exec(req *controlapi.ExecRequest, fds *fileSet) (int, error) {
	if req.ExecID == "" {
		return 0, errInvalid("an exec needs an id")
	}
	var p specs.Process
	if err := json.Unmarshal(req.Process, &p); err != nil {
		return 0, errInvalid("cannot read the process to exec: %v", err)
	}
	if req.Terminal || p.Terminal {
		return 0, controlapi.Errorf(controlapi.CodeUnimplemented, "process.terminal: terminals are not supported yet, exec without one")
	}
	tg, err := c.load(processRequest{process: &p, stdio: req.Stdio, execID: req.ExecID}, fds)
	if errors.Is(err, kernel.ErrNotRunning) {
		return 0, controlapi.Errorf(controlapi.CodeFailedPrecondition, "container %q is not running", c.id)
	}
	if err != nil {
		return 0, err
	}
	pid := int(tg.PID().In(c.sentry.kernel.RootPIDNamespace()))
	return pid, tg.Start()
}

// kill sends a signal as KillRequest says. Who has ended is not found.
func (c *container) kill(req *controlapi.KillRequest) error {
	if req.Signal < 0 || req.Signal > 64 {
		return errInvalid("there is no signal %d", req.Signal)
	}
	sig := int32(req.Signal)
	var err error
	switch {
	case req.ExecID != "":
		tg := c.kernel.ExecProcess(req.ExecID)
		if tg == nil {
			return controlapi.Errorf(controlapi.CodeNotFound, "process %q has ended", req.ExecID)
		}
		err = tg.SignalFromOutside(sig)
	case req.All:
		err = c.kernel.SignalAll(sig)
	default:
		err = c.kernel.SignalInit(sig)
	}
	if err == unix.ESRCH {
		return controlapi.Errorf(controlapi.CodeNotFound, "the process has ended")
	}
	return err
}

// processes lists live thread groups.
func (c *container) processes() []controlapi.Process {
	var list []controlapi.Process
	init := c.kernel.InitProcess()
	for _, tg := range c.kernel.Processes() {
		execID, _ := tg.ExecID()
		list = append(list, controlapi.Process{
			Pid: int(tg.PID().In(c.sentry.kernel.RootPIDNamespace())), ExecID: execID, Init: tg == init,
		})
	}
	return list
}

func (c *container) setLimits(l controlapi.Limits) {
	if l.MemoryBytes > 0 {
		c.account.SetLimit(uint64(l.MemoryBytes))
	}
	if l.Pids > 0 {
		c.kernel.SetPidsLimit(l.Pids)
	}
}

// destroy kills the container's tasks and releases everything. It may be
// called twice, and on a container that newContainer gave up on.
func (c *container) destroy() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.destroyed {
		return nil
	}
	if c.kernel != nil {
		c.kernel.KillAll()
		if !c.waitTasks(stopTimeout) {
			// A task that does not end by itself loses its stub.
			c.group.Close()
			if !c.waitTasks(stopTimeout) {
				return fmt.Errorf("container %q: tasks do not end", c.id)
			}
		}
		if err := c.kernel.Destroy(); err != nil {
			return err
		}
		c.sentry.proc.Forget(c.kernel)
	}
	if c.restore != nil {
		c.restore.fds.close()
	}
	if c.mounts != nil {
		c.mounts.DecRef()
	}
	if c.group != nil {
		c.group.Close()
	}
	if c.account.Upper != nil {
		c.sentry.memory.RemoveDisk(c.account.Upper)
	}
	c.destroyed = true
	return nil
}

func (c *container) waitTasks(d time.Duration) bool {
	for end := time.Now().Add(d); c.kernel.NumTasks() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}
