/*
 * Cases of what a checkpoint has to carry. A case sets something up, calls hold(), and checks afterwards that
 * all is as it was. It does not know whether anything happened meanwhile: without a checkpoint it passes as well.
 * Each case runs in a process of its own, which leads a process group, in an empty directory of its own.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct carried {
	const char *name;
	void (*run)(void);
	struct carried *next;
};
extern struct carried *carried;

/* CASE(name) { ... } defines a case and puts it on the list. */
#define CASE(n) \
	static void case_##n(void); \
	static struct carried entry_##n = {#n, case_##n, NULL}; \
	__attribute__((constructor)) static void add_##n(void) { entry_##n.next = carried; carried = &entry_##n; } \
	static void case_##n(void)

/* check ends the process with a message unless cond holds. */
#define check(cond) ((cond) ? (void)0 : failed(__FILE__, __LINE__, #cond))
_Noreturn void failed(const char *file, int line, const char *what);

/* equal checks a number and tells what it is instead. */
#define equal(got, want) same(__FILE__, __LINE__, #got, (long)(got), (long)(want))
void same(const char *file, int line, const char *what, long got, long want);

/* skip ends the process: the kernel, or this configuration of it, does not have what the case is about. */
_Noreturn void skip(const char *why);

/* hold says that all is set up and returns when the case may go on. */
void hold(void);

/* released returns when hold would; for other processes and threads of the case. */
void released(void);

/* go_of_carry is the descriptor whose end of file releases. */
int go_of_carry(void);

/* settle waits until a thread of any process sleeps. */
void settle(pid_t tid);

/* start runs fn in a child that ends with 0 if it returns. */
pid_t start(void (*fn)(void *), void *arg);

/* ended waits for a child and checks that it ended with 0. */
void ended(pid_t pid);

/* thread runs fn in a thread and tells its id. */
pid_t thread(pthread_t *t, void *(*fn)(void *), void *arg);

/* content checks what a descriptor has from its offset on. */
void content(int fd, const char *want);

/* seconds of a clock. */
double now(clockid_t clock);

/* random fills memory with a pattern, pattern_is checks it. */
void pattern(void *p, size_t n, uint64_t seed);
int pattern_is(const void *p, size_t n, uint64_t seed);

/* outside is a directory of the host, "" without one. */
extern const char *outside;
