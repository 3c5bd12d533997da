// Tells from inside how a checkpoint and a restore went: touches MIB mebibytes, then looks at the clocks every PERIOD
// microseconds, 0 for all the time, and writes to FILE, a line for each, with times of CLOCK_REALTIME in ns:
//
//	ready TIME      when it begins
//	gap NS          at SIGUSR1: the longest time between two looks since the last SIGUSR1, less the period
//	restored TIME   with a period: when a look comes 250 ms after the last, which is taken for a restore
//	whole TIME      thereafter, when all memory was read and is right
//
//	saved MIB PERIOD FILE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { RESTORED = 250000000 };

static const char *file;
static volatile sig_atomic_t asked;

static void ask(int sig)
{
	(void)sig;
	asked = 1;
}

static int64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void say(const char *what, int64_t n)
{
	char line[64];
	int len = snprintf(line, sizeof line, "%s %lld\n", what, (long long)n);
	int fd = open(file, O_WRONLY | O_CREAT | O_APPEND, 0666);

	if (fd < 0 || write(fd, line, len) != len)
		perror(file);
	close(fd);
}

int main(int argc, char **argv)
{
	if (argc < 4) {
		fprintf(stderr, "usage: saved MIB PERIOD FILE\n");
		return 2;
	}
	file = argv[3];

	size_t words = (strtoul(argv[1], NULL, 10) << 20) / sizeof(uint64_t);
	struct timespec period = {0, strtol(argv[2], NULL, 10) * 1000};
	uint64_t *p = NULL;

	if (words) {
		p = mmap(NULL, words * sizeof *p, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (p == MAP_FAILED) {
			perror("mmap");
			return 1;
		}
		for (size_t i = 0; i < words; i++)
			p[i] = i * 0x9e3779b97f4a7c15;
	}
	signal(SIGUSR1, ask);

	int64_t last = now(), gap = 0;

	for (say("ready", last);;) {
		if (period.tv_nsec)
			nanosleep(&period, NULL);

		int64_t t = now(), took = t - last - period.tv_nsec;

		if (period.tv_nsec && took > RESTORED) {
			say("restored", t);
			for (size_t i = 0; i < words; i++)
				if (p[i] != i * 0x9e3779b97f4a7c15) {
					say("damaged", i);
					return 1;
				}
			say("whole", now());
			took = 0;
		}
		if (took > gap)
			gap = took;
		if (asked) {
			asked = 0;
			say("gap", gap);
			gap = 0;
		}
		last = now();
	}
}
