/*
 * fsops: a random sequence of file operations, the same for the same seed, with a line for each that tells its
 * result. What it writes on one file system is compared with what it writes on another.
 *
 *   fsops DIR SEED STEPS [FEATURES]      in DIR, which is empty or what fill made
 *   fsops fill DIR SEED [FEATURES]       a tree to begin with
 *   fsops overlay DIR SEED STEPS [FEATURES] [LOWER]
 *                                        mounts an overlay of two lower layers below DIR (LOWER: of what is there)
 *
 * FEATURES are letters of what to leave out: d device nodes, m mmap, x trusted attributes, w whiteout renames,
 * t O_TMPFILE, u other users, s SEEK_DATA and SEEK_HOLE, n link counts of directories, f fallocate, z ZERO_RANGE, e bad xattr names, i set-id bits, k the
 * upper layer, v trusted attributes of overlays (userxattr is used).
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/falloc.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/types.h>
#include <sys/xattr.h>
#include <unistd.h>

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#define RENAME_EXCHANGE 2
#define RENAME_WHITEOUT 4
#endif

static uint64_t rng;
static const char *skip = "";

static uint32_t rnd(uint32_t n)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return (uint32_t)(rng >> 20) % n;
}

static int without(char c) { return strchr(skip, c) != NULL; }

static uint64_t hash(uint64_t h, const void *p, size_t n)
{
	const unsigned char *b = p;
	while (n--)
		h = (h ^ *b++) * 0x100000001b3ull;
	return h;
}

static const char *err(int e)
{
	static char b[16];
	static const struct { int e; const char *n; } t[] = {
		{ 0, "ok" }, { EPERM, "EPERM" }, { ENOENT, "ENOENT" }, { EEXIST, "EEXIST" }, { ENOTDIR, "ENOTDIR" }, { EISDIR, "EISDIR" },
		{ ENOTEMPTY, "ENOTEMPTY" }, { EACCES, "EACCES" }, { EINVAL, "EINVAL" }, { EXDEV, "EXDEV" }, { ELOOP, "ELOOP" }, { EBUSY, "EBUSY" },
		{ ENODATA, "ENODATA" }, { EOPNOTSUPP, "EOPNOTSUPP" }, { ENXIO, "ENXIO" }, { EMLINK, "EMLINK" }, { EROFS, "EROFS" },
		{ ENAMETOOLONG, "ENAMETOOLONG" }, { ENOSPC, "ENOSPC" }, { EBADF, "EBADF" }, { EFBIG, "EFBIG" }, { ERANGE, "ERANGE" },
		{ EIO, "EIO" }, { ESTALE, "ESTALE" }, { ENODEV, "ENODEV" }, { ETXTBSY, "ETXTBSY" },
	};
	for (size_t i = 0; i < sizeof t / sizeof *t; i++)
		if (t[i].e == e)
			return t[i].n;
	snprintf(b, sizeof b, "E%d", e);
	return b;
}

static void die(const char *what)
{
	fprintf(stderr, "fsops: %s: %s\n", what, strerror(errno));
	exit(2);
}

/* A path of at most three components out of few names, so that operations meet. */
static const char *name(char *b)
{
	static const char *dirs[] = { "", "d0/", "d1/", "d0/d2/", "d1/d3/", "d2/", "d0/d2/d3/", "s0/" };
	static const char *leaf[] = { "f0", "f1", "f2", "d0", "d1", "d2", "d3", "s0", "s1", "f3" };
	sprintf(b, "%s%s", dirs[rnd(8)], leaf[rnd(10)]);
	return b;
}

#define NFD 6
static struct { int fd; } open_[NFD];

static int step;
static void line(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void line(const char *fmt, ...)
{
	va_list ap;
	int e = errno;
	printf("%d ", step);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	errno = e;
}

static const char *result(long r) { return r < 0 ? err(errno) : "ok"; }

static const char kinds[16] = "?pc?d?b?-?l?s???";

static void show(const char *what, const char *path, const struct stat *st)
{
	int dir = S_ISDIR(st->st_mode);
	line("%s %s = %c%04o %u:%u links %d size %lld", what, path, kinds[st->st_mode >> 12], st->st_mode & 07777, st->st_uid, st->st_gid,
	     (dir && without('n')) || (S_ISCHR(st->st_mode) && !st->st_rdev) ? 0 : (int)st->st_nlink, dir || S_ISCHR(st->st_mode) ? 0LL : (long long)st->st_size);
}

static int byname(const void *a, const void *b) { return strcmp(*(char **)a, *(char **)b); }

/* list reads a directory; n < 0 is an error. */
static int list(const char *path, char **out, int max)
{
	DIR *d = opendir(path);
	struct dirent *e;
	int n = 0;
	if (!d)
		return -1;
	while ((e = readdir(d)) && n < max)
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) {
			char *s = malloc(strlen(e->d_name) + 3);
			sprintf(s, "%s:%c", e->d_name, kinds[e->d_type & 15]);
			out[n++] = s;
		}
	closedir(d);
	qsort(out, n, sizeof *out, byname);
	return n;
}

static uint64_t content(const char *path)
{
	char b[65536];
	uint64_t h = 0xcbf29ce484222325ull;
	ssize_t n;
	int fd = open(path, O_RDONLY);
	if (fd < 0)
		return 0;
	while ((n = read(fd, b, sizeof b)) > 0)
		h = hash(h, b, n);
	close(fd);
	return h;
}

static void xattrs(const char *path, char *out)
{
	char names[4096], v[1024], *all[64];
	ssize_t n = llistxattr(path, names, sizeof names);
	int k = 0;
	*out = 0;
	for (char *p = names; n > 0 && p < names + n && k < 64; p += strlen(p) + 1)
		if ((!strncmp(p, "user.", 5) || !strncmp(p, "security.cap", 12) || !strncmp(p, "trusted.t", 9)))
			all[k++] = p;
	qsort(all, k, sizeof *all, byname);
	for (int i = 0; i < k; i++) {
		ssize_t m = lgetxattr(path, all[i], v, sizeof v);
		out += sprintf(out, " %s=%llx", all[i], m < 0 ? 0ull : (unsigned long long)hash(1, v, m));
	}
}

static void dump(const char *path, int depth)
{
	char *e[256], sub[4096], target[512], x[8192];
	struct stat st;
	int n = list(path, e, 256);
	if (n < 0)
		line("  list %s = %s", path, err(errno));
	for (int i = 0; i < n; i++) {
		e[i][strlen(e[i]) - 2] = 0;
		snprintf(sub, sizeof sub, "%s/%s", path, e[i]);
		free(e[i]);
		if (lstat(sub, &st)) {
			line("  %s = %s", sub, err(errno));
			continue;
		}
		show(" ", sub, &st);
		xattrs(sub, x);
		if (*x)
			line("  %s has%s", sub, x);
		if (S_ISREG(st.st_mode))
			line("  %s content %llx", sub, (unsigned long long)content(sub));
		if (S_ISLNK(st.st_mode)) {
			ssize_t m = readlink(sub, target, sizeof target - 1);
			target[m > 0 ? m : 0] = 0;
			line("  %s -> %s", sub, target);
		}
		if (S_ISDIR(st.st_mode) && depth < 12)
			dump(sub, depth + 1);
	}
}

static void fillbuf(char *b, int n)
{
	char c = 'a' + rnd(26);
	for (int i = 0; i < n; i++)
		b[i] = c + i % 7;
}

/* Permission bits, now and then with set-id ones. What sticky ones mean depends on fs.protected_symlinks. */
static int bits(void) { return rnd(010000) & (without('i') ? 0777 : 06777); }

static int size(void)
{
	static const int s[] = { 0, 1, 5, 100, 4096, 5000, 8192, 20000, 70000 };
	return s[rnd(9)];
}

static void op_open(void)
{
	static const int acc[] = { O_RDONLY, O_WRONLY, O_RDWR, O_RDONLY };
	static const int extra[] = { 0, 0, O_CREAT, O_CREAT, O_CREAT | O_EXCL, O_TRUNC, O_CREAT | O_TRUNC, O_APPEND, O_DIRECTORY, O_NOFOLLOW, O_PATH, O_CREAT | O_APPEND, O_CREAT | O_NOFOLLOW, O_CREAT | O_DIRECTORY };
	char p[256];
	int f = acc[rnd(4)] | extra[rnd(14)] | O_NONBLOCK, i = rnd(NFD), fd, mode = rnd(3) ? 0644 : rnd(01000);
	name(p);
	fd = open(p, f, mode);
	line("open fd%d %s %#o %o = %s", i, p, f, mode, result(fd));
	if (fd >= 0) {
		if (open_[i].fd >= 0)
			close(open_[i].fd);
		open_[i].fd = fd;
	}
}

static void op_tmpfile(void)
{
	char p[256], from[64];
	int i = rnd(NFD), fd, r;
	if (without('t'))
		return;
	name(p);
	char *s = strrchr(p, '/');
	if (s)
		*s = 0;
	fd = open(s ? p : ".", O_TMPFILE | O_RDWR, 0640);
	line("tmpfile fd%d %s = %s", i, s ? p : ".", result(fd));
	if (fd < 0)
		return;
	if (write(fd, "temporary", 9) != 9)
		line("write = %s", err(errno));
	sprintf(from, "/proc/self/fd/%d", fd);
	name(p);
	r = linkat(AT_FDCWD, from, AT_FDCWD, p, AT_SYMLINK_FOLLOW);
	line("link it to %s = %s", p, result(r));
	if (open_[i].fd >= 0)
		close(open_[i].fd);
	open_[i].fd = fd;
}

static void op_fd(void)
{
	static char b[70000];
	struct stat st;
	int i = rnd(NFD), fd = open_[i].fd;
	long r;
	off_t off;
	if (fd < 0)
		return;
	switch (rnd(without('f') ? 12 : 14)) {
	case 0: case 1: case 2:
		r = size();
		fillbuf(b, r);
		r = write(fd, b, r);
		line("write fd%d = %ld %s", i, r, result(r));
		break;
	case 3:
		r = size();
		off = size();
		fillbuf(b, r);
		r = pwrite(fd, b, r, off);
		line("pwrite fd%d %ld = %ld %s", i, (long)off, r, result(r));
		break;
	case 4: case 5:
		off = size();
		r = pread(fd, b, sizeof b, off);
		line("pread fd%d %ld = %ld %llx %s", i, (long)off, r, r > 0 ? (unsigned long long)hash(1, b, r) : 0, result(r));
		break;
	case 6:
		off = size();
		r = ftruncate(fd, off);
		line("ftruncate fd%d %ld = %s", i, (long)off, result(r));
		break;
	case 7:
		r = fstat(fd, &st);
		if (r)
			line("fstat fd%d = %s", i, err(errno));
		else
			show("fstat", "fd", &st);
		break;
	case 8:
		off = bits();
		r = fchmod(fd, off);
		line("fchmod fd%d %o = %s", i, (int)off, result(r));
		break;
	case 9:
		r = rnd(2) ? fsync(fd) : fdatasync(fd);
		line("fsync fd%d = %s", i, result(r));
		break;
	case 10:
		if (without('s'))
			break;
		off = size();
		r = lseek(fd, off, rnd(2) ? SEEK_SET : SEEK_END);
		line("lseek fd%d = %s", i, result(r));
		break;
	case 11: {
		int j = rnd(NFD);
		loff_t in = size(), out = size();
		if (open_[j].fd < 0)
			break;
		if (fstat(fd, &st) || !S_ISREG(st.st_mode) || fstat(open_[j].fd, &st) || !S_ISREG(st.st_mode))
			break;
		r = copy_file_range(fd, &in, open_[j].fd, &out, 5000, 0);
		line("copy_file_range fd%d fd%d = %ld %s", i, j, r, result(r));
		break;
	}
	default: {
		static const int m[] = { 0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_ZERO_RANGE, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE };
		int k = rnd(without('z') ? 3 : 5);
		off = size();
		r = size();
		int want = r;
		r = fallocate(fd, m[k], off, r);
		line("fallocate fd%d %d %ld %d = %s", i, m[k], (long)off, want, result(r));
	}
	}
}

static void op_mmap(void)
{
	struct stat st;
	int i = rnd(NFD), fd = open_[i].fd, w = rnd(2);
	if (fd < 0 || without('m') || fstat(fd, &st) || !S_ISREG(st.st_mode))
		return;
	char *p = mmap(NULL, 8192, PROT_READ | (w ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
	line("mmap fd%d %d = %s", i, w, p == MAP_FAILED ? err(errno) : "ok");
	if (p == MAP_FAILED)
		return;
	if (w && st.st_size > 10)
		memcpy(p + 3, "mapped", 6);
	if (st.st_size > 0)
		line("mapped %llx", (unsigned long long)hash(1, p, st.st_size < 4096 ? st.st_size : 4096));
	munmap(p, 8192);
}

static void op_attr(void)
{
	static const char *xn[] = { "user.a", "user.b", "trusted.t", "bad", "user." };
	char p[256], b[8192], v[64];
	struct stat st;
	long r;
	name(p);
	switch (rnd(12)) {
	case 0: case 1: {
		int m = rnd(3) ? (int)rnd(01000) : bits();
		r = chmod(p, m);
		line("chmod %s %o = %s", p, m, result(r));
		break;
	}
	case 2: {
		int u = rnd(3) ? (int)rnd(3) * 1000 : -1, g = rnd(2) ? 1000 : -1;
		r = lchown(p, u, g);
		line("lchown %s %d %d = %s", p, u, g, result(r));
		break;
	}
	case 3: case 4:
		if (lstat(p, &st))
			line("lstat %s = %s", p, err(errno));
		else
			show("lstat", p, &st);
		break;
	case 5:
		if (stat(p, &st))
			line("stat %s = %s", p, err(errno));
		else
			show("stat", p, &st);
		break;
	case 6: {
		struct timespec ts[2] = { { rnd(100000), 5 }, { rnd(100000), 7 } };
		r = utimensat(AT_FDCWD, p, ts, rnd(2) ? AT_SYMLINK_NOFOLLOW : 0);
		line("utimens %s = %s", p, result(r));
		if (!r && !lstat(p, &st) && !S_ISLNK(st.st_mode))
			line("mtime %ld.%ld", (long)st.st_mtim.tv_sec, (long)st.st_mtim.tv_nsec);
		break;
	}
	case 7: case 8: {
		const char *n = xn[rnd(without('x') ? 2 : without('e') ? 3 : 5)];
		int f = rnd(3);
		fillbuf(v, sizeof v);
		r = lsetxattr(p, n, v, rnd(sizeof v), f);
		line("setxattr %s %s %d = %s", p, n, f, result(r));
		break;
	}
	case 9: {
		const char *n = xn[rnd(without('x') ? 2 : without('e') ? 4 : 5)];
		r = rnd(2) ? lremovexattr(p, n) : lgetxattr(p, n, b, sizeof b);
		line("xattr %s %s = %ld %s", p, n, r, result(r));
		break;
	}
	case 10: {
		int m = rnd(8);
		r = access(p, m);
		line("access %s %d = %s", p, m, result(r));
		break;
	}
	default: {
		off_t n = size();
		r = truncate(p, n);
		line("truncate %s %ld = %s", p, (long)n, result(r));
	}
	}
}

static void op_name(void)
{
	char p[256], q[256], t[512];
	long r;
	name(p);
	name(q);
	switch (rnd(20)) {
	case 0: case 1: case 2: case 3:
		r = unlink(p);
		line("unlink %s = %s", p, result(r));
		break;
	case 4: case 5:
		r = rmdir(p);
		line("rmdir %s = %s", p, result(r));
		break;
	case 6: case 7: case 8: case 9: {
		int m = rnd(4) ? 0755 : bits();
		r = mkdir(p, m);
		line("mkdir %s %o = %s", p, m, result(r));
		break;
	}
	case 10: case 11: case 12: case 13: {
		static const int fl[] = { 0, 0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT, RENAME_EXCHANGE | RENAME_NOREPLACE };
		int f = fl[rnd(7)];
		if (without('w') && f == RENAME_WHITEOUT)
			f = 0;
		r = syscall(SYS_renameat2, AT_FDCWD, p, AT_FDCWD, q, f);
		line("rename %s %s %d = %s", p, q, f, result(r));
		break;
	}
	case 14: case 15:
		r = linkat(AT_FDCWD, p, AT_FDCWD, q, rnd(2) ? AT_SYMLINK_FOLLOW : 0);
		line("link %s %s = %s", p, q, result(r));
		break;
	case 16: {
		static const char *to[] = { "f0", "d0", "../d1/f1", "d0/d2", ".", "s0", "nowhere", "../s1", "d0/f0/", "" };
		const char *s = to[rnd(10)];
		r = symlink(s, p);
		line("symlink %s %s = %s", s, p, result(r));
		break;
	}
	case 17:
		r = readlink(p, t, sizeof t);
		line("readlink %s = %ld %s", p, r, result(r));
		break;
	case 18: {
		static const int k[] = { S_IFIFO, S_IFSOCK, S_IFREG, S_IFCHR, S_IFCHR, S_IFBLK };
		int j = rnd(without('d') ? 3 : 6);
		r = mknod(p, k[j] | 0644, j == 3 ? 0 : makedev(1, 3));
		line("mknod %s %d = %s", p, j, result(r));
		break;
	}
	default: {
		char *e[256];
		uint64_t h = 1;
		int n = list(p, e, 256);
		for (int i = 0; i < n; i++) {
			h = hash(h, e[i], strlen(e[i]) + 1);
			free(e[i]);
		}
		line("readdir %s = %d %llx %s", p, n, n < 0 ? 0 : (unsigned long long)h, result(n));
	}
	}
}

static void be(int uid)
{
	if (setfsgid(uid) == -1 || setfsuid(uid) == -1)
		exit(2);
}

/* With HOLD in the environment the program stops half way until the file that it names exists. */
static void hold(void)
{
	const char *until = getenv("HOLD");
	if (!until)
		return;
	fflush(stdout);
	fprintf(stderr, "ready\n");
	while (access(until, F_OK))
		usleep(20000);
}

static void run(const char *dir, int steps)
{
	if (chdir(dir))
		die(dir);
	umask(022);
	signal(SIGPIPE, SIG_IGN);
	if (setgroups(0, NULL))
		skip = strcat(strcpy(malloc(strlen(skip) + 2), skip), "u");
	for (int i = 0; i < NFD; i++)
		open_[i].fd = -1;
	dump(".", 0);
	for (step = 1; step <= steps; step++) {
		if (step == steps / 2)
			hold();
		int other = !without('u') && rnd(6) == 0;
		if (other) {
			be(1000);
			line("as 1000");
		}
		switch (rnd(10)) {
		case 0: case 1: op_open(); break;
		case 2: case 3: op_fd(); break;
		case 4: case 5: op_attr(); break;
		case 6: rnd(2) ? op_mmap() : op_tmpfile(); break;
		default: op_name();
		}
		if (other)
			be(0);
		if (step % 200 == 0)
			dump(".", 0);
	}
	dump(".", 0);
	for (int i = 0; i < NFD; i++)
		if (open_[i].fd >= 0)
			close(open_[i].fd);
	fflush(stdout);
}

static void put(const char *path, int n, int mode)
{
	char b[20000];
	int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
	if (fd < 0)
		die(path);
	fillbuf(b, n);
	if (write(fd, b, n) != n || fchmod(fd, mode))
		die(path);
	close(fd);
}

/* fill makes a tree with something of everything. */
static void fill(const char *dir)
{
	char was[4096];
	if (!getcwd(was, sizeof was) || chdir(dir))
		die(dir);
	umask(0);
	mkdir("d0", 0755);
	mkdir("d1", 0777);
	mkdir("d0/d2", 0755);
	if (rnd(2))
		mkdir("d1/d3", 02775);
	if (rnd(2))
		mkdir("d0/d2/d3", 0700);
	put("f0", 5000, 0644);
	put("d0/f1", 100, without('i') ? 0755 : 04755);
	put("d0/d2/f0", 20000, 0600);
	if (rnd(2))
		put("d1/f2", 1, 0666);
	if (rnd(2))
		put("d0/f2", 0, 0644);
	if (link("f0", "d1/f0") || symlink("d0", "s0") || symlink("../f0", "d0/s1") || chown("d1/f0", 1000, 1000) || chown("d1", 1000, 1000))
		die("fill");
	if (setxattr("d0/f1", "user.a", "value", 5, 0) && errno != EOPNOTSUPP)
		die("setxattr");
	mknod("d1/f3", S_IFIFO | 0644, 0);
	if (truncate("d0/d2/f0", 60000))
		die("truncate");
	if (chdir(was))
		die(was);
}

static void overlay(const char *dir, int steps, const char *lower)
{
	char b[4096], l[512] = "";
	if (chdir(dir) || mount("tmpfs", ".", "tmpfs", 0, NULL) || chdir(dir))
		die("mount tmpfs");
	for (const char *const *p = (const char *const[]){ "l0", "l1", "u", "w", "m", NULL }; *p; p++)
		if (mkdir(*p, 0755))
			die(*p);
	if (lower) {
		snprintf(l, sizeof l, "%s", lower);
	} else {
		fill("l1");
		mkdir("l0/d0", 0755);
		mkdir("l0/d1", 0755);
		put("l0/d0/f0", 300, 0644);
		put("l0/f1", 30, 0755);
		if (mknod("l0/d1/f0", S_IFCHR, 0) || mkdir("l0/d0/d2", 0750))
			die("lower");
		int user = without('v');
		if (rnd(2) && setxattr("l0/d0/d2", user ? "user.overlay.opaque" : "trusted.overlay.opaque", "y", 1, 0))
			die("opaque");
		put("l0/d1/f2", 0, 0644);
		if (setxattr("l0/d1", user ? "user.overlay.opaque" : "trusted.overlay.opaque", "x", 1, 0) ||
		    setxattr("l0/d1/f2", user ? "user.overlay.whiteout" : "trusted.overlay.whiteout", "y", 1, 0))
			die("whiteout");
		strcpy(l, "l0:l1");
	}
	snprintf(b, sizeof b, "lowerdir=%s,upperdir=u,workdir=w,index=off,%s", l, without('v') ? "userxattr" : "redirect_dir=off,metacopy=off");
	if (mount("overlay", "m", "overlay", 0, b))
		die("mount overlay");
	run("m", steps);
	if (chdir("..") || umount2("m", 0))
		line("umount = %s", err(errno));
	if (without('k'))
		goto out;
	line("the upper layer:");
	if (chdir("u"))
		die("u");
	dump(".", 0);
out:
	fflush(stdout);
	if (chdir("/") || umount2(dir, MNT_DETACH))
		die("umount");
}

int main(int argc, char **argv)
{
	if (argc >= 4 && !strcmp(argv[1], "fill")) {
		rng = strtoull(argv[3], NULL, 10) * 0x9e3779b97f4a7c15ull + 1;
		if (argc > 4)
			skip = argv[4];
		fill(argv[2]);
		return 0;
	}
	int o = argc >= 2 && !strcmp(argv[1], "overlay");
	if (argc < 4 + o) {
		fprintf(stderr, "usage: fsops [overlay] DIR SEED STEPS [FEATURES]\n");
		return 2;
	}
	argv += o;
	argc -= o;
	rng = strtoull(argv[2], NULL, 10) * 0x9e3779b97f4a7c15ull + 1;
	if (argc > 4)
		skip = argv[4];
	if (o)
		overlay(argv[1], atoi(argv[3]), argc > 5 ? argv[5] : NULL);
	else
		run(argv[1], atoi(argv[3]));
	return 0;
}
