/* Memory: private, shared, copied on write, mapped files, protections, holes. */
#include "carry.h"
#include <setjmp.h>

enum { MiB = 1 << 20, PAGE = 4096 };

static void *map(size_t n, int flags)
{
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
	check(p != MAP_FAILED);
	return p;
}

CASE(memory_private)
{
	char *p = map(8 * MiB, MAP_PRIVATE);
	pattern(p, 8 * MiB, 1);
	hold();
	check(pattern_is(p, 8 * MiB, 1));
	p[5] ^= 1;
	check(!pattern_is(p, 8 * MiB, 1));
}

/* What parent, child and grandchild share until one of them writes. */
static char *cow;

static void grandchild(void *arg)
{
	cow[2 * PAGE] ^= 1;
	released();
	check(pattern_is(cow, PAGE, 2) == 0);
	cow[0] ^= 1, cow[2 * PAGE] ^= 1;
	check(pattern_is(cow, 2 * MiB, 2));
}

static void child(void *arg)
{
	cow[0] ^= 1;
	pid_t pid = start(grandchild, NULL);
	released();
	cow[0] ^= 1;
	check(pattern_is(cow, 2 * MiB, 2));
	memset(cow, 0, 2 * MiB);
	ended(pid);
}

CASE(memory_cow)
{
	cow = map(2 * MiB, MAP_PRIVATE);
	pattern(cow, 2 * MiB, 2);
	pid_t pid = start(child, NULL);
	usleep(20000);
	hold();
	check(pattern_is(cow, 2 * MiB, 2));
	memset(cow + MiB, 1, MiB);
	ended(pid);
	check(pattern_is(cow, MiB, 2));
}

static void writer(void *arg)
{
	volatile int *p = arg;
	released();
	while (p[0] == 0)
		usleep(1000);
	p[PAGE / 4] = p[0] + 1;
}

CASE(memory_shared)
{
	volatile int *p = map(2 * MiB, MAP_SHARED);
	pid_t pid = start(writer, (void *)p);
	hold();
	p[0] = 41;
	ended(pid);
	equal(p[PAGE / 4], 42);
}

/* One file, mapped shared by two, private by one, and written through its descriptor. */
CASE(memory_files)
{
	int fd = open("f", O_RDWR | O_CREAT, 0600);
	check(ftruncate(fd, 4 * PAGE) == 0);
	char *a = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	char *b = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 2 * PAGE);
	char *c = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	check(a != MAP_FAILED && b != MAP_FAILED && c != MAP_FAILED);
	strcpy(a, "first");
	strcpy(c + PAGE, "mine");
	close(fd);
	hold();
	strcpy(a + 2 * PAGE, "through");
	check(strcmp(b, "through") == 0);
	check(strcmp(c + 2 * PAGE, "through") == 0);
	check(strcmp(a, "first") == 0 && strcmp(c, "first") == 0 && strcmp(c + PAGE, "mine") == 0 && a[PAGE] == 0);
	fd = open("f", O_RDWR);
	check(pwrite(fd, "call", 5, 3 * PAGE) == 5);
	check(strcmp(b + PAGE, "call") == 0);
	b[0] = 'T';
	check(lseek(fd, 2 * PAGE, SEEK_SET) == 2 * PAGE);
	char buf[8] = "";
	check(read(fd, buf, 7) == 7 && strcmp(buf, "Through") == 0);
}

CASE(memory_unlinked_file)
{
	int fd = open("f", O_RDWR | O_CREAT, 0600);
	check(ftruncate(fd, MiB) == 0);
	char *a = mmap(NULL, MiB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	pattern(a, MiB / 2, 3);
	close(fd);
	unlink("f");
	hold();
	check(pattern_is(a, MiB / 2, 3));
	a[MiB - 1] = 1;
}

CASE(memory_host_file)
{
	char name[300];
	if (!outside[0])
		skip("no directory outside");
	snprintf(name, sizeof name, "%s/mapped", outside);
	int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
	check(fd >= 0 && ftruncate(fd, 4 * PAGE) == 0 && pwrite(fd, "early", 5, 0) == 5);
	char *a = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	char *c = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	check(a != MAP_FAILED && c != MAP_FAILED);
	strcpy(a + PAGE, "mapped");
	strcpy(c, "mine");
	hold();
	check(strncmp(a, "early", 5) == 0 && strcmp(a + PAGE, "mapped") == 0 && strcmp(c, "mine") == 0 && strcmp(c + PAGE, "mapped") == 0);
	strcpy(a + PAGE, "later");
	char buf[8] = "";
	check(pread(fd, buf, 5, PAGE) == 5 && strcmp(buf, "later") == 0);
	check(unlink(name) == 0);
}

CASE(memory_protections)
{
	char *p = map(8 * PAGE, MAP_PRIVATE), *g = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN, -1, 0);
	int fds[2];
	check(pipe(fds) == 0 && g != MAP_FAILED);
	memset(p, 7, 8 * PAGE);
	check(mprotect(p + PAGE, PAGE, PROT_NONE) == 0 && mprotect(p + 2 * PAGE, PAGE, PROT_READ) == 0);
	check(munmap(p + 4 * PAGE, PAGE) == 0);
	hold();
	check(write(fds[1], p, 1) == 1);
	check(write(fds[1], p + PAGE, 1) == -1 && errno == EFAULT);
	check(read(fds[0], p + 2 * PAGE, 1) == -1 && errno == EFAULT);
	check(p[2 * PAGE] == 7 && p[3 * PAGE] == 7 && p[5 * PAGE] == 7);
	check(msync(p + 4 * PAGE, PAGE, MS_SYNC) == -1 && errno == ENOMEM);
	check(mprotect(p + PAGE, PAGE, PROT_READ | PROT_WRITE) == 0 && p[PAGE] == 7);
}

CASE(memory_code)
{
	unsigned char *p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	static const unsigned char code[] = {0xb8, 42, 0, 0, 0, 0xc3}; /* mov $42, %eax; ret */
	check(p != MAP_FAILED);
	memcpy(p, code, sizeof code);
	equal(((int (*)(void))p)(), 42);
	hold();
	equal(((int (*)(void))p)(), 42);
	p[1] = 43;
	equal(((int (*)(void))p)(), 43);
}

CASE(memory_heap)
{
	char *end = sbrk(0);
	check(sbrk(3 * MiB) == end);
	pattern(end, 3 * MiB, 4);
	hold();
	check(sbrk(0) == end + 3 * MiB && pattern_is(end, 3 * MiB, 4));
	check(sbrk(-2 * MiB) != (void *)-1 && sbrk(2 * MiB) == end + MiB && end[MiB + 5] == 0);
}

static int deep(int n)
{
	volatile char buf[8000];
	buf[0] = n, buf[7999] = n;
	if (n == 0)
		hold();
	else
		deep(n - 1);
	return buf[0] == (char)n && buf[7999] == (char)n ? 0 : failed(__FILE__, __LINE__, "the stack differs"), 0;
}

CASE(memory_stack) { deep(100); }

CASE(memory_sparse)
{
	enum { N = 300 };
	char *p = mmap(NULL, 4096ul * MiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	check(p != MAP_FAILED);
	for (long i = 0; i < N; i++)
		p[i * 13 * MiB + i * PAGE] = i + 1;
	hold();
	for (long i = 0; i < N; i++)
		check(p[i * 13 * MiB + i * PAGE] == (char)(i + 1) && p[i * 13 * MiB + i * PAGE + 1] == 0);
}

CASE(memory_moved)
{
	char *p = map(2 * MiB, MAP_PRIVATE), *hole = map(8 * MiB, MAP_PRIVATE);
	pattern(p, 2 * MiB, 6);
	p = mremap(p, 2 * MiB, 3 * MiB, MREMAP_MAYMOVE | MREMAP_FIXED, hole);
	check(p == hole && madvise(p + MiB, PAGE, MADV_DONTNEED) == 0);
	hold();
	check(pattern_is(p, MiB, 6) && p[MiB] == 0 && p[2 * MiB + 1] == 0);
	p = mremap(p, 3 * MiB, MiB / 2, 0);
	check(p == hole && pattern_is(p, MiB / 2, 6));
}

/* Two mappings of one shared anonymous object. */
CASE(memory_twice)
{
	char *p = map(4 * PAGE, MAP_SHARED), *q = mremap(p, 0, 4 * PAGE, MREMAP_MAYMOVE);
	if (q == MAP_FAILED && errno == EINVAL)
		skip("mremap of size 0");
	check(q != MAP_FAILED);
	strcpy(p, "one");
	hold();
	check(strcmp(q, "one") == 0);
	strcpy(q + PAGE, "two");
	check(strcmp(p + PAGE, "two") == 0);
}

static int fork_child(char *p, char *q)
{
	int fds[2];
	check(pipe(fds) == 0);
	return write(fds[1], p, 1) == -1 && errno == EFAULT && q[0] == 0 ? 0 : 1;
}

/* What madvise and mlock said of memory. */
CASE(memory_advice)
{
	char *p = map(PAGE, MAP_PRIVATE), *q = map(PAGE, MAP_PRIVATE);
	p[0] = q[0] = 1;
	check(madvise(p, PAGE, MADV_DONTFORK) == 0);
	if (madvise(q, PAGE, MADV_WIPEONFORK) != 0)
		skip("MADV_WIPEONFORK");
	hold();
	pid_t pid = fork();
	if (pid == 0)
		_exit(fork_child(p, q));
	ended(pid);
}

CASE(memory_memfd)
{
	int fd = memfd_create("sealed", MFD_ALLOW_SEALING | MFD_CLOEXEC);
	check(fd >= 0 && ftruncate(fd, 8 * PAGE) == 0 && pwrite(fd, "in memory", 10, 3 * PAGE) == 10);
	char *p = mmap(NULL, 8 * PAGE, PROT_READ, MAP_SHARED, fd, 0);
	check(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
	hold();
	equal(fcntl(fd, F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW);
	check(ftruncate(fd, 0) == -1 && errno == EPERM);
	check(strcmp(p + 3 * PAGE, "in memory") == 0);
	check(pwrite(fd, "later", 6, 0) == 6 && strcmp(p, "later") == 0);
	equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	char link[64] = "", path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	check(readlink(path, link, sizeof link - 1) > 0 && strncmp(link, "/memfd:sealed", 13) == 0);
}

/* A fault beyond the file's end and a wild pointer are the signals that they were. */

static sigjmp_buf there;
static void on_fault(int sig, siginfo_t *si, void *uc) { siglongjmp(there, sig == SIGBUS ? 2 : si->si_code == SEGV_MAPERR ? 1 : 3); }

CASE(memory_faults)
{
	int fd = open("f", O_RDWR | O_CREAT, 0600);
	struct sigaction sa = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
	check(ftruncate(fd, PAGE) == 0);
	volatile char *p = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	sigaction(SIGBUS, &sa, NULL), sigaction(SIGSEGV, &sa, NULL);
	volatile int *volatile wild = (int *)8;
	hold();
	int got = sigsetjmp(there, 1);
	if (got == 0)
		p[2 * PAGE] = 1;
	equal(got, 2);
	got = sigsetjmp(there, 1);
	if (got == 0)
		*wild = 1;
	equal(got, 1);
	p[5] = 1;
}
