// Cases that set something up, wait while the kernel under test is saved and
// restored, and then look. Each is a process of its own. On Linux, with nothing
// in between, it prints "ready" and then "ok all" too.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000LL
static int ready_fd;
static const char *name;

#define CHECK(x) do { if (!(x)) { printf("FAIL %s: line %d: %s (errno %d)\n", name, __LINE__, #x, errno); fflush(stdout); _exit(1); } } while (0)

static long long now(void) {
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}
static struct timespec in(long long ns) { return (struct timespec){ns / 1000000000, ns % 1000000000}; }
static void ready(void) { CHECK(write(ready_fd, "x", 1) == 1); }
static void nap(long long ms) {
	struct timespec ts = in(ms * MS);
	while (nanosleep(&ts, &ts) && errno == EINTR);
}
// Enough for the save; all waits are this long.
#define WAIT 1200
static void took(long long start) {
	long long d = (now() - start) / MS;
	if (d < WAIT - 5 || d > WAIT + 8000) { printf("FAIL %s: took %lld ms\n", name, d); fflush(stdout); _exit(1); }
}

static volatile sig_atomic_t got[65];
static volatile int value;
static void handler(int s) { got[s]++; }
static void on(int s) { struct sigaction a = {.sa_handler = handler}; CHECK(!sigaction(s, &a, 0)); }
static pid_t later(pid_t to, int sig) {
	pid_t p = fork();
	if (!p) { nap(WAIT); kill(to, sig); _exit(0); }
	return p;
}
static long futex(void *a, int op, uint32_t v, const struct timespec *ts, void *b, uint32_t v3) { return syscall(SYS_futex, a, op, v, ts, b, v3); }

static void c_nanosleep(void) { long long t = now(); ready(); nap(WAIT); took(t); }
static void c_clock_abs(void) {
	long long t = now();
	struct timespec ts = in(t + WAIT * MS);
	ready();
	CHECK(!clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, 0));
	took(t);
}
static void c_poll(void) {
	int p[2]; CHECK(!pipe(p));
	struct pollfd f = {p[0], POLLIN};
	long long t = now(); ready();
	CHECK(poll(&f, 1, WAIT) == 0);
	took(t);
}
static void c_ppoll(void) {
	on(SIGUSR1);
	sigset_t s, e; sigemptyset(&e); sigemptyset(&s); sigaddset(&s, SIGUSR1); sigprocmask(SIG_BLOCK, &s, 0);
	later(getpid(), SIGUSR1);
	long long t = now(); ready();
	struct timespec ts = in(60000 * MS);
	CHECK(ppoll(0, 0, &ts, &e) == -1 && errno == EINTR && got[SIGUSR1] == 1);
	took(t);
	sigprocmask(SIG_BLOCK, 0, &s); CHECK(sigismember(&s, SIGUSR1));
}
static void c_select(void) {
	struct timeval tv = {WAIT / 1000, WAIT % 1000 * 1000};
	long long t = now(); ready();
	CHECK(select(0, 0, 0, 0, &tv) == 0);
	took(t);
}
static void c_epoll(void) {
	int e = epoll_create1(0), p[2]; CHECK(!pipe(p));
	struct epoll_event ev = {EPOLLIN, {.u64 = 0x1122334455667788}}, out;
	CHECK(!epoll_ctl(e, EPOLL_CTL_ADD, p[0], &ev));
	if (!fork()) { nap(WAIT); write(p[1], "a", 1); _exit(0); }
	long long t = now(); ready();
	CHECK(epoll_wait(e, &out, 1, 60000) == 1 && out.data.u64 == 0x1122334455667788);
	took(t);
}
static void c_sigsuspend(void) {
	on(SIGUSR1);
	sigset_t s, e; sigemptyset(&e); sigemptyset(&s); sigaddset(&s, SIGUSR1); sigprocmask(SIG_BLOCK, &s, 0);
	later(getpid(), SIGUSR1);
	long long t = now(); ready();
	CHECK(sigsuspend(&e) == -1 && errno == EINTR && got[SIGUSR1] == 1);
	took(t);
	sigprocmask(SIG_BLOCK, 0, &s); CHECK(sigismember(&s, SIGUSR1));
}
static void c_pause(void) {
	on(SIGUSR1); later(getpid(), SIGUSR1);
	long long t = now(); ready();
	CHECK(pause() == -1 && errno == EINTR && got[SIGUSR1] == 1);
	took(t);
}
static void c_sigtimedwait(void) {
	sigset_t s; sigemptyset(&s); sigaddset(&s, SIGUSR1); sigprocmask(SIG_BLOCK, &s, 0);
	struct timespec ts = in(WAIT * MS);
	long long t = now(); ready();
	CHECK(sigtimedwait(&s, 0, &ts) == -1 && errno == EAGAIN);
	took(t);
}
static void c_queue(void) {
	sigset_t s; sigemptyset(&s); sigaddset(&s, SIGRTMIN + 1); sigaddset(&s, SIGUSR2); sigprocmask(SIG_BLOCK, &s, 0);
	for (int i = 0; i < 3; i++) CHECK(!sigqueue(getpid(), SIGRTMIN + 1, (union sigval){.sival_int = 7 + i}));
	CHECK(!kill(getpid(), SIGUSR2)); CHECK(!kill(getpid(), SIGUSR2));
	ready(); nap(WAIT);
	siginfo_t i;
	CHECK(sigwaitinfo(&s, &i) == SIGUSR2 && i.si_code == SI_USER && i.si_pid == getpid());
	for (int k = 0; k < 3; k++) CHECK(sigwaitinfo(&s, &i) == SIGRTMIN + 1 && i.si_value.sival_int == 7 + k && i.si_code == SI_QUEUE);
	struct timespec z = {0};
	CHECK(sigtimedwait(&s, &i, &z) == -1);
}
static void c_futex_timeout(void) {
	uint32_t f = 0; struct timespec ts = in(WAIT * MS);
	long long t = now(); ready();
	CHECK(futex(&f, FUTEX_WAIT, 0, &ts, 0, 0) == -1 && errno == ETIMEDOUT);
	took(t);
}
static volatile uint32_t f1, f2, state;
static void *waiter(void *x) { long r = futex((void *)&f1, FUTEX_WAIT_PRIVATE, 0, 0, 0, 0); state = r ? 100 : 1; return 0; }
static void c_futex_requeue(void) {
	pthread_t th; pthread_create(&th, 0, waiter, 0); nap(100);
	CHECK(futex((void *)&f1, FUTEX_REQUEUE_PRIVATE, 0, (void *)1L, (void *)&f2, 0) == 1);
	ready(); nap(WAIT);
	CHECK(state == 0);
	CHECK(futex((void *)&f1, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0) == 0);
	CHECK(futex((void *)&f2, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0) == 1);
	pthread_join(th, 0); CHECK(state == 1);
}
static void c_futex_changed(void) {
	pthread_t th; pthread_create(&th, 0, waiter, 0); nap(100);
	f1 = 1; // without a wake: the waiter stays
	ready(); nap(WAIT);
	CHECK(state == 0);
	CHECK(futex((void *)&f1, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0) == 1);
	pthread_join(th, 0); CHECK(state == 1);
}
static void c_futex_shared(void) {
	uint32_t *f = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t p = fork();
	if (!p) { _exit(futex(f, FUTEX_WAIT_BITSET, 0, 0, 0, 6) ? 1 : 0); }
	nap(100); ready(); nap(WAIT);
	CHECK(futex(f, FUTEX_WAKE_BITSET, 9, 0, 0, 9) == 0);
	CHECK(futex(f, FUTEX_WAKE_BITSET, 9, 0, 0, 2) == 1);
	int st; CHECK(waitpid(p, &st, 0) == p && st == 0);
}
static pthread_mutex_t pi;
static void *locker(void *x) { state = pthread_mutex_lock(&pi) ? 100 : 1; pthread_mutex_unlock(&pi); return 0; }
static void c_futex_pi(void) {
	pthread_mutexattr_t a; pthread_mutexattr_init(&a); pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(&pi, &a);
	pthread_mutex_lock(&pi);
	pthread_t th; pthread_create(&th, 0, locker, 0); nap(100);
	ready(); nap(WAIT); CHECK(state == 0);
	CHECK(!pthread_mutex_unlock(&pi));
	pthread_join(th, 0); CHECK(state == 1);
}
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int turns, go;
static void *turn(void *x) {
	pthread_mutex_lock(&mu);
	while (!go) pthread_cond_wait(&cond, &mu);
	turns++;
	pthread_mutex_unlock(&mu);
	return 0;
}
static void c_threads(void) {
	pthread_t th[20];
	for (int i = 0; i < 20; i++) pthread_create(&th[i], 0, turn, 0);
	nap(100); ready(); nap(WAIT);
	pthread_mutex_lock(&mu); go = 1; pthread_cond_broadcast(&cond); pthread_mutex_unlock(&mu);
	for (int i = 0; i < 20; i++) pthread_join(th[i], 0);
	CHECK(turns == 20);
}
static void c_fpu(void) {
	static uint8_t src[16][32] __attribute__((aligned(32))), dst[16][32] __attribute__((aligned(32)));
	for (int i = 0; i < 16; i++) for (int k = 0; k < 32; k++) src[i][k] = i * 32 + k + 1;
	struct timespec ts = in(WAIT * MS);
	double x = 0, y = 0; unsigned cw = 0, mx = 0x7f80, mo = 0; unsigned short c = 0xf7f;
	ready();
	long r;
	if (__builtin_cpu_supports("avx")) {
		__asm__ volatile(
			"ldmxcsr %[mx]\nfldcw %[c]\nfldpi\nfld1\n"
			"vmovdqa 0(%[s]),%%ymm0\nvmovdqa 32(%[s]),%%ymm1\nvmovdqa 224(%[s]),%%ymm7\nvmovdqa 480(%[s]),%%ymm15\n"
			"syscall\n"
			"vmovdqa %%ymm0,0(%[d])\nvmovdqa %%ymm1,32(%[d])\nvmovdqa %%ymm7,224(%[d])\nvmovdqa %%ymm15,480(%[d])\n"
			"fstpl %[x]\nfstpl %[y]\nfnstcw %[cw]\nstmxcsr %[mo]\nfninit\nvzeroupper\n"
			: "=a"(r), [x] "=m"(x), [y] "=m"(y), [cw] "=m"(cw), [mo] "=m"(mo)
			: "0"(SYS_nanosleep), "D"(&ts), "S"(0), [s] "r"(src), [d] "r"(dst), [mx] "m"(mx), [c] "m"(c)
			: "rcx", "r11", "memory", "xmm0", "xmm1", "xmm7", "xmm15");
		unsigned std = 0x1f80; __asm__ volatile("ldmxcsr %0" ::"m"(std));
		CHECK(r == 0);
		CHECK(!memcmp(src[0], dst[0], 32) && !memcmp(src[1], dst[1], 32) && !memcmp(src[7], dst[7], 32) && !memcmp(src[15], dst[15], 32));
		CHECK(x == 1 && y > 3.14159 && y < 3.1416 && (cw & 0xffff) == 0xf7f && mo == 0x7f80);
	}
}
static void c_spin(void) {
	static uint8_t src[32] __attribute__((aligned(32))), dst[32] __attribute__((aligned(32)));
	memset(src, 0x5a, 32);
	volatile int *flag = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (!fork()) { nap(WAIT); *flag = 1; _exit(0); }
	ready();
	if (__builtin_cpu_supports("avx"))
		__asm__ volatile("vmovdqa (%1),%%ymm9\n1: pause\ncmpl $0,(%0)\nje 1b\nvmovdqa %%ymm9,(%2)\nvzeroupper\n" ::"r"(flag), "r"(src), "r"(dst) : "memory", "xmm9");
	CHECK(!memcmp(src, dst, 32));
}
static void c_itimer(void) {
	on(SIGALRM);
	struct itimerval it = {{0, 0}, {WAIT / 1000, WAIT % 1000 * 1000}}, cur;
	long long t = now();
	CHECK(!setitimer(ITIMER_REAL, &it, 0));
	ready();
	pause();
	CHECK(got[SIGALRM] == 1); took(t);
	CHECK(!getitimer(ITIMER_REAL, &cur) && cur.it_value.tv_sec == 0 && cur.it_value.tv_usec == 0);
}
static void c_timer(void) {
	on(SIGRTMIN);
	struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
	timer_t a, b;
	CHECK(!timer_create(CLOCK_MONOTONIC, &ev, &a)); CHECK(!timer_create(CLOCK_REALTIME, &ev, &b));
	struct itimerspec s = {in(50 * MS), in(50 * MS)}; CHECK(!timer_settime(a, 0, &s, 0));
	struct timespec r; clock_gettime(CLOCK_REALTIME, &r);
	s = (struct itimerspec){{0}, {r.tv_sec + 1000, 0}}; CHECK(!timer_settime(b, TIMER_ABSTIME, &s, 0));
	long long t = now(); ready(); nap(WAIT);
	CHECK(got[SIGRTMIN] >= 10 && got[SIGRTMIN] <= (now() - t) / (50 * MS) + 1);
	CHECK(!timer_gettime(b, &s) && s.it_value.tv_sec > 900 && s.it_value.tv_sec < 1000);
	CHECK(!timer_delete(a) && !timer_delete(b));
}
static void c_cputimer(void) {
	on(SIGPROF);
	struct itimerval it = {{0, 0}, {0, 300000}}; CHECK(!setitimer(ITIMER_PROF, &it, 0));
	ready(); nap(WAIT); CHECK(got[SIGPROF] == 0);
	while (!got[SIGPROF]);
	struct rusage u; getrusage(RUSAGE_SELF, &u);
	CHECK(u.ru_utime.tv_sec * 1000000 + u.ru_utime.tv_usec + u.ru_stime.tv_sec * 1000000 + u.ru_stime.tv_usec >= 200000);
}
static void c_bigpipe(void) {
	int p[2]; CHECK(!pipe(p));
	char *b = malloc(1 << 20); for (int i = 0; i < 1 << 20; i++) b[i] = i * 7 + (i >> 8);
	pid_t ch = fork();
	if (!ch) {
		close(p[1]); nap(WAIT);
		char *c = malloc(1 << 20); size_t n = 0; ssize_t k;
		while ((k = read(p[0], c + n, (1 << 20) - n)) > 0) n += k;
		_exit(n == 1 << 20 && !memcmp(b, c, n) ? 0 : 1);
	}
	close(p[0]); ready();
	struct iovec v[3] = {{b, 1000}, {b + 1000, 500000}, {b + 501000, (1 << 20) - 501000}};
	CHECK(writev(p[1], v, 3) == 1 << 20);
	close(p[1]);
	int st; CHECK(waitpid(ch, &st, 0) == ch && st == 0);
}
static void c_vfork(void) {
	long long t = now();
	pid_t p = vfork();
	if (!p) {
		struct timespec ts = in(WAIT * MS);
		write(ready_fd, "x", 1);
		syscall(SYS_nanosleep, &ts, 0);
		_exit(3);
	}
	took(t);
	int st; CHECK(waitpid(p, &st, 0) == p && WEXITSTATUS(st) == 3);
}
static void c_stopped(void) {
	pid_t p = fork(); int st;
	if (!p) { nap(50); _exit(4); }
	CHECK(!kill(p, SIGSTOP)); nap(50); ready(); nap(WAIT);
	CHECK(waitpid(p, &st, WUNTRACED) == p && WIFSTOPPED(st) && WSTOPSIG(st) == SIGSTOP);
	CHECK(waitpid(p, &st, WUNTRACED | WNOHANG) == 0);
	kill(p, SIGCONT);
	CHECK(waitpid(p, &st, WCONTINUED) == p && WIFCONTINUED(st));
	CHECK(waitpid(p, &st, 0) == p && WEXITSTATUS(st) == 4);
}
static void c_zombies(void) {
	pid_t p[3]; int st;
	for (int i = 0; i < 3; i++) if (!(p[i] = fork())) { if (i == 2) kill(getpid(), SIGKILL); _exit(i + 1); }
	ready(); nap(WAIT);
	CHECK(waitpid(p[1], &st, 0) == p[1] && WEXITSTATUS(st) == 2);
	CHECK(waitpid(p[2], &st, 0) == p[2] && WTERMSIG(st) == SIGKILL);
	CHECK(waitpid(p[0], &st, 0) == p[0] && WEXITSTATUS(st) == 1);
	CHECK(waitpid(-1, &st, 0) == -1 && errno == ECHILD);
}
static void c_wait(void) {
	pid_t p = fork(); int st;
	if (!p) { nap(WAIT); _exit(9); }
	ready(); CHECK(waitpid(p, &st, 0) == p && WEXITSTATUS(st) == 9);
}
static void c_lock(void) {
	int fd = open("/tmp/ckpt.lock", O_CREAT | O_RDWR, 0600); struct flock l = {F_WRLCK, SEEK_SET, 5, 10};
	CHECK(!fcntl(fd, F_SETLK, &l));
	pid_t p = fork(); int st;
	if (!p) {
		long long t = now(); l.l_type = F_RDLCK;
		_exit(fcntl(fd, F_SETLKW, &l) || now() - t < 500 * MS);
	}
	nap(50); ready(); nap(WAIT);
	l.l_type = F_UNLCK; CHECK(!fcntl(fd, F_SETLK, &l));
	CHECK(waitpid(p, &st, 0) == p && st == 0);
}
static char stack[65536];
static void in_handler(int s) {
	char here; got[s]++;
	if (&here < stack || &here >= stack + sizeof stack) got[0] = 1;
	ready(); nap(WAIT);
}
static void c_altstack(void) {
	stack_t st = {.ss_sp = stack, .ss_size = sizeof stack}, o;
	CHECK(!sigaltstack(&st, 0));
	struct sigaction a = {.sa_handler = in_handler, .sa_flags = SA_ONSTACK}; sigaddset(&a.sa_mask, SIGUSR2);
	CHECK(!sigaction(SIGUSR1, &a, 0));
	kill(getpid(), SIGUSR1);
	CHECK(got[SIGUSR1] == 1 && !got[0]);
	CHECK(!sigaltstack(0, &o) && o.ss_sp == stack && o.ss_size == sizeof stack && o.ss_flags == 0);
	sigset_t s; sigprocmask(SIG_BLOCK, 0, &s); CHECK(!sigismember(&s, SIGUSR1) && !sigismember(&s, SIGUSR2));
}
static void c_restart(void) { // a stop turns nanosleep into restart_syscall
	pid_t me = getpid();
	if (!fork()) { nap(100); kill(me, SIGSTOP); nap(100); kill(me, SIGCONT); nap(100); _exit(0); }
	long long t = now(); struct timespec ts = in(WAIT * MS); ready();
	CHECK(!nanosleep(&ts, 0)); took(t);
}
static void c_ids(void) {
	CHECK(!setpgid(0, 0)); struct rlimit l = {100, 200}, m; CHECK(!setrlimit(RLIMIT_NOFILE, &l));
	prctl(PR_SET_NAME, "my name"); prctl(PR_SET_PDEATHSIG, SIGUSR2); setpriority(PRIO_PROCESS, 0, 7);
	prctl(PR_SET_TIMERSLACK, 12345);
	umask(027); CHECK(!chdir("/tmp"));
	gid_t g[2] = {5, 6}; setgroups(2, g); CHECK(!setresgid(1, 2, 3)); CHECK(!setresuid(11, 12, 13));
	pid_t pid = getpid(), ppid = getppid();
	ready(); nap(WAIT);
	char n[16]; prctl(PR_GET_NAME, n);
	uid_t a, b, c; getresuid(&a, &b, &c); CHECK(a == 11 && b == 12 && c == 13);
	getresgid(&a, &b, &c); CHECK(a == 1 && b == 2 && c == 3);
	CHECK(getgroups(2, g) == 2 && g[0] == 5 && g[1] == 6);
	CHECK(!strcmp(n, "my name") && getpriority(PRIO_PROCESS, 0) == 7 && prctl(PR_GET_TIMERSLACK) == 12345);
	CHECK(!getrlimit(RLIMIT_NOFILE, &m) && m.rlim_cur == 100 && m.rlim_max == 200);
	CHECK(getpgrp() == pid && getpid() == pid && getppid() == ppid && umask(0) == 027);
	char d[64]; CHECK(getcwd(d, 64) && !strcmp(d, "/tmp"));
}
static void c_seccomp(void) {
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 77), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
	struct sock_fprog p = {4, f};
	CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)); CHECK(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p));
	ready(); nap(WAIT);
	CHECK(syscall(SYS_getppid) == -1 && errno == 77 && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
}
// boot is CLOCK_BOOTTIME minus CLOCK_MONOTONIC.
static long long boot(void) {
	long long best = 1LL << 60, off = 0;
	for (int i = 0; i < 20; i++) {
		struct timespec b;
		long long t = now(); clock_gettime(CLOCK_BOOTTIME, &b); long long d = now() - t;
		if (d < best) best = d, off = b.tv_sec * 1000000000LL + b.tv_nsec - t;
	}
	return off;
}
static void c_clocks(void) {
	long long b = boot(), t = now(); ready(); nap(WAIT);
	CHECK(llabs(boot() - b) < 5 * MS); took(t);
	long long m, p = now(); for (int i = 0; i < 100000; i++) { m = now(); CHECK(m >= p); p = m; }
	struct timespec raw; syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &raw);
	CHECK(llabs(raw.tv_sec * 1000000000LL + raw.tv_nsec - now()) < 500 * MS);
}
static void *sleeper(void *x) { nap(WAIT); state = 5; return 0; }
static void c_join(void) { pthread_t th; pthread_create(&th, 0, sleeper, 0); ready(); pthread_join(th, 0); CHECK(state == 5); }
static void c_leader(void) { // the leader is a zombie, a thread goes on
	pid_t p = fork(); int st;
	if (!p) { pthread_t th; pthread_create(&th, 0, sleeper, 0); syscall(SYS_exit, 0); }
	nap(50); ready();
	CHECK(waitpid(p, &st, 0) == p && st == 0);
}
static void c_pidfd(void) {
	pid_t p = fork(); int st;
	if (!p) { nap(WAIT); _exit(0); }
	int fd = syscall(SYS_pidfd_open, p, 0), gone; CHECK(fd >= 0);
	pid_t q = fork(); if (!q) _exit(0);
	gone = syscall(SYS_pidfd_open, q, 0); CHECK(gone >= 0 && waitpid(q, &st, 0) == q);
	struct pollfd f = {fd, POLLIN}; ready();
	CHECK(poll(&f, 1, 60000) == 1 && (f.revents & POLLIN));
	f.fd = gone; CHECK(poll(&f, 1, 0) == 1 && syscall(SYS_pidfd_send_signal, gone, 0, 0, 0) == -1 && errno == ESRCH);
	CHECK(waitpid(p, &st, 0) == p);
}

#define C(x) {#x, c_##x}
static struct { const char *name; void (*f)(void); } cases[] = {
	C(nanosleep), C(clock_abs), C(poll), C(ppoll), C(select), C(epoll), C(sigsuspend), C(pause), C(sigtimedwait), C(queue), C(futex_timeout),
	C(futex_requeue), C(futex_changed), C(futex_shared), C(futex_pi), C(threads), C(fpu), C(spin), C(itimer), C(timer), C(cputimer), C(bigpipe),
	C(vfork), C(stopped), C(zombies), C(wait), C(lock), C(altstack), C(restart), C(ids), C(seccomp), C(clocks), C(join), C(leader), C(pidfd),
};
#define N ((int)(sizeof cases / sizeof *cases))

int main(int argc, char **argv) {
	int p[2], bad = 0, n = 0; pid_t pids[N];
	if (pipe(p)) return 1;
	ready_fd = p[1];
	for (int i = 0; i < N; i++) {
		if (argc > 1 && strcmp(argv[1], cases[i].name)) continue;
		n++;
		if (!fork()) { close(p[0]); name = cases[i].name; cases[i].f(); _exit(0); }
	}
	char c;
	for (int i = 0; i < n; i++) if (read(p[0], &c, 1) != 1) return 1;
	printf("ready\n"); fflush(stdout);
	int st;
	for (int i = 0; i < n; i++) if (wait(&st) < 0 || st) bad++;
	if (bad) printf("FAIL %d cases\n", bad); else printf("ok all\n");
	return bad != 0;
}
