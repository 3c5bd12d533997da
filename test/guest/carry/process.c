/* Processes: identity, limits, families, namespaces, filters. */
#include "carry.h"
#include <grp.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <linux/securebits.h>

static struct __user_cap_data_struct *caps(void)
{
	static struct __user_cap_data_struct d[2];
	struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
	check(syscall(SYS_capget, &h, d) == 0);
	return d;
}

static void other_user(void *arg)
{
	gid_t groups[] = {5, 6, 7}, got[8];
	uid_t r, e, s;
	check(setgroups(3, groups) == 0);
	check(prctl(PR_SET_KEEPCAPS, 1) == 0);
	check(setresgid(11, 12, 13) == 0 && setresuid(21, 22, 23) == 0);
	struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct d[2] = {{.effective = 1 << CAP_CHOWN, .permitted = 1 << CAP_CHOWN | 1 << CAP_KILL, .inheritable = 1 << CAP_KILL}};
	check(syscall(SYS_capset, &h, d) == 0);
	((volatile int *)arg)[0] = 1;
	released();
	check(getresuid(&r, &e, &s) == 0 && r == 21 && e == 22 && s == 23);
	check(getresgid(&r, &e, &s) == 0 && r == 11 && e == 12 && s == 13);
	equal(getgroups(8, got), 3);
	check(got[0] == 5 && got[2] == 7);
	struct __user_cap_data_struct *c = caps();
	equal(c->effective, 1 << CAP_CHOWN);
	equal(c->permitted, 1 << CAP_CHOWN | 1 << CAP_KILL);
	equal(c->inheritable, 1 << CAP_KILL);
	equal(prctl(PR_GET_KEEPCAPS), 1);
	check(setuid(0) == -1 && errno == EPERM);
	check(setuid(21) == 0 && geteuid() == 21);
}

static int *page(void)
{
	int *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(p != MAP_FAILED);
	return p;
}

static void up(volatile int *p)
{
	while (!*p)
		usleep(1000);
}

CASE(process_credentials)
{
	int *p = page();
	pid_t pid = start(other_user, p);
	up(p);
	hold();
	ended(pid);
}

CASE(process_limits)
{
	struct rlimit a = {123, 456}, b = {64 << 10, RLIM_INFINITY}, got;
	check(setrlimit(RLIMIT_NOFILE, &a) == 0 && setrlimit(RLIMIT_CORE, &b) == 0);
	errno = 0;
	setpriority(PRIO_PROCESS, 0, 5);
	umask(0137);
	hold();
	check(getrlimit(RLIMIT_NOFILE, &got) == 0 && got.rlim_cur == 123 && got.rlim_max == 456);
	check(getrlimit(RLIMIT_CORE, &got) == 0 && got.rlim_cur == 64 << 10);
	check(dup2(0, 123) == -1 && errno == EBADF);
	equal(getpriority(PRIO_PROCESS, 0), 5);
	equal(umask(0), 0137);
}

CASE(process_prctl)
{
	char name[16] = "";
	check(prctl(PR_SET_NAME, "carried name") == 0 && prctl(PR_SET_DUMPABLE, 0) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	check(prctl(PR_SET_TIMERSLACK, 123456) == 0);
	int child = prctl(PR_SET_CHILD_SUBREAPER, 1), secure = prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP);
	int drop = prctl(PR_CAPBSET_DROP, CAP_SYS_TIME), amb = prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	errno = 0;
	hold();
	check(prctl(PR_GET_NAME, name) == 0 && strcmp(name, "carried name") == 0);
	equal(prctl(PR_GET_DUMPABLE), 0);
	equal(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 1);
	equal(prctl(PR_GET_TIMERSLACK), 123456);
	int got = 0;
	if (child == 0)
		check(prctl(PR_GET_CHILD_SUBREAPER, &got) == 0 && got == 1);
	if (secure == 0)
		equal(prctl(PR_GET_SECUREBITS), SECBIT_NO_SETUID_FIXUP);
	if (drop == 0)
		equal(prctl(PR_CAPBSET_READ, CAP_SYS_TIME), 0);
	if (amb == 0)
		equal(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0), 1);
}

CASE(process_scheduling)
{
	cpu_set_t one, got;
	int cpu = sched_getcpu();
	CPU_ZERO(&one);
	CPU_SET(cpu < 0 ? 0 : cpu, &one);
	check(sched_setaffinity(0, sizeof one, &one) == 0);
	struct sched_param sp = {0};
	int batch = sched_setscheduler(0, SCHED_BATCH, &sp), pers = personality(ADDR_NO_RANDOMIZE);
	errno = 0;
	hold();
	check(sched_getaffinity(0, sizeof got, &got) >= 0 && CPU_EQUAL(&one, &got));
	if (batch == 0)
		equal(sched_getscheduler(0), SCHED_BATCH);
	if (pers >= 0)
		equal(personality(0xffffffff), ADDR_NO_RANDOMIZE);
}

CASE(process_deleted_directory)
{
	char cwd[256];
	check(mkdir("gone", 0777) == 0 && chdir("gone") == 0 && rmdir("../gone") == 0);
	hold();
	check(syscall(SYS_getcwd, cwd, sizeof cwd) == -1 && errno == ENOENT);
	check(open("x", O_CREAT | O_WRONLY, 0600) == -1 && errno == ENOENT);
	ssize_t n = readlink("/proc/self/cwd", cwd, sizeof cwd);
	check(n > 10 && memcmp(cwd + n - 10, " (deleted)", 10) == 0);
	check(chdir("..") == 0 && access("gone", F_OK) == -1);
}

CASE(process_root)
{
	char cwd[256];
	check(mkdir("r", 0777) == 0 && mkdir("r/in", 0777) == 0 && close(open("r/file", O_CREAT | O_WRONLY, 0600)) == 0);
	check(chroot("r") == 0 && chdir("/in") == 0);
	hold();
	check(getcwd(cwd, sizeof cwd) && strcmp(cwd, "/in") == 0);
	check(access("/file", F_OK) == 0 && access("/proc", F_OK) == -1 && access("../../../file", F_OK) == 0);
}

static int *shared;
static void leads(void *arg)
{
	check(setsid() == getpid());
	pid_t pid = start((void (*)(void *))pause, NULL);
	check(setpgid(pid, pid) == 0);
	shared[1] = pid;
	shared[0] = 1;
	released();
	equal(getsid(pid), getpid());
	equal(getpgid(pid), pid);
	equal(getpgrp(), getpid());
	check(setsid() == -1 && errno == EPERM);
	int status;
	check(kill(-pid, SIGTERM) == 0 && waitpid(-pid, &status, 0) == pid && status == SIGTERM);
}

CASE(process_session)
{
	shared = page();
	pid_t pid = start(leads, NULL);
	up(shared);
	hold();
	ended(pid);
	equal(getpgrp(), getpid());
	check(getsid(0) != getpid());
}

static void seven(void *arg) { _exit(7); }

CASE(process_zombies)
{
	enum { N = 5 };
	pid_t pid[N];
	int status;
	struct rusage ru;
	for (int i = 0; i < N; i++)
		settle(pid[i] = start(seven, NULL));
	pid_t killed = start((void (*)(void *))pause, NULL);
	kill(killed, SIGKILL);
	settle(killed);
	hold();
	siginfo_t si;
	check(waitid(P_PID, killed, &si, WEXITED | WNOWAIT) == 0);
	equal(si.si_code, CLD_KILLED);
	equal(si.si_status, SIGKILL);
	check(waitpid(killed, &status, 0) == killed && status == SIGKILL);
	for (int i = N; i-- > 0;)
		check(wait4(pid[i], &status, 0, &ru) == pid[i] && WEXITSTATUS(status) == 7);
	check(waitpid(-1, &status, 0) == -1 && errno == ECHILD);
}

static void *outlives(void *arg)
{
	released();
	_exit(5);
}

static void leader_ends(void *arg)
{
	pthread_t t;
	thread(&t, outlives, NULL);
	syscall(SYS_exit, 0);
}

/* The leader is gone, another thread lives. */
CASE(process_without_leader)
{
	int status;
	pid_t pid = start(leader_ends, NULL);
	settle(pid);
	hold();
	check(waitpid(pid, &status, 0) == pid);
	equal(status, 5 << 8);
}

/* The parent of a vfork waits until its child ends. */
static void vforks(void *arg)
{
	pid_t pid = vfork();
	if (pid == 0) {
		char c;
		while (read(go_of_carry(), &c, 1) < 0)
			;
		_exit(3);
	}
	int status;
	check(waitpid(pid, &status, 0) == pid);
	equal(status, 3 << 8);
}

CASE(process_vfork)
{
	pid_t pid = start(vforks, NULL);
	usleep(30000);
	hold();
	ended(pid);
}

static void orphan_maker(void *arg)
{
	pid_t pid = fork();
	if (pid == 0) {
		released();
		usleep(20000);
		_exit(getppid() == ((int *)arg)[1] ? 6 : 1);
	}
}

CASE(process_subreaper)
{
	int *p = page(), status;
	p[1] = getpid();
	check(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
	pid_t pid = start(orphan_maker, p);
	ended(pid);
	hold();
	check(wait(&status) > 0);
	equal(status, 6 << 8);
}

static int shares_fs(void *arg)
{
	released();
	return chdir("/") != 0 || (umask(0123), 0);
}

CASE(process_shared_directory)
{
	static char stack[65536];
	char cwd[256];
	pid_t pid = clone(shares_fs, stack + sizeof stack, CLONE_FS | SIGCHLD, NULL);
	check(pid > 0);
	hold();
	ended(pid);
	check(getcwd(cwd, sizeof cwd) && strcmp(cwd, "/") == 0);
	equal(umask(0), 0123);
}

static volatile int of_both;
static int shares_memory(void *arg)
{
	char c;
	while (read(go_of_carry(), &c, 1) < 0)
		;
	of_both++;
	signal(SIGUSR1, SIG_IGN);
	syscall(SYS_exit, 0);
	return 0;
}

CASE(process_shared_memory)
{
	static char stack[65536];
	struct sigaction sa;
	of_both = 5;
	pid_t pid = clone(shares_memory, stack + sizeof stack, CLONE_VM | CLONE_SIGHAND | SIGCHLD, NULL);
	check(pid > 0);
	hold();
	ended(pid);
	equal(of_both, 6);
	check(sigaction(SIGUSR1, NULL, &sa) == 0 && sa.sa_handler == SIG_IGN);
}

static void filtered(void *arg)
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 71),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	}, g[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpgrp, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 72),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog pf = {4, f}, pg = {4, g};
	check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &pf) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &pg) == 0);
	((volatile int *)arg)[0] = 1;
	released();
	check(syscall(SYS_getppid) == -1 && errno == 71);
	check(syscall(SYS_getpgrp) == -1 && errno == 72);
	equal(prctl(PR_GET_SECCOMP), 2);
	pid_t pid = fork();
	if (pid == 0)
		_exit(syscall(SYS_getppid) == -1 ? 0 : 1);
	ended(pid);
}

CASE(process_seccomp)
{
	int *p = page();
	pid_t pid = start(filtered, p);
	up(p);
	hold();
	ended(pid);
}

CASE(process_uts_namespace)
{
	struct utsname u;
	if (unshare(CLONE_NEWUTS) != 0)
		skip("UTS namespaces");
	check(sethostname("carried", 7) == 0 && setdomainname("domain", 6) == 0);
	hold();
	check(uname(&u) == 0 && strcmp(u.nodename, "carried") == 0 && strcmp(u.domainname, "domain") == 0);
}

CASE(process_ids)
{
	pid_t pid = start((void (*)(void *))pause, NULL), tid = syscall(SYS_gettid), parent = getppid();
	hold();
	equal(syscall(SYS_gettid), tid);
	equal(getppid(), parent);
	pid_t more = start(seven, NULL);
	check(more != pid && more != tid);
	check(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid && waitpid(more, NULL, 0) == more);
}

/* Accounts of time go on. */
CASE(process_times)
{
	struct rusage a, b;
	double cpu = now(CLOCK_PROCESS_CPUTIME_ID), mono = now(CLOCK_MONOTONIC), boot = now(CLOCK_BOOTTIME), real = now(CLOCK_REALTIME);
	while (now(CLOCK_PROCESS_CPUTIME_ID) < cpu + 0.02)
		;
	getrusage(RUSAGE_SELF, &a);
	cpu = now(CLOCK_PROCESS_CPUTIME_ID);
	hold();
	getrusage(RUSAGE_SELF, &b);
	check(b.ru_utime.tv_sec * 1000000 + b.ru_utime.tv_usec >= a.ru_utime.tv_sec * 1000000 + a.ru_utime.tv_usec);
	check(b.ru_utime.tv_sec < a.ru_utime.tv_sec + 60);
	check(now(CLOCK_PROCESS_CPUTIME_ID) >= cpu);
	check(now(CLOCK_MONOTONIC) >= mono && now(CLOCK_MONOTONIC) < mono + 600);
	check(now(CLOCK_BOOTTIME) >= boot && now(CLOCK_BOOTTIME) < boot + 600);
	check(now(CLOCK_REALTIME) >= real && now(CLOCK_REALTIME) < real + 600);
}

CASE(process_oom_score)
{
	char buf[16] = "";
	int fd = open("/proc/self/oom_score_adj", O_RDWR);
	check(fd >= 0 && write(fd, "321", 3) == 3);
	hold();
	check(pread(fd, buf, 15, 0) > 0);
	equal(atoi(buf), 321);
}
