/*
 * Checks of programs that test the kernel they run on. A program prints what is not as Linux has it and
 * ends with the number of such lines; it prints "ok" if there are none.
 */
#ifndef CHECK_H
#define CHECK_H
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int bad;

/* IS checks the value of a call that must succeed. */
#define IS(call, want) do { \
	errno = 0; \
	long long got_ = (long long)(call), want_ = (long long)(want); \
	if (got_ != want_) { \
		printf("%d: %s is %lld (%s), not %lld\n", __LINE__, #call, got_, strerrorname_np(errno), want_); \
		bad++; \
	} \
} while (0)

#define OK(call) IS(call, 0)

/* GETS evaluates to what a call that must not fail returns. */
#define GETS(call) ({ \
	errno = 0; \
	long long got_ = (long long)(call); \
	if (got_ < 0) { \
		printf("%d: %s: %s\n", __LINE__, #call, strerrorname_np(errno)); \
		bad++; \
	} \
	got_; \
})

/* FAILS checks that a call fails with an error number. */
#define FAILS(call, err) do { \
	errno = 0; \
	long long got_ = (long long)(call); \
	if (got_ != -1 || errno != (err)) { \
		printf("%d: %s is %lld %s, not %s\n", __LINE__, #call, got_, got_ < 0 ? strerrorname_np(errno) : "", #err); \
		bad++; \
	} \
} while (0)

/* TRUE checks a condition. */
#define TRUE(cond) do { if (!(cond)) { printf("%d: not %s\n", __LINE__, #cond); bad++; } } while (0)

static int finish(void)
{
	if (!bad)
		puts("ok");
	return bad > 100 ? 100 : bad;
}
#endif
