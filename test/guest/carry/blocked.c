/* A task in each call that blocks: it waits on after a restore, and what it waits for still reaches it. */
#include "carry.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <sys/uio.h>

static int p[2], q[2];
static pid_t main_pid;
static pthread_t worker;

/* blocked runs fn in a thread, holds while it is blocked, wakes it and waits for its end. */
static void blocked(void *(*fn)(void *), void (*wake)(void))
{
	main_pid = getpid();
	check(pipe(p) == 0 && pipe(q) == 0);
	settle(thread(&worker, fn, NULL));
	hold();
	if (wake)
		wake();
	errno = pthread_join(worker, NULL);
	check(errno == 0);
}

static void feed(void) { check(write(p[1], "x", 1) == 1); }

/* still checks that a call has not returned before hold did. */
static double began;
static void least(double seconds)
{
	long took = (now(CLOCK_MONOTONIC) - began) * 1e6, want = seconds * 1e6 - 2000;
	if (took < want)
		equal(took, want);
}

static void *in_read(void *arg)
{
	char c;
	equal(read(p[0], &c, 1), 1);
	return NULL;
}
CASE(blocked_read) { blocked(in_read, feed); }

static void *in_readv(void *arg)
{
	char c[2];
	struct iovec v[2] = {{c, 1}, {c + 1, 1}};
	equal(readv(p[0], v, 2), 1);
	equal(c[0], 'x');
	return NULL;
}
CASE(blocked_readv) { blocked(in_readv, feed); }

/* A write of more than the pipe takes has written part of it already. */
enum { MUCH = 300000 };
static char out[MUCH], in[MUCH];
static void *in_write(void *arg)
{
	equal(write(p[1], out, MUCH), MUCH);
	return NULL;
}
static void drain(void)
{
	int n, got = 0;
	while (got < MUCH && (n = read(p[0], in + got, MUCH - got)) > 0)
		got += n;
	equal(got, MUCH);
	check(pattern_is(in, MUCH, 9));
}
CASE(blocked_write) { pattern(out, MUCH, 9), blocked(in_write, drain); }

static void *in_poll(void *arg)
{
	struct pollfd f[2] = {{p[0], POLLIN, 0}, {q[0], POLLIN, 0}};
	equal(poll(f, 2, -1), 1);
	equal(f[0].revents, POLLIN);
	equal(f[1].revents, 0);
	return NULL;
}
CASE(blocked_poll) { blocked(in_poll, feed); }

static void *in_poll_timeout(void *arg)
{
	struct pollfd f = {p[0], POLLIN, 0};
	began = now(CLOCK_MONOTONIC);
	equal(poll(&f, 1, 500), 0);
	least(0.5);
	return NULL;
}
CASE(blocked_poll_timeout) { blocked(in_poll_timeout, NULL); }

static void *in_select(void *arg)
{
	fd_set r, w;
	FD_ZERO(&r);
	FD_ZERO(&w);
	FD_SET(p[0], &r);
	FD_SET(q[0], &r);
	struct timeval tv = {1000, 0};
	equal(select(q[0] + 1, &r, &w, NULL, &tv), 1);
	check(FD_ISSET(p[0], &r) && !FD_ISSET(q[0], &r) && tv.tv_sec > 900);
	return NULL;
}
CASE(blocked_select) { blocked(in_select, feed); }

/* The mask of ppoll holds while it waits, and the old one afterwards. */
static volatile sig_atomic_t hit;
static void on_signal(int sig) { hit = sig; }
static void mask_usr1(sigset_t *none)
{
	sigset_t s;
	signal(SIGUSR1, on_signal);
	sigemptyset(&s), sigaddset(&s, SIGUSR1), sigemptyset(none);
	pthread_sigmask(SIG_BLOCK, &s, NULL);
}
static void was_hit(void)
{
	sigset_t got;
	equal(hit, SIGUSR1);
	pthread_sigmask(SIG_SETMASK, NULL, &got);
	check(sigismember(&got, SIGUSR1));
}
static void usr1(void) { check(pthread_kill(worker, SIGUSR1) == 0); }

static void *in_ppoll(void *arg)
{
	sigset_t none;
	struct pollfd f = {p[0], POLLIN, 0};
	mask_usr1(&none);
	check(ppoll(&f, 1, &(struct timespec){1000, 0}, &none) == -1 && errno == EINTR);
	was_hit();
	return NULL;
}
CASE(blocked_ppoll_mask) { blocked(in_ppoll, usr1); }

static void *in_pselect(void *arg)
{
	sigset_t none;
	fd_set r;
	FD_ZERO(&r);
	FD_SET(p[0], &r);
	mask_usr1(&none);
	check(pselect(p[0] + 1, &r, NULL, NULL, NULL, &none) == -1 && errno == EINTR);
	was_hit();
	return NULL;
}
CASE(blocked_pselect_mask) { blocked(in_pselect, usr1); }

static void *in_epoll_pwait(void *arg)
{
	sigset_t none;
	struct epoll_event ev;
	mask_usr1(&none);
	check(epoll_pwait(epoll_create1(0), &ev, 1, -1, &none) == -1 && errno == EINTR);
	was_hit();
	return NULL;
}
CASE(blocked_epoll_pwait_mask) { blocked(in_epoll_pwait, usr1); }

static void *in_sigsuspend(void *arg)
{
	sigset_t none;
	mask_usr1(&none);
	check(sigsuspend(&none) == -1 && errno == EINTR);
	was_hit();
	return NULL;
}
CASE(blocked_sigsuspend) { blocked(in_sigsuspend, usr1); }

static void *in_pause(void *arg)
{
	signal(SIGUSR1, on_signal);
	check(pause() == -1 && errno == EINTR && hit == SIGUSR1);
	return NULL;
}
CASE(blocked_pause) { blocked(in_pause, usr1); }

static void *in_epoll(void *arg)
{
	int ep = epoll_create1(0);
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 5}, got;
	check(epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &ev) == 0);
	equal(epoll_wait(ep, &got, 1, -1), 1);
	equal(got.data.u64, 5);
	return NULL;
}
CASE(blocked_epoll_wait) { blocked(in_epoll, feed); }

static void *in_epoll_timeout(void *arg)
{
	struct epoll_event got;
	began = now(CLOCK_MONOTONIC);
	equal(epoll_wait(epoll_create1(0), &got, 1, 400), 0);
	least(0.4);
	return NULL;
}
CASE(blocked_epoll_timeout) { blocked(in_epoll_timeout, NULL); }

static void *in_nanosleep(void *arg)
{
	began = now(CLOCK_MONOTONIC);
	equal(nanosleep(&(struct timespec){0, 600000000}, NULL), 0);
	least(0.6);
	return NULL;
}
CASE(blocked_nanosleep) { blocked(in_nanosleep, NULL); }

/* Interrupted after the checkpoint it tells the remaining time. */
static void *in_nanosleep_long(void *arg)
{
	struct timespec left = {0, 0};
	signal(SIGUSR1, on_signal);
	check(nanosleep(&(struct timespec){5000, 0}, &left) == -1 && errno == EINTR);
	check(left.tv_sec > 4800 && left.tv_sec < 5000);
	return NULL;
}
CASE(blocked_nanosleep_interrupted) { blocked(in_nanosleep_long, usr1); }

static void *in_clock_nanosleep(void *arg)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	ts.tv_sec++;
	equal(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL), 0);
	check(now(CLOCK_MONOTONIC) >= ts.tv_sec + ts.tv_nsec / 1e9);
	return NULL;
}
CASE(blocked_clock_nanosleep) { blocked(in_clock_nanosleep, NULL); }

static void *in_clock_nanosleep_real(void *arg)
{
	struct timespec ts;
	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_sec++;
	equal(clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &ts, NULL), 0);
	check(now(CLOCK_REALTIME) >= ts.tv_sec + ts.tv_nsec / 1e9);
	return NULL;
}
CASE(blocked_clock_nanosleep_realtime) { blocked(in_clock_nanosleep_real, NULL); }

static void *in_sigtimedwait(void *arg)
{
	sigset_t s;
	siginfo_t si;
	sigemptyset(&s), sigaddset(&s, SIGUSR2);
	equal(sigtimedwait(&s, &si, &(struct timespec){1000, 0}), SIGUSR2);
	equal(si.si_value.sival_int, 99);
	return NULL;
}
static void queue_usr2(void) { check(sigqueue(getpid(), SIGUSR2, (union sigval){.sival_int = 99}) == 0); }
CASE(blocked_sigtimedwait)
{
	sigset_t s;
	sigemptyset(&s), sigaddset(&s, SIGUSR2);
	pthread_sigmask(SIG_BLOCK, &s, NULL);
	blocked(in_sigtimedwait, queue_usr2);
}

static void *in_wait4(void *arg)
{
	int status;
	pid_t pid = fork();
	if (pid == 0) {
		released();
		_exit(4);
	}
	equal(waitpid(pid, &status, 0), pid);
	equal(status, 4 << 8);
	return NULL;
}
CASE(blocked_wait4) { blocked(in_wait4, NULL); }

static void *in_waitid(void *arg)
{
	siginfo_t si;
	pid_t pid = fork();
	if (pid == 0) {
		released();
		kill(getpid(), SIGTERM);
	}
	check(waitid(P_PID, pid, &si, WEXITED) == 0);
	equal(si.si_pid, pid);
	equal(si.si_status, SIGTERM);
	return NULL;
}
CASE(blocked_waitid) { blocked(in_waitid, NULL); }

static int lock_fd;
static void *in_flock(void *arg)
{
	int fd = open("lock", O_RDWR);
	equal(flock(fd, LOCK_EX), 0);
	return NULL;
}
static void unflock(void) { check(flock(lock_fd, LOCK_UN) == 0); }
CASE(blocked_flock)
{
	lock_fd = open("lock", O_RDWR | O_CREAT, 0600);
	check(flock(lock_fd, LOCK_EX) == 0);
	blocked(in_flock, unflock);
}

static void in_setlkw(void *arg)
{
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 5};
	equal(fcntl(open("lock", O_RDWR), F_SETLKW, &l), 0);
}
CASE(blocked_posix_lock)
{
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 100};
	lock_fd = open("lock", O_RDWR | O_CREAT, 0600);
	check(fcntl(lock_fd, F_SETLK, &l) == 0);
	pid_t pid = start(in_setlkw, NULL);
	settle(pid);
	hold();
	equal(waitpid(pid, NULL, WNOHANG), 0);
	l.l_type = F_UNLCK;
	check(fcntl(lock_fd, F_SETLK, &l) == 0);
	ended(pid);
}

static void *in_ofd_lock(void *arg)
{
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	equal(fcntl(open("lock", O_RDWR), F_OFD_SETLKW, &l), 0);
	return NULL;
}
static void ofd_unlock(void)
{
	struct flock l = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
	check(fcntl(lock_fd, F_OFD_SETLK, &l) == 0);
}
CASE(blocked_ofd_lock)
{
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	lock_fd = open("lock", O_RDWR | O_CREAT, 0600);
	check(fcntl(lock_fd, F_OFD_SETLK, &l) == 0);
	blocked(in_ofd_lock, ofd_unlock);
}

static int efd;
static void *in_eventfd(void *arg)
{
	uint64_t v;
	equal(read(efd, &v, 8), 8);
	equal(v, 6);
	return NULL;
}
static void event(void) { check(write(efd, &(uint64_t){6}, 8) == 8); }
CASE(blocked_eventfd) { efd = eventfd(0, 0), blocked(in_eventfd, event); }

static void *in_timerfd(void *arg)
{
	uint64_t v;
	int fd = timerfd_create(CLOCK_MONOTONIC, 0);
	began = now(CLOCK_MONOTONIC);
	check(timerfd_settime(fd, 0, &(struct itimerspec){.it_value = {0, 500000000}}, NULL) == 0);
	equal(read(fd, &v, 8), 8);
	least(0.49);
	equal(v, 1);
	return NULL;
}
CASE(blocked_timerfd) { blocked(in_timerfd, NULL); }

static void *in_signalfd(void *arg)
{
	struct signalfd_siginfo si;
	equal(read(efd, &si, sizeof si), sizeof si);
	equal(si.ssi_int, 99);
	return NULL;
}
CASE(blocked_signalfd)
{
	sigset_t s;
	sigemptyset(&s), sigaddset(&s, SIGUSR2);
	pthread_sigmask(SIG_BLOCK, &s, NULL);
	efd = signalfd(-1, &s, 0);
	blocked(in_signalfd, queue_usr2);
}

static void *in_splice(void *arg)
{
	equal(splice(p[0], NULL, q[1], NULL, 100, 0), 1);
	char c;
	equal(read(q[0], &c, 1), 1);
	return NULL;
}
CASE(blocked_splice) { blocked(in_splice, feed); }

/* Interrupted after the restore, a call restarts or ends as the handler's flags want. */
static void *in_restarted_read(void *arg)
{
	char c;
	struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	sigaction(SIGUSR1, &sa, NULL);
	equal(read(p[0], &c, 1), 1);
	equal(hit, SIGUSR1);
	return NULL;
}
static void usr1_and_feed(void)
{
	usr1();
	while (!hit)
		usleep(1000);
	feed();
}
CASE(blocked_read_restarts) { blocked(in_restarted_read, usr1_and_feed); }

static void *in_interrupted_read(void *arg)
{
	char c;
	struct sigaction sa = {.sa_handler = on_signal};
	sigaction(SIGUSR1, &sa, NULL);
	check(read(p[0], &c, 1) == -1 && errno == EINTR);
	return NULL;
}
CASE(blocked_read_interrupted) { blocked(in_interrupted_read, usr1); }

/* A call that a stop interrupted goes on after it, as if nothing had been. */
static void sleeps_one(void *arg)
{
	double t = now(CLOCK_MONOTONIC);
	equal(nanosleep(&(struct timespec){1, 0}, NULL), 0);
	check(now(CLOCK_MONOTONIC) - t >= 0.99);
}
CASE(blocked_nanosleep_stopped)
{
	int status;
	pid_t pid = start(sleeps_one, NULL);
	settle(pid);
	kill(pid, SIGSTOP);
	equal(waitpid(pid, &status, WUNTRACED), pid);
	hold();
	kill(pid, SIGCONT);
	ended(pid);
}
