/*
 * mqueue: POSIX message queues.
 */
#define _GNU_SOURCE
#include "check.h"
#include <dirent.h>
#include <fcntl.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

static void *late(void *q)
{
	usleep(100000);
	mq_send(*(mqd_t *)q, "late", 4, 1);
	return NULL;
}

static void nothing(int sig) {}

static void calls(void)
{
	struct mq_attr at = { .mq_maxmsg = 4, .mq_msgsize = 16 }, got;
	struct timespec soon;
	char buf[100];
	unsigned prio;
	mq_unlink("/q");
	FAILS(mq_open("/q", O_RDWR), ENOENT);
	FAILS(mq_open("/", O_RDWR), ENOENT);
	FAILS(mq_open("/a/b", O_RDWR | O_CREAT, 0600, NULL), EACCES);
	char name[300];
	memset(name, 'x', sizeof name);
	name[0] = '/';
	name[257] = 0;
	FAILS(mq_open(name, O_RDWR | O_CREAT, 0600, NULL), ENAMETOOLONG);
	umask(022);
	mqd_t q = GETS(mq_open("/q", O_RDWR | O_CREAT | O_EXCL, 0666, &at));
	FAILS(mq_open("/q", O_RDWR | O_CREAT | O_EXCL, 0600, &at), EEXIST);
	IS(fcntl(q, F_GETFD), FD_CLOEXEC);
	struct stat st;
	OK(fstat(q, &st));
	IS(st.st_mode, S_IFREG | 0644);
	IS(st.st_size, 80);
	struct { long maxmsg, msgsize; } bad_attr[] = { { 0, 1 }, { 1, 0 }, { -1, 1 }, { 1, 1 << 28 }, { 1 << 20, 1 } };
	for (int i = 0; i < 5; i++) {
		struct mq_attr b = { .mq_maxmsg = bad_attr[i].maxmsg, .mq_msgsize = bad_attr[i].msgsize };
		FAILS(mq_open("/bad", O_RDWR | O_CREAT, 0600, &b), EINVAL);
	}
	OK(mq_getattr(q, &got));
	TRUE(got.mq_flags == 0 && got.mq_maxmsg == 4 && got.mq_msgsize == 16 && got.mq_curmsgs == 0);
	FAILS(mq_send(q, buf, 17, 0), EMSGSIZE);
	FAILS(mq_send(q, buf, 1, 32768), EINVAL);
	FAILS(mq_receive(q, buf, 15, &prio), EMSGSIZE);
	OK(mq_send(q, "low", 3, 1));
	OK(mq_send(q, "high", 4, 30000));
	OK(mq_send(q, "low2", 4, 1));
	OK(mq_send(q, "", 0, 0));
	OK(mq_getattr(q, &got));
	IS(got.mq_curmsgs, 4);
	int fd = GETS(open("/proc/self/mounts", O_RDONLY));
	FAILS(mq_send(fd, "x", 1, 0), EBADF);
	close(fd);
	/* It is full. */
	struct pollfd p = { .fd = q, .events = POLLIN | POLLOUT };
	IS(poll(&p, 1, 0), 1);
	IS(p.revents, POLLIN);
	at.mq_flags = O_NONBLOCK;
	OK(mq_setattr(q, &at, &got));
	FAILS(mq_send(q, "x", 1, 0), EAGAIN);
	at.mq_flags = 1 << 20;
	FAILS(mq_setattr(q, &at, &got), EINVAL);
	at.mq_flags = 0;
	OK(mq_setattr(q, &at, &got));
	IS(got.mq_flags, O_NONBLOCK);
	clock_gettime(CLOCK_REALTIME, &soon);
	soon.tv_nsec += 50000000;
	if (soon.tv_nsec >= 1000000000)
		soon.tv_nsec -= 1000000000, soon.tv_sec++;
	FAILS(mq_timedsend(q, "x", 1, 0, &soon), ETIMEDOUT);
	soon.tv_nsec = 1000000000;
	FAILS(mq_timedsend(q, "x", 1, 0, &soon), EINVAL);
	IS(mq_receive(q, buf, sizeof buf, &prio), 4);
	TRUE(prio == 30000 && !memcmp(buf, "high", 4));
	IS(mq_receive(q, buf, sizeof buf, &prio), 3);
	TRUE(prio == 1 && !memcmp(buf, "low", 3));
	IS(mq_receive(q, buf, sizeof buf, NULL), 4);
	IS(mq_receive(q, buf, sizeof buf, &prio), 0);
	IS(prio, 0);
	IS(poll(&p, 1, 0), 1);
	IS(p.revents, POLLOUT);
	soon.tv_sec = 0;
	soon.tv_nsec = 0;
	FAILS(mq_timedreceive(q, buf, sizeof buf, NULL, &soon), ETIMEDOUT);
	/* Waiting for a message, and interrupted. */
	pthread_t th;
	pthread_create(&th, NULL, late, &q);
	IS(mq_receive(q, buf, sizeof buf, &prio), 4);
	pthread_join(th, NULL);
	struct sigaction sa = { .sa_handler = nothing };
	sigaction(SIGALRM, &sa, NULL);
	struct itimerval tv = { .it_value = { 0, 50000 }, .it_interval = { 0, 50000 } };
	setitimer(ITIMER_REAL, &tv, NULL);
	FAILS(mq_receive(q, buf, sizeof buf, &prio), EINTR);
	tv.it_value.tv_usec = 0;
	setitimer(ITIMER_REAL, &tv, NULL);
	/* One way only. */
	mqd_t r = GETS(mq_open("/q", O_RDONLY)), w = GETS(mq_open("/q", O_WRONLY | O_NONBLOCK));
	FAILS(mq_send(r, "x", 1, 0), EBADF);
	FAILS(mq_receive(w, buf, sizeof buf, NULL), EBADF);
	mq_close(r);
	mq_close(w);
	OK(mq_unlink("/q"));
	FAILS(mq_unlink("/q"), ENOENT);
	OK(mq_send(q, "x", 1, 0)); /* without a name it goes on */
	OK(fstat(q, &st));
	IS(st.st_nlink, 0);
	OK(mq_close(q));
}

static volatile sig_atomic_t told;
static volatile siginfo_t what;

static void tell(int sig, siginfo_t *si, void *x)
{
	told++;
	what = *si;
}

static void notify(void)
{
	struct mq_attr at = { .mq_maxmsg = 2, .mq_msgsize = 8 };
	char buf[80];
	mq_unlink("/n");
	mqd_t q = GETS(mq_open("/n", O_RDWR | O_CREAT, 0600, &at));
	struct sigaction sa = { .sa_sigaction = tell, .sa_flags = SA_SIGINFO };
	sigaction(SIGUSR1, &sa, NULL);
	struct sigevent ev = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 77 };
	OK(mq_notify(q, &ev));
	FAILS(mq_notify(q, &ev), EBUSY);
	IS(pread(q, buf, sizeof buf, 0), 60);
	char want[80];
	sprintf(want, "QSIZE:0          NOTIFY:0     SIGNO:%-5d NOTIFY_PID:%-6d\n", SIGUSR1, getpid());
	TRUE(!memcmp(buf, want, 60));
	FAILS(write(q, "x", 1), EINVAL);
	OK(mq_send(q, "x", 1, 0));
	IS(told, 1);
	TRUE(what.si_code == SI_MESGQ && what.si_value.sival_int == 77 && what.si_pid == getpid() && what.si_uid == getuid());
	OK(mq_send(q, "x", 1, 0)); /* once only */
	IS(told, 1);
	OK(mq_notify(q, &ev));
	IS(mq_receive(q, buf, sizeof buf, NULL), 1);
	OK(mq_send(q, "x", 1, 0)); /* it was not empty */
	IS(told, 1);
	OK(mq_notify(q, NULL));
	ev.sigev_notify = SIGEV_NONE;
	OK(mq_notify(q, &ev));
	OK(mq_notify(q, NULL));
	ev.sigev_notify = SIGEV_SIGNAL;
	ev.sigev_signo = 99;
	FAILS(mq_notify(q, &ev), EINVAL);
	ev.sigev_signo = SIGUSR1;
	/* A process that ends, or closes, gives way. */
	pid_t pid = fork();
	if (pid == 0)
		_exit(mq_notify(q, &ev));
	int status;
	IS(waitpid(pid, &status, 0), pid);
	IS(status, 0);
	OK(mq_notify(q, &ev));
	mq_close(dup(q));
	OK(mq_notify(q, &ev));
	mq_close(q);
	OK(mq_unlink("/n"));
}

static void limits(void)
{
	struct rlimit rl = { 100000, 100000 };
	struct mq_attr at = { .mq_maxmsg = 10, .mq_msgsize = 8192 };
	OK(setrlimit(RLIMIT_MSGQUEUE, &rl));
	mqd_t a = GETS(mq_open("/a", O_RDWR | O_CREAT, 0600, &at));
	FAILS(mq_open("/b", O_RDWR | O_CREAT, 0600, &at), EMFILE);
	OK(mq_unlink("/a"));
	FAILS(mq_open("/b", O_RDWR | O_CREAT, 0600, &at), EMFILE);
	mq_close(a);
	a = GETS(mq_open("/b", O_RDWR | O_CREAT, 0600, NULL));
	OK(mq_getattr(a, &at));
	TRUE(at.mq_maxmsg == 10 && at.mq_msgsize == 8192);
	mq_close(a);
	OK(mq_unlink("/b"));
}

static void files(void)
{
	mkdir("/tmp/mq", 0755);
	OK(mount("any", "/tmp/mq", "mqueue", 0, NULL));
	struct statfs sf;
	OK(statfs("/tmp/mq", &sf));
	IS(sf.f_type, 0x19800202);
	struct stat st;
	OK(stat("/tmp/mq", &st));
	IS(st.st_mode, S_IFDIR | 01777);
	mqd_t q = GETS(mq_open("/seen", O_RDWR | O_CREAT, 0640, NULL));
	OK(stat("/tmp/mq/seen", &st));
	IS(st.st_mode, S_IFREG | 0640);
	OK(access("/dev/mqueue/seen", F_OK));
	OK(mq_send(q, "12345", 5, 9));
	char buf[80];
	int fd = GETS(open("/tmp/mq/seen", O_RDONLY));
	IS(read(fd, buf, sizeof buf), 60);
	TRUE(!memcmp(buf, "QSIZE:5 ", 8));
	IS(read(fd, buf, sizeof buf), 0);
	close(fd);
	fd = GETS(open("/tmp/mq/made", O_CREAT | O_RDWR, 0600));
	OK(mq_send(fd, "x", 1, 0));
	close(fd);
	FAILS(mkdir("/tmp/mq/d", 0700), EPERM);
	DIR *d = opendir("/tmp/mq");
	int n = 0;
	for (struct dirent *e; (e = readdir(d));)
		n += !strcmp(e->d_name, "seen") || !strcmp(e->d_name, "made");
	closedir(d);
	IS(n, 2);
	OK(unlink("/dev/mqueue/made"));
	FAILS(mq_open("/made", O_RDWR), ENOENT);
	OK(umount("/tmp/mq"));
	OK(rmdir("/tmp/mq"));
	OK(mq_unlink("/seen"));
	FAILS(access("/dev/mqueue/seen", F_OK), ENOENT);
	mq_close(q);
}

int main(void)
{
	calls();
	notify();
	files();
	limits();
	return finish();
}
