/* Descriptors and what they refer to. */
#include "carry.h"
#include <dirent.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>

static int file(const char *name, const char *text, int flags)
{
	int fd = open(name, O_WRONLY | O_CREAT, 0644);
	check(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
	fd = open(name, flags);
	check(fd >= 0);
	return fd;
}

CASE(fd_offsets_and_flags)
{
	int a = file("a", "0123456789", O_RDWR), b = open("a", O_RDWR | O_APPEND | O_NONBLOCK), p = open("a", O_PATH | O_CLOEXEC);
	int high = fcntl(a, F_DUPFD_CLOEXEC, 300);
	check(lseek(a, 3, SEEK_SET) == 3);
	hold();
	equal(lseek(a, 0, SEEK_CUR), 3);
	equal(high, 300);
	content(high, "3456789");
	equal(lseek(a, 0, SEEK_CUR), 10);
	equal(lseek(b, 0, SEEK_CUR), 0);
	check(write(b, "x", 1) == 1);
	equal(lseek(b, 0, SEEK_CUR), 11);
	equal(fcntl(a, F_GETFL) & (O_ACCMODE | O_APPEND | O_NONBLOCK), O_RDWR);
	equal(fcntl(b, F_GETFL) & (O_ACCMODE | O_APPEND | O_NONBLOCK), O_RDWR | O_APPEND | O_NONBLOCK);
	equal(fcntl(high, F_GETFD), FD_CLOEXEC);
	equal(fcntl(a, F_GETFD), 0);
	check(fcntl(p, F_GETFL) & O_PATH);
	check(read(p, &a, 1) == -1 && errno == EBADF);
}

static int shared_fd;
static void reads_rest(void *arg)
{
	char buf[8] = "";
	released();
	while (lseek(shared_fd, 0, SEEK_CUR) != 6)
		usleep(1000);
	check(read(shared_fd, buf, 2) == 2 && strcmp(buf, "67") == 0);
}

/* One description in two processes. */
CASE(fd_shared_description)
{
	shared_fd = file("a", "0123456789", O_RDONLY);
	pid_t pid = start(reads_rest, NULL);
	hold();
	check(lseek(shared_fd, 6, SEEK_SET) == 6);
	ended(pid);
	equal(lseek(shared_fd, 0, SEEK_CUR), 8);
}

/* One table of two tasks. */
static int cloned(void *arg)
{
	released();
	close(*(int *)arg);
	return 0;
}

CASE(fd_shared_table)
{
	static char stack[65536];
	int fd = file("a", "x", O_RDONLY);
	pid_t pid = clone(cloned, stack + sizeof stack, CLONE_FILES | SIGCHLD, &fd);
	check(pid > 0);
	hold();
	ended(pid);
	equal(fcntl(fd, F_GETFD), -1);
}

CASE(fd_pipe)
{
	int p[2], half[2], empty[2];
	check(pipe2(p, O_NONBLOCK) == 0 && pipe(half) == 0 && pipe(empty) == 0);
	equal(fcntl(p[0], F_SETPIPE_SZ, 16384), 16384);
	char big[16384];
	pattern(big, sizeof big, 8);
	check(write(p[1], big, sizeof big) == sizeof big);
	check(read(p[0], big, 100) == 100);
	check(write(half[1], "last", 4) == 4);
	close(half[1]), close(empty[0]);
	hold();
	equal(fcntl(p[0], F_GETPIPE_SZ), 16384);
	check(write(p[1], big, sizeof big) <= 4096 || errno == EAGAIN);
	int n;
	check(ioctl(p[0], FIONREAD, &n) == 0 && n >= 16284);
	errno = 0;
	check(read(p[0], big + 100, sizeof big - 100) == sizeof big - 100 && pattern_is(big, sizeof big, 8));
	content(half[0], "last");
	equal(read(half[0], big, 1), 0);
	check(write(empty[1], "x", 1) == -1 && errno == EPIPE);
}

CASE(fd_pipe_packets)
{
	int p[2];
	char buf[64];
	if (pipe2(p, O_DIRECT) != 0)
		skip("packet pipes");
	check(write(p[1], "one", 3) == 3 && write(p[1], "three", 5) == 5);
	hold();
	equal(read(p[0], buf, sizeof buf), 3);
	equal(read(p[0], buf, sizeof buf), 5);
}

static void fifo_reader(void *arg)
{
	int fd = open("fifo", O_RDONLY);
	check(fd >= 0);
	content(fd, "text");
}

CASE(fd_fifo)
{
	check(mkfifo("fifo", 0600) == 0 && mkfifo("busy", 0600) == 0 && mkfifo("gone", 0600) == 0);
	int busy = open("busy", O_RDWR), gone = open("gone", O_RDWR);
	check(write(busy, "kept", 4) == 4 && write(gone, "too", 3) == 3 && unlink("gone") == 0);
	pid_t pid = start(fifo_reader, NULL);
	settle(pid);
	hold();
	int fd = open("fifo", O_WRONLY), again = open("busy", O_RDONLY | O_NONBLOCK);
	check(write(fd, "text", 4) == 4);
	content(again, "kept");
	content(gone, "too");
	ended(pid);
}

CASE(fd_eventfd)
{
	int a = eventfd(7, EFD_NONBLOCK), s = eventfd(3, EFD_SEMAPHORE | EFD_CLOEXEC);
	uint64_t v;
	hold();
	check(read(a, &v, 8) == 8 && v == 7);
	check(read(a, &v, 8) == -1 && errno == EAGAIN);
	for (int i = 0; i < 3; i++)
		check(read(s, &v, 8) == 8 && v == 1);
	check(fcntl(s, F_GETFD) == FD_CLOEXEC);
	v = UINT64_MAX - 1;
	check(write(a, &v, 8) == 8);
	check(write(a, &v, 8) == -1 && errno == EAGAIN);
}

CASE(fd_epoll)
{
	int p[2], q[2], outer = epoll_create1(0), inner = epoll_create1(EPOLL_CLOEXEC), e = eventfd(1, 0);
	struct epoll_event ev = {.events = EPOLLIN | EPOLLONESHOT, .data.u64 = 0x1122334455667788}, got[4];
	check(pipe(p) == 0 && pipe(q) == 0);
	check(write(p[1], "x", 1) == 1);
	check(epoll_ctl(inner, EPOLL_CTL_ADD, p[0], &ev) == 0);
	check(epoll_wait(inner, got, 4, 0) == 1); /* disarms it */
	ev.events = EPOLLIN | EPOLLET, ev.data.u64 = 2;
	check(epoll_ctl(inner, EPOLL_CTL_ADD, q[0], &ev) == 0);
	check(write(q[1], "y", 1) == 1 && epoll_wait(inner, got, 4, 0) == 1);
	ev.events = EPOLLIN, ev.data.u64 = 3;
	check(epoll_ctl(outer, EPOLL_CTL_ADD, inner, &ev) == 0);
	ev.events = EPOLLIN, ev.data.u64 = 4;
	int twin = dup(e);
	check(epoll_ctl(outer, EPOLL_CTL_ADD, twin, &ev) == 0);
	close(twin); /* the registration stays, with a number that is free */
	hold();
	equal(epoll_wait(outer, got, 4, 0), 1);
	equal(got[0].data.u64, 4);
	equal(epoll_wait(inner, got, 4, 0), 0);
	check(write(q[1], "z", 1) == 1);
	equal(epoll_wait(inner, got, 4, 1000), 1);
	equal(got[0].data.u64, 2);
	ev.events = EPOLLIN, ev.data.u64 = 5;
	check(epoll_ctl(inner, EPOLL_CTL_MOD, p[0], &ev) == 0);
	equal(epoll_wait(outer, got, 4, 0), 2);
	equal(epoll_wait(inner, got, 4, 0), 1);
	equal(got[0].data.u64, 5);
	check(epoll_ctl(inner, EPOLL_CTL_ADD, p[0], &ev) == -1 && errno == EEXIST);
}

/* An edge that nobody has seen yet stays one. */
CASE(fd_epoll_edge)
{
	int p[2], ep = epoll_create1(0);
	struct epoll_event ev = {.events = EPOLLIN | EPOLLET, .data.u64 = 9}, got;
	check(pipe(p) == 0 && epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &ev) == 0 && write(p[1], "x", 1) == 1);
	hold();
	equal(epoll_wait(ep, &got, 1, 0), 1);
	equal(epoll_wait(ep, &got, 1, 0), 0);
}

CASE(fd_timerfd)
{
	int a = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK), b = timerfd_create(CLOCK_REALTIME, 0), c = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK), d = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
	struct itimerspec every = {{0, 20000000}, {0, 20000000}}, at = {.it_value = {time(NULL) + 1, 0}}, once = {.it_value = {0, 1000000}}, hour = {{5, 0}, {3600, 0}}, left;
	uint64_t v;
	check(timerfd_settime(a, 0, &every, NULL) == 0 && timerfd_settime(b, TFD_TIMER_ABSTIME, &at, NULL) == 0);
	check(timerfd_settime(c, 0, &once, NULL) == 0 && timerfd_settime(d, 0, &hour, NULL) == 0);
	usleep(5000);
	hold();
	check(read(c, &v, 8) == 8 && v == 1);
	usleep(60000);
	check(read(a, &v, 8) == 8 && v >= 2);
	check(read(b, &v, 8) == 8 && v == 1 && now(CLOCK_REALTIME) >= at.it_value.tv_sec);
	check(timerfd_gettime(d, &left) == 0);
	equal(left.it_interval.tv_sec, 5);
	check(left.it_value.tv_sec > 3400 && left.it_value.tv_sec <= 3600);
	check(read(d, &v, 8) == -1 && errno == EAGAIN);
}

CASE(fd_signalfd)
{
	sigset_t s;
	sigemptyset(&s), sigaddset(&s, SIGUSR1), sigaddset(&s, SIGRTMIN + 1);
	sigprocmask(SIG_BLOCK, &s, NULL);
	int fd = signalfd(-1, &s, SFD_NONBLOCK);
	sigqueue(getpid(), SIGRTMIN + 1, (union sigval){.sival_int = 11});
	sigqueue(getpid(), SIGRTMIN + 1, (union sigval){.sival_int = 12});
	hold();
	struct signalfd_siginfo si[4];
	kill(getpid(), SIGUSR1);
	equal(read(fd, si, sizeof si), 3 * sizeof si[0]);
	equal(si[0].ssi_signo, SIGUSR1);
	equal(si[1].ssi_int, 11);
	equal(si[2].ssi_int, 12);
	check(read(fd, si, sizeof si) == -1 && errno == EAGAIN);
}

CASE(fd_inotify)
{
	int fd = inotify_init1(IN_NONBLOCK), other;
	char buf[1024];
	check(mkdir("d", 0777) == 0 && mkdir("e", 0777) == 0);
	int d = inotify_add_watch(fd, "d", IN_CREATE | IN_DELETE), e = inotify_add_watch(fd, "e", IN_ALL_EVENTS | IN_ONESHOT);
	close(file("d/one", "", O_RDONLY));
	hold();
	int n = read(fd, buf, sizeof buf);
	struct inotify_event *ev = (struct inotify_event *)buf;
	check(n > 0);
	equal(ev->wd, d);
	equal(ev->mask, IN_CREATE);
	check(strcmp(ev->name, "one") == 0);
	check(n == (int)(sizeof *ev + ev->len));
	close(other = file("e/two", "", O_RDONLY));
	check(unlink("d/one") == 0);
	n = read(fd, buf, sizeof buf);
	check(n > 0);
	equal(ev->wd, e);
	ev = (struct inotify_event *)(buf + sizeof *ev + ev->len);
	equal(ev->wd, e);
	equal(ev->mask, IN_IGNORED);
	ev = (struct inotify_event *)((char *)ev + sizeof *ev + ev->len);
	equal(ev->wd, d);
	equal(ev->mask, IN_DELETE);
	check(inotify_rm_watch(fd, d) == 0);
	check(inotify_add_watch(fd, "e", IN_OPEN) > e);
}

CASE(fd_directory)
{
	enum { N = 700 };
	static char seen[N];
	char name[64];
	check(mkdir("d", 0777) == 0);
	for (int i = 0; i < N; i++) {
		snprintf(name, sizeof name, "d/a-name-of-some-length-%d", i);
		close(open(name, O_CREAT | O_WRONLY, 0600));
	}
	DIR *d = opendir("d");
	struct dirent *e;
	for (int i = 0; i < N / 2 && (e = readdir(d)); i++)
		if (e->d_name[0] != '.')
			seen[atoi(strrchr(e->d_name, '-') + 1)]++;
	hold();
	while ((e = readdir(d)))
		if (e->d_name[0] != '.')
			seen[atoi(strrchr(e->d_name, '-') + 1)]++;
	for (int i = 0; i < N; i++)
		equal(seen[i], 1);
	rewinddir(d);
	check(readdir(d) != NULL);
}

static void sleeps(void *arg)
{
	for (;;)
		pause();
}

CASE(fd_pidfd)
{
	pid_t pid = start(sleeps, NULL), dead = start((void (*)(void *))_exit, NULL);
	int fd = syscall(SYS_pidfd_open, pid, 0), gone = syscall(SYS_pidfd_open, dead, 0);
	check(fd >= 0 && gone >= 0);
	settle(dead);
	hold();
	struct pollfd p[2] = {{fd, POLLIN, 0}, {gone, POLLIN, 0}};
	equal(poll(p, 2, 0), 1);
	check(p[1].revents & POLLIN);
	check(syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0) == 0);
	p[0].revents = 0;
	check(poll(p, 1, 5000) == 1 && p[0].revents & POLLIN);
	int status;
	check(waitpid(pid, &status, 0) == pid && status == SIGKILL);
	ended(dead);
}

/* Descriptors of /proc, of a device and of the root. */
CASE(fd_special)
{
	int zero = open("/dev/zero", O_RDONLY), null = open("/dev/null", O_WRONLY), root = open("/", O_RDONLY | O_DIRECTORY);
	int maps = open("/proc/self/maps", O_RDONLY), self = open("/proc/self", O_RDONLY | O_DIRECTORY), stat = open("/proc/self/stat", O_RDONLY);
	char buf[64] = "x", pid[16];
	check(zero >= 0 && null >= 0 && root >= 0 && maps >= 0 && self >= 0 && stat >= 0);
	check(read(maps, buf, 10) == 10);
	hold();
	check(read(zero, buf, 4) == 4 && memcmp(buf, "\0\0\0\0", 4) == 0);
	check(write(null, buf, 4) == 4);
	check(faccessat(root, "tmp", F_OK, 0) == 0);
	check(read(maps, buf, 10) == 10);
	int n = snprintf(pid, sizeof pid, "%d (", getpid());
	check(read(stat, buf, n) == n && memcmp(buf, pid, n) == 0);
	int status = openat(self, "status", O_RDONLY);
	check(status >= 0 && read(status, buf, 5) == 5 && memcmp(buf, "Name:", 5) == 0);
}

static volatile sig_atomic_t came;
static void on_io(int sig, siginfo_t *si, void *uc) { came = si->si_fd; }

/* Whom a descriptor tells that it is ready. */
CASE(fd_owner)
{
	int p[2];
	struct sigaction sa = {.sa_sigaction = on_io, .sa_flags = SA_SIGINFO};
	check(pipe(p) == 0);
	sigaction(SIGRTMIN + 2, &sa, NULL);
	if (fcntl(p[0], F_SETOWN, getpid()) != 0 || fcntl(p[0], F_SETSIG, SIGRTMIN + 2) != 0 || fcntl(p[0], F_SETFL, O_ASYNC) != 0)
		skip("signals of ready descriptors");
	int other[2];
	check(pipe(other) == 0 && fcntl(other[0], F_SETOWN, getpid()) == 0 && fcntl(other[0], F_SETSIG, SIGRTMIN + 2) == 0 && fcntl(other[0], F_SETFL, O_ASYNC) == 0);
	check(write(other[1], "x", 1) == 1);
	for (int i = 0; i < 100 && !came; i++)
		usleep(1000);
	if (!came)
		skip("signals of ready descriptors");
	came = 0;
	hold();
	equal(fcntl(p[0], F_GETOWN), getpid());
	equal(fcntl(p[0], F_GETSIG), SIGRTMIN + 2);
	check(fcntl(p[0], F_GETFL) & O_ASYNC);
	check(write(p[1], "x", 1) == 1);
	for (int i = 0; i < 1000 && !came; i++)
		usleep(1000);
	equal(came, p[0]);
}
