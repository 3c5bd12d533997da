// process: checks of signals, exec, credentials and futexes that need bare system calls. It passes on
// Linux as root; the kernel's tests run it in the sandbox. With an argument it is one of its own children.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define CHECK(c) do { if (!(c)) { printf("FAIL %s:%d: %s (errno %d)\n", __func__, __LINE__, #c, errno); _exit(1); } } while (0)

static char *self;

static void handle(int sig, void (*f)(int, siginfo_t *, void *), int flags)
{
	struct sigaction sa = { .sa_sigaction = f, .sa_flags = flags | SA_SIGINFO };

	CHECK(sigaction(sig, &sa, NULL) == 0);
}

static volatile int got, nested, deepest;
static volatile siginfo_t last;
static volatile uintptr_t frame;

static void note(int sig, siginfo_t *si, void *uc)
{
	got++;
	last = *si;
	frame = (uintptr_t)__builtin_frame_address(0);
}

static void again(int sig, siginfo_t *si, void *uc)
{
	nested++;
	if (nested > deepest)
		deepest = nested;
	if (++got < 3)
		raise(sig);
	nested--;
}

static void info(void)
{
	handle(SIGUSR1, note, 0);
	got = 0;
	kill(getpid(), SIGUSR1);
	CHECK(got == 1 && last.si_signo == SIGUSR1 && last.si_code == SI_USER && last.si_pid == getpid() && last.si_uid == getuid());
	syscall(SYS_tgkill, getpid(), gettid(), SIGUSR1);
	CHECK(got == 2 && last.si_code == SI_TKILL);
	union sigval v = { .sival_int = 4711 };
	sigqueue(getpid(), SIGUSR1, v);
	CHECK(got == 3 && last.si_code == SI_QUEUE && last.si_value.sival_int == 4711);
}

static void nodefer(void)
{
	handle(SIGUSR1, again, 0);
	got = deepest = nested = 0;
	raise(SIGUSR1);
	CHECK(got == 3 && deepest == 1);
	handle(SIGUSR1, again, SA_NODEFER);
	got = deepest = nested = 0;
	raise(SIGUSR1);
	CHECK(got == 3 && deepest == 3);
	handle(SIGUSR1, note, SA_RESETHAND);
	raise(SIGUSR1);
	struct sigaction sa;
	sigaction(SIGUSR1, NULL, &sa);
	CHECK(sa.sa_handler == SIG_DFL);
}

static char alt[64 << 10] __attribute__((aligned(16)));

static void altstack(void)
{
	stack_t ss = { .ss_sp = alt, .ss_size = sizeof alt }, old;

	CHECK(sigaltstack(&ss, NULL) == 0);
	handle(SIGUSR1, note, SA_ONSTACK);
	raise(SIGUSR1);
	CHECK(frame > (uintptr_t)alt && frame <= (uintptr_t)alt + sizeof alt);
	CHECK(sigaltstack(NULL, &old) == 0 && old.ss_sp == alt && old.ss_flags == 0);
	ss.ss_size = 100;
	CHECK(sigaltstack(&ss, NULL) == -1 && errno == ENOMEM);
	ss.ss_flags = SS_DISABLE;
	CHECK(sigaltstack(&ss, NULL) == 0);
	CHECK(sigaltstack(NULL, &old) == 0 && old.ss_flags == SS_DISABLE);
}

// overflow recovers from a stack overflow on the alternate stack.
static sigjmp_buf back;

static void jump(int sig, siginfo_t *si, void *uc)
{
	last = *si;
	siglongjmp(back, 1);
}

__attribute__((noinline)) static int recurse(int n)
{
	volatile char pad[4096];

	pad[0] = n;
	return recurse(n + 1) + pad[0];
}

static void overflow(void)
{
	stack_t ss = { .ss_sp = alt, .ss_size = sizeof alt };

	CHECK(sigaltstack(&ss, NULL) == 0);
	handle(SIGSEGV, jump, SA_ONSTACK);
	if (sigsetjmp(back, 1) == 0) {
		recurse(0);
		CHECK(!"overflow");
	}
	signal(SIGSEGV, SIG_DFL);
	ss.ss_flags = SS_DISABLE;
	sigaltstack(&ss, NULL);
}

static void faults(void)
{
	char *p = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	handle(SIGSEGV, jump, 0);
	if (sigsetjmp(back, 1) == 0) {
		*(volatile char *)p = 1;
		CHECK(!"write");
	}
	CHECK(last.si_code == SEGV_ACCERR && last.si_addr == p);
	munmap(p, 8192);
	if (sigsetjmp(back, 1) == 0) {
		*(volatile char *)(p + 5) = 1;
		CHECK(!"write");
	}
	CHECK(last.si_code == SEGV_MAPERR && last.si_addr == p + 5);
	int fd = open("/tmp/short", O_CREAT | O_RDWR | O_TRUNC, 0600);
	CHECK(fd >= 0 && ftruncate(fd, 4096) == 0);
	p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	handle(SIGBUS, jump, 0);
	if (sigsetjmp(back, 1) == 0) {
		*(volatile char *)(p + 4096) = 1;
		CHECK(!"write beyond the end");
	}
	CHECK(last.si_signo == SIGBUS && last.si_code == BUS_ADRERR && last.si_addr == p + 4096);
	handle(SIGFPE, jump, 0);
	if (sigsetjmp(back, 1) == 0) {
		volatile int zero = 0;
		volatile int x = 100 / zero;
		(void)x;
		CHECK(!"division");
	}
	CHECK(last.si_signo == SIGFPE && last.si_code == FPE_INTDIV);
	signal(SIGSEGV, SIG_DFL), signal(SIGBUS, SIG_DFL), signal(SIGFPE, SIG_DFL);
	// A blocked fault kills.
	pid_t pid = fork();
	if (pid == 0) {
		sigset_t s;
		handle(SIGSEGV, jump, 0);
		sigfillset(&s);
		sigprocmask(SIG_BLOCK, &s, NULL);
		*(volatile char *)0 = 1;
		_exit(0);
	}
	int st;
	waitpid(pid, &st, 0);
	CHECK(WIFSIGNALED(st) && WTERMSIG(st) == SIGSEGV);
}

// floats: FP registers survive a handler that changes them.
static void clobber(int sig, siginfo_t *si, void *uc)
{
	volatile double d = 0;

	for (int i = 0; i < 1000; i++)
		d += i * 1.5;
	__asm__ volatile("pxor %%xmm0, %%xmm0; pxor %%xmm7, %%xmm7; fldz; fldz" ::: "xmm0", "xmm7");
	__asm__ volatile("fninit");
	got++;
	if (((ucontext_t *)uc)->uc_mcontext.fpregs == NULL)
		_exit(3);
}

static void floats(void)
{
	unsigned long a, b;
	double x = 0;

	handle(SIGUSR1, clobber, 0);
	got = 0;
	__asm__ volatile(
		"mov $0x1122334455667788, %%rax; movq %%rax, %%xmm7\n"
		"fldpi\n"
		"sub $128, %%rsp; movq $0x77, (%%rsp); add $128, %%rsp\n" // the red zone
		"mov $39, %%eax; syscall\n"
		"mov %%eax, %%edi; mov $10, %%esi; mov $62, %%eax; syscall\n"
		"movq %%xmm7, %0\n"
		"fstpl %2\n"
		"mov -128(%%rsp), %1\n"
		: "=r"(a), "=r"(b), "=m"(x) :: "rax", "rcx", "r11", "rdi", "rsi", "xmm7", "memory");
	CHECK(got == 1);
	CHECK(a == 0x1122334455667788);
	CHECK(x > 3.14159 && x < 3.1416);
	CHECK(b == 0x77);
}

// context: a handler may change the registers that it returns to.
static void skip(int sig, siginfo_t *si, void *uc)
{
	((ucontext_t *)uc)->uc_mcontext.gregs[REG_RIP] += 2; // ud2
	((ucontext_t *)uc)->uc_mcontext.gregs[REG_RAX] = 99;
	got++;
}

static void context(void)
{
	long rax = 0;

	handle(SIGILL, skip, 0);
	got = 0;
	__asm__ volatile("ud2" : "+a"(rax));
	CHECK(got == 1 && rax == 99);
	signal(SIGILL, SIG_DFL);
}

static void masks(void)
{
	sigset_t s, old, p;

	handle(SIGUSR1, note, 0);
	sigemptyset(&s);
	sigaddset(&s, SIGUSR1);
	CHECK(sigprocmask(SIG_BLOCK, &s, &old) == 0);
	got = 0;
	raise(SIGUSR1);
	raise(SIGUSR1);
	CHECK(got == 0 && sigpending(&p) == 0 && sigismember(&p, SIGUSR1));
	CHECK(sigsuspend(&old) == -1 && errno == EINTR && got == 1);
	CHECK(sigprocmask(SIG_BLOCK, NULL, &p) == 0 && sigismember(&p, SIGUSR1));
	sigprocmask(SIG_SETMASK, &old, NULL);
	CHECK(got == 1);
}

static void ignore_alarm(int sig, siginfo_t *si, void *uc) { got++; }

static void restarts(void)
{
	int fds[2];
	char c;
	struct itimerval it = { .it_value = { 0, 20000 } };

	CHECK(pipe(fds) == 0);
	handle(SIGALRM, ignore_alarm, 0);
	setitimer(ITIMER_REAL, &it, NULL);
	CHECK(read(fds[0], &c, 1) == -1 && errno == EINTR);
	handle(SIGALRM, ignore_alarm, SA_RESTART);
	setitimer(ITIMER_REAL, &it, NULL);
	pid_t pid = fork();
	if (pid == 0) {
		usleep(80000);
		write(fds[1], "x", 1);
		_exit(0);
	}
	CHECK(read(fds[0], &c, 1) == 1);
	waitpid(pid, NULL, 0);
	// nanosleep: EINTR with what is left, whatever SA_RESTART says.
	struct timespec ts = { 1, 0 }, rem = { 0, 0 };
	setitimer(ITIMER_REAL, &it, NULL);
	CHECK(nanosleep(&ts, &rem) == -1 && errno == EINTR && rem.tv_sec == 0 && rem.tv_nsec > 500000000);
	// A stop and continue is invisible.
	pid = fork();
	if (pid == 0) {
		usleep(20000);
		kill(getppid(), SIGSTOP);
		usleep(20000);
		kill(getppid(), SIGCONT);
		_exit(0);
	}
	struct timespec a, b;
	clock_gettime(CLOCK_MONOTONIC, &a);
	ts = (struct timespec){ 0, 150000000 };
	if (getpid() != 1)
		CHECK(nanosleep(&ts, &rem) == 0);
	clock_gettime(CLOCK_MONOTONIC, &b);
	CHECK((b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000 >= 149);
	waitpid(pid, NULL, 0);
}

static void execs(void)
{
	int st;
	pid_t pid;

	// Ignored signals stay ignored, handlers do not; the mask and pending signals stay.
	handle(SIGUSR1, note, 0);
	signal(SIGUSR2, SIG_IGN);
	pid = fork();
	if (pid == 0) {
		sigset_t s;
		sigemptyset(&s);
		sigaddset(&s, SIGHUP);
		sigprocmask(SIG_BLOCK, &s, NULL);
		raise(SIGHUP);
		dup2(1, 77);
		dup2(1, 78);
		fcntl(78, F_SETFD, FD_CLOEXEC);
		execl(self, self, "state", NULL);
		_exit(9);
	}
	waitpid(pid, &st, 0);
	CHECK(WIFEXITED(st) && WEXITSTATUS(st) == 0);
	signal(SIGUSR2, SIG_DFL);
	CHECK(execl("/nosuch", "x", NULL) == -1 && errno == ENOENT);
	CHECK(execl("/tmp", "x", NULL) == -1 && errno == EACCES);
	int fd = open("/tmp/text", O_CREAT | O_WRONLY | O_TRUNC, 0755);
	CHECK(write(fd, "hello", 5) == 5);
	close(fd);
	CHECK(execl("/tmp/text", "x", NULL) == -1 && errno == ENOEXEC);
	// vfork: the parent waits for exec, a failed one leaves it intact.
	pid = vfork();
	if (pid == 0) {
		execl(self, self, "true", NULL);
		_exit(9);
	}
	waitpid(pid, &st, 0);
	CHECK(st == 0);
	char *big = malloc(200 << 10);
	memset(big, 'x', 200 << 10);
	big[(200 << 10) - 1] = 0;
	CHECK(execl(self, self, big, NULL) == -1 && errno == E2BIG);
}

static int state(void)
{
	struct sigaction sa;
	sigset_t s, p;

	sigaction(SIGUSR1, NULL, &sa);
	CHECK(sa.sa_handler == SIG_DFL);
	sigaction(SIGUSR2, NULL, &sa);
	CHECK(sa.sa_handler == SIG_IGN);
	sigprocmask(SIG_BLOCK, NULL, &s);
	sigpending(&p);
	CHECK(sigismember(&s, SIGHUP) && sigismember(&p, SIGHUP));
	CHECK(fcntl(77, F_GETFD) == 0);
	CHECK(fcntl(78, F_GETFD) == -1 && errno == EBADF);
	char name[16];
	prctl(PR_GET_NAME, name);
	CHECK(strcmp(name, strrchr(self, '/') + 1) == 0);
	CHECK(getauxval(AT_SECURE) == 0);
	return 0;
}

static uint64_t caps(int which)
{
	struct __user_cap_header_struct h = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct d[2];

	CHECK(syscall(SYS_capget, &h, d) == 0);
	return which ? d[0].permitted | (uint64_t)d[1].permitted << 32 : d[0].effective | (uint64_t)d[1].effective << 32;
}

static void creds(void)
{
	int st;
	pid_t pid = fork();

	if (pid == 0) {
		CHECK(setresuid(-1, 1000, -1) == 0 && caps(0) == 0 && caps(1) != 0);
		CHECK(seteuid(0) == 0 && caps(0) != 0);
		CHECK(setgroups(0, NULL) == 0);
		CHECK(setgid(1000) == 0 && setuid(1000) == 0);
		CHECK(caps(1) == 0 && setuid(0) == -1 && errno == EPERM);
		CHECK(kill(1, 0) == -1 && errno == EPERM);
		_exit(0);
	}
	waitpid(pid, &st, 0);
	CHECK(st == 0);
	// set-user-ID, and what no_new_privs does to it.
	char cmd[300];
	snprintf(cmd, sizeof cmd, "cp %s /tmp/suid && chmod 4755 /tmp/suid", self);
	CHECK(system(cmd) == 0);
	for (int nnp = 0; nnp < 2; nnp++) {
		pid = fork();
		if (pid == 0) {
			CHECK(setgid(1000) == 0 && setuid(1000) == 0);
			if (nnp)
				CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
			execl("/tmp/suid", "/tmp/suid", nnp ? "plain" : "suid", NULL);
			_exit(9);
		}
		waitpid(pid, &st, 0);
		CHECK(WIFEXITED(st) && WEXITSTATUS(st) == 0);
	}
	// Ambient capabilities.
	pid = fork();
	if (pid == 0) {
		CHECK(prctl(PR_SET_KEEPCAPS, 1) == 0 && setuid(1000) == 0);
		struct __user_cap_header_struct h = { _LINUX_CAPABILITY_VERSION_3, 0 };
		struct __user_cap_data_struct d[2] = { { 1 << 10, 1 << 10, 1 << 10 } };
		CHECK(syscall(SYS_capset, &h, d) == 0);
		CHECK(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 10, 0, 0) == 0);
		CHECK(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 11, 0, 0) == -1 && errno == EPERM);
		execl(self, self, "ambient", NULL);
		_exit(9);
	}
	waitpid(pid, &st, 0);
	CHECK(WIFEXITED(st) && WEXITSTATUS(st) == 0);
}

static int suid(void)
{
	CHECK(getuid() == 1000 && geteuid() == 0 && getauxval(AT_SECURE) == 1 && caps(0) != 0);
	return 0;
}

static int plain(void)
{
	CHECK(getuid() == 1000 && geteuid() == 1000 && getauxval(AT_SECURE) == 0 && caps(1) == 0);
	return 0;
}

static int ambient(void)
{
	CHECK(getuid() == 1000 && caps(0) == 1 << 10 && caps(1) == 1 << 10);
	return 0;
}

// robust: a mutex whose owner died tells so.
static void robust(void)
{
	pthread_mutexattr_t a;
	pthread_mutex_t *m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	for (int pi = 0; pi < 2; pi++) {
		pthread_mutexattr_init(&a);
		pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
		pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
		if (pi)
			pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT);
		CHECK(pthread_mutex_init(m, &a) == 0);
		int fds[2];
		char c;
		CHECK(pipe(fds) == 0);
		pid_t pid = fork();
		if (pid == 0) {
			CHECK(pthread_mutex_lock(m) == 0 && write(fds[1], "x", 1) == 1);
			usleep(50000); // so that the parent waits
			_exit(0);
		}
		CHECK(read(fds[0], &c, 1) == 1);
		CHECK(pthread_mutex_lock(m) == EOWNERDEAD);
		CHECK(pthread_mutex_consistent(m) == 0 && pthread_mutex_unlock(m) == 0);
		CHECK(pthread_mutex_lock(m) == 0 && pthread_mutex_unlock(m) == 0);
		waitpid(pid, NULL, 0);
	}
}

static pthread_mutex_t pim;
static long counter;

static void *locker(void *arg)
{
	for (int i = 0; i < 2000; i++) {
		pthread_mutex_lock(&pim);
		counter++;
		pthread_mutex_unlock(&pim);
	}
	return NULL;
}

static void pi(void)
{
	pthread_mutexattr_t a;
	pthread_t t[4];

	pthread_mutexattr_init(&a);
	pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT);
	CHECK(pthread_mutex_init(&pim, &a) == 0);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_create(&t[i], NULL, locker, NULL) == 0);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	CHECK(counter == 8000);
}

// cond: condition variables and barriers between threads.
static pthread_mutex_t cm = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cc = PTHREAD_COND_INITIALIZER;
static int turn;

static void *player(void *arg)
{
	int me = (int)(long)arg;

	for (int i = 0; i < 300; i++) {
		pthread_mutex_lock(&cm);
		while (turn % 3 != me)
			pthread_cond_wait(&cc, &cm);
		turn++;
		pthread_cond_broadcast(&cc);
		pthread_mutex_unlock(&cm);
	}
	return NULL;
}

static void cond(void)
{
	pthread_t t[3];

	for (long i = 0; i < 3; i++)
		CHECK(pthread_create(&t[i], NULL, player, (void *)i) == 0);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	CHECK(turn == 900);
}

static void wakeop(void)
{
	static uint32_t f1, f2 = 5;

	CHECK(syscall(SYS_futex, &f1, FUTEX_WAKE_OP, 1, 1, &f2, FUTEX_OP(FUTEX_OP_ADD, 3, FUTEX_OP_CMP_EQ, 5)) == 0 && f2 == 8);
	CHECK(syscall(SYS_futex, &f1, FUTEX_WAIT_BITSET, 0, NULL, NULL, 0) == -1 && errno == EINVAL);
	CHECK(syscall(SYS_futex, &f1, FUTEX_CMP_REQUEUE, 1, 1, &f2, 7) == -1 && errno == EAGAIN);
	struct timespec past = { 1, 0 };
	CHECK(syscall(SYS_futex, &f1, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, 0, &past, NULL, ~0) == -1 && errno == ETIMEDOUT);
	CHECK(syscall(SYS_futex, 0, FUTEX_WAIT, 0, NULL, NULL, 0) == -1 && errno == EFAULT);
}

static void cpulimit(void)
{
	int st;
	pid_t pid = fork();

	if (pid == 0) {
		struct rlimit l = { 1, 3 };
		setrlimit(RLIMIT_CPU, &l);
		for (;;)
			;
	}
	waitpid(pid, &st, 0);
	CHECK(WIFSIGNALED(st) && WTERMSIG(st) == SIGXCPU);
}

static void clocks(void)
{
	struct timespec a, b;

	CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a) == 0);
	for (volatile long i = 0; i < 30000000; i++)
		;
	CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b) == 0);
	CHECK(b.tv_sec > a.tv_sec || b.tv_nsec > a.tv_nsec + 1000000);
	CHECK(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &a) == 0 && clock_gettime(CLOCK_MONOTONIC, &b) == 0);
	CHECK((b.tv_sec - a.tv_sec) * 1000000000L + b.tv_nsec - a.tv_nsec >= 0);
	CHECK((b.tv_sec - a.tv_sec) * 1000000000L + b.tv_nsec - a.tv_nsec < 1000000000);
	CHECK(clock_gettime(1000, &a) == -1 && errno == EINVAL);
	clockid_t c;
	CHECK(clock_getcpuclockid(0, &c) == 0 && clock_gettime(c, &a) == 0);
	struct timespec s = { 0, -1 };
	CHECK(nanosleep(&s, NULL) == -1 && errno == EINVAL);
}

static const struct { const char *name; void (*f)(void); } checks[] = {
	{ "info", info }, { "nodefer", nodefer }, { "altstack", altstack }, { "overflow", overflow }, { "faults", faults },
	{ "floats", floats }, { "context", context }, { "masks", masks }, { "restarts", restarts }, { "execs", execs },
	{ "creds", creds }, { "robust", robust }, { "pi", pi }, { "cond", cond }, { "wakeop", wakeop }, { "clocks", clocks },
	{ "cpulimit", cpulimit },
};

int main(int argc, char **argv)
{
	self = argv[0];
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 2 && !strcmp(argv[1], "state"))
		return state();
	if (argc == 2 && !strcmp(argv[1], "true"))
		return 0;
	if (argc == 2 && !strcmp(argv[1], "suid"))
		return suid();
	if (argc == 2 && !strcmp(argv[1], "plain"))
		return plain();
	if (argc == 2 && !strcmp(argv[1], "ambient"))
		return ambient();
	for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
		int st;

		if (argc > 1 && strcmp(argv[1], checks[i].name))
			continue;
		pid_t pid = fork();
		if (pid == 0) {
			checks[i].f();
			_exit(0);
		}
		waitpid(pid, &st, 0);
		if (st == 0)
			printf("ok %s\n", checks[i].name);
		else
			printf("FAIL %s: status %#x\n", checks[i].name, st);
	}
	return 0;
}
