package pipe

import (
	"bytes"
	"math/rand"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/cred"
	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

const always = waitq.In | waitq.Out

// caller is a task that sleeps for real; wake-ups of intr interrupt it.
type caller struct {
	vfs.Caller
	cr   *cred.Creds
	intr chan struct{}
}

func newCaller() *caller {
	return &caller{Caller: vfs.KernelCaller(), cr: &cred.Creds{}, intr: make(chan struct{}, 1)}
}

func (c *caller) Cred() *cred.Creds { return c.cr }

func (c *caller) Block(w *waitq.Waiter, _ int64) error {
	select {
	case <-w.C:
		return nil
	case <-c.intr:
		return unix.EINTR
	}
}

func write(e *End, p []byte) (int, error) {
	b := mem.KernelBuf(p)
	return e.Write(nil, nil, &b)
}

func read(e *End, n int) ([]byte, error) {
	p := make([]byte, n)
	b := mem.KernelBuf(p)
	k, err := e.Read(nil, nil, &b)
	return p[:k], err
}

func TestBytesComeOutInOrder(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	r, w := NewPair()
	var model bytes.Buffer
	next := byte(0)
	for i := 0; i < 20000; i++ {
		if rng.Intn(2) == 0 {
			p := make([]byte, rng.Intn(9000))
			for j := range p {
				p[j] = next + byte(j)
			}
			n, err := write(w, p)
			if err != nil && err != unix.EAGAIN {
				t.Fatal(err)
			}
			if len(p) <= atomicSize && n != 0 && n != len(p) {
				t.Fatalf("a write of %d bytes was split at %d", len(p), n)
			}
			next += byte(n)
			model.Write(p[:n])
		} else {
			got, err := read(r, rng.Intn(9000))
			if err != nil && err != unix.EAGAIN {
				t.Fatal(err)
			}
			if want := model.Next(len(got)); !bytes.Equal(got, want) {
				t.Fatalf("step %d: bytes differ", i)
			}
		}
		if r.Pipe().Len() != model.Len() {
			t.Fatalf("length %d, want %d", r.Pipe().Len(), model.Len())
		}
	}
}

func TestFullAndEmpty(t *testing.T) {
	r, w := NewPair()
	if _, err := read(r, 1); err != unix.EAGAIN {
		t.Errorf("read of an empty pipe: %v", err)
	}
	if n, err := write(w, make([]byte, DefaultSize+1)); n != DefaultSize || err != unix.EAGAIN {
		t.Errorf("write beyond capacity: %d, %v", n, err)
	}
	if m := w.Ready(always); m != 0 {
		t.Errorf("full pipe: %x", m)
	}
	if m := r.Ready(always); m != waitq.In {
		t.Errorf("full pipe, read end: %x", m)
	}
	if _, err := read(r, atomicSize-1); err != nil {
		t.Fatal(err)
	}
	if n, err := write(w, make([]byte, atomicSize)); n != 0 || err != unix.EAGAIN {
		t.Errorf("atomic write without room: %d, %v", n, err)
	}
	if m := w.Ready(always); m != 0 {
		t.Errorf("less than PIPE_BUF free: %x", m)
	}
	if n, err := write(w, make([]byte, atomicSize+1)); n != atomicSize-1 || err != unix.EAGAIN {
		t.Errorf("large write: %d, %v", n, err)
	}
}

func TestEnds(t *testing.T) {
	r, w := NewPair()
	if _, err := write(w, []byte("x")); err != nil {
		t.Fatal(err)
	}
	w.Release()
	if m := r.Ready(always); m != waitq.In|waitq.Hup {
		t.Errorf("writer gone: %x", m)
	}
	if p, err := read(r, 2); string(p) != "x" || err != nil {
		t.Errorf("%q, %v", p, err)
	}
	if p, err := read(r, 2); len(p) != 0 || err != nil {
		t.Errorf("end of file: %q, %v", p, err)
	}
	r, w = NewPair()
	r.Release()
	if m := w.Ready(always); m != waitq.Out|waitq.Err {
		t.Errorf("reader gone: %x", m)
	}
	if n, err := write(w, nil); n != 0 || err != nil {
		t.Errorf("empty write: %d, %v", n, err)
	}
	if _, err := write(w, []byte("x")); err != unix.EPIPE {
		t.Errorf("reader gone: %v", err)
	}
	before := total.Load()
	r, w = NewPair()
	_, _ = write(w, make([]byte, 60000))
	r.Release()
	w.Release()
	if after := total.Load(); after != before {
		t.Errorf("%d bytes of rings left", after-before)
	}
}

func TestSetSize(t *testing.T) {
	c := newCaller()
	r, w := NewPair()
	p := r.Pipe()
	tests := []struct {
		name string
		size uint32
		caps cred.Caps
		want int
		err  error
	}{
		{"round up to a page", 1, 0, 4096, nil},
		{"round up to a power of two", 5 << 12, 0, 8 << 12, nil},
		{"the most", MaxSize, 0, MaxSize, nil},
		{"more", MaxSize + 1, 0, 0, unix.EPERM},
		{"more with the capability", MaxSize + 1, 1 << unix.CAP_SYS_RESOURCE, 2 * MaxSize, nil},
		{"far too much", 1 << 31, 1 << unix.CAP_SYS_RESOURCE, 0, unix.EPERM},
		{"negative", 1<<32 - 1, 0, 0, unix.EINVAL},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c.cr = &cred.Creds{Effective: tt.caps}
			if n, err := p.SetSize(c, tt.size); n != tt.want || err != tt.err {
				t.Errorf("got %d, %v, want %d, %v", n, err, tt.want, tt.err)
			}
		})
	}
	_, _ = write(w, make([]byte, 10000))
	if _, err := p.SetSize(c, 8192); err != unix.EBUSY {
		t.Errorf("bytes do not fit: %v", err)
	}
	if _, err := p.SetSize(c, 16384); err != nil {
		t.Error(err)
	}
	if got, _ := read(r, 20000); len(got) != 10000 {
		t.Errorf("%d bytes after a change of size", len(got))
	}
}

func TestFifoOpen(t *testing.T) {
	const nonblock = unix.O_NONBLOCK
	c := newCaller()
	p := New()
	if _, err := p.OpenFifo(c, unix.O_WRONLY|nonblock); err != unix.ENXIO {
		t.Errorf("writer without a reader: %v", err)
	}
	r, err := p.OpenFifo(c, unix.O_RDONLY|nonblock)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := read(r, 1); len(got) != 0 || err != nil {
		t.Errorf("no writer yet: %q, %v", got, err)
	}
	if m := r.Ready(always); m != 0 {
		t.Errorf("no writer yet: %x", m)
	}
	w, err := p.OpenFifo(c, unix.O_WRONLY|nonblock)
	if err != nil {
		t.Fatal(err)
	}
	w.Release()
	if m := r.Ready(always); m != waitq.Hup {
		t.Errorf("writer gone: %x", m)
	}
	r.Release()
	both, err := p.OpenFifo(c, unix.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = write(both, []byte("self"))
	if got, _ := read(both, 9); string(got) != "self" {
		t.Errorf("%q", got)
	}
	both.Release()
}

func TestFifoOpenWaits(t *testing.T) {
	p := New()
	opened := make(chan *End)
	for _, flags := range []uint32{unix.O_RDONLY, unix.O_WRONLY} {
		go func() {
			e, err := p.OpenFifo(newCaller(), flags)
			if err != nil {
				t.Error(err)
			}
			opened <- e
		}()
		if flags == unix.O_RDONLY {
			select {
			case <-opened:
				t.Fatal("open did not wait for a writer")
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	for range 2 {
		(<-opened).Release()
	}
	c := newCaller()
	c.intr <- struct{}{}
	if _, err := p.OpenFifo(c, unix.O_WRONLY); err != unix.EINTR {
		t.Errorf("interrupted: %v", err)
	}
	if p.writers != 0 || p.readers != 0 {
		t.Errorf("%d writers, %d readers left", p.writers, p.readers)
	}
}

func TestTransfer(t *testing.T) {
	r1, w1 := NewPair()
	r2, w2 := NewPair()
	from, to := r1.Pipe(), w2.Pipe()
	if _, side, err := Transfer(from, to, 10, false); err != unix.EAGAIN || side != Source {
		t.Errorf("empty source: %v, %v", side, err)
	}
	_, _ = write(w1, []byte("abcdef"))
	if n, _, err := Transfer(from, to, 4, true); n != 4 || err != nil {
		t.Errorf("tee: %d, %v", n, err)
	}
	if n, _, err := Transfer(from, to, 100, false); n != 6 || err != nil {
		t.Errorf("splice: %d, %v", n, err)
	}
	if got, _ := read(r2, 100); string(got) != "abcdabcdef" {
		t.Errorf("%q", got)
	}
	_, _ = write(w1, []byte("x"))
	_, _ = write(w2, make([]byte, DefaultSize))
	if _, side, err := Transfer(from, to, 4, false); err != unix.EAGAIN || side != Sink {
		t.Errorf("full sink: %v, %v", side, err)
	}
	if _, _, err := Transfer(from, from, 4, false); err != unix.EINVAL {
		t.Errorf("to itself: %v", err)
	}
	r2.Release()
	if _, _, err := Transfer(from, to, 4, false); err != unix.EPIPE {
		t.Errorf("no reader: %v", err)
	}
}

func TestFillAndDrain(t *testing.T) {
	r, w := NewPair()
	_, _ = write(w, make([]byte, 4000))
	_, _ = read(r, 3990) // so that the free room wraps around
	n, err := w.Pipe().Fill(200, func(b []byte) (int, error) {
		for i := range b {
			b[i] = 'z'
		}
		return len(b), nil
	})
	if n != 200 || err != nil {
		t.Fatalf("fill: %d, %v", n, err)
	}
	var out []byte
	n, err = r.Pipe().Drain(1000, func(b []byte) (int, error) {
		out = append(out, b...)
		return len(b), nil
	})
	if n != 210 || err != nil || !bytes.Equal(out[10:], bytes.Repeat([]byte{'z'}, 200)) {
		t.Fatalf("drain: %d, %v", n, err)
	}
	if _, err := r.Pipe().Drain(1, nil); err != unix.EAGAIN {
		t.Errorf("empty: %v", err)
	}
}

// files returns a pipe as open descriptions.
func files() (r, w *vfs.File) {
	re, we := NewPair()
	inode := vfs.NewAnonInode(unix.S_IFIFO|0o600, 0, 0)
	return vfs.NewPseudoFile("pipe", re, inode, unix.O_RDONLY), vfs.NewPseudoFile("pipe", we, inode, unix.O_WRONLY)
}

func TestBlockingTransfer(t *testing.T) {
	r, w := files()
	data := make([]byte, 1<<20)
	rand.New(rand.NewSource(2)).Read(data)
	go func() {
		b := mem.KernelBuf(data)
		if n, err := w.Write(newCaller(), &b); n != len(data) || err != nil {
			t.Errorf("write: %d, %v", n, err)
		}
		w.DecRef()
	}()
	var got []byte
	c := newCaller()
	for {
		p := make([]byte, 5000)
		b := mem.KernelBuf(p)
		n, err := r.Read(c, &b)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
		got = append(got, p[:n]...)
	}
	r.DecRef()
	if !bytes.Equal(got, data) {
		t.Error("bytes differ")
	}
}

func BenchmarkPingPong(b *testing.B) {
	r1, w1 := files()
	r2, w2 := files()
	echo := func(c *caller, r, w *vfs.File, p []byte) {
		in := mem.KernelBuf(p)
		_, _ = r.Read(c, &in)
		out := mem.KernelBuf(p)
		_, _ = w.Write(c, &out)
	}
	go func() {
		c, p := newCaller(), make([]byte, 1)
		for range b.N {
			echo(c, r1, w2, p)
		}
	}()
	c, p := newCaller(), make([]byte, 1)
	b.ReportAllocs()
	for range b.N {
		out := mem.KernelBuf(p)
		_, _ = w1.Write(c, &out)
		in := mem.KernelBuf(p)
		_, _ = r2.Read(c, &in)
	}
}

func BenchmarkWriteRead(b *testing.B) {
	r, w := NewPair()
	p := make([]byte, 512)
	out, in := mem.KernelBuf(p), mem.KernelBuf(p)
	b.ReportAllocs()
	for range b.N {
		o, i := out, in
		_, _ = w.Write(nil, nil, &o)
		_, _ = r.Read(nil, nil, &i)
	}
}
