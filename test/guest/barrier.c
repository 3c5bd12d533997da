// barrier: THREADS threads meet at ROUNDS spinning barriers, as OpenMP programs do: a waiting
// thread spins on memory with pauses and gives the CPU away only now and then. Prints the time a
// round took on stderr.
//
//	barrier THREADS ROUNDS
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static atomic_int arrived, round_no;
static int threads, rounds;

static void meet(int r)
{
	if (atomic_fetch_add(&arrived, 1) == threads - 1) {
		atomic_store(&arrived, 0);
		atomic_store(&round_no, r + 1);
		return;
	}
	for (long spins = 1; atomic_load(&round_no) <= r; spins++) {
		__builtin_ia32_pause();
		if (spins % 20000 == 0)
			sched_yield();
	}
}

static void *worker(void *unused)
{
	(void)unused;
	for (int r = 0; r < rounds; r++)
		meet(r);
	return NULL;
}

int main(int argc, char **argv)
{
	struct timespec a, b;
	pthread_t *t;

	if (argc != 3)
		return 2;
	threads = atoi(argv[1]);
	rounds = atoi(argv[2]);
	t = calloc(threads, sizeof *t);
	clock_gettime(CLOCK_MONOTONIC, &a);
	for (int i = 0; i < threads; i++) {
		if (pthread_create(&t[i], NULL, worker, NULL) != 0) {
			fprintf(stderr, "pthread_create failed\n");
			return 1;
		}
	}
	for (int i = 0; i < threads; i++)
		pthread_join(t[i], NULL);
	clock_gettime(CLOCK_MONOTONIC, &b);
	fprintf(stderr, "%.0f\n", ((b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec)) / rounds);
	printf("%d threads met %d times\n", threads, atomic_load(&round_no));
	return 0;
}
