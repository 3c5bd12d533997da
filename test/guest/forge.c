// forge: enters the kernel in ways that programs do not, and hands it forged signal frames; each in
// a child of its own, whose fate goes to stderr. Whatever becomes of a child, the program itself and
// its surroundings are to be unharmed: it prints "all done" at the end.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static void int80(long nr, long a, long b, long c)
{
	long ret;

	__asm__ volatile("int $0x80" : "=a"(ret) : "a"(nr), "b"(a), "c"(b), "d"(c) : "memory", "r8", "r9", "r10", "r11");
	fprintf(stderr, "%ld ", ret);
}

static void i386_getpid(void) { int80(20, 0, 0, 0); }
static void i386_open(void) { int80(5, 0x1000, 0102, 0644); }
static void i386_mmap2(void) { int80(192, 0x20000000, 4096, 7); }
static void i386_exit(void) { int80(1, 0, 0, 0); }
static void x32_getpid(void) { fprintf(stderr, "%ld ", syscall(0x40000000 | SYS_getpid)); }
static void huge_number(void) { fprintf(stderr, "%ld ", syscall(-1L) + syscall(0x7fffffffffffffff) + syscall(1L << 32 | SYS_getpid)); }
static void vsyscall(void)
{
	struct timespec t;

	((long (*)(void *, void *))0xffffffffff600000)(&t, NULL);
}
static void modify_ldt(void)
{
	unsigned desc[4] = {0, 0, 0xfffff, 0x51};

	fprintf(stderr, "%ld ", syscall(SYS_modify_ldt, 1, desc, sizeof desc));
}
static void sysenter(void) { __asm__ volatile("mov %%rsp, %%rbp\n\tsysenter" : : "a"(20L) : "memory"); }
static void wrfsbase(void) { __asm__ volatile("wrfsbase %0" : : "r"(0x1000L)); }
static void wrgsbase(void) { __asm__ volatile("wrgsbase %0" : : "r"(0x1000L)); }
static void null_selectors(void) { __asm__ volatile("mov %0, %%fs\n\tmov %0, %%gs\n\tmov %0, %%ds\n\tmov %0, %%es" : : "r"(0)); }
static void single_step(void) { __asm__ volatile("pushf\n\torl $0x100, (%%rsp)\n\tpopf\n\tnop\n\tnop" : : : "memory", "cc"); }
static void alignment_check(void) { __asm__ volatile("pushf\n\torl $0x40000, (%%rsp)\n\tpopf" : : : "memory", "cc"); getpid(); }
static void backwards(void) { __asm__ volatile("std"); getpid(); fork(); }
static void no_stack(void) { __asm__ volatile("xor %%esp, %%esp\n\tmov $39, %%eax\n\tsyscall\n\thlt" : : : "memory"); }
static void kernel_stack(void) { __asm__ volatile("mov $-4096, %%rsp\n\tmov $39, %%eax\n\tsyscall\n\tpush %%rax" : : : "memory"); }

// upper maps, unmaps and protects where the guest has no business.
static void upper(void)
{
	for (uintptr_t a = 0x7ff000000000; a < 0x800000000000; a += 0x40000000) {
		syscall(SYS_munmap, a, 0x40000000);
		syscall(SYS_mprotect, a, 0x1000, 7);
		syscall(SYS_madvise, a, 0x40000000, MADV_DONTNEED);
	}
	syscall(SYS_mmap, 0x7fffffff0000, 0x10000, 7, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	syscall(SYS_munmap, 0x7fffffffe000, -0x1000L);
	syscall(SYS_mremap, &errno, 0x1000, 0x1000, 3, 0x7fffffff0000);
}

static int variant;

// forge_frame changes the frame that it will return through.
static void forge_frame(int sig, siginfo_t *info, void *ctx)
{
	ucontext_t *uc = ctx;
	greg_t *r = uc->uc_mcontext.gregs;

	(void)sig, (void)info;
	switch (variant) {
	case 0: memset(&uc->uc_sigmask, 0xff, sizeof uc->uc_sigmask); break;
	case 1: r[REG_CSGSFS] = 0x0023002300230023; break;
	case 2: r[REG_CSGSFS] = 0; break;
	case 3: r[REG_CSGSFS] = 0x0010; break;
	case 4: r[REG_RIP] = (greg_t)0x8000000000000000; break;
	case 5: r[REG_RSP] = -8; break;
	case 6: r[REG_EFL] = -1; break;
	case 7: uc->uc_mcontext.fpregs = (void *)0x10; break;
	case 8: uc->uc_mcontext.fpregs = (void *)-64; break;
	case 9: uc->uc_mcontext.fpregs->mxcsr = 0xffffffff; break;
	case 10: memset(uc->uc_mcontext.fpregs, 0xff, 832); break;
	case 11: uc->uc_stack.ss_sp = (void *)0x7fffffff0000; uc->uc_stack.ss_size = -1; break;
	case 12: uc->uc_flags = -1; break;
	case 13: r[REG_RIP] = 0x7fffffffe000; break;
	case 14: memset(uc, 0xff, sizeof *uc); break;
	}
}

static void forged_return(void)
{
	struct sigaction a = {.sa_sigaction = forge_frame, .sa_flags = SA_SIGINFO};

	sigaction(SIGUSR1, &a, NULL);
	raise(SIGUSR1);
	getpid(); // with what the frame gave
	for (volatile int i = 0; i < 1000000; i++)
		;
	*(volatile int *)0 = 0; // perhaps with SIGSEGV blocked
}

// bare_sigreturn returns from no handler, with the stack as it is.
static void bare_sigreturn(void) { syscall(SYS_rt_sigreturn); }

static volatile int stop;
static ucontext_t *volatile frame;

static void *scribble(void *unused)
{
	(void)unused;
	while (!stop)
		if (frame)
			for (unsigned i = 0; i < sizeof *frame / 8; i += 3)
				((volatile uint64_t *)frame)[i] ^= 0x5555000055550000;
	return NULL;
}

static void expose(int sig, siginfo_t *info, void *ctx)
{
	(void)sig, (void)info;
	frame = ctx;
}

// race has a thread scribble over another's frame while it returns.
static void race(void)
{
	struct sigaction a = {.sa_sigaction = expose, .sa_flags = SA_SIGINFO};
	pthread_t t;

	sigaction(SIGUSR1, &a, NULL);
	if (pthread_create(&t, NULL, scribble, NULL) != 0)
		return;
	for (int i = 0; i < 2000; i++)
		raise(SIGUSR1);
	stop = 1;
}

static void *spin(void *unused)
{
	(void)unused;
	for (;;)
		;
	return NULL;
}

// deaf never yields and has every signal blocked; only a kill ends it.
static void deaf(void)
{
	sigset_t all;
	pthread_t t;

	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	pthread_create(&t, NULL, spin, NULL);
	spin(NULL);
}

static void exec_in_thread(void)
{
	pthread_t t;

	for (int i = 0; i < 8; i++)
		pthread_create(&t, NULL, spin, NULL);
	execl("/bin/true", "true", NULL);
}

static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
	{"i386 getpid", i386_getpid}, {"i386 open", i386_open}, {"i386 mmap2", i386_mmap2}, {"i386 exit", i386_exit},
	{"x32 getpid", x32_getpid}, {"huge number", huge_number}, {"vsyscall", vsyscall}, {"modify_ldt", modify_ldt},
	{"sysenter", sysenter}, {"wrfsbase", wrfsbase}, {"wrgsbase", wrgsbase}, {"null selectors", null_selectors},
	{"single step", single_step}, {"alignment check", alignment_check}, {"direction flag", backwards},
	{"no stack", no_stack}, {"kernel stack", kernel_stack}, {"upper addresses", upper},
	{"bare sigreturn", bare_sigreturn}, {"scribbled frame", race}, {"deaf", deaf}, {"exec beside spinners", exec_in_thread},
};

// fate runs one test in a child and kills it after two seconds.
static void fate(const char *name, void (*run)(void))
{
	struct timespec tick = {.tv_nsec = 10000000};
	int status, ticks = 0;
	pid_t pid = fork();

	if (pid == 0) {
		run();
		_exit(0);
	}
	if (pid < 0) {
		perror("fork");
		exit(1);
	}
	while (waitpid(pid, &status, WNOHANG) == 0) {
		nanosleep(&tick, NULL);
		if (++ticks == 200)
			kill(pid, SIGKILL);
		if (ticks == 1000) {
			printf("%s: cannot be killed\n", name);
			exit(1);
		}
	}
	if (WIFSIGNALED(status))
		fprintf(stderr, "%s: signal %d\n", name, WTERMSIG(status));
	else
		fprintf(stderr, "%s: exit %d\n", name, WEXITSTATUS(status));
}

int main(void)
{
	char name[32];

	setvbuf(stderr, NULL, _IONBF, 0);
	for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
		fate(tests[i].name, tests[i].run);
	for (variant = 0; variant < 15; variant++) {
		snprintf(name, sizeof name, "forged frame %d", variant);
		fate(name, forged_return);
	}
	puts("all done");
	return 0;
}
