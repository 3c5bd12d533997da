/*
 * unixpeer connect PATH: sends "ping" to the server there and writes its answer.
 * unixpeer serve PATH: answers "pong" to the first client, and writes what it sent.
 */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int fail(const char *what)
{
	perror(what);
	return 1;
}

int main(int argc, char **argv)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	char text[64];
	ssize_t n;
	int s = socket(AF_UNIX, SOCK_STREAM, 0);
	if (argc < 3 || s < 0)
		return fail("socket");
	strncpy(a.sun_path, argv[2], sizeof a.sun_path - 1);
	if (!strcmp(argv[1], "connect")) {
		if (connect(s, (struct sockaddr *)&a, sizeof a))
			return fail("connect");
		if (write(s, "ping", 4) != 4 || shutdown(s, SHUT_WR) || (n = read(s, text, sizeof text - 1)) < 0)
			return fail("talk");
		text[n] = 0;
		puts(text);
		if (read(s, text, 1) != 0)
			return fail("end of file");
		return 0;
	}
	if (bind(s, (struct sockaddr *)&a, sizeof a) || listen(s, 5))
		return fail("bind");
	puts("ready");
	fflush(stdout);
	int c = accept(s, NULL, NULL);
	if (c < 0 || (n = read(c, text, sizeof text - 1)) < 0)
		return fail("accept");
	text[n] = 0;
	puts(text);
	if (write(c, "pong", 4) != 4)
		return fail("answer");
	return 0;
}
