/*
 * files: calls on files, names and descriptors, in a tmpfs of its own. It is started as root.
 */
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdint.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>

static volatile sig_atomic_t got, got_fd;

static void note(int sig, siginfo_t *si, void *x)
{
	got = sig;
	got_fd = si->si_fd;
}

static void handle(int sig, int flags)
{
	struct sigaction sa = { .sa_sigaction = note, .sa_flags = SA_SIGINFO | flags };
	sigaction(sig, &sa, NULL);
}

static void file(const char *name, const char *text, int mode)
{
	int fd = GETS(open(name, O_CREAT | O_WRONLY | O_TRUNC, mode));
	IS(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

/* A program that runs cannot be written, one that is written not be run. */
static void busy(const char *self)
{
	char buf[65536];
	int in = GETS(open(self, O_RDONLY)), out = GETS(open("prog", O_CREAT | O_WRONLY, 0755));
	for (ssize_t n; (n = read(in, buf, sizeof buf)) > 0;)
		IS(write(out, buf, n), n);
	close(in);
	FAILS(execl("prog", "prog", "sleep", NULL), ETXTBSY);
	close(out);
	int up[2];
	OK(pipe(up));
	pid_t pid = fork();
	if (pid == 0) {
		dup2(up[1], 1);
		execl("prog", "prog", "sleep", NULL);
		_exit(9);
	}
	IS(read(up[0], buf, 1), 1);
	FAILS(open("prog", O_WRONLY), ETXTBSY);
	FAILS(open("prog", O_RDWR | O_TRUNC), ETXTBSY);
	FAILS(truncate("prog", 0), ETXTBSY);
	close(GETS(open("prog", O_RDONLY)));
	OK(chmod("prog", 0700));
	kill(pid, SIGKILL);
	IS(waitpid(pid, NULL, 0), pid);
	close(GETS(open("prog", O_WRONLY)));
	OK(unlink("prog"));
	close(up[0]);
	close(up[1]);
}

static void vectors(void)
{
	char a[4] = "abcd", b[8];
	struct iovec v = { a, 4 };
	int fd = GETS(open("f", O_CREAT | O_RDWR | O_TRUNC, 0600));
	IS(pwritev2(fd, &v, 1, 0, 0), 4);
	IS(pwritev2(fd, &v, 1, 0, RWF_APPEND), 4);
	IS(lseek(fd, 0, SEEK_END), 8);
	IS(pwritev2(fd, &v, 1, -1, RWF_APPEND), 4);
	IS(lseek(fd, 0, SEEK_CUR), 12);
	FAILS(pwritev2(fd, &v, 1, 0, 1 << 20), EOPNOTSUPP);
	v.iov_base = b;
	IS(preadv2(fd, &v, 1, 8, RWF_DSYNC), 4);
	close(fd);
	fd = GETS(open("f", O_RDWR | O_APPEND));
	v.iov_base = a;
	IS(pwritev2(fd, &v, 1, 0, 0x20 /* RWF_NOAPPEND */), 4);
	IS(lseek(fd, 0, SEEK_END), 12);
	close(fd);
	int p[2];
	OK(pipe(p));
	FAILS(preadv2(p[0], &v, 1, -1, RWF_NOWAIT), EAGAIN);
	close(p[0]);
	close(p[1]);
	fd = GETS(open("f", O_RDONLY));
	FAILS(readahead(-1, 0, 1), EBADF);
	OK(readahead(fd, 0, 4096));
	OK(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
	IS(posix_fadvise(fd, 0, 0, 77), EINVAL);
	FAILS(sync_file_range(fd, -1, 0, 0), EINVAL);
	OK(sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE));
	struct { uint64_t off, len; } range = { 0, 4096 };
	uint64_t stats[5];
	OK(syscall(451, fd, &range, stats, 0)); /* cachestat */
	FAILS(syscall(451, fd, &range, stats, 1), EINVAL);
	FAILS(syscall(451, 99, &range, stats, 0), EBADF);
	uint64_t hint = RWH_WRITE_LIFE_LONG, was = 9;
	OK(fcntl(fd, F_GET_RW_HINT, &was));
	IS(was, RWH_WRITE_LIFE_NOT_SET);
	OK(fcntl(fd, F_SET_RW_HINT, &hint));
	OK(fcntl(fd, F_GET_RW_HINT, &was));
	IS(was, RWH_WRITE_LIFE_LONG);
	hint = 77;
	FAILS(fcntl(fd, F_SET_RW_HINT, &hint), EINVAL);
	close(fd);
	OK(unlink("f"));
}

static void attributes(void)
{
	struct statx x;
	file("f", "abc", 0600);
	OK(statx(AT_FDCWD, "f", 0, STATX_BASIC_STATS | STATX_BTIME | STATX_MNT_ID, &x));
	TRUE(x.stx_mask & STATX_BTIME);
	TRUE(x.stx_mask & STATX_MNT_ID);
	char line[1000], want[100];
	FILE *f = fopen("/proc/self/mountinfo", "r");
	int id = 0;
	while (f && fgets(line, sizeof line, f)) {
		int n;
		if (sscanf(line, "%d %*d %*s %*s %99s", &n, want) == 2 && !strcmp(want, "/ft"))
			id = n;
	}
	fclose(f);
	IS(x.stx_mnt_id, id);
	TRUE(x.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT);
	TRUE(!(x.stx_attributes & STATX_ATTR_MOUNT_ROOT));
	OK(statx(AT_FDCWD, ".", 0, STATX_MNT_ID, &x));
	TRUE(x.stx_attributes & STATX_ATTR_MOUNT_ROOT);
	FAILS(statx(AT_FDCWD, "f", AT_STATX_FORCE_SYNC | AT_STATX_DONT_SYNC, 0, &x), EINVAL);
	OK(statx(AT_FDCWD, "f", AT_STATX_FORCE_SYNC, 0, &x));
	FAILS(statx(AT_FDCWD, "f", 0, STATX__RESERVED, &x), EINVAL);
	/* What chattr(1) does. */
	int fd = GETS(open("f", O_RDONLY)), flags = 0;
	OK(ioctl(fd, FS_IOC_GETFLAGS, &flags));
	IS(flags, 0);
	flags = FS_APPEND_FL;
	OK(ioctl(fd, FS_IOC_SETFLAGS, &flags));
	FAILS(open("f", O_WRONLY), EPERM);
	FAILS(open("f", O_WRONLY | O_TRUNC | O_APPEND), EPERM);
	FAILS(truncate("f", 0), EPERM);
	FAILS(unlink("f"), EPERM);
	close(GETS(open("f", O_WRONLY | O_APPEND)));
	OK(statx(AT_FDCWD, "f", 0, 0, &x));
	TRUE(x.stx_attributes_mask & STATX_ATTR_APPEND);
	TRUE(x.stx_attributes & STATX_ATTR_APPEND);
	flags = FS_IMMUTABLE_FL;
	OK(ioctl(fd, FS_IOC_SETFLAGS, &flags));
	FAILS(open("f", O_WRONLY | O_APPEND), EPERM);
	FAILS(chmod("f", 0777), EPERM);
	FAILS(link("f", "g"), EPERM);
	FAILS(rename("f", "g"), EPERM);
	OK(ioctl(fd, FS_IOC_GETFLAGS, &flags));
	IS(flags, FS_IMMUTABLE_FL);
	flags = 0;
	OK(ioctl(fd, FS_IOC_SETFLAGS, &flags));
	flags = FS_COMPR_FL;
	FAILS(ioctl(fd, FS_IOC_SETFLAGS, &flags), EOPNOTSUPP);
	close(fd);
	OK(unlink("f"));
}

static long open2(int dir, const char *name, uint64_t flags, uint64_t resolve)
{
	struct open_how how = { .flags = flags, .resolve = resolve };
	return syscall(SYS_openat2, dir, name, &how, sizeof how);
}

static void names(void)
{
	char name[PATH_MAX + 10];
	struct stat st;
	memset(name, 'n', sizeof name);
	name[255] = 0;
	close(GETS(creat(name, 0600)));
	OK(unlink(name));
	name[255] = 'n';
	name[256] = 0;
	FAILS(creat(name, 0600), ENAMETOOLONG);
	FAILS(stat(name, &st), ENAMETOOLONG);
	FAILS(mkdir(name, 0700), ENAMETOOLONG);
	memset(name, '/', PATH_MAX);
	name[PATH_MAX] = 0;
	FAILS(stat(name, &st), ENAMETOOLONG);
	name[PATH_MAX - 1] = 0;
	OK(stat(name, &st));
	FAILS(stat("", &st), ENOENT);
	for (int c = 1; c < 256; c++) {
		char one[3] = { 'x', c == '/' ? 'y' : c, 0 };
		int fd = open(one, O_CREAT | O_RDWR, 0600);
		TRUE(fd >= 0);
		close(fd);
		OK(unlink(one));
	}
	/* Links. */
	char from[20], to[20] = "f";
	file("f", "abc", 0600);
	for (int i = 0; i < 41; i++) {
		sprintf(from, "l%d", i);
		OK(symlink(to, from));
		strcpy(to, from);
	}
	OK(access("l39", F_OK));
	FAILS(access("l40", F_OK), ELOOP);
	for (int i = 0; i < 41; i++) {
		sprintf(from, "l%d", i);
		OK(unlink(from));
	}
	OK(symlink("self", "self"));
	FAILS(open("self", O_RDONLY), ELOOP);
	FAILS(open("self/x", O_RDONLY), ELOOP);
	OK(lstat("self", &st));
	OK(unlink("self"));
	FAILS(symlink("", "e"), ENOENT);
	/* Slashes at the end. */
	OK(mkdir("d/", 0700));
	OK(symlink("d", "dl"));
	OK(symlink("none", "nl"));
	FAILS(stat("f/", &st), ENOTDIR);
	FAILS(open("f/", O_RDONLY), ENOTDIR);
	FAILS(open("new/", O_CREAT | O_RDWR, 0600), EISDIR);
	FAILS(open("d", O_RDWR), EISDIR);
	FAILS(open("d", O_CREAT | O_RDONLY, 0600), EISDIR);
	FAILS(unlink("d"), EISDIR);
	FAILS(unlink("d/"), EISDIR);
	FAILS(unlink("f/"), ENOTDIR);
	FAILS(unlink("dl/"), ENOTDIR);
	FAILS(rmdir("dl"), ENOTDIR);
	FAILS(rmdir("dl/"), ENOTDIR);
	FAILS(mknod("new/", S_IFREG | 0600, 0), ENOENT);
	FAILS(mkdir("nl/", 0700), EEXIST);
	FAILS(mkdir("nl", 0700), EEXIST);
	FAILS(symlink("a", "new/"), ENOENT);
	FAILS(link("f", "new/"), ENOENT);
	FAILS(rename("f", "new/"), ENOTDIR);
	FAILS(rename("f/", "new"), ENOTDIR);
	FAILS(rename("dl/", "new"), ENOTDIR);
	OK(lstat("dl", &st));
	TRUE(S_ISLNK(st.st_mode));
	OK(lstat("dl/", &st));
	TRUE(S_ISDIR(st.st_mode));
	OK(rename("d/", "e/"));
	OK(rename("e", "d"));
	FAILS(rmdir("d/."), EINVAL);
	FAILS(rmdir("."), EINVAL);
	FAILS(rmdir("d/.."), ENOTEMPTY);
	FAILS(rmdir("/"), EBUSY);
	FAILS(rename(".", "x"), EBUSY);
	FAILS(rename("d", "d/x"), EINVAL);
	FAILS(rename("d/..", "x"), EBUSY);
	OK(mkdir("d/e", 0700));
	FAILS(rename("d", "d/e/x"), EINVAL);
	FAILS(rename("d/e", "d"), ENOTEMPTY);
	FAILS(rename("f", "d"), EISDIR);
	FAILS(rename("d", "f"), ENOTDIR);
	FAILS(syscall(SYS_renameat2, AT_FDCWD, "f", AT_FDCWD, "d", RENAME_NOREPLACE), EEXIST);
	FAILS(syscall(SYS_renameat2, AT_FDCWD, "f", AT_FDCWD, "none", RENAME_EXCHANGE), ENOENT);
	FAILS(syscall(SYS_renameat2, AT_FDCWD, "f", AT_FDCWD, "d", RENAME_EXCHANGE | RENAME_NOREPLACE), EINVAL);
	OK(syscall(SYS_renameat2, AT_FDCWD, "f", AT_FDCWD, "d", RENAME_EXCHANGE));
	OK(syscall(SYS_renameat2, AT_FDCWD, "f", AT_FDCWD, "d", RENAME_EXCHANGE));
	OK(syscall(SYS_renameat2, AT_FDCWD, "f", AT_FDCWD, "g", RENAME_WHITEOUT));
	OK(lstat("f", &st));
	TRUE(S_ISCHR(st.st_mode) && st.st_rdev == 0);
	OK(rename("g", "f"));
	FAILS(link("d", "dd"), EPERM);
	OK(link("dl", "dl2")); /* the link itself */
	OK(linkat(AT_FDCWD, "f", AT_FDCWD, "f2", 0));
	OK(rename("f", "f2")); /* one file: nothing happens */
	OK(access("f", F_OK));
	/* By descriptor. */
	int fd = GETS(open(".", O_TMPFILE | O_RDWR, 0600));
	IS(write(fd, "tmp", 3), 3);
	OK(linkat(fd, "", AT_FDCWD, "t1", AT_EMPTY_PATH));
	sprintf(name, "/proc/self/fd/%d", fd);
	OK(linkat(AT_FDCWD, name, AT_FDCWD, "t2", AT_SYMLINK_FOLLOW));
	OK(fstat(fd, &st));
	IS(st.st_nlink, 2);
	close(fd);
	fd = GETS(open(".", O_TMPFILE | O_RDWR | O_EXCL, 0600));
	FAILS(linkat(fd, "", AT_FDCWD, "t3", AT_EMPTY_PATH), ENOENT);
	close(fd);
	FAILS(open(".", O_TMPFILE | O_RDONLY, 0600), EINVAL);
	/* RESOLVE_*. */
	int d = GETS(open("d", O_PATH | O_DIRECTORY));
	OK(symlink("/etc", "d/abs"));
	OK(symlink("../f", "d/up"));
	FAILS(open2(d, "../f", O_RDONLY, RESOLVE_BENEATH), EXDEV);
	FAILS(open2(d, "up", O_RDONLY, RESOLVE_BENEATH), EXDEV);
	FAILS(open2(d, "abs", O_PATH, RESOLVE_BENEATH), EXDEV);
	FAILS(open2(d, "abs", O_PATH, RESOLVE_IN_ROOT), ENOENT);
	FAILS(open2(d, "up", O_PATH, RESOLVE_NO_SYMLINKS), ELOOP);
	FAILS(open2(d, "/f", O_RDONLY, RESOLVE_IN_ROOT | RESOLVE_BENEATH), EINVAL);
	FAILS(open2(d, "e", O_PATH, 1 << 20), EINVAL);
	FAILS(open2(AT_FDCWD, "/proc/self/exe", O_RDONLY, RESOLVE_NO_MAGICLINKS), ELOOP);
	FAILS(open2(AT_FDCWD, "/proc/version", O_RDONLY, RESOLVE_NO_XDEV), EXDEV);
	close(GETS(open2(d, "/e", O_PATH, RESOLVE_IN_ROOT)));
	close(GETS(open2(d, "../../e", O_PATH, RESOLVE_IN_ROOT)));
	long c = open2(AT_FDCWD, "f", O_RDONLY, RESOLVE_CACHED);
	TRUE(c >= 0 || errno == EAGAIN);
	if (c >= 0)
		close(c);
	FAILS(open2(AT_FDCWD, "new", O_CREAT | O_RDWR, RESOLVE_CACHED), EAGAIN);
	/* O_PATH. */
	char buf[10];
	FAILS(read(d, buf, 1), EBADF);
	FAILS(fchmod(d, 0700), EBADF);
	FAILS(fchown(d, 0, 0), EBADF);
	FAILS(ioctl(d, FIONREAD, buf), EBADF);
	FAILS(fcntl(d, F_SETFL, O_NONBLOCK), EBADF);
	FAILS(flock(d, LOCK_EX), EBADF);
	FAILS(syscall(SYS_getdents64, d, buf, 10), EBADF);
	FAILS(fsync(d), EBADF);
	FAILS(ftruncate(d, 0), EBADF);
	OK(fchdir(d));
	OK(chdir(".."));
	struct statfs sf;
	OK(fstatfs(d, &sf));
	close(d);
	OK(unlink("d/abs") || unlink("d/up") || rmdir("d/e") || rmdir("d") || unlink("dl") || unlink("dl2") || unlink("nl"));
	OK(unlink("f") || unlink("f2") || unlink("t1") || unlink("t2"));
	FAILS(open("/proc/self/fd/99", O_RDONLY), ENOENT);
}

/* What a sticky directory that others may write protects. */
static void protected_things(void)
{
	OK(mkdir("s", 0777) || chmod("s", 01777));
	file("s/root", "abc", 0666);
	OK(chmod("s/root", 0666));
	file("secret", "abc", 0600);
	OK(symlink("root", "s/mine"));
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		bad = 0;
		if (setgroups(0, NULL) || setresgid(1000, 1000, 1000) || setresuid(1000, 1000, 1000))
			bad++;
		FAILS(unlink("s/root"), EPERM);
		FAILS(rename("s/root", "s/x"), EPERM);
		OK(symlink("root", "s/theirs"));
		OK(access("s/theirs", F_OK));
		FAILS(link("secret", "s/secret"), EPERM);
		OK(mkfifo("s/fifo", 0666));
		file("s/reg", "x", 0666);
		fflush(stdout);
		_exit(bad);
	}
	int status;
	IS(waitpid(pid, &status, 0), pid);
	bad += WEXITSTATUS(status);
	char value = '0';
	int fd = open("/proc/sys/fs/protected_symlinks", O_RDONLY);
	if (read(fd, &value, 1) == 1 && value == '1')
		FAILS(access("s/theirs", F_OK), EACCES); /* the link of another */
	close(fd);
	OK(access("s/mine", F_OK));
	OK(unlink("s/theirs") || unlink("s/fifo") || unlink("s/reg") || unlink("s/mine") || unlink("s/root") || rmdir("s") || unlink("secret"));
}

static void locks(void)
{
	int a = GETS(open("f", O_CREAT | O_RDWR, 0600)), b = GETS(open("f", O_RDWR)), r = GETS(open("f", O_RDONLY)), up[2];
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 10 };
	OK(fcntl(a, F_OFD_SETLK, &l));
	FAILS(fcntl(b, F_OFD_SETLK, &l), EAGAIN);
	OK(fcntl(b, F_OFD_GETLK, &l));
	TRUE(l.l_type == F_WRLCK && l.l_pid == -1 && l.l_start == 10 && l.l_len == 10);
	l.l_pid = 1;
	FAILS(fcntl(b, F_OFD_SETLK, &l), EINVAL);
	l.l_pid = 0;
	l.l_type = F_UNLCK;
	OK(fcntl(a, F_OFD_SETLK, &l));
	l.l_type = F_WRLCK;
	FAILS(fcntl(r, F_SETLK, &l), EBADF);
	/* A circle of two. */
	l.l_start = 0, l.l_len = 1;
	OK(fcntl(a, F_SETLK, &l));
	OK(pipe(up));
	pid_t pid = fork();
	if (pid == 0) {
		struct flock m = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1, .l_len = 1 };
		fcntl(a, F_SETLK, &m);
		write(up[1], "x", 1);
		m.l_start = 0;
		alarm(20);
		_exit(fcntl(a, F_SETLKW, &m) ? 1 : 0);
	}
	char c;
	IS(read(up[0], &c, 1), 1);
	usleep(100000);
	l.l_start = 1;
	FAILS(fcntl(a, F_SETLKW, &l), EDEADLK);
	/* A wait is interrupted. */
	struct itimerval tv = { .it_value = { 0, 50000 }, .it_interval = { 0, 50000 } };
	int up2[2];
	OK(pipe(up2));
	pid_t pid2 = fork();
	if (pid2 == 0) {
		struct flock m = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 5, .l_len = 1 };
		fcntl(a, F_SETLK, &m);
		write(up2[1], "x", 1);
		pause();
	}
	IS(read(up2[0], &c, 1), 1);
	handle(SIGALRM, 0);
	setitimer(ITIMER_REAL, &tv, NULL);
	l.l_start = 5;
	FAILS(fcntl(a, F_SETLKW, &l), EINTR);
	memset(&tv, 0, sizeof tv);
	setitimer(ITIMER_REAL, &tv, NULL);
	kill(pid2, SIGKILL);
	IS(waitpid(pid2, NULL, 0), pid2);
	l.l_type = F_UNLCK;
	l.l_start = 0;
	OK(fcntl(a, F_SETLK, &l));
	int status;
	IS(waitpid(pid, &status, 0), pid);
	IS(status, 0);
	close(a), close(b), close(r), close(up[0]), close(up[1]), close(up2[0]), close(up2[1]);
	OK(unlink("f"));
}

static void leases(void)
{
	file("f", "abc", 0600);
	int fd = GETS(open("f", O_RDONLY)), w;
	IS(fcntl(fd, F_GETLEASE), F_UNLCK);
	FAILS(fcntl(fd, F_SETLEASE, 77), EINVAL);
	handle(SIGIO, 0);
	handle(SIGRTMIN, 0);
	w = GETS(open("f", O_RDWR));
	FAILS(fcntl(fd, F_SETLEASE, F_RDLCK), EAGAIN);
	FAILS(fcntl(w, F_SETLEASE, F_RDLCK), EAGAIN);
	close(w);
	OK(fcntl(fd, F_SETLEASE, F_RDLCK));
	IS(fcntl(fd, F_GETLEASE), F_RDLCK);
	close(GETS(open("f", O_RDONLY)));
	IS(got, 0);
	FAILS(open("f", O_WRONLY | O_NONBLOCK), EWOULDBLOCK);
	IS(got, SIGIO);
	IS(fcntl(fd, F_GETLEASE), F_UNLCK);
	OK(fcntl(fd, F_SETLEASE, F_UNLCK));
	close(GETS(open("f", O_WRONLY)));
	/* A write lease, with another signal. */
	OK(fcntl(fd, F_SETLEASE, F_UNLCK) && errno != EAGAIN);
	int only = GETS(open("f", O_RDWR));
	FAILS(fcntl(only, F_SETLEASE, F_WRLCK), EAGAIN); /* fd is open too */
	close(fd);
	OK(fcntl(only, F_SETSIG, SIGRTMIN));
	OK(fcntl(only, F_SETLEASE, F_WRLCK));
	got = 0;
	FAILS(open("f", O_RDONLY | O_NONBLOCK), EWOULDBLOCK);
	IS(got, SIGRTMIN);
	IS(got_fd, only);
	IS(fcntl(only, F_GETLEASE), F_RDLCK);
	OK(fcntl(only, F_SETLEASE, F_UNLCK));
	/* An open that waits. */
	OK(fcntl(only, F_SETLEASE, F_WRLCK));
	got = 0;
	pid_t pid = fork();
	if (pid == 0) {
		close(only);
		_exit(open("f", O_RDONLY) < 0);
	}
	while (!got)
		usleep(1000);
	usleep(50000);
	IS(waitpid(pid, NULL, WNOHANG), 0);
	OK(fcntl(only, F_SETLEASE, F_RDLCK) && errno != EAGAIN);
	fcntl(only, F_SETLEASE, F_UNLCK);
	int status;
	IS(waitpid(pid, &status, 0), pid);
	IS(status, 0);
	close(only);
	OK(unlink("f"));
}

static void sigio(void)
{
	int p[2];
	OK(pipe(p));
	handle(SIGIO, 0);
	got = 0;
	OK(fcntl(p[0], F_SETOWN, getpid()));
	IS(fcntl(p[0], F_GETOWN), getpid());
	OK(fcntl(p[0], F_SETFL, O_ASYNC | O_NONBLOCK));
	IS(write(p[1], "x", 1), 1);
	IS(got, SIGIO);
	handle(SIGRTMIN, 0);
	OK(fcntl(p[0], F_SETSIG, SIGRTMIN));
	IS(fcntl(p[0], F_GETSIG), SIGRTMIN);
	char c;
	IS(read(p[0], &c, 1), 1);
	IS(write(p[1], "x", 1), 1);
	IS(got, SIGRTMIN);
	IS(got_fd, p[0]);
	got = 0;
	OK(fcntl(p[0], F_SETFL, 0));
	IS(read(p[0], &c, 1), 1);
	IS(write(p[1], "x", 1), 1);
	IS(got, 0);
	FAILS(fcntl(p[0], F_SETOWN, 999999), ESRCH);
	close(p[0]);
	close(p[1]);
}

static void dnotify(void)
{
	OK(mkdir("d", 0700));
	int fd = GETS(open("d", O_RDONLY | O_DIRECTORY));
	handle(SIGRTMIN, 0);
	OK(fcntl(fd, F_SETSIG, SIGRTMIN));
	OK(fcntl(fd, F_NOTIFY, DN_CREATE | DN_DELETE));
	got = 0;
	file("d/f", "x", 0600);
	IS(got, SIGRTMIN);
	IS(got_fd, fd);
	got = 0;
	OK(unlink("d/f")); /* once only */
	IS(got, 0);
	OK(fcntl(fd, F_NOTIFY, DN_MULTISHOT | DN_RENAME));
	file("d/f", "x", 0600);
	IS(got, 0);
	OK(rename("d/f", "d/g"));
	IS(got, SIGRTMIN);
	got = 0;
	OK(rename("d/g", "d/f"));
	IS(got, SIGRTMIN);
	OK(fcntl(fd, F_NOTIFY, 0));
	got = 0;
	OK(rename("d/f", "d/g"));
	IS(got, 0);
	close(fd);
	fd = GETS(open("d/g", O_RDONLY));
	FAILS(fcntl(fd, F_NOTIFY, DN_ACCESS), ENOTDIR);
	close(fd);
	OK(unlink("d/g") || rmdir("d"));
}

static void space(void)
{
	struct statfs sf;
	struct stat st;
	OK(mkdir("t", 0700));
	FAILS(mount("t", "t", "tmpfs", 0, "size=x"), EINVAL);
	FAILS(mount("t", "t", "tmpfs", 0, "nonsense"), EINVAL);
	OK(mount("t", "t", "tmpfs", 0, "size=64k,nr_inodes=5,mode=751,uid=7,gid=8"));
	OK(stat("t", &st));
	TRUE(st.st_mode == (S_IFDIR | 0751) && st.st_uid == 7 && st.st_gid == 8);
	OK(statfs("t", &sf));
	TRUE(sf.f_blocks == 16 && sf.f_bfree == 16 && sf.f_files == 5 && sf.f_ffree == 4);
	char big[70000];
	memset(big, 'x', sizeof big);
	int fd = GETS(open("t/f", O_CREAT | O_RDWR, 0600));
	IS(write(fd, big, sizeof big), 65536);
	FAILS(write(fd, big, 1), ENOSPC);
	OK(statfs("t", &sf));
	TRUE(sf.f_bfree == 0 && sf.f_ffree == 3);
	FAILS(mount(NULL, "t", NULL, MS_REMOUNT, "size=32k"), EINVAL);
	FAILS(mount(NULL, "t", NULL, MS_REMOUNT, "nr_inodes=1"), EINVAL);
	OK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 8192));
	IS(lseek(fd, 0, SEEK_HOLE), 4096);
	IS(lseek(fd, 4096, SEEK_DATA), 12288);
	FAILS(lseek(fd, 65536, SEEK_DATA), ENXIO);
	OK(fstat(fd, &st));
	IS(st.st_blocks, 14 * 8);
	FAILS(fallocate(fd, FALLOC_FL_PUNCH_HOLE, 0, 4096), EOPNOTSUPP);
	FAILS(fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 0, 4096), EOPNOTSUPP);
	FAILS(fallocate(fd, FALLOC_FL_ZERO_RANGE, 0, 4096), EOPNOTSUPP);
	FAILS(fallocate(fd, 0, 0, 1 << 20), ENOSPC);
	OK(ftruncate(fd, 0));
	OK(mkdir("t/a", 0700) || mkdir("t/b", 0700) || symlink("x", "t/c"));
	FAILS(mkdir("t/d", 0700), ENOSPC);
	FAILS(mknod("t/d", S_IFIFO | 0600, 0), ENOSPC);
	OK(mount(NULL, "t", NULL, MS_REMOUNT, "size=128k,nr_inodes=6"));
	OK(mkdir("t/d", 0700));
	close(fd);
	OK(umount("t"));
	OK(rmdir("t"));
}

static void refused(void)
{
	char buf[200] = { 0 };
	*(int *)buf = 128;
	FAILS(syscall(SYS_open_by_handle_at, AT_FDCWD, buf, O_RDONLY) == -1 ? -1 : 0, errno);
	FAILS(syscall(SYS_close_range, 10, 5, 0), EINVAL);
	FAILS(syscall(SYS_close_range, 5, 10, 8), EINVAL);
	OK(syscall(SYS_close_range, 200, ~0u, CLOSE_RANGE_CLOEXEC));
}

int main(int argc, char **argv)
{
	char self[PATH_MAX];
	if (argc > 1) {
		write(1, "x", 1);
		for (;;)
			pause();
	}
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	if (n < 0 || (mkdir("/ft", 0755) && errno != EEXIST) || mount("t", "/ft", "tmpfs", 0, "mode=755") || chdir("/ft")) {
		perror("set-up");
		return 1;
	}
	self[n] = 0;
	umask(0);
	setlinebuf(stdout);
	signal(SIGPIPE, SIG_IGN);
	vectors();
	attributes();
	names();
	protected_things();
	locks();
	space();
	refused();
	sigio();
	dnotify();
	leases();
	busy(self);
	OK(chdir("/"));
	OK(umount("/ft"));
	OK(rmdir("/ft"));
	return finish();
}
