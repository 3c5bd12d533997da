package syscalls

import (
	"encoding/binary"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/pkg/abi/linux"
)

const (
	rdonly = unix.O_RDONLY
	wronly = unix.O_WRONLY
	rdwr   = unix.O_RDWR
	creat  = unix.O_CREAT
)

func TestOpen(t *testing.T) {
	runBoth(t, func(g *guest) {
		fd := g.open("a", creat|rdwr, 0o666)
		if st := g.stat("a"); st.Mode != unix.S_IFREG|0o644 {
			g.Errorf("mode %o", st.Mode)
		}
		g.fails(unix.EEXIST, unix.SYS_OPEN, "a", creat|unix.O_EXCL|rdwr, 0o666)
		g.fails(unix.ENOENT, unix.SYS_OPEN, "none", rdonly)
		g.fails(unix.ENOENT, unix.SYS_OPEN, "", rdonly)
		g.fails(unix.ENOTDIR, unix.SYS_OPEN, "a", unix.O_DIRECTORY)
		g.fails(unix.ENOTDIR, unix.SYS_OPEN, "a/b", rdonly)
		g.fails(unix.ENOTDIR, unix.SYS_OPEN, "a/", rdonly)
		g.fails(unix.EISDIR, unix.SYS_OPEN, ".", wronly)
		g.fails(unix.ENAMETOOLONG, unix.SYS_OPEN, strings.Repeat("x", 256), rdonly)
		g.fails(unix.ENAMETOOLONG, unix.SYS_OPEN, strings.Repeat("x/", 2048), rdonly)
		g.fails(unix.EFAULT, unix.SYS_OPEN, 1, rdonly)
		g.fails(unix.EBADF, unix.SYS_OPENAT, 999, "a", rdonly)
		g.fails(unix.ENOTDIR, unix.SYS_OPENAT, fd, "a", rdonly)
		g.fails(unix.EINVAL, unix.SYS_OPEN, ".", creat|unix.O_DIRECTORY)
		g.fails(unix.EINVAL, unix.SYS_OPEN, ".", unix.O_TMPFILE)
		g.must(unix.SYS_SYMLINK, "a", "link")
		g.fails(unix.ELOOP, unix.SYS_OPEN, "link", unix.O_NOFOLLOW)
		p := g.open("link", unix.O_NOFOLLOW|unix.O_PATH, 0)
		g.fails(unix.EBADF, unix.SYS_READ, p, make([]byte, 1), 1)
		g.fails(unix.EBADF, unix.SYS_FCHMOD, p, 0)
		g.fails(unix.EBADF, unix.SYS_IOCTL, p, linux.FIONBIO, make([]byte, 4))
		if n := g.must(unix.SYS_FCNTL, p, unix.F_GETFL); n != unix.O_PATH|unix.O_NOFOLLOW {
			g.Errorf("flags of an O_PATH file: %o", n)
		}
		g.must(unix.SYS_SYMLINK, "loop", "loop")
		g.fails(unix.ELOOP, unix.SYS_OPEN, "loop", rdonly)
		if n := g.must(unix.SYS_FCNTL, fd, unix.F_GETFL); n != rdwr|linux.O_LARGEFILE {
			g.Errorf("flags: %o", n)
		}
		tmp := g.open(".", unix.O_TMPFILE|rdwr, 0o600)
		g.write(tmp, "x")
		var st unix.Stat_t
		g.must(unix.SYS_FSTAT, tmp, abi.Bytes(&st))
		if st.Nlink != 0 || st.Size != 1 {
			g.Errorf("O_TMPFILE: %d links, %d bytes", st.Nlink, st.Size)
		}
	})
}

func TestOpenat2(t *testing.T) {
	runBoth(t, func(g *guest) {
		g.must(unix.SYS_MKDIR, "d", 0o755)
		g.must(unix.SYS_SYMLINK, "..", "d/up")
		g.must(unix.SYS_SYMLINK, "/", "d/root")
		g.close(g.open("d/f", creat|rdwr, 0o644))
		d := g.open("d", unix.O_PATH, 0)
		try := func(path string, flags, mode, resolve uint64) (uintptr, error) {
			how := unix.OpenHow{Flags: flags, Mode: mode, Resolve: resolve}
			return g.call(unix.SYS_OPENAT2, d, path, abi.Bytes(&how), unix.SizeofOpenHow)
		}
		tests := []struct {
			path                 string
			flags, mode, resolve uint64
			want                 error
		}{
			{"f", 0, 0, unix.RESOLVE_BENEATH, nil},
			{"../d/f", 0, 0, unix.RESOLVE_BENEATH, unix.EXDEV},
			{"up/d/f", 0, 0, unix.RESOLVE_BENEATH, unix.EXDEV},
			{"/f", 0, 0, unix.RESOLVE_BENEATH, unix.EXDEV},
			{"/f", 0, 0, unix.RESOLVE_IN_ROOT, nil},
			{"root/f", 0, 0, unix.RESOLVE_IN_ROOT, nil},
			{"../../f", 0, 0, unix.RESOLVE_IN_ROOT, nil},
			{"up", 0, 0, unix.RESOLVE_NO_SYMLINKS, unix.ELOOP},
			{"f", 0, 0, unix.RESOLVE_NO_SYMLINKS, nil},
			{"f", 1 << 40, 0, 0, unix.EINVAL},
			{"f", 0, 0o600, 0, unix.EINVAL},
			{"f", 0, 0, 1 << 20, unix.EINVAL},
			{"f", 0, 0, unix.RESOLVE_BENEATH | unix.RESOLVE_IN_ROOT, unix.EINVAL},
			{"f", unix.O_PATH | unix.O_TRUNC, 0, 0, unix.EINVAL},
			{"new", creat | rdwr, 0o10000, 0, unix.EINVAL},
			{"new", creat | rdwr, 0o600, 0, nil},
		}
		for _, tt := range tests {
			if _, err := try(tt.path, tt.flags, tt.mode, tt.resolve); err != tt.want {
				g.Errorf("openat2(%q, %#x, %o, %#x): %v, want %v", tt.path, tt.flags, tt.mode, tt.resolve, err, tt.want)
			}
		}
		long := make([]byte, unix.SizeofOpenHow+8)
		g.must(unix.SYS_OPENAT2, d, "f", long, len(long))
		long[len(long)-1] = 1
		g.fails(unix.E2BIG, unix.SYS_OPENAT2, d, "f", long, len(long))
		g.fails(unix.EINVAL, unix.SYS_OPENAT2, d, "f", long, 8)
	})
}

func TestReadWrite(t *testing.T) {
	runBoth(t, func(g *guest) {
		fd := g.open("a", creat|rdwr, 0o666)
		g.write(fd, "hello world")
		g.must(unix.SYS_LSEEK, fd, 0, unix.SEEK_SET)
		if s := g.read(fd, 5); s != "hello" {
			g.Errorf("read %q", s)
		}
		p := make([]byte, 5)
		g.must(unix.SYS_PREAD64, fd, p, 5, 6)
		if string(p) != "world" {
			g.Errorf("pread %q", p)
		}
		if s := g.read(fd, 100); s != " world" {
			g.Errorf("pread moved the offset: %q", s)
		}
		g.must(unix.SYS_PWRITE64, fd, []byte("J"), 1, 0)
		if n := g.must(unix.SYS_LSEEK, fd, -3, unix.SEEK_END); n != 8 {
			g.Errorf("lseek %d", n)
		}
		g.fails(unix.EINVAL, unix.SYS_LSEEK, fd, -1, unix.SEEK_SET)
		g.fails(unix.EINVAL, unix.SYS_LSEEK, fd, 0, 7)
		g.fails(unix.ENXIO, unix.SYS_LSEEK, fd, 100, unix.SEEK_DATA)
		g.fails(unix.EINVAL, unix.SYS_PREAD64, fd, p, 5, -1)
		g.fails(unix.EINVAL, unix.SYS_PREAD64, 999, p, 5, -1)
		g.fails(unix.EBADF, unix.SYS_PREAD64, 999, p, 5, 0)
		g.fails(unix.EFAULT, unix.SYS_READ, fd, 1, 5)
		g.fails(unix.EFAULT, unix.SYS_WRITE, fd, 1, 5)
		ro := g.open("a", rdonly, 0)
		g.fails(unix.EBADF, unix.SYS_WRITE, ro, []byte("x"), 1)
		if s := g.read(ro, 5); s != "Jello" {
			g.Errorf("read %q", s)
		}
		app := g.open("a", wronly|unix.O_APPEND, 0)
		g.write(app, "!")
		g.must(unix.SYS_PWRITE64, app, []byte("?"), 1, 0) // appends all the same
		if st := g.stat("a"); st.Size != 13 {
			g.Errorf("size %d", st.Size)
		}
		g.fails(unix.EISDIR, unix.SYS_READ, g.open(".", rdonly, 0), p, 5)
		r, w := g.pipe(0)
		g.fails(unix.ESPIPE, unix.SYS_PREAD64, r, p, 5, 0)
		g.fails(unix.ESPIPE, unix.SYS_LSEEK, w, 0, 0)
		g.fails(unix.EBADF, unix.SYS_READ, w, p, 5)
		g.fails(unix.EBADF, unix.SYS_WRITE, r, p, 5)
	})
}

// iovec lays out an array of struct iovec over addresses.
func iovec(pairs ...uint64) []byte {
	var b []byte
	for _, v := range pairs {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

func TestVectors(t *testing.T) {
	run(t, func(g *guest) {
		fd := g.open("/a", creat|rdwr, 0o666)
		one, two := g.put([]byte("abc")), g.put([]byte("defg"))
		if n := g.must(unix.SYS_WRITEV, fd, iovec(one, 3, 0, 0, two, 4), 3); n != 7 {
			g.Errorf("writev %d", n)
		}
		if n := g.must(unix.SYS_PREADV, fd, iovec(two, 2, one, 3), 2, 1); n != 5 {
			g.Errorf("preadv %d", n)
		}
		p := make([]byte, 3)
		_ = g.task.CopyIn(one, p)
		if string(p) != "def" {
			g.Errorf("preadv read %q", p)
		}
		g.fails(unix.EINVAL, unix.SYS_READV, fd, iovec(one, 1), 1025)
		g.fails(unix.EINVAL, unix.SYS_READV, fd, iovec(one, 1), -1)
		g.fails(unix.EINVAL, unix.SYS_READV, fd, iovec(one, 1<<63), 1)
		g.fails(unix.EFAULT, unix.SYS_READV, fd, 1, 1)
		g.fails(unix.EOPNOTSUPP, unix.SYS_PREADV2, fd, iovec(one, 1), 1, 0, 0, 1<<20)
		// A fault in the second range leaves a short count.
		if n := g.must(unix.SYS_WRITEV, fd, iovec(one, 3, 8, 4), 2); n != 3 {
			g.Errorf("writev with a fault: %d", n)
		}
	})
}

func TestLinks(t *testing.T) {
	runBoth(t, func(g *guest) {
		g.close(g.open("a", creat|rdwr, 0o666))
		g.must(unix.SYS_MKDIR, "d", 0o777)
		g.must(unix.SYS_LINK, "a", "d/b")
		if st := g.stat("a"); st.Nlink != 2 || st.Ino != g.stat("d/b").Ino {
			g.Errorf("after link: %d links", st.Nlink)
		}
		g.fails(unix.EEXIST, unix.SYS_LINK, "a", "d/b")
		g.fails(unix.EPERM, unix.SYS_LINK, "d", "e")
		g.fails(unix.ENOENT, unix.SYS_LINK, "none", "e")
		g.fails(unix.ENOTEMPTY, unix.SYS_RMDIR, "d")
		g.fails(unix.ENOTDIR, unix.SYS_RMDIR, "a")
		g.fails(unix.EISDIR, unix.SYS_UNLINK, "d")
		g.fails(unix.EINVAL, unix.SYS_RMDIR, "d/.")
		g.fails(unix.EINVAL, unix.SYS_UNLINKAT, unix.AT_FDCWD, "a", 1)
		g.must(unix.SYS_UNLINK, "d/b")
		g.must(unix.SYS_UNLINKAT, unix.AT_FDCWD, "d", unix.AT_REMOVEDIR)
		g.must(unix.SYS_SYMLINK, "target/x", "s")
		p := make([]byte, 4)
		if n := g.must(unix.SYS_READLINK, "s", p, 4); string(p[:n]) != "targ" {
			g.Errorf("readlink %q", p[:n])
		}
		g.fails(unix.EINVAL, unix.SYS_READLINK, "a", p, 4)
		g.fails(unix.EINVAL, unix.SYS_READLINK, "s", p, 0)
		g.fails(unix.ENOENT, unix.SYS_SYMLINK, "", "t")
		g.fails(unix.EEXIST, unix.SYS_SYMLINK, "x", "s")
		g.fails(unix.ENOENT, unix.SYS_READLINKAT, unix.AT_FDCWD, "", p, 4)
		fd := g.open("s", unix.O_PATH|unix.O_NOFOLLOW, 0)
		if n := g.must(unix.SYS_READLINKAT, fd, "", p, 4); string(p[:n]) != "targ" {
			g.Errorf("readlinkat of a descriptor %q", p[:n])
		}
	})
}

func TestRename(t *testing.T) {
	runBoth(t, func(g *guest) {
		g.close(g.open("a", creat|rdwr, 0o666))
		g.close(g.open("b", creat|rdwr, 0o666))
		g.must(unix.SYS_MKDIR, "d", 0o777)
		g.must(unix.SYS_MKDIR, "d/e", 0o777)
		g.fails(unix.EINVAL, unix.SYS_RENAME, "d", "d/e/f")
		g.fails(unix.ENOTEMPTY, unix.SYS_RENAME, "d/e", "d")
		g.fails(unix.EISDIR, unix.SYS_RENAME, "a", "d/e")
		g.fails(unix.ENOTDIR, unix.SYS_RENAME, "d/e", "a")
		g.fails(unix.ENOENT, unix.SYS_RENAME, "none", "a")
		g.fails(unix.EBUSY, unix.SYS_RENAME, "d/.", "x")
		g.fails(unix.EEXIST, unix.SYS_RENAMEAT2, unix.AT_FDCWD, "a", unix.AT_FDCWD, "b", unix.RENAME_NOREPLACE)
		g.fails(unix.EINVAL, unix.SYS_RENAMEAT2, unix.AT_FDCWD, "a", unix.AT_FDCWD, "b", unix.RENAME_NOREPLACE|unix.RENAME_EXCHANGE)
		ia, ib := g.stat("a").Ino, g.stat("b").Ino
		g.must(unix.SYS_RENAMEAT2, unix.AT_FDCWD, "a", unix.AT_FDCWD, "b", unix.RENAME_EXCHANGE)
		if g.stat("a").Ino != ib || g.stat("b").Ino != ia {
			g.Error("nothing was exchanged")
		}
		g.must(unix.SYS_RENAME, "a", "b")
		if st := g.stat("b"); st.Ino != ib {
			g.Error("rename did not replace")
		}
		g.fails(unix.ENOENT, unix.SYS_LSTAT, "a", make([]byte, 144))
		g.must(unix.SYS_RENAME, "d/e", "f")
		g.must(unix.SYS_RENAME, "f", "d")
	})
}

func TestStat(t *testing.T) {
	runBoth(t, func(g *guest) {
		fd := g.open("a", creat|rdwr, 0o640)
		g.write(fd, "12345")
		st := g.stat("a")
		if st.Mode != unix.S_IFREG|0o640 || st.Size != 5 || st.Nlink != 1 || st.Uid != 0 {
			g.Errorf("%+v", st)
		}
		var sx unix.Statx_t
		g.must(unix.SYS_STATX, unix.AT_FDCWD, "a", 0, unix.STATX_BASIC_STATS, abi.Bytes(&sx))
		if sx.Ino != st.Ino || sx.Size != 5 || uint32(sx.Mode) != st.Mode || sx.Mask&unix.STATX_BASIC_STATS != unix.STATX_BASIC_STATS {
			g.Errorf("%+v", sx)
		}
		g.must(unix.SYS_STATX, fd, "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS, abi.Bytes(&sx))
		g.fails(unix.EINVAL, unix.SYS_STATX, unix.AT_FDCWD, "a", 0, uint32(unix.STATX__RESERVED), abi.Bytes(&sx))
		g.fails(unix.EINVAL, unix.SYS_STATX, unix.AT_FDCWD, "a", 1, 0, abi.Bytes(&sx))
		g.fails(unix.EINVAL, unix.SYS_NEWFSTATAT, unix.AT_FDCWD, "a", make([]byte, 144), 1)
		g.fails(unix.ENOENT, unix.SYS_NEWFSTATAT, fd, "", make([]byte, 144), 0)
		g.must(unix.SYS_NEWFSTATAT, fd, "", make([]byte, 144), unix.AT_EMPTY_PATH)
		g.must(unix.SYS_NEWFSTATAT, unix.AT_FDCWD, "", make([]byte, 144), unix.AT_EMPTY_PATH)
		g.fails(unix.EFAULT, unix.SYS_FSTAT, fd, 8)
		g.fails(unix.EBADF, unix.SYS_FSTAT, 999, make([]byte, 144))
		r, _ := g.pipe(0)
		g.must(unix.SYS_FSTAT, r, abi.Bytes(&st))
		if st.Mode != unix.S_IFIFO|0o600 {
			g.Errorf("pipe: mode %o", st.Mode)
		}
		g.must(unix.SYS_ACCESS, "a", unix.R_OK)
		g.fails(unix.EACCES, unix.SYS_ACCESS, "a", unix.X_OK)
		g.fails(unix.EINVAL, unix.SYS_ACCESS, "a", 8)
		g.fails(unix.EINVAL, unix.SYS_FACCESSAT2, unix.AT_FDCWD, "a", 0, 1)
		g.must(unix.SYS_FACCESSAT2, fd, "", unix.R_OK, unix.AT_EMPTY_PATH)
		g.must(unix.SYS_STATFS, ".", make([]byte, 120))
		g.must(unix.SYS_FSTATFS, fd, make([]byte, 120))
	})
}

func TestAttributes(t *testing.T) {
	runBoth(t, func(g *guest) {
		fd := g.open("a", creat|rdwr, 0o640)
		g.must(unix.SYS_CHMOD, "a", 0o4755)
		if m := g.stat("a").Mode; m != unix.S_IFREG|0o4755 {
			g.Errorf("mode %o", m)
		}
		g.must(unix.SYS_FCHOWN, fd, 1, -1)
		if st := g.stat("a"); st.Uid != 1 || st.Gid != 0 || st.Mode&unix.S_ISUID != 0 {
			g.Errorf("after chown: %d:%d %o", st.Uid, st.Gid, st.Mode)
		}
		g.must(unix.SYS_SYMLINK, "a", "s")
		g.must(unix.SYS_FCHOWNAT, unix.AT_FDCWD, "s", 2, 2, unix.AT_SYMLINK_NOFOLLOW)
		if g.stat("a").Uid != 1 || g.stat("s").Uid != 2 {
			g.Error("AT_SYMLINK_NOFOLLOW followed")
		}
		times := func(at, atNS, mt, mtNS int64) []byte {
			return iovec(uint64(at), uint64(atNS), uint64(mt), uint64(mtNS))
		}
		g.must(unix.SYS_UTIMENSAT, unix.AT_FDCWD, "a", times(5, 6, 7, 8), 0)
		if st := g.stat("a"); st.Atim.Sec != 5 || st.Atim.Nsec != 6 || st.Mtim.Sec != 7 || st.Mtim.Nsec != 8 {
			g.Errorf("times %v %v", st.Atim, st.Mtim)
		}
		g.must(unix.SYS_UTIMENSAT, fd, 0, times(0, unix.UTIME_OMIT, 0, unix.UTIME_NOW), 0)
		if st := g.stat("a"); st.Atim.Sec != 5 || st.Mtim.Sec < 1e9 {
			g.Errorf("times %v %v", st.Atim, st.Mtim)
		}
		g.must(unix.SYS_UTIMENSAT, unix.AT_FDCWD, "none", times(0, unix.UTIME_OMIT, 0, unix.UTIME_OMIT), 0)
		g.fails(unix.EINVAL, unix.SYS_UTIMENSAT, unix.AT_FDCWD, "a", times(0, -1, 0, 0), 0)
		g.fails(unix.ENOENT, unix.SYS_UTIMENSAT, unix.AT_FDCWD, "none", 0, 0)
		g.fails(unix.EFAULT, unix.SYS_UTIMENSAT, unix.AT_FDCWD, 0, 0, 0)
		g.must(unix.SYS_FTRUNCATE, fd, 100)
		g.must(unix.SYS_TRUNCATE, "a", 50)
		if n := g.stat("a").Size; n != 50 {
			g.Errorf("size %d", n)
		}
		g.fails(unix.EINVAL, unix.SYS_TRUNCATE, "a", -1)
		g.fails(unix.EISDIR, unix.SYS_TRUNCATE, ".", 0)
		g.fails(unix.EINVAL, unix.SYS_FTRUNCATE, g.open("a", rdonly, 0), 0)
		g.fails(unix.EINVAL, unix.SYS_FALLOCATE, fd, 0, 0, 0)
		g.fails(unix.EINVAL, unix.SYS_FALLOCATE, fd, 0, -1, 5)
		g.must(unix.SYS_FALLOCATE, fd, 0, 0, 4096)
		if n := g.stat("a").Size; n != 4096 {
			g.Errorf("size after fallocate %d", n)
		}
		old := g.must(unix.SYS_UMASK, 0o77)
		if now := g.must(unix.SYS_UMASK, old); old != 0o22 || now != 0o77 {
			g.Errorf("umask %o, %o", old, now)
		}
	})
}

func TestMknod(t *testing.T) {
	runBoth(t, func(g *guest) {
		g.must(unix.SYS_MKNOD, "f", unix.S_IFIFO|0o644, 0)
		g.must(unix.SYS_MKNOD, "r", 0o644, 0)
		g.fails(unix.EEXIST, unix.SYS_MKNOD, "r", 0o644, 0)
		g.fails(unix.EPERM, unix.SYS_MKNOD, "d", unix.S_IFDIR|0o755, 0)
		g.fails(unix.EINVAL, unix.SYS_MKNOD, "d", 0o050000, 0)
		g.fails(unix.EEXIST, unix.SYS_MKDIR, "r", 0o755)
		g.fails(unix.ENOENT, unix.SYS_MKDIR, "x/y", 0o755)
		g.must(unix.SYS_MKDIR, "d/", 0o2755)
		if m := g.stat("f").Mode; m != unix.S_IFIFO|0o644 {
			g.Errorf("fifo: %o", m)
		}
		fd := g.open("f", rdwr, 0)
		g.write(fd, "fifo")
		if s := g.read(fd, 9); s != "fifo" {
			g.Errorf("fifo read %q", s)
		}
		g.close(fd)
		g.fails(unix.ENXIO, unix.SYS_OPEN, "f", wronly|unix.O_NONBLOCK)
		g.close(g.open("f", rdonly|unix.O_NONBLOCK, 0))
	})
}

func TestDirectories(t *testing.T) {
	runBoth(t, func(g *guest) {
		want := map[string]byte{".": unix.DT_DIR, "..": unix.DT_DIR, "d": unix.DT_DIR, "l": unix.DT_LNK}
		g.must(unix.SYS_MKDIR, "top", 0o755)
		g.must(unix.SYS_CHDIR, "top")
		g.must(unix.SYS_MKDIR, "d", 0o755)
		g.must(unix.SYS_SYMLINK, "x", "l")
		for _, c := range "abcdefgh" {
			n := strings.Repeat(string(c), 30)
			g.close(g.open(n, creat|rdwr, 0o644))
			want[n] = unix.DT_REG
		}
		for _, size := range []int{64, 100, 32768} {
			fd := g.open(".", rdonly|unix.O_DIRECTORY, 0)
			got := make(map[string]byte)
			buf := make([]byte, size)
			for {
				n := int(g.must(unix.SYS_GETDENTS64, fd, buf, size))
				if n == 0 {
					break
				}
				for b := buf[:n]; len(b) > 0; {
					rec := binary.LittleEndian.Uint16(b[16:])
					name, _, _ := strings.Cut(string(b[19:rec]), "\x00")
					got[name] = b[18]
					b = b[rec:]
				}
			}
			if len(got) != len(want) {
				g.Errorf("buffer of %d: %d entries, want %d", size, len(got), len(want))
			}
			for name, typ := range want {
				if got[name] != typ {
					g.Errorf("%s: type %d, want %d", name, got[name], typ)
				}
			}
			g.close(fd)
		}
		fd := g.open(".", rdonly, 0)
		g.fails(unix.EINVAL, unix.SYS_GETDENTS64, fd, make([]byte, 20), 20)
		g.fails(unix.ENOTDIR, unix.SYS_GETDENTS64, g.open("l", rdwr|creat, 0o600), make([]byte, 99), 99)
		g.must(unix.SYS_CHDIR, "d")
		g.must(unix.SYS_RMDIR, "../d")
		g.fails(unix.ENOENT, unix.SYS_GETCWD, make([]byte, 4096), 4096)
		g.fails(unix.ENOENT, unix.SYS_OPEN, "new", creat|rdwr, 0o600)
		g.must(unix.SYS_FCHDIR, fd)
		cwd := make([]byte, 4096)
		n := g.must(unix.SYS_GETCWD, cwd, len(cwd))
		if !strings.HasSuffix(string(cwd[:n]), "/top\x00") {
			g.Errorf("getcwd %q", cwd[:n])
		}
		g.fails(unix.ERANGE, unix.SYS_GETCWD, cwd, 3)
		g.fails(unix.ENOTDIR, unix.SYS_CHDIR, "x")
	})
}

func TestXattr(t *testing.T) {
	runBoth(t, func(g *guest) {
		fd := g.open("a", creat|rdwr, 0o644)
		p := make([]byte, 100)
		g.must(unix.SYS_SETXATTR, "a", "trusted.one", []byte("val"), 3, 0)
		if n := g.must(unix.SYS_GETXATTR, "a", "trusted.one", p, 100); string(p[:n]) != "val" {
			g.Errorf("%q", p[:n])
		}
		if n := g.must(unix.SYS_FGETXATTR, fd, "trusted.one", 0, 0); n != 3 {
			g.Errorf("size %d", n)
		}
		g.fails(unix.ERANGE, unix.SYS_GETXATTR, "a", "trusted.one", p, 2)
		g.fails(unix.ENODATA, unix.SYS_GETXATTR, "a", "trusted.two", p, 2)
		g.fails(unix.EEXIST, unix.SYS_SETXATTR, "a", "trusted.one", []byte("x"), 1, unix.XATTR_CREATE)
		g.fails(unix.ENODATA, unix.SYS_SETXATTR, "a", "trusted.two", []byte("x"), 1, unix.XATTR_REPLACE)
		g.fails(unix.EINVAL, unix.SYS_SETXATTR, "a", "trusted.two", []byte("x"), 1, 4)
		g.fails(unix.ERANGE, unix.SYS_SETXATTR, "a", "", []byte("x"), 1, 0)
		g.fails(unix.E2BIG, unix.SYS_SETXATTR, "a", "trusted.two", []byte("x"), 65537, 0)
		g.fails(unix.EOPNOTSUPP, unix.SYS_SETXATTR, "a", "nonsense", []byte("x"), 1, 0)
		if n := g.must(unix.SYS_LISTXATTR, "a", p, 100); !strings.Contains(string(p[:n]), "trusted.one\x00") {
			g.Errorf("list %q", p[:n])
		}
		g.must(unix.SYS_FREMOVEXATTR, fd, "trusted.one")
		g.fails(unix.ENODATA, unix.SYS_REMOVEXATTR, "a", "trusted.one")
	})
}

// TestOpenFull opens with all descriptors taken: EMFILE comes before any effect.
func TestOpenFull(t *testing.T) {
	runBoth(t, func(g *guest) {
		fd := g.open("kept", creat|rdwr, 0o666)
		g.write(fd, "data")
		last := g.must(unix.SYS_DUP, fd)
		var old, now unix.Rlimit
		g.must(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, 0, abi.Bytes(&old))
		now = old
		now.Cur = uint64(last) + 1
		g.must(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, abi.Bytes(&now), 0)
		g.fails(unix.EMFILE, unix.SYS_OPEN, "new", creat|rdwr, 0o666)
		g.fails(unix.EMFILE, unix.SYS_OPEN, "kept", unix.O_TRUNC|wronly)
		g.fails(unix.EMFILE, unix.SYS_OPEN, "none", rdonly)
		g.fails(unix.ENOENT, unix.SYS_OPEN, "", rdonly)
		g.fails(unix.EINVAL, unix.SYS_OPEN, ".", creat|unix.O_DIRECTORY)
		g.must(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, abi.Bytes(&old), 0)
		g.fails(unix.ENOENT, unix.SYS_OPEN, "new", rdonly)
		if st := g.stat("kept"); st.Size != 4 {
			g.Errorf("an open that failed left %d bytes of 4", st.Size)
		}
		// A failed open gives its descriptor back.
		g.fails(unix.ENOENT, unix.SYS_OPEN, "none", rdonly)
		if n := g.open("kept", rdonly, 0); uint64(n) != uint64(last)+1 {
			g.Errorf("descriptor %d, want %d", n, last+1)
		}
	})
}

// TestDevicePositions reads and writes devices at offsets, which mean nothing to them.
func TestDevicePositions(t *testing.T) {
	runBoth(t, func(g *guest) {
		buf := []byte("xxxx")
		for minor, name := range map[uint32]string{3: "null", 5: "zero", 7: "full", 9: "urandom"} {
			g.must(unix.SYS_MKNOD, name, unix.S_IFCHR|0o666, unix.Mkdev(1, minor))
			fd := g.open(name, rdwr, 0)
			want := uintptr(4)
			if name == "null" {
				want = 0
			}
			if n := g.must(unix.SYS_PREAD64, fd, buf, 4, 1<<40); n != want {
				g.Errorf("pread of %s: %d", name, n)
			}
			if name == "full" {
				g.fails(unix.ENOSPC, unix.SYS_PWRITE64, fd, buf, 4, 1<<40)
			} else if n := g.must(unix.SYS_PWRITE64, fd, buf, 4, 1<<40); n != 4 {
				g.Errorf("pwrite to %s: %d", name, n)
			}
			g.fails(unix.EINVAL, unix.SYS_PREAD64, fd, buf, 4, -1)
			g.must(unix.SYS_LSEEK, fd, 77, unix.SEEK_SET)
		}
	})
}
