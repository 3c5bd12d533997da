/*
 * escape DIR SECONDS: threads rename directories and swap links in DIR while others walk up and down through
 * them, looking for what lies outside. A file named "outside" is above DIR on the host; whoever reads it has left
 * the mount.
 */
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

static volatile int stop;
static long found, tried;

static void *rename_loop(void *arg)
{
	while (!stop) {
		rename("a/b/c", "x/c");
		rename("x/c", "a/b/c");
		renameat2(AT_FDCWD, "a/b", AT_FDCWD, "x", RENAME_EXCHANGE);
		rename("a", "x/a");
		rename("x/a", "a");
	}
	return arg;
}

static void *link_loop(void *arg)
{
	while (!stop) {
		unlink("s");
		symlink("../../../..", "s");
		renameat2(AT_FDCWD, "s", AT_FDCWD, "d", RENAME_EXCHANGE);
		unlink("s");
		rmdir("s");
		mkdir("s", 0755);
	}
	return arg;
}

static void look(int dir, const char *path)
{
	char text[16] = "";
	int fd = openat(dir, path, O_RDONLY);
	__atomic_add_fetch(&tried, 1, __ATOMIC_RELAXED);
	if (fd < 0)
		return;
	if (read(fd, text, sizeof text - 1) > 0 && strstr(text, "OUTSIDE"))
		__atomic_add_fetch(&found, 1, __ATOMIC_RELAXED);
	close(fd);
}

static void *open_loop(void *arg)
{
	static const char *const paths[] = { "../outside", "a/b/c/../../../../outside", "x/c/../../../outside", "d/outside", "d/../outside",
		"s/outside", "a/b/../../../outside", "x/a/../../../outside", "a/./b/c/../../../../../outside" };
	while (!stop) {
		for (unsigned i = 0; i < sizeof paths / sizeof *paths; i++)
			look(AT_FDCWD, paths[i]);
		int c = open("a/b/c", O_PATH | O_DIRECTORY);
		if (c >= 0) {
			look(c, "../outside");
			look(c, "../../outside");
			look(c, "../../../outside");
			look(c, "../../../../outside");
			close(c);
		}
		int dir = open("d", O_RDONLY | O_DIRECTORY);
		if (dir >= 0) {
			look(dir, "outside");
			look(dir, "../outside");
			look(dir, "../../outside");
			close(dir);
		}
	}
	return arg;
}

int main(int argc, char **argv)
{
	pthread_t t[5];
	if (argc < 3 || chdir(argv[1])) {
		perror("chdir");
		return 1;
	}
	mkdir("a", 0755);
	mkdir("a/b", 0755);
	mkdir("a/b/c", 0755);
	mkdir("x", 0755);
	mkdir("d", 0755);
	puts("racing");
	fflush(stdout);
	pthread_create(&t[0], NULL, rename_loop, NULL);
	pthread_create(&t[1], NULL, link_loop, NULL);
	for (int i = 2; i < 5; i++)
		pthread_create(&t[i], NULL, open_loop, NULL);
	sleep(atoi(argv[2]));
	stop = 1;
	for (int i = 0; i < 5; i++)
		pthread_join(t[i], NULL);
	IS(found, 0);
	TRUE(tried > 100);
	return finish();
}
