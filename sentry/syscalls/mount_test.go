package syscalls

import (
	"bytes"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"runsc/sentry/cred"
)

func TestMount(t *testing.T) {
	run(t, func(g *guest) {
		g.must(unix.SYS_MKDIR, "/m", 0o755)
		g.must(unix.SYS_MKDIR, "/b", 0o755)
		g.must(unix.SYS_MOUNT, "none", "/m", "tmpfs", 0, "size=64k")
		g.close(g.open("/m/f", creat|rdwr, 0o644))
		if g.stat("/m").Dev == g.stat("/").Dev {
			g.Error("nothing was mounted")
		}
		g.fails(unix.ENODEV, unix.SYS_MOUNT, "none", "/m", "nonsense", 0, 0)
		g.fails(unix.EINVAL, unix.SYS_MOUNT, "none", "/m", 0, 0, 0)
		g.fails(unix.EINVAL, unix.SYS_MOUNT, "none", "/m", "tmpfs", 0, "nonsense=1")
		g.fails(unix.ENOENT, unix.SYS_MOUNT, "none", "/none", "tmpfs", 0, 0)
		g.fails(unix.ENOTDIR, unix.SYS_MOUNT, "none", "/init", "tmpfs", 0, 0)
		g.must(unix.SYS_MOUNT, "/m", "/b", 0, unix.MS_BIND, 0)
		if g.stat("/b/f").Ino != g.stat("/m/f").Ino {
			g.Error("the bind mount shows something else")
		}
		g.must(unix.SYS_MOUNT, 0, "/b", 0, unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, 0)
		g.fails(unix.EROFS, unix.SYS_OPEN, "/b/f", wronly)
		g.fails(unix.EROFS, unix.SYS_MKDIR, "/b/d", 0o755)
		g.close(g.open("/m/f", wronly, 0))
		fd := g.open("/b/f", rdonly, 0)
		g.fails(unix.EBUSY, unix.SYS_UMOUNT2, "/b", 0)
		g.close(fd)
		g.must(unix.SYS_UMOUNT2, "/b", 0)
		g.fails(unix.EINVAL, unix.SYS_UMOUNT2, "/b", 0)
		g.fails(unix.EINVAL, unix.SYS_UMOUNT2, "/m", 0x100)
		g.must(unix.SYS_MOUNT, "none", "/", 0, unix.MS_REC|unix.MS_PRIVATE, 0)
		g.fails(unix.EINVAL, unix.SYS_MOUNT, "none", "/", 0, unix.MS_SHARED|unix.MS_PRIVATE, 0)
		g.must(unix.SYS_MOUNT, "/m", "/b", 0, unix.MS_MOVE, 0)
		g.stat("/b/f")
		// The container's root is the root of its namespace, as a rootfs is
		// for pivot_root only when it was mounted over another.
		g.must(unix.SYS_MKDIR, "/b/old", 0o755)
		g.must(unix.SYS_CHDIR, "/b")
		if _, err := g.call(unix.SYS_PIVOT_ROOT, ".", "old"); err == nil {
			g.stat("/old/init")
			g.stat("/f")
			g.must(unix.SYS_UMOUNT2, "/old", unix.MNT_DETACH)
		} else {
			g.Logf("pivot_root: %v", err)
			g.must(unix.SYS_CHROOT, "/b")
			g.stat("/f")
		}
		cr := g.task.Cred().Copy()
		cr.Effective &^= 1<<unix.CAP_SYS_ADMIN | 1<<unix.CAP_SYS_CHROOT
		g.task.SetCred(cr)
		g.fails(unix.EPERM, unix.SYS_MOUNT, "none", "/", "tmpfs", 0, 0)
		g.fails(unix.EPERM, unix.SYS_UMOUNT2, "/", 0)
		g.fails(unix.EPERM, unix.SYS_PIVOT_ROOT, "/", "/")
		g.fails(unix.EPERM, unix.SYS_CHROOT, "/")
	})
}

// TestPermissions makes calls without root's rights.
func TestPermissions(t *testing.T) {
	s := newSandbox(t)
	end := make(chan bool)
	s.start(nil, func(g *guest) {
		g.close(g.open("/secret", creat|rdwr, 0o600))
		g.must(unix.SYS_MKDIR, "/dir", 0o755)
		g.must(unix.SYS_MKDIR, "/tmp", 0)
		g.must(unix.SYS_CHMOD, "/tmp", 0o1777)
		g.close(g.open("/tmp/root", creat|rdwr, 0o666))
		end <- true
		<-end
	})
	<-end
	s.creds = &cred.Creds{UID: 1000, EUID: 1000, SUID: 1000, FSUID: 1000, GID: 1000, EGID: 1000, SGID: 1000, FSGID: 1000}
	s.start(nil, func(g *guest) {
		g.fails(unix.EACCES, unix.SYS_OPEN, "/secret", rdonly)
		g.fails(unix.EACCES, unix.SYS_ACCESS, "/secret", unix.R_OK)
		g.fails(unix.EACCES, unix.SYS_MKDIR, "/dir/d", 0o755)
		g.fails(unix.EPERM, unix.SYS_CHMOD, "/dir", 0o777)
		g.fails(unix.EPERM, unix.SYS_CHOWN, "/dir", 1000, 1000)
		g.fails(unix.EPERM, unix.SYS_UNLINK, "/tmp/root") // sticky
		g.fails(unix.EPERM, unix.SYS_MKNOD, "/tmp/dev", unix.S_IFCHR|0o666, 0x103)
		g.fails(unix.EPERM, unix.SYS_UTIMENSAT, unix.AT_FDCWD, "/dir", iovec(1, 2, 3, 4), 0)
		fd := g.open("/tmp/mine", creat|rdwr, 0o600)
		if st := g.stat("/tmp/mine"); st.Uid != 1000 || st.Gid != 1000 {
			g.Errorf("owner %d:%d", st.Uid, st.Gid)
		}
		g.must(unix.SYS_FCHMOD, fd, 0o644)
		g.fails(unix.EPERM, unix.SYS_FCNTL, g.pipeEnd(), unix.F_SETPIPE_SZ, 2<<20)
		g.must(unix.SYS_LINKAT, fd, "", unix.AT_FDCWD, "/tmp/l", unix.AT_EMPTY_PATH)
	})
	s.wait(1)
	end <- true
	s.wait(1)
}

func (g *guest) pipeEnd() int {
	_, w := g.pipe(0)
	return w
}

func TestSignalfd(t *testing.T) {
	run(t, func(g *guest) {
		mask := iovec(1<<(unix.SIGUSR1-1) | 1<<(unix.SIGUSR2-1))
		g.must(unix.SYS_RT_SIGPROCMASK, 0, mask, 0, 8)
		fd := g.must(unix.SYS_SIGNALFD4, -1, mask, 8, unix.SFD_NONBLOCK)
		p := pollfds(unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
		if n := g.must(unix.SYS_POLL, p, 1, 0); n != 0 {
			g.Errorf("poll %d", n)
		}
		g.must(unix.SYS_KILL, g.task.TGID(), int(unix.SIGUSR1))
		g.must(unix.SYS_KILL, g.task.TGID(), int(unix.SIGUSR2))
		if n := g.must(unix.SYS_POLL, p, 1, -1); n != 1 {
			g.Errorf("poll %d", n)
		}
		buf := make([]byte, 300)
		if n := g.must(unix.SYS_READ, fd, buf, 300); n != 256 || buf[0] != byte(unix.SIGUSR1) || buf[128] != byte(unix.SIGUSR2) {
			g.Errorf("read %d: signals %d, %d", n, buf[0], buf[128])
		}
		if pid := buf[12]; int32(pid) != g.task.TGID() {
			g.Errorf("sent by %d", pid)
		}
		g.fails(unix.EAGAIN, unix.SYS_READ, fd, buf, 300)
		g.must(unix.SYS_SIGNALFD4, fd, make([]byte, 8), 8, 0)
		g.must(unix.SYS_KILL, g.task.TGID(), int(unix.SIGUSR1))
		g.fails(unix.EAGAIN, unix.SYS_READ, fd, buf, 300)
	})
}

func TestTrace(t *testing.T) {
	var log bytes.Buffer
	run(t, func(g *guest) {
		tb := New(&log)
		args := [6]uint64{g.put([]byte("/no\nfile\x00")), unix.O_RDONLY}
		_, _ = tb.Dispatch(g.task, unix.SYS_OPEN, &args)
		_, _ = tb.Dispatch(g.task, 500, &[6]uint64{})
		if n := tb.Unknown()[500]; n != 1 {
			g.Errorf("%d unknown calls", n)
		}
	})
	for _, want := range []string{`open("/no\nfile", 0x0, `, "= -1 ENOENT\n", "syscall_500(", "= -1 ENOSYS\n"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %q in %q", want, log.String())
		}
	}
}
