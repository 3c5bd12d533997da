package syscalls

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/pkg/abi/linux"
	"runsc/sentry/errs"
)

func TestDup(t *testing.T) {
	runBoth(t, func(g *guest) {
		fd := g.open("a", creat|rdwr, 0o644)
		n := int(g.must(unix.SYS_FCNTL, fd, unix.F_DUPFD, 100))
		if n < 100 {
			g.Errorf("F_DUPFD gave %d", n)
		}
		g.write(n, "shared offset")
		if off := g.must(unix.SYS_LSEEK, fd, 0, unix.SEEK_CUR); off != 13 {
			g.Errorf("offset %d", off)
		}
		c := g.must(unix.SYS_FCNTL, fd, unix.F_DUPFD_CLOEXEC, 0)
		if f := g.must(unix.SYS_FCNTL, c, unix.F_GETFD); f != unix.FD_CLOEXEC {
			g.Errorf("F_GETFD %d", f)
		}
		g.must(unix.SYS_FCNTL, c, unix.F_SETFD, 0)
		if f := g.must(unix.SYS_FCNTL, c, unix.F_GETFD); f != 0 {
			g.Errorf("F_GETFD %d", f)
		}
		if n := g.must(unix.SYS_DUP2, fd, 200); n != 200 {
			g.Errorf("dup2 gave %d", n)
		}
		if n := g.must(unix.SYS_DUP2, fd, fd); int(n) != fd {
			g.Errorf("dup2 to itself gave %d", n)
		}
		g.fails(unix.EINVAL, unix.SYS_DUP3, fd, fd, 0)
		g.fails(unix.EINVAL, unix.SYS_DUP3, fd, 201, 1)
		g.fails(unix.EBADF, unix.SYS_DUP2, 999, 201)
		g.fails(unix.EBADF, unix.SYS_DUP2, fd, -1)
		g.fails(unix.EBADF, unix.SYS_DUP2, fd, 1<<30)
		g.fails(unix.EINVAL, unix.SYS_FCNTL, fd, unix.F_DUPFD, 1<<30)
		g.fails(unix.EINVAL, unix.SYS_FCNTL, fd, 9999)
		g.fails(unix.EBADF, unix.SYS_FCNTL, 999, unix.F_GETFD)
		g.must(unix.SYS_CLOSE_RANGE, 200, 300, 0)
		g.fails(unix.EBADF, unix.SYS_FCNTL, 200, unix.F_GETFD)
		g.fails(unix.EINVAL, unix.SYS_CLOSE_RANGE, 3, 2, 0)
		g.must(unix.SYS_CLOSE_RANGE, n, n, unix.CLOSE_RANGE_CLOEXEC)
		if f := g.must(unix.SYS_FCNTL, n, unix.F_GETFD); f != unix.FD_CLOEXEC {
			g.Errorf("CLOSE_RANGE_CLOEXEC: %d", f)
		}
	})
}

func TestStatusFlags(t *testing.T) {
	runBoth(t, func(g *guest) {
		r, w := g.pipe(unix.O_NONBLOCK)
		g.fails(unix.EAGAIN, unix.SYS_READ, r, make([]byte, 1), 1)
		if f := g.must(unix.SYS_FCNTL, r, unix.F_GETFL); f != unix.O_NONBLOCK {
			g.Errorf("flags %o", f)
		}
		g.must(unix.SYS_IOCTL, w, linux.FIONBIO, make([]byte, 4))
		if f := g.must(unix.SYS_FCNTL, w, unix.F_GETFL); f != wronly {
			g.Errorf("flags %o", f)
		}
		g.must(unix.SYS_FCNTL, w, unix.F_SETFL, unix.O_NONBLOCK|creat|rdwr)
		if f := g.must(unix.SYS_FCNTL, w, unix.F_GETFL); f != wronly|unix.O_NONBLOCK {
			g.Errorf("flags %o", f)
		}
		g.write(w, "hello")
		n := make([]byte, 4)
		g.must(unix.SYS_IOCTL, r, linux.FIONREAD, n)
		if n[0] != 5 {
			g.Errorf("FIONREAD %d", n[0])
		}
		g.fails(unix.ENOTTY, unix.SYS_IOCTL, r, unix.TCGETS, make([]byte, 60))
		fd := g.open("a", creat|rdwr, 0o644)
		g.fails(unix.ENOTTY, unix.SYS_IOCTL, fd, unix.TCGETS, make([]byte, 60))
		g.write(fd, "12345678")
		g.must(unix.SYS_LSEEK, fd, 2, 0)
		g.must(unix.SYS_IOCTL, fd, linux.FIONREAD, n)
		if n[0] != 6 {
			g.Errorf("FIONREAD of a file %d", n[0])
		}
		g.must(unix.SYS_IOCTL, fd, linux.FIOCLEX)
		if f := g.must(unix.SYS_FCNTL, fd, unix.F_GETFD); f != unix.FD_CLOEXEC {
			g.Errorf("FIOCLEX: %d", f)
		}
		if n := g.must(unix.SYS_FCNTL, w, linux.F_GETPIPE_SZ); n != 65536 {
			g.Errorf("pipe size %d", n)
		}
		if n := g.must(unix.SYS_FCNTL, w, unix.F_SETPIPE_SZ, 5000); n != 8192 {
			g.Errorf("pipe size %d", n)
		}
		g.fails(unix.EBADF, unix.SYS_FCNTL, fd, linux.F_GETPIPE_SZ)
		g.must(unix.SYS_FCNTL, r, unix.F_SETSIG, 10)
		if n := g.must(unix.SYS_FCNTL, r, unix.F_GETSIG); n != 10 {
			g.Errorf("F_GETSIG %d", n)
		}
		g.fails(unix.EINVAL, unix.SYS_FCNTL, r, unix.F_SETSIG, 65)
		if n := g.must(unix.SYS_FCNTL, fd, linux.F_GETLEASE); n != unix.F_UNLCK {
			g.Errorf("F_GETLEASE %d", n)
		}
	})
}

func pollfds(p ...unix.PollFd) []byte { return append([]byte(nil), abi.SliceBytes(p)...) }

func revents(b []byte, i int) uint16 { return binary.LittleEndian.Uint16(b[8*i+6:]) }

func TestPoll(t *testing.T) {
	runBoth(t, func(g *guest) {
		r, w := g.pipe(0)
		file := g.open("a", creat|rdwr, 0o644)
		all := int16(unix.POLLIN | unix.POLLOUT)
		p := pollfds(unix.PollFd{Fd: int32(r), Events: all}, unix.PollFd{Fd: int32(w), Events: all},
			unix.PollFd{Fd: -1, Events: all}, unix.PollFd{Fd: 999, Events: all}, unix.PollFd{Fd: int32(file), Events: all})
		if n := g.must(unix.SYS_POLL, p, 5, 0); n != 3 {
			g.Errorf("poll %d", n)
		}
		want := []uint16{0, unix.POLLOUT, 0, unix.POLLNVAL, unix.POLLIN | unix.POLLOUT}
		for i, m := range want {
			if revents(p, i) != m {
				g.Errorf("entry %d: %#x, want %#x", i, revents(p, i), m)
			}
		}
		start := time.Now()
		ts := unix.Timespec{Nsec: 20e6}
		p = pollfds(unix.PollFd{Fd: int32(r), Events: unix.POLLIN})
		if n := g.must(unix.SYS_PPOLL, p, 1, abi.Bytes(&ts), 0, 8); n != 0 || time.Since(start) < 20*time.Millisecond {
			g.Errorf("ppoll %d after %v", n, time.Since(start))
		}
		if ts.Nsec != 0 {
			g.Errorf("timeout left: %v", ts)
		}
		if n := g.must(unix.SYS_POLL, 0, 0, 1); n != 0 {
			g.Errorf("poll of nothing %d", n)
		}
		go func() {
			time.Sleep(5 * time.Millisecond)
		}()
		g.write(w, "x")
		g.close(w)
		if n := g.must(unix.SYS_POLL, p, 1, -1); n != 1 || revents(p, 0) != unix.POLLIN|unix.POLLHUP {
			g.Errorf("poll %d, %#x", n, revents(p, 0))
		}
		bad := unix.Timespec{Nsec: 2e9}
		g.fails(unix.EINVAL, unix.SYS_PPOLL, p, 1, abi.Bytes(&bad), 0, 8)
		g.fails(unix.EINVAL, unix.SYS_PPOLL, p, 1, 0, make([]byte, 8), 4)
		g.fails(unix.EINVAL, unix.SYS_POLL, p, 1<<30, 0)
		g.fails(unix.EFAULT, unix.SYS_POLL, 8, 1, 0)
	})
}

func fdset(fds ...int) []byte {
	b := make([]byte, 128)
	for _, fd := range fds {
		b[fd/8] |= 1 << (fd % 8)
	}
	return b
}

func TestSelect(t *testing.T) {
	runBoth(t, func(g *guest) {
		r, w := g.pipe(0)
		in, out, ex := fdset(r), fdset(w), fdset(r, w)
		if n := g.must(unix.SYS_SELECT, w+1, in, out, ex, make([]byte, 16)); n != 1 {
			g.Errorf("select %d", n)
		}
		if string(in) != string(fdset()) || string(out) != string(fdset(w)) || string(ex) != string(fdset()) {
			g.Error("wrong sets")
		}
		g.write(w, "x")
		in, out = fdset(r), fdset(w)
		tv := unix.Timeval{Sec: 5}
		if n := g.must(unix.SYS_SELECT, w+1, in, out, 0, abi.Bytes(&tv)); n != 2 {
			g.Errorf("select %d", n)
		}
		if tv.Sec == 5 || tv.Sec == 0 {
			g.Errorf("timeout left: %v", tv)
		}
		g.close(r)
		// POLLERR is writable but no exception.
		ex = fdset(w)
		ts := unix.Timespec{Nsec: 1e6}
		if n := g.must(unix.SYS_PSELECT6, w+1, 0, 0, ex, abi.Bytes(&ts), 0); n != 0 {
			g.Errorf("pselect %d", n)
		}
		g.close(w)
		g.fails(unix.EBADF, unix.SYS_SELECT, w+1, fdset(w), 0, 0, make([]byte, 16))
		g.fails(unix.EINVAL, unix.SYS_SELECT, -1, 0, 0, 0, make([]byte, 16))
		neg := unix.Timeval{Sec: -1}
		g.fails(unix.EINVAL, unix.SYS_SELECT, 0, 0, 0, 0, abi.Bytes(&neg))
	})
}

func TestEpollCalls(t *testing.T) {
	runBoth(t, func(g *guest) {
		ep := int(g.must(unix.SYS_EPOLL_CREATE1, unix.EPOLL_CLOEXEC))
		if f := g.must(unix.SYS_FCNTL, ep, unix.F_GETFD); f != unix.FD_CLOEXEC {
			g.Errorf("F_GETFD %d", f)
		}
		r, w := g.pipe(0)
		ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: 7, Pad: 9}
		e := abi.Bytes(&ev)
		g.must(unix.SYS_EPOLL_CTL, ep, unix.EPOLL_CTL_ADD, r, e)
		g.fails(unix.EEXIST, unix.SYS_EPOLL_CTL, ep, unix.EPOLL_CTL_ADD, r, e)
		g.fails(unix.ENOENT, unix.SYS_EPOLL_CTL, ep, unix.EPOLL_CTL_MOD, w, e)
		g.fails(unix.EINVAL, unix.SYS_EPOLL_CTL, ep, unix.EPOLL_CTL_ADD, ep, e)
		g.fails(unix.EINVAL, unix.SYS_EPOLL_CTL, r, unix.EPOLL_CTL_ADD, w, e)
		g.fails(unix.EBADF, unix.SYS_EPOLL_CTL, 999, unix.EPOLL_CTL_ADD, w, e)
		g.fails(unix.EBADF, unix.SYS_EPOLL_CTL, ep, unix.EPOLL_CTL_ADD, 999, e)
		g.fails(unix.EFAULT, unix.SYS_EPOLL_CTL, ep, unix.EPOLL_CTL_ADD, w, 8)
		g.fails(unix.EINVAL, unix.SYS_EPOLL_CTL, ep, 9, w, e)
		file := g.open("a", creat|rdwr, 0o644)
		g.fails(unix.EPERM, unix.SYS_EPOLL_CTL, ep, unix.EPOLL_CTL_ADD, file, e)
		out := make([]byte, 24)
		if n := g.must(unix.SYS_EPOLL_WAIT, ep, out, 2, 1); n != 0 {
			g.Errorf("epoll_wait %d", n)
		}
		g.write(w, "x")
		if n := g.must(unix.SYS_EPOLL_PWAIT, ep, out, 2, -1, 0, 8); n != 1 {
			g.Errorf("epoll_wait %d", n)
		}
		if string(out[:12]) != string(e) {
			g.Errorf("event %x, want %x", out[:12], e)
		}
		ts := unix.Timespec{Nsec: 1000}
		g.must(unix.SYS_EPOLL_CTL, ep, unix.EPOLL_CTL_DEL, r, 0)
		if n := g.must(unix.SYS_EPOLL_PWAIT2, ep, out, 2, abi.Bytes(&ts), 0, 8); n != 0 {
			g.Errorf("epoll_pwait2 %d", n)
		}
		g.fails(unix.EINVAL, unix.SYS_EPOLL_WAIT, ep, out, 0, 0)
		g.fails(unix.EINVAL, unix.SYS_EPOLL_WAIT, r, out, 1, 0)
		g.fails(unix.EBADF, unix.SYS_EPOLL_WAIT, 999, out, 1, 0)
		g.fails(unix.EINVAL, unix.SYS_EPOLL_CREATE, 0)
		g.fails(unix.EINVAL, unix.SYS_EPOLL_CREATE1, 1)
	})
}

func TestEventFiles(t *testing.T) {
	runBoth(t, func(g *guest) {
		fd := g.must(unix.SYS_EVENTFD2, 3, unix.EFD_NONBLOCK)
		p := make([]byte, 8)
		if n := g.must(unix.SYS_READ, fd, p, 8); n != 8 || p[0] != 3 {
			g.Errorf("eventfd %d %v", n, p)
		}
		g.fails(unix.EAGAIN, unix.SYS_READ, fd, p, 8)
		g.fails(unix.EINVAL, unix.SYS_READ, fd, p, 7)
		g.fails(unix.EINVAL, unix.SYS_EVENTFD2, 3, 2)
		tm := g.must(unix.SYS_TIMERFD_CREATE, unix.CLOCK_MONOTONIC, 0)
		spec := unix.ItimerSpec{Value: unix.Timespec{Nsec: 2e6}}
		g.must(unix.SYS_TIMERFD_SETTIME, tm, 0, abi.Bytes(&spec), 0)
		if n := g.must(unix.SYS_READ, tm, p, 8); n != 8 || p[0] != 1 {
			g.Errorf("timerfd %d %v", n, p)
		}
		spec = unix.ItimerSpec{Value: unix.Timespec{Sec: 100}, Interval: unix.Timespec{Sec: 7}}
		var old unix.ItimerSpec
		g.must(unix.SYS_TIMERFD_SETTIME, tm, 0, abi.Bytes(&spec), abi.Bytes(&old))
		if old.Value.Nano() != 0 {
			g.Errorf("old setting %v", old)
		}
		g.must(unix.SYS_TIMERFD_GETTIME, tm, abi.Bytes(&old))
		if old.Value.Sec != 99 || old.Interval.Sec != 7 {
			g.Errorf("setting %v", old)
		}
		g.fails(unix.EINVAL, unix.SYS_TIMERFD_CREATE, 77, 0)
		g.fails(unix.EINVAL, unix.SYS_TIMERFD_CREATE, 0, 1)
		g.fails(unix.EINVAL, unix.SYS_TIMERFD_SETTIME, fd, 0, abi.Bytes(&spec), 0)
		g.fails(unix.EINVAL, unix.SYS_TIMERFD_SETTIME, tm, 8, abi.Bytes(&spec), 0)
		spec.Value.Nsec = 1e9
		g.fails(unix.EINVAL, unix.SYS_TIMERFD_SETTIME, tm, 0, abi.Bytes(&spec), 0)
		g.fails(unix.EINVAL, unix.SYS_SIGNALFD4, -1, make([]byte, 8), 4, 0)
		g.fails(unix.EINVAL, unix.SYS_SIGNALFD4, -1, make([]byte, 8), 8, 1)
		g.fails(unix.EINVAL, unix.SYS_SIGNALFD4, fd, make([]byte, 8), 8, 0)
		sig := g.must(unix.SYS_SIGNALFD4, -1, make([]byte, 8), 8, unix.SFD_NONBLOCK)
		g.fails(unix.EAGAIN, unix.SYS_READ, sig, make([]byte, 128), 128)
		g.fails(unix.EINVAL, unix.SYS_READ, sig, make([]byte, 128), 127)
	})
}

func TestInotify(t *testing.T) {
	runBoth(t, func(g *guest) {
		g.must(unix.SYS_MKDIR, "d", 0o755)
		in := g.must(unix.SYS_INOTIFY_INIT1, unix.IN_NONBLOCK)
		wd := g.must(unix.SYS_INOTIFY_ADD_WATCH, in, "d", unix.IN_ALL_EVENTS&^(unix.IN_ACCESS|unix.IN_OPEN|unix.IN_ATTRIB))
		g.fails(unix.EINVAL, unix.SYS_INOTIFY_ADD_WATCH, in, "d", 0)
		g.fails(unix.ENOENT, unix.SYS_INOTIFY_ADD_WATCH, in, "none", unix.IN_OPEN)
		g.fails(unix.EEXIST, unix.SYS_INOTIFY_ADD_WATCH, in, "d", unix.IN_OPEN|unix.IN_MASK_CREATE)
		g.fails(unix.EAGAIN, unix.SYS_READ, in, make([]byte, 100), 100)
		fd := g.open("d/f", creat|wronly, 0o644)
		g.write(fd, "x")
		g.close(fd)
		g.must(unix.SYS_RENAME, "d/f", "d/g")
		g.must(unix.SYS_UNLINK, "d/g")
		g.must(unix.SYS_RMDIR, "d")
		type event struct {
			mask uint32
			name string
		}
		want := []event{
			{unix.IN_CREATE, "f"}, {unix.IN_MODIFY, "f"}, {unix.IN_CLOSE_WRITE, "f"},
			{unix.IN_MOVED_FROM, "f"}, {unix.IN_MOVED_TO, "g"}, {unix.IN_DELETE, "g"},
			{unix.IN_DELETE_SELF, ""}, {unix.IN_IGNORED, ""},
		}
		g.fails(unix.EINVAL, unix.SYS_READ, in, make([]byte, 20), 20)
		buf := make([]byte, 4096)
		b := buf[:g.must(unix.SYS_READ, in, buf, len(buf))]
		var got []event
		var cookies []uint32
		for len(b) > 0 {
			le := binary.LittleEndian
			n := 16 + int(le.Uint32(b[12:]))
			name, _, _ := strings.Cut(string(b[16:n]), "\x00")
			got = append(got, event{le.Uint32(b[4:]), name})
			if c := le.Uint32(b[8:]); c != 0 {
				cookies = append(cookies, c)
			}
			if uintptr(le.Uint32(b)) != wd {
				g.Errorf("watch %d, want %d", le.Uint32(b), wd)
			}
			b = b[n:]
		}
		if len(got) != len(want) {
			g.Errorf("events %v, want %v", got, want)
			return
		}
		for i := range want {
			if got[i] != want[i] {
				g.Errorf("event %d: %v, want %v", i, got[i], want[i])
			}
		}
		if len(cookies) != 2 || cookies[0] != cookies[1] {
			g.Errorf("cookies %v", cookies)
		}
		g.fails(unix.EINVAL, unix.SYS_INOTIFY_RM_WATCH, in, wd)
	})
}

func TestSplice(t *testing.T) {
	runBoth(t, func(g *guest) {
		src := g.open("src", creat|rdwr, 0o644)
		g.write(src, "0123456789")
		dst := g.open("dst", creat|rdwr, 0o644)
		off := make([]byte, 8)
		off[0] = 2
		if n := g.must(unix.SYS_SENDFILE, dst, src, off, 5); n != 5 || off[0] != 7 {
			g.Errorf("sendfile %d, offset %d", n, off[0])
		}
		if at := g.must(unix.SYS_LSEEK, dst, 0, unix.SEEK_CUR); at != 5 {
			g.Errorf("sendfile left the offset at %d", at)
		}
		if n := g.must(unix.SYS_SENDFILE, dst, src, 0, 5); n != 0 {
			g.Errorf("sendfile at the end %d", n)
		}
		in, out := make([]byte, 8), make([]byte, 8)
		if n := g.must(unix.SYS_COPY_FILE_RANGE, src, in, dst, out, 100, 0); n != 10 || in[0] != 10 || out[0] != 10 {
			g.Errorf("copy_file_range %d, %d, %d", n, in[0], out[0])
		}
		g.fails(unix.EINVAL, unix.SYS_COPY_FILE_RANGE, src, in, dst, out, 100, 1)
		r, w := g.pipe(0)
		g.fails(unix.EINVAL, unix.SYS_COPY_FILE_RANGE, r, 0, dst, 0, 100, 0)
		g.fails(unix.EINVAL, unix.SYS_SPLICE, src, 0, dst, 0, 5, 0)
		g.fails(unix.ESPIPE, unix.SYS_SPLICE, src, 0, w, make([]byte, 8), 5, 0)
		g.fails(unix.EINVAL, unix.SYS_SPLICE, src, 0, w, 0, 5, 0x100)
		in[0] = 8
		if n := g.must(unix.SYS_SPLICE, src, in, w, 0, 5, 0); n != 2 || in[0] != 10 {
			g.Errorf("splice into a pipe %d, %d", n, in[0])
		}
		r2, w2 := g.pipe(unix.O_NONBLOCK)
		if n := g.must(unix.SYS_TEE, r, w2, 10, 0); n != 2 {
			g.Errorf("tee %d", n)
		}
		if n := g.must(unix.SYS_SPLICE, r, 0, w2, 0, 10, 0); n != 2 {
			g.Errorf("splice between pipes %d", n)
		}
		if s := g.read(r2, 10); s != "8989" {
			g.Errorf("read %q", s)
		}
		g.fails(unix.EAGAIN, unix.SYS_SPLICE, r2, 0, dst, 0, 10, 0)
		g.write(w2, "zz")
		if n := g.must(unix.SYS_SPLICE, r2, 0, dst, 0, 10, 0); n != 2 {
			g.Errorf("splice into a file %d", n)
		}
		p := make([]byte, 20)
		if n := g.must(unix.SYS_PREAD64, dst, p, 20, 0); string(p[:n]) != "01234zz789" {
			g.Errorf("dst %q", p[:n])
		}
		g.fails(unix.EINVAL, unix.SYS_TEE, r, src, 10, 0)
		g.fails(unix.EBADF, unix.SYS_SPLICE, w, 0, w2, 0, 10, 0)
	})
}

func TestMemfd(t *testing.T) {
	runBoth(t, func(g *guest) {
		fd := int(g.must(unix.SYS_MEMFD_CREATE, "name", unix.MFD_ALLOW_SEALING))
		g.write(fd, "hello")
		if n := g.must(unix.SYS_FCNTL, fd, unix.F_GET_SEALS); n != 0 {
			g.Errorf("seals %#x", n)
		}
		g.must(unix.SYS_FCNTL, fd, unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_GROW)
		g.fails(unix.EPERM, unix.SYS_WRITE, fd, []byte("x"), 1)
		g.fails(unix.EPERM, unix.SYS_FTRUNCATE, fd, 100)
		g.must(unix.SYS_FTRUNCATE, fd, 2)
		g.must(unix.SYS_FCNTL, fd, unix.F_ADD_SEALS, unix.F_SEAL_SEAL)
		g.fails(unix.EPERM, unix.SYS_FCNTL, fd, unix.F_ADD_SEALS, unix.F_SEAL_SHRINK)
		plain := g.must(unix.SYS_MEMFD_CREATE, "", 0)
		if n := g.must(unix.SYS_FCNTL, plain, unix.F_GET_SEALS); n != unix.F_SEAL_SEAL {
			g.Errorf("seals %#x", n)
		}
		var st unix.Stat_t
		g.must(unix.SYS_FSTAT, plain, abi.Bytes(&st))
		if st.Mode != unix.S_IFREG|0o777 || st.Nlink != 0 {
			g.Errorf("mode %o, %d links", st.Mode, st.Nlink)
		}
		g.fails(unix.EINVAL, unix.SYS_MEMFD_CREATE, strings.Repeat("x", 250), 0)
		g.must(unix.SYS_MEMFD_CREATE, strings.Repeat("x", 249), 0)
		g.fails(unix.EINVAL, unix.SYS_MEMFD_CREATE, "x", 1<<20)
		_, w := g.pipe(0)
		g.fails(unix.EINVAL, unix.SYS_FCNTL, w, unix.F_ADD_SEALS, unix.F_SEAL_WRITE)
	})
}

func TestLocks(t *testing.T) {
	runBoth(t, func(g *guest) {
		a, b := g.open("a", creat|rdwr, 0o644), g.open("a", rdwr, 0)
		g.must(unix.SYS_FLOCK, a, unix.LOCK_EX)
		g.fails(unix.EAGAIN, unix.SYS_FLOCK, b, unix.LOCK_SH|unix.LOCK_NB)
		g.must(unix.SYS_FLOCK, a, unix.LOCK_SH)
		g.must(unix.SYS_FLOCK, b, unix.LOCK_SH|unix.LOCK_NB)
		g.must(unix.SYS_FLOCK, a, unix.LOCK_UN)
		g.fails(unix.EINVAL, unix.SYS_FLOCK, a, 77)
		lock := func(typ int16, start, n int64) []byte {
			l := linux.Flock{Type: typ, Start: start, Len: n}
			return append([]byte(nil), abi.Bytes(&l)...)
		}
		g.must(unix.SYS_FCNTL, a, unix.F_OFD_SETLK, lock(unix.F_WRLCK, 10, 10))
		g.fails(unix.EAGAIN, unix.SYS_FCNTL, b, unix.F_OFD_SETLK, lock(unix.F_RDLCK, 15, 1))
		g.must(unix.SYS_FCNTL, b, unix.F_OFD_SETLK, lock(unix.F_RDLCK, 20, 0))
		q := lock(unix.F_WRLCK, 0, 0)
		g.must(unix.SYS_FCNTL, b, unix.F_OFD_GETLK, q)
		if typ, start, pid := int16(q[0]), q[8], int32(binary.LittleEndian.Uint32(q[24:])); typ != unix.F_WRLCK || start != 10 || pid != -1 {
			g.Errorf("F_OFD_GETLK: type %d, start %d, pid %d", typ, start, pid)
		}
		// One owner: POSIX locks of a process never conflict.
		g.must(unix.SYS_FCNTL, a, unix.F_OFD_SETLK, lock(unix.F_UNLCK, 0, 0))
		g.must(unix.SYS_FCNTL, b, unix.F_OFD_SETLK, lock(unix.F_UNLCK, 0, 0))
		g.must(unix.SYS_FCNTL, a, unix.F_SETLK, lock(unix.F_WRLCK, 0, 0))
		g.must(unix.SYS_FCNTL, b, unix.F_SETLK, lock(unix.F_WRLCK, 0, 0))
		g.fails(unix.EINVAL, unix.SYS_FCNTL, a, unix.F_SETLK, lock(7, 0, 0))
		ro := g.open("a", rdonly, 0)
		g.fails(unix.EBADF, unix.SYS_FCNTL, ro, unix.F_SETLK, lock(unix.F_WRLCK, 0, 0))
	})
}

func TestMisc(t *testing.T) {
	runBoth(t, func(g *guest) {
		fd := g.open("a", creat|rdwr, 0o644)
		r, _ := g.pipe(0)
		g.must(unix.SYS_FSYNC, fd)
		g.must(unix.SYS_FDATASYNC, fd)
		g.must(unix.SYS_SYNCFS, fd)
		g.fails(unix.EINVAL, unix.SYS_FSYNC, r)
		g.must(unix.SYS_FADVISE64, fd, 0, 0, unix.FADV_WILLNEED)
		g.fails(unix.ESPIPE, unix.SYS_FADVISE64, r, 0, 0, 0)
		g.fails(unix.EINVAL, unix.SYS_FADVISE64, fd, 0, 0, 99)
		g.must(unix.SYS_READAHEAD, fd, 0, 10)
		g.fails(unix.EINVAL, unix.SYS_READAHEAD, r, 0, 10)
		g.must(unix.SYS_SYNC_FILE_RANGE, fd, 0, 0, unix.SYNC_FILE_RANGE_WRITE)
		g.fails(unix.ESPIPE, unix.SYS_SYNC_FILE_RANGE, r, 0, 0, 1)
		g.fails(unix.EAFNOSUPPORT, unix.SYS_SOCKET, 99, unix.SOCK_STREAM, 0)
		g.fails(unix.EINVAL, unix.SYS_SOCKET, unix.AF_UNIX, 99, 0)
	})
}

func TestSIGPIPE(t *testing.T) {
	run(t, func(g *guest) {
		r, w := g.pipe(0)
		g.close(r)
		g.fails(unix.EPIPE, unix.SYS_WRITE, w, []byte("x"), 1)
		if !g.task.PendingSignals().Has(int32(unix.SIGPIPE)) && !g.task.SignalPending() {
			// Init has no handler: a default action does not reach it.
			g.Log("SIGPIPE dropped for init, as on Linux")
		}
	})
}

func TestFifoBetweenProcesses(t *testing.T) {
	s := newSandbox(t)
	end := make(chan bool)
	s.start(nil, func(g *guest) {
		g.must(unix.SYS_MKNOD, "/fifo", unix.S_IFIFO|0o600, 0)
		end <- true
		<-end
	})
	<-end
	s.start(nil, func(g *guest) {
		r := g.open("/fifo", rdonly, 0) // waits for the writer
		n := 0
		for b := "x"; b != ""; n += len(b) {
			b = g.read(r, 3000)
		}
		if n != 200000 {
			g.Errorf("%d bytes", n)
		}
	})
	s.start(nil, func(g *guest) {
		w := g.open("/fifo", wronly, 0)
		if n := g.write(w, strings.Repeat("y", 200000)); n != 200000 {
			g.Errorf("wrote %d", n)
		}
	})
	s.wait(2)
	end <- true
	s.wait(1)
}

func TestInterruptedRead(t *testing.T) {
	s := newSandbox(t)
	end := make(chan bool)
	s.start(nil, func(g *guest) { <-end })
	ready := make(chan bool)
	tg := s.start(nil, func(g *guest) {
		r, _ := g.pipe(0)
		ready <- true
		g.fails(errs.ERESTARTSYS, unix.SYS_READ, r, make([]byte, 1), 1)
		p := pollfds(unix.PollFd{Fd: int32(r), Events: unix.POLLIN})
		g.fails(errs.ERESTARTBLOCK, unix.SYS_POLL, p, 1, 100000)
		g.fails(errs.ERESTARTNOHAND, unix.SYS_PPOLL, p, 1, 0, 0, 8)
		g.fails(errs.ERESTARTNOHAND, unix.SYS_SELECT, r+1, fdset(r), 0, 0, 0)
		ep := g.must(unix.SYS_EPOLL_CREATE1, 0)
		g.fails(unix.EINTR, unix.SYS_EPOLL_WAIT, ep, make([]byte, 12), 1, -1)
	})
	<-ready
	time.Sleep(5 * time.Millisecond)
	if err := tg.SignalFromOutside(int32(unix.SIGTERM)); err != nil {
		t.Error(err)
	}
	s.wait(1)
	end <- true
	s.wait(1)
}
