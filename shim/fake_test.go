package shim

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"runsc/pkg/controlapi"
	"runsc/sentry/control"
)

// fakeSandbox is a sandbox process without a kernel: its "guest programs" are
// goroutines that do what the tests need.
func fakeSandbox(args []string) int {
	b, err := controlapi.OpenBoot(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := b.WaitPlaced(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	srv, err := control.New(b.Control)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	f := &fakeKernel{srv: srv, containers: map[string]*fakeContainer{}}
	if err := srv.Serve(f, 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return 0
}

type fakeKernel struct {
	srv *control.Server

	mu         sync.Mutex
	containers map[string]*fakeContainer
	lastPid    int
}

type fakeContainer struct {
	id     string
	procs  map[string]*fakeProcess
	stub   *exec.Cmd
	files  []*os.File
	paused bool

	restore *controlapi.Restore
	saved   *controlapi.CheckpointRequest
	cancel  chan struct{} // closed by CancelCheckpoint
}

type fakeProcess struct {
	execID string
	args   []string
	pid    int
	stdio  [3]*os.File
	kill   chan int
	ended  chan struct{}
	once   sync.Once
}

func (f *fakeKernel) newProcess(execID string, p *specs.Process, s controlapi.Stdio, files []*os.File) *fakeProcess {
	f.lastPid++
	fp := &fakeProcess{execID: execID, args: p.Args, pid: f.lastPid, kill: make(chan int, 16), ended: make(chan struct{})}
	for i, n := range []int{s.Stdin, s.Stdout, s.Stderr} {
		if n != controlapi.NoFile {
			fp.stdio[i] = files[n]
		}
	}
	return fp
}

func (f *fakeKernel) CreateContainer(req *controlapi.CreateContainerRequest, files []*os.File) (*controlapi.CreateContainerResponse, *os.File, error) {
	var spec specs.Spec
	if err := json.Unmarshal(req.Spec, &spec); err != nil {
		return nil, nil, err
	}
	if spec.Process.Args[0] == "nocreate" {
		return nil, nil, controlapi.Errorf(controlapi.CodeInvalidArgument, "told to fail")
	}
	if req.Restore != nil {
		if err := f.checkRestore(req.Restore, files); err != nil {
			return nil, nil, err
		}
	}
	if len(req.Mounts) == 0 || req.Mounts[0].Index != controlapi.RootfsIndex || !req.Mounts[0].IsDir {
		return nil, nil, controlapi.Errorf(controlapi.CodeInvalidArgument, "no root: %+v", req.Mounts)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	c := &fakeContainer{id: req.ID, procs: map[string]*fakeProcess{}, files: files, restore: req.Restore, cancel: make(chan struct{})}
	c.procs[""] = f.newProcess("", spec.Process, req.Stdio, files)
	pidfd := -1
	c.stub = exec.Command("/bin/sleep", "1000")
	c.stub.SysProcAttr = &syscall.SysProcAttr{PidFD: &pidfd}
	if err := c.stub.Start(); err != nil {
		return nil, nil, err
	}
	f.containers[req.ID] = c
	return &controlapi.CreateContainerResponse{Pid: c.procs[""].pid}, os.NewFile(uintptr(pidfd), "stub"), nil
}

func (f *fakeKernel) get(id string) (*fakeContainer, error) {
	if c := f.containers[id]; c != nil {
		return c, nil
	}
	return nil, controlapi.Errorf(controlapi.CodeNotFound, "no container %q", id)
}

func (f *fakeKernel) StartContainer(id string) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, err := f.get(id)
	if err != nil {
		return 0, err
	}
	p := c.procs[""]
	if p.args[0] == "nostart" {
		return 0, controlapi.Errorf(controlapi.CodeInvalidArgument, "exec %q: no such file or directory", p.args[0])
	}
	if c.restore != nil {
		defer f.endRestore(c.id, p.args)
	}
	go f.run(c, p)
	if p.args[0] == "exit" {
		time.Sleep(20 * time.Millisecond) // the exit overtakes the answer
	}
	return p.pid, nil
}

func (f *fakeKernel) Exec(req *controlapi.ExecRequest, files []*os.File) (*controlapi.ExecResponse, *os.File, error) {
	var p specs.Process
	if err := json.Unmarshal(req.Process, &p); err != nil {
		return nil, nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	c, err := f.get(req.ID)
	if err != nil {
		return nil, nil, err
	}
	if p.Args[0] == "nostart" {
		return nil, nil, controlapi.Errorf(controlapi.CodeInvalidArgument, "exec %q: no such file or directory", p.Args[0])
	}
	fp := f.newProcess(req.ExecID, &p, req.Stdio, files)
	c.procs[req.ExecID] = fp
	go f.run(c, fp)
	if p.Args[0] == "exit" {
		time.Sleep(20 * time.Millisecond)
	}
	return &controlapi.ExecResponse{Pid: fp.pid}, nil, nil
}

// run is a guest program.
func (f *fakeKernel) run(c *fakeContainer, p *fakeProcess) {
	status := 0
	switch p.args[0] {
	case "echo":
		fmt.Fprintln(p.stdio[1], strings.Join(p.args[1:], " "))
	case "exit":
		status, _ = strconv.Atoi(p.args[1])
	case "cat":
		io.Copy(p.stdio[1], p.stdio[0])
	case "sleep":
		status = 128 + <-p.kill
	case "orphan": // leaves a descendant with its output
		dup(p.stdio[1])
	case "crash":
		os.Exit(1)
	case "oom":
		f.srv.NotifyOOM(c.id)
		status = 137
	}
	f.end(c, p, status)
}

func (f *fakeKernel) end(c *fakeContainer, p *fakeProcess, status int) {
	if p.execID == "" {
		f.mu.Lock()
		var others []*fakeProcess
		for _, o := range c.procs {
			if o != p {
				others = append(others, o)
			}
		}
		f.mu.Unlock()
		for _, o := range others {
			select {
			case o.kill <- 9:
			default:
			}
			<-o.ended
		}
	}
	p.once.Do(func() {
		for _, s := range p.stdio {
			if s != nil {
				s.Close()
			}
		}
		f.mu.Lock()
		delete(c.procs, p.execID)
		f.mu.Unlock()
		f.srv.NotifyExit(c.id, p.execID, status)
		close(p.ended)
	})
}

func (f *fakeKernel) Kill(req *controlapi.KillRequest) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, err := f.get(req.ID)
	if err != nil {
		return err
	}
	p := c.procs[req.ExecID]
	if p == nil {
		return controlapi.Errorf(controlapi.CodeNotFound, "no process")
	}
	select {
	case p.kill <- req.Signal:
	default:
	}
	return nil
}

func (f *fakeKernel) Pause(id string) error  { return f.pause(id, true) }
func (f *fakeKernel) Resume(id string) error { return f.pause(id, false) }

func (f *fakeKernel) pause(id string, on bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, err := f.get(id)
	if err == nil {
		c.paused = on
	}
	return err
}

func (f *fakeKernel) Pids(id string) ([]controlapi.Process, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, err := f.get(id)
	if err != nil {
		return nil, err
	}
	var out []controlapi.Process
	for _, p := range c.procs {
		out = append(out, controlapi.Process{Pid: p.pid, ExecID: p.execID, Init: p.execID == ""})
	}
	return out, nil
}

func (f *fakeKernel) Stats(id string) (*controlapi.StatsResponse, error) {
	return &controlapi.StatsResponse{MemoryBytes: 1 << 40, Tasks: 3}, nil
}

func (f *fakeKernel) Update(*controlapi.UpdateRequest) error { return nil }

func (f *fakeKernel) ResizePty(*controlapi.ResizePtyRequest) error { return unix.ENOTTY }

func (f *fakeKernel) DestroyContainer(id string) error {
	f.mu.Lock()
	c, err := f.get(id)
	delete(f.containers, id)
	f.mu.Unlock()
	if err != nil {
		return err
	}
	for _, file := range c.files {
		file.Close()
	}
	c.stub.Process.Kill()
	c.stub.Wait()
	return nil
}

func (f *fakeKernel) Shutdown() { go func() { time.Sleep(time.Millisecond); os.Exit(0) }() }
