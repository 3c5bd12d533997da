/* Trees of files: contents, names, locks, mounts. */
#include "carry.h"
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/statfs.h>
#include <sys/xattr.h>
#include <utime.h>

static int make(const char *name, const char *text)
{
	int fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0640);
	check(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	return fd;
}

static void has(const char *name, const char *text)
{
	int fd = open(name, O_RDONLY);
	check(fd >= 0);
	content(fd, text);
	close(fd);
}

/* Everything a tree of a memory file system may hold. */
static void plant(void)
{
	struct timespec ts[2] = {{1000000000, 123456789}, {1100000000, 987654321}};
	close(make("file", "text"));
	check(link("file", "hard") == 0 && symlink("file", "soft") == 0 && mkdir("dir", 01750) == 0 && mkfifo("dir/fifo", 0620) == 0);
	close(make("dir/inner", "inner"));
	check(chown("dir/inner", 12, 34) == 0 && chmod("dir/inner", 04711) == 0);
	int fd = make("sparse", "");
	check(pwrite(fd, "end", 3, 50 << 20) == 3);
	close(fd);
	check(utimensat(AT_FDCWD, "file", ts, 0) == 0 && utimensat(AT_FDCWD, "soft", ts, AT_SYMLINK_NOFOLLOW) == 0);
}

static void planted(void)
{
	struct stat a, b;
	char buf[16] = "";
	has("file", "text"), has("hard", "text"), has("dir/inner", "inner");
	check(stat("file", &a) == 0 && stat("hard", &b) == 0 && a.st_ino == b.st_ino && a.st_nlink == 2);
	equal(a.st_mtim.tv_sec, 1100000000);
	equal(a.st_mtim.tv_nsec, 987654321);
	equal(readlink("soft", buf, sizeof buf), 4);
	check(lstat("soft", &a) == 0 && a.st_mtim.tv_nsec == 987654321);
	check(stat("dir", &a) == 0 && (a.st_mode & 07777) == 01750 && a.st_nlink == 2);
	check(stat("dir/fifo", &a) == 0 && S_ISFIFO(a.st_mode) && (a.st_mode & 0777) == 0620);
	check(stat("dir/inner", &a) == 0 && (a.st_mode & 07777) == 04711 && a.st_uid == 12 && a.st_gid == 34);
	check(stat("sparse", &a) == 0 && a.st_size == (50 << 20) + 3 && a.st_blocks < 1000);
	check(unlink("file") == 0);
	has("hard", "text");
	check(stat("hard", &a) == 0 && a.st_nlink == 1);
}

CASE(tree_of_the_root)
{
	umask(0);
	plant();
	hold();
	planted();
}

/* A mount of one's own namespace, with a tmpfs, a bind mount of part of it and one for reading. */
static int alone(void)
{
	return unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

CASE(tree_of_tmpfs)
{
	struct statfs sf;
	umask(0);
	if (!alone())
		skip("mount namespaces");
	check(mkdir("m", 0777) == 0 && mkdir("b", 0777) == 0 && mkdir("r", 0777) == 0);
	check(mount("some", "m", "tmpfs", MS_NOSUID | MS_NOEXEC, "size=80m,mode=711,nr_inodes=500") == 0);
	check(chdir("m") == 0);
	plant();
	check(chdir("..") == 0);
	check(mount("m/dir", "b", NULL, MS_BIND, NULL) == 0 && mount("m", "r", NULL, MS_BIND, NULL) == 0);
	check(mount(NULL, "r", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) == 0);
	int fd = open("r/hard", O_RDONLY);
	hold();
	content(fd, "text");
	has("b/inner", "inner");
	check(open("r/new", O_CREAT | O_WRONLY, 0600) == -1 && errno == EROFS);
	close(make("b/new", "new"));
	has("m/dir/new", "new"), has("r/dir/new", "new");
	check(unlink("b/new") == 0);
	check(statfs("m", &sf) == 0 && sf.f_blocks * sf.f_bsize == 80 << 20);
	equal(sf.f_files, 500);
	struct stat st, up;
	check(stat("m", &st) == 0 && stat(".", &up) == 0 && (st.st_mode & 0777) == 0711 && st.st_dev != up.st_dev);
	check(umount("b") == 0 && access("b/inner", F_OK) == -1);
	check(chdir("m") == 0);
	planted();
}

CASE(tree_mount_moved)
{
	if (!alone())
		skip("mount namespaces");
	check(mkdir("a", 0777) == 0 && mkdir("b", 0777) == 0 && mkdir("c", 0777) == 0);
	check(mount("t", "a", "tmpfs", 0, NULL) == 0);
	close(make("a/below", "below"));
	int fd = open("a/below", O_RDONLY), dir = open("a", O_RDONLY | O_DIRECTORY);
	check(mount("u", "a", "tmpfs", 0, NULL) == 0); /* hides the first */
	close(make("a/above", "above"));
	check(mount("v", "b", "tmpfs", 0, NULL) == 0);
	int lazy = make("b/lazy", "lazily");
	check(umount2("b", MNT_DETACH) == 0);
	hold();
	has("a/above", "above");
	content(fd, "below");
	check(lseek(lazy, 0, SEEK_SET) == 0);
	content(lazy, "lazily");
	check(faccessat(dir, "below", F_OK, 0) == 0);
	check(umount("a") == 0);
	has("a/below", "below");
	check(umount("a") == -1 && errno == EBUSY);
	if (mount("a", "c", NULL, MS_MOVE, NULL) == 0)
		has("c/below", "below");
}

CASE(tree_xattrs)
{
	char buf[64];
	int fd = make("f", "x");
	if (fsetxattr(fd, "user.one", "value", 5, 0) != 0)
		skip("extended attributes here");
	check(setxattr("f", "user.two", "", 0, XATTR_CREATE) == 0);
	int trusted = setxattr("f", "trusted.three", "abc", 3, 0);
	hold();
	equal(getxattr("f", "user.one", buf, sizeof buf), 5);
	check(memcmp(buf, "value", 5) == 0);
	equal(fgetxattr(fd, "user.two", buf, sizeof buf), 0);
	if (trusted == 0)
		equal(getxattr("f", "trusted.three", buf, sizeof buf), 3);
	check(removexattr("f", "user.one") == 0 && getxattr("f", "user.one", buf, sizeof buf) == -1 && errno == ENODATA);
}

CASE(tree_unlinked)
{
	char path[64];
	int fd = make("gone", "contents"), again = open("gone", O_RDONLY), tmp = open(".", O_TMPFILE | O_RDWR, 0600);
	check(unlink("gone") == 0);
	close(make("gone", "another"));
	if (tmp >= 0)
		check(write(tmp, "nameless", 8) == 8);
	int dir = -1;
	check(mkdir("d", 0777) == 0 && (dir = open("d", O_RDONLY | O_DIRECTORY)) >= 0 && rmdir("d") == 0);
	hold();
	struct stat st;
	check(fstat(fd, &st) == 0 && st.st_nlink == 0 && st.st_size == 8);
	content(again, "contents");
	has("gone", "another");
	check(write(fd, "!", 1) == 1 && lseek(again, 0, SEEK_SET) == 0);
	content(again, "contents!");
	check(openat(dir, "x", O_CREAT | O_WRONLY, 0600) == -1 && errno == ENOENT);
	if (tmp >= 0) {
		snprintf(path, sizeof path, "/proc/self/fd/%d", tmp);
		check(linkat(AT_FDCWD, path, AT_FDCWD, "named", AT_SYMLINK_FOLLOW) == 0);
		has("named", "nameless");
	}
}

CASE(tree_renamed)
{
	char path[64], link[256] = "";
	int fd = make("before", "same");
	check(rename("before", "after") == 0 && mkdir("d", 0777) == 0);
	int dir = open("d", O_RDONLY | O_DIRECTORY);
	check(rename("d", "e") == 0);
	hold();
	close(openat(dir, "in", O_CREAT | O_WRONLY, 0600));
	check(access("e/in", F_OK) == 0);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	check(readlink(path, link, sizeof link - 1) > 6 && strcmp(strrchr(link, '/'), "/after") == 0);
	has("after", "same");
}

/* Of a host directory: open by name, renamed, unlinked, and a directory half read. */
CASE(tree_outside)
{
	char name[300];
	if (!outside[0])
		skip("no directory outside");
	snprintf(name, sizeof name, "%s/tree", outside);
	check(mkdir(name, 0777) == 0 && chdir(name) == 0);
	int fd = make("stays", "stays"), gone = make("gone", "gone"), moved = make("moved", "moved");
	check(unlink("gone") == 0 && rename("moved", "new") == 0 && lseek(fd, 2, SEEK_SET) == 2 && lseek(gone, 1, SEEK_SET) == 1);
	int two = open("stays", O_WRONLY | O_APPEND);
	hold();
	content(fd, "ays");
	content(gone, "one");
	check(write(two, "!", 1) == 1);
	content(fd, "!");
	check(lseek(moved, 0, SEEK_SET) == 0);
	content(moved, "moved");
	check(access("gone", F_OK) == -1);
	check(unlink("stays") == 0 && unlink("new") == 0 && rmdir(name) == 0);
}

static const char *lock_name;
static short lock_type(int cmd, off_t start, off_t len)
{
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = start, .l_len = len};
	int fd = open(lock_name, O_RDWR);
	check(fd >= 0 && fcntl(fd, cmd, &l) == 0);
	close(fd);
	return l.l_type;
}

static void sees_locks(void *arg)
{
	equal(lock_type(F_GETLK, 0, 5), F_UNLCK);
	equal(lock_type(F_GETLK, 12, 1), F_WRLCK);
	equal(lock_type(F_GETLK, 25, 1), F_RDLCK);
	equal(lock_type(F_GETLK, 1000, 1), F_RDLCK);
}

/* A process's locks, which another process sees. */
CASE(tree_posix_locks)
{
	struct flock w = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 5}, r = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 20};
	int fd = make(lock_name = "lock", "");
	check(fcntl(fd, F_SETLK, &w) == 0 && fcntl(fd, F_SETLK, &r) == 0);
	hold();
	ended(start(sees_locks, NULL));
	w.l_type = F_UNLCK;
	check(fcntl(fd, F_SETLK, &w) == 0);
}

/* Locks of descriptions go with them. */
CASE(tree_description_locks)
{
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 3, .l_len = 4};
	int fd = make(lock_name = "lock", ""), f = make("flock", ""), g = open("flock", O_RDONLY);
	check(fcntl(fd, F_OFD_SETLK, &l) == 0 && flock(f, LOCK_EX) == 0);
	hold();
	equal(lock_type(F_OFD_GETLK, 4, 1), F_WRLCK);
	equal(lock_type(F_OFD_GETLK, 7, 1), F_UNLCK);
	check(flock(g, LOCK_SH | LOCK_NB) == -1 && errno == EWOULDBLOCK);
	close(f), close(fd);
	equal(flock(g, LOCK_SH | LOCK_NB), 0);
	equal(lock_type(F_OFD_GETLK, 4, 1), F_UNLCK);
}
