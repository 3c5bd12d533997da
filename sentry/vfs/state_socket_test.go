package vfs_test

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"runsc/sentry/mem"
	"runsc/sentry/sock"
	"runsc/sentry/sock/afunix"
	"runsc/sentry/vfs"
)

func (w *world) socket(s sock.Socket) int32 {
	w.Helper()
	i := vfs.NewAnonInode(unix.S_IFSOCK|0o777, 0, 0)
	return w.install(vfs.NewPseudoFile(fmt.Sprintf("socket:[%d]", i.Ino()), s, i, unix.O_RDWR|unix.O_NONBLOCK))
}

func (w *world) pair(typ int32) (a, b int32) {
	w.Helper()
	x, y, err := afunix.NewPair(w.c, typ)
	w.must(err)
	return w.socket(x), w.socket(y)
}

func (w *world) sock(fd int32) sock.Socket {
	w.Helper()
	return w.get(fd).Ops().(sock.Socket)
}

func (w *world) send(fd int32, s string, files ...*vfs.File) {
	w.Helper()
	for _, f := range files {
		f.IncRef()
	}
	b := mem.KernelBuf([]byte(s))
	if n, err := w.sock(fd).Send(w.c, w.fs, &b, &sock.Message{Files: files}, 0); n != len(s) || err != nil {
		w.Fatalf("send: %d, %v", n, err)
	}
}

func (w *world) recv(fd int32) (string, []*vfs.File) {
	w.Helper()
	p := make([]byte, 100)
	b := mem.KernelBuf(p)
	var m sock.Message
	n, err := w.sock(fd).Recv(w.c, &b, &m, 0)
	if err != nil {
		w.Fatalf("recv: %v", err)
	}
	w.Cleanup(m.Drop)
	return string(p[:n]), m.Files
}

func TestSaveSockets(t *testing.T) {
	w := pair(t, nil)
	t.Cleanup(func() {
		w.drop()
		collectSockets()
	})
	c := w.c
	a, b := w.pair(unix.SOCK_STREAM)
	w.send(a, "bytes on the way")
	if s := w.read(w.get(b), 6); s != "bytes " {
		t.Errorf("read %q", s)
	}
	w.writeFile("/tmp/passed", "by descriptor")
	passed := w.open("/tmp/passed", unix.O_RDONLY)
	w.send(b, "with files", passed, w.get(a), w.get(b)) // in flight to themselves
	passed.DecRef()
	d, e := w.pair(unix.SOCK_SEQPACKET)
	w.send(d, "one")
	w.send(d, "two")
	w.must(w.sock(d).Shutdown(unix.SHUT_WR))
	listener, err := afunix.New(unix.SOCK_STREAM)
	w.must(err)
	addr := append([]byte{unix.AF_UNIX, 0}, "/tmp/sock\x00"...)
	w.must(listener.Bind(c, w.fs, addr))
	w.must(listener.Listen(c, 5))
	l := w.socket(listener)
	client, err := afunix.New(unix.SOCK_STREAM)
	w.must(err)
	_, err = client.Connect(c, w.fs, addr)
	w.must(err)
	cl := w.socket(client)
	w.send(cl, "before accept")
	dgram, err := afunix.New(unix.SOCK_DGRAM)
	w.must(err)
	name := append([]byte{unix.AF_UNIX, 0}, "\x00abstract"...)
	w.must(dgram.Bind(c, w.fs, name))
	dg := w.socket(dgram)
	w.must(dgramOption(c, dgram))
	// A connection to a process that is not in the image.
	x, y, err := afunix.NewPair(c, unix.SOCK_STREAM)
	w.must(err)
	outside := w.socket(x)
	other := vfs.NewAnonFile("other", y, unix.O_RDWR)

	s := w.save(false)
	w.drop()
	other.DecRef()
	vfs.ResetNumbers()
	n := newWorld(t, w.root, w.vol)
	t.Cleanup(n.close)
	n.restore(s)
	if got := n.read(n.get(b), 100); got != "on the way" {
		t.Errorf("read %q", got)
	}
	got, files := n.recv(a)
	if got != "with files" || len(files) != 3 || files[1] != n.get(a) || files[2] != n.get(b) {
		t.Errorf("received %q and %v", got, files)
	} else if s := n.read(files[0], 100); s != "by descriptor" {
		t.Errorf("the file received has %q", s)
	}
	n.send(a, "answer")
	if got := n.read(n.get(b), 100); got != "answer" {
		t.Errorf("read %q", got)
	}
	for _, want := range []string{"one", "two", ""} {
		if got, _ := n.recv(e); got != want {
			t.Errorf("packet %q, want %q", got, want)
		}
	}
	acc, _, err := n.sock(l).Accept(n.c)
	n.must(err)
	af := n.socket(acc)
	if got, _ := n.recv(af); got != "before accept" {
		t.Errorf("accepted connection has %q", got)
	}
	again, err := afunix.New(unix.SOCK_STREAM)
	n.must(err)
	if _, err := again.Connect(n.c, n.fs, addr); err != nil {
		t.Errorf("connect: %v", err)
	}
	again.Release()
	sender, err := afunix.New(unix.SOCK_DGRAM)
	n.must(err)
	bb := mem.KernelBuf([]byte("dgram"))
	if _, err := sender.Send(n.c, n.fs, &bb, &sock.Message{Addr: name}, 0); err != nil {
		t.Errorf("send to an abstract address: %v", err)
	}
	sender.Release()
	if got, _ := n.recv(dg); got != "dgram" {
		t.Errorf("datagram %q", got)
	}
	if !n.sock(dg).Options().Flag(unix.SO_PASSCRED) {
		t.Error("an option is gone")
	}
	if got, _ := n.recv(outside); got != "" {
		t.Errorf("from outside %q", got)
	}
	bb = mem.KernelBuf([]byte("x"))
	if _, err := n.sock(outside).Send(n.c, n.fs, &bb, &sock.Message{}, 0); err != unix.EPIPE {
		t.Errorf("send to a peer outside: %v", err)
	}
}

// collectSockets frees sockets that are in flight to themselves: the end of
// any socket makes the collector look for them.
func collectSockets() {
	s, _ := afunix.New(unix.SOCK_STREAM)
	s.Release()
}

func dgramOption(c vfs.Caller, s sock.Socket) error {
	_, err := s.Options().Set(c, unix.SO_PASSCRED, []byte{1, 0, 0, 0})
	return err
}
