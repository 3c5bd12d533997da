package shim

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/containerd/containerd/api/events"
	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/types/known/emptypb"

	"runsc/pkg/controlapi"
)

// service is the task API of one pod.
type service struct {
	namespace string
	group     string // the pod's id: the sandbox's
	address   string // of the socket, as containerd knows it
	self      hostProcess
	events    *publisher
	debug     bool

	// stop is closed when the daemon is to end.
	stop chan struct{}

	mu sync.Mutex
	// mu guards:
	containers map[string]*container
	creating   map[string]bool
	sb         *sandbox
	early      *earlySandbox // started before the first Create, or nil
	stopping   bool
}

var _ taskapi.TTRPCTaskService = (*service)(nil)

var empty = &emptypb.Empty{}

func newService(namespace, group, address string, ev *publisher, debug bool) *service {
	self, _ := identify(os.Getpid())
	return &service{
		namespace:  namespace,
		group:      group,
		address:    address,
		self:       self,
		events:     ev,
		debug:      debug,
		stop:       make(chan struct{}),
		containers: map[string]*container{},
		creating:   map[string]bool{},
	}
}

// get returns a container that was created and not deleted.
func (s *service) get(id string) (*container, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.containers[id]; c != nil {
		return c, nil
	}
	return nil, fail(errdefs.ErrNotFound, "container not created")
}

// exited implements sandboxNotes.
func (s *service) exited(sb *sandbox, n controlapi.ExitNote) {
	c, err := s.get(n.ID)
	if err != nil || c.sb != sb {
		return
	}
	c.noteExit(n)
}

// oomKilled implements sandboxNotes.
func (s *service) oomKilled(sb *sandbox, id string) {
	c, err := s.get(id)
	if err != nil || c.sb != sb {
		return
	}
	c.noteOOM()
}

// restoreLoaded implements sandboxNotes.
func (s *service) restoreLoaded(sb *sandbox, n controlapi.RestoreLoadedNote) {
	c, err := s.get(n.ID)
	if err != nil || c.sb != sb {
		return
	}
	c.noteRestoreLoaded(n)
}

// restoreFailed implements sandboxNotes.
func (s *service) restoreFailed(sb *sandbox, n controlapi.RestoreFailedNote) {
	c, err := s.get(n.ID)
	if err != nil || c.sb != sb {
		return
	}
	slog.Error("restore failed: the container ends", "container", c.id, "err", printable(n.Error))
}

// all returns the containers.
func (s *service) all() []*container {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*container, 0, len(s.containers))
	for _, c := range s.containers {
		out = append(out, c)
	}
	return out
}

// watchSandbox ends every container of a sandbox that has ended.
func (s *service) watchSandbox(sb *sandbox) {
	<-sb.done
	for _, c := range s.all() {
		if c.sb == sb && !c.root {
			c.lost()
		}
	}
	for _, c := range s.all() {
		if c.sb == sb && c.root {
			c.lost()
		}
	}
}

// appPatience is how long the apps of a pod get to die after its root.
const appPatience = 3 * time.Second

// watchRoot waits for the end of the root container, then ends the others and
// with the last of them the sandbox: its two processes are gone before anyone
// asks, which makes Delete fast.
func (s *service) watchRoot(root *container) {
	<-root.ended
	for _, c := range s.all() {
		if c.sb != root.sb || c == root || !c.live() {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), appPatience)
		c.sb.client.Kill(ctx, &controlapi.KillRequest{ID: c.id, Signal: 9, All: true})
		select {
		case <-c.ended:
		case <-ctx.Done():
		}
		cancel()
	}
	root.sb.stop()
}

// Create makes a task.
func (s *service) Create(ctx context.Context, r *taskapi.CreateTaskRequest) (*taskapi.CreateTaskResponse, error) {
	c, err := s.create(ctx, r)
	if err != nil {
		return nil, toGRPCNoDowngrade(err)
	}
	return &taskapi.CreateTaskResponse{Pid: uint32(c.shownPid())}, nil
}

// Start runs a created init or exec'd process.
func (s *service) Start(ctx context.Context, r *taskapi.StartRequest) (*taskapi.StartResponse, error) {
	c, err := s.get(r.ID)
	if err != nil {
		return nil, toGRPC(err)
	}
	var pid int
	if r.ExecID == "" {
		pid, err = c.start(ctx)
	} else {
		pid, err = c.startExec(ctx, r.ExecID)
	}
	if err != nil {
		return nil, toGRPC(err)
	}
	return &taskapi.StartResponse{Pid: uint32(pid)}, nil
}

// Delete removes an ended process or task.
func (s *service) Delete(ctx context.Context, r *taskapi.DeleteRequest) (*taskapi.DeleteResponse, error) {
	c, err := s.get(r.ID)
	if err != nil {
		return nil, toGRPC(err)
	}
	var p *process
	if r.ExecID != "" {
		p, err = c.deleteExec(r.ExecID)
	} else {
		p, err = s.deleteTask(ctx, c)
	}
	if err != nil {
		return nil, toGRPC(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return &taskapi.DeleteResponse{Pid: uint32(c.shownPidLocked(p)), ExitStatus: uint32(p.status), ExitedAt: p.exitTime()}, nil
}

// Exec adds a process; Start runs it.
func (s *service) Exec(ctx context.Context, r *taskapi.ExecProcessRequest) (*emptypb.Empty, error) {
	c, err := s.get(r.ID)
	if err != nil {
		return nil, toGRPC(err)
	}
	if err := c.addExec(r); err != nil {
		return nil, toGRPC(err)
	}
	return empty, nil
}

// State describes a process.
func (s *service) State(ctx context.Context, r *taskapi.StateRequest) (*taskapi.StateResponse, error) {
	c, err := s.get(r.ID)
	if err != nil {
		return nil, toGRPC(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p, err := c.processLocked(r.ExecID)
	if err != nil {
		return nil, toGRPC(err)
	}
	return c.stateLocked(p), nil
}

// Wait returns when a process has ended.
func (s *service) Wait(ctx context.Context, r *taskapi.WaitRequest) (*taskapi.WaitResponse, error) {
	c, err := s.get(r.ID)
	if err != nil {
		return nil, toGRPC(err)
	}
	c.mu.Lock()
	p, err := c.processLocked(r.ExecID)
	c.mu.Unlock()
	if err != nil {
		return nil, toGRPC(err)
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		return nil, toGRPC(ctx.Err())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return &taskapi.WaitResponse{ExitStatus: uint32(p.status), ExitedAt: p.exitTime()}, nil
}

// Pause stops all processes of a task.
func (s *service) Pause(ctx context.Context, r *taskapi.PauseRequest) (*emptypb.Empty, error) {
	c, err := s.get(r.ID)
	if err != nil {
		return nil, toGRPC(err)
	}
	if err := c.pause(ctx); err != nil {
		return nil, toGRPC(err)
	}
	s.events.send(&events.TaskPaused{ContainerID: c.id})
	return empty, nil
}

// Resume lets a paused task go on.
func (s *service) Resume(ctx context.Context, r *taskapi.ResumeRequest) (*emptypb.Empty, error) {
	c, err := s.get(r.ID)
	if err != nil {
		return nil, toGRPC(err)
	}
	if err := c.resume(ctx); err != nil {
		return nil, toGRPC(err)
	}
	s.events.send(&events.TaskResumed{ContainerID: c.id})
	return empty, nil
}

// Kill queues a signal.
func (s *service) Kill(ctx context.Context, r *taskapi.KillRequest) (*emptypb.Empty, error) {
	c, err := s.get(r.ID)
	if err != nil {
		return nil, toGRPC(err)
	}
	if err := c.kill(ctx, r.ExecID, int(r.Signal), r.All); err != nil {
		return nil, toGRPC(err)
	}
	return empty, nil
}

// CloseIO ends a process's input once its clients are gone.
func (s *service) CloseIO(ctx context.Context, r *taskapi.CloseIORequest) (*emptypb.Empty, error) {
	c, err := s.get(r.ID)
	if err != nil {
		return nil, toGRPC(err)
	}
	c.mu.Lock()
	p, err := c.processLocked(r.ExecID)
	if err != nil {
		c.mu.Unlock()
		return nil, toGRPC(err)
	}
	if r.Stdin {
		p.stdinClosed = true
	}
	io := p.io
	c.mu.Unlock()
	if r.Stdin && io != nil {
		io.closeStdin()
	}
	return empty, nil
}

// ResizePty sets the size of a terminal.
func (s *service) ResizePty(ctx context.Context, r *taskapi.ResizePtyRequest) (*emptypb.Empty, error) {
	c, err := s.get(r.ID)
	if err != nil {
		return nil, toGRPC(err)
	}
	c.mu.Lock()
	p, err := c.processLocked(r.ExecID)
	c.mu.Unlock()
	if err != nil {
		return nil, toGRPC(err)
	}
	if !p.names.Terminal {
		return empty, nil
	}
	return nil, toGRPC(fail(errdefs.ErrNotImplemented, "terminals are not supported yet"))
}

// Checkpoint saves a task.
func (s *service) Checkpoint(ctx context.Context, r *taskapi.CheckpointTaskRequest) (*emptypb.Empty, error) {
	c, err := s.get(r.ID)
	if err != nil {
		return nil, toGRPC(err)
	}
	if err := c.checkpoint(ctx, r); err != nil {
		return nil, toGRPC(err)
	}
	return empty, nil
}

// Connect returns the pids of the daemon and of a task, 0 if it is not known.
func (s *service) Connect(ctx context.Context, r *taskapi.ConnectRequest) (*taskapi.ConnectResponse, error) {
	s.mu.Lock()
	stopping := s.stopping
	s.mu.Unlock()
	if stopping {
		return nil, toGRPC(fail(errdefs.ErrUnavailable, "the shim is about to end"))
	}
	resp := &taskapi.ConnectResponse{ShimPid: uint32(os.Getpid())}
	if c, err := s.get(r.ID); err == nil {
		resp.TaskPid = uint32(c.shownPid())
	}
	return resp, nil
}

// Shutdown ends the daemon if it has no task left.
func (s *service) Shutdown(ctx context.Context, r *taskapi.ShutdownRequest) (*emptypb.Empty, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.containers)+len(s.creating) > 0 || s.stopping {
		return empty, nil
	}
	s.stopping = true
	// No later start may find the socket; who has found it before is told
	// Unavailable.
	removeSocket(s.address)
	close(s.stop)
	return empty, nil
}
