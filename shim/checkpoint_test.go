package shim

import (
	"context"

	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/api/types/task"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/types/known/anypb"

	"runsc/pkg/imagefmt"
)

// save makes a checkpoint into a new directory.
func (r *rig) save(id string, o *runcoptions.CheckpointOptions) (string, error) {
	dir := filepath.Join(r.t.TempDir(), "deep/image")
	return dir, r.saveTo(context.Background(), id, dir, o)
}

func (r *rig) saveTo(ctx context.Context, id, dir string, o *runcoptions.CheckpointOptions) error {
	req := &taskapi.CheckpointTaskRequest{ID: id, Path: dir}
	if o != nil {
		var err error
		if req.Options, err = anyOf(o); err != nil {
			r.t.Fatal(err)
		}
	}
	_, err := r.Checkpoint(ctx, req)
	return err
}

// names lists a directory.
func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err.Error()
	}
	var out []string
	for _, e := range entries {
		if !e.Type().IsRegular() {
			t.Errorf("%s is no regular file", e.Name())
		}
		out = append(out, e.Name())
	}
	return strings.Join(out, " ")
}

const allFiles = "kernel.img manifest.json pages.idx pages.img"

func TestCheckpoint(t *testing.T) {
	r := newRig(t)
	ctx := context.Background()
	if _, err := r.Create(ctx, &taskapi.CreateTaskRequest{ID: "a", Bundle: r.bundle("a", func(s *specs.Spec) {
		s.Annotations = map[string]string{annotationCompress: "zstd", annotationValidate: "true", annotationName: "web"}
	}, "sleep")}); err != nil {
		t.Fatal(err)
	}
	_, err := r.save("a", nil)
	wantClass(t, "checkpoint of a created task", err, "failed precondition")
	if _, err := r.Start(ctx, &taskapi.StartRequest{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	dir, err := r.save("a", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); got != allFiles {
		t.Errorf("image has %s", got)
	}
	o, err := imagefmt.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	m := o.Manifest
	if !m.Compressed || !m.Validate || m.Containers[0].Name != "web" || !m.Containers[0].Root || len(m.Containers[0].Spec) == 0 {
		t.Errorf("manifest %+v", m)
	}
	if got := r.status("a", ""); got != task.Status_RUNNING {
		t.Errorf("state %s", got)
	}
	// A paused task stays paused.
	if _, err := r.Pause(ctx, &taskapi.PauseRequest{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.save("a", &runcoptions.CheckpointOptions{FileLocks: true}); err != nil {
		t.Fatal(err)
	}
	if got := r.status("a", ""); got != task.Status_PAUSED {
		t.Errorf("state %s", got)
	}
	// A complete image is not overwritten, nor is anything else.
	wantClass(t, "checkpoint over an image", r.saveTo(ctx, "a", dir, nil), "already exists")
	if got := names(t, dir); got != allFiles {
		t.Errorf("image has %s", got)
	}
	other := t.TempDir()
	os.WriteFile(filepath.Join(other, "x"), nil, 0o600)
	wantClass(t, "checkpoint into a full directory", r.saveTo(ctx, "a", other, nil), "already exists")
	if got := names(t, other); got != "x" {
		t.Errorf("directory has %s", got)
	}
	// What an interrupted one left is.
	left := t.TempDir()
	for _, n := range []string{imagefmt.KernelFile, "manifest.json.tmp"} {
		os.WriteFile(filepath.Join(left, n), []byte("x"), 0o600)
	}
	if err := r.saveTo(ctx, "a", left, nil); err != nil {
		t.Error(err)
	}
	if got := names(t, left); got != allFiles {
		t.Errorf("image has %s", got)
	}
	wantClass(t, "relative path", r.saveTo(ctx, "a", "x", nil), "invalid argument")
	_, err = r.Checkpoint(ctx, &taskapi.CheckpointTaskRequest{ID: "a", Path: t.TempDir(), Options: &anypb.Any{TypeUrl: "frob"}})
	wantClass(t, "unknown options", err, "invalid argument")
	wantClass(t, "unknown task", r.saveTo(ctx, "z", other, nil), "not found")
	// exit ends it.
	if _, err = r.save("a", &runcoptions.CheckpointOptions{Exit: true}); err != nil {
		t.Fatal(err)
	}
	if got := r.status("a", ""); got != task.Status_STOPPED {
		t.Errorf("state %s", got)
	}
	if got := r.wait("a", ""); got != 137 {
		t.Errorf("status %d", got)
	}
	_, err = r.save("a", nil)
	wantClass(t, "checkpoint of a stopped task", err, "failed precondition")
	r.delete("a", "")
	r.wantEvents("create", "start", "checkpointed", "paused", "checkpointed", "checkpointed", "checkpointed", "exit a 137", "delete 137")
}

func TestCheckpointFails(t *testing.T) {
	for _, how := range []string{"fails", "lies", "nonsense", "crash"} {
		t.Run(how, func(t *testing.T) {
			r := newRig(t)
			r.run("a", "sleep", how)
			dir, err := r.save("a", nil)
			if err == nil {
				t.Fatal("saved")
			}
			t.Log(err)
			if _, err := os.Stat(dir); err == nil {
				t.Errorf("left %s", names(t, dir))
			}
			own := t.TempDir()
			if err := r.saveTo(context.Background(), "a", own, &runcoptions.CheckpointOptions{Exit: true}); err == nil {
				t.Fatal("saved")
			}
			if got := names(t, own); got != "" {
				t.Errorf("left %s", got)
			}
			if how == "crash" {
				if got := r.wait("a", ""); got != 137 {
					t.Errorf("status %d", got)
				}
				return
			}
			if got := r.status("a", ""); got != task.Status_RUNNING {
				t.Errorf("state %s", got)
			}
		})
	}
}

func TestCheckpointIsCancelled(t *testing.T) {
	for _, how := range []string{"slow", "late"} {
		t.Run(how, func(t *testing.T) {
			r := newRig(t)
			r.run("a", "sleep", how)
			dir := t.TempDir()
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() { done <- r.saveTo(ctx, "a", dir, nil) }()
			waitFor(t, func() bool { return names(t, dir) == "kernel.img pages.idx pages.img" })
			// All that asks for figures is answered meanwhile.
			qctx, qcancel := context.WithTimeout(context.Background(), time.Second)
			defer qcancel()
			if _, err := r.Stats(qctx, &taskapi.StatsRequest{ID: "a"}); err != nil {
				t.Error(err)
			}
			if _, err := r.Pids(qctx, &taskapi.PidsRequest{ID: "a"}); err != nil {
				t.Error(err)
			}
			if got := r.status("a", ""); got != task.Status_RUNNING {
				t.Errorf("state %s", got)
			}
			// The second waits, and gives up.
			wctx, wcancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			defer wcancel()
			if err := r.saveTo(wctx, "a", t.TempDir(), nil); err == nil {
				t.Error("two at a time")
			}
			cancel()
			if err := <-done; err == nil {
				t.Error("saved")
			}
			if got := names(t, dir); got != "" {
				t.Errorf("left %s", got)
			}
			if got := r.status("a", ""); got != task.Status_RUNNING {
				t.Errorf("state %s", got)
			}
		})
	}
}

func TestCheckpointIntoRemovedDirectory(t *testing.T) {
	r := newRig(t)
	r.run("a", "sleep", "slow")
	dir := filepath.Join(t.TempDir(), "d")
	done := make(chan error, 1)
	go func() { done <- r.saveTo(context.Background(), "a", dir, nil) }()
	waitFor(t, func() bool { return names(t, dir) == "kernel.img pages.idx pages.img" })
	os.RemoveAll(dir)
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), "removed") {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("goes on")
	}
}

func TestCheckpointIntoBadPlaces(t *testing.T) {
	r := newRig(t)
	r.run("a", "sleep")
	file := filepath.Join(t.TempDir(), "f")
	os.WriteFile(file, nil, 0o600)
	wantClass(t, "a file", r.saveTo(context.Background(), "a", file, nil), "invalid argument")
	if err := r.saveTo(context.Background(), "a", "/proc/self", nil); err == nil {
		t.Error("saved into /proc")
	}
	if got := r.status("a", ""); got != task.Status_RUNNING {
		t.Errorf("state %s", got)
	}
}

func TestCheckpointOfPod(t *testing.T) {
	r := newRig(t)
	ctx := context.Background()
	kind := func(k string) func(*specs.Spec) {
		return func(s *specs.Spec) {
			s.Annotations = map[string]string{annotationType: k, annotationSandboxID: "pod"}
		}
	}
	for id, k := range map[string]string{"pod": "sandbox"} {
		if _, err := r.Create(ctx, &taskapi.CreateTaskRequest{ID: id, Bundle: r.bundle(id, kind(k), "sleep")}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Start(ctx, &taskapi.StartRequest{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := r.save("pod", nil)
	if err != nil {
		t.Fatal(err)
	}
	o, err := imagefmt.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if !o.Manifest.Pod {
		t.Errorf("manifest %+v", o.Manifest)
	}
}

func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for range 500 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("does not happen")
}
