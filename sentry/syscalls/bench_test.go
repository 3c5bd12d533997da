package syscalls

import (
	"testing"

	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
)

// bench runs a body with b.N calls in a sandbox; the platform's share of a
// call is not in the figures.
func bench(b *testing.B, prepare func(*guest) (nr uintptr, args [6]uint64)) {
	s := newSandbox(b)
	b.ReportAllocs()
	s.start(nil, func(g *guest) {
		nr, args := prepare(g)
		b.ResetTimer()
		for range b.N {
			a := args
			if _, err := g.tb.Dispatch(g.task, nr, &a); err != nil {
				b.Errorf("%s: %v", name(nr), err)
				return
			}
		}
		b.StopTimer()
	})
	s.wait(1)
}

func benchFile(g *guest, size int) uint64 {
	fd := g.open("/a", creat|rdwr, 0o644)
	g.must(unix.SYS_WRITE, fd, make([]byte, size), size)
	return uint64(fd)
}

func BenchmarkPread4K(b *testing.B) {
	bench(b, func(g *guest) (uintptr, [6]uint64) {
		fd := benchFile(g, 4096)
		return unix.SYS_PREAD64, [6]uint64{fd, g.put(make([]byte, 4096)), 4096}
	})
}

func BenchmarkPwrite4K(b *testing.B) {
	bench(b, func(g *guest) (uintptr, [6]uint64) {
		fd := benchFile(g, 4096)
		return unix.SYS_PWRITE64, [6]uint64{fd, g.put(make([]byte, 4096)), 4096}
	})
}

func BenchmarkPread1(b *testing.B) {
	bench(b, func(g *guest) (uintptr, [6]uint64) {
		fd := benchFile(g, 4096)
		return unix.SYS_PREAD64, [6]uint64{fd, g.put(make([]byte, 16)), 1}
	})
}

func BenchmarkStat(b *testing.B) {
	bench(b, func(g *guest) (uintptr, [6]uint64) {
		g.must(unix.SYS_MKDIR, "/usr", 0o755)
		g.must(unix.SYS_MKDIR, "/usr/bin", 0o755)
		g.close(g.open("/usr/bin/x", creat|rdwr, 0o644))
		return unix.SYS_STAT, [6]uint64{g.put([]byte("/usr/bin/x\x00")), g.put(make([]byte, 144))}
	})
}

func BenchmarkFstat(b *testing.B) {
	bench(b, func(g *guest) (uintptr, [6]uint64) {
		return unix.SYS_FSTAT, [6]uint64{benchFile(g, 1), g.put(make([]byte, 144))}
	})
}

func BenchmarkPollReady(b *testing.B) {
	bench(b, func(g *guest) (uintptr, [6]uint64) {
		_, w := g.pipe(0)
		p := pollfds(unix.PollFd{Fd: int32(w), Events: unix.POLLOUT})
		return unix.SYS_POLL, [6]uint64{g.put(p), 1, 0}
	})
}

func BenchmarkEpollWaitReady(b *testing.B) {
	bench(b, func(g *guest) (uintptr, [6]uint64) {
		_, w := g.pipe(0)
		ep := g.must(unix.SYS_EPOLL_CREATE1, 0)
		ev := unix.EpollEvent{Events: unix.EPOLLOUT}
		g.must(unix.SYS_EPOLL_CTL, ep, unix.EPOLL_CTL_ADD, w, abi.Bytes(&ev))
		return unix.SYS_EPOLL_WAIT, [6]uint64{uint64(ep), g.put(make([]byte, 120)), 10, 0}
	})
}

func BenchmarkOpenClose(b *testing.B) {
	s := newSandbox(b)
	b.ReportAllocs()
	s.start(nil, func(g *guest) {
		g.must(unix.SYS_MKDIR, "/usr", 0o755)
		g.close(g.open("/usr/x", creat|rdwr, 0o644))
		open := [6]uint64{^uint64(99), g.put([]byte("/usr/x\x00")), rdonly}
		for range b.N {
			a := open
			fd, err := g.tb.Dispatch(g.task, unix.SYS_OPENAT, &a)
			if err != nil {
				b.Error(err)
				return
			}
			c := [6]uint64{uint64(fd)}
			_, _ = g.tb.Dispatch(g.task, unix.SYS_CLOSE, &c)
		}
	})
	s.wait(1)
}

func BenchmarkPipePingPong(b *testing.B) {
	s := newSandbox(b)
	b.ReportAllocs()
	gate := make(chan bool)
	s.start(nil, func(g *guest) {
		gate <- true
		<-gate
	})
	<-gate
	for i, names := range [][2]string{{"/f1", "/f2"}, {"/f2", "/f1"}} {
		s.start(nil, func(g *guest) {
			for _, n := range names {
				_, _ = g.call(unix.SYS_MKNOD, n, unix.S_IFIFO|0o600, 0)
			}
			in, out := uint64(g.open(names[0], rdwr, 0)), uint64(g.open(names[1], rdwr, 0))
			buf := g.put([]byte("x"))
			if i == 1 {
				g.write(int(out), "x")
			}
			for range b.N {
				r := [6]uint64{in, buf, 1}
				_, _ = g.tb.Dispatch(g.task, unix.SYS_READ, &r)
				w := [6]uint64{out, buf, 1}
				_, _ = g.tb.Dispatch(g.task, unix.SYS_WRITE, &w)
			}
		})
	}
	s.waitFor(2, 60e9)
	gate <- true
	s.wait(1)
}
