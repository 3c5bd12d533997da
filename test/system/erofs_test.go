//go:build system

package system

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"runsc/test/rig"
)

// erofsImage makes an EROFS image of a container image's files and returns its path.
func erofsImage(t *testing.T, name, dir string) string {
	t.Helper()
	tree := filepath.Join(t.TempDir(), "tree")
	if err := os.Mkdir(tree, 0o755); err != nil {
		t.Fatal(err)
	}
	ok(t, R.Ctr("images", "mount", name, tree))
	defer R.Ctr("images", "unmount", "--rm", tree)
	out := filepath.Join(dir, "root.erofs")
	ok(t, R.Exec(rig.DefaultTimeout, nil, "mkfs.erofs", "-d1", out, tree))
	return out
}

// TestErofsRoot runs containers whose root is an EROFS image that annotations name, and checkpoints one.
func TestErofsRoot(t *testing.T) {
	begin(t)
	p := newPlace(t)
	config := func(more string) {
		p.file(t, "runsc.toml", fmt.Sprintf("restore-allow = [%q]\nrootfs-allow = [%q]\n%s", p.dir, p.dir, more))
	}
	config("")
	root := erofsImage(t, rig.Guest, p.dir)
	with := func(source string) []string {
		return append([]string{"--annotation", "dev.runsc.rootfs.type=erofs", "--annotation", "dev.runsc.rootfs.source=" + source}, p.flags...)
	}
	// The container image that containerd mounts has no part in it: busybox lacks /guest.
	c := rig.Container{Runtime: runtime, Flags: with(root)}
	c.Args = sh("ls -d /guest; echo new > /etc/new; cat /etc/new; rm /etc/passwd; ls /etc/passwd 2>/dev/null; mount | head -n 1; find / -xdev | wc -l > /dev/null && md5sum < /bin/busybox")
	want := ok(t, R.Run(rig.Container{Runtime: runtime, Image: rig.Guest, Args: sh("md5sum < /bin/busybox")})).Stdout
	if res := R.Run(c); res.Code != 0 || res.Stdout != "/guest\nnew\noverlay on / type overlay (rw,relatime)\n"+want {
		t.Errorf("with an upper layer: %s", res)
	}
	config("overlay2 = \"none\"\n")
	c.Args = sh("echo x > /etc/new; mount | head -n 1; md5sum < /bin/busybox; ls /etc/passwd")
	c.Flags = c.Flags[:len(c.Flags)-2] // the image has no /go to mount on
	if res := R.Run(c); res.Code != 0 || res.Stdout != "none on / type erofs (ro,relatime)\n"+want+"/etc/passwd\n" || !strings.Contains(res.Stderr, "Read-only file system") {
		t.Errorf("without: %s", res)
	}

	// In the middle of something: a program of the image, files open, read in half, mapped, a directory read in half.
	config("")
	id := detached(t, rig.Container{Flags: with(root), Args: sh(prelude + "cd /etc; exec 3< /bin/busybox; head -c 100000 <&3 > /dev/null; exec 4< passwd; rm passwd; echo w > group; " +
		"find /guest /bin \\( -name checkpoint -exec sh -c 'echo ready >&2; until [ -e /go/go ]; do sleep 0.02; done' \\; \\) -o -print | wc -l > /count; " +
		"cat /count; md5sum <&3; wc -l <&4; cat group; pwd; ls passwd 2>/dev/null; mount | head -n 1; exit 7")})
	awaitOutput(t, id, "ready")
	first := R.Run(rig.Container{Runtime: runtime, Flags: with(root), Args: sh("find /guest /bin -name checkpoint -o -print | wc -l; tail -c +100001 /bin/busybox | md5sum; wc -l < /etc/passwd")})
	ok(t, R.Ctr("task", "checkpoint", "--image-path", p.img(1), id))
	ok(t, image("verify", p.img(1)))
	R.Remove(id)
	p.letGo(t)
	restored := func(source string) rig.Result {
		r := p.restored(p.img(1))
		r.Flags = append(with(source), r.Flags[:2]...)
		return R.Run(r)
	}
	if res := restored(root); res.Code != 7 || res.Stdout != first.Stdout+"w\n/etc\noverlay on / type overlay (rw,relatime)\n" {
		t.Errorf("restored: %s\nwant %q first", res, first.Stdout)
	}
	// Another image, or none, is not what it had.
	other := filepath.Join(p.dir, "other.erofs")
	os.Mkdir(filepath.Join(p.dir, "tree"), 0o755)
	ok(t, R.Exec(rig.DefaultTimeout, nil, "mkfs.erofs", "-d1", other, filepath.Join(p.dir, "tree")))
	if res := restored(other); res.Code == 0 || !strings.Contains(res.Stderr, "not the EROFS image") {
		t.Errorf("restored over another image: %s", res)
	}
	if res := R.Run(p.restored(p.img(1))); res.Code == 0 || !strings.Contains(res.Stderr, "it was an EROFS image") {
		t.Errorf("restored over a directory: %s", res)
	}

	// What is refused, each in a sentence.
	text := p.file(t, "text", strings.Repeat("text ", 1000))
	os.Symlink(root, filepath.Join(p.dir, "link"))
	for _, tt := range []struct{ source, says string }{
		{text, "no EROFS image"},
		{p.dir + "/go", "not a regular file"},
		{p.dir + "/link", "symbolic link"},
		{p.dir + "/none", "no such file"},
		{"/etc/passwd", "rootfs-allow"},
		{p.dir + "/../x", "clean absolute path"},
	} {
		if res := R.Run(rig.Container{Runtime: runtime, Flags: with(tt.source), Args: sh("true")}); res.Code == 0 || !strings.Contains(res.Stderr, tt.says) || strings.Count(res.Stderr, "\n") != 1 {
			t.Errorf("%s: %s", tt.source, res)
		}
	}
	p.file(t, "runsc.toml", "")
	if res := R.Run(rig.Container{Runtime: runtime, Flags: with(root), Args: sh("true")}); res.Code == 0 || !strings.Contains(res.Stderr, "rootfs-allow") {
		t.Errorf("without rootfs-allow: %s", res)
	}
}

// TestErofsSnapshotter runs a container on the snapshotter of containerd that keeps layers as EROFS images; containerd
// mounts them, where the host's kernel can.
func TestErofsSnapshotter(t *testing.T) {
	begin(t)
	filesystems, _ := os.ReadFile("/proc/filesystems")
	if !strings.Contains(string(filesystems), "\terofs\n") {
		return // the plugin does not load
	}
	p := newPlace(t)
	flags := append([]string{"--snapshotter", "erofs"}, p.flags...)
	id := detached(t, rig.Container{Flags: flags, Args: sh(prelude + "exec 3< /bin/busybox; echo ready; hold; md5sum <&3; echo x > /new && cat /new")})
	awaitOutput(t, id, "ready")
	saveInto(t, id, p.img(1)) // ctr task checkpoint goes on to a diff, which this snapshotter has none of
	R.Remove(id)
	p.letGo(t)
	r := p.restored(p.img(1))
	r.Flags = append(r.Flags, "--snapshotter", "erofs")
	want := ok(t, R.Run(rig.Container{Runtime: runtime, Args: sh("md5sum < /bin/busybox; echo x")})).Stdout
	if res := R.Run(r); res.Stdout != want {
		t.Errorf("restored: %s", res)
	}
	if res := R.Run(rig.Container{Runtime: runtime, Flags: append(flags, "--read-only"), Args: sh("md5sum < /bin/busybox; echo x; echo y > /new")}); res.Stdout != want || res.Code == 0 {
		t.Errorf("read-only: %s", res)
	}
}
