//go:build system

package system

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"runsc/pkg/imagefmt"
	"runsc/test/fusefs"
	"runsc/test/rig"
)

// disk mounts a file system that asks hook before each operation; the directory on it is returned.
func disk(t *testing.T, hook fusefs.Hook) string {
	t.Helper()
	dir := t.TempDir()
	fs, err := fusefs.Mount(dir, hook)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := fs.Close(); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// service is containerd's task service, which pauses no task around a checkpoint as ctr does.
func service(t *testing.T) (tasks.TasksClient, context.Context) {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+R.Socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(context.Background(), "containerd-namespace", R.Namespace), 60*time.Second)
	t.Cleanup(cancel)
	return tasks.NewTasksClient(conn), ctx
}

// saveRunning saves a task into a directory, without pausing it.
func saveRunning(ctx context.Context, c tasks.TasksClient, id, dir string) error {
	opts, err := checkpointInto(dir)
	if err != nil {
		return err
	}
	_, err = c.Checkpoint(ctx, &tasks.CheckpointTaskRequest{ContainerID: id, Options: opts})
	return err
}

// incomplete checks that a directory is no image, and that a restore from it is refused as such.
func incomplete(t *testing.T, p place, dir string) {
	t.Helper()
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return
	}
	if res := image("verify", dir); res.Code != 1 || !strings.Contains(res.Stderr, "incomplete") || strings.Count(res.Stderr, "\n") != 1 {
		t.Errorf("verify: %s", res)
	}
	p.file(t, "runsc.toml", fmt.Sprintf("restore-allow = [%q, %q]\n", p.dir, filepath.Dir(dir)))
	if res := R.Run(p.restored(dir)); res.Code == 0 || !strings.Contains(res.Stderr, "incomplete") {
		t.Errorf("restored: %s", res)
	}
}

// held is the memory that a container is charged for, as the Sentry counts it, the least of several readings: its
// processes come and go.
func held(t *testing.T, id string) (least int) {
	t.Helper()
	for i := range 10 {
		n, err := strconv.Atoi(metrics(t, id)["memory.usage_in_bytes"])
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 || n < least {
			least = n
		}
	}
	return least
}

// churning is a container that counts, and rewrites memory that a checkpoint has to keep.
func churning(p place) rig.Container {
	return rig.Container{Flags: p.flags, Args: sh("head -c 8000000 /dev/urandom > /dev/shm/a; (while :; do dd if=/dev/shm/a of=/dev/shm/b bs=64k conv=notrunc 2>/dev/null; done) & " + counting)}
}

// TestCheckpointDiskError saves on a disk that fails at some point: the error says so, the container goes on, nothing is
// left but what the disk does not let go of, no memory is held, and later saves are good.
func TestCheckpointDiskError(t *testing.T) {
	begin(t)
	var fail atomic.Pointer[func(op fusefs.Op, name string) bool]
	dir := disk(t, func(op fusefs.Op, name string) error {
		if f := fail.Load(); f != nil && (*f)(op, name) {
			return syscall.EIO
		}
		return nil
	})
	p := newPlace(t)
	id := detached(t, churning(p))
	n := counts(t, id, 3)
	c, ctx := service(t)
	img := filepath.Join(dir, "img")
	good := func(t *testing.T) {
		t.Helper()
		fail.Store(nil)
		if err := saveRunning(ctx, c, id, img); err != nil {
			t.Fatal(err)
		}
		ok(t, image("verify", img))
		if err := os.RemoveAll(img); err != nil {
			t.Fatal(err)
		}
	}
	good(t)
	before, sentry := held(t, id), anonymous(t)
	// nth fails operation number n of a kind on files that have the name.
	nth := func(op fusefs.Op, name string, n int32) func(*testing.T) func(fusefs.Op, string) bool {
		return func(*testing.T) func(fusefs.Op, string) bool {
			var seen atomic.Int32
			return func(o fusefs.Op, file string) bool {
				return o == op && strings.HasPrefix(file, name) && seen.Add(1) == n
			}
		}
	}
	// from fails it and all later ones: what is left of a larger write would be tried again.
	from := func(op fusefs.Op, name string, n int32) func(*testing.T) func(fusefs.Op, string) bool {
		return func(*testing.T) func(fusefs.Op, string) bool {
			var seen atomic.Int32
			return func(o fusefs.Op, file string) bool {
				return o == op && strings.HasPrefix(file, name) && seen.Add(1) >= n
			}
		}
	}
	tests := []struct {
		name   string
		fails  func(*testing.T) func(op fusefs.Op, name string) bool
		remain bool // files of the image
	}{
		{"the directory", nth(fusefs.Mkdir, "", 1), false},
		{"the first file", nth(fusefs.Create, "", 1), false},
		{"the last file", nth(fusefs.Create, imagefmt.PagesFile, 1), false},
		{"records", nth(fusefs.Write, imagefmt.KernelFile, 1), false},
		{"first pages", nth(fusefs.Write, imagefmt.PagesFile, 1), false},
		{"later pages", from(fusefs.Write, imagefmt.PagesFile, 30), false},
		{"index", nth(fusefs.Write, imagefmt.IndexFile, 1), false},
		{"manifest", nth(fusefs.Write, imagefmt.ManifestFile, 1), false},
		{"sync of pages", nth(fusefs.Fsync, imagefmt.PagesFile, 1), false},
		{"sync of records", nth(fusefs.Fsync, imagefmt.KernelFile, 1), false},
		{"sync of the manifest", nth(fusefs.Fsync, imagefmt.ManifestFile, 1), false},
		{"sync of the directory", nth(fusefs.Fsync, "img", 1), false},
		{"rename", nth(fusefs.Rename, "", 1), false},
		{"all after some", func(*testing.T) func(fusefs.Op, string) bool {
			var dead atomic.Bool
			some := from(fusefs.Write, imagefmt.PagesFile, 5)(t)
			return func(op fusefs.Op, name string) bool {
				if some(op, name) {
					dead.Store(true)
				}
				return dead.Load() && op != fusefs.Read
			}
		}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := tt.fails(t)
			fail.Store(&f)
			err := saveRunning(ctx, c, id, img)
			if err == nil || !strings.Contains(err.Error(), "input/output error") {
				t.Errorf("the save says %v", err)
			}
			n = counts(t, id, n)
			incomplete(t, p, img)
			if left, _ := filepath.Glob(img + "*"); !tt.remain && len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			good(t) // also over what was left
		})
	}
	f := from(fusefs.Write, imagefmt.PagesFile, 2)(t)
	fail.Store(&f)
	if res := R.Ctr("task", "checkpoint", "--exit", "--image-path", img, id); res.Code == 0 || !strings.Contains(res.Stderr, "input/output error") {
		t.Errorf("with --exit: %s", res)
	}
	counts(t, id, n)
	if s := R.Status(id); s != "RUNNING" {
		t.Errorf("the container is %s", s)
	}
	if after, now := held(t, id), anonymous(t); after > before+2<<20 || now > sentry+4096 {
		t.Errorf("held: %d bytes of %d before; Sentry: %d KiB of %d before", after, before, now, sentry)
	}
}

// gate is a disk that stops at a write until it is opened.
type gate struct {
	armed   atomic.Bool
	reached chan struct{}
	open    chan struct{}
	once    sync.Once
}

func (g *gate) hook(op fusefs.Op, name string) error {
	if op == fusefs.Write && name == imagefmt.PagesFile && g.armed.Load() {
		g.once.Do(func() { close(g.reached) })
		<-g.open
	}
	return nil
}

// stuckSave begins a save onto a disk that stops in the middle of it, and returns when it has.
func stuckSave(t *testing.T, id string) (g *gate, dir string, c tasks.TasksClient, ctx context.Context, cancel context.CancelFunc, done chan error) {
	t.Helper()
	g = &gate{reached: make(chan struct{}), open: make(chan struct{})}
	dir = filepath.Join(disk(t, g.hook), "img")
	t.Cleanup(g.release) // before the disk goes
	g.armed.Store(true)
	c, all := service(t)
	ctx, cancel = context.WithCancel(all)
	t.Cleanup(cancel)
	done = make(chan error, 1)
	go func() { done <- saveRunning(ctx, c, id, dir) }()
	select {
	case <-g.reached:
	case err := <-done:
		t.Fatalf("the save ended: %v", err)
	case <-time.After(20 * time.Second):
		t.Fatal("nothing is written")
	}
	return g, dir, c, all, cancel, done
}

func (g *gate) release() {
	if g.armed.Swap(false) {
		close(g.open)
	}
}

// within fails the test unless something happens soon.
func within[T any](t *testing.T, what string, d time.Duration, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(d):
		t.Fatalf("%s: not within %v", what, d)
	}
	return v
}

// goesOnAlone waits for the end of a save that nobody waits for: containerd tells the shim nothing of a caller that has
// gone. It leaves a complete image or nothing; a complete one is removed.
func goesOnAlone(t *testing.T, dir string) {
	t.Helper()
	await(t, "the end of the save", 20*time.Second, func() bool {
		_, err := os.Stat(filepath.Join(dir, imagefmt.ManifestFile))
		if err == nil {
			return true
		}
		_, err = os.Stat(dir)
		return errors.Is(err, os.ErrNotExist)
	})
	if _, err := os.Stat(dir); err == nil {
		ok(t, image("verify", dir))
		os.RemoveAll(dir)
	}
}

// TestCheckpointStuck looks at a container whose save does not get on, for the disk is stuck.
func TestCheckpointStuck(t *testing.T) {
	begin(t)
	t.Run("answers", func(t *testing.T) {
		p := newPlace(t)
		id := detached(t, churning(p))
		n := counts(t, id, 3)
		g, dir, c, ctx, _, done := stuckSave(t, id)
		if s := R.Status(id); s != "RUNNING" {
			t.Errorf("it is %s", s)
		}
		for _, args := range [][]string{{"metrics", id}, {"ps", id}, {"exec", "--exec-id", "e", id, "true"}} {
			if res := R.CtrWithin(10*time.Second, append([]string{"task"}, args...)...); res.Code != 0 {
				t.Errorf("%v: %s", args, res)
			}
		}
		n = counts(t, id, n)
		// Another save waits for the first, and is good.
		second := make(chan error, 1)
		go func() { second <- saveRunning(ctx, c, id, p.img(2)) }()
		select {
		case err := <-second:
			t.Errorf("the second save did not wait: %v", err)
		case <-time.After(300 * time.Millisecond):
		}
		g.release()
		if err := within(t, "the first save", 20*time.Second, done); err != nil {
			t.Error(err)
		}
		if err := within(t, "the second save", 20*time.Second, second); err != nil {
			t.Error(err)
		}
		ok(t, image("verify", dir))
		ok(t, image("verify", p.img(2)))
		counts(t, id, n)
	})
	t.Run("caller gives up", func(t *testing.T) {
		p := newPlace(t)
		id := detached(t, churning(p))
		g, dir, c, ctx, cancel, done := stuckSave(t, id)
		cancel()
		if err := within(t, "the answer", 10*time.Second, done); err == nil {
			t.Error("the save succeeded")
		}
		n := counts(t, id, last(R.Output(id)))
		g.release()
		goesOnAlone(t, dir)
		counts(t, id, n)
		if err := saveRunning(ctx, c, id, dir); err != nil {
			t.Error(err)
		}
		ok(t, image("verify", dir))
	})
	t.Run("client is killed", func(t *testing.T) {
		p := newPlace(t)
		id := detached(t, churning(p))
		n := counts(t, id, 3)
		g := &gate{reached: make(chan struct{}), open: make(chan struct{})}
		dir := filepath.Join(disk(t, g.hook), "img")
		t.Cleanup(g.release)
		g.armed.Store(true)
		killed := make(chan rig.Result, 1)
		go func() {
			killed <- R.Exec(1500*time.Millisecond, nil, "ctr", "task", "checkpoint", "--image-path", dir, id)
		}()
		within(t, "a write", 10*time.Second, g.reached)
		if res := within(t, "ctr's end", 20*time.Second, killed); !res.TimedOut {
			t.Errorf("ctr: %s", res)
		}
		g.release()
		goesOnAlone(t, dir)
		// ctr had it paused for the call, and can resume it no more.
		if s := R.Status(id); s == "PAUSED" {
			ok(t, R.Ctr("task", "resume", id))
		}
		counts(t, id, n)
		ok(t, R.Ctr("task", "checkpoint", "--image-path", dir, id))
		ok(t, image("verify", dir))
	})
	t.Run("container is killed", func(t *testing.T) {
		events := watch(t)
		p := newPlace(t)
		id := detached(t, churning(p))
		counts(t, id, 3)
		g, dir, _, _, _, done := stuckSave(t, id)
		if res := R.CtrWithin(10*time.Second, "task", "kill", "-s", "KILL", id); res.Code != 0 {
			t.Errorf("kill: %s", res)
		}
		exits(t, events, id, 137, 10*time.Second)
		g.release()
		// The cut was made before: the image may be complete.
		if err := within(t, "the save", 20*time.Second, done); err != nil {
			incomplete(t, p, dir)
		} else {
			ok(t, image("verify", dir))
		}
	})
	for _, role := range []string{"sandbox", "gofer", "shim"} {
		t.Run(role+" is killed", func(t *testing.T) {
			events := watch(t)
			p := newPlace(t)
			id := detached(t, churning(p))
			counts(t, id, 3)
			g, dir, _, _, _, done := stuckSave(t, id)
			for _, pr := range R.Processes() {
				if pr.Role() == role {
					syscall.Kill(pr.PID, syscall.SIGKILL)
				}
			}
			time.Sleep(100 * time.Millisecond)
			g.release() // a process that waits for a disk cannot die
			if err := within(t, "the save", 20*time.Second, done); err == nil {
				t.Error("the save succeeded")
			}
			if _, err := events.Wait(id, "exit", 10*time.Second); err != nil {
				t.Error(err)
			}
			R.Remove(id)
			incomplete(t, p, dir)
			// What is left does not hinder another.
			other := detached(t, churning(p))
			counts(t, other, 3)
			ok(t, R.Ctr("task", "checkpoint", "--image-path", dir, other))
			ok(t, image("verify", dir))
		})
	}
}
