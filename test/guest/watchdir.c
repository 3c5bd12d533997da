/* watchdir DIR: writes the name of each entry that is made in DIR, until it is killed. */
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	static char buf[65536];
	int fd = inotify_init1(IN_CLOEXEC);
	if (argc < 2 || fd < 0 || inotify_add_watch(fd, argv[1], IN_CREATE) < 0) {
		perror("inotify");
		return 1;
	}
	for (ssize_t n; (n = read(fd, buf, sizeof buf)) > 0;)
		for (char *p = buf; p < buf + n;) {
			struct inotify_event *e = (struct inotify_event *)p;
			char line[300];
			int len = snprintf(line, sizeof line, "%s\n", e->name);
			if (write(1, line, len) != len)
				return 1;
			p += sizeof *e + e->len;
		}
	return 1;
}
