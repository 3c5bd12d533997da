#include "textflag.h"
#include "stub_amd64.h"

// stubBlob is the code of every stub. It is copied to the start of the stub
// region and must be position independent: no symbol, no stack, only jumps
// within itself. Everything it reads and the guest could have written is a
// hint; see doc.go for what that means.
//
// Offset 0: first entry of a new process, with
//	R12 offset of its area in the control file, R13 the file's descriptor,
//	R15 the start of the stub region.
// Offset 64: signal handler. Offset 512, 1024: direct calls.
TEXT ·stubBlob(SB),NOSPLIT|NOFRAME|TOPFRAME,$0-0
	JMP	boot
	PCALIGN	$64

	// The signal handler. SP points at the signal frame, which lies in the
	// slot of the thread; all signals are blocked.
	MOVQ	SP, BX
	ORQ	$SLOT_MASK, BX
	INCQ	BX
	CMPL	DI, $10 // SIGUSR1
	JEQ	kick
handle:
	MOVQ	SP, S_FRAME(BX)
	MOVL	$KIND_FRAME, S_KIND(BX)
	TESTL	$FLAG_FSGSBASE, S_FLAGS(BX)
	JEQ	post
	BYTE $0xf3; BYTE $0x48; BYTE $0x0f; BYTE $0xae; BYTE $0xc0 // rdfsbase rax
	MOVQ	AX, S_FS(BX)
	BYTE $0xf3; BYTE $0x48; BYTE $0x0f; BYTE $0xae; BYTE $0xc8 // rdgsbase rax
	MOVQ	AX, S_GS(BX)
	JMP	post

kick:
	// Is it in the code for direct calls? Its registers are the stub's then.
	// It looks at S_KICK before it returns to the guest; if it may have
	// looked already, it starts over.
	TESTL	$FLAG_DIRECT, S_FLAGS(BX)
	JEQ	handle
	MOVQ	FRAME_RIP(SP), AX
	MOVQ	SP, DX
	ANDQ	$~(STUB_SIZE-1), DX
	SUBQ	DX, AX
	CMPQ	AX, $STUB_CODESIZE
	JCC	handle
	MOVL	$1, S_KICK(BX)
	CMPQ	AX, $RESTORE
	JCS	kickdone
	CMPQ	AX, $RESTOREEND
	JCC	kickdone
	ADDQ	$RESTORE, DX
	MOVQ	DX, FRAME_RIP(SP)
	MOVQ	BX, FRAME_RBX(SP)
kickdone:
	ADDQ	$8, SP
	MOVL	$SYS_rt_sigreturn, AX
	SYSCALL
	INT	$3

	// Offset 512: returns from a direct call. BX is the end of the slot. It
	// can start over at any instruction.
	PCALIGN	$512
	MOVL	S_KICK(BX), AX
	TESTL	AX, AX
	JNE	kicked
	MOVWLZX	S_EFL(BX), AX
	ADDB	$0x7f, AL // sets OF if it was set
	SAHF
	MOVQ	S_RCX(BX), CX
	MOVQ	S_RDX(BX), DX
	MOVQ	S_RSI(BX), SI
	MOVQ	S_RDI(BX), DI
	MOVQ	S_RBP(BX), BP
	MOVQ	S_R8(BX), R8
	MOVQ	S_R9(BX), R9
	MOVQ	S_R10(BX), R10
	MOVQ	S_R12(BX), R12
	MOVQ	S_R13(BX), R13
	MOVQ	S_R14(BX), R14
	MOVQ	S_R15(BX), R15
	MOVQ	S_RAX(BX), AX
	MOVQ	S_RBX(BX), BX
	JMP	CX

	// Offset 1024: a direct call. AX is the number of the system call, CX
	// where to return, GS the end of the slot. R11 is free, the other
	// registers and the stack, with its red zone, belong to the guest; FP
	// state stays in the processor.
	PCALIGN	$1024
	MOVQ	AX, S_RAX(GS)
	MOVQ	S_SELF(GS), R11
	LAHF
	SETOS	AL
	MOVW	AX, S_EFL(R11)
	MOVQ	BX, S_RBX(R11)
	MOVQ	CX, S_RCX(R11)
	MOVQ	DX, S_RDX(R11)
	MOVQ	SI, S_RSI(R11)
	MOVQ	DI, S_RDI(R11)
	MOVQ	BP, S_RBP(R11)
	MOVQ	SP, S_RSP(R11)
	MOVQ	R8, S_R8(R11)
	MOVQ	R9, S_R9(R11)
	MOVQ	R10, S_R10(R11)
	MOVQ	R12, S_R12(R11)
	MOVQ	R13, S_R13(R11)
	MOVQ	R14, S_R14(R11)
	MOVQ	R15, S_R15(R11)
	MOVQ	R11, BX
	MOVL	$KIND_DIRECT, S_KIND(BX)
	TESTL	$FLAG_FSGSBASE, S_FLAGS(BX)
	JEQ	post
	BYTE $0xf3; BYTE $0x48; BYTE $0x0f; BYTE $0xae; BYTE $0xc0 // rdfsbase rax
	MOVQ	AX, S_FS(BX)
	JMP	post

kicked:
	MOVL	$0, S_KICK(BX)
	MOVL	$KIND_KICKED, S_KIND(BX)

post:
	TESTL	$FLAG_RDTSCP, S_FLAGS(BX)
	JEQ	posttsc
	RDTSCP
	MOVL	CX, S_CPU(BX)
	JMP	posttime
posttsc:
	RDTSC
posttime:
	SHLQ	$32, DX
	ORQ	DX, AX
	MOVQ	AX, S_T1(BX)
	// Tell the Sentry; wake it only if it went to sleep, and then give it
	// the time to wake up.
	MOVL	$ST_EVENT, AX
	XCHGL	AX, S_STATE(BX)
	CMPL	AX, $ST_RUNW
	JNE	answer
	LEAQ	S_STATE(BX), DI
	MOVL	$1, SI
	MOVL	$0x7fffffff, DX
	MOVL	$SYS_futex, AX
	SYSCALL
	MOVL	S_SPINW(BX), CX
	JMP	poll

answer:
	MOVL	S_SPIN(BX), CX
poll:
	MOVL	S_STATE(BX), AX
	CMPL	AX, $ST_EVENT
	JNE	answered
	DECL	CX
	JLE	sleep
	PAUSE
	JMP	poll

answered:
	CMPL	AX, $ST_RUN
	JEQ	resume
	CMPL	AX, $ST_RUNW
	JEQ	resume
	CMPL	AX, $ST_SLEEP
	JEQ	sleep
	CMPL	AX, $ST_YIELD
	JEQ	yield
	CMPL	AX, $ST_CHAIN
	JEQ	chain
	CMPL	AX, $ST_CHAINW
	JEQ	wait
	CMPL	AX, $ST_EVENTW
	JEQ	wait
	CMPL	AX, $ST_SPILL
	JEQ	spill
	MOVL	$SYS_exit, AX
	XORL	DI, DI
	SYSCALL
	INT	$3

spill:
	// Have the host save the FP state of a direct call in a frame.
	BYTE $0x0f; BYTE $0x0b // ud2
	INT	$3

sleep:
	// AX is ST_EVENT or ST_SLEEP.
	MOVL	$ST_EVENTW, DX
	LOCK
	CMPXCHGL	DX, S_STATE(BX)
	JNE	answer
	MOVL	DX, AX
wait:
	// Sleep until the state is no longer AX.
	LEAQ	S_STATE(BX), DI
	XORL	SI, SI
	MOVL	AX, DX
	XORL	R10, R10
	MOVL	$SYS_futex, AX
	SYSCALL
	JMP	answer

yield:
	// The Sentry waits for the leader, which this thread's spinning keeps
	// from the processor.
	MOVL	$ST_EVENT, DX
	LOCK
	CMPXCHGL	DX, S_STATE(BX)
	JNE	answer
	MOVQ	S_LEADER(BX), DI
	MOVL	$1, SI
	MOVL	$0x7fffffff, DX
	MOVL	$SYS_futex, AX
	SYSCALL
	MOVL	$SYS_sched_yield, AX
	SYSCALL
	JMP	answer

chain:
	// The leader will resume this thread.
	MOVL	$ST_CHAINW, DX
	LOCK
	CMPXCHGL	DX, S_STATE(BX)
	JNE	answer
	MOVQ	S_LEADER(BX), DI
	MOVL	$1, SI
	MOVL	$0x7fffffff, DX
	MOVL	$SYS_futex, AX
	SYSCALL
	MOVL	$ST_CHAINW, AX
	JMP	wait

resume:
	TESTL	$FLAG_RDTSCP, S_FLAGS(BX)
	JEQ	resumetsc
	RDTSCP
	MOVL	CX, S_CPU(BX)
	JMP	resumetime
resumetsc:
	RDTSC
resumetime:
	SHLQ	$32, DX
	ORQ	DX, AX
	MOVQ	AX, S_T0(BX)
	MOVL	S_KIND(BX), R8
	CMPL	R8, $KIND_DIRECT
	JEQ	direct
	MOVL	S_SET(BX), R8
	TESTL	R8, R8
	JEQ	sigreturn
	TESTL	$FLAG_FSGSBASE, S_FLAGS(BX)
	JEQ	setold
	TESTL	$SET_FS, R8
	JEQ	setgs
	MOVQ	S_FS(BX), AX
	BYTE $0xf3; BYTE $0x48; BYTE $0x0f; BYTE $0xae; BYTE $0xd0 // wrfsbase rax
setgs:
	TESTL	$SET_GS, R8
	JEQ	sigreturn
	MOVQ	S_GS(BX), AX
	BYTE $0xf3; BYTE $0x48; BYTE $0x0f; BYTE $0xae; BYTE $0xd8 // wrgsbase rax
	JMP	sigreturn
setold:
	TESTL	$SET_FS, R8
	JEQ	setoldgs
	MOVL	$0x1002, DI
	MOVQ	S_FS(BX), SI
	MOVL	$SYS_arch_prctl, AX
	SYSCALL
setoldgs:
	TESTL	$SET_GS, R8
	JEQ	sigreturn
	MOVL	$0x1001, DI
	MOVQ	S_GS(BX), SI
	MOVL	$SYS_arch_prctl, AX
	SYSCALL
sigreturn:
	MOVQ	S_FRAME(BX), SP
	ADDQ	$8, SP
	MOVL	$SYS_rt_sigreturn, AX
	SYSCALL
	INT	$3

direct:
	// The code at RESTORE of this region, in which the slot lies.
	MOVQ	BX, CX
	DECQ	CX
	ANDQ	$~(STUB_SIZE-1), CX
	ADDQ	$RESTORE, CX
	JMP	CX

boot:
	// The first stub still has the Sentry's memory and signal handlers.
	MOVL	$1, BX
resetsig:
	MOVL	BX, DI
	LEAQ	(STUB_DATA+DATA_SA_DEFAULT)(R15), SI
	XORL	DX, DX
	MOVL	$8, R10
	MOVL	$SYS_rt_sigaction, AX
	SYSCALL
	INCL	BX
	CMPL	BX, $65
	JLT	resetsig

	// SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGUSR1, SIGSEGV, SIGSYS.
	MOVL	$0x80000db0, R14
	XORL	BX, BX
handlers:
	BTL	BX, R14
	JCC	nexthandler
	MOVL	BX, DI
	LEAQ	(STUB_DATA+DATA_SA_HANDLER)(R15), SI
	XORL	DX, DX
	MOVL	$8, R10
	MOVL	$SYS_rt_sigaction, AX
	SYSCALL
	TESTQ	AX, AX
	JNE	fatal
nexthandler:
	INCL	BX
	CMPL	BX, $32
	JLT	handlers

	XORL	DI, DI
	MOVQ	R15, SI
	MOVL	$SYS_munmap, AX
	SYSCALL
	TESTQ	AX, AX
	JNE	fatal
	LEAQ	STUB_SIZE(R15), DI
	MOVQ	$HOST_TOP, SI
	SUBQ	DI, SI
	MOVL	$SYS_munmap, AX
	SYSCALL
	TESTQ	AX, AX
	JNE	fatal
	LEAQ	STUB_CODESIZE(R15), DI
	MOVQ	$(STUB_SIZE-STUB_CODESIZE), SI
	MOVL	$SYS_munmap, AX
	SYSCALL
	TESTQ	AX, AX
	JNE	fatal

	// No capabilities: nothing a stub does needs one.
	LEAQ	(STUB_DATA+DATA_CAPHEADER)(R15), DI
	LEAQ	(STUB_DATA+DATA_SA_DEFAULT)(R15), SI // zeros
	MOVL	$SYS_capset, AX
	SYSCALL
	TESTQ	AX, AX
	JNE	fatal
	MOVL	$38, DI // PR_SET_NO_NEW_PRIVS
	MOVL	$1, SI
	XORL	DX, DX
	XORL	R10, R10
	XORL	R8, R8
	MOVL	$SYS_prctl, AX
	SYSCALL
	MOVL	$1, DI // SECCOMP_SET_MODE_FILTER
	MOVL	$4, SI // SECCOMP_FILTER_FLAG_SPEC_ALLOW
	LEAQ	(STUB_DATA+DATA_PROG_LEADER)(R15), DX
	MOVL	$SYS_seccomp, AX
	SYSCALL
	TESTQ	AX, AX
	JNE	fatal

process:
	// A new process: its own command page and first slot, at R12 and
	// R12+SLOT_SIZE of the control file.
	LEAQ	STUB_CMD(R15), DI
	MOVL	$4096, SI
	MOVL	$1, DX
	MOVL	$0x11, R10
	MOVQ	R13, R8
	MOVQ	R12, R9
	MOVL	$SYS_mmap, AX
	SYSCALL
	CMPQ	AX, $-4096
	JHI	fatal
	LEAQ	STUB_SLOTS(R15), DI
	MOVL	$SLOT_SIZE, SI
	MOVL	$3, DX
	MOVL	$0x11, R10
	MOVQ	R13, R8
	LEAQ	SLOT_SIZE(R12), R9
	MOVL	$SYS_mmap, AX
	SYSCALL
	CMPQ	AX, $-4096
	JHI	fatal
	MOVL	$1, DI // PR_SET_PDEATHSIG
	MOVL	$9, SI
	XORL	DX, DX
	XORL	R10, R10
	XORL	R8, R8
	MOVL	$SYS_prctl, AX
	SYSCALL
	XORL	R14, R14

	// The leader. R12 area, R13 control file, R14 commands done, R15 base.
leader:
	MOVL	(STUB_CMD+CMD_SPIN)(R15), CX
leaderpoll:
	MOVL	(STUB_CMD+CMD_HEAD)(R15), AX
	CMPL	AX, R14
	JNE	command
	DECL	CX
	JLE	leadersleep
	PAUSE
	JMP	leaderpoll
leadersleep:
	LEAQ	(STUB_CMD+CMD_HEAD)(R15), DI
	XORL	SI, SI
	MOVL	R14, DX
	XORL	R10, R10
	MOVL	$SYS_futex, AX
	SYSCALL
	JMP	leader

command:
	MOVL	R14, BP
	ANDL	$RING_MASK, BP
	SHLQ	$6, BP
	LEAQ	(STUB_CMD+CMD_RING)(R15)(BP*1), BP
	INCL	R14
	MOVL	ENT_OP(BP), BX
	MOVQ	ENT_A0(BP), DI
	MOVQ	ENT_A1(BP), SI
	MOVQ	ENT_A2(BP), DX
	MOVQ	ENT_A3(BP), R10
	MOVQ	ENT_A4(BP), R8
	MOVQ	ENT_A5(BP), R9
	MOVL	BX, CX
	ANDL	$OP_MASK, CX
	CMPL	CX, $OP_MAP
	JEQ	opmap
	CMPL	CX, $OP_RESUME
	JEQ	opresume
	CMPL	CX, $OP_UNMAP
	JEQ	opunmap
	CMPL	CX, $OP_PROTECT
	JEQ	opprotect
	CMPL	CX, $OP_THREAD
	JEQ	opthread
	CMPL	CX, $OP_FORK
	JEQ	opfork
	CMPL	CX, $OP_EXIT
	JEQ	fatal

done:
	TESTL	$OP_ACK, BX
	JEQ	leader
	// The guest can write every word that this thread can, so the
	// acknowledgement is written by the kernel, through the file.
	MOVQ	R13, DI
	LEAQ	ENT_SEQ(BP), SI
	MOVL	$4, DX
	LEAQ	CMD_ACK(R12), R10
	MOVL	$SYS_pwrite64, AX
	SYSCALL
	MOVL	(STUB_CMD+CMD_ACKWAIT)(R15), AX
	TESTL	AX, AX
	JEQ	leader
	LEAQ	(STUB_CMD+CMD_ACK)(R15), DI
	MOVL	$1, SI
	MOVL	$0x7fffffff, DX
	MOVL	$SYS_futex, AX
	SYSCALL
	JMP	leader

opmap:
	MOVL	$SYS_mmap, AX
	SYSCALL
	CMPQ	AX, $-4096
	JLS	done
	JMP	failed
opunmap:
	MOVL	$SYS_munmap, AX
	SYSCALL
	TESTQ	AX, AX
	JEQ	done
	JMP	failed
opprotect:
	MOVL	$SYS_mprotect, AX
	SYSCALL
	TESTQ	AX, AX
	JEQ	done
failed:
	// Whatever failed, nothing may stay of what was to be replaced: the
	// guest faults again.
	NEGL	AX
	MOVL	AX, RESULT_ERR(R15)
	MOVQ	ENT_A0(BP), DI
	MOVQ	ENT_A1(BP), SI
	MOVL	$SYS_munmap, AX
	SYSCALL
	TESTQ	AX, AX
	JEQ	done
	XORL	DI, DI
	MOVQ	$GUEST_TOP, SI
	MOVL	$SYS_munmap, AX
	SYSCALL
	TESTQ	AX, AX
	JEQ	done
fatal:
	MOVL	$1, DI
	MOVL	$SYS_exit_group, AX
	SYSCALL
	INT	$3

opresume:
	// DI is the address of the state of the slot.
	MOVL	(DI), AX
again:
	CMPL	AX, $ST_CHAIN
	JEQ	setrun
	CMPL	AX, $ST_CHAINW
	JNE	done
setrun:
	MOVL	$ST_RUN, DX
	LOCK
	CMPXCHGL	DX, (DI)
	JNE	again
	MOVL	$1, SI
	MOVL	$0x7fffffff, DX
	MOVL	$SYS_futex, AX
	SYSCALL
	JMP	done

opfork:
	MOVL	$SYS_clone, AX
	SYSCALL
	TESTQ	AX, AX
	JNE	forked
	// Child: A4 is its area. ENT_* is gone with the old command page.
	MOVQ	R8, R12
	JMP	process
forked:
	MOVL	AX, RESULT_PID(R15)
	JMP	done

opthread:
	MOVL	$SYS_clone, AX
	SYSCALL
	TESTQ	AX, AX
	JEQ	thread
	JGT	done
	NEGL	AX
	MOVL	AX, RESULT_ERR(R15)
	JMP	done

thread:
	// A new guest thread: SP points into its slot. Nothing it reads before
	// its filter is in place can be more than self-inflicted harm.
	MOVQ	SP, BX
	ORQ	$SLOT_MASK, BX
	INCQ	BX
	LEAQ	S_SS(BX), DI
	XORL	SI, SI
	MOVL	$SYS_sigaltstack, AX
	SYSCALL
	MOVL	$1, DI
	MOVL	$4, SI
	LEAQ	(STUB_DATA+DATA_PROG_GUEST)(R15), DX
	MOVL	$SYS_seccomp, AX
	SYSCALL
	TESTQ	AX, AX
	JEQ	post
	MOVL	$SYS_exit, AX
	SYSCALL
	INT	$3
	BYTE $0x0f; BYTE $0x0b; BYTE $0xde; BYTE $0xad; BYTE $0xbe; BYTE $0xef
	BYTE $0x0f; BYTE $0x0b; BYTE $0x0b; BYTE $0x0b
	RET

// func stubBlobAddr() uintptr
TEXT ·stubBlobAddr(SB),NOSPLIT,$0-8
	LEAQ	·stubBlob(SB), AX
	MOVQ	AX, ret+0(FP)
	RET
