/* Futexes: waiters, priority inheritance, robust lists, and what the library makes of them. */
#include "carry.h"
#include <linux/futex.h>
#include <semaphore.h>

static long futex(volatile int *p, int op, int val, const struct timespec *ts, volatile int *q, int val3)
{
	return syscall(SYS_futex, p, op, val, ts, q, val3);
}

static volatile int word[8];
static volatile int woken;

static void *waits(void *arg)
{
	equal(futex(&word[0], FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0), 0);
	__atomic_fetch_add(&woken, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

/* The word changes before the checkpoint; the waiters stay. */
CASE(futex_wait)
{
	pthread_t t[3];
	for (int i = 0; i < 3; i++)
		settle(thread(&t[i], waits, NULL));
	word[0] = 1;
	hold();
	equal(woken, 0);
	equal(futex(&word[0], FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0), 1);
	equal(futex(&word[0], FUTEX_WAKE_PRIVATE, 10, NULL, NULL, 0), 2);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
}

static void *waits_for_bit(void *arg)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	ts.tv_sec += 1000;
	equal(futex(&word[0], FUTEX_WAIT_BITSET_PRIVATE, 0, &ts, NULL, 1 << (intptr_t)arg), 0);
	__atomic_fetch_or(&woken, 1 << (intptr_t)arg, __ATOMIC_SEQ_CST);
	return NULL;
}

CASE(futex_bitset)
{
	pthread_t t[2];
	for (int i = 0; i < 2; i++)
		settle(thread(&t[i], waits_for_bit, (void *)(intptr_t)i));
	hold();
	equal(futex(&word[0], FUTEX_WAKE_BITSET_PRIVATE, 10, NULL, NULL, 2), 1);
	pthread_join(t[1], NULL);
	equal(woken, 2);
	equal(futex(&word[0], FUTEX_WAKE_BITSET_PRIVATE, 10, NULL, NULL, 1), 1);
	pthread_join(t[0], NULL);
}

CASE(futex_requeued)
{
	pthread_t t[2];
	for (int i = 0; i < 2; i++)
		settle(thread(&t[i], waits, NULL));
	equal(futex(&word[0], FUTEX_CMP_REQUEUE_PRIVATE, 0, (void *)10L, &word[1], 0), 2);
	hold();
	equal(futex(&word[0], FUTEX_WAKE_PRIVATE, 10, NULL, NULL, 0), 0);
	equal(futex(&word[1], FUTEX_WAKE_PRIVATE, 10, NULL, NULL, 0), 2);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
}

static void *times_out(void *arg)
{
	struct timespec ts = {0, 400000000};
	double t = now(CLOCK_MONOTONIC);
	check(futex(&word[0], FUTEX_WAIT_PRIVATE, 0, &ts, NULL, 0) == -1 && errno == ETIMEDOUT);
	check(now(CLOCK_MONOTONIC) - t >= 0.39);
	return NULL;
}

CASE(futex_timeout)
{
	pthread_t t;
	settle(thread(&t, times_out, NULL));
	hold();
	pthread_join(t, NULL);
}

/* Between processes, over shared memory and over a file. */
static void waits_shared(void *arg) { equal(futex(arg, FUTEX_WAIT, 0, NULL, NULL, 0), 0); }

CASE(futex_shared)
{
	volatile int *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int fd = open("f", O_RDWR | O_CREAT, 0600);
	check(ftruncate(fd, 4096) == 0);
	volatile int *q = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	volatile int *again = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	pid_t a = start(waits_shared, (void *)p), b = start(waits_shared, (void *)q);
	settle(a), settle(b);
	hold();
	equal(futex(p, FUTEX_WAKE, 10, NULL, NULL, 0), 1);
	equal(futex(again, FUTEX_WAKE, 10, NULL, NULL, 0), 1);
	ended(a), ended(b);
}

static pthread_mutex_t pi, robust;
static pthread_mutexattr_t attr;

static void *locks_pi(void *arg)
{
	equal(pthread_mutex_lock(&pi), 0);
	woken++;
	equal(pthread_mutex_unlock(&pi), 0);
	return NULL;
}

CASE(futex_pi)
{
	pthread_t t[2];
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(&pi, &attr);
	if (pthread_mutex_lock(&pi) != 0)
		skip("futexes with priority inheritance");
	for (int i = 0; i < 2; i++)
		settle(thread(&t[i], locks_pi, NULL));
	hold();
	equal(woken, 0);
	equal(pthread_mutex_trylock(&pi), EBUSY);
	equal(pthread_mutex_unlock(&pi), 0);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	equal(woken, 2);
}

static void *dies_with_lock(void *arg)
{
	equal(pthread_mutex_lock(&robust), 0);
	*(volatile int *)arg = 1;
	released();
	return NULL;
}

static void *gets_dead_lock(void *arg)
{
	equal(pthread_mutex_lock(&robust), EOWNERDEAD);
	equal(pthread_mutex_consistent(&robust), 0);
	equal(pthread_mutex_unlock(&robust), 0);
	return NULL;
}

CASE(futex_robust)
{
	pthread_t owner, waiter;
	volatile int up = 0;
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&robust, &attr);
	thread(&owner, dies_with_lock, (void *)&up);
	while (!up)
		usleep(1000);
	settle(thread(&waiter, gets_dead_lock, NULL));
	hold();
	pthread_join(waiter, NULL);
	pthread_join(owner, NULL);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t barrier;
static sem_t sem;
static int told;

static void *on_cond(void *arg)
{
	pthread_mutex_lock(&mutex);
	while (!told)
		pthread_cond_wait(&cond, &mutex);
	pthread_mutex_unlock(&mutex);
	return NULL;
}
static void *on_rw(void *arg) { return pthread_rwlock_wrlock(&rw), pthread_rwlock_unlock(&rw), NULL; }
static void *on_barrier(void *arg) { return pthread_barrier_wait(&barrier), NULL; }
static void *on_sem(void *arg) { return sem_wait(&sem), NULL; }
static void *joins(void *arg) { return pthread_join(*(pthread_t *)arg, NULL), NULL; }

CASE(futex_library)
{
	pthread_t t[5];
	pthread_barrier_init(&barrier, NULL, 2);
	sem_init(&sem, 0, 0);
	pthread_rwlock_rdlock(&rw);
	settle(thread(&t[0], on_cond, NULL)), settle(thread(&t[1], on_rw, NULL)), settle(thread(&t[2], on_barrier, NULL));
	settle(thread(&t[3], on_sem, NULL)), settle(thread(&t[4], joins, &t[0]));
	hold();
	pthread_rwlock_unlock(&rw);
	pthread_barrier_wait(&barrier);
	sem_post(&sem);
	pthread_mutex_lock(&mutex);
	told = 1;
	pthread_cond_broadcast(&cond);
	pthread_mutex_unlock(&mutex);
	for (int i = 1; i < 5; i++)
		pthread_join(t[i], NULL);
}

/* The word that a thread's end clears. */
static int ends(void *arg)
{
	char c;
	while (read(go_of_carry(), &c, 1) < 0)
		;
	syscall(SYS_exit, 0);
	return 0;
}

CASE(futex_cleared_at_exit)
{
	static char stack[65536];
	word[3] = 1;
	pid_t tid = clone(ends, stack + sizeof stack, CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_CHILD_CLEARTID | CLONE_CHILD_SETTID, NULL, NULL, NULL, (void *)&word[3]);
	check(tid > 0);
	hold();
	for (int v; (v = word[3]) != 0;)
		futex(&word[3], FUTEX_WAIT, v, NULL, NULL, 0);
}
