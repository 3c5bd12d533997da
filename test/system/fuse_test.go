//go:build system

package system

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"runsc/test/rig"
)

// fuseGuest runs the server and its client in a container.
func fuseGuest(flags []string, mode ...string) rig.Container {
	return rig.Container{Runtime: runtime, Image: rig.Guest, Flags: append([]string{"--cap-add", "CAP_SYS_ADMIN"}, flags...),
		Args: append([]string{"/guest/fuse"}, mode...), Timeout: 40 * time.Second}
}

// TestFuse serves a file system from inside the container. The same program passes natively.
func TestFuse(t *testing.T) {
	begin(t)
	// /dev/fuse is not there on every host; the program needs it for the native run alone.
	if _, err := os.Stat("/dev/fuse"); err == nil {
		cmd := exec.Command(filepath.Join(os.Getenv("RIG_DIR"), "guest", "fuse"), "check")
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != "ok\n" {
			t.Errorf("natively: %v: %s", err, out)
		}
	}
	if res := R.Run(fuseGuest(nil, "check")); res.Code != 0 || res.Stdout != "ok\n" {
		t.Errorf("%s", res)
	}
}

// TestFuseCheckpoint saves a server and its clients, one of whom waits for an answer. The copy and the original
// both go on.
func TestFuseCheckpoint(t *testing.T) {
	begin(t)
	p := newPlace(t)
	c := fuseGuest(p.flags, "checkpoint", "/go/go")
	id := detached(t, c)
	awaitOutput(t, id, "ready")
	ok(t, R.Ctr("task", "checkpoint", "--image-path", p.img(1), id))
	p.letGo(t)
	await(t, "the original's end", 30*time.Second, func() bool { return R.Output(id) == "ready\nok\n" })
	R.Remove(id)
	r := p.restored(p.img(1))
	r.Image, r.Flags = rig.Guest, append(r.Flags, "--cap-add", "CAP_SYS_ADMIN")
	if res := R.Run(r); res.Code != 0 || res.Stdout != "ok\n" {
		t.Errorf("restored: %s", res)
	}
}
