// Times calls on the files of a directory, DIR, in which it makes what it needs and leaves it. Prints a line for each, the
// median of several batches in ns:
//
//	getdents-N NS     for an entry, of a directory with N that is read again and again through one descriptor
//	stat NS, open+close NS, create+unlink NS
//
//	dirs DIR
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { BATCHES = 7 };

static char buf[64 << 10];
static int dir; // DIR/dirs-N

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

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

// measure prints the median time of one of the units that each call of f handles.
static void measure(const char *name, void (*f)(void), double units)
{
	double t[BATCHES], start = now();
	long calls = 1;

	f();
	for (;; calls *= 2) { // until a batch takes 20 ms
		start = now();
		for (long i = 0; i < calls; i++)
			f();
		if (now() - start > 20e6)
			break;
	}
	for (int b = 0; b < BATCHES; b++) {
		start = now();
		for (long i = 0; i < calls; i++)
			f();
		t[b] = (now() - start) / calls / units;
	}
	qsort(t, BATCHES, sizeof *t, compare);
	printf("%s %.1f\n", name, t[BATCHES / 2]);
}

static void list(void)
{
	long n;

	if (lseek(dir, 0, SEEK_SET) != 0)
		die("lseek");
	while ((n = syscall(SYS_getdents64, dir, buf, sizeof buf)) > 0)
		;
	if (n < 0)
		die("getdents64");
}

static void look(void)
{
	struct stat st;

	if (fstatat(dir, "file0000", &st, 0) != 0)
		die("stat");
}

static void open_close(void)
{
	int fd = openat(dir, "file0000", O_RDONLY);

	if (fd < 0)
		die("open");
	close(fd);
}

static void create(void)
{
	int fd = openat(dir, "new", O_WRONLY | O_CREAT | O_EXCL, 0600);

	if (fd < 0)
		die("create");
	close(fd);
	if (unlinkat(dir, "new", 0) != 0)
		die("unlink");
}

int main(int argc, char **argv)
{
	if (argc < 2 || chdir(argv[1]) != 0) {
		fprintf(stderr, "usage: dirs DIR\n");
		return 2;
	}
	for (int n = 1; n <= 4096; n *= 4) {
		char name[32];

		snprintf(name, sizeof name, "dirs-%d", n);
		if (mkdir(name, 0777) != 0 && errno != EEXIST)
			die(name);
		dir = open(name, O_RDONLY | O_DIRECTORY);
		if (dir < 0)
			die(name);
		for (int i = 0; i < n; i++) {
			char f[32];

			snprintf(f, sizeof f, "file%04d", i);
			close(openat(dir, f, O_WRONLY | O_CREAT, 0666));
		}
		snprintf(name, sizeof name, "getdents-%d", n);
		measure(name, list, n + 2);
		if (n < 4096) {
			close(dir);
			continue;
		}
		measure("stat", look, 1);
		measure("open+close", open_close, 1);
		measure("create+unlink", create, 1);
	}
	return 0;
}
