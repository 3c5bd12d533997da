/*
 * cpuid: what this process can see of the processor's features, asked in several ways, one line each; with an
 * argument it asks again when /go/go exists.
 */
#define _GNU_SOURCE
#include <cpuid.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void show(const char *who)
{
	unsigned a, b, c, d, b7, c7, d7;
	__cpuid_count(7, 0, a, b7, c7, d7);
	__cpuid(1, a, b, c, d);
	printf("%s: avx %d avx2 %d avx512f %d rdrand %d sse2 %d ht %d hwcap %d\n", who, c >> 28 & 1, b7 >> 5 & 1, b7 >> 16 & 1,
	       c >> 30 & 1, d >> 26 & 1, d >> 28 & 1, (int)(getauxval(AT_HWCAP) >> 28 & 1));
	fflush(stdout);
}

static void *thread(void *arg)
{
	show(arg);
	return NULL;
}

static void handler(int sig) { show(sig == SIGUSR1 ? "handler" : "?"); }

static sigjmp_buf back;
static void fault(int sig, siginfo_t *info, void *u)
{
	printf("hlt: signal %d code %d\n", sig, info->si_code);
	siglongjmp(back, 1);
}

/* The instruction is the last one before a hole. */
static void at_the_end(void)
{
	long page = sysconf(_SC_PAGESIZE);
	unsigned char *p = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(p + page, page);
	memcpy(p + page - 4, "\x66\x48\x0f\xa2", 4);
	mprotect(p, page, PROT_READ | PROT_EXEC);
	struct sigaction sa = {.sa_sigaction = fault, .sa_flags = SA_SIGINFO}, old;
	sigaction(SIGSEGV, &sa, &old);
	unsigned a = 7, b = ~0u, c = 0, d;
	if (sigsetjmp(back, 1) == 0) /* runs into the hole behind it */
		__asm__ volatile("jmp *%4" : "+a"(a), "=b"(b), "+c"(c), "=d"(d) : "r"(p + page - 4));
	sigaction(SIGSEGV, &old, NULL);
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "exec") == 0) {
		show("exec");
		return 0;
	}
	show("main");
	pthread_t t;
	pthread_create(&t, NULL, thread, "thread");
	pthread_join(t, NULL);
	signal(SIGUSR1, handler);
	raise(SIGUSR1);
	if (fork() == 0) {
		show("fork");
		execl("/proc/self/exe", argv[0], "exec", NULL);
		_exit(1);
	}
	wait(NULL);
	at_the_end();
	struct sigaction sa = {.sa_sigaction = fault, .sa_flags = SA_SIGINFO};
	sigaction(SIGSEGV, &sa, NULL);
	if (sigsetjmp(back, 1) == 0)
		__asm__ volatile("hlt");
	printf("arch_prctl: %ld\n", syscall(SYS_arch_prctl, 0x1011, 0));
	if (argc > 1) {
		puts("ready");
		fflush(stdout);
		while (access("/go/go", F_OK) != 0)
			usleep(20000);
		show("later");
	}
	return 0;
}
