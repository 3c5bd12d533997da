package systrap

// The stub region and what is in it; stub_amd64.h holds the same numbers for
// the assembler.
const (
	stubDataOff  = 0x3000
	stubCodeSize = 0x4000
	stubCmdOff   = 0x10000
	stubSlotsOff = 0x100000
	stubSize     = 1 << 30

	slotSize     = 0x4000
	slotMax      = 32768 // guest threads of one address space
	chunkSlots   = 4     // slots mapped at once beyond the first
	chunkSize    = chunkSlots * slotSize
	areaSize     = 2 * slotSize // command page, first slot
	hostTop      = 0x7fff_ffff_e000
	handlerEntry = 64   // offset of the signal handler in the blob
	directEntry  = 1024 // offset of the entry for direct calls
)

// Offsets in the data page that follows the stub's code.
const (
	dataHandler    = 0
	dataDefault    = 32
	dataCapHeader  = 64
	dataProgLeader = 80
	dataProgGuest  = 96
	dataFilters    = 128
)

// ringSize is the number of commands that fit in the command page.
const ringSize = 32

// Commands to the leader.
const (
	opNop     = 0
	opMap     = 1
	opUnmap   = 2
	opProtect = 3
	opThread  = 4
	opFork    = 5
	opResume  = 6
	opExit    = 7
	opAck     = 0x100 // flag: acknowledge
)

// States of a slot. Only the Sentry sets run, chain, sleep, yield and exit;
// the stub sets event; a trailing W means that the other side sleeps on the
// word and must be woken.
const (
	stDead   = 0  // the thread is gone (CLONE_CHILD_CLEARTID)
	stRun    = 1  // the guest runs
	stRunW   = 2  // the guest runs, the Sentry sleeps
	stEvent  = 3  // stopped, the stub polls for an answer
	stEventW = 4  // stopped, the stub sleeps
	stChain  = 5  // the leader is to resume the thread; the stub wakes the leader
	stChainW = 6  // the leader is to resume the thread, which sleeps
	stSleep  = 7  // stop polling
	stYield  = 8  // wake the leader, let it run, go on polling
	stExit   = 9  // end the thread
	stSpill  = 10 // save the FP state in a frame and report again
)

// stopped are the states of a thread that has reported an event. yield may be
// set by another goroutine that waits for the leader.
const stopped = 1<<stEvent | 1<<stEventW | 1<<stSleep | 1<<stYield

// notYet are the states in which the guest has not reported an event.
const notYet = 1<<stRun | 1<<stRunW | 1<<stChain | 1<<stChainW

// Values of slotMem.kind.
const (
	kindFrame  = 0 // by a signal: there is a frame
	kindDirect = 1 // by a direct call
	kindKicked = 2 // by a signal while a direct call returned
)

// Bits of slotMem.flags and slotMem.set.
const (
	flagFSGSBase = 1
	flagRDTSCP   = 2
	flagDirect   = 4
	setFS        = 1
	setGS        = 2
)

// cmdPage is the command page of a stub: read-only there. ack has a cache
// line of its own, it is written by the kernel on behalf of the leader.
type cmdPage struct {
	head    uint32 // commands published
	spin    uint32 // polls of head before the leader sleeps
	ackWait uint32 // the Sentry sleeps on ack
	_       [13]uint32
	ack     uint32 // commands done, as of the last that asked for it
	_       [495]uint32
	ring    [ringSize]cmdEntry
}

// cmdEntry is one command. seq is the value acknowledged.
type cmdEntry struct {
	op   uint32
	seq  uint32
	args [6]uint64
	_    uint64
}

// slotMem is the end of a slot; the signal stack of the thread lies below it.
// The guest can write all of it.
type slotMem struct {
	state  uint32
	spin   uint32 // polls before the stub sleeps
	flags  uint32
	set    uint32 // which bases to load at resume
	frame  uint64 // address of the signal frame
	fs, gs uint64
	tid    uint32
	spinW  uint32 // the same when the Sentry had to be woken
	leader uint64 // address of cmdPage.head, for a wake
	err    uint32 // first slot only: errno of a failed command, a hint
	pid    uint32 // first slot of a zygote only: result of opFork
	ssSP   uint64 // stack_t for sigaltstack
	ssFl   uint64
	ssSize uint64

	// Registers of a direct call. self is the end of the slot as the stub
	// sees it, kick a signal that arrived meanwhile.
	self          uint64
	eflags        uint32 // OF, then bits 8-15: the low byte of the flags
	kick          uint32
	r15, r14, r13 uint64

	t0, t1 uint64 // time stamp counter at the last resume, the last event
	cpu    uint32 // IA32_TSC_AUX at these times
	kind   uint32 // how the thread stopped, and is to be resumed

	rax, rbx, rcx, rdx, rsi, rdi, rbp, rsp uint64
	r8, r9, r10, r12                       uint64
	_                                      uint64
}

const slotMemSize = 256

// sigFrame is the kernel's struct rt_sigframe without the floating point
// state (arch/x86/include/asm/sigframe.h).
type sigFrame struct {
	pretcode uint64

	flags  uint64
	link   uint64
	ssSP   uint64
	ssFl   uint64
	ssSize uint64

	r8, r9, r10, r11, r12, r13, r14, r15 uint64
	rdi, rsi, rbp, rbx, rdx, rax, rcx    uint64
	rsp, rip, eflags                     uint64
	cs, gs, fs, ss                       uint16
	err, trapno, oldmask, cr2            uint64
	fpstate                              uint64
	_                                    [8]uint64
	mask                                 uint64

	signo, errno, code, _ int32
	addr                  uint64 // si_addr, si_call_addr
	syscall               int32  // si_syscall
	arch                  uint32 // si_arch
	_                     [12]uint64
}

const sigFrameSize = 440

// Bits of uc_flags.
const (
	ucFPXstate        = 1
	ucSigcontextSS    = 2
	ucStrictRestoreSS = 4
)

// Selectors of a 64-bit task.
const (
	userCS = 0x33
	userDS = 0x2b
)
