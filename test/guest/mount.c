/*
 * mount: mounts by the old and the new system calls, in a mount namespace of its own. It needs CAP_SYS_ADMIN.
 */
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static char line[8192];

/* The line of mountinfo for a mount point, the last one; empty if there is none. */
static const char *info(const char *point)
{
	static char found[8192];
	char where[1024];
	FILE *f = fopen("/proc/self/mountinfo", "r");
	found[0] = 0;
	while (f && fgets(line, sizeof line, f)) {
		line[strcspn(line, "\n")] = 0;
		if (sscanf(line, "%*d %*d %*s %*s %1023s", where) == 1 && !strcmp(where, point))
			strcpy(found, line);
	}
	if (f)
		fclose(f);
	return found;
}

static int has(const char *point, const char *text) { return strstr(info(point), text) != NULL; }

static long set(int fd, const char *key, const char *value)
{
	return syscall(SYS_fsconfig, fd, value ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG, key, value, 0);
}

static long command(int fd, int cmd) { return syscall(SYS_fsconfig, fd, cmd, NULL, NULL, 0); }

static const char *message(int fd)
{
	static char text[256];
	ssize_t n = read(fd, text, sizeof text - 1);
	if (n < 0)
		return strerrorname_np(errno);
	text[n] = 0;
	return text;
}

static long attr(int fd, unsigned flags, unsigned long long on, unsigned long long off, unsigned long long propagation)
{
	struct mount_attr a = { .attr_set = on, .attr_clr = off, .propagation = propagation };
	return syscall(SYS_mount_setattr, fd, "", AT_EMPTY_PATH | flags, &a, sizeof a);
}

static void context(void)
{
	FAILS(syscall(SYS_fsopen, "nonesuch", 0), ENODEV);
	FAILS(syscall(SYS_fsopen, "tmpfs", 8), EINVAL);
	FAILS(syscall(SYS_fsopen, NULL, 0), EFAULT);
	int fd = GETS(syscall(SYS_fsopen, "tmpfs", FSOPEN_CLOEXEC));
	IS(fcntl(fd, F_GETFD), FD_CLOEXEC);
	char path[64], name[64];
	sprintf(path, "/proc/self/fd/%d", fd);
	ssize_t n = readlink(path, name, sizeof name);
	TRUE(n == 22 && !memcmp(name, "anon_inode:[fscontext]", 22));
	TRUE(!strcmp(message(fd), "ENODATA"));
	FAILS(set(fd, "foo", NULL), EINVAL);
	FAILS(set(fd, "size", "12x"), EINVAL);
	FAILS(set(fd, "size", NULL), EINVAL);
	TRUE(!strcmp(message(fd), "e tmpfs: Unknown parameter 'foo'\n"));
	TRUE(!strcmp(message(fd), "e tmpfs: Bad value for 'size'\n"));
	FAILS(read(fd, name, 3), EMSGSIZE);
	TRUE(!strcmp(message(fd), "e tmpfs: Bad value for 'size'\n")); /* since Linux 6.17 */
	TRUE(!strcmp(message(fd), "ENODATA"));
	FAILS(set(fd, "mode", "888"), EINVAL);
	FAILS(set(fd, "uid", "-1"), EINVAL);
	OK(set(fd, "source", "a name"));
	FAILS(set(fd, "source", "b"), EINVAL);
	OK(set(fd, "ro", "what"));
	OK(set(fd, "rw", NULL));
	OK(set(fd, "sync", NULL));
	OK(set(fd, "size", "1m"));
	OK(set(fd, "mode", "0750"));
	FAILS(syscall(SYS_fsconfig, fd, FSCONFIG_SET_STRING, "size", "1m", 5), EINVAL);
	FAILS(syscall(SYS_fsconfig, fd, FSCONFIG_SET_FLAG, "ro", "x", 0), EINVAL);
	FAILS(syscall(SYS_fsconfig, fd, 77, NULL, NULL, 0), EOPNOTSUPP);
	FAILS(syscall(SYS_fsconfig, 0, FSCONFIG_SET_FLAG, "ro", NULL, 0), EINVAL);
	FAILS(syscall(SYS_fsconfig, 99, FSCONFIG_SET_FLAG, "ro", NULL, 0), EBADF);
	FAILS(syscall(SYS_fsmount, fd, 0, 0), EINVAL);
	FAILS(command(fd, FSCONFIG_CMD_RECONFIGURE), EBUSY);
	OK(command(fd, FSCONFIG_CMD_CREATE));
	FAILS(command(fd, FSCONFIG_CMD_CREATE), EBUSY);
	FAILS(set(fd, "size", "1m"), EBUSY);
	FAILS(syscall(SYS_fsmount, fd, 2, 0), EINVAL);
	FAILS(syscall(SYS_fsmount, fd, 0, 1 << 19), EINVAL);
	int m = GETS(syscall(SYS_fsmount, fd, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV));
	FAILS(syscall(SYS_fsmount, fd, 0, 0), EBUSY);
	IS(fcntl(m, F_GETFL), O_PATH);
	struct stat st;
	OK(fstat(m, &st));
	IS(st.st_mode, S_IFDIR | 0750);
	int f = GETS(openat(m, "f", O_CREAT | O_RDWR, 0600));
	/* What is not in the tree cannot be mounted on. */
	sprintf(path, "/proc/self/fd/%d", m);
	OK(mkdirat(m, "d", 0700));
	FAILS(syscall(SYS_move_mount, m, "", AT_FDCWD, "m", 0), ENOENT);
	FAILS(syscall(SYS_move_mount, m, "d", AT_FDCWD, "m", 0), EINVAL);
	FAILS(syscall(SYS_move_mount, m, "", AT_FDCWD, "m", 0x8000), EINVAL);
	FAILS(syscall(SYS_move_mount, m, "", AT_FDCWD, "none", MOVE_MOUNT_F_EMPTY_PATH), ENOENT);
	FAILS(syscall(SYS_move_mount, m, "", AT_FDCWD, "file", MOVE_MOUNT_F_EMPTY_PATH), EINVAL);
	OK(syscall(SYS_move_mount, m, "", AT_FDCWD, "m", MOVE_MOUNT_F_EMPTY_PATH));
	FAILS(syscall(SYS_move_mount, m, "", AT_FDCWD, "m", MOVE_MOUNT_F_EMPTY_PATH), ELOOP);
	TRUE(has("/t/m", " rw,nosuid,nodev,relatime - tmpfs a\\040name rw,sync,size=1024k,mode=750"));
	OK(close(m));
	OK(access("m/f", F_OK));
	/* The context goes on to the file system's reconfiguration. */
	OK(set(fd, "ro", NULL));
	FAILS(command(fd, FSCONFIG_CMD_RECONFIGURE), EBUSY);
	close(f);
	close(fd);
	fd = GETS(syscall(SYS_fspick, AT_FDCWD, "m", FSPICK_CLOEXEC));
	FAILS(syscall(SYS_fspick, AT_FDCWD, "m/d", 0), EINVAL);
	OK(set(fd, "size", "2m"));
	OK(set(fd, "ro", NULL));
	OK(command(fd, FSCONFIG_CMD_RECONFIGURE));
	FAILS(open("m/f", O_WRONLY), EROFS);
	TRUE(has("/t/m", " rw,nosuid,nodev,relatime - tmpfs a\\040name ro,sync,size=2048k,mode=750"));
	OK(set(fd, "rw", NULL));
	OK(command(fd, FSCONFIG_CMD_RECONFIGURE));
	close(GETS(open("m/f", O_WRONLY)));
	close(fd);
	OK(umount("m"));
	/* A tree that nobody puts anywhere goes with its descriptor. */
	fd = GETS(syscall(SYS_fsopen, "tmpfs", 0));
	OK(command(fd, FSCONFIG_CMD_CREATE));
	m = GETS(syscall(SYS_fsmount, fd, 0, MOUNT_ATTR_STRICTATIME));
	FAILS(syscall(SYS_fsmount, fd, 0, MOUNT_ATTR_NOATIME | MOUNT_ATTR_STRICTATIME), EINVAL);
	close(GETS(openat(m, "f", O_CREAT | O_RDWR, 0600)));
	f = GETS(openat(m, "f", O_RDONLY));
	close(m);
	close(fd);
	OK(fstat(f, &st));
	close(f);
}

static void trees(void)
{
	OK(mount("t", "m", "tmpfs", 0, NULL));
	OK(mkdir("m/sub", 0755));
	OK(mount("s", "m/sub", "tmpfs", MS_NOEXEC, NULL));
	close(GETS(creat("m/sub/x", 0644)));
	FAILS(syscall(SYS_open_tree, AT_FDCWD, "m", 0x100000), EINVAL);
	FAILS(syscall(SYS_open_tree, AT_FDCWD, "m", AT_RECURSIVE), EINVAL);
	int o = GETS(syscall(SYS_open_tree, AT_FDCWD, "m/sub", 0));
	IS(fcntl(o, F_GETFL), O_PATH);
	int one = GETS(syscall(SYS_open_tree, AT_FDCWD, "m", OPEN_TREE_CLONE));
	int all = GETS(syscall(SYS_open_tree, AT_FDCWD, "m", OPEN_TREE_CLONE | AT_RECURSIVE | OPEN_TREE_CLOEXEC));
	FAILS(faccessat(one, "sub/x", F_OK, 0), ENOENT);
	OK(faccessat(all, "sub/x", F_OK, 0));
	FAILS(umount("m/sub"), EBUSY);
	close(o);
	OK(umount("m/sub"));
	OK(faccessat(all, "sub/x", F_OK, 0));
	OK(attr(all, AT_RECURSIVE, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID, 0, 0));
	FAILS(openat(all, "sub/y", O_CREAT | O_RDWR, 0600), EROFS);
	FAILS(openat(all, "y", O_CREAT | O_RDWR, 0600), EROFS);
	close(GETS(openat(one, "y", O_CREAT | O_RDWR, 0600)));
	FAILS(attr(all, 0, MOUNT_ATTR_STRICTATIME, 0, 0), EINVAL);
	FAILS(attr(all, 0, MOUNT_ATTR_STRICTATIME, MOUNT_ATTR_NOATIME, 0), EINVAL);
	FAILS(attr(all, 0, MOUNT_ATTR_STRICTATIME | MOUNT_ATTR_NOATIME, MOUNT_ATTR__ATIME, 0), EINVAL);
	FAILS(attr(all, 0, 0, 0, MS_SHARED | MS_SLAVE), EINVAL);
	FAILS(attr(all, 0, 1 << 30, 0, 0), EINVAL);
	FAILS(attr(all, 1, 1, 0, 0), EINVAL);
	FAILS(attr(all, 0, 0, MOUNT_ATTR_IDMAP, 0), EINVAL);
	struct mount_attr a = { .attr_set = MOUNT_ATTR_IDMAP, .userns_fd = 9999 };
	FAILS(syscall(SYS_mount_setattr, all, "", AT_EMPTY_PATH, &a, sizeof a), EBADF);
	a.userns_fd = all;
	FAILS(syscall(SYS_mount_setattr, all, "", AT_EMPTY_PATH, &a, sizeof a), EBADF);
	FAILS(syscall(SYS_mount_setattr, all, "", AT_EMPTY_PATH, &a, 8), EINVAL);
	FAILS(syscall(SYS_mount_setattr, all, "", AT_EMPTY_PATH, &a, 5000), E2BIG);
	struct { struct mount_attr a; long more; } longer = { .more = 1 };
	FAILS(syscall(SYS_mount_setattr, all, "", AT_EMPTY_PATH, &longer, sizeof longer), E2BIG);
	FAILS(syscall(SYS_mount_setattr, all, "sub/x", 0, &(struct mount_attr){ .attr_set = 1 }, sizeof a), EINVAL);
	OK(mkdir("n", 0755));
	OK(syscall(SYS_move_mount, all, "", AT_FDCWD, "n", MOVE_MOUNT_F_EMPTY_PATH));
	TRUE(has("/t/n", " ro,nosuid,relatime"));
	TRUE(has("/t/n/sub", " ro,nosuid,noexec,relatime"));
	OK(attr(all, AT_RECURSIVE, MOUNT_ATTR_NOATIME | MOUNT_ATTR_NODIRATIME | MOUNT_ATTR_NOSYMFOLLOW, MOUNT_ATTR__ATIME | MOUNT_ATTR_RDONLY, 0));
	TRUE(has("/t/n/sub", " rw,nosuid,noexec,noatime,nodiratime,nosymfollow"));
	struct statfs sf;
	OK(statfs("n/sub", &sf));
	IS(sf.f_flags & 0x3fff, ST_NOSUID | ST_NOEXEC | ST_NOATIME | ST_NODIRATIME | 0x2000 | 0x20);
	int f = GETS(open("n/sub/x", O_WRONLY));
	FAILS(attr(all, AT_RECURSIVE, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID, 0, 0), EBUSY);
	TRUE(has("/t/n", " rw,"));
	close(f);
	close(all);
	close(one);
	/* Another mount under the one on top. */
	int fd = GETS(syscall(SYS_fsopen, "tmpfs", 0));
	OK(command(fd, FSCONFIG_CMD_CREATE));
	int m = GETS(syscall(SYS_fsmount, fd, 0, 0));
	close(GETS(openat(m, "under", O_CREAT | O_RDWR, 0600)));
	OK(umount("n/sub"));
	OK(syscall(SYS_move_mount, m, "", AT_FDCWD, "n", MOVE_MOUNT_F_EMPTY_PATH | 0x200));
	FAILS(access("n/under", F_OK), ENOENT);
	close(m);
	close(fd);
	OK(umount("n"));
	OK(access("n/under", F_OK));
	OK(umount("n"));
	OK(umount("m"));
	OK(rmdir("n"));
}

static void classic(void)
{
	OK(mount("a b\t\\c#", "m", "tmpfs", MS_NOSUID | MS_RDONLY | MS_STRICTATIME, "size=64k,nr_inodes=10"));
	TRUE(has("/t/m", " ro,nosuid - tmpfs a\\040b\\011\\134c\\043 ro,size=64k,nr_inodes=10"));
	OK(mount(NULL, "m", NULL, MS_REMOUNT | MS_BIND | MS_NODEV, NULL));
	TRUE(has("/t/m", " rw,nodev - tmpfs")); /* the access time stays as it was */
	FAILS(creat("m/f", 0644), EROFS);
	OK(mount(NULL, "m", NULL, MS_REMOUNT | MS_SYNCHRONOUS, "size=128k"));
	TRUE(has("/t/m", " rw - tmpfs"));
	TRUE(has("/t/m", " rw,sync,size=128k,nr_inodes=10"));
	close(GETS(creat("m/f", 0644)));
	OK(mkdir("m/d", 0755));
	FAILS(mount(NULL, "m/d", NULL, MS_REMOUNT, NULL), EINVAL);
	FAILS(mount(NULL, "m/d", NULL, MS_SHARED, NULL), EINVAL);
	FAILS(mount("m/d", "m/f", NULL, MS_MOVE, NULL), EINVAL);
	FAILS(umount("m/d"), EINVAL);
	FAILS(umount2("m", 0x4000), EINVAL);
	FAILS(umount2("m", MNT_EXPIRE | MNT_DETACH), EINVAL);
	FAILS(umount2("m", MNT_EXPIRE), EAGAIN);
	OK(access("m/f", F_OK));
	FAILS(umount2("m", MNT_EXPIRE), EAGAIN);
	int f = GETS(open("m/f", O_RDONLY));
	FAILS(umount2("m", MNT_EXPIRE), EBUSY);
	close(f);
	FAILS(umount2("m", MNT_EXPIRE), EAGAIN);
	OK(umount2("m", MNT_EXPIRE));
	FAILS(access("m/f", F_OK), ENOENT);
	/* Without following a link. */
	OK(mount("t", "m", "tmpfs", 0, NULL));
	OK(symlink("m", "l"));
	FAILS(umount2("l", UMOUNT_NOFOLLOW), EINVAL);
	OK(umount2("l", 0));
	OK(unlink("l"));
	/* A lazy unmount: what is open stays. */
	OK(mount("t", "m", "tmpfs", 0, NULL));
	f = GETS(open("m/f", O_CREAT | O_RDWR, 0600));
	FAILS(umount("m"), EBUSY);
	OK(umount2("m", MNT_DETACH));
	IS(write(f, "x", 1), 1);
	close(f);
	/* Files on files, and busy mount points. */
	FAILS(mount("m", "file", NULL, MS_BIND, NULL), ENOTDIR);
	FAILS(mount("file", "m", NULL, MS_BIND, NULL), ENOTDIR);
	close(GETS(creat("other", 0644)));
	OK(mount("other", "file", NULL, MS_BIND, NULL));
	FAILS(unlink("file"), EBUSY);
	FAILS(rename("file", "x"), EBUSY);
	FAILS(rename("other", "file"), EBUSY);
	OK(umount("file"));
	OK(mount("m", "m", NULL, MS_BIND, NULL));
	FAILS(rmdir("m"), EBUSY);
	FAILS(rename("m", "x"), EBUSY);
	close(GETS(creat("m/in", 0644)));
	FAILS(rename("m/in", "out"), EXDEV);
	FAILS(link("m/in", "out"), EXDEV);
	OK(umount("m"));
	OK(unlink("m/in"));
	OK(unlink("other"));
	/* noexec, nosuid, nodev, nosymfollow. */
	OK(mount("t", "m", "tmpfs", MS_NODEV | MS_NOSUID | MS_NOEXEC, NULL));
	OK(mknod("m/null", S_IFCHR | 0666, 0x103));
	FAILS(open("m/null", O_RDWR), EACCES);
	f = GETS(open("m/p", O_CREAT | O_RDWR, 0755));
	IS(write(f, "#!/bin/sh\n", 10), 10);
	close(f);
	FAILS(execl("m/p", "p", NULL), EACCES);
	FAILS(access("m/p", X_OK), EACCES);
	OK(symlink("p", "m/l"));
	OK(mount(NULL, "m", NULL, MS_REMOUNT | MS_BIND | 256, NULL));
	FAILS(open("m/l", O_RDONLY), ELOOP);
	OK(umount("m"));
}

static void atimes(void)
{
	struct { unsigned long flags; int moves, again, dirs; } t[] = {
		{ MS_RELATIME, 1, 0, 1 }, { MS_STRICTATIME, 1, 1, 1 }, { MS_NOATIME, 0, 0, 0 }, { MS_NODIRATIME, 1, 0, 0 }, { 0, 1, 0, 1 },
	};
	for (int i = 0; i < 5; i++) {
		struct stat a, b, c;
		char x[8];
		OK(mount("t", "m", "tmpfs", t[i].flags, NULL));
		int f = GETS(open("m/f", O_CREAT | O_RDWR, 0600));
		IS(write(f, "abc", 3), 3);
		OK(fstat(f, &a));
		usleep(20000);
		IS(pread(f, x, 3, 0), 3);
		OK(fstat(f, &b));
		usleep(20000);
		IS(pread(f, x, 3, 0), 3);
		OK(fstat(f, &c));
		IS(a.st_atim.tv_nsec != b.st_atim.tv_nsec, t[i].moves);
		IS(b.st_atim.tv_nsec != c.st_atim.tv_nsec, t[i].again);
		close(f);
		OK(stat("m", &a));
		int d = GETS(open("m", O_RDONLY | O_DIRECTORY));
		char entries[4096];
		TRUE(syscall(SYS_getdents64, d, entries, sizeof entries) > 0);
		close(d);
		OK(stat("m", &b));
		IS(a.st_atim.tv_nsec != b.st_atim.tv_nsec, t[i].dirs);
		OK(umount("m"));
	}
}

static void propagation(void)
{
	char want[64];
	int peer, master;
	OK(mount("t", "m", "tmpfs", 0, NULL));
	FAILS(mount(NULL, "m", NULL, MS_SHARED | MS_PRIVATE, NULL), EINVAL);
	OK(mount(NULL, "m", NULL, MS_SHARED, NULL));
	OK(mkdir("m/a", 0755));
	OK(mkdir("n", 0755));
	OK(mkdir("s", 0755));
	OK(mkdir("u", 0755));
	OK(mount("m", "n", NULL, MS_BIND, NULL));
	OK(mount("m", "s", NULL, MS_BIND, NULL));
	OK(mount(NULL, "s", NULL, MS_SLAVE, NULL));
	TRUE(sscanf(strstr(info("/t/m"), "shared:") ?: "", "shared:%d", &peer) == 1);
	sprintf(want, " shared:%d ", peer);
	TRUE(has("/t/n", want));
	sprintf(want, " master:%d ", peer);
	TRUE(has("/t/s", want) && !has("/t/s", "shared:"));
	OK(mount("x", "m/a", "tmpfs", 0, NULL));
	TRUE(*info("/t/n/a") && *info("/t/s/a"));
	OK(umount("n/a"));
	TRUE(!*info("/t/m/a") && !*info("/t/s/a"));
	OK(mount("x", "s/a", "tmpfs", 0, NULL));
	TRUE(!*info("/t/m/a"));
	OK(umount("s/a"));
	/* A slave that is shared again, and a slave of that. */
	OK(mount(NULL, "s", NULL, MS_SHARED, NULL));
	OK(mount("s", "u", NULL, MS_BIND, NULL));
	OK(mount(NULL, "u", NULL, MS_SLAVE, NULL));
	TRUE(sscanf(strstr(info("/t/u"), "master:") ?: "", "master:%d", &master) == 1 && master != peer);
	sprintf(want, " shared:%d master:%d ", master, peer);
	TRUE(has("/t/s", want));
	OK(mount("x", "m/a", "tmpfs", 0, NULL));
	TRUE(*info("/t/u/a"));
	FAILS(mount("m/a", "m/a", NULL, MS_MOVE, NULL), EINVAL); /* below a shared mount */
	OK(umount("m/a"));
	OK(mount(NULL, "n", NULL, MS_UNBINDABLE, NULL));
	TRUE(has("/t/n", " unbindable "));
	FAILS(mount("n", "m/a", NULL, MS_BIND, NULL), EINVAL);
	OK(umount("u"));
	OK(umount("s"));
	OK(umount("n"));
	OK(umount("m"));
	OK(rmdir("n"));
	OK(rmdir("s"));
	OK(rmdir("u"));
	/* Joining a group afterwards. */
	OK(mkdir("n", 0755));
	OK(mount("t", "m", "tmpfs", 0, NULL));
	OK(mount("m", "n", NULL, MS_BIND, NULL));
	FAILS(syscall(SYS_move_mount, AT_FDCWD, "m", AT_FDCWD, "n", 0x100), EINVAL);
	OK(mount(NULL, "m", NULL, MS_SHARED, NULL));
	OK(syscall(SYS_move_mount, AT_FDCWD, "m", AT_FDCWD, "n", 0x100));
	TRUE(sscanf(strstr(info("/t/m"), "shared:") ?: "", "shared:%d", &peer) == 1);
	sprintf(want, " shared:%d ", peer);
	TRUE(has("/t/n", want));
	OK(umount("m"));
	OK(umount("n"));
	OK(rmdir("n"));
}

static void pivot(void)
{
	OK(mount("t", "m", "tmpfs", 0, NULL));
	OK(mkdir("m/old", 0755));
	OK(mkdir("m/d", 0755));
	FAILS(syscall(SYS_pivot_root, "m/d", "m/old"), EINVAL);
	FAILS(syscall(SYS_pivot_root, "m", "m/none"), ENOENT);
	FAILS(syscall(SYS_pivot_root, "/t/m", "/t"), EINVAL);
	OK(syscall(SYS_pivot_root, "m", "m/old"));
	OK(chdir("/"));
	OK(access("/old/t/m", F_OK));
	OK(access("/d", F_OK));
	OK(umount2("/old", MNT_DETACH));
	FAILS(access("/old/t", F_OK), ENOENT);
	/* Twice the same directory, as container runtimes do. */
	OK(mount("t", "/d", "tmpfs", 0, NULL));
	OK(chdir("/d"));
	OK(syscall(SYS_pivot_root, ".", "."));
	OK(umount2(".", MNT_DETACH));
	OK(chdir("/"));
	FAILS(access("/old", F_OK), ENOENT);
}

int main(void)
{
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    (mkdir("/t", 0755) && errno != EEXIST) || mount("test", "/t", "tmpfs", 0, NULL) || chdir("/t")) {
		perror("set-up");
		return 1;
	}
	OK(mkdir("m", 0755));
	close(GETS(creat("file", 0644)));
	context();
	trees();
	classic();
	atimes();
	propagation();
	pivot();
	return finish();
}
