/*
 * xattr: extended attributes, access control lists, file capabilities and set-id bits, in a tmpfs and in the
 * directory that it is started in. It is started as root.
 */
#define _GNU_SOURCE
#include "check.h"
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <stdint.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#define ACCESS "system.posix_acl_access"
#define DEFAULT "system.posix_acl_default"

struct acl {
	uint32_t version;
	struct { uint16_t tag, perm; uint32_t id; } e[8];
};

static size_t size_of(const struct acl *a)
{
	int n = 0;
	while (n < 8 && a->e[n].tag)
		n++;
	return 4 + 8 * n;
}

#define NOBODY ((uint32_t)-1)
#define ACL(...) (&(struct acl){ 2, { __VA_ARGS__ } })

static int acl(const char *file, const char *name, const struct acl *a) { return setxattr(file, name, a, size_of(a), 0); }

static int mode(const char *file)
{
	struct stat st;
	return stat(file, &st) ? -1 : (int)(st.st_mode & 07777);
}

/* Runs fn as another user, with further groups; the number of failures is added. */
static void as(uid_t uid, gid_t gid, gid_t extra, void (*fn)(void))
{
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		bad = 0;
		if (setgroups(extra ? 1 : 0, &extra) || setresgid(gid, gid, gid) || setresuid(uid, uid, uid))
			bad++;
		fn();
		fflush(stdout);
		_exit(bad > 100 ? 100 : bad);
	}
	int status;
	IS(waitpid(pid, &status, 0), pid);
	bad += WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static void named_user(void)
{
	OK(access("f", R_OK));
	OK(access("f", W_OK));
	FAILS(access("f", X_OK), EACCES);
	close(GETS(open("f", O_RDWR)));
	FAILS(acl("f", ACCESS, ACL({ 1, 7, NOBODY }, { 4, 7, NOBODY }, { 32, 7, NOBODY })), EPERM);
	FAILS(removexattr("f", ACCESS), EPERM);
	FAILS(setxattr("f", "trusted.a", "x", 1, 0), EPERM);
	FAILS(getxattr("f", "trusted.a", NULL, 0), ENODATA);
	FAILS(setxattr("f", "security.a", "x", 1, 0), EPERM);
	char list[1000];
	ssize_t n = GETS(listxattr("f", list, sizeof list));
	TRUE(!memmem(list, n, "trusted.", 8));
	TRUE(memmem(list, n, ACCESS, sizeof ACCESS));
}

static void masked_user(void) { FAILS(open("f", O_WRONLY), EACCES); OK(access("f", R_OK)); }

static void named_group(void) { OK(access("f", R_OK)); FAILS(access("f", W_OK), EACCES); }

static void others(void) { FAILS(access("f", R_OK), EACCES); }

static void lists(void)
{
	char got[200];
	struct stat st;
	umask(022);
	close(GETS(creat("f", 0640)));
	FAILS(getxattr("f", ACCESS, got, sizeof got), ENODATA);
	OK(setxattr("f", ACCESS, "", 0, 0));
	FAILS(setxattr("f", ACCESS, "\2\0\0", 3, 0), EINVAL);
	FAILS(setxattr("f", ACCESS, "\1\0\0", 4, 0), EOPNOTSUPP);
	FAILS(acl("f", ACCESS, ACL({ 1, 7, NOBODY }, { 4, 7, NOBODY })), EINVAL);
	FAILS(acl("f", ACCESS, ACL({ 1, 7, NOBODY }, { 2, 7, 1000 }, { 4, 7, NOBODY }, { 32, 7, NOBODY })), EINVAL);
	FAILS(acl("f", ACCESS, ACL({ 4, 7, NOBODY }, { 1, 7, NOBODY }, { 32, 7, NOBODY })), EINVAL);
	FAILS(acl("f", ACCESS, ACL({ 1, 15, NOBODY }, { 4, 7, NOBODY }, { 32, 7, NOBODY })), EINVAL);
	FAILS(acl("f", DEFAULT, ACL({ 1, 7, NOBODY }, { 4, 7, NOBODY }, { 32, 7, NOBODY })), EACCES);
	/* What the mode can say is put into it. */
	OK(acl("f", ACCESS, ACL({ 1, 6, NOBODY }, { 4, 4, NOBODY }, { 32, 4, NOBODY })));
	IS(mode("f"), 0644);
	FAILS(getxattr("f", ACCESS, got, sizeof got), ENODATA);
	struct acl *a = ACL({ 1, 6, NOBODY }, { 2, 6, 1000 }, { 2, 7, 1001 }, { 4, 0, NOBODY }, { 8, 4, 2000 }, { 16, 6, NOBODY }, { 32, 0, NOBODY });
	OK(acl("f", ACCESS, a));
	IS(mode("f"), 0660);
	IS(getxattr("f", ACCESS, NULL, 0), size_of(a));
	IS(getxattr("f", ACCESS, got, sizeof got), size_of(a));
	TRUE(!memcmp(got, a, size_of(a)));
	FAILS(getxattr("f", ACCESS, got, 10), ERANGE);
	OK(setxattr("f", "trusted.a", "x", 1, 0));
	as(1000, 1000, 0, named_user);
	as(5000, 5000, 2000, named_group);
	as(5000, 5000, 0, others);
	/* chmod changes the mask. */
	OK(chmod("f", 0640));
	as(1000, 1000, 0, masked_user);
	IS(getxattr("f", ACCESS, got, sizeof got), size_of(a));
	IS(((struct acl *)got)->e[5].perm, 4);
	IS(((struct acl *)got)->e[1].perm, 6);
	OK(removexattr("f", ACCESS));
	IS(mode("f"), 0640);
	OK(removexattr("f", ACCESS));
	OK(symlink("f", "l"));
	FAILS(lsetxattr("l", ACCESS, a, size_of(a), 0), EOPNOTSUPP);
	OK(unlink("l"));
	OK(unlink("f"));
	/* A default list is inherited, and the umask is not looked at. */
	OK(mkdir("d", 0755));
	struct acl *def = ACL({ 1, 7, NOBODY }, { 2, 6, 1000 }, { 4, 5, NOBODY }, { 16, 7, NOBODY }, { 32, 0, NOBODY });
	OK(acl("d", DEFAULT, def));
	IS(mode("d"), 0755);
	umask(077);
	close(GETS(open("d/f", O_CREAT | O_RDWR, 0666)));
	IS(mode("d/f"), 0660);
	IS(getxattr("d/f", ACCESS, got, sizeof got), size_of(def));
	IS(((struct acl *)got)->e[0].perm, 6);
	IS(((struct acl *)got)->e[3].perm, 6);
	FAILS(getxattr("d/f", DEFAULT, got, sizeof got), ENODATA);
	OK(mkdir("d/d", 0777));
	IS(mode("d/d"), 0770);
	IS(getxattr("d/d", DEFAULT, got, sizeof got), size_of(def));
	OK(mkfifo("d/p", 0666));
	IS(mode("d/p"), 0660);
	IS(getxattr("d/p", ACCESS, got, sizeof got), size_of(def));
	OK(symlink("x", "d/l"));
	IS(setxattr("d", DEFAULT, "\2\0\0", 4, 0), 0); /* without entries: none */
	FAILS(getxattr("d", DEFAULT, got, sizeof got), ENODATA);
	OK(acl("d", DEFAULT, ACL({ 1, 7, NOBODY }, { 4, 5, NOBODY }, { 32, 5, NOBODY })));
	close(GETS(open("d/g", O_CREAT | O_RDWR, 0666)));
	IS(mode("d/g"), 0644);
	FAILS(getxattr("d/g", ACCESS, got, sizeof got), ENODATA);
	umask(022);
	OK(unlink("d/g") || unlink("d/f") || unlink("d/l") || unlink("d/p") || rmdir("d/d") || rmdir("d"));
	OK(stat(".", &st));
}

static void attributes(int user)
{
	char buf[70000], name[300] = "user.";
	close(GETS(creat("f", 0644)));
	FAILS(getxattr("f", "user.a", buf, 1), user ? ENODATA : EOPNOTSUPP);
	FAILS(setxattr("f", "", "x", 1, 0), ERANGE);
	FAILS(setxattr("f", "nonsense", "x", 1, 0), EOPNOTSUPP);
	FAILS(setxattr("f", "nonsense.a", "x", 1, 0), EOPNOTSUPP);
	FAILS(setxattr("f", "trusted.a", "x", 1, 4), EINVAL);
	FAILS(setxattr("f", "trusted.a", "x", 1, XATTR_REPLACE), ENODATA);
	OK(setxattr("f", "trusted.a", "abc", 3, XATTR_CREATE));
	FAILS(setxattr("f", "trusted.a", "x", 1, XATTR_CREATE), EEXIST);
	OK(setxattr("f", "trusted.a", "", 0, XATTR_REPLACE));
	IS(getxattr("f", "trusted.a", buf, sizeof buf), 0);
	FAILS(setxattr("f", "trusted.a", buf, 65537, 0), E2BIG);
	memset(name + 5, 'n', 251);
	name[256] = 0;
	FAILS(setxattr("f", name, "x", 1, 0), ERANGE);
	IS(listxattr("f", NULL, 0), listxattr("f", buf, sizeof buf));
	FAILS(listxattr("f", buf, 3), ERANGE);
	OK(removexattr("f", "trusted.a"));
	FAILS(removexattr("f", "trusted.a"), ENODATA);
	if (user) {
		OK(setxattr("f", "user.a", "abc", 3, 0));
		FAILS(getxattr("f", "user.a", buf, 2), ERANGE);
		IS(getxattr("f", "user.a", buf, 3), 3);
		OK(symlink("f", "l"));
		FAILS(lsetxattr("l", "user.a", "x", 1, 0), EPERM);
		FAILS(lgetxattr("l", "user.a", buf, 1), ENODATA);
		OK(unlink("l"));
		int fd = GETS(open("f", O_PATH));
		FAILS(fgetxattr(fd, "user.a", buf, 3), EBADF);
		FAILS(fsetxattr(fd, "user.a", buf, 3, 0), EBADF);
		close(fd);
	}
	OK(unlink("f"));
}

static void capabilities(void)
{
	uint32_t cap[6] = { 0x02000001, 1 << 10, 0, 0, 0, 0 };
	char buf[100];
	int fd = GETS(open("f", O_CREAT | O_RDWR, 0755));
	FAILS(fsetxattr(fd, "security.capability", cap, 12, 0), EINVAL);
	FAILS(fsetxattr(fd, "security.capability", cap, 24, 0), EINVAL);
	cap[0] = 0x05000000;
	FAILS(fsetxattr(fd, "security.capability", cap, 20, 0), EINVAL);
	cap[0] = 0x02000001;
	OK(fsetxattr(fd, "security.capability", cap, 20, 0));
	IS(fgetxattr(fd, "security.capability", buf, sizeof buf), 20);
	TRUE(!memcmp(buf, cap, 20));
	IS(write(fd, "x", 1), 1);
	FAILS(fgetxattr(fd, "security.capability", buf, sizeof buf), ENODATA);
	OK(fsetxattr(fd, "security.capability", cap, 20, 0));
	OK(fchown(fd, 0, 0));
	FAILS(fgetxattr(fd, "security.capability", buf, sizeof buf), ENODATA);
	OK(fsetxattr(fd, "security.capability", cap, 20, 0));
	OK(ftruncate(fd, 0));
	FAILS(fgetxattr(fd, "security.capability", buf, sizeof buf), ENODATA);
	OK(fsetxattr(fd, "security.capability", cap, 20, 0));
	OK(removexattr("f", "security.capability"));
	close(fd);
	OK(unlink("f"));
}

static void write_it(void)
{
	int fd = GETS(open("f", O_WRONLY));
	IS(write(fd, "x", 1), 1);
	IS(mode("f"), 0777);
	close(fd);
}

static void truncate_it(void)
{
	OK(truncate("f", 0));
	IS(mode("f"), 0777);
}

static void set_ids(void)
{
	close(GETS(open("f", O_CREAT | O_RDWR, 0666)));
	OK(chmod("f", 06777));
	as(1000, 1000, 0, write_it);
	OK(chmod("f", 06777));
	as(1000, 1000, 0, truncate_it);
	OK(chmod("f", 06777));
	OK(chown("f", 0, 0));
	IS(mode("f"), 0777);
	OK(chmod("f", 06767)); /* set-group-ID without group execution is no set-id bit */
	OK(chown("f", 0, 0));
	IS(mode("f"), 02767);
	OK(chown("f", 1000, 5));
	OK(chmod("f", 02777));
	OK(unlink("f"));
	OK(mkdir("d", 0755));
	OK(chown("d", 0, 7) || chmod("d", 02777));
	OK(mkdir("d/d", 0755));
	IS(mode("d/d"), 02755);
	close(GETS(creat("d/f", 0644)));
	struct stat st;
	OK(stat("d/f", &st));
	IS(st.st_gid, 7);
	OK(unlink("d/f") || rmdir("d/d") || rmdir("d"));
}

int main(int argc, char **argv)
{
	char dir[] = "/var/tmp/xattrXXXXXX";
	if (mkdir("/var/tmp", 0777) && errno != EEXIST)
		mkdir("/var", 0755), mkdir("/var/tmp", 0777);
	if (!mkdtemp(dir) || chdir(dir) || chmod(dir, 0777) || mkdir("t", 0777)) {
		perror(dir);
		return 1;
	}
	umask(022);
	attributes(1);
	set_ids();
	capabilities();
	if (argc < 2)
		lists();
	OK(mount("t", "t", "tmpfs", 0, "mode=777"));
	OK(chdir("t"));
	attributes(1);
	set_ids();
	capabilities();
	lists();
	OK(chdir(".."));
	OK(umount("t"));
	rmdir("t");
	OK(rmdir(dir));
	return finish();
}
