/* Signals: queued, masked, handled, on another stack, from timers. */
#include "carry.h"
#include <sys/prctl.h>
#include <sys/time.h>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

static volatile sig_atomic_t count, value, on_stack, thread_of;
static volatile sig_atomic_t order[16];

static void handler(int sig, siginfo_t *si, void *uc)
{
	char here;
	stack_t ss;
	sigaltstack(NULL, &ss);
	on_stack = &here >= (char *)ss.ss_sp && &here < (char *)ss.ss_sp + ss.ss_size;
	thread_of = syscall(SYS_gettid);
	value = si->si_value.sival_int;
	order[count++ & 15] = sig;
}

static void handle(int sig, int flags)
{
	struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};
	check(sigaction(sig, &sa, NULL) == 0);
}

static sigset_t set(int a, int b)
{
	sigset_t s;
	sigemptyset(&s), sigaddset(&s, a);
	if (b)
		sigaddset(&s, b);
	return s;
}

static void until(int n)
{
	for (int i = 0; i < 10000 && count < n; i++)
		usleep(1000);
	check(count >= n);
}

CASE(signal_queue)
{
	sigset_t s = set(SIGUSR1, SIGRTMIN), pending;
	siginfo_t si;
	sigaddset(&s, SIGCHLD);
	sigprocmask(SIG_BLOCK, &s, NULL);
	for (int i = 0; i < 5; i++)
		check(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = 100 + i}) == 0);
	kill(getpid(), SIGUSR1), kill(getpid(), SIGUSR1);
	pid_t pid = start((void (*)(void *))_exit, NULL);
	settle(pid);
	hold();
	sigpending(&pending);
	check(sigismember(&pending, SIGUSR1) && sigismember(&pending, SIGRTMIN) && sigismember(&pending, SIGCHLD) && !sigismember(&pending, SIGUSR2));
	s = set(SIGRTMIN, 0);
	struct timespec none = {0, 0};
	for (int i = 0; i < 5; i++) {
		equal(sigtimedwait(&s, &si, &none), SIGRTMIN);
		equal(si.si_value.sival_int, 100 + i);
		equal(si.si_pid, getpid());
		equal(si.si_code, SI_QUEUE);
	}
	s = set(SIGUSR1, 0);
	equal(sigtimedwait(&s, &si, &none), SIGUSR1);
	equal(sigtimedwait(&s, &si, &none), -1);
	s = set(SIGCHLD, 0);
	equal(sigtimedwait(&s, &si, &none), SIGCHLD);
	equal(si.si_pid, pid);
	equal(si.si_code, CLD_EXITED);
	ended(pid);
}

CASE(signal_handlers)
{
	struct sigaction sa;
	static char stack[32768];
	stack_t ss = {.ss_sp = stack, .ss_size = sizeof stack};
	check(sigaltstack(&ss, NULL) == 0);
	handle(SIGUSR1, SA_ONSTACK | SA_RESTART);
	handle(SIGUSR2, SA_NODEFER | SA_RESETHAND);
	signal(SIGHUP, SIG_IGN);
	hold();
	check(sigaction(SIGUSR1, NULL, &sa) == 0 && sa.sa_sigaction == handler);
	equal(sa.sa_flags & ~0x04000000, SA_SIGINFO | SA_ONSTACK | SA_RESTART);
	raise(SIGHUP);
	raise(SIGUSR1);
	equal(count, 1);
	equal(on_stack, 1);
	raise(SIGUSR2);
	equal(count, 2);
	equal(on_stack, 0);
	check(sigaction(SIGUSR2, NULL, &sa) == 0 && sa.sa_handler == SIG_DFL);
}

/* Saved in the middle of a handler on the other stack, which then returns into a blocked read that goes on. */
static int in_handler[2];
static void held(int sig)
{
	char c;
	check(read(in_handler[0], &c, 1) == 1);
	count++;
}

static void *reader(void *arg)
{
	static char stack[65536];
	stack_t ss = {.ss_sp = stack, .ss_size = sizeof stack};
	char c = 0;
	check(sigaltstack(&ss, NULL) == 0);
	equal(read(*(int *)arg, &c, 1), 1);
	equal(c, 'r');
	equal(count, 1);
	return NULL;
}

CASE(signal_within_handler)
{
	int p[2];
	pthread_t t;
	struct sigaction sa = {.sa_handler = held, .sa_flags = SA_ONSTACK | SA_RESTART};
	check(pipe(p) == 0 && pipe(in_handler) == 0);
	sigaction(SIGUSR1, &sa, NULL);
	pid_t tid = thread(&t, reader, &p[0]);
	settle(tid);
	check(pthread_kill(t, SIGUSR1) == 0);
	usleep(10000);
	settle(tid);
	hold();
	check(write(in_handler[1], "x", 1) == 1);
	while (count == 0)
		usleep(1000);
	check(write(p[1], "r", 1) == 1);
	pthread_join(t, NULL);
}

/* Each thread has its mask and its queue. */
static void *masked(void *arg)
{
	sigset_t s = set(SIGUSR1, 0), got;
	pthread_sigmask(SIG_SETMASK, &s, NULL);
	*(volatile int *)arg = 1;
	released();
	pthread_sigmask(SIG_SETMASK, NULL, &got);
	check(sigismember(&got, SIGUSR1) && !sigismember(&got, SIGUSR2));
	equal(count, 0);
	sigpending(&got);
	check(sigismember(&got, SIGUSR1));
	sigemptyset(&s);
	pthread_sigmask(SIG_SETMASK, &s, NULL);
	equal(count, 1);
	equal(thread_of, syscall(SYS_gettid));
	return NULL;
}

CASE(signal_thread)
{
	pthread_t t;
	volatile int up = 0;
	handle(SIGUSR1, 0);
	thread(&t, masked, (void *)&up);
	while (!up)
		usleep(1000);
	pthread_kill(t, SIGUSR1);
	sigset_t got;
	sigpending(&got);
	hold();
	sigpending(&got);
	check(!sigismember(&got, SIGUSR1));
	pthread_join(t, NULL);
}

CASE(signal_itimers)
{
	struct itimerval every = {{0, 30000}, {0, 30000}}, hour = {{7, 0}, {3600, 0}}, left;
	handle(SIGALRM, SA_RESTART), handle(SIGPROF, SA_RESTART), handle(SIGVTALRM, SA_RESTART);
	check(setitimer(ITIMER_REAL, &every, NULL) == 0 && setitimer(ITIMER_PROF, &hour, NULL) == 0 && setitimer(ITIMER_VIRTUAL, &every, NULL) == 0);
	hold();
	int n = count;
	until(n + 3);
	check(getitimer(ITIMER_PROF, &left) == 0);
	equal(left.it_interval.tv_sec, 7);
	check(left.it_value.tv_sec > 3500 && left.it_value.tv_sec <= 3600);
	setitimer(ITIMER_REAL, &(struct itimerval){}, NULL);
	for (int seen = 0; !seen;) /* virtual time passes while it runs */
		for (int i = 0; i < 16; i++)
			seen |= order[i] == SIGVTALRM;
}

CASE(signal_alarm)
{
	signal(SIGALRM, SIG_DFL);
	alarm(5000);
	hold();
	int left = alarm(0);
	check(left > 4800 && left <= 5000);
}

CASE(signal_posix_timers)
{
	timer_t a, b, c;
	sigset_t s = set(SIGRTMIN + 3, 0);
	struct sigevent se = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 1, .sigev_value.sival_int = 31};
	struct itimerspec every = {{0, 20000000}, {0, 20000000}}, at = {.it_value = {time(NULL) + 1, 0}}, hour = {{9, 0}, {3600, 0}}, left;
	handle(SIGRTMIN + 1, SA_RESTART), handle(SIGRTMIN + 2, SA_RESTART);
	sigprocmask(SIG_BLOCK, &s, NULL);
	check(timer_create(CLOCK_REALTIME, &se, &a) == 0 && timer_settime(a, TIMER_ABSTIME, &at, NULL) == 0);
	se.sigev_notify = SIGEV_THREAD_ID, se.sigev_notify_thread_id = getpid(), se.sigev_signo = SIGRTMIN + 2;
	check(timer_create(CLOCK_MONOTONIC, &se, &b) == 0 && timer_settime(b, 0, &hour, NULL) == 0);
	se.sigev_notify = SIGEV_SIGNAL, se.sigev_signo = SIGRTMIN + 3;
	check(timer_create(CLOCK_MONOTONIC, &se, &c) == 0 && timer_settime(c, 0, &every, NULL) == 0);
	usleep(100000); /* it fires, is blocked and overruns */
	hold();
	until(1);
	equal(value, 31);
	check(now(CLOCK_REALTIME) >= at.it_value.tv_sec);
	check(timer_gettime(b, &left) == 0 && left.it_value.tv_sec > 3500);
	equal(left.it_interval.tv_sec, 9);
	siginfo_t si;
	equal(sigtimedwait(&s, &si, &(struct timespec){5, 0}), SIGRTMIN + 3);
	check(si.si_overrun >= 2);
	equal(sigtimedwait(&s, &si, &(struct timespec){5, 0}), SIGRTMIN + 3);
	check(timer_delete(c) == 0 && timer_delete(b) == 0 && timer_delete(b) == -1);
}

static void stops(void *arg)
{
	raise(SIGSTOP);
	released();
}

static void spends(void *arg) { released(); }

CASE(signal_stopped)
{
	pid_t pid = start(stops, NULL), quiet = start(stops, NULL), cont = start(spends, NULL);
	int status;
	equal(waitpid(pid, &status, WUNTRACED), pid); /* the other's stop nobody has waited for */
	check(WIFSTOPPED(status));
	settle(quiet);
	settle(cont);
	kill(cont, SIGSTOP);
	equal(waitpid(cont, &status, WUNTRACED), cont);
	kill(cont, SIGCONT); /* nor for this */
	hold();
	equal(waitpid(pid, &status, WUNTRACED | WNOHANG), 0);
	equal(waitpid(quiet, &status, WUNTRACED), quiet);
	check(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
	equal(waitpid(cont, &status, WCONTINUED), cont);
	check(WIFCONTINUED(status) || status == 0);
	kill(pid, SIGCONT), kill(quiet, SIGCONT);
	ended(pid), ended(quiet);
	if (WIFCONTINUED(status))
		ended(cont);
}

/* A signal for a stopped process waits with it. */
static void stops_with_handler(void *arg)
{
	handle(SIGUSR1, 0);
	raise(SIGSTOP);
	equal(count, 1);
}

CASE(signal_for_stopped)
{
	pid_t pid = start(stops_with_handler, NULL);
	int status;
	equal(waitpid(pid, &status, WUNTRACED), pid);
	kill(pid, SIGUSR1);
	hold();
	equal(waitpid(pid, &status, WNOHANG), 0);
	kill(pid, SIGCONT);
	ended(pid);
}

static void dies_with_parent(void *arg)
{
	int *fds = arg, sig = 0;
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	close(fds[0]);
	check(prctl(PR_GET_PDEATHSIG, &sig) == 0 && sig == SIGTERM);
	for (;;)
		pause();
}

static void parent_dies(void *arg)
{
	int *fds = arg;
	pid_t pid = start(dies_with_parent, fds);
	settle(pid);
	close(fds[0]), close(fds[1]);
	released();
}

/* The pipe ends when the grandchild, which holds its last writing end, is killed by its parent's death. */
CASE(signal_of_parents_death)
{
	int fds[2];
	char c;
	check(pipe(fds) == 0);
	pid_t pid = start(parent_dies, fds);
	close(fds[1]);
	usleep(30000);
	settle(pid);
	hold();
	ended(pid);
	equal(read(fds[0], &c, 1), 0);
}
