/* Registers: in a loop of user code, and across a blocked call. */
#include "carry.h"
#include <asm/prctl.h>
#include <cpuid.h>

static volatile int *flag;

/* The parent waits for the checkpoint; the child keeps values in registers alone and spins or blocks. */
static void during(void (*fn)(void *))
{
	flag = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(flag != MAP_FAILED);
	pid_t pid = start(fn, NULL);
	while (flag[1] == 0)
		usleep(1000);
	hold();
	flag[0] = 1;
	ended(pid);
}

static int avx(void)
{
	unsigned a, b, c, d, lo, hi;
	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_AVX) || !(c & bit_OSXSAVE))
		return 0;
	__asm__("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
	return (lo & 6) == 6;
}

/* Sixteen registers of 256 bits, compared with memory afterwards. */
static void spin_avx(void *arg)
{
	static uint64_t in[16][4] __attribute__((aligned(32))), out[16][4] __attribute__((aligned(32)));
	pattern(in, sizeof in, 5);
	flag[1] = 1;
#define LOAD(n) "vmovdqa " #n "*32(%1), %%ymm" #n "\n"
#define STORE(n) "vmovdqa %%ymm" #n ", " #n "*32(%2)\n"
#define ALL(x) x(0) x(1) x(2) x(3) x(4) x(5) x(6) x(7) x(8) x(9) x(10) x(11) x(12) x(13) x(14) x(15)
	__asm__ volatile(ALL(LOAD) "1: pause\n mov (%0), %%eax\n test %%eax, %%eax\n jz 1b\n" ALL(STORE)
		: : "r"(flag), "r"(in), "r"(out) : "rax", "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
		"xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
	check(memcmp(in, out, sizeof in) == 0);
}

CASE(registers_avx)
{
	if (!avx())
		skip("no AVX");
	during(spin_avx);
}

static void spin_general(void *arg)
{
	uint64_t bad = 1;
	flag[1] = 1;
	__asm__ volatile(
		"push %%rbp\n push %%rbx\n"
		"mov $0x1111111111111111, %%rax\n mov $0x2222222222222222, %%rbx\n mov $0x3333333333333333, %%rdx\n"
		"mov $0x4444444444444444, %%rbp\n mov $0x5555555555555555, %%r8\n mov $0x6666666666666666, %%r9\n"
		"mov $0x7777777777777777, %%r10\n mov $0x8888888888888888, %%r11\n mov $0x9999999999999999, %%r12\n"
		"mov $0xaaaaaaaaaaaaaaaa, %%r13\n mov $0xbbbbbbbbbbbbbbbb, %%r14\n mov $0xcccccccccccccccc, %%r15\n"
		"std\n"
		"1: pause\n mov (%%rsi), %%ecx\n test %%ecx, %%ecx\n jz 1b\n"
		"pushf\n cld\n pop %%rcx\n and $0x400, %%ecx\n xor $0x400, %%ecx\n mov %%rcx, %%rdi\n"
#define IS(r, v) "mov $0x" v v v v v v v v ", %%rcx\n xor %%" r ", %%rcx\n or %%rcx, %%rdi\n"
		IS("rax", "11") IS("rbx", "22") IS("rdx", "33") IS("rbp", "44") IS("r8", "55") IS("r9", "66") IS("r10", "77")
		IS("r11", "88") IS("r12", "99") IS("r13", "aa") IS("r14", "bb") IS("r15", "cc")
		"pop %%rbx\n pop %%rbp\n"
		: "=D"(bad) : "S"(flag) : "rax", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "memory", "cc");
	check(bad == 0);
}

CASE(registers_general) { during(spin_general); }

/* The call keeps all registers but rax, rcx and r11, also the restarted one. */
static void block_general(void *arg)
{
	uint64_t bad = 1;
	char c;
	__asm__ volatile(
		"push %%rbp\n mov $0x2222222222222222, %%rbx\n mov $0x4444444444444444, %%rbp\n mov $0x5555555555555555, %%r8\n"
		"mov $0x6666666666666666, %%r9\n mov $0x7777777777777777, %%r10\n mov $0x9999999999999999, %%r12\n"
		"mov $0xaaaaaaaaaaaaaaaa, %%r13\n mov $0xbbbbbbbbbbbbbbbb, %%r14\n mov $0xcccccccccccccccc, %%r15\n"
		"movq %%r9, %%xmm7\n movq %%r15, %%xmm15\n fldpi\n"
		"xor %%eax, %%eax\n syscall\n mov %%rax, %%rdi\n"
		IS("rbx", "22") IS("rbp", "44") IS("r8", "55") IS("r9", "66") IS("r10", "77")
		IS("r12", "99") IS("r13", "aa") IS("r14", "bb") IS("r15", "cc")
		"movq %%xmm7, %%r9\n movq %%xmm15, %%r15\n"
		IS("r9", "66") IS("r15", "cc")
		"fldpi\n fcomip %%st(1), %%st\n setne %%cl\n movzx %%cl, %%ecx\n or %%rcx, %%rdi\n fstp %%st(0)\n pop %%rbp\n"
		: "=D"(bad) : "D"(go_of_carry()), "S"(&c), "d"(1L)
		: "rax", "rbx", "rcx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm7", "xmm15", "memory", "cc");
	check(bad == 0);
}

CASE(registers_blocked)
{
	pid_t pid = start(block_general, NULL);
	settle(pid);
	hold();
	ended(pid);
}

/* Control words, and the bases of both segments. */
CASE(registers_control)
{
	static __thread int local = 77;
	uint32_t mxcsr = 0x1f80 | 0x6000, got;
	uint16_t fcw = 0x0f7f, fcw_got;
	unsigned long gs = 0, fs = 0, fs_got = 0;
	static long area[8] = {4711};
	__asm__ volatile("ldmxcsr %0" : : "m"(mxcsr));
	__asm__ volatile("fldcw %0" : : "m"(fcw));
	check(syscall(SYS_arch_prctl, ARCH_SET_GS, area) == 0);
	check(syscall(SYS_arch_prctl, ARCH_GET_FS, &fs) == 0);
	local++;
	hold();
	__asm__ volatile("stmxcsr %0" : "=m"(got));
	__asm__ volatile("fnstcw %0" : "=m"(fcw_got));
	equal(got & ~0x3f, mxcsr);
	equal(fcw_got, fcw);
	check(syscall(SYS_arch_prctl, ARCH_GET_GS, &gs) == 0 && syscall(SYS_arch_prctl, ARCH_GET_FS, &fs_got) == 0);
	equal(gs, (long)area);
	equal(fs_got, fs);
	equal(local, 78);
	long v;
	__asm__ volatile("mov %%gs:0, %0" : "=r"(v));
	equal(v, 4711);
}

/* A calculation goes on while it is saved. */
static void *spinner(void *arg)
{
	double *sum = arg, x = 0;
	uint64_t n = 0;
	while (!flag[0]) {
		x = 0;
		for (int i = 1; i < 20000; i++)
			x += 1.0 / ((double)i * i);
		if (sum[0] == 0)
			sum[0] = x;
		check(x == sum[0]);
		n++;
	}
	check(n > 0);
	return NULL;
}

CASE(registers_calculation)
{
	static double sum;
	pthread_t t;
	flag = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	thread(&t, spinner, &sum);
	hold();
	flag[0] = 1;
	pthread_join(t, NULL);
}
