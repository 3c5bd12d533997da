// pod: the containers of a pod, which share everything that containers can. Two of them keep turns
// over each kind of object; how many turns each took stands in /vol/ROLE, one line for each kind.
//
//	pod one		the first: makes what is shared
//	pod two		the other, in the same pid and IPC namespaces
//	pod sweep FILE MIB	writes its round's number into every page of a shared file, in order
//	pod check FILE MIB	says whether the pages of the file are from one moment of such a sweep
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <mqueue.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

enum { FUTEX, SOCKET, FIFO, MEMFD, QUEUE, SIGNAL, LOCK, KINDS };
static const char *const names[KINDS] = { "futex", "socket", "fifo", "memfd", "queue", "signal", "lock" };

struct shared {
	_Atomic uint32_t turn; // whose it is, and a futex
	_Atomic int pid[2];
};

static int me; // 0 or 1
static atomic_int turns[KINDS];
static char *_Atomic ended[KINDS]; // why a kind goes on no more
static struct shared *shared;

static void die(const char *what)
{
	fprintf(stderr, "pod: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void pause_a_little(void) { usleep(5000); }

static void *map(int fd, size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		die("mmap");
	return p;
}

// take_turns counts up a word that the other counts up too.
static void take_turns(_Atomic uint32_t *turn, int kind)
{
	for (;;) {
		uint32_t v = atomic_load(turn);
		if ((int)(v % 2) != me) {
			syscall(SYS_futex, turn, FUTEX_WAIT, v, NULL, NULL, 0);
			continue;
		}
		pause_a_little();
		atomic_store(turn, v + 1);
		syscall(SYS_futex, turn, FUTEX_WAKE, 1, NULL, NULL, 0);
		atomic_fetch_add(&turns[kind], 1);
	}
}

static void *futexes(void *unused)
{
	(void)unused;
	take_turns(&shared->turn, FUTEX);
	return NULL;
}

// echo sends numbers to and fro; first sends the first.
static void echo(int in, int out, int kind, int first)
{
	uint32_t n = 0, got;

	for (;; n++) {
		if (first && write(out, &n, sizeof n) != sizeof n)
			break;
		ssize_t r = read(in, &got, sizeof got);
		if (r == 0) {
			ended[kind] = "end of file";
			return;
		}
		if (r != sizeof got)
			break;
		if (got != n) {
			ended[kind] = "a wrong number";
			return;
		}
		pause_a_little();
		if (!first && write(out, &n, sizeof n) != sizeof n)
			break;
		atomic_fetch_add(&turns[kind], 1);
	}
	ended[kind] = strerror(errno);
}

static void *memfds(void *p)
{
	take_turns(p, MEMFD);
	return NULL;
}

// sockets talks over a unix socket in the volume, after a memfd was passed.
static void *sockets(void *unused)
{
	(void)unused;
	struct sockaddr_un a = { .sun_family = AF_UNIX, .sun_path = "/vol/sock" };
	char c = 'm';
	union { struct cmsghdr h; char space[CMSG_SPACE(sizeof(int))]; } u;
	struct iovec v = { &c, 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = &u, .msg_controllen = sizeof u };
	pthread_t t;
	int s = socket(AF_UNIX, SOCK_STREAM, 0), fd;

	if (me == 0) {
		unlink(a.sun_path);
		if (bind(s, (void *)&a, sizeof a) != 0 || listen(s, 1) != 0 || (s = accept(s, NULL, NULL)) < 0)
			die("socket");
		if ((fd = memfd_create("shared", 0)) < 0 || ftruncate(fd, 4096) != 0)
			die("memfd_create");
		memset(&u, 0, sizeof u);
		u.h.cmsg_len = CMSG_LEN(sizeof fd);
		u.h.cmsg_level = SOL_SOCKET;
		u.h.cmsg_type = SCM_RIGHTS;
		memcpy(CMSG_DATA(&u.h), &fd, sizeof fd);
		if (sendmsg(s, &m, 0) != 1)
			die("sendmsg");
	} else {
		while (connect(s, (void *)&a, sizeof a) != 0)
			pause_a_little();
		if (recvmsg(s, &m, 0) != 1 || u.h.cmsg_type != SCM_RIGHTS)
			die("recvmsg");
		memcpy(&fd, CMSG_DATA(&u.h), sizeof fd);
	}
	if (pthread_create(&t, NULL, memfds, map(fd, 4096)) != 0)
		die("pthread_create");
	echo(s, s, SOCKET, me);
	return NULL;
}

static void *fifos(void *unused)
{
	(void)unused;
	static const char *const path[2] = { "/dev/shm/to-one", "/vol/to-two" };
	int in, out;

	for (int i = 0; i < 2; i++)
		if (mkfifo(path[i], 0666) != 0 && errno != EEXIST)
			die("mkfifo");
	if (me == 0) {
		in = open(path[0], O_RDONLY);
		out = open(path[1], O_WRONLY);
	} else {
		out = open(path[0], O_WRONLY);
		in = open(path[1], O_RDONLY);
	}
	if (in < 0 || out < 0)
		die("open of a fifo");
	echo(in, out, FIFO, me);
	return NULL;
}

static void *queues(void *unused)
{
	(void)unused;
	struct mq_attr attr = { .mq_maxmsg = 2, .mq_msgsize = sizeof(uint32_t) };
	mqd_t in, out;
	uint32_t n = 0, got;

	in = mq_open(me ? "/to-two" : "/to-one", O_RDONLY | O_CREAT, 0600, &attr);
	out = mq_open(me ? "/to-one" : "/to-two", O_WRONLY | O_CREAT, 0600, &attr);
	if (in < 0 || out < 0)
		die("mq_open");
	for (;; n++) {
		if (me && mq_send(out, (char *)&n, sizeof n, 0) != 0)
			break;
		if (mq_receive(in, (char *)&got, sizeof got, NULL) != sizeof got)
			break;
		if (got != n) {
			ended[QUEUE] = "a wrong number";
			return NULL;
		}
		pause_a_little();
		if (!me && mq_send(out, (char *)&n, sizeof n, 0) != 0)
			break;
		atomic_fetch_add(&turns[QUEUE], 1);
	}
	ended[QUEUE] = strerror(errno);
	return NULL;
}

static void on_signal(int sig)
{
	(void)sig;
	atomic_fetch_add(&turns[SIGNAL], 1);
}

static _Noreturn void *signals(void *unused)
{
	(void)unused;
	for (;; usleep(20000)) {
		int pid = shared->pid[!me];
		if (pid != 0 && kill(pid, SIGUSR1) != 0)
			ended[SIGNAL] = "the other has no pid";
		else if (pid != 0)
			ended[SIGNAL] = NULL;
	}
}

// locks: the first holds locks of both kinds, the other tries in vain.
static void *locks(void *unused)
{
	(void)unused;
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1 };
	int fd = open("/vol/lock", O_RDWR | O_CREAT, 0666);

	if (fd < 0)
		die("open of a lock");
	if (me == 0 && (flock(fd, LOCK_EX) != 0 || fcntl(fd, F_SETLK, &l) != 0))
		die("lock");
	while (me == 1 && flock(fd, LOCK_EX | LOCK_NB) == 0) { // the first comes later
		flock(fd, LOCK_UN);
		pause_a_little();
	}
	for (;; usleep(20000)) {
		if (me == 1 && (flock(fd, LOCK_EX | LOCK_NB) == 0 || fcntl(fd, F_SETLK, &l) == 0)) {
			ended[LOCK] = "it is free";
			return NULL;
		}
		atomic_fetch_add(&turns[LOCK], 1);
	}
}

static _Noreturn void turn_taker(const char *role)
{
	void *(*const start[])(void *) = { futexes, sockets, fifos, queues, signals, locks };
	pthread_t t;
	char path[64];
	int fd;

	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGUSR1, on_signal);
	me = strcmp(role, "two") == 0;
	if ((fd = open("/dev/shm/shared", O_RDWR | O_CREAT, 0666)) < 0 || ftruncate(fd, 4096) != 0)
		die("/dev/shm");
	shared = map(fd, 4096);
	shared->pid[me] = getpid();
	for (unsigned i = 0; i < sizeof start / sizeof start[0]; i++)
		if (pthread_create(&t, NULL, start[i], NULL) != 0)
			die("pthread_create");
	snprintf(path, sizeof path, "/vol/%s", role);
	for (;; usleep(20000)) {
		char text[512];
		int n = 0;
		for (int i = 0; i < KINDS; i++)
			n += snprintf(text + n, sizeof text - n, "%s %d %s\n", names[i], turns[i], ended[i] ? ended[i] : "goes on");
		int out; // under another name first: who reads it sees no half of it
		char new[64];
		snprintf(new, sizeof new, "/vol/new-%s", role);
		if ((out = open(new, O_WRONLY | O_CREAT | O_TRUNC, 0666)) < 0 || write(out, text, n) != n || close(out) != 0 || rename(new, path) != 0)
			die(path);
	}
}

static int sweep(const char *file, size_t size, int check)
{
	int fd = open(file, O_RDWR | O_CREAT, 0666);

	if (fd < 0 || (!check && ftruncate(fd, size) != 0))
		die(file);
	char *p = map(fd, size);
	if (!check) {
		for (uint64_t round = 1;; round++) {
			for (size_t i = 0; i < size; i += 4096)
				*(volatile uint64_t *)(p + i + round % 512 * 8) = *(volatile uint64_t *)(p + i) = round;
			if (round == 2) {
				printf("sweeps\n");
				fflush(stdout);
			}
		}
	}
	printf("ready\n");
	fflush(stdout);
	while (access("/vol/go", F_OK) != 0)
		usleep(20000);
	// Read once: it may be that others write still.
	uint64_t first = *(volatile uint64_t *)p, now = first;
	size_t steps = 0;
	for (size_t i = 0; i < size; i += 4096) {
		uint64_t v = *(volatile uint64_t *)(p + i);
		if (v == now)
			continue;
		if (v != first - 1 || ++steps > 1) {
			printf("page %zu is of round %llu, the first of %llu\n", i / 4096, (unsigned long long)v, (unsigned long long)first);
			return 1;
		}
		now = v;
	}
	printf("one moment\n");
	return first > 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
	if (argc == 2)
		turn_taker(argv[1]);
	if (argc == 4)
		return sweep(argv[2], strtoul(argv[3], NULL, 10) << 20, strcmp(argv[1], "check") == 0);
	return 2;
}
