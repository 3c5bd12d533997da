package shim

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	runtimeoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"github.com/containerd/containerd/api/types/task"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/anypb"

	"runsc/pkg/imagefmt"
)

// writeImage makes an image that the fake kernel restores.
func writeImage(t *testing.T, dir string, change func(*imagefmt.Manifest)) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	m := &imagefmt.Manifest{
		Magic: imagefmt.ManifestMagic, Format: imagefmt.Format, Arch: "amd64", CPUFeatures: []string{"fpu"},
		Files: map[string]imagefmt.ManifestFileInfo{}, Containers: []imagefmt.ManifestContainer{{ID: "old", Root: true}},
	}
	for _, name := range imagefmt.StateFiles {
		body := []byte("this is " + name)
		m.Files[name] = imagefmt.ManifestFileInfo{Size: int64(len(body))}
		if err := os.WriteFile(filepath.Join(dir, name), body, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if change != nil {
		change(m)
	}
	body, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, imagefmt.ManifestFile), body, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestRestore(t *testing.T) {
	r := newRig(t)
	ctx := context.Background()
	dir := writeImage(t, t.TempDir(), nil)
	resp, err := r.Create(ctx, &taskapi.CreateTaskRequest{ID: "a", Bundle: r.bundle("a", nil, "sleep"), Checkpoint: dir})
	if err != nil {
		t.Fatal(err)
	}
	if resp.Pid != 0 {
		t.Errorf("pid %d before the restore", resp.Pid)
	}
	st, err := r.State(ctx, &taskapi.StateRequest{ID: "a"})
	if err != nil || st.Pid != 0 || st.Status != task.Status_CREATED {
		t.Errorf("state %v, %v", st, err)
	}
	started, err := r.Start(ctx, &taskapi.StartRequest{ID: "a"})
	if err != nil || started.Pid == 0 {
		t.Fatalf("start %v, %v", started, err)
	}
	st, err = r.State(ctx, &taskapi.StateRequest{ID: "a"})
	if err != nil || st.Pid != started.Pid || st.Status != task.Status_RUNNING {
		t.Errorf("state %v, %v", st, err)
	}
	if err := r.exec("a", "e", "exit", "5"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Kill(ctx, &taskapi.KillRequest{ID: "a", Signal: 9}); err != nil {
		t.Fatal(err)
	}
	if got := r.wait("a", ""); got != 137 {
		t.Errorf("status %d", got)
	}
	r.delete("a", "")
	got := r.sent()
	if !slices.Contains(got, "/runsc/restored") || slices.Index(got, "create") > slices.Index(got, "start") {
		t.Errorf("events %q", got)
	}
	if got := names(t, dir); got != allFiles {
		t.Errorf("image has %s now", got)
	}
}

func TestRestoreNotStarted(t *testing.T) {
	for _, how := range []string{"delete", "kill", "failed start"} {
		t.Run(how, func(t *testing.T) {
			r := newRig(t)
			ctx := context.Background()
			program := "sleep"
			if how == "failed start" {
				program = "nostart"
			}
			if _, err := r.Create(ctx, &taskapi.CreateTaskRequest{ID: "a", Bundle: r.bundle("a", nil, program), Checkpoint: writeImage(t, t.TempDir(), nil)}); err != nil {
				t.Fatal(err)
			}
			switch how {
			case "kill":
				if _, err := r.Kill(ctx, &taskapi.KillRequest{ID: "a", Signal: 9}); err != nil {
					t.Fatal(err)
				}
				r.wait("a", "")
			case "failed start":
				if _, err := r.Start(ctx, &taskapi.StartRequest{ID: "a"}); err == nil {
					t.Fatal("started")
				}
			}
			r.delete("a", "")
		})
	}
}

func TestRestoreRefuses(t *testing.T) {
	tests := []struct {
		name, want string
		make       func(t *testing.T, dir string)
	}{
		{"missing", "no such file", func(t *testing.T, dir string) { os.Remove(dir) }},
		{"empty", "manifest.json is missing", func(t *testing.T, dir string) {}},
		{"a file", "not a directory", func(t *testing.T, dir string) { os.Remove(dir); os.WriteFile(dir, nil, 0o600) }},
		{"incomplete", "manifest.json is missing", func(t *testing.T, dir string) {
			writeImage(t, dir, nil)
			os.Rename(dir+"/manifest.json", dir+"/manifest.json.tmp")
		}},
		{"no pages", "pages.img is missing", func(t *testing.T, dir string) { writeImage(t, dir, nil); os.Remove(dir + "/pages.img") }},
		{"foreign", "not that of a checkpoint image", func(t *testing.T, dir string) { os.WriteFile(dir+"/manifest.json", []byte("{}"), 0o600) }},
		{"no manifest at all", "damaged", func(t *testing.T, dir string) { os.WriteFile(dir+"/manifest.json", []byte("\x00\x01"), 0o600) }},
		{"cut manifest", "damaged", func(t *testing.T, dir string) { writeImage(t, dir, nil); os.Truncate(dir+"/manifest.json", 80) }},
		{"newer", "format 999", func(t *testing.T, dir string) { writeImage(t, dir, func(m *imagefmt.Manifest) { m.Format = 999 }) }},
		{"arch", "architecture arm64", func(t *testing.T, dir string) { writeImage(t, dir, func(m *imagefmt.Manifest) { m.Arch = "arm64" }) }},
		{"cpu", `processor feature "frobx"`, func(t *testing.T, dir string) {
			writeImage(t, dir, func(m *imagefmt.Manifest) { m.CPUFeatures = []string{"fpu", "frobx"} })
		}},
		{"truncated", "pages.img is cut off", func(t *testing.T, dir string) { writeImage(t, dir, nil); os.Truncate(dir+"/pages.img", 3) }},
		{"longer", "more than the manifest says", func(t *testing.T, dir string) { writeImage(t, dir, nil); os.Truncate(dir+"/pages.img", 1<<20) }},
		{"damaged", "kernel.img is damaged", func(t *testing.T, dir string) {
			writeImage(t, dir, nil)
			os.WriteFile(dir+"/kernel.img", []byte("THIS is kernel.img"), 0o600)
		}},
		{"link", "kernel.img", func(t *testing.T, dir string) {
			writeImage(t, dir, nil)
			os.Rename(dir+"/kernel.img", dir+"/k")
			os.Symlink("k", dir+"/kernel.img")
		}},
		{"manifest link", "manifest.json", func(t *testing.T, dir string) {
			writeImage(t, dir, nil)
			os.Rename(dir+"/manifest.json", dir+"/m")
			os.Symlink("m", dir+"/manifest.json")
		}},
		{"fifo", "not a regular file", func(t *testing.T, dir string) {
			writeImage(t, dir, nil)
			os.Remove(dir + "/pages.idx")
			unix.Mkfifo(dir+"/pages.idx", 0o600)
		}},
		{"directory", "not a regular file", func(t *testing.T, dir string) {
			writeImage(t, dir, nil)
			os.Remove(dir + "/pages.idx")
			os.Mkdir(dir+"/pages.idx", 0o700)
		}},
		{"no container", "lists no container", func(t *testing.T, dir string) {
			writeImage(t, dir, func(m *imagefmt.Manifest) { m.Containers = nil })
		}},
		{"container id", "id", func(t *testing.T, dir string) {
			writeImage(t, dir, func(m *imagefmt.Manifest) { m.Containers[0].ID = "../x" })
		}},
		{"huge manifest", "too large", func(t *testing.T, dir string) { writeImage(t, dir, nil); os.Truncate(dir+"/manifest.json", 1<<40) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			dir := t.TempDir()
			tt.make(t, dir)
			_, err := r.Create(context.Background(), &taskapi.CreateTaskRequest{ID: "a", Bundle: r.bundle("a", nil, "sleep"), Checkpoint: dir})
			wantClass(t, tt.name, err, "invalid argument")
			if err != nil && (!strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n")) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			if _, err := r.State(context.Background(), &taskapi.StateRequest{ID: "a"}); class(err) != "not found" {
				t.Errorf("left a task: %v", err)
			}
		})
	}
}

// archive makes what crictl checkpoint makes of an image directory.
func archive(t *testing.T, path, dir string, change func(name string, h *tar.Header) bool) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	put := func(name string, body []byte) {
		h := &tar.Header{Name: name, Mode: 0o600, Size: int64(len(body)), Typeflag: tar.TypeReg}
		if change != nil && !change(name, h) {
			return
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := w.Write(body[:h.Size]); err != nil {
				t.Fatal(err)
			}
		}
	}
	put("spec.dump", []byte("{}"))
	put("rootfs-diff.tar", []byte("x"))
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		body, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		put("checkpoint/"+e.Name(), body)
	}
	put("checkpoint/../../evil", []byte("x"))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRestoreByAnnotation(t *testing.T) {
	allowed, elsewhere := t.TempDir(), t.TempDir()
	conf := filepath.Join(elsewhere, "c.toml")
	if err := os.WriteFile(conf, []byte("restore-allow = [\"/nowhere/\", \""+allowed+"/\"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	in := func(name string) string { return filepath.Join(allowed, name) }
	writeImage(t, in("ok"), nil)
	writeImage(t, in("a/b/c"), nil)
	writeImage(t, filepath.Join(elsewhere, "ok"), nil)
	os.Symlink(elsewhere, in("link"))
	os.Symlink(in("ok"), in("inner"))
	unix.Mkfifo(in("fifo"), 0o600)
	archive(t, in("ok.tar"), in("ok"), nil)
	full, _ := os.ReadFile(in("ok.tar"))
	os.WriteFile(in("cut.tar"), full[:len(full)/2], 0o600)
	os.WriteFile(in("text"), bytes.Repeat([]byte("not a tar archive"), 100), 0o600)
	archive(t, in("linked.tar"), in("ok"), func(name string, h *tar.Header) bool {
		if name == "checkpoint/pages.img" {
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, "/etc/shadow", 0
		}
		return true
	})
	archive(t, in("part.tar"), in("ok"), func(name string, h *tar.Header) bool { return name != "checkpoint/pages.img" })
	writeImage(t, in("pod"), func(m *imagefmt.Manifest) {
		m.Pod = true
		m.Containers = append(m.Containers, imagefmt.ManifestContainer{ID: "id2", Name: "web"})
	})
	many := func(m *imagefmt.Manifest) {
		m.Containers = []imagefmt.ManifestContainer{{ID: "x"}, {ID: "y"}}
	}
	writeImage(t, in("noroot"), many)
	entry := func(file string, change func(h *tar.Header)) string {
		return archive(t, in(file), in("ok"), func(name string, h *tar.Header) bool {
			if name == "checkpoint/pages.img" {
				change(h)
			}
			return true
		})
	}
	hard := entry("hard.tar", func(h *tar.Header) { h.Typeflag, h.Linkname, h.Size = tar.TypeLink, "checkpoint/kernel.img", 0 })
	twice := entry("twice.tar", func(h *tar.Header) { h.Name = "checkpoint/./kernel.img" })
	device := entry("device.tar", func(h *tar.Header) { h.Typeflag, h.Size = tar.TypeChar, 0 })
	huge := in("huge.tar")
	os.WriteFile(huge, hugeEntry(full), 0o600)
	changed := func(name, file string, change func(path string) error) string {
		dir := writeImage(t, in(name), nil)
		if err := change(filepath.Join(dir, file)); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	chmod := func(mode os.FileMode) func(string) error { return func(p string) error { return os.Chmod(p, mode) } }
	chown := func(p string) error { return os.Chown(p, 1000, 1000) }
	archive(t, in("open.tar"), in("ok"), nil)
	os.Chmod(in("open.tar"), 0o666)
	tests := []struct{ name, image, container, want string }{
		{"hard link in archive", hard, "", "not a regular file"},
		{"entry twice", twice, "", "there twice"},
		{"device in archive", device, "", "not a regular file"},
		{"huge entry", huge, "", "more than the archive has"},
		{"directory of all", changed("open", "", chmod(0o777)), "", "written by others"},
		{"directory of a group", changed("group", "", chmod(0o775)), "", "written by others"},
		{"directory of another", changed("owned", "", chown), "", "belongs to user 1000"},
		{"file of all", changed("openfile", "pages.img", chmod(0o602)), "", "pages.img can be written by others"},
		{"file of another", changed("ownedfile", "kernel.img", chown), "", "belongs to user 1000"},
		{"archive of all", in("open.tar"), "", "written by others"},
		{"directory", in("ok"), "", ""},
		{"deep", in("a/b/c"), "", ""},
		{"archive", in("ok.tar"), "", ""},
		{"named", in("ok"), "old", ""},
		{"named by name", in("pod"), "web", ""},
		{"root", in("pod"), "", ""},
		{"unknown name", in("pod"), "db", `no container "db"`},
		{"no root", in("noroot"), "", "none was named"},
		{"not allowed", filepath.Join(elsewhere, "ok"), "", "restore-allow"},
		{"prefix itself", allowed, "", "restore-allow"},
		{"prefix as text", allowed + "x/ok", "", "restore-allow"},
		{"dots", allowed + "/../" + filepath.Base(elsewhere) + "/ok", "", "clean absolute path"},
		{"relative", "ok", "", "clean absolute path"},
		{"link out", in("link/ok"), "", "symbolic link"},
		{"link", in("inner"), "", "symbolic link"},
		{"fifo", in("fifo"), "", "neither"},
		{"text", in("text"), "", "not a tar archive"},
		{"cut archive", in("cut.tar"), "", "is missing"},
		{"link in archive", in("linked.tar"), "", "not a regular file"},
		{"part", in("part.tar"), "", "pages.img is missing"},
		{"missing", in("none"), "", "no such file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			opts, err := anyOf(&runtimeoptions.Options{ConfigPath: conf})
			if err != nil {
				t.Fatal(err)
			}
			_, err = r.Create(context.Background(), &taskapi.CreateTaskRequest{ID: "a", Options: opts, Bundle: r.bundle("a", func(s *specs.Spec) {
				s.Annotations = map[string]string{annotationImage: tt.image}
				if tt.container != "" {
					s.Annotations[annotationContainer] = tt.container
				}
			}, "sleep")})
			entries, _ := filepath.Glob(filepath.Join(r.dir, "a", "restore-*"))
			if len(entries) > 0 {
				t.Errorf("left %v", entries)
			}
			if tt.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				r.delete("a", "")
				return
			}
			wantClass(t, tt.name, err, "invalid argument")
			if err != nil && (!strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n")) {
				t.Errorf("%v, want %q in one sentence", err, tt.want)
			}
		})
	}
}

// hugeEntry makes the entry pages.img of an archive claim almost 8 GiB.
func hugeEntry(body []byte) []byte {
	body = bytes.Clone(body)
	i := bytes.Index(body, []byte("checkpoint/pages.img\x00"))
	h := body[i : i+512]
	copy(h[124:136], "77777777777\x00") // size
	copy(h[148:156], "        ")        // checksum
	sum := 0
	for _, c := range h {
		sum += int(c)
	}
	copy(h[148:156], fmt.Sprintf("%06o\x00 ", sum))
	return body
}

// TestSwappedWhileOpening replaces an image, and a directory above one, by symbolic links out of the allowed
// directory and back while it is being opened: what is opened never lies elsewhere.
func TestSwappedWhileOpening(t *testing.T) {
	allowed, elsewhere := t.TempDir(), t.TempDir()
	in := func(name string) string { return filepath.Join(allowed, name) }
	writeImage(t, in("real/ok"), nil)
	writeImage(t, filepath.Join(elsewhere, "ok"), func(m *imagefmt.Manifest) { m.Containers[0].ID = "elsewhere" })
	if err := os.Symlink(elsewhere, in("link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(in("swapped"), 0o755); err != nil {
		t.Fatal(err)
	}
	writeImage(t, in("swapped/ok"), nil)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				unix.Renameat2(unix.AT_FDCWD, in("swapped"), unix.AT_FDCWD, in("link"), unix.RENAME_EXCHANGE)
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	scratch := t.TempDir()
	var opened, refused int
	for range 1000 {
		o, err := openAllowed(context.Background(), in("swapped/ok"), scratch, []string{allowed})
		if err != nil {
			refused++
			if !strings.Contains(err.Error(), "symbolic link") && !strings.Contains(err.Error(), "no such file") && !errors.Is(err, unix.EAGAIN) {
				t.Fatal(err)
			}
			continue
		}
		opened++
		if id := o.Manifest.Containers[0].ID; id != "old" {
			t.Fatalf("opened the image of container %q", id)
		}
		o.Close()
	}
	t.Logf("opened %d times, refused %d times", opened, refused)
}

func TestRestoreAllowNeedsRootsFile(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	path := filepath.Join(t.TempDir(), "c.toml")
	body := []byte("restore-allow = [\"/x\"]\n")
	if err := os.WriteFile(path, body, 0o600); err != nil {
		t.Fatal(err)
	}
	options := func(o *runtimeoptions.Options) *anypb.Any {
		a, err := anyOf(o)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	if c, err := configFromOptions(options(&runtimeoptions.Options{ConfigPath: path})); err != nil || len(c.RestoreAllow) != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := configFromOptions(options(&runtimeoptions.Options{ConfigBody: body})); err == nil {
		t.Error("taken from a body")
	}
	os.Chmod(path, 0o622)
	if _, err := configFromOptions(options(&runtimeoptions.Options{ConfigPath: path})); err == nil {
		t.Error("taken from a file that all can write")
	}
	os.Chmod(path, 0o600)
	os.Chown(path, 1, 1)
	if _, err := configFromOptions(options(&runtimeoptions.Options{ConfigPath: path})); err == nil {
		t.Error("taken from another's file")
	}
}

func TestLeavePod(t *testing.T) {
	r := newRig(t)
	ctx := context.Background()
	_, err := r.Create(ctx, &taskapi.CreateTaskRequest{ID: "a", Checkpoint: writeImage(t, t.TempDir(), nil), Bundle: r.bundle("a", func(s *specs.Spec) {
		s.Annotations = map[string]string{annotationType: "container", annotationSandboxID: "gone", annotationImage: "/left/over"}
		for i := range s.Linux.Namespaces {
			if s.Linux.Namespaces[i].Type != specs.MountNamespace {
				s.Linux.Namespaces[i].Path = "/proc/4000000/ns/x"
			}
		}
	}, "sleep")})
	if err != nil {
		t.Fatal(err)
	}
	r.delete("a", "")
}

// A copy has the original's spec, cgroup path included.
func TestCopyHasItsOwnCgroup(t *testing.T) {
	orig, copied := newRig(t), newRig(t)
	ctx := context.Background()
	path := func(s *specs.Spec) { s.Linux.CgroupsPath = "/runsc-unit-test-shim/shared" }
	image := writeImage(t, t.TempDir(), nil)
	for _, r := range []*rig{orig, copied} {
		id := map[*rig]string{orig: "o", copied: "c"}[r]
		if _, err := r.Create(ctx, &taskapi.CreateTaskRequest{ID: id, Checkpoint: image, Bundle: r.bundle(id, path, "sleep")}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Start(ctx, &taskapi.StartRequest{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	var rec record
	if err := readJSON(filepath.Join(copied.dir, "c"), recordFile, &rec); err != nil || rec.Cgroup != "/runsc-unit-test-shim/shared-c" {
		t.Errorf("record %+v, %v", rec, err)
	}
	if _, err := orig.Kill(ctx, &taskapi.KillRequest{ID: "o", Signal: 9}); err != nil {
		t.Fatal(err)
	}
	orig.wait("o", "")
	orig.delete("o", "")
	if got := copied.status("c", ""); got != task.Status_RUNNING {
		t.Errorf("the copy is %s", got)
	}
	if err := readJSON(filepath.Join(orig.dir, "o"), recordFile, &rec); err != nil || !rec.Clean {
		t.Errorf("record %+v, %v", rec, err)
	}
	if _, err := copied.Kill(ctx, &taskapi.KillRequest{ID: "c", Signal: 9}); err != nil {
		t.Fatal(err)
	}
	copied.wait("c", "")
	copied.delete("c", "")
}
