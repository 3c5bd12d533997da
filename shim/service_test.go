package shim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	cgroup1 "github.com/containerd/cgroups/v3/cgroup1/stats"
	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"runsc/gofer"
	"runsc/pkg/hostcgroup"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "sandbox":
			os.Exit(fakeSandbox(os.Args[2:]))
		case "gofer":
			os.Exit(gofer.Isolate(os.Args[2:]))
		case gofer.Isolated:
			os.Exit(gofer.Main(os.Args[2:]))
		}
	}
	code := inBundle(m.Run)
	if g, err := hostcgroup.Load("/runsc-unit-test-shim"); err == nil {
		g.Delete()
	}
	os.Exit(code)
}

// inBundle calls run in a directory that looks like a bundle, so that what a
// daemon keeps below containerd's root goes to a directory of the tests.
func inBundle(run func() int) int {
	dir, err := os.MkdirTemp("", "shim")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Symlink(filepath.Join(dir, "root/task/ns/id"), filepath.Join(dir, "work")); err != nil {
		panic(err)
	}
	if err := os.Chdir(dir); err != nil {
		panic(err)
	}
	return run()
}

// recorder is a forwarder that keeps the topics and ids of events.
type recorder struct {
	mu  sync.Mutex
	log []string
}

func (r *recorder) forward(_ context.Context, env *types.Envelope) error {
	msg, err := anypb.UnmarshalNew(env.Event, proto.UnmarshalOptions{})
	if err != nil {
		return err
	}
	line := strings.TrimPrefix(env.Topic, "/tasks/")
	fields := msg.ProtoReflect().Descriptor().Fields()
	for _, name := range []string{"id", "exec_id"} {
		if fd := fields.ByTextName(name); fd != nil {
			if v := msg.ProtoReflect().Get(fd).String(); v != "" {
				line += " " + v
			}
		}
	}
	if fd := fields.ByTextName("exit_status"); fd != nil {
		line += " " + msg.ProtoReflect().Get(fd).String()
	}
	r.mu.Lock()
	r.log = append(r.log, line)
	r.mu.Unlock()
	return nil
}

func (r *recorder) close() {}

// rig is a service on a fake sandbox.
type rig struct {
	*service
	t   *testing.T
	dir string
	rec *recorder
}

func newRig(t *testing.T) *rig {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	rec := &recorder{}
	s := newService("ns", "pod", "unix://"+filepath.Join(t.TempDir(), "s"), newPublisher("ns", rec), true)
	r := &rig{service: s, t: t, dir: t.TempDir(), rec: rec}
	t.Cleanup(func() {
		s.dropEarly()
		s.mu.Lock()
		sb := s.sb
		s.mu.Unlock()
		if sb != nil {
			sb.stop()
			for _, c := range s.all() {
				<-c.ended
				c.cgroup.Delete()
			}
			sb.cgroup.Delete()
		}
		s.events.close(time.Second)
	})
	return r
}

// bundle makes a bundle whose init is one of the fake kernel's programs.
func (r *rig) bundle(id string, change func(*specs.Spec), args ...string) string {
	r.t.Helper()
	b := filepath.Join(r.dir, id)
	if err := os.MkdirAll(filepath.Join(b, "rootfs"), 0o755); err != nil {
		r.t.Fatal(err)
	}
	spec := &specs.Spec{
		Version: specs.Version,
		Root:    &specs.Root{Path: "rootfs"},
		Process: &specs.Process{Args: args, Cwd: "/"},
		Linux: &specs.Linux{
			CgroupsPath: "/runsc-unit-test-shim/" + id + fmt.Sprint(os.Getpid()),
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace},
				{Type: specs.MountNamespace}, {Type: specs.NetworkNamespace},
			},
		},
	}
	if change != nil {
		change(spec)
	}
	raw, err := json.Marshal(spec)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b, "config.json"), raw, 0o644); err != nil {
		r.t.Fatal(err)
	}
	return b
}

func (r *rig) run(id string, args ...string) {
	r.t.Helper()
	r.create(id, args...)
	if _, err := r.Start(context.Background(), &taskapi.StartRequest{ID: id}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) create(id string, args ...string) {
	r.t.Helper()
	resp, err := r.Create(context.Background(), &taskapi.CreateTaskRequest{ID: id, Bundle: r.bundle(id, nil, args...)})
	if err != nil {
		r.t.Fatal(err)
	}
	if resp.Pid == 0 {
		r.t.Fatal("no pid")
	}
}

func (r *rig) wait(id, execID string) uint32 {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	resp, err := r.Wait(ctx, &taskapi.WaitRequest{ID: id, ExecID: execID})
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.ExitStatus
}

func (r *rig) delete(id, execID string) {
	r.t.Helper()
	if _, err := r.Delete(context.Background(), &taskapi.DeleteRequest{ID: id, ExecID: execID}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) status(id, execID string) task.Status {
	r.t.Helper()
	resp, err := r.State(context.Background(), &taskapi.StateRequest{ID: id, ExecID: execID})
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.Status
}

func (r *rig) exec(id, execID string, args ...string) error {
	body, _ := json.Marshal(&specs.Process{Args: args, Cwd: "/"})
	if _, err := r.Exec(context.Background(), &taskapi.ExecProcessRequest{ID: id, ExecID: execID, Spec: &anypb.Any{Value: body}}); err != nil {
		return err
	}
	_, err := r.Start(context.Background(), &taskapi.StartRequest{ID: id, ExecID: execID})
	return err
}

// events waits for the queue to empty and returns what was sent.
func (r *rig) sent() []string {
	for range 200 {
		r.service.events.mu.Lock()
		n := len(r.service.events.queue)
		r.service.events.mu.Unlock()
		if n == 0 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	time.Sleep(5 * time.Millisecond)
	r.rec.mu.Lock()
	defer r.rec.mu.Unlock()
	return append([]string(nil), r.rec.log...)
}

func (r *rig) wantEvents(want ...string) {
	r.t.Helper()
	got := r.sent()
	if strings.Join(got, "; ") != strings.Join(want, "; ") {
		r.t.Errorf("events\n got %s\nwant %s", strings.Join(got, "; "), strings.Join(want, "; "))
	}
}

// class names the errdefs class of an answered error.
func class(err error) string {
	err = errgrpc.ToNative(err)
	switch {
	case err == nil:
		return "ok"
	case errdefs.IsNotFound(err):
		return "not found"
	case errdefs.IsAlreadyExists(err):
		return "already exists"
	case errdefs.IsFailedPrecondition(err):
		return "failed precondition"
	case errdefs.IsInvalidArgument(err):
		return "invalid argument"
	case errdefs.IsNotImplemented(err):
		return "not implemented"
	case errdefs.IsUnavailable(err):
		return "unavailable"
	}
	return "other"
}

func wantClass(t *testing.T, what string, err error, want string) {
	t.Helper()
	if got := class(err); got != want {
		t.Errorf("%s: %s (%v), want %s", what, got, err, want)
	}
}

func TestLifeOfATask(t *testing.T) {
	r := newRig(t)
	ctx := context.Background()
	r.create("a", "exit", "7")
	if got := r.status("a", ""); got != task.Status_CREATED {
		t.Errorf("state %s", got)
	}
	if _, err := r.Start(ctx, &taskapi.StartRequest{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	if got := r.wait("a", ""); got != 7 {
		t.Errorf("exit status %d", got)
	}
	if got := r.status("a", ""); got != task.Status_STOPPED {
		t.Errorf("state %s", got)
	}
	_, err := r.Kill(ctx, &taskapi.KillRequest{ID: "a", Signal: 15})
	wantClass(t, "kill of an ended task", err, "not found")
	var exit exitRecord
	if err := readJSON(filepath.Join(r.dir, "a"), exitFile, &exit); err != nil || exit.Status != 7 {
		t.Errorf("exit record %+v, %v", exit, err)
	}
	if _, err := r.Shutdown(ctx, &taskapi.ShutdownRequest{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-r.stop:
		t.Fatal("shut down with a task left")
	default:
	}
	r.delete("a", "")
	_, err = r.State(ctx, &taskapi.StateRequest{ID: "a"})
	wantClass(t, "state of a deleted task", err, "not found")
	r.wantEvents("create", "start", "exit a 7", "delete 7")
	var rec record
	if err := readJSON(filepath.Join(r.dir, "a"), recordFile, &rec); err != nil || !rec.Clean {
		t.Errorf("record %+v, %v", rec, err)
	}
	if rec.Sandbox.alive() || rec.Gofer.alive() {
		t.Error("processes left")
	}
	if _, err := os.Stat("/sys/fs/cgroup/memory" + rec.Cgroup); err == nil {
		t.Error("cgroup left")
	}
	r.Shutdown(ctx, &taskapi.ShutdownRequest{ID: "a"})
	select {
	case <-r.stop:
	default:
		t.Error("does not shut down")
	}
	_, err = r.Create(ctx, &taskapi.CreateTaskRequest{ID: "b", Bundle: r.bundle("b", nil, "exit", "0")})
	wantClass(t, "create after shutdown", err, "unavailable")
}

func TestExecsEndBeforeInit(t *testing.T) {
	r := newRig(t)
	ctx := context.Background()
	r.run("a", "sleep")
	if err := r.exec("a", "e1", "exit", "5"); err != nil {
		t.Fatal(err)
	}
	if got := r.wait("a", "e1"); got != 5 {
		t.Errorf("exec status %d", got)
	}
	r.delete("a", "e1")
	if err := r.exec("a", "e2", "sleep"); err != nil {
		t.Fatal(err)
	}
	wantClass(t, "taken exec id", r.exec("a", "e2", "sleep"), "already exists")
	wantClass(t, "exec of a missing program", r.exec("a", "e3", "nostart"), "invalid argument")
	if got := r.wait("a", "e3"); got != statusUnknown {
		t.Errorf("failed exec's status %d", got)
	}
	_, err := r.Delete(ctx, &taskapi.DeleteRequest{ID: "a", ExecID: "e2"})
	wantClass(t, "delete of a running exec", err, "failed precondition")
	_, err = r.Delete(ctx, &taskapi.DeleteRequest{ID: "a"})
	wantClass(t, "delete of a running task", err, "failed precondition")
	pids, err := r.Pids(ctx, &taskapi.PidsRequest{ID: "a"})
	if err != nil || len(pids.Processes) != 2 {
		t.Errorf("pids %v, %v", pids, err)
	}
	if _, err := r.Kill(ctx, &taskapi.KillRequest{ID: "a", Signal: 15}); err != nil {
		t.Fatal(err)
	}
	if got := r.wait("a", ""); got != 128+15 {
		t.Errorf("status %d", got)
	}
	if got := r.wait("a", "e2"); got != 137 {
		t.Errorf("exec's status %d", got)
	}
	wantClass(t, "exec in an ended task", r.exec("a", "e4", "sleep"), "failed precondition")
	r.delete("a", "")
	r.wantEvents("create", "start", "exec-added e1", "exec-started e1", "exit e1 5", "exec-added e2", "exec-started e2",
		"exec-added e3", "exit e2 137", "exit a 143", "delete 143")
}

func TestPauseResume(t *testing.T) {
	r := newRig(t)
	ctx := context.Background()
	r.run("a", "sleep")
	_, err := r.Resume(ctx, &taskapi.ResumeRequest{ID: "a"})
	wantClass(t, "resume of a running task", err, "failed precondition")
	if _, err := r.Pause(ctx, &taskapi.PauseRequest{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	if got := r.status("a", ""); got != task.Status_PAUSED {
		t.Errorf("state %s", got)
	}
	wantClass(t, "exec in a paused task", r.exec("a", "e", "sleep"), "failed precondition")
	if _, err := r.Resume(ctx, &taskapi.ResumeRequest{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Pause(ctx, &taskapi.PauseRequest{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Kill(ctx, &taskapi.KillRequest{ID: "a", Signal: 9}); err != nil {
		t.Fatal(err)
	}
	if got := r.wait("a", ""); got != 137 {
		t.Errorf("status %d", got)
	}
	r.wantEvents("create", "start", "paused", "resumed", "paused", "exit a 137")
}

func TestCreatedTaskEnds(t *testing.T) {
	t.Run("delete", func(t *testing.T) {
		r := newRig(t)
		r.create("a", "sleep")
		r.delete("a", "")
		r.wantEvents("create", "exit a 137", "delete 137")
	})
	t.Run("kill", func(t *testing.T) {
		r := newRig(t)
		r.create("a", "sleep")
		if _, err := r.Kill(context.Background(), &taskapi.KillRequest{ID: "a", Signal: 9}); err != nil {
			t.Fatal(err)
		}
		if got := r.wait("a", ""); got != 137 {
			t.Errorf("status %d", got)
		}
		r.delete("a", "")
	})
	t.Run("failed start", func(t *testing.T) {
		r := newRig(t)
		r.create("a", "nostart")
		_, err := r.Start(context.Background(), &taskapi.StartRequest{ID: "a"})
		wantClass(t, "start", err, "invalid argument")
		if got := r.status("a", ""); got != task.Status_CREATED {
			t.Errorf("state %s", got)
		}
		r.delete("a", "")
	})
	t.Run("failed create", func(t *testing.T) {
		r := newRig(t)
		b := r.bundle("a", nil, "nocreate")
		_, err := r.Create(context.Background(), &taskapi.CreateTaskRequest{ID: "a", Bundle: b})
		wantClass(t, "create", err, "invalid argument")
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.sb != nil || len(r.containers)+len(r.creating) != 0 {
			t.Error("something is left")
		}
	})
}

func TestPod(t *testing.T) {
	r := newRig(t)
	r.run("pod", "sleep")
	r.run("app1", "sleep")
	r.run("app2", "exit", "3")
	if r.get2("app1").sb != r.get2("pod").sb {
		t.Error("two sandboxes")
	}
	if a, p := r.get2("app1").init.pid, r.get2("pod").init.pid; a == p {
		t.Errorf("app and root have the same pid %d", a)
	}
	r.wait("app2", "")
	r.delete("app2", "")
	if got := r.status("app1", ""); got != task.Status_RUNNING {
		t.Errorf("state %s after a sibling's end", got)
	}
	r.Kill(context.Background(), &taskapi.KillRequest{ID: "pod", Signal: 9})
	if got := r.wait("pod", ""); got != 137 {
		t.Errorf("root's status %d", got)
	}
	if got := r.wait("app1", ""); got != 137 {
		t.Errorf("app's status %d", got)
	}
	_, err := r.Create(context.Background(), &taskapi.CreateTaskRequest{ID: "app3", Bundle: r.bundle("app3", nil, "sleep")})
	wantClass(t, "create in an ended pod", err, "failed precondition")
	r.delete("app1", "")
	r.delete("pod", "")
}

// get2 is get for tests.
func (r *rig) get2(id string) *container {
	r.t.Helper()
	c, err := r.get(id)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

func TestSandboxDeath(t *testing.T) {
	for _, victim := range []string{"sandbox", "gofer", "itself"} {
		t.Run(victim, func(t *testing.T) {
			r := newRig(t)
			r.run("pod", "sleep")
			r.run("app", "sleep")
			sb := r.get2("pod").sb
			switch victim {
			case "sandbox":
				unix.Kill(sb.proc.Pid, unix.SIGKILL)
			case "gofer":
				unix.Kill(sb.gofer.Pid, unix.SIGKILL)
			case "itself":
				r.exec("app", "e", "crash")
			}
			if got := r.wait("app", ""); got != 137 {
				t.Errorf("app's status %d", got)
			}
			if got := r.wait("pod", ""); got != 137 {
				t.Errorf("root's status %d", got)
			}
			r.delete("app", "")
			r.delete("pod", "")
			if sb.proc.alive() || sb.gofer.alive() {
				t.Error("processes left")
			}
		})
	}
}

func TestOOMComesBeforeExit(t *testing.T) {
	r := newRig(t)
	r.run("a", "oom")
	r.wait("a", "")
	r.wantEvents("create", "start", "oom", "exit a 137")
	resp, err := r.Stats(context.Background(), &taskapi.StatsRequest{ID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	var m cgroup1.Metrics
	if err := proto.Unmarshal(resp.Stats.Value, &m); err == nil && m.MemoryOomControl.GetOomKill() == 0 {
		t.Error("no OOM kill in the figures")
	}
}

func TestStats(t *testing.T) {
	r := newRig(t)
	r.run("a", "sleep")
	resp, err := r.Stats(context.Background(), &taskapi.StatsRequest{ID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if resp.Stats.TypeUrl != "io.containerd.cgroups.v1.Metrics" {
		t.Skipf("no cgroup v1: %s", resp.Stats.TypeUrl)
	}
	var m cgroup1.Metrics
	if err := proto.Unmarshal(resp.Stats.Value, &m); err != nil {
		t.Fatal(err)
	}
	if m.CPU.GetUsage().GetTotal() == 0 || m.Memory.GetUsage().GetUsage() != 1<<40 || m.Pids.GetCurrent() != 3 {
		t.Errorf("figures %v", &m)
	}
}

func fifo(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestStdio(t *testing.T) {
	r := newRig(t)
	ctx := context.Background()
	in, out := fifo(t), fifo(t)
	input := bytes.Repeat([]byte("0123456789abcdef"), 200<<10/16*10) // more than all pipes hold
	_, err := r.Create(ctx, &taskapi.CreateTaskRequest{ID: "a", Bundle: r.bundle("a", nil, "cat"), Stdin: in, Stdout: out})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan []byte, 1)
	go func() {
		f, _ := os.Open(out)
		b, _ := io.ReadAll(f)
		got <- b
	}()
	w, err := os.OpenFile(in, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	r.Start(ctx, &taskapi.StartRequest{ID: "a"})
	w.Write(input)
	w.Close()
	select {
	case <-r.get2("a").init.done:
		t.Fatal("end of input without CloseIO")
	case <-time.After(50 * time.Millisecond):
	}
	if _, err := r.CloseIO(ctx, &taskapi.CloseIORequest{ID: "a", Stdin: true}); err != nil {
		t.Fatal(err)
	}
	r.wait("a", "")
	r.delete("a", "")
	if b := <-got; !bytes.Equal(b, input) {
		t.Errorf("%d bytes came out, %d went in", len(b), len(input))
	}
}

func TestLogFile(t *testing.T) {
	r := newRig(t)
	log := filepath.Join(t.TempDir(), "new", "log")
	uri := "file://" + log
	_, err := r.Create(context.Background(), &taskapi.CreateTaskRequest{ID: "a", Bundle: r.bundle("a", nil, "echo", "hi"), Stdout: uri, Stderr: uri})
	if err != nil {
		t.Fatal(err)
	}
	r.Start(context.Background(), &taskapi.StartRequest{ID: "a"})
	r.wait("a", "")
	st, err := r.State(context.Background(), &taskapi.StateRequest{ID: "a"})
	if err != nil || st.Stdout != uri || st.Stdin != "" {
		t.Errorf("state %v, %v", st, err)
	}
	r.delete("a", "")
	if b, err := os.ReadFile(log); string(b) != "hi\n" {
		t.Errorf("log %q, %v", b, err)
	}
}

func TestBadLogURI(t *testing.T) {
	r := newRig(t)
	_, err := r.Create(context.Background(), &taskapi.CreateTaskRequest{ID: "a", Bundle: r.bundle("a", nil, "sleep"), Stdout: "pipe:///x"})
	wantClass(t, "create", err, "invalid argument")
}

// An exec whose descendant keeps its output is deletable all the same, and the
// client sees the end.
func TestOrphanHoldsOutput(t *testing.T) {
	if testing.Short() {
		t.Skip("waits 10 s")
	}
	r := newRig(t)
	ctx := context.Background()
	r.run("a", "sleep")
	out := fifo(t)
	body, _ := json.Marshal(&specs.Process{Args: []string{"orphan"}, Cwd: "/"})
	r.Exec(ctx, &taskapi.ExecProcessRequest{ID: "a", ExecID: "e", Spec: &anypb.Any{Value: body}, Stdout: out})
	eof := make(chan struct{})
	go func() {
		f, _ := os.Open(out)
		io.Copy(io.Discard, f)
		close(eof)
	}()
	if _, err := r.Start(ctx, &taskapi.StartRequest{ID: "a", ExecID: "e"}); err != nil {
		t.Fatal(err)
	}
	r.wait("a", "e")
	t0 := time.Now()
	r.delete("a", "e")
	if d := time.Since(t0); d > 12*time.Second {
		t.Errorf("delete took %s", d)
	}
	select {
	case <-eof:
	case <-time.After(time.Second):
		t.Error("the client is left waiting")
	}
}

func TestEarlySandboxIsUsed(t *testing.T) {
	r := newRig(t)
	b := r.bundle("a", nil, "exit", "0")
	r.startEarly("a", b, nil)
	early := r.early
	if _, err := r.Create(context.Background(), &taskapi.CreateTaskRequest{ID: "a", Bundle: b}); err != nil {
		t.Fatal(err)
	}
	if r.get2("a").sb != early.sb {
		t.Error("the early sandbox was not used")
	}
}

func TestConnect(t *testing.T) {
	r := newRig(t)
	resp, err := r.Connect(context.Background(), &taskapi.ConnectRequest{ID: "never"})
	if err != nil || resp.TaskPid != 0 || int(resp.ShimPid) != os.Getpid() {
		t.Errorf("%v, %v", resp, err)
	}
}

func TestHooks(t *testing.T) {
	r := newRig(t)
	log := filepath.Join(t.TempDir(), "hooks")
	hook := func(name string) []specs.Hook {
		return []specs.Hook{{Path: "/bin/sh", Args: []string{"sh", "-c", "echo " + name + " `cat` >> " + log}}}
	}
	b := r.bundle("a", func(s *specs.Spec) {
		s.Hooks = &specs.Hooks{CreateRuntime: hook("createRuntime"), Poststart: hook("poststart"), Poststop: hook("poststop")}
	}, "exit", "0")
	ctx := context.Background()
	if _, err := r.Create(ctx, &taskapi.CreateTaskRequest{ID: "a", Bundle: b}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Start(ctx, &taskapi.StartRequest{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	r.wait("a", "")
	r.delete("a", "")
	got, _ := os.ReadFile(log)
	lines := strings.Split(strings.TrimSpace(string(got)), "\n")
	if len(lines) != 3 {
		t.Fatalf("hooks ran: %s", got)
	}
	for i, want := range []string{`createRuntime .*"status":"creating"`, "poststart", "poststop"} {
		if !strings.HasPrefix(lines[i], strings.Fields(want)[0]) {
			t.Errorf("line %d: %s", i, lines[i])
		}
	}
	var st specs.State
	if err := json.Unmarshal([]byte(strings.TrimPrefix(lines[0], "createRuntime ")), &st); err == nil {
		if st.Pid == 0 || st.ID != "a" || st.Bundle != b || st.Status != specs.StateCreating {
			t.Errorf("state %+v", st)
		}
	}
	fail := r.bundle("b", func(s *specs.Spec) { s.Hooks = &specs.Hooks{CreateRuntime: []specs.Hook{{Path: "/bin/false"}}} }, "sleep")
	_, err := r.Create(ctx, &taskapi.CreateTaskRequest{ID: "b", Bundle: fail})
	if err == nil || !strings.Contains(err.Error(), "createRuntime hook 0") {
		t.Errorf("a failed hook: %v", err)
	}
}
