/* Sockets of the local family. */
#include "carry.h"
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

static struct sockaddr_un name(const char *path)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	strncpy(a.sun_path, path, sizeof a.sun_path - 1);
	return a;
}

static int bound(int type, const char *path)
{
	struct sockaddr_un a = name(path);
	int fd = socket(AF_UNIX, type, 0);
	check(fd >= 0 && bind(fd, (void *)&a, sizeof a) == 0);
	return fd;
}

static int connected(int type, const char *path)
{
	struct sockaddr_un a = name(path);
	int fd = socket(AF_UNIX, type, 0);
	check(fd >= 0 && connect(fd, (void *)&a, sizeof a) == 0);
	return fd;
}

static void pair(int type, int s[2]) { check(socketpair(AF_UNIX, type, 0, s) == 0); }

CASE(socket_stream)
{
	int s[2], half[2], shut[2];
	pair(SOCK_STREAM, s), pair(SOCK_STREAM, half), pair(SOCK_STREAM | SOCK_NONBLOCK, shut);
	check(write(s[0], "to one", 6) == 6 && write(s[1], "to zero", 7) == 7 && write(half[0], "rest", 4) == 4);
	close(half[0]);
	check(shutdown(shut[0], SHUT_WR) == 0 && write(shut[1], "back", 4) == 4);
	check(recv(s[0], (char[2]){0}, 2, MSG_PEEK) == 2);
	hold();
	content(s[0], "to zero"), content(s[1], "to one"), content(half[1], "rest"), content(half[1], "");
	content(shut[1], "");
	content(shut[0], "back");
	check(write(shut[0], "x", 1) == -1 && errno == EPIPE);
	check(read(shut[0], (char[1]){0}, 1) == -1 && errno == EAGAIN);
}

CASE(socket_datagrams)
{
	char buf[64];
	int a = bound(SOCK_DGRAM, "a"), b = bound(SOCK_DGRAM, "b"), c = connected(SOCK_DGRAM, "a");
	struct sockaddr_un to = name("a"), from;
	socklen_t n = sizeof from;
	check(sendto(b, "from b", 6, 0, (void *)&to, sizeof to) == 6 && write(c, "", 0) == 0 && write(c, "nameless", 8) == 8);
	hold();
	equal(recvfrom(a, buf, sizeof buf, 0, (void *)&from, &n), 6);
	check(strcmp(from.sun_path, "b") == 0);
	equal(recv(a, buf, sizeof buf, 0), 0);
	n = sizeof from;
	equal(recvfrom(a, buf, 4, MSG_TRUNC, (void *)&from, &n), 8);
	check(write(c, "more", 4) == 4);
	content(a, "more");
	n = sizeof from;
	check(getsockname(b, (void *)&from, &n) == 0 && strcmp(from.sun_path, "b") == 0);
	check(sendto(a, "reply", 5, 0, (void *)&from, n) == 5);
	content(b, "reply");
	check(unlink("a") == 0 && write(c, "x", 1) == 1); /* the connection needs no name */
}

CASE(socket_packets)
{
	int s[2];
	char buf[64];
	pair(SOCK_SEQPACKET, s);
	check(write(s[0], "one", 3) == 3 && write(s[0], "three", 5) == 5);
	close(s[0]);
	hold();
	equal(read(s[1], buf, sizeof buf), 3);
	equal(read(s[1], buf, 2), 2);
	equal(read(s[1], buf, sizeof buf), 0);
}

/* A listener with connections that nobody has accepted, one of them with bytes, one closed. */
CASE(socket_listener)
{
	int l = bound(SOCK_STREAM, "sock");
	check(listen(l, 5) == 0);
	int a = connected(SOCK_STREAM, "sock"), b = connected(SOCK_STREAM, "sock");
	check(write(a, "hello", 5) == 5);
	check(write(b, "bye", 3) == 3);
	close(b);
	hold();
	int fa = accept(l, NULL, NULL), fb = accept4(l, NULL, NULL, SOCK_CLOEXEC);
	check(fa >= 0 && fb >= 0);
	content(fa, "hello"), content(fb, "bye"), content(fb, "");
	check(write(fa, "answer", 6) == 6);
	content(a, "answer");
	int c = connected(SOCK_STREAM, "sock"), fc = accept(l, NULL, NULL);
	check(fc >= 0 && write(c, "new", 3) == 3);
	content(fc, "new");
	int v;
	socklen_t n = sizeof v;
	check(getsockopt(l, SOL_SOCKET, SO_ACCEPTCONN, &v, &n) == 0 && v == 1);
}

static int abstract(int fd, const char *s, int (*fn)(int, const struct sockaddr *, socklen_t))
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int n = snprintf(a.sun_path + 1, sizeof a.sun_path - 1, "%s-%d", s, getpid());
	return fn(fd, (void *)&a, offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

CASE(socket_abstract)
{
	int l = socket(AF_UNIX, SOCK_STREAM, 0), c = socket(AF_UNIX, SOCK_STREAM, 0), d = socket(AF_UNIX, SOCK_STREAM, 0), un = socket(AF_UNIX, SOCK_DGRAM, 0);
	struct sockaddr_un a = {.sun_family = AF_UNIX}, b;
	socklen_t n = sizeof b;
	check(abstract(l, "carried", bind) == 0 && listen(l, 1) == 0);
	check(bind(un, (void *)&a, sizeof a.sun_family) == 0 && getsockname(un, (void *)&a, &(socklen_t){sizeof a}) == 0);
	hold();
	check(abstract(c, "carried", connect) == 0);
	check(abstract(d, "carried", bind) == -1 && errno == EADDRINUSE);
	check(getsockname(un, (void *)&b, &n) == 0 && n == 8 && memcmp(&a, &b, n) == 0);
	close(l);
	check(abstract(d, "carried", bind) == 0);
}

/* send_fd sends a byte with descriptors, recv_fd takes one. */
static void send_fd(int s, int fd)
{
	char c = 'f', buf[CMSG_SPACE(sizeof fd)] = {0};
	struct iovec v = {&c, 1};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = buf, .msg_controllen = sizeof buf};
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);
	h->cmsg_level = SOL_SOCKET, h->cmsg_type = SCM_RIGHTS, h->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(h), &fd, sizeof fd);
	check(sendmsg(s, &m, 0) == 1);
}

static int recv_fd(int s)
{
	char c, buf[CMSG_SPACE(sizeof(int))];
	struct iovec v = {&c, 1};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = buf, .msg_controllen = sizeof buf};
	int fd = -1;
	equal(recvmsg(s, &m, MSG_CMSG_CLOEXEC), 1);
	equal(c, 'f');
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);
	check(h && h->cmsg_type == SCM_RIGHTS);
	memcpy(&fd, CMSG_DATA(h), sizeof fd);
	return fd;
}

/* Descriptors under way: a pipe with bytes, a file at an offset, a socket that holds one itself. */
CASE(socket_rights)
{
	int s[2], t[2], p[2], file = open("f", O_RDWR | O_CREAT, 0600);
	pair(SOCK_STREAM, s), pair(SOCK_DGRAM, t);
	check(pipe(p) == 0 && write(p[1], "in the pipe", 11) == 11 && write(file, "0123456789", 10) == 10 && lseek(file, 4, SEEK_SET) == 4);
	send_fd(t[0], p[0]);
	send_fd(s[0], file), send_fd(s[0], t[1]);
	close(file), close(p[0]), close(p[1]), close(t[0]), close(t[1]);
	hold();
	int f = recv_fd(s[1]);
	content(f, "456789");
	equal(fcntl(f, F_GETFD), FD_CLOEXEC);
	int u = recv_fd(s[1]), pipe_end = recv_fd(u);
	content(pipe_end, "in the pipe");
	content(pipe_end, "");
}

/* A socket within its own queue. */
CASE(socket_rights_circle)
{
	int s[2];
	pair(SOCK_STREAM, s);
	send_fd(s[0], s[1]);
	hold();
	int twin = recv_fd(s[1]);
	check(write(s[0], "x", 1) == 1);
	content(twin, "x");
}

CASE(socket_credentials)
{
	int s[2], on = 1;
	struct ucred u;
	socklen_t n = sizeof u;
	pair(SOCK_DGRAM, s);
	check(setsockopt(s[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0 && write(s[0], "c", 1) == 1);
	hold();
	char c, buf[CMSG_SPACE(sizeof u)];
	struct iovec v = {&c, 1};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = buf, .msg_controllen = sizeof buf};
	equal(recvmsg(s[1], &m, 0), 1);
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);
	check(h && h->cmsg_type == SCM_CREDENTIALS);
	memcpy(&u, CMSG_DATA(h), sizeof u);
	equal(u.pid, getpid());
	check(getsockopt(s[0], SOL_SOCKET, SO_PEERCRED, &u, &n) == 0);
	equal(u.pid, getpid());
}

CASE(socket_options)
{
	int s[2], v = 0, size = 100000;
	struct timeval tv = {1, 500000}, got;
	socklen_t n = sizeof got;
	pair(SOCK_STREAM | SOCK_CLOEXEC, s);
	check(setsockopt(s[0], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv) == 0 && setsockopt(s[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size) == 0);
	hold();
	check(getsockopt(s[0], SOL_SOCKET, SO_RCVTIMEO, &got, &n) == 0 && got.tv_sec == 1 && got.tv_usec == 500000);
	n = sizeof v;
	check(getsockopt(s[0], SOL_SOCKET, SO_SNDBUF, &v, &n) == 0);
	equal(v, 200000);
	equal(fcntl(s[0], F_GETFD), FD_CLOEXEC);
	check(getsockopt(s[0], SOL_SOCKET, SO_TYPE, &v, &n) == 0 && v == SOCK_STREAM);
}

static int fd_of_worker;
static void *in_recv(void *arg)
{
	char buf[8];
	equal(recv(fd_of_worker, buf, sizeof buf, 0), 4);
	return NULL;
}

CASE(socket_blocked_recv)
{
	int s[2];
	pthread_t t;
	pair(SOCK_STREAM, s);
	fd_of_worker = s[1];
	settle(thread(&t, in_recv, NULL));
	hold();
	check(send(s[0], "text", 4, 0) == 4);
	pthread_join(t, NULL);
}

/* Waiting for all of it, part of which came. */
static void *in_recv_all(void *arg)
{
	char buf[10];
	equal(recv(fd_of_worker, buf, 10, MSG_WAITALL), 10);
	check(memcmp(buf, "0123456789", 10) == 0);
	return NULL;
}

CASE(socket_blocked_recv_all)
{
	int s[2];
	pthread_t t;
	pair(SOCK_STREAM, s);
	fd_of_worker = s[1];
	check(write(s[0], "0123", 4) == 4);
	settle(thread(&t, in_recv_all, NULL));
	hold();
	check(write(s[0], "456789", 6) == 6);
	pthread_join(t, NULL);
}

static void *in_recv_timeout(void *arg)
{
	char c;
	double t = now(CLOCK_MONOTONIC);
	check(recv(fd_of_worker, &c, 1, 0) == -1 && errno == EAGAIN);
	check(now(CLOCK_MONOTONIC) - t >= 0.49);
	return NULL;
}

CASE(socket_blocked_recv_timeout)
{
	int s[2];
	pthread_t t;
	struct timeval tv = {0, 500000};
	pair(SOCK_DGRAM, s);
	check(setsockopt(s[1], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv) == 0);
	fd_of_worker = s[1];
	settle(thread(&t, in_recv_timeout, NULL));
	hold();
	pthread_join(t, NULL);
}

static void *in_accept(void *arg)
{
	int fd = accept(fd_of_worker, NULL, NULL);
	check(fd >= 0);
	content(fd, "hi");
	return NULL;
}

CASE(socket_blocked_accept)
{
	pthread_t t;
	fd_of_worker = bound(SOCK_STREAM, "sock");
	check(listen(fd_of_worker, 1) == 0);
	settle(thread(&t, in_accept, NULL));
	hold();
	check(write(connected(SOCK_STREAM, "sock"), "hi", 2) == 2);
	pthread_join(t, NULL);
}

static void *in_connect(void *arg)
{
	int fd = connected(SOCK_STREAM, "sock");
	check(write(fd, "late", 4) == 4);
	return NULL;
}

/* The queue of connections is full. */
CASE(socket_blocked_connect)
{
	pthread_t t;
	int l = bound(SOCK_STREAM, "sock");
	check(listen(l, 0) == 0);
	int first = connected(SOCK_STREAM, "sock");
	check(write(first, "first", 5) == 5);
	settle(thread(&t, in_connect, NULL));
	hold();
	content(accept(l, NULL, NULL), "first");
	content(accept(l, NULL, NULL), "late");
	pthread_join(t, NULL);
}

enum { MUCH = 1 << 20 };
static char much[MUCH], back[MUCH];
static void *in_send(void *arg)
{
	equal(write(fd_of_worker, much, MUCH), MUCH);
	return NULL;
}

CASE(socket_blocked_send)
{
	int s[2], got = 0, n;
	pthread_t t;
	pair(SOCK_STREAM, s);
	pattern(much, MUCH, 10);
	fd_of_worker = s[0];
	settle(thread(&t, in_send, NULL));
	hold();
	while (got < MUCH && (n = read(s[1], back + got, MUCH - got)) > 0)
		got += n;
	check(pattern_is(back, MUCH, 10));
	pthread_join(t, NULL);
}

static void *in_dgram_send(void *arg)
{
	for (int i = 0; i < 1000; i++)
		equal(send(fd_of_worker, &i, sizeof i, 0), sizeof i);
	return NULL;
}

CASE(socket_blocked_datagrams)
{
	int s[2], v;
	pthread_t t;
	pair(SOCK_DGRAM, s);
	fd_of_worker = s[0];
	settle(thread(&t, in_dgram_send, NULL));
	hold();
	for (int i = 0; i < 1000; i++) {
		equal(recv(s[1], &v, sizeof v, 0), sizeof v);
		equal(v, i);
	}
	pthread_join(t, NULL);
}
