//go:build system

package system

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"runsc/test/rig"
)

// carryPatience is for all cases of the program carry at once, on a busy machine.
const carryPatience = 120 * time.Second

// passed is the last line of a run of carry in which no case failed.
var passed = regexp.MustCompile(`(?m)^(\d+) passed, 0 failed, (\d+) skipped\n\z`)

// notHere are the cases that our kernel skips, and why.
var notHere = map[string]string{
	"fd_pipe_packets": "pipe2 with O_DIRECT is EINVAL",
	"fd_owner":        "O_ASYNC is kept, but sends no signal",
}

var skippedCase = regexp.MustCompile(`(?m)^SKIP (\w+):`)

// judge checks what carry wrote in the end.
func judge(t *testing.T, where, out string) {
	t.Helper()
	if !passed.MatchString(out) {
		t.Errorf("%s:\n%s", where, out)
	}
	for _, m := range skippedCase.FindAllStringSubmatch(out, -1) {
		if where != "host" && notHere[m[1]] == "" {
			t.Errorf("%s: %s is skipped", where, m[1])
		}
	}
}

// carrying starts carry in a container and returns when all cases are set up.
func carrying(t *testing.T, p place, only []string) string {
	t.Helper()
	id := detached(t, rig.Container{Image: rig.Guest, Flags: append(carryFlags, p.flags...), Args: append([]string{"/guest/carry", "-o", "/go", "/go/go"}, only...)})
	await(t, "the cases of "+id, carryPatience, func() bool { return strings.Contains(R.Output(id), "ready\n") })
	if out := R.Output(id); strings.Contains(out, "FAIL") {
		t.Errorf("before the checkpoint:\n%s", out)
	}
	return id
}

// again is a second place for a container restored from an image in p: what of the host the image does not carry
// is there as it was.
func (p place) again(t *testing.T) place {
	t.Helper()
	q := newPlace(t)
	if err := os.CopyFS(filepath.Join(q.dir, "go"), os.DirFS(filepath.Join(p.dir, "go"))); err != nil {
		t.Fatal(err)
	}
	q.file(t, "runsc.toml", "restore-allow = [\""+p.dir+"\"]\n")
	return q
}

var carryFlags = []string{"--cap-add", "CAP_SYS_ADMIN"}

// TestCarry runs each case of the program carry, all of them at once: on the host, in a container, and in a container
// that is restored from a checkpoint made when all was set up. That one is restored twice at once; a third copy is
// saved again while its memory comes, and restored from that. Each run finds its state as it left it.
func TestCarry(t *testing.T) {
	begin(t)
	only := strings.Fields(os.Getenv("CARRY")) // cases, instead of all
	t.Run("host", func(t *testing.T) { carryOnHost(t, only) })
	t.Run("not saved", func(t *testing.T) {
		p := newPlace(t)
		p.letGo(t)
		c := rig.Container{Runtime: runtime, Image: rig.Guest, Flags: append(carryFlags, p.flags...), Args: append([]string{"/guest/carry", "-o", "/go", "/go/go"}, only...), Timeout: carryPatience}
		res := R.Run(c)
		judge(t, "container", res.Stdout+res.Stderr)
	})
	t.Run("restored", func(t *testing.T) {
		p := newPlace(t)
		id := carrying(t, p, only)
		ok(t, R.Ctr("task", "checkpoint", "--exit", "--image-path", p.img(1), id))
		R.Remove(id)
		ok(t, image("verify", p.img(1)))
		places := []place{p, p.again(t), p.again(t)}
		images := []string{p.img(1), p.img(1), p.img(2)}
		restored := func(n int, img string) rig.Container {
			c := places[n].restored(img)
			c.Image, c.Timeout, c.Flags = rig.Guest, carryPatience, append(carryFlags, c.Flags...)
			return c
		}
		id = detached(t, restored(2, p.img(1)))
		ok(t, R.Ctr("task", "checkpoint", "--exit", "--image-path", p.img(2), id))
		R.Remove(id)
		var all sync.WaitGroup
		for n, img := range images {
			places[n].letGo(t)
			all.Go(func() {
				res := R.Run(restored(n, img))
				judge(t, filepath.Base(img), res.Stdout+res.Stderr)
			})
		}
		all.Wait()
	})
}

// carryOnHost shows that the cases are right: Linux passes them.
func carryOnHost(t *testing.T, only []string) {
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(context.Background(), carryPatience)
	defer cancel()
	tools, err := rig.Tools()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(tools, "guest", "carry"), append([]string{"-o", dir, filepath.Join(dir, "go")}, only...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	time.AfterFunc(500*time.Millisecond, func() { os.WriteFile(filepath.Join(dir, "go"), nil, 0o644) })
	out, _ := cmd.Output() // its last line says whether it failed
	judge(t, "host", string(out))
}
