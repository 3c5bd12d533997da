package syscalls

import (
	"fmt"

	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/pkg/waitq"
	"runsc/sentry/errs"
	"runsc/sentry/kernel"
	"runsc/sentry/sock"
	"runsc/sentry/sock/afunix"
	"runsc/sentry/vfs"
)

// sockaddrMax is sizeof(struct sockaddr_storage).
const sockaddrMax = 128

// sysSocket implements socket(2).
func sysSocket(t *kernel.Task, a Args) (uintptr, error) {
	typ, flags, err := socketType(a.Int(0), a.Int(1), a.Int(2))
	if err != nil {
		return 0, err
	}
	s, err := afunix.New(typ)
	if err != nil {
		return 0, err
	}
	return install(t, socketFile(t, s, flags), flags&unix.SOCK_CLOEXEC != 0)
}

// sysSocketpair implements socketpair(2).
func sysSocketpair(t *kernel.Task, a Args) (uintptr, error) {
	typ, flags, err := socketType(a.Int(0), a.Int(1), a.Int(2))
	if err != nil {
		return 0, err
	}
	x, y, err := afunix.NewPair(t, typ)
	if err != nil {
		return 0, err
	}
	return installPair(t, a.Addr(3), socketFile(t, x, flags), socketFile(t, y, flags), flags&unix.SOCK_CLOEXEC != 0)
}

// socketType checks the arguments of socket(2) and splits the type from its
// flags. A family that is not there is EAFNOSUPPORT, on which libcs go on
// without name service caches and loggers.
func socketType(family, typ, protocol int32) (kind, flags int32, err error) {
	const known = unix.SOCK_NONBLOCK | unix.SOCK_CLOEXEC
	kind, flags = typ&0xf, typ&^0xf
	switch {
	case flags&^known != 0 || kind > unix.SOCK_PACKET:
		return 0, 0, unix.EINVAL
	case family != unix.AF_UNIX:
		return 0, 0, unix.EAFNOSUPPORT
	case protocol != 0 && protocol != unix.AF_UNIX:
		return 0, 0, unix.EPROTONOSUPPORT
	}
	return kind, flags, nil
}

// socketFile opens a socket.
func socketFile(t *kernel.Task, s sock.Socket, flags int32) *vfs.File {
	cr := t.Cred()
	inode := vfs.NewAnonInode(unix.S_IFSOCK|0o777, cr.FSUID, cr.FSGID)
	open := unix.O_RDWR | uint32(flags)&unix.O_NONBLOCK // SOCK_NONBLOCK is O_NONBLOCK
	return vfs.NewPseudoFile(fmt.Sprintf("socket:[%d]", inode.Ino()), s, inode, open)
}

// getSocket returns the socket of a descriptor and its file's new reference;
// ENOTSOCK.
func getSocket(t *kernel.Task, fd int32) (sock.Socket, *vfs.File, error) {
	f, err := getFile(t, fd)
	if err != nil {
		return nil, nil, err
	}
	if s, ok := f.Ops().(sock.Socket); ok {
		return s, f, nil
	}
	f.DecRef()
	return nil, nil, unix.ENOTSOCK
}

// copyInSockaddr reads an address of the caller (move_addr_to_kernel).
func copyInSockaddr(t *kernel.Task, addr uint64, n int32) ([]byte, error) {
	if n < 0 || n > sockaddrMax {
		return nil, unix.EINVAL
	}
	b := make([]byte, n)
	return b, t.CopyIn(addr, b)
}

// copyOutSockaddr writes an address into a buffer whose size is at lenAddr,
// and the address's whole length there (move_addr_to_user).
func copyOutSockaddr(t *kernel.Task, b []byte, addr, lenAddr uint64) error {
	var n int32
	if err := t.CopyIn(lenAddr, abi.Bytes(&n)); err != nil {
		return err
	}
	if n < 0 {
		return unix.EINVAL
	}
	if err := t.CopyOut(addr, b[:min(len(b), int(n))]); err != nil {
		return err
	}
	n = int32(len(b))
	return t.CopyOut(lenAddr, abi.Bytes(&n))
}

// sysBind implements bind(2).
func sysBind(t *kernel.Task, a Args) (uintptr, error) {
	s, f, err := getSocket(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	addr, err := copyInSockaddr(t, a.Addr(1), a.Int(2))
	if err != nil {
		return 0, err
	}
	return done(s.Bind(t, t.FS(), addr))
}

// sysListen implements listen(2).
func sysListen(t *kernel.Task, a Args) (uintptr, error) {
	s, f, err := getSocket(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	return done(s.Listen(t, a.Int(1)))
}

// sysAccept implements accept(2).
func sysAccept(t *kernel.Task, a Args) (uintptr, error) { return accept(t, a, 0) }

// sysAccept4 implements accept4(2).
func sysAccept4(t *kernel.Task, a Args) (uintptr, error) { return accept(t, a, a.Int(3)) }

func accept(t *kernel.Task, a Args, flags int32) (uintptr, error) {
	if flags&^(unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC) != 0 {
		return 0, unix.EINVAL
	}
	s, f, err := getSocket(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	fd, err := t.Files().Reserve(t)
	if err != nil {
		return 0, err
	}
	filled := false
	defer func() {
		if !filled {
			t.Files().Unreserve(fd)
		}
	}()
	var conn sock.Socket
	var peer []byte
	_, timeout := s.Options().Timeouts()
	err = retry(t, s.Queue(), waitq.In, f.NonBlocking(), timeout, func() (err error) {
		conn, peer, err = s.Accept(t)
		return err
	})
	if err != nil {
		return 0, err
	}
	g := socketFile(t, conn, flags)
	if a.Addr(1) != 0 {
		if err := copyOutSockaddr(t, peer, a.Addr(1), a.Addr(2)); err != nil {
			g.DecRef()
			return 0, err
		}
	}
	filled = true
	t.Files().Fill(fd, g, flags&unix.SOCK_CLOEXEC != 0)
	return uintptr(fd), nil
}

// retry calls try until it returns something else than EAGAIN, waiting on q in
// between for at most timeout ns (0: for ever).
func retry(t *kernel.Task, q *waitq.Queue, events waitq.Mask, nonblock bool, timeout int64, try func() error) error {
	err := try()
	if err != unix.EAGAIN || nonblock {
		return err
	}
	deadline := int64(0)
	if timeout > 0 {
		deadline = t.ReentryPartDeadline(deadlineIn(t, timeout))
	}
	err = waitFor(t, q, events, deadline, try)
	if err == errs.ERESTARTSYS && timeout > 0 {
		return unix.EINTR // sock_intr_errno
	}
	return err
}

// waitFor calls try until it returns something else than EAGAIN, waiting on q
// in between until the deadline (0: for ever), which is EAGAIN.
func waitFor(t *kernel.Task, q *waitq.Queue, events waitq.Mask, deadline int64, try func() error) error {
	e := waitq.Entry{Waiter: t.Waiter()}
	q.Register(&e, events)
	defer q.Unregister(&e)
	for {
		if err := try(); err != unix.EAGAIN {
			return err
		}
		switch err := t.Block(e.Waiter, deadline); err {
		case nil:
		case unix.ETIMEDOUT:
			return unix.EAGAIN
		default:
			return err
		}
	}
}

// sysConnect implements connect(2).
func sysConnect(t *kernel.Task, a Args) (uintptr, error) {
	s, f, err := getSocket(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	addr, err := copyInSockaddr(t, a.Addr(1), a.Int(2))
	if err != nil {
		return 0, err
	}
	q, err := s.Connect(t, t.FS(), addr)
	if err != unix.EAGAIN || q == nil {
		return 0, err
	}
	timeout, _ := s.Options().Timeouts()
	return done(retry(t, q, waitq.Out, f.NonBlocking(), timeout, func() error {
		_, err := s.Connect(t, t.FS(), addr)
		return err
	}))
}

// sysShutdown implements shutdown(2).
func sysShutdown(t *kernel.Task, a Args) (uintptr, error) {
	s, f, err := getSocket(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	return done(s.Shutdown(a.Int(1)))
}

// sysGetsockname implements getsockname(2).
func sysGetsockname(t *kernel.Task, a Args) (uintptr, error) {
	s, f, err := getSocket(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	return done(copyOutSockaddr(t, s.LocalAddr(), a.Addr(1), a.Addr(2)))
}

// sysGetpeername implements getpeername(2).
func sysGetpeername(t *kernel.Task, a Args) (uintptr, error) {
	s, f, err := getSocket(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	addr, err := s.PeerAddr()
	if err != nil {
		return 0, err
	}
	return done(copyOutSockaddr(t, addr, a.Addr(1), a.Addr(2)))
}

// sysGetsockopt implements getsockopt(2).
func sysGetsockopt(t *kernel.Task, a Args) (uintptr, error) {
	s, f, err := getSocket(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	var n int32
	if err := t.CopyIn(a.Addr(4), abi.Bytes(&n)); err != nil {
		return 0, err
	}
	if n < 0 {
		return 0, unix.EINVAL
	}
	level, name := a.Int(1), a.Int(2)
	value, ok := []byte(nil), false
	if level == unix.SOL_SOCKET {
		value, ok = s.Options().Get(s, name)
	}
	if !ok {
		if value, err = s.GetOption(t, level, name); err != nil {
			return 0, err
		}
	}
	value = value[:min(len(value), int(n))]
	if err := t.CopyOut(a.Addr(3), value); err != nil {
		return 0, err
	}
	n = int32(len(value))
	return done(t.CopyOut(a.Addr(4), abi.Bytes(&n)))
}

// sysSetsockopt implements setsockopt(2).
func sysSetsockopt(t *kernel.Task, a Args) (uintptr, error) {
	n := a.Int(4)
	if n < 0 {
		return 0, unix.EINVAL
	}
	s, f, err := getSocket(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	value := make([]byte, min(n, 4096))
	if err := t.CopyIn(a.Addr(3), value); err != nil {
		return 0, err
	}
	level, name := a.Int(1), a.Int(2)
	if level == unix.SOL_SOCKET {
		if ok, err := s.Options().Set(t, name, value); ok {
			return 0, err
		}
	}
	return done(s.SetOption(t, level, name, value))
}
