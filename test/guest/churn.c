// churn: does a bit of everything for ever, in several processes and threads, so that it can be
// killed in the middle of anything: forks, execs, threads, mappings, pipes, files, signals, futexes.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile int alarms;

static void on_alarm(int sig)
{
	(void)sig;
	alarms++;
}

static void *contend(void *unused)
{
	(void)unused;
	for (int i = 0; i < 200; i++) {
		pthread_mutex_lock(&lock);
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

static void do_threads(void)
{
	pthread_t t[4];
	int n = 0;

	while (n < 4 && pthread_create(&t[n], NULL, contend, NULL) == 0)
		n++;
	while (n-- > 0)
		pthread_join(t[n], NULL);
}

static void do_exec(char *self)
{
	pid_t pid = fork();

	if (pid == 0) {
		execl(self, self, "child", NULL);
		_exit(127);
	}
	waitpid(pid, NULL, 0);
}

static void do_memory(void)
{
	for (int i = 1; i < 16; i++) {
		char *p = mmap(NULL, i << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (p == MAP_FAILED)
			return;
		memset(p, i, i << 16);
		mprotect(p, 4096, PROT_READ);
		munmap(p, i << 16);
	}
}

static void do_pipe(void)
{
	char b[4096] = {0};
	int p[2];
	pid_t pid;

	if (pipe(p) < 0)
		return;
	pid = fork();
	if (pid == 0) {
		close(p[1]);
		while (read(p[0], b, sizeof b) > 0)
			;
		_exit(0);
	}
	close(p[0]);
	for (int i = 0; i < 64; i++)
		if (write(p[1], b, sizeof b) < 0)
			break;
	close(p[1]);
	waitpid(pid, NULL, 0);
}

static void do_files(int who)
{
	char a[64], b[64], data[8192];

	snprintf(a, sizeof a, "/tmp/churn.%d", who);
	snprintf(b, sizeof b, "/tmp/churn.%d.renamed", who);
	for (int i = 0; i < 8; i++) {
		int fd = open(a, O_CREAT | O_RDWR | O_TRUNC, 0644);

		memset(data, i, sizeof data);
		if (fd < 0 || write(fd, data, sizeof data) < 0)
			return;
		fsync(fd);
		close(fd);
		rename(a, b);
		unlink(b);
	}
}

int main(int argc, char **argv)
{
	int workers = 4, who = 0;

	if (argc > 1 && strcmp(argv[1], "child") == 0)
		return 0;
	signal(SIGALRM, on_alarm);
	signal(SIGPIPE, SIG_IGN);
	puts("churning");
	fflush(stdout);
	while (who < workers - 1 && fork() > 0)
		who++;
	for (;;) {
		ualarm(1000, 0);
		do_threads();
		do_exec(argv[0]);
		do_memory();
		do_pipe();
		do_files(getpid());
	}
}
