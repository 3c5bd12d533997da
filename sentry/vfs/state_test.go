package vfs_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"runsc/pkg/ref"
	"runsc/sentry/clock"
	"runsc/sentry/fs/dev"
	"runsc/sentry/fs/gofer"
	"runsc/sentry/fs/host"
	"runsc/sentry/fs/overlay"
	"runsc/sentry/fs/pseudo"
	"runsc/sentry/fs/tmpfs"
	"runsc/sentry/image"
	"runsc/sentry/mem"
	"runsc/sentry/pipe"
	"runsc/sentry/vfs"
)

// world is a container's files: an overlay over a host directory, a host
// volume at /vol, a tmpfs at /tmp and a computed file system at /proc.
type world struct {
	testing.TB
	root, vol string // host directories
	c         *task
	self      int
	mf        *mem.File
	cl        *gofer.Client
	clock     *clock.Clock
	newStream func(n int) (*vfs.File, error)
	newFS     func(typ, source, options string) (vfs.Filesystem, error)

	ns  *vfs.Namespace
	fs  *vfs.FSContext
	fds *vfs.FDTable
	out [3]*os.File // the other ends of the standard streams
	in  [3]*os.File
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// newWorld returns a sandbox without files.
func newWorld(t testing.TB, root, vol string) *world {
	t.Helper()
	w := &world{TB: t, root: root, vol: vol, c: newTask(0), clock: clock.New(), newFS: newProc}
	var err error
	w.mf, err = mem.New()
	w.must(err)
	w.self, err = unix.Open("/proc/self/fd", unix.O_PATH|unix.O_CLOEXEC, 0)
	w.must(err)
	w.cl = gofer.NewClient(gofer.ClientOptions{ProcSelfFD: w.self})
	for n := range w.out {
		r, x, err := os.Pipe()
		w.must(err)
		if n == 0 {
			w.in[n], w.out[n] = r, x
		} else {
			w.in[n], w.out[n] = x, r
		}
	}
	dev.Register()
	pipe.Register()
	return w
}

func (w *world) hostFS(dest string) (vfs.Filesystem, error) {
	dir, co := w.root, gofer.Exclusive
	switch dest {
	case "/":
	case "/vol":
		dir, co = w.vol, gofer.Shared
	default:
		return nil, fmt.Errorf("no mount at %s", dest)
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return w.cl.New(gofer.Options{RootFD: fd, Coherence: co, Destination: dest})
}

var procTree = pseudo.Tree[int]{
	{Path: "hello", Type: unix.DT_REG, Make: func(n int) pseudo.Node {
		return pseudo.File{Perm: 0o444, Gen: func(_ vfs.Caller, b *bytes.Buffer) error {
			fmt.Fprintf(b, "hello world %d\n", n)
			return nil
		}}
	}},
}

// procNumber is what /proc/hello ends with.
var procNumber int

func newProc(typ, source, options string) (vfs.Filesystem, error) {
	if typ != "proc" {
		return nil, unix.ENODEV
	}
	return pseudo.New(pseudo.Options{Type: "proc", Magic: 1, Root: pseudo.TreeDir[int]{Owner: procNumber, Tree: procTree},
		Source: source, MountOptions: options}), nil
}

func (w *world) stream(n int) (*vfs.File, error) {
	if w.newStream != nil {
		return w.newStream(n)
	}
	fd, err := unix.FcntlInt(w.in[n].Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	flags := uint32(unix.O_WRONLY)
	if n == 0 {
		flags = unix.O_RDONLY
	}
	return host.New(fd, flags)
}

// build mounts everything.
func (w *world) build() {
	w.Helper()
	low, err := w.hostFS("/")
	w.must(err)
	over, err := overlay.New(w.c, overlay.Config{Lower: []vfs.Filesystem{low},
		Upper: tmpfs.New(w.c, tmpfs.Config{Memory: w.mf, Source: "none", Mode: 0o755})})
	w.must(err)
	w.ns = vfs.NewNamespace(over, 0)
	root := w.ns.Root()
	w.fs = vfs.NewFSContext(root, root, 0o022)
	root.DecRef()
	w.fds = vfs.NewFDTable()
	for _, d := range []string{"/tmp", "/proc", "/vol", "/dev"} {
		w.must(vfs.MkdirAt(w.c, w.at(d), 0o755))
	}
	vol, err := w.hostFS("/vol")
	w.must(err)
	w.must(vfs.MountAt(w.c, w.at("/vol"), vol, unix.MS_NOSUID))
	w.must(vfs.MountAt(w.c, w.at("/tmp"), tmpfs.New(w.c, tmpfs.Config{Memory: w.mf, Size: 64 << 20}), unix.MS_NODEV))
	proc, err := newProc("proc", "proc", "x=y")
	w.must(err)
	w.must(vfs.MountAt(w.c, w.at("/proc"), proc, unix.MS_RDONLY))
	w.must(vfs.MknodAt(w.c, w.at("/dev/null"), unix.S_IFCHR|0o666, unix.Mkdev(1, 3)))
	for n := range 3 {
		f, err := w.stream(n)
		w.must(err)
		host.SetSlot(f, n)
		w.must(w.fds.Dup3(w.c, f, int32(n), false))
	}
}

func (w *world) at(name string) vfs.At { return vfs.At{FS: w.fs, Name: name} }

func (w *world) open(name string, flags uint32) *vfs.File {
	w.Helper()
	f, err := vfs.OpenAt(w.c, w.at(name), flags, 0o644)
	if err != nil {
		w.Fatalf("open %s: %v", name, err)
	}
	return f
}

// install gives f a number, which it returns; the table has the reference.
func (w *world) install(f *vfs.File) int32 {
	w.Helper()
	fd, err := w.fds.Install(w.c, f, 3, false)
	w.must(err)
	return fd
}

func (w *world) get(fd int32) *vfs.File {
	w.Helper()
	f, err := w.fds.Get(fd)
	if err != nil {
		w.Fatalf("fd %d: %v", fd, err)
	}
	w.Cleanup(f.DecRef)
	return f
}

func (w *world) write(f *vfs.File, s string) {
	w.Helper()
	b := mem.KernelBuf([]byte(s))
	n, err := f.Write(w.c, &b)
	if err != nil || n != len(s) {
		w.Fatalf("write: %d, %v", n, err)
	}
}

func (w *world) read(f *vfs.File, n int) string {
	w.Helper()
	p := make([]byte, n)
	b := mem.KernelBuf(p)
	n, err := f.Read(w.c, &b)
	if err != nil {
		w.Fatalf("read: %v", err)
	}
	return string(p[:n])
}

func (w *world) readFile(name string) string {
	w.Helper()
	f := w.open(name, unix.O_RDONLY)
	defer f.DecRef()
	var b strings.Builder
	for {
		s := w.read(f, 4096)
		if s == "" {
			return b.String()
		}
		b.WriteString(s)
	}
}

func (w *world) writeFile(name, s string) {
	w.Helper()
	f := w.open(name, unix.O_CREAT|unix.O_WRONLY|unix.O_TRUNC)
	defer f.DecRef()
	w.write(f, s)
}

// names reads at most max entries of an open directory.
func (w *world) names(f *vfs.File, max int) []string {
	w.Helper()
	var out []string
	w.must(f.ReadDir(w.c, func(d vfs.Dirent) bool {
		if len(out) == max {
			return false
		}
		out = append(out, fmt.Sprintf("%s %d %d", d.Name, d.Ino, d.Type))
		return true
	}))
	return out
}

// tree lists what is below a directory with all attributes.
func (w *world) tree(dir string) []string {
	w.Helper()
	var out []string
	w.walk(dir, &out)
	sort.Strings(out)
	return out
}

func (w *world) walk(name string, out *[]string) {
	w.Helper()
	at := w.at(name)
	at.Flags |= vfs.NoFollow
	p, err := vfs.LookupAt(w.c, at)
	w.must(err)
	defer p.DecRef()
	st, err := p.Inode().Stat(w.c, unix.STATX_BASIC_STATS)
	w.must(err)
	line := fmt.Sprintf("%s %o %d:%d ino=%x dev=%x links=%d rdev=%x size=%d m=%v c=%v", name, st.Mode, st.UID, st.GID,
		st.Ino, st.Dev, st.Nlink, st.Rdev, st.Size, st.Mtime, st.Ctime)
	if x, ok := p.Inode().(vfs.Xattrer); ok {
		list, _ := x.Listxattr(w.c)
		sort.Strings(list)
		for _, n := range list {
			v, err := x.Getxattr(w.c, n)
			line += fmt.Sprintf(" %s=%q %v", n, v, err)
		}
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		f := w.open(name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOATIME)
		list := w.names(f, 1<<20)
		f.DecRef()
		for _, e := range list {
			n, _, _ := strings.Cut(e, " ")
			if n != "." && n != ".." && name != "/proc" {
				w.walk(strings.TrimSuffix(name, "/")+"/"+n, out)
			}
		}
	case unix.S_IFREG:
		if st.Size < 1<<20 {
			line += fmt.Sprintf(" %q", w.readFile(name))
		}
	case unix.S_IFLNK:
		s, err := p.Inode().(vfs.Symlink).Readlink(w.c)
		line += fmt.Sprintf(" -> %s %v", s, err)
	}
	*out = append(*out, line)
}

// saved is an image in memory.
type saved struct {
	kernel      []byte
	frames      map[uint64][]byte
	ns, fs, fds image.ID
	validate    bool
	mono        int64
	mappings    []image.ID
}

func (w *world) save(validate bool, mappings ...mem.Mappable) *saved {
	w.Helper()
	s, err := w.trySave(validate, mappings...)
	w.must(err)
	return s
}

func (w *world) trySave(validate bool, mappings ...mem.Mappable) (*saved, error) {
	var buf bytes.Buffer
	iw := image.NewWriter(&buf)
	e := &vfs.SaveEnv{Saver: image.NewSaver(iw), Frames: &mem.FrameSet{}, Caller: w.c, Validate: validate}
	s := &saved{frames: map[uint64][]byte{}, validate: validate, mono: w.clock.Monotonic()}
	var err error
	if s.ns, err = vfs.SaveNamespace(e, w.ns); err != nil {
		return nil, err
	}
	if s.fs, err = vfs.SaveFSContext(e, w.fs); err != nil {
		return nil, err
	}
	if s.fds, err = vfs.SaveFDTable(e, w.fds); err != nil {
		return nil, err
	}
	for _, m := range mappings {
		id, err := vfs.SaveMappable(e, m)
		if err != nil {
			return nil, err
		}
		s.mappings = append(s.mappings, id)
	}
	if err := e.Finish(); err != nil {
		return nil, err
	}
	if _, err := iw.Close(); err != nil {
		return nil, err
	}
	s.kernel = buf.Bytes()
	for _, r := range e.Frames.Ranges() {
		for off := r.Start; off < r.End; off += mem.PageSize {
			p := make([]byte, mem.PageSize)
			if err := w.mf.ReadAt(p, off); err != nil {
				return nil, err
			}
			s.frames[off] = p
		}
	}
	return s, nil
}

// eager gives out frames that are copied when they are asked for.
type eager struct {
	mf     *mem.File
	frames map[uint64][]byte
}

func (x eager) Take(r mem.Range) ([]mem.Range, error) {
	var out []mem.Range
	for off := r.Start; off < r.End; off += mem.PageSize {
		p, ok := x.frames[off]
		if !ok {
			return nil, fmt.Errorf("no frame %#x", off)
		}
		n, err := x.mf.Allocate(mem.PageSize, nil, mem.Tmpfs)
		if err != nil {
			return nil, err
		}
		if err := x.mf.WriteAt(p, n.Start); err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, nil
}

func known(k image.Kind) bool { return vfs.KnownState(k) }

func (w *world) env(s *saved) (*vfs.RestoreEnv, error) {
	r, err := image.NewReader(bytes.NewReader(s.kernel))
	if err != nil {
		return nil, err
	}
	recs, err := image.LoadRecords(r, known)
	if err != nil {
		return nil, err
	}
	w.clock.SetMonotonic(s.mono)
	return &vfs.RestoreEnv{
		Restorer: recs, Memory: w.mf, Frames: eager{w.mf, s.frames}, Caller: w.c, Clock: w.clock, Validate: s.validate,
		HostFS: w.hostFS, NewFS: w.newFS, Stream: w.stream,
	}, nil
}

func (w *world) restore(s *saved) []mem.Mappable {
	w.Helper()
	m, err := w.tryRestore(s)
	w.must(err)
	return m
}

func (w *world) tryRestore(s *saved) (m []mem.Mappable, err error) {
	e, err := w.env(s)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			for _, x := range m {
				x.DecRef()
			}
			m = nil
			w.drop()
			e.Abort()
		}
	}()
	if w.ns, err = vfs.RestoreNamespace(e, s.ns); err != nil {
		return nil, err
	}
	if w.fs, err = vfs.RestoreFSContext(e, s.fs); err != nil {
		return nil, err
	}
	if w.fds, err = vfs.RestoreFDTable(e, s.fds); err != nil {
		return nil, err
	}
	for _, id := range s.mappings {
		x, err := vfs.RestoreMappable(e, id)
		if err != nil {
			return m, err
		}
		m = append(m, x)
	}
	if err = e.Finish(); err == nil {
		e.Start()
	}
	return m, err
}

func (w *world) drop() {
	if w.fds != nil {
		w.fds.DecRef(w.c)
	}
	if w.fs != nil {
		w.fs.DecRef()
	}
	if w.ns != nil {
		w.ns.DecRef()
	}
	w.fds, w.fs, w.ns = nil, nil, nil
}

func (w *world) close() {
	w.drop()
	vfs.DropCaches()
	w.mf.Close()
	unix.Close(w.self)
	for n := range w.in {
		w.in[n].Close()
		w.out[n].Close()
	}
}

// pair returns a world to be saved; again restores it into another sandbox.
func pair(t testing.TB, prepare func(root, vol string)) *world {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	before := ref.Snapshot()
	root, vol := t.TempDir(), t.TempDir()
	if prepare != nil {
		prepare(root, vol)
	}
	w := newWorld(t, root, vol)
	t.Cleanup(func() {
		w.close()
		if l := ref.Leaks(before); l != "" {
			t.Errorf("left over: %s", l)
		}
	})
	w.build()
	return w
}

// again saves w and restores it into a new sandbox.
func (w *world) again(mappings ...mem.Mappable) (*world, []mem.Mappable) {
	w.Helper()
	s := w.save(false, mappings...)
	vfs.ResetNumbers()
	n := newWorld(w.TB, w.root, w.vol)
	w.Cleanup(n.close)
	return n, n.restore(s)
}

func hostFile(t testing.TB, name, data string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
}

func same(t *testing.T, what string, a, b []string) {
	t.Helper()
	for i := 0; i < max(len(a), len(b)); i++ {
		x, y := "", ""
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if x != y {
			t.Errorf("%s:\n was %s\n is  %s", what, x, y)
		}
	}
}

func TestSaveTree(t *testing.T) {
	w := pair(t, func(root, vol string) {
		hostFile(t, root+"/etc/passwd", "root:x:0:0\n")
		hostFile(t, root+"/etc/group", "root\n")
		hostFile(t, root+"/bin/sh", "#!")
		hostFile(t, root+"/gone/a", "a")
		hostFile(t, vol+"/data", "volume")
	})
	c := w.c
	w.writeFile("/tmp/a", "alpha")
	w.must(vfs.LinkAt(c, w.at("/tmp/a"), w.at("/tmp/b")))
	w.must(vfs.MkdirAt(c, w.at("/tmp/d"), 0o1777))
	w.must(vfs.SymlinkAt(c, "../a", w.at("/tmp/d/l")))
	w.must(vfs.MknodAt(c, w.at("/tmp/d/fifo"), unix.S_IFIFO|0o600, 0))
	w.must(vfs.ChownAt(c, w.at("/tmp/d"), 7, 8))
	w.must(vfs.MkdirAt(c, w.at("/tmp/d/e"), 0o755))
	w.must(vfs.LinkAt(c, w.at("/tmp/a"), w.at("/tmp/d/e/hard")))
	f := w.open("/tmp/sparse", unix.O_CREAT|unix.O_RDWR)
	b := mem.KernelBuf([]byte("far"))
	_, err := f.WriteAt(c, &b, 10<<20)
	w.must(err)
	w.must(f.Inode().(vfs.Xattrer).Setxattr(c, "user.k", []byte("v"), 0))
	f.DecRef()
	w.writeFile("/etc/passwd", "changed\n") // copied up
	w.writeFile("/etc/new", "new")
	w.must(vfs.UnlinkAt(c, w.at("/bin/sh")))
	w.must(vfs.UnlinkAt(c, w.at("/gone/a")))
	w.must(vfs.RmdirAt(c, w.at("/gone")))
	w.must(vfs.MkdirAt(c, w.at("/gone"), 0o700)) // opaque
	w.writeFile("/vol/more", "m")
	w.must(vfs.BindAt(c, w.at("/tmp/d"), w.at("/gone"), false))
	w.must(vfs.ChdirAt(c, w.at("/tmp/d")))
	before := w.tree("/")
	info := w.mounts()
	n, _ := w.again()
	same(t, "tree", before, n.tree("/"))
	same(t, "mounts", info, n.mounts())
	cwd := n.fs.Cwd()
	root := n.fs.Root()
	if s := cwd.String(root); s != "/tmp/d" {
		t.Errorf("cwd is %s", s)
	}
	cwd.DecRef()
	root.DecRef()
	// The tree can be changed as before, and saved again.
	n.writeFile("/tmp/d/x", "y")
	n.must(vfs.UnlinkAt(c, n.at("/tmp/b")))
	n.writeFile("/etc/group", "g")
	// In a sandbox where the numbers are taken.
	s := n.save(false)
	n2 := newWorld(t, w.root, w.vol)
	t.Cleanup(n2.close)
	n2.restore(s)
	same(t, "second tree", sameDevs(n.tree("/")), sameDevs(n2.tree("/")))
	f = n2.open("/tmp/sparse", unix.O_RDONLY)
	defer f.DecRef()
	if off, err := f.Seek(c, 0, unix.SEEK_DATA); off != 10<<20 || err != nil {
		t.Errorf("SEEK_DATA: %d, %v", off, err)
	}
}

// sameDevs replaces device numbers by the order of their appearance.
func sameDevs(list []string) []string {
	seen := map[string]string{}
	var out []string
	for _, l := range list {
		f := strings.Fields(l)
		for i, x := range f {
			if strings.HasPrefix(x, "dev=") {
				if seen[x] == "" {
					seen[x] = fmt.Sprint("dev", len(seen))
				}
				f[i] = seen[x]
			}
		}
		out = append(out, strings.Join(f, " "))
	}
	return out
}

// mounts is mountinfo.
func (w *world) mounts() []string {
	w.Helper()
	root := w.fs.Root()
	defer root.DecRef()
	var out []string
	for _, m := range w.ns.MountInfo(w.c, root) {
		out = append(out, fmt.Sprintf("%+v", m))
	}
	return out
}
