package vfs_test

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"runsc/sentry/fs/overlay"
	"runsc/sentry/fs/pseudo"
	"runsc/sentry/vfs"
)

// procs is a directory whose entries appear when ready is set.
type procs struct{ ready *bool }

func (procs) Info(vfs.Caller) (pseudo.Info, error) {
	return pseudo.Info{Mode: unix.S_IFDIR | 0o555}, nil
}

func (p procs) Lookup(_ vfs.Caller, name string) (pseudo.Node, error) {
	if !*p.ready || name != "7" {
		return nil, unix.ENOENT
	}
	return pseudo.TreeDir[int]{Owner: 7, Tree: procTree}, nil
}

func (procs) Each(vfs.Caller, int64, func(string, uint8, int64) bool) error { return nil }

// TestSaveProcess opens files of a process, which is not there yet when they
// are restored.
func TestSaveProcess(t *testing.T) {
	w := pair(t, nil)
	ready := true
	w.must(vfs.MkdirAt(w.c, w.at("/procs"), 0o755))
	w.must(vfs.MountAt(w.c, w.at("/procs"), pseudo.New(pseudo.Options{Type: "procs", Root: procs{&ready}}), 0))
	file := w.install(w.open("/procs/7/hello", unix.O_RDONLY))
	if s := w.read(w.get(file), 6); s != "hello " {
		t.Errorf("read %q", s)
	}
	dir := w.install(w.open("/procs/7", unix.O_RDONLY|unix.O_DIRECTORY))
	w.must(vfs.ChdirAt(w.c, w.at("/procs/7")))
	s := w.save(false)

	n := newWorld(t, w.root, w.vol)
	t.Cleanup(n.close)
	there := false
	n.newFS = func(typ, source, options string) (vfs.Filesystem, error) {
		if typ == "procs" {
			return pseudo.New(pseudo.Options{Type: "procs", Root: procs{&there}}), nil
		}
		return newProc(typ, source, options)
	}
	n.restore(s)
	there = true
	if s := n.read(n.get(file), 100); s != "world 7\n" {
		t.Errorf("read %q", s)
	}
	if l := n.names(n.get(dir), 10); len(l) != 3 || !strings.HasPrefix(l[2], "hello ") {
		t.Errorf("listed %q", l)
	}
	if s := n.readFile("hello"); s != "hello world 7\n" {
		t.Errorf("read %q by the working directory", s)
	}
}

// withFS gives mount(2) of an overlay the context it looks names up in.
type withFS struct {
	*task
	fs *vfs.FSContext
}

func (w withFS) FS() *vfs.FSContext { return w.fs }

// TestSaveGuestOverlay mounts an overlay of directories of other mounts.
func TestSaveGuestOverlay(t *testing.T) {
	w := pair(t, func(root, vol string) {
		hostFile(t, root+"/low/a", "lower a")
		hostFile(t, root+"/low/b", "lower b")
	})
	for _, d := range []string{"/tmp/up", "/tmp/work", "/merged"} {
		w.must(vfs.MkdirAt(w.c, w.at(d), 0o755))
	}
	fs, err := overlay.FSType().New(withFS{w.c, w.fs}, "over", "lowerdir=/low,upperdir=/tmp/up,workdir=/tmp/work", 0)
	w.must(err)
	w.must(vfs.MountAt(w.c, w.at("/merged"), fs, 0))
	w.writeFile("/merged/a", "changed")
	w.must(vfs.UnlinkAt(w.c, w.at("/merged/b")))
	w.writeFile("/merged/c", "new")
	before := w.tree("/merged")
	n, _ := w.again()
	same(t, "tree", before, n.tree("/merged"))
	s := n.save(false)
	n2 := newWorld(t, w.root, w.vol)
	t.Cleanup(n2.close)
	n2.restore(s)
	same(t, "second tree", sameDevs(before), sameDevs(n2.tree("/merged")))
}

// TestSaveDeleted removes directories in use, and a file behind the guest's back.
func TestSaveDeleted(t *testing.T) {
	w := pair(t, func(root, vol string) {
		hostFile(t, vol+"/f", "host file")
		hostFile(t, root+"/d/e/f", "x")
	})
	c := w.c
	w.must(vfs.MkdirAt(c, w.at("/tmp/1"), 0o755))
	w.must(vfs.MkdirAt(c, w.at("/tmp/1/2"), 0o755))
	w.must(vfs.MkdirAt(c, w.at("/vol/dir"), 0o755))
	dir := w.install(w.open("/vol/dir", unix.O_RDONLY|unix.O_DIRECTORY))
	low := w.install(w.open("/d/e", unix.O_RDONLY|unix.O_DIRECTORY))
	lowFile := w.install(w.open("/d/e/f", unix.O_RDONLY))
	w.must(vfs.ChdirAt(c, w.at("/tmp/1/2")))
	w.must(vfs.RmdirAt(c, w.at("/tmp/1/2")))
	w.must(vfs.RmdirAt(c, w.at("/tmp/1")))
	w.must(vfs.RmdirAt(c, w.at("/vol/dir")))
	w.must(vfs.UnlinkAt(c, w.at("/d/e/f")))
	w.must(vfs.RmdirAt(c, w.at("/d/e")))
	w.must(vfs.RmdirAt(c, w.at("/d")))
	f := w.install(w.open("/vol/f", unix.O_RDONLY))
	w.must(os.Remove(w.vol + "/f"))
	if _, err := vfs.LookupAt(c, w.at("/vol/f")); err != unix.ENOENT {
		t.Fatal(err) // the walk has noticed
	}
	n, _ := w.again()
	root, cwd := n.fs.Root(), n.fs.Cwd()
	defer root.DecRef()
	defer cwd.DecRef()
	if s := cwd.String(root); s != "/tmp/1/2 (deleted)" {
		t.Errorf("cwd is %s", s)
	}
	for fd, want := range map[int32]string{dir: "/vol/dir (deleted)", low: "/d/e (deleted)", lowFile: "/d/e/f (deleted)", f: "/vol/f (deleted)"} {
		if s := n.get(fd).Path().String(root); s != want {
			t.Errorf("fd %d is %s, want %s", fd, s, want)
		}
	}
	if s := n.read(n.get(f), 100); s != "host file" {
		t.Errorf("read %q", s)
	}
	if s := n.read(n.get(lowFile), 100); s != "x" {
		t.Errorf("read %q", s)
	}
	if _, err := vfs.LookupAt(n.c, n.at("/d")); err != unix.ENOENT {
		t.Errorf("a removed directory is back: %v", err)
	}
	n2, _ := n.again()
	if s := n2.read(n2.get(lowFile), 100); s != "" {
		t.Errorf("read %q after the end", s)
	}
}

// TestSaveSize bounds what a container's files take in an image.
func TestSaveSize(t *testing.T) {
	w := pair(t, nil)
	for i := range 20 {
		w.must(vfs.MknodAt(w.c, w.at(fmt.Sprintf("/dev/n%d", i)), unix.S_IFCHR|0o666, unix.Mkdev(1, 3)))
	}
	a := len(w.save(false).kernel)
	if a > 8<<10 {
		t.Errorf("%d bytes", a)
	}
	// What was looked at leaves nothing behind.
	w.tree("/")
	w.readFile("/proc/hello")
	if b := len(w.save(false).kernel); b > a+a/100 {
		t.Errorf("%d bytes, %d after a walk", a, b)
	}
	t.Logf("%d bytes", a)
	if x, y := w.save(false).kernel, w.save(false).kernel; !bytes.Equal(x, y) {
		t.Error("two images of one state differ")
	}
}
