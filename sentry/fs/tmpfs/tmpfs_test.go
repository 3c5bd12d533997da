package tmpfs_test

import (
	"bytes"
	"fmt"
	"math/rand"
	"testing"

	"golang.org/x/sys/unix"

	"runsc/pkg/ref"
	"runsc/sentry/fs/tmpfs"
	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

type env struct {
	t  testing.TB
	c  vfs.Caller
	fs *vfs.FSContext
	t2 *tmpfs.FS
	mf *mem.File
	ac *mem.Account
}

func newEnv(t testing.TB, cfg tmpfs.Config) *env {
	t.Helper()
	before := ref.Snapshot()
	mf, err := mem.New()
	if err != nil {
		t.Fatal(err)
	}
	c := vfs.KernelCaller()
	cfg.Memory, cfg.Account = mf, mem.NewAccount(nil, 0)
	fs := tmpfs.New(c, cfg)
	ns := vfs.NewNamespace(fs, 0)
	root := ns.Root()
	ctx := vfs.NewFSContext(root, root, 0o022)
	root.DecRef()
	t.Cleanup(func() {
		ctx.DecRef()
		ns.DecRef()
		vfs.DropCaches()
		if n := cfg.Account.Total(); n != 0 {
			t.Errorf("%d bytes are still charged", n)
		}
		mf.Close()
		if l := ref.Leaks(before); l != "" {
			t.Errorf("left over: %s", l)
		}
	})
	return &env{t, c, ctx, fs, mf, cfg.Account}
}

func (e *env) open(name string, flags uint32) *vfs.File {
	e.t.Helper()
	f, err := vfs.OpenAt(e.c, vfs.At{FS: e.fs, Name: name}, flags, 0o644)
	if err != nil {
		e.t.Fatalf("open %s: %v", name, err)
	}
	return f
}

func (e *env) pwrite(f *vfs.File, p []byte, off int64) {
	e.t.Helper()
	b := mem.KernelBuf(p)
	if n, err := f.WriteAt(e.c, &b, off); n != len(p) || err != nil {
		e.t.Fatalf("pwrite of %d at %d: %d, %v", len(p), off, n, err)
	}
}

func (e *env) pread(f *vfs.File, n int, off int64) []byte {
	e.t.Helper()
	p := make([]byte, n)
	b := mem.KernelBuf(p)
	got, err := f.ReadAt(e.c, &b, off)
	if err != nil {
		e.t.Fatalf("pread at %d: %v", off, err)
	}
	return p[:got]
}

func (e *env) stat(f *vfs.File) vfs.Stat {
	e.t.Helper()
	st, err := f.Stat(e.c, unix.STATX_BASIC_STATS)
	if err != nil {
		e.t.Fatal(err)
	}
	return st
}

func TestFileData(t *testing.T) {
	e := newEnv(t, tmpfs.Config{})
	f := e.open("/f", unix.O_CREAT|unix.O_RDWR)
	defer f.DecRef()
	e.pwrite(f, []byte("hello"), 0)
	e.pwrite(f, []byte("far"), 10<<20)
	if st := e.stat(f); st.Size != 10<<20+3 || st.Blocks != 16 {
		t.Errorf("size %d, blocks %d", st.Size, st.Blocks)
	}
	if got := e.pread(f, 10, 0); string(got) != "hello\x00\x00\x00\x00\x00" {
		t.Errorf("read %q", got)
	}
	seeks := []struct {
		off    int64
		whence int
		want   int64
		err    error
	}{
		{0, unix.SEEK_DATA, 0, nil},
		{0, unix.SEEK_HOLE, 4096, nil},
		{4096, unix.SEEK_DATA, 10 << 20, nil},
		{5000, unix.SEEK_HOLE, 5000, nil},
		{10<<20 + 1, unix.SEEK_HOLE, 10<<20 + 3, nil},
		{10<<20 + 3, unix.SEEK_DATA, 0, unix.ENXIO},
		{-1, unix.SEEK_END, 10<<20 + 2, nil},
		{-1, unix.SEEK_SET, 0, unix.EINVAL},
	}
	for _, s := range seeks {
		got, err := f.Seek(e.c, s.off, s.whence)
		if got != s.want || err != s.err {
			t.Errorf("seek %d, %d: %d, %v; want %d, %v", s.off, s.whence, got, err, s.want, s.err)
		}
	}
	// Shrinking and growing again leaves zeros.
	for _, n := range []int64{3, 4096 * 3} {
		if err := f.Truncate(e.c, n); err != nil {
			t.Fatal(err)
		}
	}
	if got := e.pread(f, 8, 0); string(got) != "hel\x00\x00\x00\x00\x00" {
		t.Errorf("after truncate: %q", got)
	}
	if st := e.stat(f); st.Blocks != 8 {
		t.Errorf("blocks %d after truncate", st.Blocks)
	}
}

func TestFallocate(t *testing.T) {
	e := newEnv(t, tmpfs.Config{})
	f := e.open("/f", unix.O_CREAT|unix.O_RDWR)
	defer f.DecRef()
	all := bytes.Repeat([]byte("x"), 5*4096)
	e.pwrite(f, all, 0)
	if err := f.Fallocate(e.c, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 100, 3*4096); err != nil {
		t.Fatal(err)
	}
	want := append([]byte{}, all...)
	clear(want[100 : 100+3*4096])
	if got := e.pread(f, len(all), 0); !bytes.Equal(got, want) {
		t.Error("wrong bytes after a punch")
	}
	if b := e.stat(f).Blocks; b != 3*8 {
		t.Errorf("blocks %d after a punch", b)
	}
	if err := f.Fallocate(e.c, unix.FALLOC_FL_KEEP_SIZE, 0, 10*4096); err != nil {
		t.Fatal(err)
	}
	if st := e.stat(f); st.Blocks != 80 || st.Size != 5*4096 {
		t.Errorf("blocks %d, size %d after keep-size", st.Blocks, st.Size)
	}
	if err := f.Fallocate(e.c, 0, 0, 12*4096); err != nil {
		t.Fatal(err)
	}
	if st := e.stat(f); st.Size != 12*4096 {
		t.Errorf("size %d", st.Size)
	}
	if err := f.Fallocate(e.c, unix.FALLOC_FL_COLLAPSE_RANGE, 0, 4096); err != unix.EOPNOTSUPP {
		t.Errorf("collapse: %v", err)
	}
}

// TestRandomIO compares a file with a slice of bytes.
func TestRandomIO(t *testing.T) {
	e := newEnv(t, tmpfs.Config{})
	f := e.open("/f", unix.O_CREAT|unix.O_RDWR)
	defer f.DecRef()
	const size = 6 << 20
	model := []byte{}
	rng := rand.New(rand.NewSource(1))
	grow := func(n int) {
		if n > len(model) {
			model = append(model, make([]byte, n-len(model))...)
		}
	}
	for i := range 400 {
		off, n := rng.Intn(size), rng.Intn(200<<10)
		switch rng.Intn(8) {
		case 0:
			if err := f.Truncate(e.c, int64(off)); err != nil {
				t.Fatal(err)
			}
			grow(off)
			model = model[:off:off]
		case 1:
			if err := f.Fallocate(e.c, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(off), int64(n+1)); err != nil {
				t.Fatal(err)
			}
			if off < len(model) {
				clear(model[off:min(off+n+1, len(model))])
			}
		default:
			p := make([]byte, n)
			rng.Read(p)
			e.pwrite(f, p, int64(off))
			if n > 0 {
				grow(off + n)
			}
			copy(model[min(off, len(model)):], p)
		}
		if st := e.stat(f); st.Size != uint64(len(model)) || st.Blocks > (size+1<<20)/512 {
			t.Fatalf("step %d: size %d, want %d, blocks %d", i, st.Size, len(model), st.Blocks)
		}
		at := rng.Intn(size)
		want := model[min(at, len(model)):min(at+300<<10, len(model))]
		if got := e.pread(f, 300<<10, int64(at)); !bytes.Equal(got, want) {
			t.Fatalf("step %d: bytes at %d differ (%d, %d)", i, at, len(got), len(want))
		}
	}
}

func TestLimits(t *testing.T) {
	e := newEnv(t, tmpfs.Config{Size: 4 * 4096, Inodes: 3})
	f := e.open("/f", unix.O_CREAT|unix.O_RDWR|unix.O_APPEND)
	b := mem.KernelBuf(make([]byte, 10*4096))
	if n, err := f.Write(e.c, &b); n != 4*4096 || err != unix.ENOSPC {
		t.Errorf("write: %d, %v", n, err)
	}
	st, _, _ := vfs.StatfsAt(e.c, vfs.At{FS: e.fs, Name: "/"})
	if st.Blocks != 4 || st.Bfree != 0 || st.Files != 3 || st.Ffree != 1 {
		t.Errorf("statfs: %+v", st)
	}
	f.DecRef()
	if err := vfs.MkdirAt(e.c, vfs.At{FS: e.fs, Name: "/d"}, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := vfs.MkdirAt(e.c, vfs.At{FS: e.fs, Name: "/d2"}, 0o755); err != unix.ENOSPC {
		t.Errorf("mkdir without inodes: %v", err)
	}
	if err := vfs.UnlinkAt(e.c, vfs.At{FS: e.fs, Name: "/f"}); err != nil {
		t.Fatal(err)
	}
	st, _, _ = vfs.StatfsAt(e.c, vfs.At{FS: e.fs, Name: "/"})
	if st.Bfree != 4 || st.Ffree != 1 {
		t.Errorf("statfs after unlink: %+v", st)
	}
}

// TestReadDirStable deletes and makes names during a listing: those that stay
// are seen exactly once.
func TestReadDirStable(t *testing.T) {
	e := newEnv(t, tmpfs.Config{})
	const n = 500
	for i := range n {
		e.open(fmt.Sprintf("/f%d", i), unix.O_CREAT|unix.O_WRONLY).DecRef()
	}
	d := e.open("/", unix.O_RDONLY|unix.O_DIRECTORY)
	defer d.DecRef()
	seen := map[string]int{}
	for round := 0; ; round++ {
		got := 0
		if err := d.ReadDir(e.c, func(x vfs.Dirent) bool {
			if got == 10 {
				return false
			}
			seen[x.Name]++
			got++
			return true
		}); err != nil {
			t.Fatal(err)
		}
		if got == 0 {
			break
		}
		if round > n {
			t.Fatal("the listing does not end")
		}
		for i := range 5 {
			_ = vfs.UnlinkAt(e.c, vfs.At{FS: e.fs, Name: fmt.Sprintf("/f%d", round*10+5+i)})
		}
		if round < 20 {
			e.open(fmt.Sprintf("/g%d", round), unix.O_CREAT|unix.O_WRONLY).DecRef()
		}
	}
	for name, k := range seen {
		if k != 1 {
			t.Errorf("%s seen %d times", name, k)
		}
	}
	for i := range n {
		name := fmt.Sprintf("f%d", i)
		if _, err := vfs.StatAt(e.c, vfs.At{FS: e.fs, Name: "/" + name}, 0); err == nil && seen[name] != 1 {
			t.Errorf("%s not seen", name)
		}
	}
}

func TestXattr(t *testing.T) {
	e := newEnv(t, tmpfs.Config{})
	e.open("/f", unix.O_CREAT|unix.O_WRONLY).DecRef()
	at := vfs.At{FS: e.fs, Name: "/f"}
	if err := vfs.SetxattrAt(e.c, at, "user.a", []byte("1"), unix.XATTR_REPLACE); err != unix.ENODATA {
		t.Errorf("replace of a missing one: %v", err)
	}
	if err := vfs.SetxattrAt(e.c, at, "user.a", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	if err := vfs.SetxattrAt(e.c, at, "user.a", []byte("1"), unix.XATTR_CREATE); err != unix.EEXIST {
		t.Errorf("create of an existing one: %v", err)
	}
	if err := vfs.SetxattrAt(e.c, at, "bogus.a", nil, 0); err != unix.EOPNOTSUPP {
		t.Errorf("unknown prefix: %v", err)
	}
	if err := vfs.SetxattrAt(e.c, at, "user.big", make([]byte, 65537), 0); err != unix.E2BIG {
		t.Errorf("too big: %v", err)
	}
	if v, err := vfs.GetxattrAt(e.c, at, "user.a"); string(v) != "1" || err != nil {
		t.Errorf("get: %q, %v", v, err)
	}
	if n, err := vfs.ListxattrAt(e.c, at); len(n) != 1 || err != nil {
		t.Errorf("list: %q, %v", n, err)
	}
	if err := vfs.RemovexattrAt(e.c, at, "user.a"); err != nil {
		t.Error(err)
	}
	if _, err := vfs.GetxattrAt(e.c, at, "user.a"); err != unix.ENODATA {
		t.Errorf("get after removal: %v", err)
	}
}

type space struct{ calls []string }

func (s *space) Invalidate(m mem.Mappable, off, n int64, private bool) {
	s.calls = append(s.calls, fmt.Sprint(off, n, private))
}

func TestMapping(t *testing.T) {
	e := newEnv(t, tmpfs.Config{})
	f := e.open("/f", unix.O_CREAT|unix.O_RDWR)
	defer f.DecRef()
	e.pwrite(f, bytes.Repeat([]byte("y"), 3*4096+1), 0)
	m, err := f.Mappable(e.c)
	if err != nil {
		t.Fatal(err)
	}
	m.IncRef()
	defer m.DecRef()
	s := &space{}
	if err := m.AddMapping(s, 0, 1<<20, true); err != nil {
		t.Fatal(err)
	}
	r, err := m.Region(0, 1<<20, false)
	if err != nil || r.Len != 4*4096 || !r.Frames {
		t.Fatalf("region %+v, %v", r, err)
	}
	if _, err := m.Region(4*4096, 4096, false); err != unix.EFAULT {
		t.Errorf("beyond the end: %v", err)
	}
	if err := f.Truncate(e.c, 4096); err != nil {
		t.Fatal(err)
	}
	if len(s.calls) != 1 {
		t.Errorf("invalidations: %v", s.calls)
	}
	if name, _, ino := m.MapName(); name != "/f" || ino != e.stat(f).Ino {
		t.Errorf("name %q, inode %d", name, ino)
	}
	m.RemoveMapping(s, 0, 1<<20, true)
}

func BenchmarkWrite1M(b *testing.B) {
	e := newEnv(b, tmpfs.Config{})
	p := make([]byte, 1<<20)
	for i := range p {
		p[i] = byte(i)
	}
	b.SetBytes(64 << 20)
	for b.Loop() {
		f := e.open("/f", unix.O_CREAT|unix.O_WRONLY|unix.O_TRUNC)
		for range 64 {
			buf := mem.KernelBuf(p)
			if _, err := f.Write(e.c, &buf); err != nil {
				b.Fatal(err)
			}
		}
		f.DecRef()
	}
}

func BenchmarkPread4K(b *testing.B) {
	e := newEnv(b, tmpfs.Config{})
	f := e.open("/f", unix.O_CREAT|unix.O_RDWR)
	defer f.DecRef()
	p := make([]byte, 4096)
	e.pwrite(f, p, 0)
	b.ReportAllocs()
	for b.Loop() {
		buf := mem.KernelBuf(p)
		if n, _ := f.ReadAt(e.c, &buf, 0); n != 4096 {
			b.Fatal(n)
		}
	}
}

func BenchmarkStat(b *testing.B) {
	e := newEnv(b, tmpfs.Config{})
	for _, d := range []string{"/usr", "/usr/share", "/usr/share/doc"} {
		if err := vfs.MkdirAt(e.c, vfs.At{FS: e.fs, Name: d}, 0o755); err != nil {
			b.Fatal(err)
		}
	}
	e.open("/usr/share/doc/f", unix.O_CREAT|unix.O_RDWR).DecRef()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := vfs.StatAt(e.c, vfs.At{FS: e.fs, Name: "/usr/share/doc/f"}, 0); err != nil {
			b.Fatal(err)
		}
	}
}
