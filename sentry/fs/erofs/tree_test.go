package erofs

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

var update = flag.Bool("update", false, "make the images in testdata anew, with mkfs.erofs")

// images are the variants in testdata and how mkfs.erofs makes them.
var images = []struct {
	name string
	args []string
}{
	{"inline", nil},
	{"plain", []string{"-Enoinline_data"}},
	{"chunks", []string{"--chunksize=4096"}},
	{"bigchunks", []string{"--chunksize=65536"}},
	{"extended", []string{"-Eforce-inode-extended"}},
}

const epoch = 1700000000

// pattern is the content of a file of n bytes.
func pattern(name string, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i>>8) ^ name[i%len(name)]
	}
	return b
}

// writeTree makes the tree that the images in testdata have.
func writeTree(t testing.TB, dir string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	file := func(name string, n int) {
		must(os.WriteFile(filepath.Join(dir, name), pattern(name, n), 0o644))
	}
	for _, n := range []int{0, 1, 100, 4000, 4095, 4096, 4097, 5000, 8192, 300_000} {
		file(fmt.Sprintf("f%d", n), n)
	}
	hole := make([]byte, 256<<10)
	copy(hole, "at the start")
	copy(hole[200<<10:], "behind the hole")
	must(os.WriteFile(filepath.Join(dir, "hole"), hole, 0o644))
	must(os.Symlink("f100", filepath.Join(dir, "soft")))
	must(os.Symlink(strings.Repeat("long/", 200), filepath.Join(dir, "longlink")))
	must(os.Link(filepath.Join(dir, "f100"), filepath.Join(dir, "hard")))
	must(unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	must(unix.Mknod(filepath.Join(dir, "null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	must(unix.Mknod(filepath.Join(dir, "large"), unix.S_IFBLK|0o600, int(unix.Mkdev(259, 70000))))
	must(os.MkdirAll(filepath.Join(dir, "sub/deep"), 0o711))
	must(os.Mkdir(filepath.Join(dir, "empty"), 0o1777))
	must(os.Chmod(filepath.Join(dir, "empty"), 0o777|os.ModeSticky))
	file("sub/deep/"+strings.Repeat("n", 100), 10)
	must(os.Mkdir(filepath.Join(dir, "many"), 0o755))
	for i := range 700 {
		must(os.WriteFile(filepath.Join(dir, "many", fmt.Sprintf("entry-%03d", i)), nil, 0o644))
	}
	file("suid", 20)
	must(os.Chmod(filepath.Join(dir, "suid"), 0o755|os.ModeSetuid))
	file("owned", 20)
	must(os.Chown(filepath.Join(dir, "owned"), 70000, 80000))
	for name, attrs := range map[string][]string{"f100": {"user.a", "user.same"}, "f5000": {"user.same", "security.x"}, "sub": {"trusted.t"}} {
		for _, a := range attrs {
			must(unix.Setxattr(filepath.Join(dir, name), a, []byte("value of "+a), 0))
		}
	}
	filepath.Walk(dir, func(path string, _ os.FileInfo, _ error) error {
		ts := []unix.Timespec{{Sec: epoch}, {Sec: epoch}}
		return unix.UtimesNanoAt(unix.AT_FDCWD, path, ts, unix.AT_SYMLINK_NOFOLLOW)
	})
}

// describe says in a line what a file is.
func describe(mode, uid, gid uint32, nlink uint64, rdev, size uint64, mtime int64, content string, xattrs []string) string {
	if mode&unix.S_IFMT == unix.S_IFDIR {
		nlink, size = 0, 0 // differ between file systems
	}
	sort.Strings(xattrs)
	return fmt.Sprintf("%o %d:%d links %d rdev %d size %d time %d %s %q", mode, uid, gid, nlink, rdev, size, mtime, content, xattrs)
}

// hostTree describes a directory of the host.
func hostTree(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.Walk(dir, func(path string, _ os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		content := ""
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			content = fmt.Sprintf("%x", sha256.Sum256(data))
		case unix.S_IFLNK:
			content, _ = os.Readlink(path)
		}
		var xattrs []string
		buf := make([]byte, 1000)
		n, _ := unix.Llistxattr(path, buf)
		for _, name := range strings.Split(strings.TrimSuffix(string(buf[:max(n, 0)]), "\x00"), "\x00") {
			if v := make([]byte, 100); name != "" {
				n, err := unix.Lgetxattr(path, name, v)
				if err != nil {
					return err
				}
				xattrs = append(xattrs, name+"="+string(v[:n]))
			}
		}
		all[strings.TrimPrefix(path, dir)] = describe(st.Mode, st.Uid, st.Gid, uint64(st.Nlink), uint64(st.Rdev), uint64(st.Size), st.Mtim.Sec, content, xattrs)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// open opens an image; the file system is released with the test.
func open(t testing.TB, data []byte) (*FS, error) {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "image")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	mf, err := mem.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(mf.Close)
	fs, err := New(Options{Image: f, Memory: mf, Account: mem.NewAccount(nil, 0)})
	if err != nil {
		f.Close()
		return nil, err
	}
	t.Cleanup(func() {
		if n := len(fs.inodes); n != 0 {
			t.Errorf("%d inodes are still held", n)
		}
		if n := fs.o.Account.Total(); n != 0 {
			t.Errorf("%d bytes are still charged", n)
		}
		fs.Release()
	})
	return fs, nil
}

// golden is an image of testdata.
func golden(t testing.TB, name string) []byte {
	t.Helper()
	f, err := os.Open("testdata/" + name + ".erofs.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// walker describes the files of an image, at most so many, each way to them.
type walker struct {
	fs   *FS
	left int
	all  map[string]string
	read func(f *file, size int64) ([]byte, error)
}

func (w *walker) walk(path string, i vfs.Inode) error {
	defer i.DecRef()
	if w.left--; w.left < 0 {
		return nil
	}
	st, err := i.Stat(nil, 0)
	if err != nil {
		return err
	}
	content := ""
	var entries []vfs.Dirent
	switch o := i.(type) {
	case *regular:
		ops, err := o.Open(nil, nil, unix.O_RDONLY)
		if err != nil {
			return err
		}
		data, err := w.read(ops.(*file), int64(st.Size))
		if err != nil {
			return err
		}
		content = fmt.Sprintf("%x", sha256.Sum256(data))
	case *symlink:
		if content, err = o.Readlink(nil); err != nil {
			return err
		}
	case *dir:
		ops, _ := o.Open(nil, nil, unix.O_RDONLY)
		// Each entry by a call of its own, from the position that the last one gave.
		for pos, more := int64(0), true; more && len(entries) < w.left+10; {
			more = false
			if err := ops.(*dirFile).ReadDir(nil, nil, pos, func(d vfs.Dirent) bool {
				if more {
					return false
				}
				entries, pos, more = append(entries, d), d.Next, true
				return true
			}); err != nil {
				return err
			}
		}
	}
	var xattrs []string
	x := i.(vfs.Xattrer)
	names, err := x.Listxattr(nil)
	if err != nil {
		return err
	}
	for _, name := range names {
		v, err := x.Getxattr(nil, name)
		if err != nil {
			return err
		}
		xattrs = append(xattrs, name+"="+string(v))
	}
	w.all[path] = describe(st.Mode, st.UID, st.GID, uint64(st.Nlink), st.Rdev, st.Size, st.Mtime.Sec, content, xattrs)
	for _, e := range entries {
		if e.Name == "." || e.Name == ".." {
			continue
		}
		child, err := i.(*dir).Lookup(nil, e.Name)
		if err != nil {
			return fmt.Errorf("%s/%s: %w", path, e.Name, err)
		}
		if err := w.walk(path+"/"+e.Name, child); err != nil {
			return err
		}
	}
	return nil
}

// readAll reads a file as read(2) does.
func readAll(f *file, size int64) ([]byte, error) {
	b := make([]byte, size+100)
	buf := mem.KernelBuf(b)
	n, err := f.ReadAt(nil, nil, &buf, 0)
	return b[:n], err
}

// readMapped reads a file as a mapping of it shows it.
func readMapped(f *file, size int64) ([]byte, error) {
	m, err := f.Mappable(nil, nil)
	if err != nil {
		return nil, err
	}
	var all []byte
	for off := int64(0); off < size; {
		r, err := m.Region(off, 1<<20, false)
		if err != nil {
			return nil, err
		}
		if r.Len <= 0 || r.Len%pageSize != 0 || r.Off%pageSize != 0 || r.Len > 1<<20 {
			return nil, fmt.Errorf("region %+v", r)
		}
		p := make([]byte, r.Len)
		if r.Frames {
			err = f.i.fs.o.Memory.ReadAt(p, uint64(r.Off))
		} else {
			_, err = unix.Pread(r.FD, p, r.Off)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, p...)
		off += r.Len
	}
	if _, err := m.Region((size+pageSize-1)&^(pageSize-1), pageSize, false); err != unix.EFAULT {
		return nil, fmt.Errorf("beyond the end: %v", err)
	}
	if len(bytes.Trim(all[size:], "\x00")) != 0 {
		return nil, fmt.Errorf("bytes beyond the end of file")
	}
	return all[:size], nil
}

// TestTree compares each image with the tree that it was made of, read in two ways.
func TestTree(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	host := filepath.Join(t.TempDir(), "tree")
	if err := os.Mkdir(host, 0o755); err != nil {
		t.Fatal(err)
	}
	writeTree(t, host)
	want := hostTree(t, host)
	for _, im := range images {
		if *update {
			makeGolden(t, im.name, host, im.args)
		}
		for how, read := range map[string]func(*file, int64) ([]byte, error){"read": readAll, "mapped": readMapped} {
			t.Run(im.name+"/"+how, func(t *testing.T) {
				fs, err := open(t, golden(t, im.name))
				if err != nil {
					t.Fatal(err)
				}
				w := walker{fs: fs, left: 10000, all: map[string]string{}, read: read}
				if err := w.walk("", fs.Root()); err != nil {
					t.Fatal(err)
				}
				for name, d := range want {
					if w.all[name] != d {
						t.Errorf("%s is\n%s, want\n%s", name, w.all[name], d)
					}
				}
				if len(w.all) != len(want) {
					t.Errorf("%d files, want %d", len(w.all), len(want))
				}
			})
		}
	}
}

func makeGolden(t *testing.T, name, dir string, args []string) {
	t.Helper()
	raw := filepath.Join(t.TempDir(), "image")
	args = append(args, "-d1", "-U", "00000000-1111-2222-3333-444444444444", "-T", fmt.Sprint(epoch), raw, dir)
	if out, err := exec.Command("mkfs.erofs", args...).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.erofs: %v\n%.1000s", err, out)
	}
	data, err := os.ReadFile(raw)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
	z.Write(data)
	z.Close()
	if err := os.WriteFile("testdata/"+name+".erofs.gz", b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

func kernelBuf(n int) *mem.UserBuf {
	b := mem.KernelBuf(make([]byte, n))
	return &b
}
