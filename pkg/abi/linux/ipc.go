package linux

// Commands and flags of System V IPC, from <linux/ipc.h>, <linux/shm.h>,
// <linux/sem.h> and <linux/msg.h>.
const (
	IPC_INFO = 3

	SHM_LOCK     = 11
	SHM_UNLOCK   = 12
	SHM_STAT     = 13
	SHM_INFO     = 14
	SHM_STAT_ANY = 15
	SHM_REMAP    = 0o40000
	SHM_EXEC     = 0o100000
	SHM_HUGETLB  = 0o4000

	GETPID       = 11
	GETVAL       = 12
	GETALL       = 13
	GETNCNT      = 14
	GETZCNT      = 15
	SETVAL       = 16
	SETALL       = 17
	SEM_STAT     = 18
	SEM_INFO     = 19
	SEM_STAT_ANY = 20

	MSG_STAT     = 11
	MSG_INFO     = 12
	MSG_STAT_ANY = 13
)
