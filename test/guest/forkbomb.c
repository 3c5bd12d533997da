// forkbomb: forks until the pid limit stops it, says how (EAGAIN is expected) and how many it had,
// then ends without waiting for its children, which sleep.
//
//	forkbomb [MAX]
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int max = argc > 1 ? atoi(argv[1]) : 100000, n;

	for (n = 0; n < max; n++) {
		pid_t pid = fork();

		if (pid == 0) {
			sleep(1000);
			_exit(0);
		}
		if (pid < 0) {
			printf("%d children, then %s\n", n, errno == EAGAIN ? "EAGAIN" : "another error");
			return 0;
		}
	}
	printf("no limit up to %d\n", max);
	return 1;
}
