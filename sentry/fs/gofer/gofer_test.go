package gofer

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// tree is a file system over a temporary directory of the host.
type tree struct {
	*testing.T
	path string
	// remote is the name of the container that the gofer process knows it by.
	remote string
	cl     *Client
	fs     *Filesystem
	root   *dir
}

func newTree(t *testing.T, co Coherence, idle int) *tree {
	t.Helper()
	return newTreeAt(t, t.TempDir(), co, idle, false)
}

// newTreeAt is newTree for a directory, with the gofer process between if remote
// is set.
func newTreeAt(t *testing.T, path string, co Coherence, idle int, remote bool) *tree {
	t.Helper()
	x := &tree{T: t, path: path}
	if remote {
		x.attach(co, idle)
		return x
	}
	self, err := unix.Open("/proc/self/fd", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(self) })
	x.cl = NewClient(ClientOptions{Key: *testKey(1), ProcSelfFD: self, IdleFDs: idle})
	fd, err := unix.Open(x.path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if x.fs, err = x.cl.New(Options{RootFD: fd, Coherence: co}); err != nil {
		t.Fatal(err)
	}
	x.begin()
	return x
}

// begin takes the root, until the test's end.
func (x *tree) begin() {
	x.root = x.fs.Root().(*dir)
	x.Cleanup(func() {
		x.root.DecRef()
		x.fs.Release()
		if x.cl.fds.open != 0 || len(x.fs.inodes) != 0 {
			x.Errorf("left behind: %d descriptors, %d inodes", x.cl.fds.open, len(x.fs.inodes))
		}
	})
}

// both runs a test in both placements, with both coherences, and with so few
// idle descriptors that each is opened again and again.
func both(t *testing.T, run func(*tree)) {
	placed(t, func(t *testing.T, remote bool) {
		for _, idle := range []int{0, 1} {
			for co, name := range map[Coherence]string{Exclusive: "exclusive", Shared: "shared"} {
				t.Run(fmt.Sprintf("%s/idle=%d", name, idle), func(t *testing.T) { run(newTreeAt(t, t.TempDir(), co, idle, remote)) })
			}
		}
	})
}

// placed runs a test in both placements.
func placed(t *testing.T, run func(t *testing.T, remote bool)) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	t.Run("direct", func(t *testing.T) { run(t, false) })
	if os.Getenv(inUserns) == "" {
		t.Run("remote", func(t *testing.T) { run(t, true) })
	}
}

func (x *tree) lookup(path string) vfs.Inode {
	x.Helper()
	i, err := x.tryLookup(path)
	if err != nil {
		x.Fatalf("lookup %s: %v", path, err)
	}
	return i
}

func (x *tree) tryLookup(path string) (vfs.Inode, error) {
	var at vfs.Inode = x.fs.Root()
	for _, name := range strings.Split(path, "/") {
		next, err := at.(vfs.Dir).Lookup(nil, name)
		at.DecRef()
		if err != nil {
			return nil, err
		}
		at = next
	}
	return at, nil
}

func (x *tree) stat(i vfs.Inode) vfs.Stat {
	x.Helper()
	st, err := i.Stat(nil, unix.STATX_BASIC_STATS)
	if err != nil {
		x.Fatal(err)
	}
	return st
}

func (x *tree) create(d vfs.Dir, name, content string) vfs.Inode {
	x.Helper()
	i, ops, err := d.(vfs.CreateOpener).CreateOpen(nil, name, attr(0o644), unix.O_RDWR)
	if err != nil {
		x.Fatal(err)
	}
	defer ops.Release()
	x.write(ops, content, 0)
	return i
}

func (x *tree) write(ops vfs.FileOps, content string, off int64) int64 {
	x.Helper()
	buf := mem.KernelBuf([]byte(content))
	n, end, err := ops.(vfs.WriterAt).WriteAt(nil, nil, &buf, off)
	if err != nil || n != len(content) {
		x.Fatalf("write: %d, %v", n, err)
	}
	return end
}

func (x *tree) open(i vfs.Inode, flags uint32) vfs.FileOps {
	x.Helper()
	ops, err := i.Open(nil, nil, flags)
	if err != nil {
		x.Fatal(err)
	}
	return ops
}

func (x *tree) read(ops vfs.FileOps) string {
	x.Helper()
	b := make([]byte, 1<<20)
	buf := mem.KernelBuf(b)
	n, err := ops.(vfs.ReaderAt).ReadAt(nil, nil, &buf, 0)
	if err != nil {
		x.Fatal(err)
	}
	return string(b[:n])
}

func (x *tree) host(path string) string { return filepath.Join(x.path, path) }

func attr(mode uint32) vfs.CreateAttr { return vfs.CreateAttr{Mode: mode, UID: 1000, GID: 1001} }

func TestCreateReadWrite(t *testing.T) {
	both(t, func(x *tree) {
		i := x.create(x.root, "f", "hello")
		defer i.DecRef()
		st := x.stat(i)
		if st.Size != 5 || st.UID != 1000 || st.GID != 1001 || st.Mode != unix.S_IFREG|0o644 || st.Nlink != 1 {
			x.Errorf("stat: %+v", st)
		}
		if st.Ino>>inodeBits != 1 {
			x.Errorf("inode number %#x", st.Ino)
		}
		ops := x.open(i, unix.O_RDWR)
		if end := x.write(ops, " world", -1); end != 11 {
			x.Errorf("append ended at %d", end)
		}
		if got := x.read(ops); got != "hello world" {
			x.Errorf("read %q", got)
		}
		if got := x.stat(i).Size; got != 11 {
			x.Errorf("size %d", got)
		}
		if err := ops.(vfs.Syncer).Fsync(nil, true); err != nil {
			x.Error(err)
		}
		if err := ops.(vfs.Allocator).Fallocate(nil, 0, 0, 8192); err != nil && err != unix.EOPNOTSUPP {
			x.Error(err)
		}
		if off, err := ops.(vfs.Seeker).Seek(nil, nil, 0, unix.SEEK_DATA); off != 0 || err != nil {
			x.Errorf("SEEK_DATA: %d, %v", off, err)
		}
		ops.Release()
		size := uint64(3)
		if err := i.SetStat(nil, &vfs.SetStat{Size: &size}); err != nil {
			x.Error(err)
		}
		if b, err := os.ReadFile(x.host("f")); string(b) != "hel" || err != nil {
			x.Errorf("host has %q, %v", b, err)
		}
		if _, err := x.root.Create(nil, "f", attr(0o644)); err != unix.EEXIST {
			x.Errorf("create of an existing name: %v", err)
		}
		big := strings.Repeat("0123456789abcdef", 40000)
		j := x.create(x.root, "big", big)
		defer j.DecRef()
		ops = x.open(j, unix.O_RDONLY)
		defer ops.Release()
		if got := x.read(ops); got != big {
			x.Error("a large file reads differently")
		}
	})
}

func TestSetStat(t *testing.T) {
	both(t, func(x *tree) {
		if _, err := x.root.Mkdir(nil, "d", attr(0o2775)); err != nil {
			x.Fatal(err)
		}
		d := x.lookup("d")
		d.DecRef() // the reference of Mkdir
		defer d.DecRef()
		if st := x.stat(d); st.Mode != unix.S_IFDIR|0o2775 || st.UID != 1000 {
			x.Errorf("mkdir: %o %d", st.Mode, st.UID)
		}
		i := x.create(d.(vfs.Dir), "f", "x")
		defer i.DecRef()
		mode, uid := uint32(0o4711), uint32(7)
		s := &vfs.SetStat{Mode: &mode, UID: &uid, Mtime: &vfs.Timespec{Sec: 1234, Nsec: 5678}, AtimeNow: true}
		if err := i.SetStat(nil, s); err != nil {
			x.Fatal(err)
		}
		st := x.stat(i)
		if st.Mode != unix.S_IFREG|0o4711 || st.UID != 7 || st.GID != 1001 || st.Mtime != (vfs.Timespec{Sec: 1234, Nsec: 5678}) || st.Atime.Sec < 1e9 {
			x.Errorf("stat: %+v", st)
		}
	})
}

func TestLinksAndRename(t *testing.T) {
	both(t, func(x *tree) {
		i := x.create(x.root, "a", "A")
		defer i.DecRef()
		if err := x.root.Link(nil, "b", i); err != nil {
			x.Fatal(err)
		}
		b := x.lookup("b")
		if b != i {
			x.Error("two names of a file are two inodes")
		}
		b.DecRef()
		if n := x.stat(i).Nlink; n != 2 {
			x.Errorf("link count %d", n)
		}
		if err := x.root.Unlink(nil, "b", i); err != nil {
			x.Fatal(err)
		}
		if n := x.stat(i).Nlink; n != 1 {
			x.Errorf("link count %d", n)
		}
		d1, err := x.root.Mkdir(nil, "d1", attr(0o755))
		if err != nil {
			x.Fatal(err)
		}
		defer d1.DecRef()
		if err := x.root.Rename(nil, "a", i, d1.(vfs.Dir), "c", nil, 0); err != nil {
			x.Fatal(err)
		}
		// The directory moves too: its child is found through it.
		if err := x.root.Rename(nil, "d1", d1, x.root, "d2", nil, 0); err != nil {
			x.Fatal(err)
		}
		x.cl.fds.shrink()
		ops := x.open(i, unix.O_RDONLY)
		if got := x.read(ops); got != "A" {
			x.Errorf("after renames: %q", got)
		}
		ops.Release()
		// Replacing a file that is in use keeps it alive.
		e := x.create(x.root, "e", "E")
		defer e.DecRef()
		if err := x.root.Rename(nil, "e", e, d1.(vfs.Dir), "c", i, 0); err != nil {
			x.Fatal(err)
		}
		if n := x.stat(i).Nlink; n != 0 {
			x.Errorf("replaced file has %d links", n)
		}
		ops = x.open(i, unix.O_RDWR)
		if got := x.read(ops); got != "A" {
			x.Errorf("replaced file reads %q", got)
		}
		ops.Release()
		if b, _ := os.ReadFile(x.host("d2/c")); string(b) != "E" {
			x.Errorf("host has %q", b)
		}
		f := x.create(x.root, "f", "F")
		defer f.DecRef()
		if err := x.root.Rename(nil, "f", f, d1.(vfs.Dir), "c", e, unix.RENAME_EXCHANGE); err != nil {
			x.Fatal(err)
		}
		x.cl.fds.shrink()
		for i, want := range map[vfs.Inode]string{e: "E", f: "F"} {
			ops = x.open(i, unix.O_RDONLY)
			if got := x.read(ops); got != want {
				x.Errorf("after an exchange: %q, want %q", got, want)
			}
			ops.Release()
		}
	})
}

func TestUnlinkedFileLives(t *testing.T) {
	both(t, func(x *tree) {
		i := x.create(x.root, "f", "data")
		ops := x.open(i, unix.O_RDWR)
		if err := x.root.Unlink(nil, "f", i); err != nil {
			x.Fatal(err)
		}
		x.cl.fds.shrink()
		if st := x.stat(i); st.Nlink != 0 || st.Size != 4 {
			x.Errorf("stat: %+v", st)
		}
		x.write(ops, "more", -1)
		if got := x.read(ops); got != "datamore" {
			x.Errorf("read %q", got)
		}
		if _, err := x.tryLookup("f"); err != unix.ENOENT {
			x.Errorf("lookup: %v", err)
		}
		ops.Release()
		i.DecRef()
		d, err := x.root.Mkdir(nil, "d", attr(0o755))
		if err != nil {
			x.Fatal(err)
		}
		defer d.DecRef()
		j := x.create(d.(vfs.Dir), "f", "")
		if err := x.root.Rmdir(nil, "d", d); err != unix.ENOTEMPTY {
			x.Errorf("rmdir: %v", err)
		}
		if err := d.(vfs.Dir).Unlink(nil, "f", j); err != nil {
			x.Error(err)
		}
		j.DecRef()
		if err := x.root.Rmdir(nil, "d", d); err != nil {
			x.Error(err)
		}
		if _, err := d.(vfs.Dir).Create(nil, "x", attr(0o644)); err != unix.ENOENT {
			x.Errorf("create in a removed directory: %v", err)
		}
	})
}

func TestSpecialFiles(t *testing.T) {
	both(t, func(x *tree) {
		l, err := x.root.Symlink(nil, "l", "../target", attr(0o777))
		if err != nil {
			x.Fatal(err)
		}
		defer l.DecRef()
		if s, err := l.(vfs.Symlink).Readlink(nil); s != "../target" || err != nil {
			x.Errorf("readlink: %q, %v", s, err)
		}
		if st := x.stat(l); st.UID != 1000 || st.Mode != unix.S_IFLNK|0o777 {
			x.Errorf("symlink: %+v", st)
		}
		uid := uint32(5)
		if err := l.SetStat(nil, &vfs.SetStat{UID: &uid}); err != nil || x.stat(l).UID != 5 {
			x.Errorf("lchown: %v", err)
		}
		if _, err := l.Open(nil, nil, 0); err != unix.ELOOP {
			x.Errorf("open of a symlink: %v", err)
		}
		for name, typ := range map[string]uint32{"p": unix.S_IFIFO, "s": unix.S_IFSOCK} {
			i, err := x.root.Mknod(nil, name, attr(typ|0o640), 0)
			if err != nil {
				x.Fatal(err)
			}
			if st := x.stat(i); st.Mode != typ|0o640 || st.UID != 1000 {
				x.Errorf("%s: %+v", name, st)
			}
			i.DecRef()
		}
		tmp, err := x.root.Tmpfile(nil, attr(0o600))
		if err != nil {
			x.Fatal(err)
		}
		ops := x.open(tmp, unix.O_RDWR)
		x.write(ops, "T", 0)
		ops.Release()
		if st := x.stat(tmp); st.Nlink != 0 || st.Size != 1 || st.UID != 1000 {
			x.Errorf("tmpfile: %+v", st)
		}
		if err := x.root.Link(nil, "named", tmp); err != nil {
			x.Error(err)
		}
		tmp.DecRef()
		if b, err := os.ReadFile(x.host("named")); string(b) != "T" || err != nil {
			x.Errorf("linked temporary file: %q, %v", b, err)
		}
	})
}

func TestXattr(t *testing.T) {
	both(t, func(x *tree) {
		i := x.create(x.root, "f", "")
		defer i.DecRef()
		xa := i.(vfs.Xattrer)
		if err := xa.Setxattr(nil, "user.k", []byte("v"), 0); err != nil {
			if err == unix.EOPNOTSUPP {
				x.Skip("no user attributes here")
			}
			x.Fatal(err)
		}
		if err := xa.Setxattr(nil, "user.k", []byte("v"), unix.XATTR_CREATE); err != unix.EEXIST {
			x.Error(err)
		}
		big := bytes.Repeat([]byte("x"), 3000)
		if err := xa.Setxattr(nil, "user.big", big, 0); err != nil && err != unix.ENOSPC {
			x.Error(err)
		} else if v, _ := xa.Getxattr(nil, "user.big"); err == nil && !bytes.Equal(v, big) {
			x.Error("large value differs")
		}
		if v, err := xa.Getxattr(nil, "user.k"); string(v) != "v" || err != nil {
			x.Errorf("%q, %v", v, err)
		}
		names, err := xa.Listxattr(nil)
		if err != nil || len(names) == 0 {
			x.Errorf("%q, %v", names, err)
		}
		if err := xa.Removexattr(nil, "user.k"); err != nil {
			x.Error(err)
		}
		if _, err := xa.Getxattr(nil, "user.k"); err != unix.ENODATA {
			x.Error(err)
		}
		if _, err := xa.Getxattr(nil, "security.selinux"); err != unix.EOPNOTSUPP {
			x.Error(err)
		}
	})
}

func TestReadDir(t *testing.T) {
	both(t, func(x *tree) {
		want := []string{".", ".."}
		long := strings.Repeat("x", 200) // 400 entries then need several getdents
		for n := 0; n < 400; n++ {
			name := fmt.Sprintf("file-%d-%s", n, long)
			want = append(want, name)
			if err := os.WriteFile(x.host(name), nil, 0o644); err != nil {
				x.Fatal(err)
			}
		}
		sort.Strings(want)
		ops := x.open(x.root, unix.O_RDONLY)
		defer ops.Release()
		dr := ops.(vfs.DirReader)
		var got []string
		inos := map[string]uint64{}
		var pos, mid int64
		var midName string
		for {
			n := 0
			err := dr.ReadDir(nil, nil, pos, func(e vfs.Dirent) bool {
				if n == 100 {
					return false
				}
				n++
				got = append(got, e.Name)
				inos[e.Name] = e.Ino
				pos = e.Next
				if len(got) == 250 {
					mid = pos
				} else if len(got) == 251 {
					midName = e.Name
				}
				return true
			})
			if err != nil {
				x.Fatal(err)
			}
			if n == 0 {
				break
			}
		}
		sort.Strings(got)
		if strings.Join(got, " ") != strings.Join(want, " ") {
			x.Errorf("%d entries, want %d", len(got), len(want))
		}
		err := dr.ReadDir(nil, nil, mid, func(e vfs.Dirent) bool {
			if e.Name != midName {
				x.Errorf("seek gives %s, want %s", e.Name, midName)
			}
			return false
		})
		if err != nil {
			x.Error(err)
		}
		for _, name := range []string{"file-0-" + long, "file-399-" + long} {
			i := x.lookup(name)
			if st := x.stat(i); st.Ino != inos[name] {
				x.Errorf("d_ino %d, st_ino %d", inos[name], st.Ino)
			}
			i.DecRef()
		}
		if x.cl.numbers.remembered() != 0 || len(x.fs.inodes) != 1 {
			x.Error("listing a directory left something in memory")
		}
	})
}

func TestMappable(t *testing.T) {
	both(t, func(x *tree) {
		i := x.create(x.root, "f", strings.Repeat("x", 5000))
		defer i.DecRef()
		ops := x.open(i, unix.O_RDWR)
		defer ops.Release()
		m, err := ops.(vfs.Mapper).Mappable(nil, nil)
		if err != nil {
			x.Fatal(err)
		}
		r, err := m.Region(0, 1<<20, false)
		if err != nil || r.Len != 8192 || r.Off != 0 {
			x.Errorf("%+v, %v", r, err)
		}
		if _, err := m.Region(8192, 4096, false); err != unix.EFAULT {
			x.Errorf("beyond the end: %v", err)
		}
		s := &space{}
		if err := m.AddMapping(s, 0, 16384, true); err != nil {
			x.Error(err)
		}
		m.RemoveMapping(s, 4096, 4096, true)
		size := uint64(100)
		if err := i.SetStat(nil, &vfs.SetStat{Size: &size}); err != nil {
			x.Error(err)
		}
		if len(s.got) != 1 || s.got[0] != [2]int64{8192, 8192} {
			x.Errorf("invalidated %v", s.got)
		}
		m.RemoveMapping(s, 0, 4096, true)
		m.RemoveMapping(s, 8192, 8192, true)
		if n := len(i.(*regular).mappings); n != 0 {
			x.Errorf("%d mappings left", n)
		}
	})
}

type space struct{ got [][2]int64 }

func (s *space) Invalidate(m mem.Mappable, off, n int64, private bool) {
	s.got = append(s.got, [2]int64{off, n})
}

// TestSharedCoherence changes files from outside.
func TestSharedCoherence(t *testing.T) {
	x := newTree(t, Shared, 0)
	write := func(name, s string) {
		t.Helper()
		if err := os.WriteFile(x.host(name), []byte(s), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	valid := func(name string, i vfs.Inode) bool {
		t.Helper()
		ok, err := x.root.Revalidate(nil, name, i)
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	write("f", "one")
	i := x.lookup("f")
	defer i.DecRef()
	write("f", "longer")
	if !valid("f", i) || x.stat(i).Size != 6 {
		t.Error("a changed size is not seen")
	}
	if !valid("none", nil) || valid("f", nil) {
		t.Error("negative names")
	}
	write("g", "two")
	if err := os.Rename(x.host("g"), x.host("f")); err != nil {
		t.Fatal(err)
	}
	x.cl.fds.shrink()
	if valid("f", i) {
		t.Error("a replaced file is not noticed")
	}
	if _, err := i.Open(nil, nil, unix.O_RDONLY); err != unix.ESTALE {
		t.Errorf("open of a replaced file: %v", err)
	}
	if _, err := i.Stat(nil, unix.STATX_SIZE); err != unix.ESTALE {
		t.Errorf("stat of a replaced file: %v", err)
	}
	if err := os.Remove(x.host("f")); err != nil {
		t.Fatal(err)
	}
	if valid("f", i) || valid("none", i) {
		t.Error("a deleted file is not noticed")
	}
	// The type changes under the name: nothing is opened.
	if err := unix.Mkfifo(x.host("f"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := i.Open(nil, nil, unix.O_RDONLY); err != unix.ESTALE {
		t.Errorf("open of a file replaced by a fifo: %v", err)
	}
	os.Remove(x.host("f"))
	if err := os.Symlink("/etc/passwd", x.host("f")); err != nil {
		t.Fatal(err)
	}
	if _, err := i.Open(nil, nil, unix.O_RDONLY); err != unix.ESTALE {
		t.Errorf("open of a file replaced by a link: %v", err)
	}
}

// TestFileRoot uses a file as root, as a bind mount of /etc/hosts is.
func TestFileRoot(t *testing.T) {
	x := newTree(t, Shared, 0)
	if err := os.WriteFile(x.host("hosts"), []byte("localhost"), 0o644); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(x.host("hosts"), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	fs, err := x.cl.New(Options{RootFD: fd, Coherence: Shared})
	if err != nil {
		t.Fatal(err)
	}
	defer fs.Release()
	root := fs.Root()
	defer root.DecRef()
	ops := x.open(root, unix.O_RDWR)
	defer ops.Release()
	if got := x.read(ops); got != "localhost" {
		t.Errorf("read %q", got)
	}
	if x.stat(root).Size != 9 {
		t.Error("size")
	}
}

// TestDeepTree reopens a file below more directories than idle descriptors.
func TestDeepTree(t *testing.T) {
	both(t, func(x *tree) {
		var at vfs.Dir = x.fs.Root().(vfs.Dir)
		for n := 0; n < 200; n++ {
			next, err := at.Mkdir(nil, "d", attr(0o755))
			if err != nil {
				x.Fatal(err)
			}
			at.DecRef()
			at = next.(vfs.Dir)
		}
		i := x.create(at, "f", "deep")
		at.DecRef()
		defer i.DecRef()
		x.cl.fds.shrink()
		ops := x.open(i, unix.O_RDONLY)
		defer ops.Release()
		if got := x.read(ops); got != "deep" {
			x.Errorf("read %q", got)
		}
	})
}

// TestDescriptorReserve opens more files than the client may have open.
func TestDescriptorReserve(t *testing.T) {
	x := newTree(t, Exclusive, 0)
	x.cl.fds.limit = 20
	var open []vfs.FileOps
	var err error
	for n := 0; err == nil && n < 30; n++ {
		i, ops, cerr := x.root.CreateOpen(nil, fmt.Sprint("f", n), attr(0o644), unix.O_RDWR)
		if err = cerr; err == nil {
			open = append(open, ops)
			i.DecRef()
		}
	}
	if err != unix.ENFILE || len(open) < 15 {
		t.Errorf("%d files open, then %v", len(open), err)
	}
	for _, ops := range open {
		ops.Release()
	}
	x.create(x.root, "last", "x").DecRef()
}

// TestDescriptorLimit walks and opens with hardly any descriptors left.
func TestDescriptorLimit(t *testing.T) {
	x := newTree(t, Exclusive, 100000)
	for n := 0; n < 300; n++ {
		i := x.create(x.root, fmt.Sprint("f", n), "x")
		defer i.DecRef()
	}
	var old, low unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	low = old
	low.Cur = 64
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &old)
	for n := 0; n < 300; n++ {
		i := x.lookup(fmt.Sprint("f", n))
		ops := x.open(i, unix.O_RDONLY)
		if x.read(ops) != "x" {
			t.Error("wrong content")
		}
		ops.Release()
		i.DecRef()
	}
}
