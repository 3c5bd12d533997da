/*
 * carry [-o DIR] GO [CASE...]: runs all cases, or those named, at once, prints "ready" when each has set up its state, goes on
 * when the file GO exists, and prints a line for each that fails and at last how many passed. With -o, DIR is a
 * directory of the host to make files in.
 */
#include "carry.h"
#include <ftw.h>
#include <poll.h>
#include <sys/resource.h>

struct carried *carried;
const char *outside = "";

static const char *current = "";
static int ready_fd, go_fd;

enum { SKIPPED = 77, PATIENCE = 60 };

static void say(const char *what, const char *file, int line, const char *text, const char *why)
{
	char buf[512];
	int n = snprintf(buf, sizeof buf, "%s %s: %s%.*d %s%s%s\n", what, current, file, line ? 1 : 0, line, text, why[0] ? ": " : "", why);
	write(1, buf, n < (int)sizeof buf ? n : (int)sizeof buf - 1);
}

void failed(const char *file, int line, const char *what)
{
	char where[128];
	snprintf(where, sizeof where, "%s:%d:", strrchr(file, '/') ? strrchr(file, '/') + 1 : file, line);
	say("FAIL", where, 0, what, errno ? strerror(errno) : "");
	_exit(1);
}

void same(const char *file, int line, const char *what, long got, long want)
{
	char buf[256];
	if (got == want)
		return;
	snprintf(buf, sizeof buf, "%s is %ld, not %ld", what, got, want);
	failed(file, line, buf);
}

void skip(const char *why)
{
	say("SKIP", "", 0, why, "");
	_exit(SKIPPED);
}

void released(void)
{
	char c;
	while (read(go_fd, &c, 1) < 0 && errno == EINTR)
		;
}

int go_of_carry(void) { return go_fd; }

void hold(void)
{
	check(write(ready_fd, "r", 1) == 1);
	released();
	errno = 0;
}

void settle(pid_t tid)
{
	char path[64], buf[512], *p;
	snprintf(path, sizeof path, "/proc/%d/stat", tid);
	for (int i = 0, calm = 0; i < 2000 && calm < 3; i++) {
		int fd = open(path, O_RDONLY), n = fd < 0 ? -1 : read(fd, buf, sizeof buf - 1);
		if (n <= 0)
			break; /* it has ended: what it does tells */
		close(fd);
		buf[n] = 0;
		p = strrchr(buf, ')');
		calm = p && (p[2] == 'S' || p[2] == 'T' || p[2] == 'Z') ? calm + 1 : 0;
		usleep(3000);
	}
	errno = 0;
}

pid_t start(void (*fn)(void *), void *arg)
{
	pid_t pid = fork();
	check(pid >= 0);
	if (pid == 0) {
		fn(arg);
		_exit(0);
	}
	return pid;
}

void ended(pid_t pid)
{
	int status;
	pid_t got;
	while ((got = waitpid(pid, &status, 0)) < 0 && errno == EINTR)
		;
	equal(got, pid);
	equal(status, 0);
}

struct beginning {
	void *(*fn)(void *);
	void *arg;
	_Atomic pid_t tid;
};

static void *begin(void *arg)
{
	struct beginning *b = arg, copy = {b->fn, b->arg, 0};
	b->tid = syscall(SYS_gettid);
	return copy.fn(copy.arg);
}

pid_t thread(pthread_t *t, void *(*fn)(void *), void *arg)
{
	struct beginning b = {fn, arg, 0};
	errno = pthread_create(t, NULL, begin, &b);
	check(errno == 0);
	while (b.tid == 0)
		usleep(1000);
	return b.tid;
}

void content(int fd, const char *want)
{
	char buf[512];
	int n = read(fd, buf, sizeof buf - 1);
	check(n >= 0);
	buf[n] = 0;
	if (strcmp(buf, want) != 0) {
		errno = 0;
		failed(buf, 0, want);
	}
}

double now(clockid_t clock)
{
	struct timespec ts;
	check(clock_gettime(clock, &ts) == 0);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

static uint64_t step(uint64_t x) { return x * 6364136223846793005u + 1442695040888963407u; }

void pattern(void *p, size_t n, uint64_t seed)
{
	for (uint64_t *q = p; n >= 8; n -= 8)
		*q++ = seed = step(seed);
}

int pattern_is(const void *p, size_t n, uint64_t seed)
{
	for (const uint64_t *q = p; n >= 8; n -= 8)
		if (*q++ != (seed = step(seed)))
			return 0;
	return 1;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *f) { return remove(path), 0; }

static void run(struct carried *c, const char *dir)
{
	char path[256];
	current = c->name;
	setpgid(0, 0);
	snprintf(path, sizeof path, "%s/%s", dir, c->name);
	check(mkdir(path, 0777) == 0 && chdir(path) == 0);
	errno = 0;
	c->run();
	_exit(0);
}

int main(int argc, char **argv)
{
	enum { MOST = 400 };
	static struct carried *list[MOST];
	static pid_t pids[MOST];
	char dir[] = "/tmp/carryXXXXXX";
	int ready[2], go[2], n = 0, bad = 0, skipped = 0;

	if (argc > 2 && strcmp(argv[1], "-o") == 0)
		outside = argv[2], argc -= 2, argv += 2;
	if (argc < 2)
		return fputs("usage: carry [-o DIR] GO [CASE...]\n", stderr), 2;
	if (pipe2(ready, O_CLOEXEC) || pipe2(go, O_CLOEXEC) || !mkdtemp(dir) || chmod(dir, 0777))
		return perror("carry"), 1;
	signal(SIGPIPE, SIG_IGN);
	for (struct carried *c = carried; c && n < MOST; c = c->next) {
		int wanted = argc == 2;
		for (int i = 2; i < argc; i++)
			wanted |= strcmp(argv[i], c->name) == 0;
		if (wanted)
			list[n++] = c;
	}
	/* Out of the way of the numbers that cases get. */
	ready_fd = fcntl(ready[1], F_DUPFD_CLOEXEC, 900), go_fd = fcntl(go[0], F_DUPFD_CLOEXEC, 900);
	close(ready[1]), close(go[0]);
	for (int i = 0; i < n; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			close(ready[0]), close(go[1]);
			run(list[i], dir);
		}
	}
	/* Ready are those that said so and those that ended. */
	int waiting = n, code[MOST];
	memset(code, -1, sizeof code);
	double deadline = now(CLOCK_MONOTONIC) + PATIENCE;
	while (waiting > 0 && now(CLOCK_MONOTONIC) < deadline) {
		struct pollfd p = {ready[0], POLLIN, 0};
		char buf[MOST];
		if (poll(&p, 1, 50) > 0)
			waiting -= read(ready[0], buf, sizeof buf);
		for (int i = 0; i < n; i++)
			if (code[i] < 0 && waitpid(pids[i], &code[i], WNOHANG) == pids[i])
				waiting--;
	}
	if (waiting > 0)
		printf("FAIL: %d cases do not get ready\n", waiting);
	puts("ready");
	fflush(stdout);
	while (access(argv[1], F_OK) != 0)
		usleep(20000);
	close(go[1]);
	deadline = now(CLOCK_MONOTONIC) + PATIENCE;
	for (int i = 0; i < n; i++) {
		while (code[i] < 0 && waitpid(pids[i], &code[i], WNOHANG) != pids[i]) {
			if (now(CLOCK_MONOTONIC) > deadline) {
				printf("FAIL %s: it does not end\n", list[i]->name);
				kill(-pids[i], SIGKILL);
				waitpid(pids[i], &code[i], 0);
			}
			usleep(2000);
		}
		kill(-pids[i], SIGKILL);
		if (WIFEXITED(code[i]) && WEXITSTATUS(code[i]) == SKIPPED)
			skipped++;
		else if (code[i] != 0)
			bad++, WIFSIGNALED(code[i]) ? printf("FAIL %s: signal %d\n", list[i]->name, WTERMSIG(code[i])) : 0;
	}
	nftw(dir, remove_one, 20, FTW_DEPTH | FTW_PHYS);
	printf("%d passed, %d failed, %d skipped\n", n - bad - skipped, bad, skipped);
	return bad ? 1 : 0;
}
