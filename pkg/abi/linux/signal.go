package linux

// Signal numbers and limits (asm/signal.h).
const (
	SIGRTMIN = 32 // the kernel's; libc keeps the first few
	SIGRTMAX = 64
	NSIG     = 64
)

// How arguments of rt_sigprocmask(2).
const (
	SIG_BLOCK   = 0
	SIG_UNBLOCK = 1
	SIG_SETMASK = 2
)

// Handlers that are no addresses.
const (
	SIG_DFL = 0
	SIG_IGN = 1
)

// Flags of sigaction(2).
const (
	SA_NOCLDSTOP      = 0x00000001
	SA_NOCLDWAIT      = 0x00000002
	SA_SIGINFO        = 0x00000004
	SA_UNSUPPORTED    = 0x00000400
	SA_EXPOSE_TAGBITS = 0x00000800
	SA_RESTORER       = 0x04000000
	SA_ONSTACK        = 0x08000000
	SA_RESTART        = 0x10000000
	SA_NODEFER        = 0x40000000
	SA_RESETHAND      = 0x80000000
)

// Flags of sigaltstack(2).
const (
	SS_ONSTACK    = 1
	SS_DISABLE    = 2
	SS_AUTODISARM = 1 << 31

	MINSIGSTKSZ = 2048
)

// si_code values (asm-generic/siginfo.h).
const (
	SI_USER     = 0
	SI_KERNEL   = 0x80
	SI_QUEUE    = -1
	SI_TIMER    = -2
	SI_MESGQ    = -3
	SI_ASYNCIO  = -4
	SI_SIGIO    = -5
	SI_TKILL    = -6
	SEGV_MAPERR = 1
	SEGV_ACCERR = 2
	BUS_ADRALN  = 1
	BUS_ADRERR  = 2
	BUS_OBJERR  = 3
	ILL_ILLOPN  = 2
	FPE_INTDIV  = 1
	TRAP_BRKPT  = 1
	TRAP_TRACE  = 2
	SYS_SECCOMP = 1

	CLD_EXITED    = 1
	CLD_KILLED    = 2
	CLD_DUMPED    = 3
	CLD_TRAPPED   = 4
	CLD_STOPPED   = 5
	CLD_CONTINUED = 6
)

// sigev_notify values of sigevent(7).
const (
	SIGEV_SIGNAL    = 0
	SIGEV_NONE      = 1
	SIGEV_THREAD    = 2
	SIGEV_THREAD_ID = 4
)

// Sigevent is struct sigevent of timer_create(2).
type Sigevent struct {
	Value  uint64
	Signo  int32
	Notify int32
	TID    int32
	_      [44]byte
}
