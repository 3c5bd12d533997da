#include "textflag.h"
#include "stub_amd64.h"

// func cloneZygote(fd uintptr, off int64, base uintptr, full, old *uint64) int64
//
// One function from blocking the signals to unblocking them: the child must
// never run Go code or a Go signal handler.
TEXT ·cloneZygote(SB),NOSPLIT,$0-48
	MOVL	$2, DI // SIG_SETMASK
	MOVQ	full+24(FP), SI
	MOVQ	old+32(FP), DX
	MOVL	$8, R10
	MOVL	$SYS_rt_sigprocmask, AX
	SYSCALL
	MOVQ	fd+0(FP), R13
	MOVQ	off+8(FP), R12
	MOVQ	base+16(FP), R15
	MOVL	$0x400, DI // CLONE_FILES, no exit signal
	XORL	SI, SI
	XORL	DX, DX
	XORL	R10, R10
	XORL	R8, R8
	MOVL	$SYS_clone, AX
	SYSCALL
	TESTQ	AX, AX
	JNE	parent
	JMP	R15
parent:
	MOVQ	AX, ret+40(FP)
	MOVL	$2, DI
	MOVQ	old+32(FP), SI
	XORL	DX, DX
	MOVL	$8, R10
	MOVL	$SYS_rt_sigprocmask, AX
	SYSCALL
	RET

// func spinWhile(addr *uint32, mask, n uint32) uint32
//
// Spins n times at most while bit *addr of mask is set; returns *addr. Not
// preemptible: n is bounded by the callers to some 20 us.
TEXT ·spinWhile(SB),NOSPLIT,$0-20
	MOVQ	addr+0(FP), DI
	MOVL	mask+8(FP), SI
	MOVL	n+12(FP), CX
spin:
	MOVL	(DI), AX
	CMPL	AX, $31
	JHI	out
	BTL	AX, SI
	JCC	out
	PAUSE
	DECL	CX
	JGT	spin
out:
	MOVL	AX, ret+16(FP)
	RET

// func spinUntil(addr *uint32, want, n uint32) uint32
//
// Spins n times at most until *addr has reached want (a sequence number).
TEXT ·spinUntil(SB),NOSPLIT,$0-20
	MOVQ	addr+0(FP), DI
	MOVL	want+8(FP), SI
	MOVL	n+12(FP), CX
seq:
	MOVL	(DI), AX
	MOVL	AX, DX
	SUBL	SI, DX
	JGE	seqout
	PAUSE
	DECL	CX
	JGT	seq
seqout:
	MOVL	AX, ret+16(FP)
	RET

// func pause(n uint32)
TEXT ·pause(SB),NOSPLIT,$0-4
	MOVL	n+0(FP), CX
pauseloop:
	PAUSE
	DECL	CX
	JGT	pauseloop
	RET

// func xcr0() uint64
//
// The extended state components that the host has enabled; 0 without XSAVE.
TEXT ·xcr0(SB),NOSPLIT,$0-8
	MOVL	$1, AX
	XORL	CX, CX
	CPUID
	BTL	$27, CX // OSXSAVE
	JCC	noxsave
	XORL	CX, CX
	XGETBV
	SHLQ	$32, DX
	MOVL	AX, AX
	ORQ	DX, AX
	MOVQ	AX, ret+0(FP)
	RET
noxsave:
	MOVQ	$0, ret+0(FP)
	RET

// func cpuid(leaf, sub uint32) (a, b, c, d uint32)
TEXT ·cpuid(SB),NOSPLIT,$0-24
	MOVL	leaf+0(FP), AX
	MOVL	sub+4(FP), CX
	CPUID
	MOVL	AX, a+8(FP)
	MOVL	BX, b+12(FP)
	MOVL	CX, c+16(FP)
	MOVL	DX, d+20(FP)
	RET

// func rdtsc() uint64
TEXT ·rdtsc(SB),NOSPLIT,$0-8
	RDTSC
	SHLQ	$32, DX
	ORQ	DX, AX
	MOVQ	AX, ret+0(FP)
	RET

// func rdtscp() uint32
//
// The processor's IA32_TSC_AUX, which the host sets to its number.
TEXT ·rdtscp(SB),NOSPLIT,$0-4
	RDTSCP
	MOVL	CX, ret+0(FP)
	RET
