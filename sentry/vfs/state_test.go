package vfs_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"runsc/pkg/ref"
	"runsc/pkg/waitq"
	"runsc/sentry/arch"
	"runsc/sentry/clock"
	"runsc/sentry/fs/anon"
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
	*testing.T
	root, vol string // host directories
	c         *task
	self      int
	mf        *mem.File
	cl        *gofer.Client
	clock     *clock.Clock

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
func newWorld(t *testing.T, root, vol string) *world {
	t.Helper()
	w := &world{T: t, root: root, vol: vol, c: newTask(0), clock: clock.New()}
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
	kernel                   []byte
	frames                   map[uint64][]byte
	ns, fs, fds, task, extra image.ID
	files                    []image.ID
	validate                 bool
	mono                     int64
	mappings                 []image.ID
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
		Restorer: recs, Memory: w.mf, Frames: eager{w.mf, s.frames}, Caller: w.c, Clock: w.clock,
		HostFS: w.hostFS, NewFS: newProc, Stream: w.stream,
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
	return m, e.Finish()
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
func pair(t *testing.T, prepare func(root, vol string)) *world {
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
	n := newWorld(w.T, w.root, w.vol)
	w.Cleanup(n.close)
	return n, n.restore(s)
}

func hostFile(t *testing.T, name, data string) {
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

func TestSaveFiles(t *testing.T) {
	w := pair(t, func(root, vol string) {
		hostFile(t, root+"/low", "0123456789")
		hostFile(t, root+"/lowgone", "lower gone")
		hostFile(t, vol+"/data", "abcdefghij")
		hostFile(t, vol+"/gone", "unlinked on the host")
	})
	c := w.c
	low := w.install(w.open("/low", unix.O_RDONLY))
	w.read(w.get(low), 3)
	data := w.install(w.open("/vol/data", unix.O_RDWR))
	w.read(w.get(data), 4)
	app := w.install(w.open("/tmp/log", unix.O_CREAT|unix.O_WRONLY|unix.O_APPEND|unix.O_NONBLOCK))
	w.write(w.get(app), "one ")
	dup := w.get(app)
	dup.IncRef()
	appDup, err := w.fds.Install(c, dup, 20, true)
	w.must(err)
	w.writeFile("/tmp/u", "unlinked")
	un := w.install(w.open("/tmp/u", unix.O_RDWR))
	w.must(vfs.UnlinkAt(c, w.at("/tmp/u")))
	gone := w.install(w.open("/vol/gone", unix.O_RDWR))
	w.must(vfs.UnlinkAt(c, w.at("/vol/gone")))
	lowgone := w.install(w.open("/lowgone", unix.O_RDONLY))
	w.must(vfs.UnlinkAt(c, w.at("/lowgone")))
	w.writeFile("/up", "upper gone")
	upgone := w.install(w.open("/up", unix.O_RDONLY))
	w.must(vfs.UnlinkAt(c, w.at("/up")))
	tmpfile := w.install(w.open("/tmp", unix.O_TMPFILE|unix.O_RDWR))
	w.write(w.get(tmpfile), "nameless")
	hello := w.install(w.open("/proc/hello", unix.O_RDONLY))
	w.read(w.get(hello), 6)
	null := w.install(w.open("/dev/null", unix.O_RDWR))
	path := w.install(w.open("/low", unix.O_PATH))
	w.must(vfs.MkdirAt(c, w.at("/tmp/dir"), 0o755))
	deleted := w.install(w.open("/tmp/dir", unix.O_RDONLY|unix.O_DIRECTORY))
	w.must(vfs.RmdirAt(c, w.at("/tmp/dir")))
	w.must(w.get(1).SetStatusFlags(c, unix.O_NONBLOCK|unix.O_APPEND))
	inos := map[int32]uint64{}
	for _, fd := range []int32{low, data, app, un, gone, lowgone, upgone, tmpfile, hello} {
		st, err := w.get(fd).Stat(c, unix.STATX_INO)
		w.must(err)
		inos[fd] = st.Ino
	}
	procNumber = 7
	n, _ := w.again()
	for fd, ino := range inos {
		if st, err := n.get(fd).Stat(c, unix.STATX_INO); err != nil || st.Ino != ino {
			t.Errorf("fd %d has inode %d, had %d: %v", fd, st.Ino, ino, err)
		}
	}
	for _, x := range []struct {
		fd   int32
		want string
	}{{low, "3456789"}, {data, "efghij"}, {un, "unlinked"}, {gone, "unlinked on the host"},
		{lowgone, "lower gone"}, {upgone, "upper gone"}, {hello, "world 7\n"}, {null, ""}} {
		if s := n.read(n.get(x.fd), 100); s != x.want {
			t.Errorf("fd %d has %q, want %q", x.fd, s, x.want)
		}
	}
	if n.get(app) != n.get(appDup) {
		t.Error("a shared description is not shared any more")
	}
	if _, fl, err := n.fds.GetFlags(appDup); err != nil || fl != unix.FD_CLOEXEC {
		t.Errorf("close-on-exec: %d, %v", fl, err)
	} else {
		n.get(appDup).DecRef() // GetFlags took one
	}
	n.write(n.get(app), "two")
	if s := n.readFile("/tmp/log"); s != "one two" {
		t.Errorf("log has %q", s)
	}
	if fl := n.get(app).StatusFlags(); fl != w.get(app).StatusFlags() {
		t.Errorf("flags %o", fl)
	}
	if fl := n.get(1).StatusFlags(); fl&unix.O_APPEND == 0 {
		t.Errorf("flags of stdout %o", fl)
	}
	if err := n.get(deleted).ReadDir(c, func(vfs.Dirent) bool { return true }); err != unix.ENOENT {
		t.Errorf("list a removed directory: %v", err)
	}
	root := n.fs.Root()
	defer root.DecRef()
	for fd, want := range map[int32]string{un: "/tmp/u (deleted)", gone: "/vol/gone (deleted)", deleted: "/tmp/dir (deleted)", lowgone: "/lowgone (deleted)"} {
		if s := n.get(fd).Path().String(root); s != want {
			t.Errorf("fd %d is %s, want %s", fd, s, want)
		}
	}
	if !n.get(path).IsPath() {
		t.Error("O_PATH is gone")
	}
	if _, err := vfs.OpenAt(c, vfs.At{FS: n.fs, Dir: n.get(deleted).Path(), Name: "x"}, unix.O_CREAT|unix.O_RDWR, 0); err != unix.ENOENT {
		t.Errorf("create in a removed directory: %v", err)
	}
	// The nameless file may still get a name.
	nameless := n.get(tmpfile)
	n.must(vfs.LinkAt(c, vfs.At{FS: n.fs, Dir: nameless.Path(), Flags: vfs.EmptyPath}, n.at("/tmp/named")))
	if s := n.readFile("/tmp/named"); s != "nameless" {
		t.Errorf("named file has %q", s)
	}
	// The new task's streams.
	n.write(n.get(1), "to stdout")
	b := make([]byte, 20)
	if k, err := n.out[1].Read(b); err != nil || string(b[:k]) != "to stdout" {
		t.Errorf("stdout got %q, %v", b[:k], err)
	}
	n.out[0].WriteString("input")
	if s := n.read(n.get(0), 10); s != "input" {
		t.Errorf("stdin has %q", s)
	}
	// Once more, from the copy.
	n2, _ := n.again()
	f := n2.get(gone)
	if off, err := f.Seek(c, 0, unix.SEEK_SET); off != 0 || err != nil {
		t.Error(off, err)
	}
	if s := n2.read(f, 100); s != "unlinked on the host" {
		t.Errorf("the second copy has %q", s)
	}
}

func TestSaveDirStreams(t *testing.T) {
	w := pair(t, func(root, vol string) {
		for i := range 40 {
			hostFile(t, fmt.Sprintf("%s/m/low%d", root, i), "")
			hostFile(t, fmt.Sprintf("%s/only/f%d", root, i), "")
			hostFile(t, fmt.Sprintf("%s/f%d", vol, i), "")
		}
	})
	for i := range 40 {
		w.writeFile(fmt.Sprintf("/tmp/t%d", i), "")
		w.writeFile(fmt.Sprintf("/m/up%d", i), "")
	}
	dirs := []string{"/m", "/only", "/vol", "/tmp", "/proc"}
	var fds []int32
	var rest [][]string
	for _, d := range dirs {
		f := w.open(d, unix.O_RDONLY|unix.O_DIRECTORY)
		w.names(f, 13)
		fds = append(fds, w.install(f))
	}
	s := w.save(false)
	for _, fd := range fds {
		rest = append(rest, w.names(w.get(fd), 1000))
	}
	n := newWorld(t, w.root, w.vol)
	t.Cleanup(n.close)
	n.restore(s)
	for i, fd := range fds {
		same(t, dirs[i], rest[i], n.names(n.get(fd), 1000))
	}
}

func TestSavePipes(t *testing.T) {
	w := pair(t, nil)
	c := w.c
	r, x := pipe.NewPair()
	inode, ino := pipe.NewInode(r, 0, 0)
	inode.IncRef()
	name := fmt.Sprintf("pipe:[%d]", ino)
	rfd := w.install(vfs.NewPseudoFile(name, r, inode, unix.O_RDONLY))
	xfd := w.install(vfs.NewPseudoFile(name, x, inode, unix.O_WRONLY|unix.O_NONBLOCK))
	w.write(w.get(xfd), "in the pipe")
	if _, err := x.Pipe().SetSize(c, 1<<18); err != nil {
		t.Fatal(err)
	}
	w.must(vfs.MknodAt(c, w.at("/tmp/fifo"), unix.S_IFIFO|0o600, 0))
	w.must(vfs.MknodAt(c, w.at("/fifo"), unix.S_IFIFO|0o600, 0))
	var fifos []int32
	for _, p := range []string{"/tmp/fifo", "/fifo"} {
		f := w.open(p, unix.O_RDWR)
		w.write(f, "in "+p)
		fifos = append(fifos, w.install(f))
	}
	quiet := w.install(w.open("/fifo", unix.O_RDONLY|unix.O_NONBLOCK))
	n, _ := w.again()
	if s := n.read(n.get(rfd), 100); s != "in the pipe" {
		t.Errorf("pipe has %q", s)
	}
	if got := pipe.Of(n.get(xfd).Ops()).Pipe().Size(); got != 1<<18 {
		t.Errorf("size %d", got)
	}
	root := n.fs.Root()
	if s := n.get(rfd).Path().String(root); s != name {
		t.Errorf("pipe is called %s, was %s", s, name)
	}
	root.DecRef()
	n.write(n.get(xfd), "more")
	n.must(n.fds.Close(c, xfd))
	if s := n.read(n.get(rfd), 100); s != "more" {
		t.Errorf("pipe has %q", s)
	}
	for i, p := range []string{"/tmp/fifo", "/fifo"} {
		again := n.open(p, unix.O_RDONLY)
		if s := n.read(again, 100); s != "in "+p {
			t.Errorf("%s has %q", p, s)
		}
		again.DecRef()
		n.must(n.fds.Close(c, fifos[i]))
	}
	_ = quiet
}

func TestSaveAnon(t *testing.T) {
	w := pair(t, nil)
	c := w.c
	add := func(name string, ops vfs.FileOps, flags uint32) int32 {
		return w.install(vfs.NewAnonFile("anon_inode:"+name, ops, flags))
	}
	ev := add("[eventfd]", anon.NewEventfd(5, true), unix.O_RDWR|unix.O_NONBLOCK)
	tm := anon.NewTimerfd(w.clock, unix.CLOCK_MONOTONIC)
	tm.Set(int64(time.Hour), int64(time.Minute), false)
	rel := add("[timerfd]", tm, unix.O_RDWR)
	wall := anon.NewTimerfd(w.clock, unix.CLOCK_REALTIME)
	wall.Set(time.Now().Add(time.Hour).UnixNano(), 0, true)
	abs := add("[timerfd]", wall, unix.O_RDWR)
	ep := anon.NewEpoll()
	epfd := add("[eventpoll]", ep, unix.O_RDWR)
	w.must(ep.Add(w.get(ev), ev, unix.EPOLLIN, 11))
	w.must(ep.Add(w.get(rel), rel, unix.EPOLLIN|unix.EPOLLET, 12))
	outer := anon.NewEpoll()
	outfd := add("[eventpoll]", outer, unix.O_RDWR)
	w.must(outer.Add(w.get(epfd), epfd, unix.EPOLLIN|unix.EPOLLONESHOT, 13))
	// A member that is in no table is not in the image.
	lone := vfs.NewAnonFile("lone", anon.NewEventfd(1, false), unix.O_RDWR)
	w.must(ep.Add(lone, 99, unix.EPOLLIN, 14))
	in := anon.NewInotify()
	infd := add("inotify", in, unix.O_RDONLY)
	w.writeFile("/tmp/watched", "")
	p, err := vfs.LookupAt(c, w.at("/tmp"))
	w.must(err)
	wd, err := in.Add(p, unix.IN_CREATE|unix.IN_DELETE)
	p.DecRef()
	w.must(err)
	w.writeFile("/tmp/created", "")
	sig := add("[signalfd]", anon.NewSignalfd(source{&waitq.Queue{}}, 0x1234), unix.O_RDWR)
	mfd := tmpfs.New(c, tmpfs.Config{Memory: w.mf})
	mi := mfd.NewMemfd(c, 0o777)
	mops, err := mi.Open(c, nil, unix.O_RDWR)
	w.must(err)
	mf := vfs.NewPseudoFile("/memfd:x (deleted)", mops, mi, unix.O_RDWR)
	mfd.Release()
	w.write(mf, "sealed")
	w.must(mops.(vfs.Sealer).AddSeals(unix.F_SEAL_WRITE | unix.F_SEAL_SHRINK))
	memfd := w.install(mf)

	n, _ := w.again()
	lone.DecRef()
	e := n.get(ev).Ops().(*anon.Eventfd)
	if e.Count() != 5 {
		t.Errorf("eventfd has %d", e.Count())
	}
	if s := n.read(n.get(ev), 8); s != "\x01\x00\x00\x00\x00\x00\x00\x00" || e.Count() != 4 {
		t.Errorf("semaphore read %q", s)
	}
	for fd, want := range map[int32]int64{rel: int64(time.Minute), abs: 0} {
		v, iv := n.get(fd).Ops().(*anon.Timerfd).Get()
		if iv != want || v > int64(time.Hour) || v < int64(time.Hour-time.Minute) {
			t.Errorf("timer has %v, %v", time.Duration(v), time.Duration(iv))
		}
	}
	events := func(fd int32) (out []anon.Event) {
		ep := n.get(fd).Ops().(*anon.Epoll)
		_, err := ep.Wait(n.c, 10, -1, func(l []anon.Event) error {
			out = append(out, l...)
			return nil
		})
		n.must(err)
		return out
	}
	if got := events(outfd); len(got) != 1 || got[0].Data != 13 {
		t.Errorf("outer events %v", got)
	}
	if got := events(outfd); len(got) != 0 {
		t.Errorf("one-shot member reported again: %v", got)
	}
	if got := events(epfd); len(got) != 1 || got[0].Data != 11 {
		t.Errorf("events %v", got)
	}
	n.must(n.get(epfd).Ops().(*anon.Epoll).Delete(n.get(rel), rel))
	want := "\x01\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x10\x00\x00\x00created\x00"
	if s := n.read(n.get(infd), 100); !strings.HasPrefix(s, want) {
		t.Errorf("inotify read %q", s)
	}
	n.must(vfs.UnlinkAt(c, n.at("/tmp/watched")))
	if s := n.read(n.get(infd), 100); len(s) != 32 || s[4] != 0 || s[5] != 2 {
		t.Errorf("inotify read %q", s)
	}
	n.must(n.get(infd).Ops().(*anon.Inotify).Remove(wd))
	if m := n.get(sig).Ops().(*anon.Signalfd).Mask(); m != 0x1234 {
		t.Errorf("mask %x", m)
	}
	f := n.get(memfd)
	b := mem.KernelBuf(make([]byte, 10))
	if k, err := f.ReadAt(c, &b, 0); k != 6 || err != nil {
		t.Errorf("memfd: %d, %v", k, err)
	}
	if s := f.Ops().(vfs.Sealer).Seals(); s != unix.F_SEAL_WRITE|unix.F_SEAL_SHRINK {
		t.Errorf("seals %x", s)
	}
	b = mem.KernelBuf([]byte("x"))
	if _, err := f.WriteAt(c, &b, 0); err != unix.EPERM {
		t.Errorf("write to a sealed file: %v", err)
	}
}

// source is a task without signals.
type source struct{ q *waitq.Queue }

func TestSaveLocks(t *testing.T) {
	w := pair(t, func(_, vol string) { hostFile(t, vol+"/l", "") })
	a := w.install(w.open("/tmp/l", unix.O_CREAT|unix.O_RDWR))
	h := w.install(w.open("/vol/l", unix.O_RDWR))
	w.must(w.get(a).Flock(w.c, unix.LOCK_EX))
	w.must(w.get(h).SetLock(w.c, w.fds, vfs.FileLock{Type: unix.F_WRLCK, Start: 10, Len: 5}, false))
	w.must(w.get(h).SetLock(w.c, nil, vfs.FileLock{Type: unix.F_RDLCK, Start: 100}, false))
	w.c.tgid = 9
	s := w.save(false)
	w.drop()
	n := newWorld(t, w.root, w.vol)
	t.Cleanup(n.close)
	n.restore(s)
	o := n.open("/tmp/l", unix.O_RDWR)
	defer o.DecRef()
	if err := o.Flock(n.c, unix.LOCK_SH|unix.LOCK_NB); err != unix.EAGAIN {
		t.Errorf("flock: %v", err)
	}
	v := n.open("/vol/l", unix.O_RDWR)
	defer v.DecRef()
	l, err := v.GetLock(n.c, vfs.NewFDTable(), vfs.FileLock{Type: unix.F_WRLCK, Start: 12, Len: 1})
	if err != nil || l.Type != unix.F_WRLCK || l.Start != 10 || l.Len != 5 || l.PID != 1 {
		t.Errorf("lock %+v, %v", l, err)
	}
	l, err = v.GetLock(n.c, nil, vfs.FileLock{Type: unix.F_WRLCK, Start: 200, Len: 1})
	if err != nil || l.Type != unix.F_RDLCK || l.Start != 100 || l.PID != -1 {
		t.Errorf("lock %+v, %v", l, err)
	}
	n.must(n.fds.Close(n.c, h))
	if l, err := v.GetLock(n.c, nil, vfs.FileLock{Type: unix.F_WRLCK, Start: 0, Len: 1000}); err != nil || l.Type != unix.F_UNLCK {
		t.Errorf("lock after close %+v, %v", l, err)
	}
}

func TestSaveMappings(t *testing.T) {
	w := pair(t, func(root, vol string) { hostFile(t, root+"/lib", "library") })
	var list []mem.Mappable
	for _, name := range []string{"/lib", "/tmp/shared"} {
		f := w.open(name, unix.O_CREAT|unix.O_RDWR)
		w.write(f, "mapped")
		m, err := f.Mappable(w.c)
		w.must(err)
		list = append(list, m)
	}
	n, got := w.again(list...)
	for i, m := range got {
		r, err := m.Region(0, 4096, false)
		n.must(err)
		b := make([]byte, 6)
		if _, err := unix.Pread(r.FD, b, r.Off); err != nil || string(b) != "mapped" {
			t.Errorf("mapping %d has %q, %v", i, b, err)
		}
		name, _, _ := m.MapName()
		if old, _, _ := list[i].MapName(); name != old {
			t.Errorf("mapping of %s, was %s", name, old)
		}
		m.DecRef()
		list[i].DecRef()
	}
}

func TestValidate(t *testing.T) {
	for _, change := range []struct {
		what string
		do   func(name string) error
	}{
		{"size", func(name string) error { return os.Truncate(name, 100) }},
		{"mtime", func(name string) error { return os.Chtimes(name, time.Unix(1, 0), time.Unix(1, 0)) }},
		{"", func(string) error { return nil }},
	} {
		t.Run(change.what, func(t *testing.T) {
			w := pair(t, func(root, vol string) { hostFile(t, vol+"/f", "x") })
			w.install(w.open("/vol/f", unix.O_RDONLY))
			s := w.save(true)
			w.must(change.do(w.vol + "/f"))
			n := newWorld(t, w.root, w.vol)
			t.Cleanup(n.close)
			_, err := n.tryRestore(s)
			if change.what == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), change.what) || !strings.Contains(err.Error(), "/vol/f") {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestSaveRefuses(t *testing.T) {
	w := pair(t, nil)
	w.install(vfs.NewPseudoFile("socket:[7]", stub{}, vfs.NewAnonInode(unix.S_IFSOCK|0o777, 0, 0), unix.O_RDWR))
	_, err := w.trySave(false)
	if err == nil || err.Error() != `fd 3: socket "socket:[7]" cannot be saved yet` {
		t.Error(err)
	}
}

type stub struct{}

func (stub) Release()                         {}
func (stub) Ready(mask waitq.Mask) waitq.Mask { return 0 }

// TestHostile damages records one at a time. Restoring must end with an error
// or without, but never panic.
func TestHostile(t *testing.T) {
	w := pair(t, func(root, vol string) { hostFile(t, root+"/low", "x"); hostFile(t, vol+"/gone", "carried") })
	w.install(w.open("/low", unix.O_RDONLY))
	w.install(w.open("/vol/gone", unix.O_RDONLY))
	w.must(vfs.UnlinkAt(w.c, w.at("/vol/gone")))
	w.writeFile("/tmp/a", strings.Repeat("data", 5000))
	un := w.open("/tmp/a", unix.O_RDWR)
	w.install(un)
	w.must(vfs.UnlinkAt(w.c, w.at("/tmp/a")))
	w.must(un.Flock(w.c, unix.LOCK_EX))
	ep := anon.NewEpoll()
	w.install(vfs.NewAnonFile("e", ep, unix.O_RDWR))
	ev := vfs.NewAnonFile("v", anon.NewEventfd(1, false), unix.O_RDWR)
	w.must(ep.Add(ev, w.install(ev), unix.EPOLLIN, 1))
	w.must(vfs.MknodAt(w.c, w.at("/tmp/fifo"), unix.S_IFIFO|0o600, 0))
	w.install(w.open("/tmp/fifo", unix.O_RDWR))
	good := w.save(false)
	recs := splitRecords(t, good.kernel)
	n := newWorld(t, w.root, w.vol)
	t.Cleanup(n.close)
	before := ref.Snapshot()
	try := func(what string, list []rawRecord) {
		s := *good
		s.kernel = joinRecords(t, list)
		m, err := n.tryRestore(&s)
		for _, x := range m {
			x.DecRef()
		}
		n.drop()
		vfs.DropCaches()
		if l := ref.Leaks(before); l != "" {
			t.Fatalf("%s (%v): left over: %s", what, err, l)
		}
	}
	for i, r := range recs {
		for key := range r.fields {
			for _, v := range []any{uint64(0), uint64(1), uint64(3), uint64(1) << 62, -1, "..", "a/b", []any{}, true,
				map[any]any{uint64(1): uint64(61), uint64(2): uint64(2)}} {
				list := append([]rawRecord{}, recs...)
				f := map[any]any{}
				for k, x := range r.fields {
					f[k] = x
				}
				f[key] = v
				list[i] = rawRecord{r.kind, f}
				try(fmt.Sprintf("record %d of kind %d, key %v is %v, not %v", i, r.kind, key, v, r.fields[key]), list)
			}
		}
		try(fmt.Sprintf("record %d of kind %d is missing", i, r.kind), append(append([]rawRecord{}, recs[:i]...), recs[i+1:]...))
	}
}

// rawRecord is a record as a map.
type rawRecord struct {
	kind   image.Kind
	fields map[any]any
}

func splitRecords(t *testing.T, b []byte) []rawRecord {
	t.Helper()
	r, err := image.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	var list []rawRecord
	for {
		rec, err := r.Next()
		if err != nil {
			return list
		}
		x := rawRecord{rec.Kind, map[any]any{}}
		if err := rec.Decode(&x.fields); err != nil {
			t.Fatal(err)
		}
		list = append(list, x)
	}
}

func joinRecords(t *testing.T, list []rawRecord) []byte {
	t.Helper()
	var b bytes.Buffer
	w := image.NewWriter(&b)
	for _, r := range list {
		if err := w.Put(r.kind, 1, r.fields); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func (source) DequeueSignal(arch.SigSet) (arch.SigInfo, bool) { return arch.SigInfo{}, false }
func (source) PendingSignals() arch.SigSet                    { return 0 }
func (s source) SignalQueue() *waitq.Queue                    { return s.q }
