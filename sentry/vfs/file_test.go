package vfs_test

import (
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/errs"
	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// cell is a stream that holds one byte, for the wait loop.
type cell struct {
	q  waitq.Queue
	mu sync.Mutex
	b  []byte
}

func (x *cell) Release()                         {}
func (x *cell) Queue() *waitq.Queue              { return &x.q }
func (x *cell) Ready(mask waitq.Mask) waitq.Mask { return 0 }

func (x *cell) Read(_ vfs.Caller, _ *vfs.File, dst *mem.UserBuf) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.b) == 0 {
		return 0, unix.EAGAIN
	}
	n, err := dst.CopyOut(x.b)
	x.b = nil
	x.q.Notify(waitq.Out)
	return n, err
}

func (x *cell) Write(_ vfs.Caller, _ *vfs.File, src *mem.UserBuf) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.b) > 0 {
		return 0, unix.EAGAIN
	}
	x.b = make([]byte, 1)
	n, err := src.CopyIn(x.b)
	x.q.Notify(waitq.In)
	if err == nil && src.Len() > 0 {
		err = unix.EAGAIN
	}
	return n, err
}

func TestBlockingIO(t *testing.T) {
	x := &cell{}
	f := vfs.NewAnonFile("anon_inode:[cell]", x, unix.O_RDWR)
	defer f.DecRef()
	done := make(chan int)
	go func() {
		c := newTask(0)
		b := mem.KernelBuf([]byte("hello"))
		n, err := f.Write(c, &b)
		if err != nil {
			t.Error(err)
		}
		done <- n
	}()
	c := newTask(0)
	var got []byte
	for len(got) < 5 {
		p := make([]byte, 8)
		b := mem.KernelBuf(p)
		n, err := f.Read(c, &b)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, p[:n]...)
	}
	if n := <-done; n != 5 || string(got) != "hello" {
		t.Errorf("wrote %d, read %q", n, got)
	}
	p := make([]byte, 1)
	b := mem.KernelBuf(p)
	c.sig <- struct{}{}
	if _, err := f.Read(c, &b); err != errs.ERESTARTSYS {
		t.Errorf("interrupted read: %v", err)
	}
	if err := f.SetStatusFlags(c, unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Read(c, &b); err != unix.EAGAIN {
		t.Errorf("non-blocking read: %v", err)
	}
	b = mem.KernelBuf([]byte("xy"))
	if n, err := f.Write(c, &b); n != 1 || err != nil {
		t.Errorf("non-blocking partial write: %d, %v", n, err)
	}
	if _, err := f.ReadAt(c, &b, 0); err != unix.ESPIPE {
		t.Errorf("pread: %v", err)
	}
	if _, err := f.Seek(c, 0, unix.SEEK_SET); err != unix.ESPIPE {
		t.Errorf("seek: %v", err)
	}
	if got := f.Path().String(vfs.Path{}); got != "anon_inode:[cell]" {
		t.Errorf("name %q", got)
	}
}

func TestFileSizeLimit(t *testing.T) {
	e := newEnv(t)
	e.c.limits[unix.RLIMIT_FSIZE] = 10
	f := e.open("/f", unix.O_CREAT|unix.O_RDWR|unix.O_APPEND)
	defer f.DecRef()
	b := mem.KernelBuf(make([]byte, 16))
	if n, err := f.Write(e.c, &b); n != 10 || err != nil {
		t.Errorf("write: %d, %v", n, err)
	}
	b = mem.KernelBuf(make([]byte, 16))
	if n, err := f.Write(e.c, &b); n != 0 || err != unix.EFBIG {
		t.Errorf("second write: %d, %v", n, err)
	}
	if err := f.Truncate(e.c, 20); err != unix.EFBIG {
		t.Errorf("truncate: %v", err)
	}
	if err := f.Fallocate(e.c, 0, 0, 20); err != unix.EFBIG {
		t.Errorf("fallocate: %v", err)
	}
}

func TestOffsets(t *testing.T) {
	e := newEnv(t)
	e.write("/f", "0123456789")
	f := e.open("/f", unix.O_RDWR)
	defer f.DecRef()
	if _, err := f.Seek(e.c, 3, unix.SEEK_SET); err != nil {
		t.Fatal(err)
	}
	if got := e.readFile(f); got != "3456789" {
		t.Errorf("read %q", got)
	}
	if got := e.readFile(f); got != "" {
		t.Errorf("read at the end %q", got)
	}
	if n, err := f.Seek(e.c, 1<<40, unix.SEEK_CUR); n != 1<<40+10 || err != nil {
		t.Errorf("seek: %d, %v", n, err)
	}
	if _, err := f.Seek(e.c, 1<<63-1, unix.SEEK_CUR); err != unix.EOVERFLOW {
		t.Errorf("seek too far: %v", err)
	}
	w := e.open("/f", unix.O_WRONLY)
	defer w.DecRef()
	b := mem.KernelBuf(make([]byte, 4))
	if _, err := w.Read(e.c, &b); err != unix.EBADF {
		t.Errorf("read of a write-only file: %v", err)
	}
	d := e.open("/", unix.O_RDONLY)
	defer d.DecRef()
	if _, err := d.Read(e.c, &b); err != unix.EISDIR {
		t.Errorf("read of a directory: %v", err)
	}
	p := e.open("/f", unix.O_PATH)
	defer p.DecRef()
	if _, err := p.Read(e.c, &b); err != unix.EBADF {
		t.Errorf("read of an O_PATH file: %v", err)
	}
	if err := p.Chmod(e.c, 0); err != unix.EBADF {
		t.Errorf("fchmod of an O_PATH file: %v", err)
	}
}

// depthProbe counts the frames above a file system's ReadAt.
type depthProbe struct {
	names []string
}

func (*depthProbe) Release()                         {}
func (*depthProbe) Ready(mask waitq.Mask) waitq.Mask { return mask }

func (p *depthProbe) ReadAt(vfs.Caller, *vfs.File, *mem.UserBuf, int64) (int, error) {
	pc := make([]uintptr, 64)
	frames := runtime.CallersFrames(pc[:runtime.Callers(1, pc)])
	p.names = nil
	for {
		f, more := frames.Next()
		if strings.Contains(f.Function, "TestReadDepth") || !more {
			break
		}
		p.names = append(p.names, f.Function)
	}
	return 0, nil
}

// TestReadDepth keeps the way from File.Read to the file system short: there
// are ten frames from the trap to the copy.
func TestReadDepth(t *testing.T) {
	p := &depthProbe{}
	f := vfs.NewAnonFile("probe", p, unix.O_RDONLY)
	defer f.DecRef()
	b := mem.KernelBuf(make([]byte, 1))
	if _, err := f.Read(newTask(0), &b); err != nil {
		t.Fatal(err)
	}
	if len(p.names) > 2 {
		t.Errorf("%d frames: %v", len(p.names), p.names)
	}
}

func TestFDTable(t *testing.T) {
	e := newEnv(t)
	tab := vfs.NewFDTable()
	e.c.limits[unix.RLIMIT_NOFILE] = 300
	for i := range 300 {
		fd, err := tab.Install(e.c, e.open("/", unix.O_RDONLY), 0, i%2 == 1)
		if fd != int32(i) || err != nil {
			t.Fatalf("install %d: %d, %v", i, fd, err)
		}
	}
	extra := e.open("/", unix.O_RDONLY)
	defer extra.DecRef()
	tests := []struct {
		name string
		fn   func() error
		want error
	}{
		{"full", func() error { _, err := tab.Install(e.c, extra, 0, false); return err }, unix.EMFILE},
		{"minimum beyond the limit", func() error { _, err := tab.Install(e.c, extra, 300, false); return err }, unix.EINVAL},
		{"dup beyond the limit", func() error { return tab.Dup3(e.c, extra, 300, false) }, unix.EBADF},
		{"get negative", func() error { _, err := tab.Get(-1); return err }, unix.EBADF},
		{"get beyond", func() error { _, err := tab.Get(1 << 30); return err }, unix.EBADF},
		{"close beyond", func() error { return tab.Close(e.c, 1<<30) }, unix.EBADF},
		{"close", func() error { return tab.Close(e.c, 7) }, nil},
		{"closed", func() error { return tab.Close(e.c, 7) }, unix.EBADF},
		{"cloexec of closed", func() error { return tab.SetCloexec(7, true) }, unix.EBADF},
	}
	for _, tt := range tests {
		if err := tt.fn(); err != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
	extra.IncRef()
	if fd, err := tab.Install(e.c, extra, 0, false); fd != 7 || err != nil {
		t.Errorf("lowest free: %d, %v", fd, err)
	}
	child := tab.Fork()
	child.CloseOnExec(e.c)
	if n := child.Count(); n != 151 {
		t.Errorf("%d descriptors after exec, want 151", n)
	}
	child.CloseRange(e.c, 10, 20)
	n := 0
	child.Each(func(fd int32, f *vfs.File, _ bool) {
		if fd >= 10 && fd <= 20 {
			t.Errorf("descriptor %d is still open", fd)
		}
		n++
	})
	if n != 151-6 {
		t.Errorf("%d descriptors after close_range", n)
	}
	child.DecRef(e.c)
	tab.DecRef(e.c)
}

// TestFDTableRace gets descriptors while others close and reuse them.
func TestFDTableRace(t *testing.T) {
	e := newEnv(t)
	tab := vfs.NewFDTable()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				select {
				case <-stop:
					return
				default:
				}
				if f, err := tab.Get(0); err == nil {
					_ = f.Path().Dentry.IsDir()
					f.DecRef()
				}
			}
		}()
	}
	for range 3000 {
		if err := tab.Dup3(e.c, e.open("/", unix.O_RDONLY), 0, false); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	wg.Wait()
	tab.DecRef(e.c)
}

func TestLocks(t *testing.T) {
	e := newEnv(t)
	e.write("/f", "x")
	open := func() *vfs.File { return e.open("/f", unix.O_RDWR) }
	a, b := open(), open()
	defer b.DecRef()
	must := func(what string, err, want error) {
		t.Helper()
		if err != want {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	must("shared", a.Flock(e.c, unix.LOCK_SH), nil)
	must("shared by two", b.Flock(e.c, unix.LOCK_SH|unix.LOCK_NB), nil)
	must("exclusive", b.Flock(e.c, unix.LOCK_EX|unix.LOCK_NB), unix.EAGAIN)
	done := make(chan error)
	go func() { done <- b.Flock(newTask(0), unix.LOCK_EX) }()
	time.Sleep(5 * time.Millisecond)
	a.DecRef() // closing unlocks
	must("exclusive after close", <-done, nil)
	must("unlock", b.Flock(e.c, unix.LOCK_UN), nil)

	t1, t2 := vfs.NewFDTable(), vfs.NewFDTable()
	lock := func(f *vfs.File, o *vfs.FDTable, typ int16, start, n int64, wait bool) error {
		return f.SetLock(e.c, o, vfs.FileLock{Type: typ, Start: start, Len: n}, wait)
	}
	f := open()
	defer f.DecRef()
	must("lock", lock(f, t1, unix.F_WRLCK, 0, 10, false), nil)
	must("same owner", lock(b, t1, unix.F_WRLCK, 5, 10, false), nil)
	must("other owner", lock(f, t2, unix.F_RDLCK, 9, 1, false), unix.EAGAIN)
	must("beyond", lock(f, t2, unix.F_WRLCK, 15, 0, false), nil)
	if l, err := f.GetLock(e.c, t2, vfs.FileLock{Type: unix.F_WRLCK, Start: 3}); err != nil || l.Type != unix.F_WRLCK || l.Start != 0 || l.Len != 15 {
		t.Errorf("getlk: %+v, %v", l, err)
	}
	must("split", lock(f, t1, unix.F_UNLCK, 4, 2, false), nil)
	must("in the gap", lock(f, t2, unix.F_WRLCK, 4, 2, false), nil)
	must("over the gap", lock(f, t2, unix.F_WRLCK, 3, 2, false), unix.EAGAIN)
	must("negative length", lock(f, t1, unix.F_UNLCK, 4, -4, false), nil)
	must("freed", lock(f, t2, unix.F_WRLCK, 0, 4, false), nil)
	must("ofd", f.SetLock(e.c, nil, vfs.FileLock{Type: unix.F_WRLCK, Start: 0, Len: 1}, false), unix.EAGAIN)

	// t1 waits for t2's lock; t2 waiting for t1's is a deadlock.
	go func() { done <- f.SetLock(newTask(0), t1, vfs.FileLock{Type: unix.F_WRLCK, Start: 20, Len: 1}, true) }()
	time.Sleep(5 * time.Millisecond)
	must("deadlock", lock(f, t2, unix.F_WRLCK, 7, 1, true), unix.EDEADLK)
	must("release", lock(f, t2, unix.F_UNLCK, 0, 0, false), nil)
	must("waiter", <-done, nil)
	b.IncRef()
	if _, err := t1.Install(e.c, b, 0, false); err != nil {
		t.Fatal(err)
	}
	must("close drops POSIX locks", t1.Close(e.c, 0), nil)
	must("all free", lock(f, t2, unix.F_WRLCK, 0, 0, false), nil)
	must("unlock all", lock(f, t2, unix.F_UNLCK, 0, 0, false), nil)
	if l := vfs.Locks(); len(l) != 0 {
		t.Errorf("locks left: %+v", l)
	}
	t1.DecRef(e.c)
	t2.DecRef(e.c)
}

type events struct {
	mu  sync.Mutex
	log []string
}

func (w *events) Event(mask, _ uint32, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	names := []struct {
		bit uint32
		s   string
	}{{unix.IN_CREATE, "create"}, {unix.IN_MODIFY, "modify"}, {unix.IN_DELETE, "delete"}, {unix.IN_MOVED_FROM, "from"},
		{unix.IN_MOVED_TO, "to"}, {unix.IN_CLOSE_WRITE, "close"}, {unix.IN_OPEN, "open"}, {unix.IN_ATTRIB, "attrib"},
		{unix.IN_DELETE_SELF, "delete_self"}}
	for _, n := range names {
		if mask&n.bit != 0 {
			w.log = append(w.log, n.s+" "+name)
		}
	}
}

func TestWatch(t *testing.T) {
	e := newEnv(t)
	e.mkdir("/d", 0o755)
	p, err := vfs.LookupAt(e.c, e.at("/d"))
	if err != nil {
		t.Fatal(err)
	}
	ev := &events{}
	w := vfs.AddWatch(p, unix.IN_ALL_EVENTS, ev)
	p.DecRef()
	e.write("/d/f", "x")
	if err := vfs.RenameAt(e.c, e.at("/d/f"), e.at("/d/g"), 0); err != nil {
		t.Fatal(err)
	}
	if err := vfs.UnlinkAt(e.c, e.at("/d/g")); err != nil {
		t.Fatal(err)
	}
	if err := vfs.RmdirAt(e.c, e.at("/d")); err != nil {
		t.Fatal(err)
	}
	w.Remove()
	want := "create f,open f,modify f,close f,from f,to g,delete g,delete_self "
	if got := strings.Join(ev.log, ","); got != want {
		t.Errorf("events %s\nwant   %s", got, want)
	}
}
