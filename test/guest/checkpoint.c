/*
 * checkpoint MODE: a state that a checkpoint has to carry. It prints "ready", waits until /go/go exists,
 * and checks and prints what became of its state.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void hold(void)
{
	puts("ready");
	fflush(stdout);
	while (access("/go/go", F_OK) != 0)
		usleep(20000);
}

static uint64_t hash(const uint64_t *p, size_t n)
{
	uint64_t h = 1469598103934665603u;
	for (size_t i = 0; i < n; i++)
		h = (h ^ p[i]) * 1099511628211u;
	return h;
}

static uint64_t *fill(uint64_t *p, size_t n, uint64_t seed)
{
	for (size_t i = 0; i < n; i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		p[i] = seed;
	}
	return p;
}

static void *map(size_t len, int flags)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		fail("mmap");
	return p;
}

/* Private, shared and copied-on-write memory, between a parent and a child. */
static int memory(void)
{
	enum { MiB = 1 << 20, N = 64 * MiB / 8 };
	uint64_t *priv = fill(map(64 * MiB, MAP_PRIVATE), N, 1);
	uint64_t *cow = fill(map(4 * MiB, MAP_PRIVATE), 4 * MiB / 8, 2);
	uint64_t *shared = fill(map(4 * MiB, MAP_SHARED), 4 * MiB / 8, 3);
	uint64_t *sparse = map((size_t)1024 * MiB, MAP_PRIVATE | MAP_NORESERVE);
	uint64_t want = hash(priv, N), wantcow = hash(cow, 4 * MiB / 8), wantshared = hash(shared, 4 * MiB / 8);
	int up[2], c;
	sparse[100 * MiB / 8] = 7;
	if (mprotect(cow + 512, 4096, PROT_READ) || pipe(up))
		fail("set-up");
	pid_t child = fork();
	if (child == 0) {
		cow[0] ^= 1; /* the child's page alone */
		write(up[1], "x", 1);
		while (access("/go/go", F_OK) != 0)
			usleep(20000);
		cow[0] ^= 1;
		int good = hash(priv, N) == want && hash(cow, 4 * MiB / 8) == wantcow && hash(shared, 4 * MiB / 8) == wantshared;
		shared[0] = 42;
		_exit(good ? 0 : 1);
	}
	if (read(up[0], &c, 1) != 1)
		fail("read");
	hold();
	if (hash(priv, N) != want || hash(cow, 4 * MiB / 8) != wantcow || sparse[100 * MiB / 8] != 7 || sparse[1] != 0)
		return puts("memory differs"), 1;
	if (waitpid(child, &c, 0) != child || c != 0)
		return printf("the child ended with %d\n", c), 1;
	printf("memory is right, the child wrote %d\n", (int)shared[0]);
	return 0;
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static int turn, stop, sum;
static __thread int mine;

/* Threads pass a turn on; each counts in its own storage. */
static void *player(void *arg)
{
	int me = (int)(intptr_t)arg;
	for (;;) {
		pthread_mutex_lock(&mutex);
		while (turn % 4 != me && !stop)
			pthread_cond_wait(&cond, &mutex);
		if (stop)
			break;
		turn++;
		mine++;
		pthread_cond_broadcast(&cond);
		pthread_mutex_unlock(&mutex);
	}
	sum += mine;
	pthread_mutex_unlock(&mutex);
	pthread_barrier_wait(&barrier);
	return NULL;
}

static int threads(void)
{
	pthread_t t[4];
	pthread_barrier_init(&barrier, NULL, 5);
	for (int i = 0; i < 4; i++)
		if (pthread_create(&t[i], NULL, player, (void *)(intptr_t)i))
			fail("pthread_create");
	hold();
	pthread_mutex_lock(&mutex);
	int now = turn;
	pthread_mutex_unlock(&mutex);
	usleep(200000);
	pthread_mutex_lock(&mutex);
	int more = turn > now;
	stop = 1;
	pthread_cond_broadcast(&cond);
	pthread_mutex_unlock(&mutex);
	pthread_barrier_wait(&barrier);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	printf("threads %s, turns %s\n", more ? "go on" : "hang", sum == turn ? "add up" : "are lost");
	return 0;
}

static double now(clockid_t c)
{
	struct timespec ts;
	clock_gettime(c, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

static volatile sig_atomic_t alarms;
static void on_alarm(int sig) { alarms++; }

/* Descriptors that count, wait and tell. */
static int fds(void)
{
	struct itimerspec in3 = {.it_value = {3, 0}};
	struct itimerval every = {{0, 50000}, {0, 50000}};
	struct epoll_event ev = {.events = EPOLLIN}, got[8];
	sigset_t usr2;
	char buf[64];
	int sv[2], p[2];
	uint64_t n;
	double start = now(CLOCK_MONOTONIC);

	sigemptyset(&usr2);
	sigaddset(&usr2, SIGUSR2);
	sigprocmask(SIG_BLOCK, &usr2, NULL);
	signal(SIGALRM, on_alarm);
	int event = eventfd(5, 0), timer = timerfd_create(CLOCK_MONOTONIC, 0), sig = signalfd(-1, &usr2, 0), ep = epoll_create1(0);
	if (event < 0 || timer < 0 || sig < 0 || ep < 0 || pipe(p) || socketpair(AF_UNIX, SOCK_DGRAM, 0, sv))
		fail("set-up");
	timerfd_settime(timer, 0, &in3, NULL);
	int all[] = {event, timer, sig, p[0], sv[0]};
	for (int i = 0; i < 5; i++) {
		ev.data.u32 = i;
		if (epoll_ctl(ep, EPOLL_CTL_ADD, all[i], &ev))
			fail("epoll_ctl");
	}
	write(p[1], "in the pipe", 11);
	write(sv[1], "one", 3);
	write(sv[1], "second", 6);
	kill(getpid(), SIGUSR2);
	setitimer(ITIMER_REAL, &every, NULL);
	double mono = now(CLOCK_MONOTONIC);
	hold();
	int ticks = alarms;
	while (alarms < ticks + 3)
		pause();
	setitimer(ITIMER_REAL, &(struct itimerval){}, NULL);
	puts("the interval timer goes on");
	read(timer, &n, 8);
	double took = now(CLOCK_MONOTONIC) - start;
	printf("the timer fired %d time, %s\n", (int)n, took < 2.9 ? "early" : took > 6 ? "late" : "in time");
	int ready = epoll_wait(ep, got, 8, 0);
	printf("%d are ready\n", ready);
	read(event, &n, 8);
	printf("the event counted %d\n", (int)n);
	n = read(p[0], buf, sizeof buf);
	printf("pipe: %.*s\n", (int)n, buf);
	n = read(sv[0], buf, sizeof buf);
	printf("socket: %.*s", (int)n, buf);
	n = read(sv[0], buf, sizeof buf);
	printf(", %.*s\n", (int)n, buf);
	struct signalfd_siginfo si;
	read(sig, &si, sizeof si);
	printf("signal %d\n", si.ssi_signo);
	printf("clock %s\n", now(CLOCK_MONOTONIC) >= mono ? "went on" : "went back");
	return 0;
}

/* Registers that only a loop without calls keeps. */
static int registers(void)
{
	volatile int *flag = map(4096, MAP_SHARED);
	if (fork() == 0) {
		hold();
		*flag = 1;
		_exit(0);
	}
	uint64_t bad = 0;
	__asm__ volatile(
		"mov $0x1122334455667788, %%rax\n movq %%rax, %%xmm5\n punpcklqdq %%xmm5, %%xmm5\n"
		"mov $0x99aabbccddeeff00, %%r15\n fldpi\n"
		"1: mov (%1), %%ecx\n pause\n test %%ecx, %%ecx\n jz 1b\n"
		"movq %%xmm5, %%rdx\n xor %%rax, %%rdx\n or %%rdx, %0\n"
		"psrldq $8, %%xmm5\n movq %%xmm5, %%rdx\n xor %%rax, %%rdx\n or %%rdx, %0\n"
		"mov $0x99aabbccddeeff00, %%rdx\n xor %%r15, %%rdx\n or %%rdx, %0\n"
		"fldpi\n fcomip %%st(1), %%st\n setne %%dl\n movzx %%dl, %%edx\n or %%rdx, %0\n fstp %%st(0)\n"
		: "+r"(bad) : "r"(flag) : "rax", "rcx", "rdx", "r15", "xmm5", "memory", "cc");
	wait(NULL);
	puts(bad ? "registers differ" : "registers are right");
	return 0;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	if (!strcmp(mode, "memory"))
		return memory();
	if (!strcmp(mode, "threads"))
		return threads();
	if (!strcmp(mode, "fds"))
		return fds();
	if (!strcmp(mode, "registers"))
		return registers();
	fputs("usage: checkpoint memory|threads|fds|registers\n", stderr);
	return 2;
}
