//go:build system

package system

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"runsc/pkg/imagefmt"
	"runsc/test/rig"
)

// TestDamagedImage restores images with something wrong: each is refused in one sentence that names it, and
// nothing is left of the container.
func TestDamagedImage(t *testing.T) {
	begin(t)
	p := newPlace(t)
	id := detached(t, rig.Container{Flags: p.flags, Args: sh("echo ready; sleep 1000")})
	awaitOutput(t, id, "ready")
	ok(t, R.Ctr("task", "checkpoint", "--exit", "--image-path", p.img(1), id))
	R.Remove(id)
	edit := func(change func(m map[string]any)) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			file := filepath.Join(dir, imagefmt.ManifestFile)
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			m := map[string]any{}
			if err := json.Unmarshal(data, &m); err != nil {
				t.Fatal(err)
			}
			change(m)
			data, _ = json.Marshal(m)
			if err := os.WriteFile(file, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	flip := func(name string, off int64) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if off < 0 {
				off += int64(len(data))
			}
			data[off] ^= 0x10
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	tests := []struct {
		name   string
		damage func(t *testing.T, dir string)
		says   string
	}{
		{"no manifest", func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, imagefmt.ManifestFile)) }, "incomplete"},
		{"no pages", func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, imagefmt.PagesFile)) }, imagefmt.PagesFile},
		{"cut off", func(t *testing.T, dir string) { os.Truncate(filepath.Join(dir, imagefmt.PagesFile), 4096) }, "cut off"},
		{"newer", edit(func(m map[string]any) { m["format"] = 99 }), "format 99"},
		{"foreign", edit(func(m map[string]any) { m["magic"] = "other" }), "not that of a checkpoint image"},
		{"other architecture", edit(func(m map[string]any) { m["arch"] = "riscv64" }), "riscv64"},
		{"processor feature", edit(func(m map[string]any) { m["cpuFeatures"] = []string{"nosuchfeature"} }), "nosuchfeature"},
		{"damaged manifest", flip(imagefmt.ManifestFile, 0), imagefmt.ManifestFile},
		{"damaged record", flip(imagefmt.KernelFile, 200), "damaged"},
		{"damaged index", flip(imagefmt.IndexFile, 40), "damaged"},
		{"link", func(t *testing.T, dir string) {
			os.Remove(filepath.Join(dir, imagefmt.KernelFile))
			os.Symlink("/etc/passwd", filepath.Join(dir, imagefmt.KernelFile))
		}, imagefmt.KernelFile},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "img")
			if err := os.CopyFS(dir, os.DirFS(p.img(1))); err != nil {
				t.Fatal(err)
			}
			tt.damage(t, dir)
			q := p
			q.flags = append([]string{"--runtime-config-path", q.file(t, "runsc.toml", "restore-allow = [\""+filepath.Dir(dir)+"\"]\n")}, p.flags[2:]...)
			res := R.Run(q.restored(dir))
			if res.Code == 0 || res.TimedOut || !strings.Contains(res.Stderr, tt.says) || strings.Count(res.Stderr, "\n") != 1 {
				t.Errorf("%s\nwant one line with %q", res, tt.says)
			}
			if res := image("verify", dir); tt.name != "processor feature" && tt.name != "other architecture" && (res.Code != 1 || strings.Count(res.Stderr, "\n") != 1) {
				t.Errorf("verify: %s", res)
			}
		})
	}
	t.Run("damaged page", func(t *testing.T) {
		flip(imagefmt.PagesFile, -100)(t, p.img(1))
		p.file(t, "runsc.toml", "restore-allow = [\""+p.dir+"\"]\n")
		// Found late: the container ends, whatever it was doing.
		if res := R.Run(p.restored(p.img(1))); res.Code == 0 || res.TimedOut {
			t.Errorf("restored: %s", res)
		}
		if res := image("verify", p.img(1)); res.Code != 1 || !strings.Contains(res.Stderr, "pages.img is damaged") {
			t.Errorf("verify: %s", res)
		}
	})
}

// TestForbiddenImage names images by annotation that no configuration allows.
func TestForbiddenImage(t *testing.T) {
	begin(t)
	p := newPlace(t)
	os.Mkdir(filepath.Join(p.dir, "d"), 0o755)
	os.Symlink("/etc", filepath.Join(p.dir, "link"))
	for _, tt := range []struct{ name, path string }{
		{"elsewhere", "/etc"},
		{"upwards", p.dir + "/../../etc"},
		{"relative", "d"},
		{"through a link", p.dir + "/link"},
	} {
		if res := R.Run(p.restored(tt.path)); res.Code == 0 || res.TimedOut || strings.Count(res.Stderr, "\n") != 1 {
			t.Errorf("%s: %s", tt.name, res)
		}
	}
	p.file(t, "runsc.toml", "")
	if res := R.Run(p.restored(p.dir + "/d")); res.Code == 0 || !strings.Contains(res.Stderr, "restore-allow") {
		t.Errorf("without restore-allow: %s", res)
	}
}

// TestCheckpointFault saves where it cannot be done: the error says why, the container goes on, no manifest is
// left, and a later save works.
func TestCheckpointFault(t *testing.T) {
	begin(t)
	p := newPlace(t)
	id := detached(t, rig.Container{Flags: p.flags, Args: sh("head -c 4000000 /dev/urandom > /tmp/f; " + counting)})
	n := counts(t, id, 3)
	mount := func(t *testing.T, options string) string {
		dir := t.TempDir()
		if err := syscall.Mount("none", dir, "tmpfs", 0, options); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
		return dir
	}
	tests := []struct {
		name string
		dir  func(t *testing.T) string
		says string
	}{
		{"full", func(t *testing.T) string { return mount(t, "size=65536") }, "no space left"},
		{"full at once", func(t *testing.T) string { return mount(t, "nr_inodes=2") }, "no space left"},
		{"read-only", func(t *testing.T) string { return mount(t, "ro") }, "read-only"},
		{"not empty", func(t *testing.T) string { return p.dir }, "not empty"},
		{"a file", func(t *testing.T) string { return p.file(t, "file", "") }, "not a directory"},
		{"below a file", func(t *testing.T) string { return p.file(t, "file", "") + "/x" }, "not a directory"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := tt.dir(t)
			for _, flags := range [][]string{nil, {"--exit"}} {
				args := append([]string{"task", "checkpoint", "--image-path", dir}, flags...)
				res := R.Ctr(append(args, id)...)
				if res.Code == 0 || !strings.Contains(res.Stderr, tt.says) || strings.Count(res.Stderr, "\n") != 1 {
					t.Errorf("%s\nwant %q", res, tt.says)
				}
				if _, err := os.Stat(filepath.Join(dir, imagefmt.ManifestFile)); err == nil {
					t.Error("a manifest is left")
				}
				n = counts(t, id, n)
			}
		})
	}
	if s := R.Status(id); s != "RUNNING" {
		t.Errorf("the container is %s", s)
	}
	ok(t, R.Ctr("task", "checkpoint", "--image-path", p.img(1), id))
	if res := R.Ctr("task", "checkpoint", "--image-path", p.img(1), id); res.Code == 0 || !strings.Contains(res.Stderr, "complete image") {
		t.Errorf("over an image: %s", res)
	}
	ok(t, image("verify", p.img(1)))
}
