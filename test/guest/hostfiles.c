/*
 * hostfiles DIR: the calls on files, in a directory that is a bind mount. The program runs the same on Linux.
 */
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

static struct stat st;

static void put(const char *name, const char *text)
{
	int fd = GETS(open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644));
	IS(write(fd, text, strlen(text)), strlen(text));
	OK(close(fd));
}

static const char *get(const char *name)
{
	static char text[4096];
	int fd = GETS(open(name, O_RDONLY));
	ssize_t n = GETS(read(fd, text, sizeof text - 1));
	text[n < 0 ? 0 : n] = 0;
	close(fd);
	return text;
}

static unsigned long long links(const char *name) { return lstat(name, &st) ? -1ull : st.st_nlink; }

static void names(void)
{
	IS(GETS(open("new", O_RDWR | O_CREAT | O_EXCL, 0600)) > 2, 1);
	FAILS(open("new", O_RDWR | O_CREAT | O_EXCL, 0600), EEXIST);
	FAILS(open("new/x", O_RDONLY), ENOTDIR);
	FAILS(open("none/x", O_RDONLY | O_CREAT, 0600), ENOENT);
	OK(mkdir("dir", 02755));
	FAILS(mkdir("dir", 0755), EEXIST);
	OK(lstat("dir", &st));
	IS(links("dir"), 2);
	OK(mkdir("dir/sub", 0700));
	FAILS(rmdir("dir"), ENOTEMPTY);
	FAILS(unlink("dir"), EISDIR);
	FAILS(rmdir("new"), ENOTDIR);
	OK(mknod("fifo", S_IFIFO | 0640, 0));
	OK(mknod("sock", S_IFSOCK | 0600, 0));
	OK(mknod("null", S_IFCHR | 0666, makedev(1, 3)));
	OK(lstat("null", &st));
	IS(st.st_rdev, makedev(1, 3));
	IS(st.st_mode, S_IFCHR | 0644);
	OK(lstat("fifo", &st));
	IS(st.st_mode, S_IFIFO | 0640);
	OK(symlink("dir/../new", "link"));
	char buf[64];
	IS(readlink("link", buf, sizeof buf), 10);
	OK(stat("link", &st));
	TRUE(S_ISREG(st.st_mode));
	FAILS(open("link", O_RDONLY | O_NOFOLLOW), ELOOP);
	OK(symlink("self", "self"));
	FAILS(open("self", O_RDONLY), ELOOP);
	OK(link("new", "new2"));
	IS(links("new"), 2);
	FAILS(link("dir", "dir2"), EPERM);
	FAILS(link("new", "new2"), EEXIST);
	OK(linkat(AT_FDCWD, "link", AT_FDCWD, "link2", 0));
	OK(lstat("link2", &st));
	TRUE(S_ISLNK(st.st_mode));
	char longname[257];
	memset(longname, 'n', 256);
	longname[256] = 0;
	FAILS(open(longname, O_CREAT | O_RDWR, 0600), ENAMETOOLONG);
	longname[255] = 0;
	IS(close(GETS(open(longname, O_CREAT | O_RDWR, 0600))), 0);
	OK(unlink(longname));
}

static void tmpfiles(void)
{
	int fd = GETS(open(".", O_TMPFILE | O_RDWR, 0640));
	char path[64];
	IS(write(fd, "temp", 4), 4);
	OK(fstat(fd, &st));
	IS(st.st_nlink, 0);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	OK(linkat(AT_FDCWD, path, AT_FDCWD, "temp", AT_SYMLINK_FOLLOW));
	TRUE(!strcmp(get("temp"), "temp"));
	IS(links("temp"), 1);
	close(fd);
	fd = GETS(open(".", O_TMPFILE | O_RDWR | O_EXCL, 0640));
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	FAILS(linkat(AT_FDCWD, path, AT_FDCWD, "temp2", AT_SYMLINK_FOLLOW), ENOENT);
	close(fd);
	/* A file opened again by its descriptor, after its name is gone. */
	fd = GETS(open("temp", O_RDONLY));
	OK(unlink("temp"));
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	int again = GETS(open(path, O_RDWR));
	IS(pwrite(again, "T", 1, 0), 1);
	char c = 0;
	IS(pread(fd, &c, 1, 0), 1);
	IS(c, 'T');
	close(again);
	close(fd);
}

static void renames(void)
{
	put("a", "a");
	put("b", "b");
	FAILS(renameat2(AT_FDCWD, "a", AT_FDCWD, "b", RENAME_NOREPLACE), EEXIST);
	OK(renameat2(AT_FDCWD, "a", AT_FDCWD, "b", RENAME_EXCHANGE));
	TRUE(!strcmp(get("a"), "b") && !strcmp(get("b"), "a"));
	FAILS(renameat2(AT_FDCWD, "a", AT_FDCWD, "none", RENAME_EXCHANGE), ENOENT);
	FAILS(renameat2(AT_FDCWD, "a", AT_FDCWD, "b", RENAME_EXCHANGE | RENAME_NOREPLACE), EINVAL);
	int fd = GETS(open("b", O_RDONLY));
	OK(rename("a", "b"));
	TRUE(!strcmp(get("b"), "b"));
	OK(fstat(fd, &st));
	IS(st.st_nlink, 0);
	close(fd);
	OK(mkdir("p", 0755));
	OK(mkdir("p/q", 0755));
	FAILS(rename("p", "p/q/r"), EINVAL);
	FAILS(rename("b", "p"), EISDIR);
	FAILS(rename("p", "b"), ENOTDIR);
	OK(rename("p/q", "q"));
	OK(rename("q", "p"));
	OK(rmdir("p"));
	OK(link("b", "b2"));
	OK(rename("b", "b2"));
	IS(links("b"), 2);
	OK(unlink("b2"));
}

static void sizes(void)
{
	put("size", "0123456789");
	OK(truncate("size", 4));
	TRUE(!strcmp(get("size"), "0123"));
	OK(truncate("size", 8192));
	OK(stat("size", &st));
	IS(st.st_size, 8192);
	FAILS(truncate("size", -1), EINVAL);
	FAILS(truncate("dir", 0), EISDIR);
	int fd = GETS(open("size", O_RDWR));
	OK(fallocate(fd, 0, 0, 65536));
	OK(fstat(fd, &st));
	IS(st.st_size, 65536);
	OK(fallocate(fd, FALLOC_FL_KEEP_SIZE, 65536, 65536));
	OK(fstat(fd, &st));
	IS(st.st_size, 65536);
	IS(pwrite(fd, "xxxx", 4, 4096), 4);
	OK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 4096));
	char c = 1;
	IS(pread(fd, &c, 1, 4096), 1);
	IS(c, 0);
	FAILS(fallocate(fd, FALLOC_FL_PUNCH_HOLE, 0, 4096), EOPNOTSUPP);
	FAILS(fallocate(fd, 0, -1, 4096), EINVAL);
	FAILS(fallocate(fd, 0, 0, 0), EINVAL);
	OK(ftruncate(fd, 0));
	IS(pwrite(fd, "end", 3, 100000), 3);
	IS(lseek(fd, 0, SEEK_END), 100003);
	TRUE(lseek(fd, 0, SEEK_DATA) <= 100000 && lseek(fd, 0, SEEK_DATA) >= 0);
	IS(lseek(fd, 99999, SEEK_HOLE) >= 99999, 1);
	FAILS(lseek(fd, 200000, SEEK_DATA), ENXIO);
	OK(fsync(fd));
	OK(fdatasync(fd));
	OK(syncfs(fd));
	OK(sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE));
	close(fd);
	fd = GETS(open("size", O_WRONLY | O_APPEND | O_SYNC));
	IS(write(fd, "more", 4), 4);
	IS(lseek(fd, 0, SEEK_CUR), 100007);
	IS(pwrite(fd, "x", 1, 0), 1); /* appends, too: pwrite(2), BUGS */
	OK(fstat(fd, &st));
	IS(st.st_size, 100008);
	close(fd);
}

static void attributes(void)
{
	put("attr", "x");
	OK(chmod("attr", 06755));
	OK(stat("attr", &st));
	IS(st.st_mode & 07777, 06755);
	OK(chown("attr", 1000, 1001));
	OK(stat("attr", &st));
	IS(st.st_uid, 1000);
	IS(st.st_gid, 1001);
	IS(st.st_mode & 07777, 0755); /* chown clears them */
	OK(lchown("link", 7, 8));
	OK(lstat("link", &st));
	IS(st.st_uid, 7);
	struct timespec t[2] = { { 1000000000, 123456789 }, { 0, UTIME_OMIT } };
	OK(utimensat(AT_FDCWD, "attr", t, 0));
	OK(stat("attr", &st));
	IS(st.st_atim.tv_sec, 1000000000);
	IS(st.st_atim.tv_nsec, 123456789);
	TRUE(st.st_mtim.tv_sec > 1000000000);
	struct timespec l[2] = { { 5, 0 }, { 6, 0 } };
	OK(utimensat(AT_FDCWD, "link", l, AT_SYMLINK_NOFOLLOW));
	OK(lstat("link", &st));
	IS(st.st_mtim.tv_sec, 6);
	struct statx x;
	OK(statx(AT_FDCWD, "attr", 0, STATX_BASIC_STATS | STATX_BTIME, &x));
	TRUE((x.stx_mask & STATX_BASIC_STATS) == STATX_BASIC_STATS);
	TRUE(x.stx_mask & STATX_BTIME && x.stx_btime.tv_sec > 1000000000);
	struct statfs f;
	OK(statfs("attr", &f));
	TRUE(f.f_namelen >= 143 && f.f_bsize > 0 && f.f_blocks > 0);
}

static void xattrs(void)
{
	char v[128];
	put("x", "x");
	OK(setxattr("x", "user.a", "value", 5, XATTR_CREATE));
	FAILS(setxattr("x", "user.a", "v", 1, XATTR_CREATE), EEXIST);
	FAILS(setxattr("x", "user.b", "v", 1, XATTR_REPLACE), ENODATA);
	IS(getxattr("x", "user.a", v, sizeof v), 5);
	IS(getxattr("x", "user.a", NULL, 0), 5);
	FAILS(getxattr("x", "user.a", v, 2), ERANGE);
	FAILS(getxattr("x", "user.none", v, sizeof v), ENODATA);
	TRUE(listxattr("x", v, sizeof v) >= 7);
	OK(removexattr("x", "user.a"));
	FAILS(removexattr("x", "user.a"), ENODATA);
	FAILS(setxattr("fifo", "user.a", "v", 1, 0), EPERM);
	FAILS(setxattr("x", "nosuch.a", "v", 1, 0), EOPNOTSUPP);
	OK(setxattr("dir", "user.d", "v", 1, 0));
	/* struct vfs_cap_data, revision 2: CAP_NET_RAW */
	unsigned cap[5] = { 0x02000001, 1 << 13, 0, 0, 0 };
	OK(setxattr("x", "security.capability", cap, sizeof cap, 0));
	IS(getxattr("x", "security.capability", v, sizeof v), sizeof cap);
	TRUE(!memcmp(v, cap, sizeof cap));
	int fd = GETS(open("x", O_WRONLY));
	IS(write(fd, "y", 1), 1); /* takes the capabilities away */
	close(fd);
	FAILS(getxattr("x", "security.capability", v, sizeof v), ENODATA);
	/* An access ACL: user::rw-, user:1000:r--, group::r--, mask::r--, other::--- */
	unsigned char acl[] = { 2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 4, 0, 232, 3, 0, 0,
		4, 0, 4, 0, 255, 255, 255, 255, 16, 0, 4, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255 };
	OK(setxattr("x", "system.posix_acl_access", acl, sizeof acl, 0));
	IS(getxattr("x", "system.posix_acl_access", v, sizeof v), sizeof acl);
	OK(stat("x", &st));
	IS(st.st_mode & 0777, 0640);
}

static void locks(void)
{
	put("lock", "x");
	int a = GETS(open("lock", O_RDWR)), b = GETS(open("lock", O_RDWR));
	OK(flock(a, LOCK_EX));
	FAILS(flock(b, LOCK_EX | LOCK_NB), EWOULDBLOCK);
	OK(flock(a, LOCK_UN));
	OK(flock(b, LOCK_SH | LOCK_NB));
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 10 };
	OK(fcntl(a, F_OFD_SETLK, &l));
	FAILS(fcntl(b, F_OFD_SETLK, &l), EAGAIN);
	l.l_type = F_UNLCK;
	OK(fcntl(a, F_OFD_SETLK, &l));
	l.l_type = F_WRLCK;
	OK(fcntl(a, F_SETLK, &l));
	OK(fcntl(b, F_SETLK, &l)); /* the same process */
	close(a);
	close(b);
}

static long openat2_(int dir, const char *path, unsigned long long flags, unsigned long long resolve)
{
	struct open_how how = { .flags = flags, .resolve = resolve };
	return syscall(SYS_openat2, dir, path, &how, sizeof how);
}

static void opens(void)
{
	int dir = GETS(open("dir", O_PATH | O_DIRECTORY));
	FAILS(openat2_(dir, "../new", O_RDONLY, RESOLVE_BENEATH), EXDEV);
	FAILS(openat2_(dir, "/new", O_RDONLY, RESOLVE_BENEATH), EXDEV);
	FAILS(openat2_(AT_FDCWD, "link", O_RDONLY, RESOLVE_NO_SYMLINKS), ELOOP);
	FAILS(openat2_(dir, "/sub/../../new", O_RDONLY, RESOLVE_IN_ROOT), ENOENT);
	IS(close(GETS(openat2_(dir, "/sub/../sub", O_RDONLY, RESOLVE_IN_ROOT))), 0);
	FAILS(openat2_(AT_FDCWD, "/proc/self/exe", O_RDONLY, RESOLVE_NO_MAGICLINKS), ELOOP);
	FAILS(fchmod(dir, 0700), EBADF);
	char c;
	FAILS(read(dir, &c, 1), EBADF);
	close(dir);
	put("direct", "x");
	void *page = NULL;
	OK(posix_memalign(&page, 4096, 4096));
	memset(page, 'd', 4096);
	int fd = open("direct", O_RDWR | O_DIRECT);
	if (fd >= 0) { /* not every file system has it */
		IS(pwrite(fd, page, 4096, 0), 4096);
		memset(page, 0, 4096);
		IS(pread(fd, page, 4096, 0), 4096);
		IS(((char *)page)[4095], 'd');
		close(fd);
	}
	struct timespec old[2] = { { 1000, 0 }, { 1000, 0 } };
	OK(utimensat(AT_FDCWD, "direct", old, 0));
	fd = GETS(open("direct", O_RDONLY | O_NOATIME));
	IS(read(fd, &c, 1), 1);
	OK(fstat(fd, &st));
	IS(st.st_atim.tv_sec, 1000);
	close(fd);
}

static void maps(void)
{
	put("map", "0123456789");
	int fd = GETS(open("map", O_RDWR));
	OK(ftruncate(fd, 8192));
	char *s = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	TRUE(s != MAP_FAILED && p != MAP_FAILED);
	p[0] = 'P';
	s[1] = 'S';
	char c;
	IS(pread(fd, &c, 1, 0), 1);
	IS(c, '0');
	IS(pread(fd, &c, 1, 1), 1);
	IS(c, 'S');
	IS(pwrite(fd, "W", 1, 4096), 1);
	IS(s[4096], 'W');
	IS(p[4096], 'W');
	OK(msync(s, 8192, MS_SYNC));
	munmap(s, 8192);
	munmap(p, 8192);
	int ro = GETS(open("map", O_RDONLY));
	TRUE(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, ro, 0) == MAP_FAILED && errno == EACCES);
	close(ro);
	close(fd);
}

int main(int argc, char **argv)
{
	umask(022);
	if (argc < 2 || chdir(argv[1])) {
		perror("chdir");
		return 1;
	}
	names();
	tmpfiles();
	renames();
	sizes();
	attributes();
	xattrs();
	locks();
	opens();
	maps();
	return finish();
}
