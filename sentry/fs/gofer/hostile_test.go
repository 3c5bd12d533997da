package gofer

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// TestNames makes names of every byte and of the largest size.
func TestNames(t *testing.T) {
	both(t, func(x *tree) {
		ctx := x.mountTree()
		c := vfs.KernelCaller()
		names := []string{strings.Repeat("n", 255), strings.Repeat("\xff", 255), "...", " ", "\n", "-rf"}
		var all []byte
		for b := 1; b < 256; b++ {
			if b != '/' {
				all = append(all, byte(b))
			}
		}
		names = append(names, string(all))
		for _, name := range names {
			at := vfs.At{FS: ctx, Name: "/" + name}
			f, err := vfs.OpenAt(c, at, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, 0o644)
			if err != nil {
				x.Fatalf("%q: %v", name, err)
			}
			f.DecRef()
			if _, err := os.Lstat(filepath.Join(x.path, name)); err != nil {
				x.Error(err)
			}
			if err := vfs.UnlinkAt(c, at); err != nil {
				x.Errorf("%q: %v", name, err)
			}
		}
		for name, want := range map[string]error{
			"/" + strings.Repeat("n", 256):     unix.ENAMETOOLONG,
			strings.Repeat("/.", 2048):         unix.ENAMETOOLONG,
			strings.Repeat("/.", 2000) + "/no": unix.ENOENT,
		} {
			if _, err := vfs.StatAt(c, vfs.At{FS: ctx, Name: name}, 0); err != want {
				x.Errorf("stat of %d bytes: %v, want %v", len(name), err, want)
			}
		}
		for _, l := range [][2]string{{"loop", "loop"}, {"one", "two"}, {"two", "one/x"}} {
			if err := os.Symlink(l[1], x.host(l[0])); err != nil {
				x.Fatal(err)
			}
		}
		for _, name := range []string{"/loop", "/one", "/two/y"} {
			if _, err := vfs.OpenAt(c, vfs.At{FS: ctx, Name: name}, unix.O_RDONLY, 0); err != unix.ELOOP {
				x.Errorf("open of %s: %v", name, err)
			}
		}
		deep := strings.Repeat("/0123456789", 300)
		if err := vfs.MkdirAt(c, vfs.At{FS: ctx, Name: "/up"}, 0o755); err != nil {
			x.Fatal(err)
		}
		if _, err := vfs.StatAt(c, vfs.At{FS: ctx, Name: "/up" + deep}, 0); err != unix.ENOENT {
			x.Errorf("stat of what is not there: %v", err)
		}
	})
}

// TestChangedUnderOpen has the host replace, cut and delete files that are open
// and mapped.
func TestChangedUnderOpen(t *testing.T) {
	placed(t, func(t *testing.T, remote bool) {
		x := newTreeAt(t, t.TempDir(), Shared, 0, remote)
		ctx := x.mountTree()
		c := vfs.KernelCaller()
		open := func(name string) *vfs.File {
			t.Helper()
			if err := os.WriteFile(x.host(name), []byte(strings.Repeat("old", 5000)), 0o644); err != nil {
				t.Fatal(err)
			}
			f, err := vfs.OpenAt(c, vfs.At{FS: ctx, Name: "/" + name}, unix.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
		read := func(f *vfs.File, n int) string {
			b := make([]byte, n)
			buf := mem.KernelBuf(b)
			got, err := f.ReadAt(c, &buf, 0)
			if err != nil {
				t.Error(err)
			}
			return string(b[:got])
		}
		// Replaced: the open one is the old, the name the new.
		f := open("replaced")
		if err := os.WriteFile(x.host("new"), []byte("new"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(x.host("new"), x.host("replaced")); err != nil {
			t.Fatal(err)
		}
		if got := read(f, 3); got != "old" {
			t.Errorf("open file reads %q", got)
		}
		if st, err := f.Stat(c, unix.STATX_BASIC_STATS); err != nil || st.Nlink != 0 {
			t.Errorf("replaced file: %d links, %v", st.Nlink, err)
		}
		if st, err := vfs.StatAt(c, vfs.At{FS: ctx, Name: "/replaced"}, unix.STATX_BASIC_STATS); err != nil || st.Size != 3 {
			t.Errorf("the name: %d bytes, %v", st.Size, err)
		}
		uid := uint32(7)
		if err := f.Inode().SetStat(c, &vfs.SetStat{UID: &uid}); err != nil {
			t.Errorf("chown of a file without a name: %v", err)
		}
		f.DecRef()
		// Cut: what is mapped beyond the end is SIGBUS.
		f = open("cut")
		m, err := f.Mappable(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Region(8192, 4096, false); err != nil {
			t.Error(err)
		}
		if err := os.Truncate(x.host("cut"), 10); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Region(8192, 4096, false); err != unix.EFAULT {
			t.Errorf("page beyond the new end: %v", err)
		}
		if got := read(f, 100); len(got) != 10 {
			t.Errorf("%d bytes of a file cut to 10", len(got))
		}
		f.DecRef()
		// Deleted: a description of the place alone is stale.
		f = open("deleted")
		p, err := vfs.OpenAt(c, vfs.At{FS: ctx, Name: "/deleted"}, unix.O_PATH, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(x.host("deleted")); err != nil {
			t.Fatal(err)
		}
		if _, err := vfs.OpenAt(c, vfs.At{FS: ctx, Name: "/deleted"}, unix.O_RDONLY, 0); err != unix.ENOENT {
			t.Errorf("open of a deleted name: %v", err)
		}
		if got := read(f, 3); got != "old" {
			t.Errorf("deleted file reads %q", got)
		}
		f.DecRef()
		x.cl.fds.shrink()
		if _, err := vfs.OpenPath(c, p.Path(), unix.O_RDONLY); err != unix.ESTALE {
			t.Errorf("open of what was deleted: %v", err)
		}
		p.DecRef()
	})
}

// TestSwappedLink reads through a link that the host swaps atomically, as
// Kubernetes does for a ConfigMap: it is never missing, and a new target is
// seen at once.
func TestSwappedLink(t *testing.T) {
	placed(t, func(t *testing.T, remote bool) {
		x := newTreeAt(t, t.TempDir(), Shared, 0, remote)
		ctx := x.mountTree()
		c := vfs.KernelCaller()
		swap := func(n int) {
			t.Helper()
			dir := fmt.Sprint("..v", n)
			_ = os.Mkdir(x.host(dir), 0o755)
			if err := os.WriteFile(x.host(dir+"/key"), []byte(fmt.Sprint(n)), 0o644); err != nil {
				t.Fatal(err)
			}
			_ = os.Remove(x.host("..tmp"))
			if err := os.Symlink(dir, x.host("..tmp")); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(x.host("..tmp"), x.host("..data")); err != nil {
				t.Fatal(err)
			}
			if n > 0 {
				_ = os.RemoveAll(x.host(fmt.Sprint("..v", n-1)))
			}
		}
		swap(0)
		if err := os.Symlink("..data/key", x.host("key")); err != nil {
			t.Fatal(err)
		}
		for n := 1; n < 20; n++ {
			swap(n)
			f, err := vfs.OpenAt(c, vfs.At{FS: ctx, Name: "/key"}, unix.O_RDONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			b := make([]byte, 10)
			buf := mem.KernelBuf(b)
			got, _ := f.Read(c, &buf)
			if string(b[:got]) != fmt.Sprint(n) {
				t.Errorf("read %q after swap %d", b[:got], n)
			}
			f.DecRef()
		}
	})
}

// TestFullDisk fills a file system of the host.
func TestFullDisk(t *testing.T) {
	if os.Getenv(inUserns) != "" {
		t.Skip("needs to mount")
	}
	placed(t, func(t *testing.T, remote bool) {
		dir := t.TempDir()
		if err := unix.Mount("t", dir, "tmpfs", 0, "size=64k,nr_inodes=4"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
		x := newTreeAt(t, dir, Shared, 0, remote)
		ctx := x.mountTree()
		c := vfs.KernelCaller()
		f, err := vfs.OpenAt(c, vfs.At{FS: ctx, Name: "/f"}, unix.O_RDWR|unix.O_CREAT, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		text := []byte(strings.Repeat("0123456789abcdef", 200))
		total := 0
		for {
			buf := mem.KernelBuf(text)
			n, err := f.Write(c, &buf)
			total += n
			if err == unix.ENOSPC && n == 0 {
				break
			}
			if err != nil && err != unix.ENOSPC {
				t.Fatal(err)
			}
		}
		if err := f.Fsync(c, false); err != nil {
			t.Error(err)
		}
		if st, err := f.Stat(c, unix.STATX_BASIC_STATS); err != nil || int(st.Size) != total {
			t.Errorf("%d bytes, %d were taken: %v", st.Size, total, err)
		}
		if b, err := os.ReadFile(dir + "/f"); err != nil || len(b) != total {
			t.Errorf("the host has %d bytes of %d: %v", len(b), total, err)
		}
		for i := 0; err == nil; i++ {
			var g *vfs.File
			if g, err = vfs.OpenAt(c, vfs.At{FS: ctx, Name: fmt.Sprint("/g", i)}, unix.O_RDWR|unix.O_CREAT, 0o644); err == nil {
				g.DecRef()
			}
		}
		if err != unix.ENOSPC {
			t.Errorf("no more inodes: %v", err)
		}
		f.DecRef()
	})
}

// TestRenameRace has guests and the host rename directories while others walk
// through them: nothing outside of the tree is ever found.
func TestRenameRace(t *testing.T) {
	placed(t, func(t *testing.T, remote bool) {
		outer := t.TempDir()
		for _, d := range []string{"tree/a/b/c", "tree/x"} {
			if err := os.MkdirAll(outer+"/"+d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for _, f := range []string{"secret", "tree/marker"} {
			if err := os.WriteFile(outer+"/"+f, []byte(f), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		x := newTreeAt(t, outer+"/tree", Shared, 1, remote)
		ctx := x.mountTree()
		var stop atomic.Bool
		var wg sync.WaitGroup
		wg.Go(func() { // the host
			for !stop.Load() {
				_ = unix.Rename(x.host("a/b"), x.host("b"))
				_ = unix.Rename(x.host("b"), x.host("a/b"))
			}
		})
		wg.Go(func() { // a guest
			at := func(p string) vfs.At { return vfs.At{FS: ctx, Name: p} }
			for !stop.Load() {
				_ = vfs.RenameAt(vfs.KernelCaller(), at("/a/b/c"), at("/x/c"), 0)
				_ = vfs.RenameAt(vfs.KernelCaller(), at("/x/c"), at("/a/b/c"), 0)
			}
		})
		c := vfs.KernelCaller()
		inside := 0
		for end := time.Now().Add(400 * time.Millisecond); time.Now().Before(end); {
			for _, p := range []string{"/a/b/c/../../../../", "/x/c/../../../../", "/a/b/../../../../"} {
				if _, err := vfs.StatAt(c, vfs.At{FS: ctx, Name: p + "secret"}, 0); err == nil {
					t.Fatalf("%ssecret leads outside", p)
				}
				if _, err := vfs.StatAt(c, vfs.At{FS: ctx, Name: p + "marker"}, 0); err == nil {
					inside++
				}
			}
		}
		stop.Store(true)
		wg.Wait()
		if inside == 0 {
			t.Error("the way up was never found")
		}
	})
}

// TestManyFiles walks many files with few descriptors and few dentries.
func TestManyFiles(t *testing.T) {
	dirs := 20
	if os.Getenv("FULL_SIZE") != "" {
		dirs = 100
	}
	placed(t, func(t *testing.T, remote bool) {
		x := newTreeAt(t, t.TempDir(), Shared, 100000, remote)
		for i := range dirs {
			if err := os.Mkdir(x.host(fmt.Sprint("d", i)), 0o755); err != nil {
				t.Fatal(err)
			}
			for j := range 100 * dirs / 10 {
				fd, err := unix.Open(x.host(fmt.Sprintf("d%d/f%d", i, j)), unix.O_CREAT|unix.O_WRONLY, 0o644)
				if err != nil {
					t.Fatal(err)
				}
				unix.Close(fd)
			}
		}
		ctx := x.mountTree()
		vfs.SetDentryLimit(100)
		defer vfs.SetDentryLimit(vfs.DefaultDentryLimit)
		var old, low unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
			t.Fatal(err)
		}
		low = old
		low.Cur = 96
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
			t.Fatal(err)
		}
		defer unix.Setrlimit(unix.RLIMIT_NOFILE, &old)
		c := vfs.KernelCaller()
		seen := 0
		for i := range dirs {
			d, err := vfs.OpenAt(c, vfs.At{FS: ctx, Name: fmt.Sprint("/d", i)}, unix.O_RDONLY|unix.O_DIRECTORY, 0)
			if err != nil {
				t.Fatal(err)
			}
			for j := range 100 * dirs / 10 {
				f, err := vfs.OpenAt(c, vfs.At{FS: ctx, Name: fmt.Sprintf("/d%d/f%d", i, j)}, unix.O_RDONLY, 0)
				if err != nil {
					t.Fatal(err)
				}
				f.DecRef()
				seen++
			}
			d.DecRef()
		}
		x.fs.mu.Lock()
		n := len(x.fs.inodes)
		x.fs.mu.Unlock()
		t.Logf("%d files opened, %d inodes and %d descriptors kept", seen, n, x.cl.fds.open)
		if n > 400 {
			t.Errorf("%d inodes kept with 100 dentries", n)
		}
	})
}
