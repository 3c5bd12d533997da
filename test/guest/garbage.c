// garbage: runs bytes that are no instructions, each kind in a child of its own, and prints the
// signal that ended it.
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct blob {
	const char *name;
	unsigned char code[16];
	size_t len;
};

static const struct blob blobs[] = {
	{"ud2", {0x0f, 0x0b}, 2},
	{"invalid opcode", {0x06}, 1},
	{"endless prefixes", {0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66}, 16},
	{"hlt", {0xf4}, 1},
	{"cli", {0xfa}, 1},
	{"in", {0xec}, 1},
	{"wrmsr", {0x0f, 0x30}, 2},
	{"mov to cr0", {0x0f, 0x22, 0xc0}, 3},
	{"int3", {0xcc}, 1},
	{"divide by zero", {0x31, 0xc9, 0x31, 0xd2, 0xf7, 0xf1}, 6},
	{"read of null", {0x31, 0xc0, 0x8b, 0x00}, 4},
	{"write to text", {0x48, 0x8d, 0x05, 0xf9, 0xff, 0xff, 0xff, 0xc6, 0x00, 0x90}, 10},
	{"jump to non-canonical", {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0x80, 0xff, 0xe0}, 12},
	{"jump to null", {0x31, 0xc0, 0xff, 0xe0}, 4},
	{"stack pointer lost", {0x31, 0xe4, 0x50}, 3},
};

int main(void)
{
	for (size_t i = 0; i < sizeof blobs / sizeof blobs[0]; i++) {
		const struct blob *b = &blobs[i];
		int status;
		pid_t pid = fork();

		if (pid < 0) {
			perror("fork");
			return 1;
		}
		if (pid == 0) {
			unsigned char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

			memset(p, 0xf4, 4096);
			memcpy(p, b->code, b->len);
			mprotect(p, 4096, PROT_READ | PROT_EXEC);
			((void (*)(void))p)();
			_exit(0);
		}
		waitpid(pid, &status, 0);
		if (WIFSIGNALED(status))
			printf("%s: signal %d\n", b->name, WTERMSIG(status));
		else
			printf("%s: exit %d\n", b->name, WEXITSTATUS(status));
	}
	return 0;
}
