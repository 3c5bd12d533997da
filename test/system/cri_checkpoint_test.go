//go:build system

package system

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"runsc/pkg/imagefmt"
	"runsc/test/rig"
)

// criApp makes and starts a container of a pod through CRI. Its log is <name>.log in the pod's directory.
func criApp(t *testing.T, pod, podConfig, name string, annotations map[string]string, command ...string) string {
	t.Helper()
	config := writeJSON(t, filepath.Join(filepath.Dir(podConfig), name+".json"), map[string]any{
		"metadata":    map[string]any{"name": name, "attempt": 1},
		"image":       map[string]any{"image": rig.Busybox},
		"log_path":    name + ".log",
		"command":     command,
		"annotations": annotations,
		"linux":       map[string]any{},
	})
	id := strings.TrimSpace(ok(t, R.Crictl("create", pod, config, podConfig)).Stdout)
	ok(t, R.Crictl("start", id))
	return id
}

// criOutput is what the container's log holds, without CRI's stamps.
func criOutput(podConfig, name string) string {
	data, _ := os.ReadFile(filepath.Join(filepath.Dir(podConfig), name+".log")) // not there yet
	var b strings.Builder
	for line := range strings.Lines(string(data)) {
		if f := strings.SplitN(line, " ", 4); len(f) == 4 { // time, stream, full or partial
			b.WriteString(f[3])
		}
	}
	return b.String()
}

// criCounts waits until a counting container is past a number.
func criCounts(t *testing.T, podConfig, name string, beyond int) (n int) {
	t.Helper()
	await(t, fmt.Sprintf("%s counts past %d", name, beyond), 20*time.Second, func() bool {
		n = last(criOutput(podConfig, name))
		return n > beyond
	})
	return n
}

// entries lists an archive.
func entries(t *testing.T, file string) map[string]int64 {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m := map[string]int64{}
	for tr := tar.NewReader(f); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return m
		}
		if err != nil {
			t.Fatal(err)
		}
		m[h.Name] = h.Size
	}
}

// TestCRICheckpoint exports a container of a pod with crictl and restores it from the archive in another pod, by
// annotation: first beside the original, then from an archive of that copy, with both gone.
func TestCRICheckpoint(t *testing.T) {
	begin(t)
	dir := t.TempDir()
	allow := filepath.Join(R.Dir, "w", "restore.toml") // config.toml's handler "restore" names it
	if err := os.WriteFile(allow, fmt.Appendf(nil, "restore-allow = [%q]\n", dir), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(allow) })

	pod, config := criPod(t, handler())
	id := criApp(t, pod, config, "web", nil, "sh", "-c", "echo kept > /root/f; export V=kept; trap 'echo leaving; exit 6' TERM; "+counting)
	n := criCounts(t, config, "web", 5)
	archive := filepath.Join(dir, "web.tar")
	ok(t, R.Crictl("checkpoint", "--export", archive, id))
	m := entries(t, archive)
	for _, name := range append([]string{imagefmt.ManifestFile}, imagefmt.StateFiles[:]...) {
		if m["checkpoint/"+name] == 0 {
			t.Errorf("the archive lacks checkpoint/%s: %v", name, m)
		}
	}
	criCounts(t, config, "web", n) // it goes on
	ok(t, R.Crictl("exec", "-s", id, "true"))

	from := func(archive string) map[string]string { return map[string]string{"dev.runsc.restore-image": archive} }
	pod2, config2 := criPod(t, "restore")
	id2 := criApp(t, pod2, config2, "copy", from(archive), "false")
	if first := strings.Fields(criOutput(config2, "copy")); len(first) > 0 && first[0] == "1" {
		t.Errorf("the copy began anew: %v", first)
	}
	n2 := criCounts(t, config2, "copy", n)
	criCounts(t, config, "web", last(criOutput(config, "web"))) // both go on
	if res := ok(t, R.Crictl("exec", "-s", id2, "cat", "/root/f")); strings.TrimSpace(res.Stdout) != "kept" {
		t.Errorf("exec in the copy: %s", res)
	}
	ok(t, R.Crictl("stats", id2))
	if res := ok(t, R.Crictl("inspect", "-o", "go-template", "--template", "{{.status.state}} {{.info.pid}}", id2)); !strings.HasPrefix(res.Stdout, "CONTAINER_RUNNING ") || strings.HasSuffix(strings.TrimSpace(res.Stdout), " 0") {
		t.Errorf("inspect: %s", res)
	}

	// The original goes, the copy stays and is saved again.
	ok(t, R.Crictl("rmp", "-f", pod))
	n2 = criCounts(t, config2, "copy", n2)
	again := filepath.Join(dir, "again.tar")
	ok(t, R.Crictl("checkpoint", "--export", again, id2))
	ok(t, R.Crictl("rmp", "-f", pod2))
	pod3, config3 := criPod(t, "restore")
	id3 := criApp(t, pod3, config3, "third", from(again), "false")
	criCounts(t, config3, "third", n2)
	ok(t, R.Crictl("stop", "-t", "10", id3))
	res := ok(t, R.Crictl("inspect", "-o", "go-template", "--template", "{{.status.exitCode}}", id3))
	if out := criOutput(config3, "third"); strings.TrimSpace(res.Stdout) != "6" || !strings.HasSuffix(out, "leaving\n") {
		t.Errorf("stopped with %s, its last words are %q", res, out[max(0, len(out)-40):])
	}
	ok(t, R.Crictl("rm", id3))

	// Not through a handler that passes no annotations on: there the command is what runs.
	plain, plainConfig := criPod(t, handler())
	criApp(t, plain, plainConfig, "plain", from(archive), "echo", "fresh")
	await(t, "the command", 10*time.Second, func() bool { return criOutput(plainConfig, "plain") == "fresh\n" })
	ok(t, R.Crictl("rmp", "-f", plain))

	// A container that is not there to be restored is refused, and the pod lives on.
	bad := writeJSON(t, filepath.Join(filepath.Dir(config3), "bad.json"), map[string]any{
		"metadata": map[string]any{"name": "bad", "attempt": 1}, "image": map[string]any{"image": rig.Busybox},
		"command": []string{"true"}, "annotations": from("/etc/passwd"), "linux": map[string]any{},
	})
	badID := strings.TrimSpace(ok(t, R.Crictl("create", pod3, bad, config3)).Stdout)
	if res := R.Crictl("start", badID); res.Code == 0 || !strings.Contains(res.Stderr, "restore-allow") {
		t.Errorf("an image elsewhere: %s", res)
	}
	if res := ok(t, R.Crictl("inspectp", pod3)); !strings.Contains(res.Stdout, "SANDBOX_READY") {
		t.Errorf("the pod after a refused restore: %s", res)
	}
}
