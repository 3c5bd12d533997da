package host

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/cred"
	"runsc/sentry/errs"
	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// task is a vfs.Caller that really sleeps.
type task struct{ w *waitq.Waiter }

func newTask() *task { return &task{waitq.NewWaiter()} }

func (t *task) Cred() *cred.Creds     { return &cred.Creds{Effective: cred.AllCaps} }
func (t *task) Waiter() *waitq.Waiter { return t.w }
func (t *task) RealTime() int64       { return time.Now().UnixNano() }
func (t *task) Rlimit(int) uint64     { return ^uint64(0) }
func (t *task) TGID() int32           { return 1 }

func (t *task) Block(w *waitq.Waiter, deadline int64) error {
	select {
	case <-w.C:
		return nil
	case <-time.After(5 * time.Second):
		return errs.ERESTARTSYS
	}
}

func newFile(t *testing.T, p *Poller, f *os.File) *vfs.File {
	t.Helper()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err != nil {
		t.Fatal(err)
	}
	file, err := NewFile(p, fd, Options{UID: 1000, Now: 1e18, Flags: uint32(flags) & unix.O_ACCMODE})
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func TestPipe(t *testing.T) {
	p := NewPoller()
	defer p.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := newTask()
	in, out := newFile(t, p, r), newFile(t, p, w)
	r.Close()
	w.Close()
	if in.StatusFlags()&unix.O_ACCMODE != unix.O_RDONLY || out.StatusFlags()&unix.O_ACCMODE != unix.O_WRONLY {
		t.Error("access modes")
	}
	if st, err := in.Inode().Stat(c, 0); err != nil || st.Mode != unix.S_IFIFO|0o600 || st.UID != 1000 {
		t.Errorf("stat: %+v, %v", st, err)
	}
	if m := in.Ready(waitq.In); m != 0 {
		t.Errorf("empty pipe is ready: %x", m)
	}
	// A blocked reader gets what is written later.
	type result struct {
		s   string
		err error
	}
	done := make(chan result)
	read := func() {
		b := make([]byte, 100)
		buf := mem.KernelBuf(b)
		n, err := in.Read(newTask(), &buf)
		done <- result{string(b[:n]), err}
	}
	go read()
	time.Sleep(10 * time.Millisecond)
	buf := mem.KernelBuf([]byte("hello"))
	if n, err := out.Write(c, &buf); n != 5 || err != nil {
		t.Errorf("write: %d, %v", n, err)
	}
	if got := <-done; got.s != "hello" || got.err != nil {
		t.Errorf("read: %+v", got)
	}
	// More than fits: the writer waits for the reader and loses nothing.
	const total = 1 << 20
	go func() {
		big := make([]byte, total)
		for i := range big {
			big[i] = byte(i * 7)
		}
		buf := mem.KernelBuf(big)
		n, err := out.Write(newTask(), &buf)
		if n != total || err != nil {
			t.Errorf("long write: %d, %v", n, err)
		}
		out.DecRef()
	}()
	sum := 0
	for {
		b := make([]byte, 10000)
		buf := mem.KernelBuf(b)
		n, err := in.Read(c, &buf)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
		for i := range b[:n] {
			if b[i] != byte((sum+i)*7) {
				t.Fatalf("byte %d differs", sum+i)
			}
		}
		sum += n
	}
	if sum != total {
		t.Errorf("read %d bytes, want %d", sum, total)
	}
	if m := in.Ready(waitq.In); m&waitq.Hup == 0 {
		t.Errorf("no hang-up: %x", m)
	}
	in.DecRef()
}

func TestBrokenPipe(t *testing.T) {
	p := NewPoller()
	defer p.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out := newFile(t, p, w)
	defer out.DecRef()
	w.Close()
	r.Close()
	buf := mem.KernelBuf([]byte("x"))
	if _, err := out.Write(newTask(), &buf); err != unix.EPIPE {
		t.Errorf("write: %v", err)
	}
}

// TestRegular checks that two files on one description append to each other.
func TestRegular(t *testing.T) {
	p := NewPoller()
	defer p.Close()
	path := filepath.Join(t.TempDir(), "log")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	a, b := newFile(t, p, f), newFile(t, p, f)
	defer a.DecRef()
	defer b.DecRef()
	for _, w := range []struct {
		f *vfs.File
		s string
	}{{a, "one "}, {b, "two "}, {a, "three"}} {
		buf := mem.KernelBuf([]byte(w.s))
		if _, err := w.f.Write(newTask(), &buf); err != nil {
			t.Fatal(err)
		}
	}
	if got, _ := os.ReadFile(path); string(got) != "one two three" {
		t.Errorf("file has %q", got)
	}
	st, err := a.Inode().Stat(nil, 0)
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size != 13 {
		t.Errorf("stat: %+v, %v", st, err)
	}
	if flags, _ := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0); flags&unix.O_NONBLOCK != 0 {
		t.Error("a shared description became non-blocking")
	}
}

func TestNull(t *testing.T) {
	p := NewPoller()
	defer p.Close()
	f, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	n := newFile(t, p, f)
	defer n.DecRef()
	f.Close()
	buf := mem.KernelBuf(make([]byte, 10))
	if n, err := n.Read(newTask(), &buf); n != 0 || err != nil {
		t.Errorf("read: %d, %v", n, err)
	}
	if st, _ := n.Inode().Stat(nil, 0); st.Mode&unix.S_IFMT != unix.S_IFCHR {
		t.Errorf("mode %o", st.Mode)
	}
}

// TestReopen opens a stream again as /proc/self/fd/N does.
func TestReopen(t *testing.T) {
	p := NewPoller()
	defer p.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	out := newFile(t, p, w)
	w.Close()
	so := out.Inode().(vfs.SpecialOpener)
	if _, err := so.OpenSpecial(nil, nil, unix.O_RDONLY); err != unix.EACCES {
		t.Errorf("open the write end for reading: %v", err)
	}
	again, err := so.OpenSpecial(nil, nil, unix.O_WRONLY)
	if err != nil {
		t.Fatal(err)
	}
	out.DecRef()
	buf := mem.KernelBuf([]byte("x"))
	if _, err := again.(vfs.Writer).Write(nil, nil, &buf); err != nil {
		t.Error(err)
	}
	again.Release()
	b := make([]byte, 2)
	if n, _ := r.Read(b); n != 1 {
		t.Errorf("%d bytes", n)
	}
	if n, err := r.Read(b); n != 0 || err == nil {
		t.Error("the descriptor is still open")
	}
}
