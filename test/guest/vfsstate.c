/*
 * vfsstate MODE: objects of the file system calls that a checkpoint has to carry. It prints "ready", waits
 * until /go/go exists, and prints "ok" if all are what they were.
 */
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>

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

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "mounts"))
		mounts();
	else
		return fputs("usage: vfsstate mounts\n", stderr), 2;
	return finish();
}
