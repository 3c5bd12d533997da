#include "textflag.h"

// The functions of the vDSO, for the C calling convention. Their bytes are
// copied into the image: they hold no symbol and use only DI, SI, AX, CX, DX
// and R8 to R11. The data page lies below the image, which is one page: it is
// found from the instruction pointer. See params in params.go for its layout.

#define P_SEQ   0
#define P_VALID 4
#define P_TSC   8
#define P_MULT  16
#define P_MAX   24
#define P_MONO  32
#define P_OFF   40

// LEA_R8 is lea 0(%rip), %r8, then the start of the data page.
#define DATA_R8 \
	BYTE $0x4C; BYTE $0x8D; BYTE $0x05; LONG $0; \
	ANDQ $~4095, R8; \
	SUBQ $4096, R8

// NANOS leaves CLOCK_MONOTONIC plus offset number DI in AX, or goes to the
// label of a system call. It uses CX, DX, R9, R10.
#define NANOS(retry, spin, good, fallback) \
retry: \
	MOVL P_SEQ(R8), R9; \
	TESTL $1, R9; \
	JNE spin; \
	CMPL P_VALID(R8), $0; \
	JEQ fallback; \
	LFENCE; \
	RDTSC; \
	SHLQ $32, DX; \
	ORQ DX, AX; \
	SUBQ P_TSC(R8), AX; \
	JCC good; \
	XORL AX, AX; \
good: \
	CMPQ AX, P_MAX(R8); \
	JHI fallback; \
	IMULQ P_MULT(R8), AX; \
	SHRQ $32, AX; \
	ADDQ P_MONO(R8), AX; \
	ADDQ P_OFF(R8)(DI*8), AX; \
	MOVL P_SEQ(R8), R10; \
	CMPL R9, R10; \
	JNE retry

// func clock_gettime(clock DI, ts SI)
TEXT ·textClockGettime(SB),NOSPLIT|NOFRAME,$0-0
	MOVL	DI, DI
	CMPL	DI, $7
	JHI	fallback
	// REALTIME, MONOTONIC, REALTIME_COARSE, MONOTONIC_COARSE, BOOTTIME
	MOVL	$0xE3, CX
	BTL	DI, CX
	JCC	fallback
	DATA_R8
	NANOS(retry, spin, good, fallback)
	XORL	DX, DX
	MOVL	$1000000000, CX
	DIVQ	CX
	MOVQ	AX, (SI)
	MOVQ	DX, 8(SI)
	XORL	AX, AX
	RET
spin:
	PAUSE
	JMP	retry
fallback:
	MOVL	$228, AX
	SYSCALL
	RET

// func gettimeofday(tv DI, tz SI)
TEXT ·textGettimeofday(SB),NOSPLIT|NOFRAME,$0-0
	TESTQ	SI, SI
	JNE	fallback
	TESTQ	DI, DI
	JEQ	fallback
	MOVQ	DI, R11
	XORL	DI, DI
	DATA_R8
	NANOS(retry, spin, good, undo)
	XORL	DX, DX
	MOVL	$1000000000, CX
	DIVQ	CX
	MOVQ	AX, (R11)
	MOVQ	DX, AX
	XORL	DX, DX
	MOVL	$1000, CX
	DIVQ	CX
	MOVQ	AX, 8(R11)
	XORL	AX, AX
	RET
spin:
	PAUSE
	JMP	retry
undo:
	MOVQ	R11, DI
fallback:
	MOVL	$96, AX
	SYSCALL
	RET

// func time(t DI)
TEXT ·textTime(SB),NOSPLIT|NOFRAME,$0-0
	MOVQ	DI, R11
	XORL	DI, DI
	DATA_R8
	NANOS(retry, spin, good, undo)
	XORL	DX, DX
	MOVL	$1000000000, CX
	DIVQ	CX
	TESTQ	R11, R11
	JEQ	out
	MOVQ	AX, (R11)
out:
	RET
spin:
	PAUSE
	JMP	retry
undo:
	MOVQ	R11, DI
	MOVL	$201, AX
	SYSCALL
	RET

// func getcpu(cpu DI, node SI, unused DX)
TEXT ·textGetcpu(SB),NOSPLIT|NOFRAME,$0-0
	MOVL	$309, AX
	SYSCALL
	RET

// func clock_getres(clock DI, ts SI)
TEXT ·textClockGetres(SB),NOSPLIT|NOFRAME,$0-0
	MOVL	$229, AX
	SYSCALL
	RET

// The end of the text: what follows the last function.
TEXT ·textEnd(SB),NOSPLIT|NOFRAME,$0-0
	RET

// func textAddrs() (a [6]uintptr)
TEXT ·textAddrs(SB),NOSPLIT,$0-48
	LEAQ	·textClockGettime(SB), AX
	MOVQ	AX, a_0+0(FP)
	LEAQ	·textGettimeofday(SB), AX
	MOVQ	AX, a_1+8(FP)
	LEAQ	·textTime(SB), AX
	MOVQ	AX, a_2+16(FP)
	LEAQ	·textGetcpu(SB), AX
	MOVQ	AX, a_3+24(FP)
	LEAQ	·textClockGetres(SB), AX
	MOVQ	AX, a_4+32(FP)
	LEAQ	·textEnd(SB), AX
	MOVQ	AX, a_5+40(FP)
	RET

// func rdtsc() uint64
TEXT ·rdtsc(SB),NOSPLIT,$0-8
	LFENCE
	RDTSC
	SHLQ	$32, DX
	ORQ	DX, AX
	MOVQ	AX, ret+0(FP)
	RET

// func invariantTSC() bool
TEXT ·invariantTSC(SB),NOSPLIT,$0-1
	MOVB	$0, ret+0(FP)
	MOVL	$0x80000000, AX
	CPUID
	CMPL	AX, $0x80000007
	JCS	out
	MOVL	$0x80000007, AX
	CPUID
	SHRL	$8, DX
	ANDL	$1, DX
	MOVB	DX, ret+0(FP)
out:
	RET
