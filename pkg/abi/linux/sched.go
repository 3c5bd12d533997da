package linux

// CloneArgs is struct clone_args of clone3(2).
type CloneArgs struct {
	Flags, PIDFD, ChildTID, ParentTID uint64
	ExitSignal, Stack, StackSize, TLS uint64
	SetTID, SetTIDSize, Cgroup        uint64
}

// Scheduling policies (sched(7)).
const (
	SCHED_NORMAL        = 0
	SCHED_FIFO          = 1
	SCHED_RR            = 2
	SCHED_BATCH         = 3
	SCHED_IDLE          = 5
	SCHED_DEADLINE      = 6
	SCHED_RESET_ON_FORK = 0x40000000
)

// Operations and flags of futex(2).
const (
	FUTEX_WAIT            = 0
	FUTEX_WAKE            = 1
	FUTEX_FD              = 2
	FUTEX_REQUEUE         = 3
	FUTEX_CMP_REQUEUE     = 4
	FUTEX_WAKE_OP         = 5
	FUTEX_LOCK_PI         = 6
	FUTEX_UNLOCK_PI       = 7
	FUTEX_TRYLOCK_PI      = 8
	FUTEX_WAIT_BITSET     = 9
	FUTEX_WAKE_BITSET     = 10
	FUTEX_WAIT_REQUEUE_PI = 11
	FUTEX_CMP_REQUEUE_PI  = 12
	FUTEX_LOCK_PI2        = 13

	FUTEX_PRIVATE_FLAG   = 128
	FUTEX_CLOCK_REALTIME = 256
)

// Commands of membarrier(2).
const (
	MEMBARRIER_CMD_QUERY                                = 0
	MEMBARRIER_CMD_GLOBAL                               = 1 << 0
	MEMBARRIER_CMD_GLOBAL_EXPEDITED                     = 1 << 1
	MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED            = 1 << 2
	MEMBARRIER_CMD_PRIVATE_EXPEDITED                    = 1 << 3
	MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED           = 1 << 4
	MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE          = 1 << 5
	MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE = 1 << 6
)

// Codes of arch_prctl(2).
const (
	ARCH_SET_GS = 0x1001
	ARCH_SET_FS = 0x1002
	ARCH_GET_FS = 0x1003
	ARCH_GET_GS = 0x1004

	ARCH_GET_CPUID = 0x1011
	ARCH_SET_CPUID = 0x1012
)
