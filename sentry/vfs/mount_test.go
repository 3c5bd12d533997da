package vfs_test

import (
	"fmt"
	"math/rand"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"runsc/sentry/vfs"
)

func (e *env) info() string {
	root := e.fs.Root()
	defer root.DecRef()
	var out []string
	for _, m := range e.ns.MountInfo(e.c, root) {
		out = append(out, fmt.Sprintf("%s on %s %s", m.Root, m.Point, m.Options))
	}
	return strings.Join(out, "\n")
}

func TestMounts(t *testing.T) {
	e := newEnv(t)
	e.mkdir("/m", 0o755)
	e.mkdir("/b", 0o755)
	e.write("/m/below", "x")
	e.write("/file", "file")
	e.mount("/m", unix.MS_NOSUID|unix.MS_NODEV)
	e.mkdir("/m/sub", 0o755)
	e.mkdir("/m/sub/x", 0o755)
	e.mount("/m/sub/x", 0)
	e.write("/m/sub/x/deep", "deep")
	if got := e.list("/m"); len(got) != 1 {
		t.Errorf("/m has %v", got)
	}
	if got := e.read("/m/sub/x/../../../file"); got != "file" {
		t.Errorf("up across mounts: %q", got)
	}
	if err := vfs.BindAt(e.c, e.at("/m/sub"), e.at("/b"), true); err != nil {
		t.Fatal(err)
	}
	if got := e.read("/b/x/deep"); got != "deep" {
		t.Errorf("through a recursive bind: %q", got)
	}
	if got := e.read("/b/../file"); got != "file" {
		t.Errorf("up from a bind: %q", got)
	}
	e.write("/target", "")
	if err := vfs.BindAt(e.c, e.at("/file"), e.at("/target"), false); err != nil {
		t.Fatal(err)
	}
	if got := e.read("/target"); got != "file" {
		t.Errorf("file bind: %q", got)
	}
	if err := vfs.BindAt(e.c, e.at("/file"), e.at("/b"), false); err != unix.ENOTDIR {
		t.Errorf("file on a directory: %v", err)
	}
	want := "/ on / rw,relatime\n/ on /m rw,nosuid,nodev,relatime\n/ on /m/sub/x rw,relatime\n" +
		"/sub on /b rw,nosuid,nodev,relatime\n/ on /b/x rw,relatime\n/file on /target rw,relatime"
	if got := e.info(); got != want {
		t.Errorf("mountinfo:\n%s\nwant:\n%s", got, want)
	}
	if err := vfs.UmountAt(e.c, e.at("/m"), 0); err != unix.EBUSY {
		t.Errorf("umount with a child: %v", err)
	}
	f := e.open("/b/x/deep", unix.O_RDONLY)
	if err := vfs.UmountAt(e.c, e.at("/b/x"), 0); err != unix.EBUSY {
		t.Errorf("umount with an open file: %v", err)
	}
	if err := vfs.UmountAt(e.c, e.at("/b"), unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if got := e.readFile(f); got != "deep" {
		t.Errorf("after a lazy umount: %q", got)
	}
	f.DecRef()
	if err := vfs.UmountAt(e.c, e.at("/b"), 0); err != unix.EINVAL {
		t.Errorf("umount of no mount: %v", err)
	}
	w := e.open("/m/sub/x/deep", unix.O_WRONLY)
	if err := vfs.RemountAt(e.c, e.at("/m/sub/x"), unix.MS_RDONLY, false, ""); err != unix.EBUSY {
		t.Errorf("remount with a writer: %v", err)
	}
	w.DecRef()
	if err := vfs.MoveMountAt(e.c, e.at("/m"), e.at("/b")); err != nil {
		t.Fatal(err)
	}
	if got := e.read("/b/sub/x/deep"); got != "deep" {
		t.Errorf("after a move: %q", got)
	}
	if err := vfs.MoveMountAt(e.c, e.at("/b"), e.at("/b/sub")); err != unix.ELOOP {
		t.Errorf("move into itself: %v", err)
	}
	if got := e.read("/m/below"); got != "x" {
		t.Errorf("what was covered: %q", got)
	}
}

func TestNamespaceClone(t *testing.T) {
	e := newEnv(t)
	e.mkdir("/m", 0o755)
	e.mount("/m", 0)
	e.write("/m/f", "f")
	fs := e.fs.Fork()
	if err := vfs.ChdirAt(e.c, vfs.At{FS: fs, Name: "/m"}); err != nil {
		t.Fatal(err)
	}
	ns, err := e.ns.Clone(fs)
	if err != nil {
		t.Fatal(err)
	}
	if err := vfs.UmountAt(e.c, e.at("/m"), 0); err != nil {
		t.Errorf("umount in the old namespace: %v", err)
	}
	if _, err := vfs.StatAt(e.c, vfs.At{FS: fs, Name: "f"}, 0); err != nil {
		t.Errorf("the copy lost its mount: %v", err)
	}
	fs.DecRef()
	ns.DecRef()
}

func TestPivotRoot(t *testing.T) {
	e := newEnv(t)
	e.mkdir("/new", 0o755)
	e.write("/old-file", "old")
	e.mount("/new", 0)
	e.mkdir("/new/put", 0o755)
	e.write("/new/new-file", "new")
	if err := vfs.PivotRootAt(e.c, e.at("/"), e.at("/new/put"), func(_, _ vfs.Path) {}); err != unix.EBUSY {
		t.Errorf("pivot to the root itself: %v", err)
	}
	err := vfs.PivotRootAt(e.c, e.at("/new"), e.at("/new/put"), func(o, n vfs.Path) { e.fs.Replace(o, n) })
	if err != nil {
		t.Fatal(err)
	}
	if got := e.read("/new-file"); got != "new" {
		t.Errorf("new root: %q", got)
	}
	if got := e.read("/put/old-file"); got != "old" {
		t.Errorf("old root: %q", got)
	}
	if err := vfs.UmountAt(e.c, e.at("/put"), unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if got := e.info(); got != "/ on / rw,relatime" {
		t.Errorf("mountinfo: %s", got)
	}
}

func TestChrootAndBindEscape(t *testing.T) {
	e := newEnv(t)
	e.mkdir("/jail", 0o755)
	e.mkdir("/jail/in", 0o755)
	e.mkdir("/bind", 0o755)
	e.mkdir("/out", 0o755)
	e.write("/secret", "s")
	fs := e.fs.Fork()
	defer fs.DecRef()
	if err := vfs.ChrootAt(e.c, vfs.At{FS: fs, Name: "/jail"}); err != nil {
		t.Fatal(err)
	}
	if _, err := vfs.StatAt(e.c, vfs.At{FS: fs, Name: "/../../secret"}, 0); err != unix.ENOENT {
		t.Errorf("escape from a chroot: %v", err)
	}
	// A directory that moved out of a bind mount has no way up.
	if err := vfs.BindAt(e.c, e.at("/jail"), e.at("/bind"), false); err != nil {
		t.Fatal(err)
	}
	if err := vfs.ChdirAt(e.c, vfs.At{FS: fs, Name: "/in"}); err != nil {
		t.Fatal(err)
	}
	p, err := vfs.LookupAt(e.c, e.at("/bind/in"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.DecRef()
	if err := vfs.RenameAt(e.c, e.at("/jail/in"), e.at("/out/in"), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := vfs.LookupAt(e.c, vfs.At{FS: e.fs, Dir: p, Name: "../secret"}); err != unix.ENOENT {
		t.Errorf("escape from a bind mount: %v", err)
	}
}

// TestRenameStress walks while others rename, remove, mount and unmount. It
// looks for panics, deadlocks and, by newEnv, for leaks.
func TestRenameStress(t *testing.T) {
	for name, flag := range map[string]uint32{"private": unix.MS_PRIVATE, "shared": unix.MS_SHARED} {
		t.Run(name, func(t *testing.T) { renameStress(t, flag) })
	}
}

func renameStress(t *testing.T, flag uint32) {
	e := newEnv(t)
	if err := vfs.SetPropagationAt(e.c, e.at("/"), flag, false); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		e.mkdir(fmt.Sprintf("/d%d", i), 0o755)
		e.mkdir(fmt.Sprintf("/d%d/s", i), 0o755)
	}
	e.mkdir("/m", 0o755)
	e.mount("/m", 0)
	var wg sync.WaitGroup
	for w := range 6 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			c := newTask(0)
			fs := e.fs.Fork()
			defer fs.DecRef()
			at := func(n string) vfs.At { return vfs.At{FS: fs, Name: n} }
			rng := rand.New(rand.NewSource(int64(w)))
			dir := func() string {
				s := fmt.Sprintf("/d%d", rng.Intn(4))
				for range rng.Intn(3) {
					s += "/s"
				}
				return s
			}
			for range 1200 {
				switch rng.Intn(10) {
				case 0, 1:
					_ = vfs.RenameAt(c, at(dir()), at(dir()+"/s"), 0)
				case 2:
					_ = vfs.RenameAt(c, at(dir()), at(dir()), unix.RENAME_EXCHANGE)
				case 3:
					_ = vfs.MkdirAt(c, at(dir()), 0o755)
				case 4:
					_ = vfs.RmdirAt(c, at(dir()))
				case 5:
					_ = vfs.ChdirAt(c, at(dir()))
				case 6:
					_, _ = vfs.StatAt(c, at("../../s/../s"), 0)
				case 7:
					if f, err := vfs.OpenAt(c, at(dir()+"/f"), unix.O_CREAT|unix.O_RDWR, 0o600); err == nil {
						root := fs.Root()
						_ = f.Path().String(root)
						root.DecRef()
						f.DecRef()
					}
					_ = vfs.UnlinkAt(c, at(dir()+"/f"))
				case 8:
					if rng.Intn(60) == 0 {
						if ns, err := e.ns.Clone(nil); err == nil {
							defer ns.DecRef()
						}
					}
					if err := vfs.BindAt(c, at(dir()), at("/m"), flag == unix.MS_PRIVATE); err == nil {
						_, _ = vfs.StatAt(c, at("/m/s/../.."), 0)
						_ = vfs.UmountAt(c, at("/m"), unix.MNT_DETACH)
					}
				case 9:
					if rng.Intn(20) == 0 {
						vfs.DropCaches()
					}
				}
			}
		}()
	}
	wg.Wait()
}

func TestPropagation(t *testing.T) {
	e := newEnv(t)
	for _, d := range []string{"/src", "/peer", "/slave", "/private"} {
		e.mkdir(d, 0o755)
	}
	prop := func(path string, flag uint32) {
		t.Helper()
		if err := vfs.SetPropagationAt(e.c, e.at(path), flag, false); err != nil {
			t.Fatal(err)
		}
	}
	bind := func(from, to string) {
		t.Helper()
		if err := vfs.BindAt(e.c, e.at(from), e.at(to), false); err != nil {
			t.Fatal(err)
		}
	}
	e.mount("/src", 0)
	prop("/src", unix.MS_SHARED)
	e.mkdir("/src/m", 0o755)
	e.mkdir("/src/n", 0o755)
	bind("/src", "/peer")
	bind("/src", "/slave")
	bind("/src", "/private")
	prop("/slave", unix.MS_SLAVE)
	prop("/private", unix.MS_PRIVATE)

	e.mount("/peer/m", 0)
	e.write("/peer/m/f", "x")
	for path, want := range map[string]bool{"/src/m/f": true, "/slave/m/f": true, "/private/m/f": false} {
		if _, err := vfs.StatAt(e.c, e.at(path), 0); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
	// What is mounted on a slave stays there.
	e.mount("/slave/n", 0)
	e.write("/slave/n/f", "x")
	if _, err := vfs.StatAt(e.c, e.at("/src/n/f"), 0); err != unix.ENOENT {
		t.Errorf("a slave's mount got to its master: %v", err)
	}
	root := e.fs.Root()
	var opt []string
	for _, m := range e.ns.MountInfo(e.c, root) {
		opt = append(opt, m.Point+" "+strings.Join(m.Optional, " "))
	}
	root.DecRef()
	got := strings.Join(opt, ",")
	for _, want := range []string{"/src shared:", "/slave master:", "/slave/m master:", "/private ,", "/peer/m shared:"} {
		if !strings.Contains(got+",", want) {
			t.Errorf("mountinfo lacks %q: %s", want, got)
		}
	}
	f := e.open("/slave/m/f", unix.O_RDONLY)
	if err := vfs.UmountAt(e.c, e.at("/src/m"), 0); err != unix.EBUSY {
		t.Errorf("umount with a busy copy: %v", err)
	}
	f.DecRef()
	if err := vfs.UmountAt(e.c, e.at("/src/m"), 0); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/src/m/f", "/peer/m/f", "/slave/m/f"} {
		if _, err := vfs.StatAt(e.c, e.at(path), 0); err != unix.ENOENT {
			t.Errorf("%s after umount: %v", path, err)
		}
	}
	// A namespace cloned from this one hears of it.
	fs := e.fs.Fork()
	ns, err := e.ns.Clone(fs)
	if err != nil {
		t.Fatal(err)
	}
	e.mount("/src/m", 0)
	e.write("/src/m/g", "x")
	if _, err := vfs.StatAt(e.c, vfs.At{FS: fs, Name: "/src/m/g"}, 0); err != nil {
		t.Errorf("the cloned namespace did not hear: %v", err)
	}
	fs.DecRef()
	ns.DecRef()
	prop("/private", unix.MS_UNBINDABLE)
	if err := vfs.BindAt(e.c, e.at("/private"), e.at("/private/n"), false); err != unix.EINVAL {
		t.Errorf("bind of an unbindable mount: %v", err)
	}
}

// TestSharedIntoItself binds a shared tree below itself: the copy must not
// get copies of itself without end.
func TestSharedIntoItself(t *testing.T) {
	e := newEnv(t)
	e.mkdir("/a", 0o755)
	e.mkdir("/a/b", 0o755)
	if err := vfs.SetPropagationAt(e.c, e.at("/"), unix.MS_SHARED, true); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := vfs.BindAt(e.c, e.at("/"), e.at("/a/b"), true); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(e.info(), "\n") + 1; n < 4 || n > 64 {
		t.Errorf("%d mounts", n)
	}
	if err := vfs.UmountAt(e.c, e.at("/a/b"), unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
}
