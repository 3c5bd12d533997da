/*
 * vfsstate MODE: objects of the file system calls that a checkpoint has to carry. It prints "ready", waits
 * until /go/go exists, and prints "ok" if all are what they were.
 */
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <mqueue.h>
#include <pthread.h>
#include <linux/fs.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

static void hold(void)
{
	puts("ready");
	fflush(stdout);
	while (access("/go/go", F_OK) != 0)
		usleep(20000);
}

/* A context in each of its phases, and detached trees. */
static void mounts(void)
{
	char text[100] = "";
	OK(mkdir("/tmp/m", 0755));
	int fresh = GETS(syscall(SYS_fsopen, "tmpfs", 0));
	OK(syscall(SYS_fsconfig, fresh, FSCONFIG_SET_STRING, "size", "1m", 0));
	FAILS(syscall(SYS_fsconfig, fresh, FSCONFIG_SET_FLAG, "nonsense", NULL, 0), EINVAL);
	int made = GETS(syscall(SYS_fsopen, "tmpfs", 0));
	OK(syscall(SYS_fsconfig, made, FSCONFIG_SET_STRING, "mode", "711", 0));
	OK(syscall(SYS_fsconfig, made, FSCONFIG_CMD_CREATE, NULL, NULL, 0));
	int used = GETS(syscall(SYS_fsopen, "tmpfs", 0));
	OK(syscall(SYS_fsconfig, used, FSCONFIG_CMD_CREATE, NULL, NULL, 0));
	int tree = GETS(syscall(SYS_fsmount, used, 0, MOUNT_ATTR_NOEXEC));
	close(GETS(openat(tree, "f", O_CREAT | O_RDWR, 0600)));
	OK(mount("t", "/tmp/m", "tmpfs", 0, NULL));
	OK(mkdir("/tmp/m/sub", 0755));
	OK(mount("t", "/tmp/m/sub", "tmpfs", 0, NULL));
	close(GETS(creat("/tmp/m/sub/x", 0644)));
	int copy = GETS(syscall(SYS_open_tree, AT_FDCWD, "/tmp/m", OPEN_TREE_CLONE | AT_RECURSIVE));
	OK(umount2("/tmp/m", MNT_DETACH));
	int gone = GETS(syscall(SYS_open_tree, AT_FDCWD, "/tmp", OPEN_TREE_CLONE));
	OK(mkdir("/tmp/g", 0755));
	OK(syscall(SYS_move_mount, gone, "", AT_FDCWD, "/tmp/g", MOVE_MOUNT_F_EMPTY_PATH));
	hold();
	TRUE(read(fresh, text, sizeof text) > 0 && !strcmp(text, "e tmpfs: Unknown parameter 'nonsense'\n"));
	OK(syscall(SYS_fsconfig, fresh, FSCONFIG_CMD_CREATE, NULL, NULL, 0));
	close(GETS(syscall(SYS_fsmount, fresh, 0, 0)));
	struct stat st;
	int m = GETS(syscall(SYS_fsmount, made, 0, 0));
	OK(fstat(m, &st));
	IS(st.st_mode, S_IFDIR | 0711);
	OK(syscall(SYS_fsconfig, used, FSCONFIG_SET_FLAG, "ro", NULL, 0));
	OK(syscall(SYS_fsconfig, used, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0));
	FAILS(openat(tree, "f", O_RDWR), EROFS);
	OK(syscall(SYS_move_mount, tree, "", AT_FDCWD, "/tmp/m", MOVE_MOUNT_F_EMPTY_PATH));
	OK(access("/tmp/m/f", F_OK));
	FAILS(syscall(SYS_move_mount, tree, "", AT_FDCWD, "/tmp/m", MOVE_MOUNT_F_EMPTY_PATH), ELOOP);
	OK(faccessat(copy, "sub/x", F_OK, 0));
	OK(syscall(SYS_move_mount, copy, "", AT_FDCWD, "/tmp/m", MOVE_MOUNT_F_EMPTY_PATH));
	OK(access("/tmp/m/sub/x", F_OK));
	close(gone);
	OK(umount("/tmp/g"));
}

static volatile sig_atomic_t told;

static void tell(int sig) { told++; }

static void *receiver(void *q)
{
	static char buf[16];
	return mq_receive(*(mqd_t *)q, buf, sizeof buf, NULL) == 4 ? buf : NULL;
}

/* Queues with messages, without a name, with somebody who waits or is to be notified. */
static void queues(void)
{
	struct mq_attr at = { .mq_maxmsg = 4, .mq_msgsize = 16 };
	char buf[16];
	unsigned prio;
	pthread_t th;
	void *got;
	mqd_t a = GETS(mq_open("/a", O_RDWR | O_CREAT, 0640, &at));
	OK(mq_send(a, "one", 3, 1));
	OK(mq_send(a, "two", 3, 2));
	mqd_t closed = GETS(mq_open("/closed", O_RDWR | O_CREAT, 0600, &at));
	OK(mq_send(closed, "kept", 4, 5));
	mq_close(closed);
	mqd_t gone = GETS(mq_open("/gone", O_RDWR | O_CREAT | O_NONBLOCK, 0600, &at));
	OK(mq_send(gone, "x", 1, 0));
	OK(mq_unlink("/gone"));
	mqd_t empty = GETS(mq_open("/empty", O_RDWR | O_CREAT, 0600, &at));
	struct sigevent ev = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
	signal(SIGUSR1, tell);
	OK(mq_notify(empty, &ev));
	mqd_t waited = GETS(mq_open("/waited", O_RDWR | O_CREAT, 0600, &at));
	pthread_create(&th, NULL, receiver, &waited);
	usleep(50000);
	hold();
	OK(mq_send(waited, "wake", 4, 0));
	pthread_join(th, &got);
	TRUE(got && !memcmp(got, "wake", 4));
	IS(mq_receive(a, buf, sizeof buf, &prio), 3);
	TRUE(prio == 2 && !memcmp(buf, "two", 3));
	closed = GETS(mq_open("/closed", O_RDONLY));
	IS(mq_receive(closed, buf, sizeof buf, &prio), 4);
	TRUE(prio == 5 && !memcmp(buf, "kept", 4));
	IS(mq_receive(gone, buf, sizeof buf, &prio), 1);
	FAILS(mq_receive(gone, buf, sizeof buf, &prio), EAGAIN);
	OK(mq_send(empty, "x", 1, 0));
	IS(told, 1);
	OK(access("/dev/mqueue/a", F_OK));
	FAILS(access("/dev/mqueue/gone", F_OK), ENOENT);
	OK(mq_unlink("/a"));
	OK(mq_unlink("/closed"));
}

static volatile sig_atomic_t from;

static void note(int sig, siginfo_t *si, void *x)
{
	told = sig;
	from = si->si_fd;
}

/* Leases, signals about files, lists, attributes of files, a program that runs. */
static void signals(void)
{
	struct sigaction sa = { .sa_sigaction = note, .sa_flags = SA_SIGINFO };
	int p[2], flags = FS_APPEND_FL;
	char buf[100], self[100] = "";
	sigaction(SIGRTMIN, &sa, NULL);
	sigaction(SIGIO, &sa, NULL);
	OK(mkdir("/tmp/t", 0755) || mount("t", "/tmp/t", "tmpfs", 0, NULL) || chdir("/tmp/t"));
	close(GETS(creat("leased", 0600)));
	int l = GETS(open("leased", O_RDONLY));
	OK(fcntl(l, F_SETSIG, SIGRTMIN) || fcntl(l, F_SETLEASE, F_RDLCK));
	OK(pipe(p) || fcntl(p[0], F_SETOWN, getpid()) || fcntl(p[0], F_SETFL, O_ASYNC) || fcntl(p[0], F_SETSIG, SIGRTMIN));
	OK(mkdir("d", 0755));
	int d = GETS(open("d", O_RDONLY));
	OK(fcntl(d, F_SETSIG, SIGRTMIN) || fcntl(d, F_NOTIFY, DN_CREATE | DN_MULTISHOT));
	close(GETS(creat("log", 0600)));
	int g = GETS(open("log", O_WRONLY | O_APPEND));
	OK(ioctl(g, FS_IOC_SETFLAGS, &flags));
	static const unsigned list[] = { 2, 0x60001, ~0u, 0x40002, 1000, 0x40004, ~0u, 0x60010, ~0u, 0x00020, ~0u };
	close(GETS(creat("shared", 0600)));
	OK(setxattr("shared", "system.posix_acl_access", list, sizeof list, 0));
	hold();
	told = 0;
	FAILS(open("leased", O_WRONLY | O_NONBLOCK), EWOULDBLOCK);
	TRUE(told == SIGRTMIN && from == l);
	OK(fcntl(l, F_SETLEASE, F_UNLCK));
	told = 0;
	IS(write(p[1], "x", 1), 1);
	TRUE(told == SIGRTMIN && from == p[0]);
	told = 0;
	close(GETS(creat("d/new", 0600)));
	TRUE(told == SIGRTMIN && from == d);
	FAILS(unlink("log"), EPERM);
	FAILS(open("log", O_WRONLY), EPERM);
	IS(write(g, "x", 1), 1);
	IS(getxattr("shared", "system.posix_acl_access", buf, sizeof buf), sizeof list);
	TRUE(!memcmp(buf, list, sizeof list));
	TRUE(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
	FAILS(open(self, O_WRONLY), ETXTBSY);
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "mounts"))
		mounts();
	else if (argc == 2 && !strcmp(argv[1], "queues"))
		queues();
	else if (argc == 2 && !strcmp(argv[1], "signals"))
		signals();
	else
		return fputs("usage: vfsstate MODE\n", stderr), 2;
	return finish();
}
