package afunix

import (
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/mem"
	"runsc/sentry/sock"
	"runsc/sentry/vfs"
)

// A socket file of a bind mount may be the host's (vfs.HostSocket). A guest's
// socket then has a peer in the Sentry like any other, and a bridge carries the
// bytes between that peer and a socket of the host. Descriptors do not cross. A
// checkpoint does not know the peer, so that the connection is closed in the
// restored container, as one to a process that is left out.

// bridgeBuf is the size of a bridge's buffers, and of the largest packet.
const bridgeBuf = 64 << 10

// hostSocket returns the socket file at a path, if it is the host's.
func hostSocket(c vfs.Caller, fs *vfs.FSContext, addr []byte) vfs.HostSocket {
	name, abstract, err := parseAddr(addr)
	if err != nil || abstract || fs == nil {
		return nil
	}
	path, err := vfs.LookupAt(c, vfs.At{FS: fs, Name: name})
	if err != nil {
		return nil
	}
	defer path.DecRef()
	h, _ := path.Inode().(vfs.HostSocket)
	return h
}

// connectHost connects to a server on the host; find has said ECONNREFUSED, and
// so checked the permission.
func (s *Socket) connectHost(c vfs.Caller, fs *vfs.FSContext, addr []byte) error {
	h := hostSocket(c, fs, addr)
	if h == nil || s.typ == unix.SOCK_DGRAM {
		return unix.ECONNREFUSED
	}
	s.mu.Lock()
	st := s.state
	s.mu.Unlock()
	switch st {
	case connected:
		return unix.EISCONN
	case listening, closed:
		return unix.EINVAL
	}
	fd, err := h.ConnectHost(s.typ)
	if err != nil {
		return err
	}
	n := &Socket{typ: s.typ, opts: sock.NewOptions(), state: connected, peer: s, creds: sock.CredsOf(c), hasCred: true, addr: addr}
	connectMu.Lock()
	s.mu.Lock()
	if s.state != idle {
		s.mu.Unlock()
		connectMu.Unlock()
		unix.Close(fd)
		return unix.EISCONN
	}
	s.peer, s.state, s.creds, s.hasCred = n, connected, hostCreds(fd), true
	s.mu.Unlock()
	connectMu.Unlock()
	startBridge(n, fd)
	s.notify()
	return nil
}

// hostCreds are those of the process at the other end; its pid means nothing
// here.
func hostCreds(fd int) sock.Creds {
	cr, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return sock.Creds{UID: ^uint32(0), GID: ^uint32(0)}
	}
	return sock.Creds{UID: cr.Uid, GID: cr.Gid}
}

// bindHost makes the socket file at path, which is new, one that processes of
// the host can connect to, if the configuration says so.
func (s *Socket) bindHost(path vfs.Path) error {
	h, ok := path.Inode().(vfs.HostSocket)
	if !ok || s.typ == unix.SOCK_DGRAM {
		return nil
	}
	fd, err := h.BindHost(s.typ)
	if err == unix.EOPNOTSUPP {
		return nil
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.hostEnd = os.NewFile(uintptr(fd), "host socket")
	s.mu.Unlock()
	return nil
}

// listenHost lets the host's processes in. Called without mu.
func (s *Socket) listenHost(f *os.File, backlog int) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return unix.EINVAL
	}
	var lerr error
	if err := raw.Control(func(fd uintptr) { lerr = unix.Listen(int(fd), backlog) }); err != nil || lerr != nil {
		return unix.EINVAL
	}
	s.mu.Lock()
	started := s.hostServed
	s.hostServed = true
	s.mu.Unlock()
	if !started {
		go s.acceptHost(raw)
	}
	return nil
}

// acceptHost is the goroutine of a listening socket on the host; it ends when
// that is closed.
func (s *Socket) acceptHost(raw syscall.RawConn) {
	c := vfs.KernelCaller()
	for {
		fd := -1
		err := raw.Read(func(l uintptr) bool {
			n, _, err := unix.Accept4(int(l), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			if err == nil {
				fd = n
			}
			return err != unix.EAGAIN && err != unix.EINTR
		})
		if err != nil {
			return
		}
		if fd < 0 {
			continue
		}
		in := &Socket{typ: s.typ, opts: sock.NewOptions()}
		if err := in.enter(c, s, hostCreds(fd)); err != nil {
			unix.Close(fd)
			in.Release()
			continue
		}
		startBridge(in, fd)
	}
}

// enter connects to the listening socket s, waiting for room.
func (in *Socket) enter(c vfs.Caller, s *Socket, creds sock.Creds) error {
	for {
		var e waitq.Entry
		e.Waiter = c.Waiter()
		s.queue.Register(&e, waitq.Out|waitq.In)
		connectMu.Lock()
		_, err := in.connectStream(c, s)
		connectMu.Unlock()
		if err == unix.EAGAIN {
			_ = c.Block(e.Waiter, 0)
		}
		s.queue.Unregister(&e)
		if err != unix.EAGAIN {
			if err == nil {
				in.mu.Lock()
				peer := in.peer
				in.mu.Unlock()
				peer.mu.Lock()
				peer.creds = creds
				peer.mu.Unlock()
			}
			return err
		}
	}
}

// bridge joins in, whose peer is a guest's socket, with a socket of the host.
type bridge struct {
	in   *Socket
	f    *os.File
	raw  syscall.RawConn
	left atomic.Int32 // directions that have not ended
}

// startBridge takes over fd. Its two goroutines end when both directions have.
func startBridge(in *Socket, fd int) {
	f := os.NewFile(uintptr(fd), "host socket")
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close()
		in.Release()
		return
	}
	b := &bridge{in: in, f: f, raw: raw}
	b.left.Store(2)
	go b.outward()
	go b.inward()
}

func (b *bridge) end() {
	if b.left.Add(-1) == 0 {
		b.f.Close()
		b.in.Release()
	}
}

// wait waits for a change of in, after try has said EAGAIN.
func (b *bridge) wait(c vfs.Caller, try func() error) error {
	e := waitq.Entry{Waiter: c.Waiter()}
	b.in.queue.Register(&e, waitq.In|waitq.Out|waitq.RdHup|waitq.Hup|waitq.Err)
	defer b.in.queue.Unregister(&e)
	for {
		if err := try(); err != unix.EAGAIN {
			return err
		}
		_ = c.Block(e.Waiter, 0)
	}
}

// outward carries from the guest to the host.
func (b *bridge) outward() {
	defer b.end()
	c := vfs.KernelCaller()
	buf := make([]byte, bridgeBuf)
	for {
		n := 0
		err := b.wait(c, func() (err error) {
			dst := mem.KernelBuf(buf)
			var m sock.Message
			n, err = b.in.Recv(c, &dst, &m, 0)
			m.Drop()
			return err
		})
		if err != nil || n == 0 {
			break
		}
		for p := buf[:n]; len(p) > 0; {
			var w int
			var werr error
			err := b.raw.Write(func(fd uintptr) bool {
				w, werr = unix.SendmsgN(int(fd), p, nil, nil, unix.MSG_NOSIGNAL)
				return werr != unix.EAGAIN && werr != unix.EINTR
			})
			if err != nil || werr != nil {
				b.f.Close() // the host's end is gone: so is the other direction
				return
			}
			p = p[w:]
		}
	}
	b.in.mu.Lock()
	gone := b.in.gone
	b.in.mu.Unlock()
	if gone { // closed, not only shut down
		b.f.Close()
		return
	}
	_ = b.raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_WR) })
}

// inward carries from the host to the guest.
func (b *bridge) inward() {
	defer b.end()
	c := vfs.KernelCaller()
	buf := make([]byte, bridgeBuf)
	for {
		var n int
		var rerr error
		err := b.raw.Read(func(fd uintptr) bool {
			n, rerr = unix.Read(int(fd), buf)
			return rerr != unix.EAGAIN && rerr != unix.EINTR
		})
		if err != nil || rerr != nil {
			_ = b.in.Shutdown(unix.SHUT_RDWR)
			return
		}
		if n == 0 {
			_ = b.in.Shutdown(unix.SHUT_WR)
			return
		}
		src := mem.KernelBuf(buf[:n])
		for src.Len() > 0 {
			err := b.wait(c, func() error {
				_, err := b.in.Send(c, nil, &src, &sock.Message{}, 0)
				return err
			})
			if err != nil {
				b.f.Close()
				_ = b.in.Shutdown(unix.SHUT_RDWR)
				return
			}
		}
	}
}
