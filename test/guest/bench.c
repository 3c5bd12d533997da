// bench: times single operations of the kernel it runs on. Each line of output is a name and the
// nanoseconds that one operation takes: the median of BATCHES batches. Arguments select by name.
//
//	bench [NAME...]
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BATCHES 7
#define SCRATCH "/tmp/bench.file"

static char *self;
static char page[4096];
static int fd; // SCRATCH, one page long

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static void do_getpid(long n)
{
	while (n--)
		syscall(SYS_getpid);
}

static void do_clock(long n)
{
	while (n--)
		now();
}

static void do_stat(long n)
{
	struct stat st;

	while (n--)
		if (stat(SCRATCH, &st) < 0)
			die("stat");
}

static void do_open(long n)
{
	while (n--) {
		int f = open(SCRATCH, O_RDONLY);

		if (f < 0)
			die("open");
		close(f);
	}
}

static void do_pread(long n)
{
	while (n--)
		if (pread(fd, page, sizeof page, 0) != sizeof page)
			die("pread");
}

static void do_pwrite(long n)
{
	while (n--)
		if (pwrite(fd, page, sizeof page, 0) != sizeof page)
			die("pwrite");
}

// do_pingpong sends a byte to another process and back.
static void do_pingpong(long n)
{
	int a[2], b[2];
	char c = 0;
	pid_t pid;

	if (pipe(a) < 0 || pipe(b) < 0)
		die("pipe");
	pid = fork();
	if (pid < 0)
		die("fork");
	if (pid == 0) {
		close(a[1]);
		while (read(a[0], &c, 1) == 1)
			if (write(b[1], &c, 1) != 1)
				break;
		_exit(0);
	}
	close(a[0]);
	close(b[1]);
	while (n--)
		if (write(a[1], &c, 1) != 1 || read(b[0], &c, 1) != 1)
			die("pipe ping-pong");
	close(a[1]);
	close(b[0]);
	waitpid(pid, NULL, 0);
}

static void do_socket(long n)
{
	static int s[2] = {-1, -1};
	char c = 0;

	if (s[0] < 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, s) < 0) {
		s[0] = -1;
		die("socketpair");
	}
	while (n--)
		if (write(s[0], &c, 1) != 1 || read(s[1], &c, 1) != 1)
			die("unix socket");
}

static void do_fork(long n)
{
	while (n--) {
		pid_t pid = fork();

		if (pid < 0)
			die("fork");
		if (pid == 0)
			_exit(0);
		waitpid(pid, NULL, 0);
	}
}

static void do_exec(long n)
{
	while (n--) {
		pid_t pid = fork();
		int status;

		if (pid < 0)
			die("fork");
		if (pid == 0) {
			execl(self, self, "--nothing", NULL);
			_exit(127);
		}
		waitpid(pid, &status, 0);
		if (status != 0)
			die("exec");
	}
}

static void *nothing(void *p)
{
	return p;
}

static void do_thread(long n)
{
	while (n--) {
		pthread_t t;

		if (pthread_create(&t, NULL, nothing, NULL) != 0)
			die("pthread_create");
		pthread_join(t, NULL);
	}
}

static char *map(size_t len)
{
	char *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		die("mmap");
	return p;
}

static void do_mmap(long n)
{
	while (n--)
		munmap(map(65536), 65536);
}

static void do_mmap_touched(long n)
{
	while (n--) {
		char *p = map(65536);

		for (int i = 0; i < 65536; i += 4096)
			p[i] = 1;
		munmap(p, 65536);
	}
}

// do_touch touches n pages, in order, of a mapping made for it: the mmap itself counts little.
static void do_touch(long n)
{
	char *p = map(n * 4096);

	for (long i = 0; i < n; i++)
		p[i * 4096] = 1;
	munmap(p, n * 4096);
}

static const struct {
	const char *name;
	void (*run)(long n);
	long n; // operations in a batch
} benches[] = {
	{"getpid", do_getpid, 20000},
	{"clock_gettime", do_clock, 20000},
	{"stat", do_stat, 5000},
	{"open+close", do_open, 3000},
	{"pread-4k", do_pread, 5000},
	{"pwrite-4k", do_pwrite, 5000},
	{"pipe-pingpong", do_pingpong, 1000},
	{"unix-socket", do_socket, 3000},
	{"fork+wait", do_fork, 50},
	{"fork+exec+wait", do_exec, 30},
	{"thread+join", do_thread, 200},
	{"mmap+munmap-64k", do_mmap, 2000},
	{"mmap+munmap-64k-touched", do_mmap_touched, 200},
	{"first-touch-page", do_touch, 4096},
};

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static int selected(const char *name, int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], name) == 0)
			return 1;
	return argc < 2;
}

int main(int argc, char **argv)
{
	int failed = 0;

	if (argc > 1 && strcmp(argv[1], "--nothing") == 0)
		return 0;
	self = argv[0];
	fd = open(SCRATCH, O_CREAT | O_RDWR, 0644);
	if (fd < 0 || write(fd, page, sizeof page) != sizeof page)
		die(SCRATCH);
	for (size_t i = 0; i < sizeof benches / sizeof benches[0]; i++) {
		int status;
		pid_t pid;

		if (!selected(benches[i].name, argc, argv))
			continue;
		fflush(stdout);
		pid = fork(); // what one leaves behind does not weigh on the next
		if (pid < 0)
			die("fork");
		if (pid == 0) {
			double took[BATCHES];

			benches[i].run(benches[i].n / 10 + 1);
			for (int b = 0; b < BATCHES; b++) {
				double start = now();

				benches[i].run(benches[i].n);
				took[b] = (now() - start) / benches[i].n;
			}
			qsort(took, BATCHES, sizeof took[0], compare);
			printf("%s %.0f\n", benches[i].name, took[BATCHES / 2]);
			fflush(stdout);
			_exit(0);
		}
		waitpid(pid, &status, 0);
		if (status != 0)
			failed = 1;
	}
	unlink(SCRATCH);
	return failed;
}
