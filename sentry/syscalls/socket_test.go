package syscalls

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/pkg/abi/linux"
	"runsc/pkg/ref"
)

// socketpair makes a pair.
func (g *guest) socketpair(typ int) (a, b int) {
	g.Helper()
	p := make([]byte, 8)
	g.must(unix.SYS_SOCKETPAIR, unix.AF_UNIX, typ, 0, p)
	return int(binary.LittleEndian.Uint32(p)), int(binary.LittleEndian.Uint32(p[4:]))
}

func unAddr(path string) []byte { return append([]byte{unix.AF_UNIX, 0}, path...) }

func TestSocketpair(t *testing.T) {
	runBoth(t, func(g *guest) {
		a, b := g.socketpair(unix.SOCK_STREAM)
		g.write(a, "hello ")
		g.write(a, "world")
		n := make([]byte, 4)
		g.must(unix.SYS_IOCTL, b, linux.FIONREAD, n)
		if n[0] != 11 {
			g.Errorf("FIONREAD %d", n[0])
		}
		p := make([]byte, 100)
		if k := g.must(unix.SYS_RECVFROM, b, p, 5, unix.MSG_PEEK, 0, 0); string(p[:k]) != "hello" {
			g.Errorf("peek %q", p[:k])
		}
		if s := g.read(b, 100); s != "hello world" {
			g.Errorf("read %q", s)
		}
		g.fails(unix.EAGAIN, unix.SYS_RECVFROM, b, p, 5, unix.MSG_DONTWAIT, 0, 0)
		g.fails(unix.ESPIPE, unix.SYS_LSEEK, a, 0, 0)
		g.fails(unix.ENOTSOCK, unix.SYS_SHUTDOWN, g.open("f", creat|rdwr, 0o600), 0)
		pf := pollfds(unix.PollFd{Fd: int32(b), Events: unix.POLLIN | unix.POLLOUT | unix.POLLRDHUP})
		g.must(unix.SYS_POLL, pf, 1, 0)
		if m := revents(pf, 0); m != unix.POLLOUT {
			g.Errorf("poll %#x", m)
		}
		g.write(b, "unread")
		g.must(unix.SYS_SHUTDOWN, a, unix.SHUT_WR)
		g.fails(unix.EPIPE, unix.SYS_SENDTO, a, p, 1, unix.MSG_NOSIGNAL, 0, 0)
		if s := g.read(b, 100); s != "" {
			g.Errorf("read after shutdown %q", s)
		}
		g.must(unix.SYS_POLL, pf, 1, 0)
		if m := revents(pf, 0); m != unix.POLLIN|unix.POLLOUT|unix.POLLRDHUP {
			g.Errorf("poll %#x", m)
		}
		g.close(a)
		g.must(unix.SYS_POLL, pf, 1, 0)
		if m := revents(pf, 0); m != unix.POLLIN|unix.POLLOUT|unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR {
			g.Errorf("poll %#x", m)
		}
		g.fails(unix.ECONNRESET, unix.SYS_READ, b, p, 1) // a had bytes left to read
		if s := g.read(b, 1); s != "" {
			g.Errorf("read after reset %q", s)
		}
		g.fails(unix.EINVAL, unix.SYS_SOCKETPAIR, unix.AF_UNIX, 77, 0, make([]byte, 8))
		g.fails(unix.ESOCKTNOSUPPORT, unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_RDM, 0)
		g.fails(unix.EPROTONOSUPPORT, unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_STREAM, 5)
		g.fails(unix.EFAULT, unix.SYS_SOCKETPAIR, unix.AF_UNIX, unix.SOCK_STREAM, 0, 8)
	})
}

func TestListen(t *testing.T) {
	runBoth(t, func(g *guest) {
		addr := unAddr("sock\x00")
		l := g.must(unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
		g.fails(unix.EINVAL, unix.SYS_LISTEN, l, 5)
		g.must(unix.SYS_BIND, l, addr, len(addr))
		if m := g.stat("sock").Mode; m != unix.S_IFSOCK|0o755 {
			g.Errorf("mode %o", m)
		}
		g.fails(unix.EADDRINUSE, unix.SYS_BIND, l, addr, len(addr))
		other := unAddr("other\x00")
		g.fails(unix.EINVAL, unix.SYS_BIND, l, other, len(other))
		g.fails(unix.ENOENT, unix.SYS_LSTAT, "other", make([]byte, 144))
		c := g.must(unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_STREAM, 0)
		g.fails(unix.EADDRINUSE, unix.SYS_BIND, c, addr, len(addr))
		g.fails(unix.ECONNREFUSED, unix.SYS_CONNECT, c, addr, len(addr))
		none := unAddr("none\x00")
		g.fails(unix.ENOENT, unix.SYS_CONNECT, c, none, len(none))
		g.fails(unix.EINVAL, unix.SYS_CONNECT, c, addr, 1)
		g.fails(unix.ENOTCONN, unix.SYS_GETPEERNAME, c, make([]byte, 110), []byte{110, 0, 0, 0})
		g.must(unix.SYS_LISTEN, l, 1)
		g.fails(unix.EAGAIN, unix.SYS_ACCEPT, l, 0, 0)
		g.must(unix.SYS_CONNECT, c, addr, len(addr))
		g.fails(unix.EISCONN, unix.SYS_CONNECT, c, addr, len(addr))
		for range 1 {
			g.must(unix.SYS_CONNECT, g.must(unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_STREAM, 0), addr, len(addr))
		}
		full := g.must(unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
		g.fails(unix.EAGAIN, unix.SYS_CONNECT, full, addr, len(addr))
		g.write(int(c), "early")
		size := []byte{110, 0, 0, 0}
		s := int(g.must(unix.SYS_ACCEPT4, l, make([]byte, 110), size, unix.SOCK_CLOEXEC))
		if size[0] != 2 {
			g.Errorf("an unbound peer's address has %d bytes", size[0])
		}
		if got := g.read(s, 10); got != "early" {
			g.Errorf("read %q", got)
		}
		name, size := make([]byte, 110), []byte{110, 0, 0, 0}
		g.must(unix.SYS_GETPEERNAME, c, name, size)
		if string(name[:size[0]]) != string(addr) {
			g.Errorf("peer %q", name[:size[0]])
		}
		cred, size := make([]byte, 12), []byte{12, 0, 0, 0}
		g.must(unix.SYS_GETSOCKOPT, c, unix.SOL_SOCKET, unix.SO_PEERCRED, cred, size)
		if binary.LittleEndian.Uint32(cred) != uint32(g.must(unix.SYS_GETPID)) {
			g.Errorf("SO_PEERCRED %v", cred)
		}
		d := g.must(unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_DGRAM, 0)
		g.fails(unix.EPROTOTYPE, unix.SYS_CONNECT, d, addr, len(addr))
		g.fails(unix.EOPNOTSUPP, unix.SYS_LISTEN, d, 1)
		g.close(int(l))
		g.fails(unix.ECONNREFUSED, unix.SYS_CONNECT, full, addr, len(addr))
		g.write(s, "still there")
		abstract := unAddr("\x00test-" + strings.Repeat("x", 20))
		l = g.must(unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_SEQPACKET, 0)
		g.must(unix.SYS_BIND, l, abstract, len(abstract))
		g.must(unix.SYS_LISTEN, l, 5)
		c = g.must(unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_SEQPACKET, 0)
		g.must(unix.SYS_CONNECT, c, abstract, len(abstract))
		s = int(g.must(unix.SYS_ACCEPT, l, 0, 0))
		g.write(int(c), "one")
		g.write(int(c), "two")
		if got := g.read(s, 2) + g.read(s, 9); got != "ontwo" {
			g.Errorf("read %q", got)
		}
		auto := g.must(unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_DGRAM, 0)
		g.must(unix.SYS_BIND, auto, unAddr(""), 2)
		size = []byte{110, 0, 0, 0}
		g.must(unix.SYS_GETSOCKNAME, auto, name, size)
		if size[0] != 8 || name[2] != 0 {
			g.Errorf("autobind %q", name[:size[0]])
		}
	})
}

func TestDatagrams(t *testing.T) {
	runBoth(t, func(g *guest) {
		addr, own := unAddr("d\x00"), unAddr("own\x00")
		r := g.must(unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_DGRAM, 0)
		g.must(unix.SYS_BIND, r, addr, len(addr))
		s := g.must(unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK, 0)
		g.fails(unix.ENOTCONN, unix.SYS_WRITE, s, []byte("x"), 1)
		g.must(unix.SYS_BIND, s, own, len(own))
		g.must(unix.SYS_SENDTO, s, []byte("message"), 7, 0, addr, len(addr))
		g.must(unix.SYS_SENDTO, s, []byte(""), 0, 0, addr, len(addr))
		p, from, size := make([]byte, 100), make([]byte, 110), []byte{110, 0, 0, 0}
		if n := g.must(unix.SYS_RECVFROM, r, p, 3, unix.MSG_TRUNC, from, size); n != 7 || string(p[:3]) != "mes" {
			g.Errorf("recvfrom %d, %q", n, p[:3])
		}
		if string(from[:size[0]]) != string(own) {
			g.Errorf("from %q", from[:size[0]])
		}
		if n := g.must(unix.SYS_RECVFROM, r, p, 3, 0, 0, 0); n != 0 {
			g.Errorf("an empty datagram has %d bytes", n)
		}
		g.must(unix.SYS_CONNECT, s, addr, len(addr))
		g.write(int(s), "connected")
		if got := g.read(int(r), 100); got != "connected" {
			g.Errorf("read %q", got)
		}
		g.fails(unix.EMSGSIZE, unix.SYS_SENDTO, s, make([]byte, 1<<20), 1<<20, 0, 0, 0)
		sent := 0
		for ; sent < 100; sent++ {
			if _, err := g.call(unix.SYS_WRITE, s, []byte("x"), 1); err != nil {
				if err != unix.EAGAIN {
					g.Errorf("full receiver: %v", err)
				}
				break
			}
		}
		if sent != 11 {
			g.Errorf("%d datagrams fit", sent)
		}
		g.close(int(r))
		g.fails(unix.ECONNREFUSED, unix.SYS_WRITE, s, []byte("x"), 1)
	})
}

// msghdr lays out a struct msghdr with one buffer.
func (g *guest) msghdr(buf []byte, control []byte) (h linux.Msghdr, bufAt, controlAt uint64) {
	bufAt, controlAt = g.keep(buf), g.keep(control)
	h = linux.Msghdr{Iov: g.keep(iovec(bufAt, uint64(len(buf)))), Iovlen: 1, Control: controlAt, Controllen: uint64(len(control))}
	return h, bufAt, controlAt
}

func rights(fds ...int32) []byte {
	c := linux.Cmsghdr{Len: uint64(16 + 4*len(fds)), Level: unix.SOL_SOCKET, Type: unix.SCM_RIGHTS}
	b := append(append([]byte(nil), abi.Bytes(&c)...), abi.SliceBytes(fds)...)
	return append(b, make([]byte, -len(b)&7)...)
}

func TestPassDescriptors(t *testing.T) {
	runBoth(t, func(g *guest) {
		a, b := g.socketpair(unix.SOCK_STREAM)
		r, w := g.pipe(0)
		h, _, _ := g.msghdr([]byte("abc"), rights(int32(w), int32(r)))
		g.must(unix.SYS_SENDMSG, a, abi.Bytes(&h), 0)
		g.write(a, "def")
		g.close(w)
		g.must(unix.SYS_SETSOCKOPT, b, unix.SOL_SOCKET, unix.SO_PASSCRED, []byte{1, 0, 0, 0}, 4)
		h, bufAt, controlAt := g.msghdr(make([]byte, 10), make([]byte, 100))
		if n := g.must(unix.SYS_RECVMSG, b, abi.Bytes(&h), unix.MSG_CMSG_CLOEXEC); n != 3 {
			g.Errorf("recvmsg %d: files end a read", n)
		}
		if got := g.peek(bufAt, 3); string(got) != "abc" {
			g.Errorf("bytes %q", got)
		}
		c := g.peek(controlAt, int(h.Controllen))
		if h.Controllen != 56 || binary.LittleEndian.Uint32(c[12:]) != unix.SCM_CREDENTIALS || binary.LittleEndian.Uint32(c[44:]) != unix.SCM_RIGHTS {
			g.Errorf("control %x", c)
			return
		}
		w2 := int(binary.LittleEndian.Uint32(c[48:]))
		if f := g.must(unix.SYS_FCNTL, w2, unix.F_GETFD); f != unix.FD_CLOEXEC {
			g.Errorf("descriptor flags %d", f)
		}
		g.write(w2, "through")
		if got := g.read(r, 10); got != "through" {
			g.Errorf("read %q", got)
		}
		// Too small a buffer: the files are gone.
		h, _, _ = g.msghdr([]byte("abc"), rights(int32(r)))
		g.must(unix.SYS_SENDMSG, a, abi.Bytes(&h), 0)
		g.read(b, 3)
		h, _, _ = g.msghdr(make([]byte, 10), make([]byte, 8))
		g.must(unix.SYS_RECVMSG, b, abi.Bytes(&h), unix.MSG_DONTWAIT)
		if h.Flags != unix.MSG_CTRUNC {
			g.Errorf("flags %#x", h.Flags)
		}
		h, _, _ = g.msghdr([]byte("abc"), rights(999))
		g.fails(unix.EBADF, unix.SYS_SENDMSG, a, abi.Bytes(&h), 0)
		h, _, _ = g.msghdr([]byte("abc"), []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16})
		g.fails(unix.EINVAL, unix.SYS_SENDMSG, a, abi.Bytes(&h), 0)
	})
}

func TestSocketOptions(t *testing.T) {
	runBoth(t, func(g *guest) {
		a, b := g.socketpair(unix.SOCK_STREAM)
		get := func(name int) uint32 {
			p, n := make([]byte, 8), []byte{8, 0, 0, 0}
			g.must(unix.SYS_GETSOCKOPT, a, unix.SOL_SOCKET, name, p, n)
			return binary.LittleEndian.Uint32(p)
		}
		if get(unix.SO_TYPE) != unix.SOCK_STREAM || get(unix.SO_DOMAIN) != unix.AF_UNIX || get(unix.SO_ACCEPTCONN) != 0 {
			g.Error("SO_TYPE, SO_DOMAIN or SO_ACCEPTCONN")
		}
		g.must(unix.SYS_SETSOCKOPT, a, unix.SOL_SOCKET, unix.SO_SNDBUF, []byte{0, 0x20, 0, 0}, 4)
		if n := get(unix.SO_SNDBUF); n != 0x4000 {
			g.Errorf("SO_SNDBUF %d", n)
		}
		g.must(unix.SYS_SETSOCKOPT, b, unix.SOL_SOCKET, unix.SO_RCVTIMEO, iovec(0, 20000), 16)
		start := time.Now()
		g.fails(unix.EAGAIN, unix.SYS_RECVFROM, b, make([]byte, 1), 1, 0, 0, 0)
		if d := time.Since(start); d < 20*time.Millisecond {
			g.Errorf("SO_RCVTIMEO: %v", d)
		}
		g.fails(unix.ENOPROTOOPT, unix.SYS_GETSOCKOPT, a, unix.SOL_SOCKET, 9999, make([]byte, 8), []byte{8, 0, 0, 0})
		g.fails(unix.EOPNOTSUPP, unix.SYS_GETSOCKOPT, a, unix.SOL_TCP, 1, make([]byte, 8), []byte{8, 0, 0, 0})
		g.fails(unix.EINVAL, unix.SYS_SETSOCKOPT, a, unix.SOL_SOCKET, unix.SO_SNDBUF, []byte{1}, 1)
		g.fails(unix.EDOM, unix.SYS_SETSOCKOPT, a, unix.SOL_SOCKET, unix.SO_RCVTIMEO, iovec(0, 2e6), 16)
	})
}

// TestDescriptorCycle closes sockets that refer to each other through
// messages: nobody can receive these, and nothing may stay.
func TestDescriptorCycle(t *testing.T) {
	run(t, func(g *guest) {
		before := ref.Snapshot()
		for range 10 {
			a, b := g.socketpair(unix.SOCK_STREAM)
			c, d := g.socketpair(unix.SOCK_DGRAM)
			file := g.open("/f", creat|rdwr, 0o600)
			for _, p := range [][3]int{{a, b, c}, {a, c, b}, {b, d, a}, {d, c, file}} {
				h, _, _ := g.msghdr([]byte("x"), rights(int32(p[0]), int32(p[2])))
				g.must(unix.SYS_SENDMSG, p[1], abi.Bytes(&h), 0)
			}
			for _, fd := range []int{a, b, c, d, file} {
				g.close(fd)
			}
		}
		a, b := g.socketpair(unix.SOCK_STREAM)
		g.close(a) // a close is when garbage is looked for
		g.close(b)
		if s := ref.Leaks(before); strings.Contains(s, "vfs.file") {
			g.Errorf("left: %s", s)
		}
	})
}
