package overlay_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"runsc/pkg/ref"
	"runsc/sentry/fs/gofer"
	"runsc/sentry/fs/overlay"
	"runsc/sentry/fs/tmpfs"
	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// overHost is an overlay with a directory of the host below.
func overHost(t testing.TB, dir string) *tree {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	before := ref.Snapshot()
	self, err := unix.Open("/proc/self/fd", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	mf, err := mem.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		vfs.DropCaches()
		mf.Close()
		unix.Close(self)
		if l := ref.Leaks(before); l != "" {
			t.Errorf("left over: %s", l)
		}
	})
	cl := gofer.NewClient(gofer.ClientOptions{ProcSelfFD: self})
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	low, err := cl.New(gofer.Options{RootFD: fd, Coherence: gofer.Exclusive})
	if err != nil {
		t.Fatal(err)
	}
	c := vfs.KernelCaller()
	fs, err := overlay.New(c, overlay.Config{Lower: []vfs.Filesystem{low},
		Upper: tmpfs.New(c, tmpfs.Config{Memory: mf, Mode: 0o755})})
	if err != nil {
		t.Fatal(err)
	}
	return newTree(t, fs)
}

// find visits every entry as find(1) does and returns how many there are.
func (r *tree) find(dir string, stat bool) int {
	r.t.Helper()
	f := r.open(dir+"/", unix.O_RDONLY|unix.O_DIRECTORY)
	var subs []string
	n := 0
	r.must(f.ReadDir(r.c, func(e vfs.Dirent) bool {
		if e.Name == "." || e.Name == ".." {
			return true
		}
		n++
		if stat {
			r.stat(dir + "/" + e.Name)
		}
		if e.Type == unix.DT_DIR {
			subs = append(subs, dir+"/"+e.Name)
		}
		return true
	}))
	f.DecRef()
	for _, s := range subs {
		n += r.find(s, stat)
	}
	return n
}

func TestHostLower(t *testing.T) {
	dir := t.TempDir()
	for i := range 20 {
		d := filepath.Join(dir, fmt.Sprintf("d%d", i))
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
		for k := range 50 {
			if err := os.WriteFile(filepath.Join(d, fmt.Sprintf("f%d", k)), make([]byte, k*1000), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := unix.Setxattr(filepath.Join(dir, "d0/f1"), "user.k", []byte("v"), 0); err != nil && err != unix.EOPNOTSUPP {
		t.Fatal(err)
	}
	top := overHost(t, dir)
	for range 2 {
		if n := top.find("", true); n != 20*51 {
			t.Errorf("found %d entries", n)
		}
		vfs.DropCaches()
	}
	before := top.stat("/d3/f7")
	if before.Ino < 1<<52 {
		t.Errorf("inode number %d", before.Ino)
	}
	f := top.open("/d3/f7", unix.O_RDWR)
	b := mem.KernelBuf([]byte("changed"))
	if _, err := f.WriteAt(top.c, &b, 0); err != nil {
		t.Fatal(err)
	}
	f.DecRef()
	after := top.stat("/d3/f7")
	if after.Ino != before.Ino || after.Dev != before.Dev || after.Size != 7000 {
		t.Errorf("after copy-up: %+v, before %+v", after, before)
	}
	top.must(vfs.UnlinkAt(top.c, top.at("/d0/f1")))
	top.write("/d1/new", "x")
	if n := top.find("", true); n != 20*51 {
		t.Errorf("found %d entries after changes", n)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "d3/f7")); err != nil || len(got) != 7000 || got[0] != 0 {
		t.Errorf("the host's file changed: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "d1/new")); err == nil {
		t.Error("a new file appeared on the host")
	}
}

func BenchmarkFindUsr(b *testing.B) {
	top := overHost(b, "/usr/share")
	for b.Loop() {
		start := time.Now()
		n := top.find("", false)
		b.ReportMetric(float64(time.Since(start).Nanoseconds())/float64(n), "ns/entry")
	}
}

func BenchmarkUpper(b *testing.B) {
	top := overHost(b, b.TempDir())
	top.mkdir("/tmp")
	top.write("/tmp/f", "x")
	b.Run("open", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			top.open("/tmp/f", unix.O_RDONLY).DecRef()
		}
	})
	b.Run("stat", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			top.stat("/tmp/f")
		}
	})
}
