// Checks the memory calls of a kernel; it passes on Linux. Prints "ok" or what is wrong.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int bad;
#define CHECK(c) \
	do { \
		if (!(c)) { \
			printf("line %d: %s (errno %d)\n", __LINE__, #c, errno); \
			bad = 1; \
		} \
	} while (0)

static sigjmp_buf env;
static volatile sig_atomic_t code, sig;
static void *volatile where;

static void handler(int s, siginfo_t *i, void *u)
{
	sig = s;
	code = i->si_code;
	where = i->si_addr;
	siglongjmp(env, 1);
}

// touch returns the signal that an access gets, 0 for none.
static int touch(volatile char *p, int write)
{
	sig = 0;
	if (sigsetjmp(env, 1) == 0) {
		if (write)
			*p = 1;
		else
			(void)*p;
	}
	return sig;
}

static char *anon(size_t n)
{
	return mmap(0, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void faults(void)
{
	char *p = anon(1 << 20);
	CHECK(p != MAP_FAILED);
	for (int i = 0; i < 1 << 20; i += 4096)
		p[i] = i >> 12;
	for (int i = 0; i < 1 << 20; i += 4096)
		CHECK(p[i] == (char)(i >> 12));
	CHECK(mprotect(p, 4096, PROT_READ) == 0);
	CHECK(touch(p, 0) == 0);
	CHECK(touch(p, 1) == SIGSEGV && code == SEGV_ACCERR && where == p);
	CHECK(mprotect(p, 4096, PROT_NONE) == 0);
	CHECK(touch(p, 0) == SIGSEGV && code == SEGV_ACCERR);
	CHECK(mprotect(p, 4096, PROT_READ | PROT_WRITE) == 0 && p[0] == 0);
	CHECK(munmap(p + 8192, 4096) == 0);
	CHECK(touch(p + 8192, 0) == SIGSEGV && code == SEGV_MAPERR && where == p + 8192);
	CHECK(p[4096] == 1 && p[12288] == 3);
	CHECK(touch((char *)8, 0) == SIGSEGV && code == SEGV_MAPERR);
	CHECK(munmap(p, 1 << 20) == 0);
}

static void forks(void)
{
	char *p = anon(1 << 20);
	char *s = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	memset(p, 'p', 1 << 20);
	s[0] = 'p';
	for (int round = 0; round < 10; round++) {
		pid_t k = fork();
		if (k == 0) {
			int ok = p[5000] == 'p' && p[900000] == 'p';
			memset(p, 'c', 1 << 20);
			s[round] = 'c';
			pid_t g = fork();
			if (g == 0) {
				ok = p[700000] == 'c';
				p[700000] = 'g';
				_exit(!ok);
			}
			int st;
			waitpid(g, &st, 0);
			_exit(!(ok && st == 0 && p[700000] == 'c'));
		}
		p[0] = 'q';
		int st;
		CHECK(waitpid(k, &st, 0) == k && st == 0);
		CHECK(s[round] == 'c' && p[0] == 'q' && p[700000] == 'p');
		p[0] = 'p';
	}
	munmap(p, 1 << 20);
	munmap(s, 65536);
}

static void files(void)
{
	char name[] = "/tmp/memoryXXXXXX", b[8192];
	int fd = mkstemp(name);
	CHECK(fd >= 0);
	unlink(name);
	memset(b, 'f', sizeof b);
	CHECK(write(fd, b, 8192) == 8192 && ftruncate(fd, 10000) == 0);
	char *s = mmap(0, 16384, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	char *p = mmap(0, 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	CHECK(s != MAP_FAILED && p != MAP_FAILED);
	CHECK(p[0] == 'f' && p[8191] == 'f' && p[8192] == 0 && p[12000] == 0);
	p[0] = 'x';
	CHECK(s[0] == 'f');
	s[1] = 'y';
	s[4096] = 'y';
	CHECK(p[1] == 'f' && p[4096] == 'y');
	CHECK(pread(fd, b, 2, 0) == 2 && b[0] == 'f' && b[1] == 'y');
	CHECK(pwrite(fd, "w", 1, 5000) == 1 && s[5000] == 'w' && p[5000] == 'w');
	CHECK(touch(s + 12288, 0) == SIGBUS && code == BUS_ADRERR);
	CHECK(ftruncate(fd, 4096) == 0);
	CHECK(touch(s + 4096, 0) == SIGBUS);
	CHECK(touch(p + 4096, 0) == SIGBUS);
	CHECK(p[0] == 'x' && s[1] == 'y');
	CHECK(ftruncate(fd, 16384) == 0 && s[4096] == 0 && p[5000] == 0);
	CHECK(msync(s, 16384, MS_SYNC) == 0);
	// A write from the mapping into its own file.
	CHECK(pwrite(fd, s, 4096, 8192) == 4096 && s[8193] == 'y');
	CHECK(munmap(s, 16384) == 0 && munmap(p, 16384) == 0);
	close(fd);
	fd = open("/proc/self/exe", O_RDONLY);
	if (fd >= 0) {
		p = mmap(0, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
		CHECK(p != MAP_FAILED && memcmp(p, "\177ELF", 4) == 0);
		CHECK(mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EACCES);
		munmap(p, 4096);
		close(fd);
	}
}

static void moves(void)
{
	char *p = anon(65536);
	for (int i = 0; i < 16; i++)
		p[i * 4096] = i;
	char *q = mremap(p, 65536, 1 << 20, MREMAP_MAYMOVE);
	CHECK(q != MAP_FAILED);
	for (int i = 0; i < 16; i++)
		CHECK(q[i * 4096] == i);
	q[100000] = 1;
	CHECK(mremap(q, 1 << 20, 8192, 0) == q);
	CHECK(touch(q + 8192, 0) == SIGSEGV);
	char *t = anon(65536);
	munmap(t, 65536);
	CHECK(mremap(q, 8192, 8192, MREMAP_MAYMOVE | MREMAP_FIXED, t) == t && t[4096] == 1);
	CHECK(madvise(t, 4096, MADV_DONTNEED) == 0 && t[0] == 0 && t[4096] == 1);
	unsigned char v[2];
	CHECK(mincore(t, 8192, v) == 0 && (v[1] & 1));
	CHECK(munmap(t, 8192) == 0);
	CHECK(mmap((void *)0x1001, 4096, PROT_READ, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == EINVAL);
	char *h = sbrk(0), *n = sbrk(1 << 20);
	CHECK(n == h);
	memset(n, 7, 1 << 20);
	CHECK(sbrk(-(1 << 20)) == n + (1 << 20) && sbrk(1 << 20) == n && n[4096] == 0);
	sbrk(-(1 << 20));
}

static int deep(int n)
{
	volatile char frame[4096];
	frame[0] = n;
	frame[4095] = n;
	return n ? deep(n - 1) + frame[0] - frame[4095] + 1 : 0;
}

static char altstack[65536];

static void stacks(void)
{
	CHECK(deep(1000) == 1000);
	pid_t k = fork();
	if (k == 0) {
		stack_t ss = {.ss_sp = altstack, .ss_size = sizeof altstack};
		sigaltstack(&ss, 0);
		struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};
		sigaction(SIGSEGV, &sa, 0);
		if (sigsetjmp(env, 1) == 0)
			deep(1 << 20);
		_exit(sig == SIGSEGV ? 0 : 1);
	}
	int st;
	CHECK(waitpid(k, &st, 0) == k && st == 0);
}

static char *arena;
static void *worker(void *a)
{
	unsigned seed = (unsigned)(uintptr_t)a;
	for (int i = 0; i < 3000; i++) {
		int k = rand_r(&seed) % 1024;
		if (i % 100 == 99)
			madvise(arena + (k & ~15) * 4096, 65536, MADV_DONTNEED);
		else
			__atomic_fetch_add((int *)(arena + k * 4096 + (uintptr_t)a * 4), 1, __ATOMIC_SEQ_CST);
		if (i % 500 == 0) {
			char *p = anon(1 << 18);
			memset(p, 1, 1 << 18);
			munmap(p, 1 << 18);
		}
	}
	return 0;
}

static void threads(void)
{
	arena = anon(4 << 20);
	pthread_t t[6];
	for (uintptr_t i = 0; i < 6; i++)
		CHECK(pthread_create(&t[i], 0, worker, (void *)(i + 1)) == 0);
	for (int round = 0; round < 5; round++) {
		pid_t k = fork();
		if (k == 0) {
			for (int i = 0; i < 4 << 20; i += 4096)
				arena[i + 200] = 9;
			_exit(0);
		}
		int st;
		CHECK(waitpid(k, &st, 0) == k && st == 0);
	}
	for (int i = 0; i < 6; i++)
		pthread_join(t[i], 0);
	for (int i = 0; i < 4 << 20; i += 4096)
		CHECK(arena[i + 200] == 0);
	munmap(arena, 4 << 20);
}

// Prefetching a gigabyte in random order.
static void large(size_t n)
{
	char *p = mmap(0, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(p != MAP_FAILED);
	size_t pages = n / 4096;
	unsigned long x = 1;
	for (size_t i = 0; i < pages; i++) {
		x = x * 6364136223846793005ul + 1442695040888963407ul;
		size_t k = (x >> 20) % pages;
		*(unsigned *)(p + k * 4096) += 1;
	}
	unsigned long sum = 0;
	for (size_t i = 0; i < pages; i++)
		sum += *(unsigned *)(p + i * 4096);
	CHECK(sum == pages);
	munmap(p, n);
}

static void clocks(void)
{
	struct timespec last = {0}, now;
	for (int i = 0; i < 200000; i++) {
		if (i % 1000 == 0)
			syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
		else
			clock_gettime(CLOCK_MONOTONIC, &now);
		if (now.tv_sec < last.tv_sec || (now.tv_sec == last.tv_sec && now.tv_nsec < last.tv_nsec)) {
			printf("time went back by %ld ns at %d\n", last.tv_nsec - now.tv_nsec, i);
			bad = 1;
			break;
		}
		last = now;
	}
	struct timeval tv;
	struct timespec ts;
	gettimeofday(&tv, 0);
	clock_gettime(CLOCK_REALTIME, &ts);
	CHECK(ts.tv_sec - tv.tv_sec <= 1 && time(0) - ts.tv_sec <= 1);
}

int main(int argc, char **argv)
{
	struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
	sigaction(SIGSEGV, &sa, 0);
	sigaction(SIGBUS, &sa, 0);
	setvbuf(stdout, 0, _IONBF, 0);
	faults();
	forks();
	files();
	moves();
	stacks();
	threads();
	clocks();
	large(argc > 1 ? strtoul(argv[1], 0, 0) << 20 : 64 << 20);
	if (!bad)
		puts("ok");
	return bad;
}
