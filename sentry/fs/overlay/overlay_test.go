package overlay_test

import (
	"bytes"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"runsc/pkg/ref"
	"runsc/sentry/fs/overlay"
	"runsc/sentry/fs/tmpfs"
	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// tree is a mounted file system with helpers that fail the test.
type tree struct {
	t  testing.TB
	c  vfs.Caller
	fs *vfs.FSContext
}

func newTree(t testing.TB, fs vfs.Filesystem) *tree {
	ns := vfs.NewNamespace(fs, 0)
	root := ns.Root()
	ctx := vfs.NewFSContext(root, root, 0o022)
	root.DecRef()
	t.Cleanup(func() {
		ctx.DecRef()
		ns.DecRef()
	})
	return &tree{t, vfs.KernelCaller(), ctx}
}

func (r *tree) at(name string) vfs.At { return vfs.At{FS: r.fs, Name: name, Flags: vfs.NoFollow} }

func (r *tree) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *tree) open(name string, flags uint32) *vfs.File {
	r.t.Helper()
	f, err := vfs.OpenAt(r.c, vfs.At{FS: r.fs, Name: name}, flags, 0o644)
	if err != nil {
		r.t.Fatalf("open %s: %v", name, err)
	}
	return f
}

func (r *tree) write(name, data string) {
	r.t.Helper()
	f := r.open(name, unix.O_CREAT|unix.O_TRUNC|unix.O_WRONLY)
	defer f.DecRef()
	b := mem.KernelBuf([]byte(data))
	if _, err := f.Write(r.c, &b); err != nil {
		r.t.Fatal(err)
	}
}

func (r *tree) readAll(f *vfs.File) string {
	r.t.Helper()
	var out bytes.Buffer
	for off := int64(0); ; {
		p := make([]byte, 64<<10)
		b := mem.KernelBuf(p)
		n, err := f.ReadAt(r.c, &b, off)
		if err != nil {
			r.t.Fatal(err)
		}
		if n == 0 {
			return out.String()
		}
		out.Write(p[:n])
		off += int64(n)
	}
}

func (r *tree) read(name string) string {
	r.t.Helper()
	f := r.open(name, unix.O_RDONLY)
	defer f.DecRef()
	return r.readAll(f)
}

func (r *tree) mkdir(name string) {
	r.t.Helper()
	r.must(vfs.MkdirAt(r.c, r.at(name), 0o755))
}

func (r *tree) stat(name string) vfs.Stat {
	r.t.Helper()
	st, err := vfs.StatAt(r.c, r.at(name), unix.STATX_BASIC_STATS)
	if err != nil {
		r.t.Fatalf("stat %s: %v", name, err)
	}
	return st
}

// list gives the names in a directory, sorted, with "/" after directories.
func (r *tree) list(name string) string {
	r.t.Helper()
	f := r.open(name, unix.O_RDONLY|unix.O_DIRECTORY)
	defer f.DecRef()
	var out []string
	r.must(f.ReadDir(r.c, func(e vfs.Dirent) bool {
		if e.Name == "." || e.Name == ".." {
			return true
		}
		st := r.stat(name + "/" + e.Name)
		if st.Ino != e.Ino {
			r.t.Errorf("%s/%s: d_ino %d, st_ino %d", name, e.Name, e.Ino, st.Ino)
		}
		if st.Mode>>12 != uint32(e.Type) {
			r.t.Errorf("%s/%s: d_type %d, mode %o", name, e.Name, e.Type, st.Mode)
		}
		n := e.Name
		if e.Type == unix.DT_DIR {
			n += "/"
		}
		out = append(out, n)
		return true
	}))
	slices.Sort(out)
	return strings.Join(out, " ")
}

// layers makes an overlay over a lower tree that fill fills.
func layers(t testing.TB, fill func(low *tree)) (top, low *tree, up *tmpfs.FS) {
	before := ref.Snapshot()
	mf, err := mem.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		vfs.DropCaches()
		mf.Close()
		if l := ref.Leaks(before); l != "" {
			t.Errorf("left over: %s", l)
		}
	})
	c := vfs.KernelCaller()
	lfs := tmpfs.New(c, tmpfs.Config{Memory: mf, Mode: 0o755})
	low = newTree(t, lfs)
	fill(low)
	up = tmpfs.New(c, tmpfs.Config{Memory: mf, Mode: 0o755})
	fs, err := overlay.New(c, overlay.Config{LowerRoots: []vfs.Inode{lfs.Root()}, Upper: up})
	if err != nil {
		t.Fatal(err)
	}
	return newTree(t, fs), low, up
}

func TestMerge(t *testing.T) {
	top, low, _ := layers(t, func(l *tree) {
		l.mkdir("/etc")
		l.mkdir("/usr")
		l.mkdir("/usr/bin")
		l.write("/etc/passwd", "root")
		l.write("/etc/hosts", "localhost")
		l.must(vfs.SymlinkAt(l.c, "usr/bin", l.at("/bin")))
	})
	if got := top.list("/"); got != "bin etc/ usr/" {
		t.Errorf("root: %s", got)
	}
	if n := top.stat("/").Nlink; n != 1 {
		t.Errorf("link count of the merged root is %d", n)
	}
	if n := top.stat("/usr").Nlink; n != 3 {
		t.Errorf("link count of a lower directory is %d", n)
	}
	ino := top.stat("/etc/passwd")
	top.write("/etc/new", "n")
	top.write("/etc/passwd", "user")
	if got := top.list("/etc"); got != "hosts new passwd" {
		t.Errorf("etc: %s", got)
	}
	if st := top.stat("/etc/passwd"); st.Ino != ino.Ino || st.Dev != ino.Dev {
		t.Errorf("the number changed with the copy-up: %d:%d, was %d:%d", st.Dev, st.Ino, ino.Dev, ino.Ino)
	}
	vfs.DropCaches()
	if st := top.stat("/etc/passwd"); st.Ino != ino.Ino || st.Dev != ino.Dev {
		t.Errorf("the number changed after a new lookup")
	}
	if got := top.read("/etc/passwd"); got != "user" {
		t.Errorf("read %q", got)
	}
	if got := low.read("/etc/passwd"); got != "root" {
		t.Errorf("the lower file is %q", got)
	}
	if n := top.stat("/etc").Nlink; n != 1 {
		t.Errorf("link count of a merged directory is %d", n)
	}
}

func TestWhiteouts(t *testing.T) {
	top, low, _ := layers(t, func(l *tree) {
		l.mkdir("/d")
		l.write("/d/a", "a")
		l.write("/d/b", "b")
		l.mkdir("/d/sub")
		l.write("/d/sub/x", "x")
		l.write("/f", "f")
	})
	at := top.at
	top.must(vfs.UnlinkAt(top.c, at("/d/a")))
	if got := top.list("/d"); got != "b sub/" {
		t.Errorf("after unlink: %s", got)
	}
	vfs.DropCaches()
	if _, err := vfs.StatAt(top.c, at("/d/a"), 0); err != unix.ENOENT {
		t.Errorf("stat of the unlinked: %v", err)
	}
	top.write("/d/a", "again")
	if got := top.read("/d/a"); got != "again" {
		t.Errorf("recreated: %q", got)
	}
	if err := vfs.RmdirAt(top.c, at("/d/sub")); err != unix.ENOTEMPTY {
		t.Errorf("rmdir: %v", err)
	}
	top.must(vfs.UnlinkAt(top.c, at("/d/sub/x")))
	top.must(vfs.RmdirAt(top.c, at("/d/sub")))
	top.mkdir("/d/sub")
	vfs.DropCaches()
	if got := top.list("/d/sub"); got != "" {
		t.Errorf("a new directory shows %s", got)
	}
	top.must(vfs.RmdirAt(top.c, at("/d/sub")))
	for _, n := range []string{"/d/a", "/d/b"} {
		top.must(vfs.UnlinkAt(top.c, at(n)))
	}
	top.must(vfs.RmdirAt(top.c, at("/d")))
	if got := top.list("/"); got != "f" {
		t.Errorf("root: %s", got)
	}
	if got := low.list("/d"); got != "a b sub/" {
		t.Errorf("the lower layer changed: %s", got)
	}
}

func TestRename(t *testing.T) {
	top, _, _ := layers(t, func(l *tree) {
		l.mkdir("/low")
		l.write("/low/f", "f")
		l.write("/a", "a")
		l.write("/b", "b")
		l.mkdir("/empty")
	})
	at := top.at
	top.must(vfs.RenameAt(top.c, at("/a"), at("/b"), 0))
	vfs.DropCaches()
	if got := top.list("/"); got != "b empty/ low/" {
		t.Errorf("root: %s", got)
	}
	if got := top.read("/b"); got != "a" {
		t.Errorf("/b is %q", got)
	}
	if err := vfs.RenameAt(top.c, at("/low"), at("/moved"), 0); err != unix.EXDEV {
		t.Errorf("rename of a lower directory: %v", err)
	}
	top.mkdir("/new")
	top.write("/new/n", "n")
	if err := vfs.RenameAt(top.c, at("/new"), at("/low"), 0); err != unix.ENOTEMPTY {
		t.Errorf("rename over a full directory: %v", err)
	}
	top.must(vfs.UnlinkAt(top.c, at("/low/f")))
	top.must(vfs.RenameAt(top.c, at("/new"), at("/low"), 0))
	top.must(vfs.RenameAt(top.c, at("/low"), at("/empty"), 0))
	vfs.DropCaches()
	if got := top.list("/"); got != "b empty/" {
		t.Errorf("root: %s", got)
	}
	if got := top.list("/empty"); got != "n" {
		t.Errorf("empty: %s", got)
	}
	top.write("/c", "c")
	top.must(vfs.RenameAt(top.c, at("/c"), at("/empty/n"), unix.RENAME_EXCHANGE))
	if c, n := top.read("/c"), top.read("/empty/n"); c != "n" || n != "c" {
		t.Errorf("exchanged: %q, %q", c, n)
	}
}

func TestOpenAcrossCopyUp(t *testing.T) {
	big := strings.Repeat("0123456789abcdef", 50000)
	top, low, _ := layers(t, func(l *tree) {
		l.write("/f", big)
		l.write("/gone", "gone")
	})
	r := top.open("/f", unix.O_RDONLY)
	defer r.DecRef()
	w := top.open("/f", unix.O_WRONLY|unix.O_APPEND)
	b := mem.KernelBuf([]byte("tail"))
	if _, err := w.Write(top.c, &b); err != nil {
		t.Fatal(err)
	}
	w.DecRef()
	if got := top.readAll(r); got != big+"tail" {
		t.Errorf("an older descriptor sees %d bytes, want %d", len(got), len(big)+4)
	}
	if got := low.read("/f"); got != big {
		t.Error("the lower file changed")
	}
	g := top.open("/gone", unix.O_RDONLY)
	defer g.DecRef()
	top.must(vfs.UnlinkAt(top.c, top.at("/gone")))
	if st, err := g.Stat(top.c, unix.STATX_BASIC_STATS); err != nil || st.Nlink != 0 {
		t.Errorf("link count of an unlinked lower file: %d, %v", st.Nlink, err)
	}
	top.must(g.Chmod(top.c, 0o600))
	if got := top.readAll(g); got != "gone" {
		t.Errorf("an unlinked file reads %q", got)
	}
	if got := top.list("/"); got != "f" {
		t.Errorf("root: %s", got)
	}
}

func TestCopyUpAttributes(t *testing.T) {
	top, _, _ := layers(t, func(l *tree) {
		l.mkdir("/d")
		l.write("/d/f", "x")
		l.must(vfs.ChownAt(l.c, l.at("/d/f"), 1000, 1001))
		l.must(vfs.ChmodAt(l.c, l.at("/d/f"), 0o4750))
		l.must(vfs.SetxattrAt(l.c, l.at("/d/f"), "user.k", []byte("v"), 0))
		old := vfs.TimeSet{Time: vfs.Timespec{Sec: 1000, Nsec: 5}}
		l.must(vfs.UtimesAt(l.c, l.at("/d/f"), old, old))
		l.must(vfs.UtimesAt(l.c, l.at("/d"), old, old))
	})
	top.must(vfs.SetxattrAt(top.c, top.at("/d/f"), "user.k2", []byte("v2"), 0))
	st := top.stat("/d/f")
	if st.UID != 1000 || st.GID != 1001 || st.Mode&0o7777 != 0o4750 || st.Mtime != (vfs.Timespec{Sec: 1000, Nsec: 5}) || st.Size != 1 {
		t.Errorf("attributes after copy-up: %+v", st)
	}
	if d := top.stat("/d"); d.Mtime.Sec != 1000 {
		t.Errorf("the directory's mtime changed: %+v", d.Mtime)
	}
	names, err := vfs.ListxattrAt(top.c, top.at("/d/f"))
	if err != nil || !slices.Equal(names, []string{"user.k", "user.k2"}) {
		t.Errorf("attributes: %q, %v", names, err)
	}
}

func TestLinks(t *testing.T) {
	top, _, _ := layers(t, func(l *tree) { l.write("/f", "x") })
	top.must(vfs.LinkAt(top.c, top.at("/f"), top.at("/g")))
	vfs.DropCaches()
	f, g := top.stat("/f"), top.stat("/g")
	if f.Ino != g.Ino || f.Nlink != 2 {
		t.Errorf("inodes %d and %d, links %d", f.Ino, g.Ino, f.Nlink)
	}
	top.must(vfs.UnlinkAt(top.c, top.at("/f")))
	if got := top.read("/g"); got != "x" {
		t.Errorf("read %q", got)
	}
	if n := top.stat("/g").Nlink; n != 1 {
		t.Errorf("links %d", n)
	}
}

// TestNamesOfOneFile looks two names of a file up anew: they have one inode.
func TestNamesOfOneFile(t *testing.T) {
	top, _, _ := layers(t, func(l *tree) { l.write("/f", "x") })
	top.must(vfs.LinkAt(top.c, top.at("/f"), top.at("/g")))
	vfs.DropCaches()
	f, err := vfs.LookupAt(top.c, top.at("/f"))
	top.must(err)
	g, err := vfs.LookupAt(top.c, top.at("/g"))
	top.must(err)
	if f.Inode() != g.Inode() {
		t.Error("two inodes")
	}
	f.DecRef()
	top.must(vfs.UnlinkAt(top.c, top.at("/f")))
	if n := top.stat("/g").Nlink; n != 1 {
		t.Errorf("links %d", n)
	}
	g.DecRef()
}

func TestReadOnly(t *testing.T) {
	before := ref.Snapshot()
	mf, err := mem.New()
	if err != nil {
		t.Fatal(err)
	}
	defer mf.Close()
	c := vfs.KernelCaller()
	lfs := tmpfs.New(c, tmpfs.Config{Memory: mf})
	fs, err := overlay.New(c, overlay.Config{Lower: []vfs.Filesystem{lfs}})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("tree", func(t *testing.T) {
		top := newTree(t, fs)
		if err := vfs.MkdirAt(top.c, top.at("/x"), 0o755); err != unix.EROFS {
			t.Errorf("mkdir: %v", err)
		}
	})
	if l := ref.Leaks(before); l != "" {
		t.Errorf("left over: %s", l)
	}
}

// TestModel runs random operations on an overlay and on a plain tmpfs and
// compares the trees.
func TestModel(t *testing.T) {
	fill := func(l *tree) {
		for _, d := range []string{"/a", "/b", "/a/c"} {
			l.mkdir(d)
			for i := range 3 {
				l.write(fmt.Sprintf("%s/f%d", d, i), d)
			}
		}
	}
	top, _, _ := layers(t, fill)
	mf, err := mem.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mf.Close() })
	plain := newTree(t, tmpfs.New(top.c, tmpfs.Config{Memory: mf, Mode: 0o755}))
	fill(plain)
	rng := rand.New(rand.NewSource(7))
	dirs := []string{"", "/a", "/b", "/a/c", "/b/d", "/e"}
	name := func() string { return dirs[rng.Intn(len(dirs))] + fmt.Sprintf("/f%d", rng.Intn(4)) }
	for step := range 3000 {
		x, y, op := name(), name(), rng.Intn(9)
		if op == 3 || op == 4 {
			x = dirs[1+rng.Intn(len(dirs)-1)]
		}
		do := func(r *tree) error {
			switch op {
			case 0:
				return vfs.UnlinkAt(r.c, r.at(x))
			case 1, 2:
				f, err := vfs.OpenAt(r.c, r.at(x), unix.O_CREAT|unix.O_WRONLY|unix.O_APPEND, 0o644)
				if err == nil {
					b := mem.KernelBuf([]byte{byte('a' + step%26)})
					_, err = f.Write(r.c, &b)
					f.DecRef()
				}
				return err
			case 3:
				return vfs.MkdirAt(r.c, r.at(x), 0o755)
			case 4:
				return vfs.RmdirAt(r.c, r.at(x))
			case 5:
				return vfs.RenameAt(r.c, r.at(x), r.at(y), 0)
			case 6:
				return vfs.LinkAt(r.c, r.at(x), r.at(y))
			case 7:
				return vfs.ChmodAt(r.c, r.at(x), uint32(step&0o777))
			default:
				return vfs.RenameAt(r.c, r.at(x), r.at(y), unix.RENAME_EXCHANGE)
			}
		}
		got, want := do(top), do(plain)
		if got != want {
			t.Fatalf("step %d, op %d %s %s: %v, plain %v", step, op, x, y, got, want)
		}
		if step%50 == 0 {
			vfs.DropCaches()
			if a, b := dump(top, ""), dump(plain, ""); a != b {
				t.Fatalf("step %d:\n%s\nplain:\n%s", step, a, b)
			}
		}
	}
}

func dump(r *tree, dir string) string {
	var b strings.Builder
	for _, n := range strings.Fields(r.list(dir + "/")) {
		p := dir + "/" + strings.TrimSuffix(n, "/")
		st := r.stat(p)
		if strings.HasSuffix(n, "/") {
			fmt.Fprintf(&b, "%s %o\n%s", p, st.Mode, dump(r, p))
		} else {
			fmt.Fprintf(&b, "%s %o %s\n", p, st.Mode, r.read(p))
		}
	}
	return b.String()
}

// TestConcurrent hammers one directory from several callers.
func TestConcurrent(t *testing.T) {
	top, _, _ := layers(t, func(l *tree) {
		l.mkdir("/d")
		for i := range 8 {
			l.write(fmt.Sprintf("/d/f%d", i), "low")
		}
	})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			c := vfs.KernelCaller()
			rng := rand.New(rand.NewSource(int64(w)))
			for range 1500 {
				x, y := fmt.Sprintf("/d/f%d", rng.Intn(8)), fmt.Sprintf("/d/f%d", rng.Intn(8))
				switch rng.Intn(5) {
				case 0:
					_ = vfs.UnlinkAt(c, top.at(x))
				case 1:
					_ = vfs.RenameAt(c, top.at(x), top.at(y), 0)
				case 2:
					_ = vfs.LinkAt(c, top.at(x), top.at(y))
				default:
					if f, err := vfs.OpenAt(c, top.at(x), unix.O_CREAT|unix.O_RDWR, 0o644); err == nil {
						b := mem.KernelBuf([]byte("new"))
						_, _ = f.WriteAt(c, &b, 0)
						f.DecRef()
					}
				}
			}
		}()
	}
	wg.Wait()
	top.list("/d")
}
