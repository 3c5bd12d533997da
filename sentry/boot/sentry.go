package boot

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"runsc/pkg/controlapi"
	"runsc/pkg/fsproto"
	"runsc/sentry/control"
	"runsc/sentry/fs/gofer"
	"runsc/sentry/fs/proc"
	"runsc/sentry/kernel"
	"runsc/sentry/mem"
	"runsc/sentry/platform"
	"runsc/sentry/vfs"
)

// Sentry is one running sandbox; it handles the shim's calls.
type Sentry struct {
	// immutable after newSentry
	conf     controlapi.BootConfig
	platform platform.Platform
	memory   *mem.File
	account  *mem.Account // of the whole sandbox, without a limit
	kernel   *kernel.Kernel
	gofer    *gofer.Client
	remote   *fsproto.Files // in remote mode the backend of gofer, else nil
	proc     *proc.System
	control  *control.Server
	selfFD   int // see isolate.ProcSelfFD
	done     chan struct{}

	imageMu sync.Mutex // held while an image is read
	// imageMu guards:
	images map[string]*podImage // of several containers

	shmMu sync.Mutex
	// shmMu guards:
	shm map[string]*vfs.Mount // the pod's /dev/shm, by its directory on the host

	mu sync.Mutex
	// mu guards:
	containers map[string]*container
	root       *container // the pod's first container
	save       *saving    // nil when none is under way
	finished   bool
}

// find returns the container with the id.
func (s *Sentry) find(id string) (*container, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.containers[id]
	if c == nil {
		return nil, controlapi.Errorf(controlapi.CodeNotFound, "container %q is not in this sandbox", id)
	}
	return c, nil
}

// CreateContainer builds a container and loads its init process, which waits
// for StartContainer.
func (s *Sentry) CreateContainer(req *controlapi.CreateContainerRequest, files []*os.File) (*controlapi.CreateContainerResponse, *os.File, error) {
	fds := newFileSet(files)
	defer fds.close()
	s.mu.Lock()
	_, dup := s.containers[req.ID]
	s.mu.Unlock()
	if dup {
		return nil, nil, controlapi.Errorf(controlapi.CodeAlreadyExists, "container %q exists in this sandbox", req.ID)
	}
	c, err := s.newContainer(req, fds)
	if err != nil {
		return nil, nil, err
	}
	zygote, err := pidfd(c.group.HostPID())
	if err != nil {
		c.destroy()
		return nil, nil, err
	}
	s.mu.Lock()
	s.containers[req.ID] = c
	if s.root == nil {
		s.root = c
	}
	s.mu.Unlock()
	return &controlapi.CreateContainerResponse{Pid: c.initPID()}, zygote, nil
}

// StartContainer lets init run.
func (s *Sentry) StartContainer(id string) (int, error) {
	c, err := s.find(id)
	if err != nil {
		return 0, err
	}
	return c.start()
}

// Exec runs one more process in a running container.
func (s *Sentry) Exec(req *controlapi.ExecRequest, files []*os.File) (*controlapi.ExecResponse, *os.File, error) {
	fds := newFileSet(files)
	defer fds.close()
	c, err := s.find(req.ID)
	if err != nil {
		return nil, nil, err
	}
	pid, err := c.exec(req, fds)
	if err != nil {
		return nil, nil, err
	}
	return &controlapi.ExecResponse{Pid: pid}, nil, nil
}

// Kill sends a signal.
func (s *Sentry) Kill(req *controlapi.KillRequest) error {
	c, err := s.find(req.ID)
	if err != nil {
		return err
	}
	return c.kill(req)
}

// Pause freezes all tasks of a container.
func (s *Sentry) Pause(id string) error {
	c, err := s.find(id)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return c.kernel.Pause(ctx)
}

// Resume undoes Pause.
func (s *Sentry) Resume(id string) error {
	c, err := s.find(id)
	if err != nil {
		return err
	}
	c.kernel.Resume()
	return nil
}

// Pids lists the live processes of a container.
func (s *Sentry) Pids(id string) ([]controlapi.Process, error) {
	c, err := s.find(id)
	if err != nil {
		return nil, err
	}
	return c.processes(), nil
}

// Stats returns the figures that only the Sentry knows.
func (s *Sentry) Stats(id string) (*controlapi.StatsResponse, error) {
	c, err := s.find(id)
	if err != nil {
		return nil, err
	}
	return &controlapi.StatsResponse{
		MemoryBytes:    int64(c.account.Total()),
		CacheBytes:     int64(c.account.Used(mem.PageCache)),
		MemoryMaxBytes: int64(c.account.Peak()),
		Tasks:          c.kernel.NumTasks(),
		OOMKills:       c.kernel.OOMKills(),
	}, nil
}

// Update changes the limits of a live container.
func (s *Sentry) Update(req *controlapi.UpdateRequest) error {
	c, err := s.find(req.ID)
	if err != nil {
		return err
	}
	c.setLimits(req.Limits)
	return nil
}

// ResizePty is refused: there are no terminals yet.
func (s *Sentry) ResizePty(req *controlapi.ResizePtyRequest) error {
	return controlapi.Errorf(controlapi.CodeUnimplemented, "terminals are not supported")
}

// DestroyContainer kills what is left of a container and forgets it.
func (s *Sentry) DestroyContainer(id string) error {
	c, err := s.find(id)
	if err != nil {
		return err
	}
	if err := c.destroy(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.containers, id)
	return nil
}

// Shutdown ends the sandbox.
func (s *Sentry) Shutdown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.finished {
		s.finished = true
		close(s.done)
	}
}

// logf sends a line to the shim.
func (s *Sentry) logf(level, line string) {
	if level == "debug" && !s.conf.Debug {
		return
	}
	s.control.Log(level, line)
}

// stopTimeout bounds how long ending a container waits for its tasks, which
// have been killed: beyond it the stubs are killed under them.
const stopTimeout = 10 * time.Second

func errInvalid(format string, args ...any) error {
	return controlapi.Errorf(controlapi.CodeInvalidArgument, "%s", fmt.Sprintf(format, args...))
}
