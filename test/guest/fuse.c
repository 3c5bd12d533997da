// A FUSE server that speaks the protocol itself, and a client that checks what it gets; it passes on Linux as root.
//
//   fuse check         prints "ok" or what is wrong
//   fuse checkpoint F  stops in the middle until file F exists, then checks; prints "ok"
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static int bad;
#define CHECK(c) \
	do { \
		if (!(c)) { \
			printf("line %d: %s (errno %d)\n", __LINE__, #c, errno); \
			fflush(stdout); \
			bad = 1; \
		} \
	} while (0)

static void die(const char *what)
{
	printf("fuse: %s: %s\n", what, strerror(errno));
	exit(2);
}

// The server: files in memory.

#define MAXNODE 256
#define BUF (1 << 18)

static struct node {
	int used, nlink, parent;
	uint64_t lookups;
	char name[64], target[64], xval[64];
	int xlen;
	uint32_t mode, uid, gid, mtime;
	char *data;
	size_t size;
} nodes[MAXNODE];

// Links are extra names of a node.
static struct { int node, parent; char name[64]; } names[MAXNODE];

static int dev;
static struct fuse_in_header held; // a READ that waits
static int holding;

static void reply(const struct fuse_in_header *in, int err, const void *p, size_t n)
{
	static char b[BUF + 64];
	struct fuse_out_header *out = (void *)b;
	out->len = sizeof *out + n;
	out->error = -err;
	out->unique = in->unique;
	memcpy(b + sizeof *out, p, n);
	if (write(dev, b, out->len) < 0 && errno != ENOENT && errno != ENODEV && !(errno == EINVAL && n == 77777)) {
		printf("server: answer to %u: %s\n", in->opcode, strerror(errno));
		fflush(stdout);
	}
}

static void attr(struct fuse_attr *a, int i)
{
	struct node *n = &nodes[i];
	memset(a, 0, sizeof *a);
	a->ino = i;
	a->size = n->size;
	a->blocks = (n->size + 511) / 512;
	a->mode = n->mode;
	a->nlink = n->nlink;
	a->uid = n->uid;
	a->gid = n->gid;
	a->mtime = n->mtime;
	a->blksize = 4096;
}

static void entry(struct fuse_entry_out *e, int i)
{
	memset(e, 0, sizeof *e);
	e->nodeid = i;
	e->attr_valid = 0;
	e->entry_valid = 1;
	attr(&e->attr, i);
	nodes[i].lookups++;
}

static int find(int dir, const char *name)
{
	for (int k = 0; k < MAXNODE; k++)
		if (names[k].node && names[k].parent == dir && !strcmp(names[k].name, name))
			return k;
	return -1;
}

static void addname(int dir, const char *name, int node)
{
	for (int k = 0; k < MAXNODE; k++)
		if (!names[k].node) {
			names[k].node = node;
			names[k].parent = dir;
			snprintf(names[k].name, sizeof names[k].name, "%s", name);
			return;
		}
}

static int make(const struct fuse_in_header *in, int dir, const char *name, uint32_t mode)
{
	for (int i = 2; i < MAXNODE; i++)
		if (!nodes[i].used) {
			memset(&nodes[i], 0, sizeof nodes[i]);
			nodes[i].used = 1;
			nodes[i].nlink = S_ISDIR(mode) ? 2 : 1;
			nodes[i].mode = mode;
			nodes[i].uid = in ? in->uid : 0;
			nodes[i].gid = in ? in->gid : 0;
			addname(dir, name, i);
			return i;
		}
	return 0;
}

static void resize(struct node *n, size_t size)
{
	if (size > n->size) {
		n->data = realloc(n->data, size);
		memset(n->data + n->size, 0, size - n->size);
	}
	n->size = size;
}

static void forgotten(uint64_t i, uint64_t n)
{
	if (i >= MAXNODE || i < 2 || n > nodes[i].lookups) {
		printf("server: forget %lu of %lu\n", (unsigned long)n, (unsigned long)i);
		fflush(stdout);
		return;
	}
	nodes[i].lookups -= n;
}

static void handle(struct fuse_in_header *in, char *arg)
{
	struct fuse_entry_out e;
	struct fuse_attr_out ao = { 0 };
	struct fuse_open_out oo = { 0 };
	struct node *n = in->nodeid < MAXNODE ? &nodes[in->nodeid] : NULL;
	int dir = in->nodeid, k, i;
	if (!n || (in->nodeid && !n->used && in->opcode != FUSE_FORGET && in->opcode != FUSE_RELEASE)) {
		reply(in, ESTALE, "", 0);
		return;
	}
	switch (in->opcode) {
	case FUSE_INIT: {
		struct fuse_init_in *ii = (void *)arg;
		struct fuse_init_out io = { .major = 7, .minor = 31, .max_readahead = ii->max_readahead,
			.flags = FUSE_BIG_WRITES | FUSE_ATOMIC_O_TRUNC, .max_write = 65536, .max_background = 16, .congestion_threshold = 12 };
		reply(in, 0, &io, sizeof io);
		return;
	}
	case FUSE_LOOKUP:
		if (!strcmp(arg, "release") && holding) {
			holding = 0;
			reply(&held, 0, "at last", 7);
		}
		if ((k = find(dir, arg)) < 0) {
			reply(in, ENOENT, "", 0);
			return;
		}
		entry(&e, names[k].node);
		reply(in, 0, &e, sizeof e);
		return;
	case FUSE_FORGET:
		forgotten(in->nodeid, ((struct fuse_forget_in *)arg)->nlookup);
		return;
	case FUSE_BATCH_FORGET: {
		struct fuse_batch_forget_in *b = (void *)arg;
		struct fuse_forget_one *f = (void *)(b + 1);
		for (uint32_t j = 0; j < b->count; j++)
			forgotten(f[j].nodeid, f[j].nlookup);
		return;
	}
	case FUSE_GETATTR:
		attr(&ao.attr, in->nodeid);
		reply(in, 0, &ao, sizeof ao);
		return;
	case FUSE_SETATTR: {
		struct fuse_setattr_in *s = (void *)arg;
		if (s->valid & FATTR_MODE)
			n->mode = (n->mode & S_IFMT) | (s->mode & 07777);
		if (s->valid & FATTR_UID)
			n->uid = s->uid;
		if (s->valid & FATTR_GID)
			n->gid = s->gid;
		if (s->valid & FATTR_SIZE)
			resize(n, s->size);
		if (s->valid & FATTR_MTIME)
			n->mtime = s->valid & FATTR_MTIME_NOW ? 1 : s->mtime;
		attr(&ao.attr, in->nodeid);
		reply(in, 0, &ao, sizeof ao);
		return;
	}
	case FUSE_READLINK:
		reply(in, 0, n->target, strlen(n->target));
		return;
	case FUSE_SYMLINK:
		i = make(in, dir, arg, S_IFLNK | 0777);
		snprintf(nodes[i].target, sizeof nodes[i].target, "%s", arg + strlen(arg) + 1);
		nodes[i].size = strlen(nodes[i].target);
		entry(&e, i);
		reply(in, 0, &e, sizeof e);
		return;
	case FUSE_MKNOD: {
		struct fuse_mknod_in *m = (void *)arg;
		entry(&e, make(in, dir, (char *)(m + 1), m->mode));
		reply(in, 0, &e, sizeof e);
		return;
	}
	case FUSE_MKDIR: {
		struct fuse_mkdir_in *m = (void *)arg;
		entry(&e, make(in, dir, (char *)(m + 1), S_IFDIR | m->mode));
		reply(in, 0, &e, sizeof e);
		return;
	}
	case FUSE_CREATE: {
		struct fuse_create_in *c = (void *)arg;
		struct { struct fuse_entry_out e; struct fuse_open_out o; } both = { 0 };
		i = make(in, dir, (char *)(c + 1), c->mode);
		entry(&both.e, i);
		both.o.fh = i + 1000;
		reply(in, 0, &both, sizeof both);
		return;
	}
	case FUSE_UNLINK:
	case FUSE_RMDIR:
		if ((k = find(dir, arg)) < 0) {
			reply(in, ENOENT, "", 0);
			return;
		}
		i = names[k].node;
		if (in->opcode == FUSE_RMDIR)
			for (int j = 0; j < MAXNODE; j++)
				if (names[j].node && names[j].parent == i) {
					reply(in, ENOTEMPTY, "", 0);
					return;
				}
		names[k].node = 0;
		nodes[i].nlink--;
		reply(in, 0, "", 0);
		return;
	case FUSE_RENAME:
	case FUSE_RENAME2: {
		struct fuse_rename2_in *r = (void *)arg;
		char *from = arg + (in->opcode == FUSE_RENAME ? 8 : 16), *to = from + strlen(from) + 1;
		int t = find(r->newdir, to);
		k = find(dir, from);
		if (in->opcode == FUSE_RENAME2 && r->flags & 2) { // RENAME_EXCHANGE
			i = names[k].node;
			names[k].node = names[t].node;
			names[t].node = i;
			reply(in, 0, "", 0);
			return;
		}
		if (t >= 0) {
			nodes[names[t].node].nlink--;
			names[t].node = 0;
		}
		names[k].parent = r->newdir;
		snprintf(names[k].name, sizeof names[k].name, "%s", to);
		reply(in, 0, "", 0);
		return;
	}
	case FUSE_LINK: {
		struct fuse_link_in *l = (void *)arg;
		addname(dir, (char *)(l + 1), l->oldnodeid);
		nodes[l->oldnodeid].nlink++;
		entry(&e, l->oldnodeid);
		reply(in, 0, &e, sizeof e);
		return;
	}
	case FUSE_OPEN:
	case FUSE_OPENDIR:
		if (((struct fuse_open_in *)arg)->flags & O_TRUNC)
			resize(n, 0);
		oo.fh = in->nodeid + 1000;
		oo.open_flags = !strncmp(n->target, "direct", 6) ? FOPEN_DIRECT_IO : 0;
		reply(in, 0, &oo, sizeof oo);
		return;
	case FUSE_READ: {
		struct fuse_read_in *r = (void *)arg;
		static char junk[77777];
		if (r->fh != in->nodeid + 1000) {
			reply(in, EBADF, "", 0);
			return;
		}
		if (!strcmp(n->target, "direct slow")) {
			held = *in;
			holding = 1;
			return;
		}
		if (!strcmp(n->target, "direct garbage")) {
			reply(in, 0, junk, 77777); // more than was asked for
			return;
		}
		size_t m = r->offset >= n->size ? 0 : n->size - r->offset;
		if (m > r->size)
			m = r->size;
		reply(in, 0, m ? n->data + r->offset : "", m);
		return;
	}
	case FUSE_INTERRUPT:
		if (holding && ((struct fuse_interrupt_in *)arg)->unique == held.unique) {
			holding = 0;
			reply(&held, EINTR, "", 0);
		}
		return;
	case FUSE_WRITE: {
		struct fuse_write_in *w = (void *)arg;
		struct fuse_write_out wo = { .size = w->size };
		if (w->offset + w->size > n->size)
			resize(n, w->offset + w->size);
		memcpy(n->data + w->offset, w + 1, w->size);
		reply(in, 0, &wo, sizeof wo);
		return;
	}
	case FUSE_STATFS: {
		struct fuse_statfs_out s = { .st = { .blocks = 1000, .bfree = 500, .bavail = 400, .files = 256, .ffree = 100, .bsize = 4096, .namelen = 63, .frsize = 4096 } };
		reply(in, 0, &s, sizeof s);
		return;
	}
	case FUSE_READDIR: {
		struct fuse_read_in *r = (void *)arg;
		static char b[BUF];
		size_t m = 0;
		for (int j = r->offset; j < MAXNODE + 2; j++) {
			const char *nm = j == 0 ? "." : j == 1 ? ".." : names[j - 2].name;
			int nd = j < 2 ? dir : names[j - 2].node;
			size_t len = strlen(nm), size = (24 + len + 7) & ~7ul;
			if (j >= 2 && (!nd || names[j - 2].parent != dir))
				continue;
			if (m + size > r->size || m + size > 400) // few at a time
				break;
			struct fuse_dirent *d = (void *)(b + m);
			memset(d, 0, size);
			d->ino = nd;
			d->off = j + 1;
			d->namelen = len;
			d->type = nodes[nd].mode >> 12;
			memcpy(d->name, nm, len);
			m += size;
		}
		reply(in, 0, b, m);
		return;
	}
	case FUSE_SETXATTR: {
		struct fuse_setxattr_in *x = (void *)arg;
		char *nm = arg + 8; // the short form
		if (strcmp(nm, "user.x")) {
			reply(in, EOPNOTSUPP, "", 0);
			return;
		}
		n->xlen = x->size;
		memcpy(n->xval, nm + strlen(nm) + 1, x->size);
		reply(in, 0, "", 0);
		return;
	}
	case FUSE_GETXATTR:
	case FUSE_LISTXATTR: {
		struct fuse_getxattr_in *g = (void *)arg;
		struct fuse_getxattr_out go = { 0 };
		const char *v = in->opcode == FUSE_GETXATTR ? n->xval : "user.x";
		int len = !n->xlen ? 0 : in->opcode == FUSE_GETXATTR ? n->xlen : 7;
		if (in->opcode == FUSE_GETXATTR && (strcmp((char *)(g + 1), "user.x") || !n->xlen)) {
			reply(in, ENODATA, "", 0);
			return;
		}
		go.size = len;
		if (g->size == 0)
			reply(in, 0, &go, sizeof go);
		else if (g->size < (uint32_t)len)
			reply(in, ERANGE, "", 0);
		else
			reply(in, 0, v, len);
		return;
	}
	case FUSE_REMOVEXATTR:
		n->xlen = 0;
		reply(in, 0, "", 0);
		return;
	case FUSE_FLUSH:
	case FUSE_RELEASE:
	case FUSE_RELEASEDIR:
	case FUSE_FSYNC:
		reply(in, 0, "", 0);
		return;
	case FUSE_ACCESS:
		reply(in, ((struct fuse_access_in *)arg)->mask & 2 && !(n->mode & 0222) ? EACCES : 0, "", 0);
		return;
	case FUSE_LSEEK:
	case FUSE_FALLOCATE:
	default:
		reply(in, ENOSYS, "", 0);
	}
}

static void serve(void)
{
	static char b[BUF];
	struct fuse_in_header *in = (void *)b;
	for (;;) {
		ssize_t n = read(dev, b, sizeof b);
		if (n < 0 && (errno == EINTR || errno == EAGAIN || errno == ENOENT))
			continue;
		if (n < 0)
			exit(errno == ENODEV ? 0 : 3);
		if (n < (ssize_t)sizeof *in || in->len != n) {
			printf("server: a message of %zd bytes\n", n);
			exit(3);
		}
		b[n < (ssize_t)sizeof b ? n : n - 1] = 0;
		handle(in, b + sizeof *in);
	}
}

// The client.

static char dir[64];

static pid_t start(const char *options)
{
	char o[256];
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (fd < 0) {
		mknod("/tmp/fuse-device", S_IFCHR | 0600, makedev(10, 229));
		fd = open("/tmp/fuse-device", O_RDWR | O_CLOEXEC);
	}
	if (fd < 0)
		die("/dev/fuse");
	CHECK(read(fd, o, 1) == -1 && errno == EPERM);
	memset(nodes, 0, sizeof nodes);
	memset(names, 0, sizeof names);
	nodes[1].used = 1;
	nodes[1].mode = S_IFDIR | 0755;
	nodes[1].nlink = 2;
	strcpy(nodes[make(NULL, 1, "slow", S_IFREG | 0644)].target, "direct slow");
	strcpy(nodes[make(NULL, 1, "garbage", S_IFREG | 0644)].target, "direct garbage");
	make(NULL, 1, "release", S_IFREG | 0644);
	sprintf(dir, "/tmp/fuse.%d", getpid());
	if (mkdir(dir, 0755) && errno != EEXIST)
		die(dir);
	CHECK(mount("x", dir, "fuse", 0, "rootmode=40000,user_id=0,group_id=0") == -1 && errno == EINVAL);
	CHECK(mount("x", dir, "fuse", 0, "fd=0,rootmode=40000,user_id=0,group_id=0") == -1 && errno == EINVAL);
	sprintf(o, "fd=%d,rootmode=40000,user_id=0,group_id=0%s", fd, options);
	if (mount("guest", dir, "fuse", MS_NOSUID | MS_NODEV, o))
		die("mount");
	struct pollfd p = { .fd = fd, .events = POLLIN };
	CHECK(poll(&p, 1, 5000) == 1 && p.revents == POLLIN);
	CHECK(read(fd, o, 100) == -1 && errno == EINVAL);
	int second = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (second < 0)
		second = open("/tmp/fuse-device", O_RDWR | O_CLOEXEC);
	uint32_t first = fd;
	CHECK(ioctl(second, FUSE_DEV_IOC_CLONE, &first) == 0);
	CHECK(ioctl(second, FUSE_DEV_IOC_CLONE, &first) == -1 && errno == EINVAL);
	close(second);
	pid_t pid = fork();
	if (pid == 0) {
		dev = fd;
		signal(SIGALRM, SIG_IGN);
		serve();
	}
	close(fd);
	if (chdir(dir))
		die("chdir");
	return pid;
}

static void stop(pid_t pid)
{
	int st;
	if (chdir("/") || umount(dir))
		die("umount");
	CHECK(waitpid(pid, &st, 0) == pid && st == 0);
	rmdir(dir);
}

static void onalarm(int s) { (void)s; }

static void fillbuf(char *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		b[i] = "abcdefghijklm"[i % 13] + i / 4096 % 7;
}

static int count(DIR *d)
{
	int n = 0;
	while (readdir(d))
		n++;
	return n;
}

static void files(void)
{
	static char a[300000], b[300000];
	struct stat st, s2;
	struct statfs sf;
	int fd;
	fillbuf(a, sizeof a);
	CHECK((fd = open("f", O_CREAT | O_EXCL | O_RDWR, 0640)) >= 0);
	CHECK(open("f", O_CREAT | O_EXCL | O_RDWR, 0640) == -1 && errno == EEXIST);
	CHECK(write(fd, a, sizeof a) == sizeof a);
	CHECK(fstat(fd, &st) == 0 && st.st_size == sizeof a && (st.st_mode & 07777) == 0640);
	CHECK(pread(fd, b, sizeof b, 0) == sizeof b && !memcmp(a, b, sizeof a));
	CHECK(pread(fd, b, 1000, 299500) == 500 && !memcmp(a + 299500, b, 500));
	CHECK(pread(fd, b, 1000, 400000) == 0);
	CHECK(ftruncate(fd, 100000) == 0 && fstat(fd, &st) == 0 && st.st_size == 100000);
	CHECK(lseek(fd, 0, SEEK_END) == 100000);
	close(fd);
	CHECK((fd = open("f", O_WRONLY | O_APPEND)) >= 0 && write(fd, "tail", 4) == 4 && fsync(fd) == 0);
	close(fd);
	CHECK(stat("f", &st) == 0 && st.st_size == 100004);
	CHECK(chmod("f", 0600) == 0 && chown("f", 7, 8) == 0 && stat("f", &st) == 0 && (st.st_mode & 07777) == 0600 && st.st_uid == 7 && st.st_gid == 8);
	struct timespec ts[2] = { { 5, 0 }, { 1000, 0 } };
	CHECK(utimensat(AT_FDCWD, "f", ts, 0) == 0 && stat("f", &st) == 0 && st.st_mtime == 1000);
	CHECK(link("f", "g") == 0 && stat("g", &s2) == 0 && s2.st_ino == st.st_ino && s2.st_nlink == 2);
	CHECK(rename("g", "h") == 0 && stat("g", &s2) == -1 && errno == ENOENT && stat("h", &s2) == 0);
	CHECK(symlink("f", "s") == 0 && readlink("s", b, 100) == 1 && b[0] == 'f' && stat("s", &s2) == 0 && s2.st_ino == st.st_ino);
	CHECK(mkdir("d", 0755) == 0 && mkdir("d", 0755) == -1 && errno == EEXIST);
	CHECK((fd = open("d/x", O_CREAT | O_WRONLY, 0644)) >= 0 && close(fd) == 0);
	CHECK(rmdir("d") == -1 && errno == ENOTEMPTY);
	CHECK(renameat2(AT_FDCWD, "d/x", AT_FDCWD, "f", 1) == -1 && errno == EEXIST);
	CHECK(renameat2(AT_FDCWD, "d/x", AT_FDCWD, "f", 2) == 0 && stat("f", &s2) == 0 && s2.st_size == 0);
	CHECK(rename("d/x", "f") == 0 && unlink("d/x") == -1 && errno == ENOENT && rmdir("d") == 0);
	CHECK(stat("f", &s2) == 0 && s2.st_size == 100004);
	CHECK(mkfifo("p", 0644) == 0 && lstat("p", &s2) == 0 && S_ISFIFO(s2.st_mode));
	CHECK(setxattr("f", "user.x", "value", 5, 0) == 0 && getxattr("f", "user.x", b, 100) == 5 && !memcmp(b, "value", 5));
	CHECK(getxattr("f", "user.x", NULL, 0) == 5 && getxattr("f", "user.x", b, 2) == -1 && errno == ERANGE);
	CHECK(listxattr("f", b, 100) == 7 && removexattr("f", "user.x") == 0 && getxattr("f", "user.x", b, 9) == -1 && errno == ENODATA);
	CHECK(setxattr("f", "user.y", "value", 5, 0) == -1 && errno == EOPNOTSUPP);
	CHECK(statfs(".", &sf) == 0 && sf.f_type == 0x65735546 && sf.f_blocks == 1000 && sf.f_bavail == 400);
	CHECK((fd = open("f", O_RDWR)) >= 0 && fallocate(fd, 0, 0, 10) == -1 && errno == EOPNOTSUPP);
	CHECK(flock(fd, 2) == 0);
	close(fd);
	CHECK(access("f", W_OK) == 0 && chmod("f", 0400) == 0 && access("f", W_OK) == -1 && errno == EACCES && chmod("f", 0600) == 0);
	CHECK((fd = open("f", O_RDWR | O_TRUNC)) >= 0 && fstat(fd, &st) == 0 && st.st_size == 0);
	close(fd);
	DIR *d = opendir(".");
	CHECK(d && count(d) == 9); // . .. slow garbage release f h s p
	rewinddir(d);
	CHECK(readdir(d) && readdir(d));
	long pos = telldir(d);
	struct dirent *e = readdir(d);
	CHECK(e && !strcmp(e->d_name, "slow") && e->d_type == DT_REG);
	seekdir(d, pos);
	CHECK((e = readdir(d)) && !strcmp(e->d_name, "slow"));
	closedir(d);
	for (int i = 0; i < 60; i++) {
		char n[20];
		sprintf(n, "many%d", i);
		CHECK((fd = open(n, O_CREAT | O_WRONLY, 0644)) >= 0 && close(fd) == 0);
	}
	d = opendir(".");
	CHECK(d && count(d) == 69);
	closedir(d);
	for (int i = 0; i < 60; i++) {
		char n[20];
		sprintf(n, "many%d", i);
		CHECK(unlink(n) == 0);
	}
	CHECK((fd = open("gone", O_CREAT | O_RDWR, 0644)) >= 0 && unlink("gone") == 0 && write(fd, "x", 1) == 1 && pread(fd, b, 2, 0) == 1 && b[0] == 'x');
	close(fd);
}

static void maps(void)
{
	static char a[20000], b[20000];
	int fd = open("m", O_CREAT | O_RDWR, 0644);
	fillbuf(a, sizeof a);
	CHECK(fd >= 0 && write(fd, a, sizeof a) == sizeof a);
	char *p = mmap(NULL, sizeof a, PROT_READ, MAP_PRIVATE, fd, 0);
	CHECK(p != MAP_FAILED && !memcmp(p, a, sizeof a));
	munmap(p, sizeof a);
	p = mmap(NULL, sizeof a, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED && !memcmp(p, a, sizeof a));
	memcpy(p + 5000, "mapped", 6);
	CHECK(msync(p, sizeof a, MS_SYNC) == 0);
	CHECK(pread(fd, b, 6, 5000) == 6 && !memcmp(b, "mapped", 6));
	CHECK(pwrite(fd, "written", 7, 9000) == 7 && !memcmp(p + 9000, "written", 7));
	memcpy(p + 12000, "again", 5);
	munmap(p, sizeof a);
	close(fd);
	CHECK((fd = open("m", O_RDONLY)) >= 0 && pread(fd, b, sizeof b, 0) == sizeof b);
	CHECK(!memcmp(b + 5000, "mapped", 6) && !memcmp(b + 9000, "written", 7) && !memcmp(b + 12000, "again", 5) && b[19999] == a[19999]);
	p = mmap(NULL, sizeof a, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	CHECK(p != MAP_FAILED && !memcmp(p + 12000, "again", 5));
	p[0] = '!';
	CHECK(pread(fd, b, 1, 0) == 1 && b[0] == a[0]);
	munmap(p, sizeof a);
	close(fd);
	CHECK(unlink("m") == 0);
}

static void waits(pid_t server)
{
	char b[100];
	struct stat st;
	struct sigaction sa = { .sa_handler = onalarm };
	int fd = open("slow", O_RDONLY), status;
	sigaction(SIGALRM, &sa, NULL);
	CHECK(fd >= 0);
	alarm(1);
	CHECK(read(fd, b, 10) == -1 && errno == EINTR);
	// One that is killed while it waits.
	pid_t pid = fork();
	if (pid == 0) {
		read(fd, b, 10);
		_exit(0);
	}
	usleep(100000);
	kill(pid, SIGKILL);
	stat("release", &st);
	CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
	close(fd);
	CHECK((fd = open("garbage", O_RDONLY)) >= 0 && read(fd, b, 10) == -1 && errno == EIO);
	close(fd);
	// The server dies while somebody waits.
	fd = open("slow", O_RDONLY);
	pid = fork();
	if (pid == 0)
		_exit(read(fd, b, 10) == -1 && (errno == ECONNABORTED || errno == ENOTCONN) ? 0 : 1);
	usleep(100000);
	kill(server, SIGKILL);
	waitpid(server, &status, 0);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK(read(fd, b, 10) == -1 && errno == ENOTCONN);
	CHECK(stat("f", &st) == -1 && errno == ENOTCONN);
	CHECK(open("new", O_CREAT | O_WRONLY, 0644) == -1 && errno == ENOTCONN);
	close(fd);
	if (chdir("/") || umount(dir))
		die("umount");
	rmdir(dir);
}

static void strangers(void)
{
	struct stat st;
	pid_t server = start("");
	if (seteuid(1000))
		die("seteuid");
	CHECK(stat("release", &st) == -1 && errno == EACCES);
	if (seteuid(0))
		die("seteuid");
	stop(server);
	server = start(",allow_other,default_permissions,max_read=8192");
	int fd = open("f", O_CREAT | O_RDWR, 0600);
	static char b[30000];
	CHECK(fd >= 0 && write(fd, b, sizeof b) == sizeof b && pread(fd, b, sizeof b, 0) == sizeof b);
	close(fd);
	if (seteuid(1000))
		die("seteuid");
	CHECK(stat("f", &st) == 0 && open("f", O_RDONLY) == -1 && errno == EACCES && mkdir("d", 0755) == -1 && errno == EACCES);
	if (seteuid(0))
		die("seteuid");
	stop(server);
}

static void check(void)
{
	pid_t server = start("");
	files();
	maps();
	waits(server);
	strangers();
}

static void checkpoint(const char *go)
{
	static char a[20000], b[20000];
	struct stat st;
	int status;
	fillbuf(a, sizeof a);
	pid_t server = start("");
	mkdir("d", 0755);
	int fd = open("d/f", O_CREAT | O_RDWR, 0644), gone = open("gone", O_CREAT | O_RDWR, 0644), map = open("map", O_CREAT | O_RDWR, 0644);
	CHECK(write(fd, a, sizeof a) == sizeof a && lseek(fd, 100, SEEK_SET) == 100);
	CHECK(write(gone, "still here", 10) == 10 && unlink("gone") == 0);
	CHECK(write(map, a, sizeof a) == sizeof a);
	char *p = mmap(NULL, sizeof a, PROT_READ | PROT_WRITE, MAP_SHARED, map, 0);
	CHECK(p != MAP_FAILED);
	memcpy(p + 7000, "before", 6);
	DIR *d = opendir(".");
	CHECK(readdir(d) && readdir(d) && readdir(d));
	// One whose request the server has, one who will make it.
	int slow = open("slow", O_RDONLY);
	pid_t waiter = fork();
	if (waiter == 0)
		_exit(read(slow, b, 10) == 7 && !memcmp(b, "at last", 7) ? 0 : 1);
	usleep(200000);
	printf("ready\n");
	fflush(stdout);
	while (access(go, F_OK))
		usleep(20000);
	CHECK(stat("release", &st) == 0);
	CHECK(waitpid(waiter, &status, 0) == waiter && status == 0);
	CHECK(read(fd, b, 200) == 200 && !memcmp(b, a + 100, 200));
	CHECK(write(fd, "after", 5) == 5 && pread(fd, b, 5, 300) == 5 && !memcmp(b, "after", 5));
	CHECK(pread(gone, b, 20, 0) == 10 && !memcmp(b, "still here", 10));
	CHECK(!memcmp(p + 7000, "before", 6) && p[19999] == a[19999]);
	memcpy(p + 8000, "after", 5);
	CHECK(munmap(p, sizeof a) == 0 && pread(map, b, sizeof b, 0) == sizeof b && !memcmp(b + 7000, "before", 6) && !memcmp(b + 8000, "after", 5));
	CHECK(count(d) == 4); // garbage release d map
	closedir(d);
	CHECK(stat("d/f", &st) == 0 && st.st_size == sizeof a && mkdir("d/e", 0755) == 0);
	close(fd);
	close(gone);
	close(map);
	close(slow);
	stop(server);
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	if (argc == 2 && !strcmp(argv[1], "check"))
		check();
	else if (argc == 3 && !strcmp(argv[1], "checkpoint"))
		checkpoint(argv[2]);
	else
		return 2;
	if (!bad)
		printf("ok\n");
	return bad;
}
