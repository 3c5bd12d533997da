package image

// Kinds of records of processes.
const (
	KindContainer    Kind = 10
	KindPIDNamespace Kind = 11
	KindPID          Kind = 12
	KindThreadGroup  Kind = 13
	KindTask         Kind = 14
	KindSigHandlers  Kind = 15
	KindSession      Kind = 16
	KindProcessGroup Kind = 17
	KindUTS          Kind = 18
	KindIPC          Kind = 19
	KindFutexes      Kind = 20
	KindPIDFD        Kind = 21
	KindCreds        Kind = 22
	KindSeccomp      Kind = 23
	KindFilter       Kind = 24
)

// Container is a container: the roots of all that is in the image. Times are
// those of the save, in ns.
type Container struct {
	ID        ID     `cbor:"1,keyasint"`
	Name      string `cbor:"2,keyasint"` // its id
	Monotonic int64  `cbor:"3,keyasint"`
	Boottime  int64  `cbor:"4,keyasint"`
	Realtime  int64  `cbor:"5,keyasint"`
	Uptime    int64  `cbor:"6,keyasint"`
	// Init is the first process. Groups are all, parents before their children.
	Init   ID   `cbor:"7,keyasint"`
	Groups []ID `cbor:"8,keyasint"`
	// PIDNamespaces are the container's and those inside it, outer ones first.
	PIDNamespaces []ID `cbor:"9,keyasint"`
	UTS           ID   `cbor:"10,keyasint"`
	IPC           ID   `cbor:"11,keyasint"`
	Futexes       ID   `cbor:"12,keyasint,omitempty"`
	// Shares are the objects of containers before this one in the image that
	// it has too. Numbers from a container's own up to the next one's are of
	// objects that it had first.
	Shares []ID `cbor:"13,keyasint,omitempty"`
}

// PIDNamespace is a pid namespace.
type PIDNamespace struct {
	ID     ID    `cbor:"1,keyasint"`
	Parent ID    `cbor:"2,keyasint,omitempty"` // 0 for the container's
	Last   int32 `cbor:"3,keyasint"`
	Reaper ID    `cbor:"4,keyasint,omitempty"` // a group
	Dying  bool  `cbor:"5,keyasint,omitempty"`
}

// PID is an identity: numbers in its namespace and those around it, the
// container's first.
type PID struct {
	ID        ID      `cbor:"1,keyasint"`
	Namespace ID      `cbor:"2,keyasint"`
	Numbers   []int32 `cbor:"3,keyasint"`
}

// Session is a session; ProcessGroup a group in it.
type Session struct {
	ID     ID `cbor:"1,keyasint"`
	PID    ID `cbor:"2,keyasint"`
	Leader ID `cbor:"3,keyasint,omitempty"`
}

// ProcessGroup is a process group.
type ProcessGroup struct {
	ID      ID `cbor:"1,keyasint"`
	PID     ID `cbor:"2,keyasint"`
	Session ID `cbor:"3,keyasint"`
}

// States of a group and of a task.
const (
	StateLive   uint8 = iota
	StateZombie       // waits for its parent
)

// ThreadGroup is a process.
type ThreadGroup struct {
	ID     ID   `cbor:"1,keyasint"`
	PID    ID   `cbor:"2,keyasint"`
	Leader ID   `cbor:"3,keyasint"`
	Tasks  []ID `cbor:"4,keyasint"`
	// Parent is a group and ParentTask the thread that forked; 0 without
	// Adopted: made by the runtime. Adopted: a child of the namespace's init,
	// which is of another container.
	Parent       ID     `cbor:"5,keyasint,omitempty"`
	ParentTask   ID     `cbor:"6,keyasint,omitempty"`
	Adopted      bool   `cbor:"7,keyasint,omitempty"`
	ProcessGroup ID     `cbor:"8,keyasint"`
	ExitSignal   int32  `cbor:"9,keyasint,omitempty"`
	State        uint8  `cbor:"10,keyasint,omitempty"`
	WaitStatus   int32  `cbor:"11,keyasint,omitempty"`
	DidExec      bool   `cbor:"12,keyasint,omitempty"`
	Subreaper    bool   `cbor:"13,keyasint,omitempty"`
	HasSubreaper bool   `cbor:"14,keyasint,omitempty"`
	ChildTimes   *Usage `cbor:"15,keyasint,omitempty"`
	DeadTimes    *Usage `cbor:"16,keyasint,omitempty"`
	StartTime    int64  `cbor:"17,keyasint"`

	Handlers      ID        `cbor:"18,keyasint"`
	Shared        *SigQueue `cbor:"19,keyasint,omitempty"`
	Exiting       bool      `cbor:"20,keyasint,omitempty"`
	Status        int32     `cbor:"21,keyasint,omitempty"`
	StopSig       int32     `cbor:"22,keyasint,omitempty"`
	StopCount     int       `cbor:"23,keyasint,omitempty"`
	Stopped       bool      `cbor:"24,keyasint,omitempty"`
	StopCode      int32     `cbor:"25,keyasint,omitempty"`
	Continued     bool      `cbor:"26,keyasint,omitempty"`
	TellContinued bool      `cbor:"27,keyasint,omitempty"`
	Unkillable    bool      `cbor:"28,keyasint,omitempty"`

	// Limits are soft and hard limit of each resource in order of number.
	Limits      []uint64 `cbor:"29,keyasint"`
	OOMScore    int32    `cbor:"30,keyasint,omitempty"`
	OOMScoreMin int32    `cbor:"31,keyasint,omitempty"`
	Dumpable    int32    `cbor:"32,keyasint,omitempty"`

	// Real is ITIMER_REAL, on CLOCK_MONOTONIC; Virtual and Prof run on the
	// process's CPU time.
	Real    *Timer `cbor:"33,keyasint,omitempty"`
	Virtual *Timer `cbor:"34,keyasint,omitempty"`
	Prof    *Timer `cbor:"35,keyasint,omitempty"`
	// CPULimit is when RLIMIT_CPU is looked at next.
	CPULimit  *Timer       `cbor:"36,keyasint,omitempty"`
	Timers    []PosixTimer `cbor:"37,keyasint,omitempty"`
	NextTimer int32        `cbor:"38,keyasint,omitempty"`
	// SemUndo are the adjustments of System V semaphores at the process's end.
	SemUndo []SysVUndo `cbor:"39,keyasint,omitempty"`

	// DeadIO and ChildIO are as IO of Task, of released threads and of
	// waited-for children.
	DeadIO  []int64 `cbor:"60,keyasint,omitempty"`
	ChildIO []int64 `cbor:"61,keyasint,omitempty"`
	// DumpFilter and Login are what was written to coredump_filter and
	// loginuid: each plus one; SessionID goes with Login.
	DumpFilter uint64 `cbor:"62,keyasint,omitempty"`
	Login      uint64 `cbor:"63,keyasint,omitempty"`
	SessionID  uint32 `cbor:"64,keyasint,omitempty"`
}

// Usage are resources used; times are in ns.
type Usage struct {
	_      struct{} `cbor:",toarray"`
	User   int64
	Sys    int64
	MinFlt int64
	MajFlt int64
	NVCSw  int64
	NIVCSw int64
	MaxRSS int64
}

// Timer is an armed timer.
type Timer struct {
	_        struct{} `cbor:",toarray"`
	Deadline int64
	Interval int64
}

// PosixTimer is a timer of timer_create(2).
type PosixTimer struct {
	Timer  int32  `cbor:"1,keyasint"`
	Clock  int32  `cbor:"2,keyasint,omitempty"`
	Target ID     `cbor:"3,keyasint,omitempty"` // a task
	Value  uint64 `cbor:"4,keyasint,omitempty"`
	Signal int32  `cbor:"5,keyasint,omitempty"`
	Notify int32  `cbor:"6,keyasint,omitempty"`
	// Thread is whose time a timer on CLOCK_THREAD_CPUTIME_ID runs on.
	Thread  ID     `cbor:"7,keyasint,omitempty"`
	Armed   *Timer `cbor:"8,keyasint,omitempty"`
	Wall    int64  `cbor:"9,keyasint,omitempty"` // the deadline on CLOCK_REALTIME, if it was set so
	Queued  bool   `cbor:"10,keyasint,omitempty"`
	Pending uint64 `cbor:"11,keyasint,omitempty"`
	Overrun int32  `cbor:"12,keyasint,omitempty"`
}

// SigQueue are pending signals: a set, and those with data in order of arrival.
type SigQueue struct {
	Set  uint64   `cbor:"1,keyasint,omitempty"`
	List []Signal `cbor:"2,keyasint,omitempty"`
}

// Signal is a queued signal.
type Signal struct {
	// Info is siginfo_t without the zeros at its end.
	Info []byte `cbor:"1,keyasint"`
	// User is the user id charged for it, plus one.
	User uint64 `cbor:"2,keyasint,omitempty"`
	// Timer is the POSIX timer it comes from, plus one.
	Timer int64 `cbor:"3,keyasint,omitempty"`
}

// SigHandlers are the actions of signals; those that differ from the default.
type SigHandlers struct {
	ID      ID          `cbor:"1,keyasint"`
	Actions []SigAction `cbor:"2,keyasint,omitempty"`
}

// SigAction is an action.
type SigAction struct {
	_        struct{} `cbor:",toarray"`
	Signal   int32
	Handler  uint64
	Flags    uint64
	Restorer uint64
	Mask     uint64
}

// How a task goes on.
const (
	RunGuest   uint8 = iota // guest code, or signals before it
	RunVfork                // waits for the child that has Vfork set to it
	RunReenter              // enters the call again that is in its registers
)

// Task is a thread.
type Task struct {
	ID    ID    `cbor:"1,keyasint"`
	Group ID    `cbor:"2,keyasint"`
	PID   ID    `cbor:"3,keyasint"`
	State uint8 `cbor:"4,keyasint,omitempty"`
	// Killed: it ends as soon as it runs.
	Killed bool `cbor:"5,keyasint,omitempty"`
	// Regs are r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi
	// orig_rax rip eflags rsp fs_base gs_base.
	Regs []uint64 `cbor:"6,keyasint,omitempty"`
	FP   *FPState `cbor:"7,keyasint,omitempty"` // none: the initial state
	// Trap are number and error code of the last trap, and its address.
	Trap []uint64 `cbor:"8,keyasint,omitempty"`
	Run  uint8    `cbor:"9,keyasint,omitempty"`
	// Vfork is the task that waits in vfork until this one is gone.
	Vfork         ID       `cbor:"10,keyasint,omitempty"`
	RestartCode   int32    `cbor:"11,keyasint,omitempty"`
	Restart       *Restart `cbor:"12,keyasint,omitempty"`
	Reentry       *Reentry `cbor:"13,keyasint,omitempty"`
	ClearChildTID uint64   `cbor:"14,keyasint,omitempty"`
	RobustList    uint64   `cbor:"15,keyasint,omitempty"`
	PDeathSig     int32    `cbor:"16,keyasint,omitempty"`

	Pending     *SigQueue `cbor:"17,keyasint,omitempty"`
	Mask        uint64    `cbor:"18,keyasint,omitempty"`
	SavedMask   uint64    `cbor:"19,keyasint,omitempty"`
	RestoreMask bool      `cbor:"20,keyasint,omitempty"`
	StopPending bool      `cbor:"21,keyasint,omitempty"`
	Stopped     bool      `cbor:"22,keyasint,omitempty"`
	AltStack    uint64    `cbor:"23,keyasint,omitempty"`
	AltFlags    int32     `cbor:"24,keyasint,omitempty"`
	AltSize     uint64    `cbor:"25,keyasint,omitempty"`

	MM             ID     `cbor:"26,keyasint,omitempty"`
	Files          ID     `cbor:"27,keyasint,omitempty"`
	FS             ID     `cbor:"28,keyasint,omitempty"`
	MountNamespace ID     `cbor:"29,keyasint,omitempty"`
	UTS            ID     `cbor:"30,keyasint,omitempty"`
	IPC            ID     `cbor:"31,keyasint,omitempty"`
	ChildPIDNS     ID     `cbor:"32,keyasint,omitempty"`
	Creds          ID     `cbor:"33,keyasint"`
	Seccomp        ID     `cbor:"34,keyasint,omitempty"`
	Comm           []byte `cbor:"35,keyasint,omitempty"`

	Usage       *Usage `cbor:"36,keyasint,omitempty"`
	StartTime   int64  `cbor:"37,keyasint"`
	TimerSlack  uint64 `cbor:"38,keyasint,omitempty"`
	Nice        int32  `cbor:"39,keyasint,omitempty"`
	Policy      int32  `cbor:"40,keyasint,omitempty"`
	RTPriority  int32  `cbor:"41,keyasint,omitempty"`
	Affinity    []byte `cbor:"42,keyasint,omitempty"` // none: all CPUs
	Personality uint32 `cbor:"43,keyasint,omitempty"`
	IOPrio      int32  `cbor:"44,keyasint,omitempty"`
	THPDisable  bool   `cbor:"45,keyasint,omitempty"`
	// IO are bytes read and written, and calls that read and wrote.
	IO []int64 `cbor:"60,keyasint,omitempty"`
}

// FPState is what XSAVE stores: the legacy area, and the further components by
// their bit in XCR0, both without the zeros at their end. Components that are not
// there are in their initial state.
type FPState struct {
	Legacy     []byte        `cbor:"1,keyasint"`
	InUse      uint64        `cbor:"2,keyasint"` // XSTATE_BV
	Components []FPComponent `cbor:"3,keyasint,omitempty"`
}

// FPComponent is one component.
type FPComponent struct {
	_    struct{} `cbor:",toarray"`
	Bit  uint8
	Data []byte
}

// Restart is what restart_syscall(2) carries on. Kind belongs to package
// syscalls.
type Restart struct {
	Kind uint8    `cbor:"1,keyasint"`
	Args []uint64 `cbor:"2,keyasint,omitempty"`
}

// Reentry is what a call that is entered again has kept.
type Reentry struct {
	Timed        bool  `cbor:"1,keyasint,omitempty"`
	Deadline     int64 `cbor:"2,keyasint,omitempty"`
	Count        int   `cbor:"3,keyasint,omitempty"`
	PartTimed    bool  `cbor:"4,keyasint,omitempty"`
	PartDeadline int64 `cbor:"5,keyasint,omitempty"`
	Done         int   `cbor:"6,keyasint,omitempty"`
}

// Futexes are the tasks that wait for futexes, each queue in its order.
type Futexes struct {
	ID      ID            `cbor:"1,keyasint"`
	Waiters []FutexWaiter `cbor:"2,keyasint,omitempty"`
}

// FutexWaiter is a task in the queue of the word at an address of MM.
type FutexWaiter struct {
	Task    ID     `cbor:"1,keyasint"`
	MM      ID     `cbor:"2,keyasint,omitempty"`
	Addr    uint64 `cbor:"3,keyasint,omitempty"`
	Private bool   `cbor:"4,keyasint,omitempty"`
	Bitset  uint32 `cbor:"5,keyasint,omitempty"`
	PI      bool   `cbor:"6,keyasint,omitempty"`
	TID     uint32 `cbor:"7,keyasint,omitempty"`
	Woken   bool   `cbor:"8,keyasint,omitempty"`
}

// UTS is a UTS namespace. Host counts for the container's own only if the
// guest set it.
type UTS struct {
	ID      ID     `cbor:"1,keyasint"`
	Host    []byte `cbor:"2,keyasint"`
	HostSet bool   `cbor:"3,keyasint,omitempty"`
	Domain  []byte `cbor:"4,keyasint"`
}

// IPC is an IPC namespace.
type IPC struct {
	ID ID `cbor:"1,keyasint"`
	// Mqueue is the root of the file system of message queues, if there is one.
	Mqueue Path `cbor:"2,keyasint,omitempty"`
	// SysV is the System V objects, if there are any.
	SysV ID `cbor:"3,keyasint,omitempty"`
}

// PIDFD is the file of pidfd_open(2).
type PIDFD struct {
	ID    ID `cbor:"1,keyasint"`
	Group ID `cbor:"2,keyasint,omitempty"` // 0: gone
}

// Creds are credentials.
type Creds struct {
	ID         ID       `cbor:"1,keyasint"`
	UIDs       []uint32 `cbor:"2,keyasint"` // real, effective, saved, file system
	GIDs       []uint32 `cbor:"3,keyasint"`
	Groups     []uint32 `cbor:"4,keyasint,omitempty"`
	Caps       []uint64 `cbor:"5,keyasint"` // permitted, effective, inheritable, bounding, ambient
	SecureBits uint32   `cbor:"6,keyasint,omitempty"`
	NoNewPrivs bool     `cbor:"7,keyasint,omitempty"`
}

// Seccomp are the filters of a task, oldest first.
type Seccomp struct {
	ID      ID   `cbor:"1,keyasint"`
	Filters []ID `cbor:"2,keyasint"`
}

// Kinds of filters.
const (
	FilterProgram uint8 = iota // a classic BPF program
	FilterStrict               // SECCOMP_MODE_STRICT
	FilterProfile              // that of the container's specification
)

// Filter is one filter.
type Filter struct {
	ID      ID     `cbor:"1,keyasint"`
	Type    uint8  `cbor:"2,keyasint,omitempty"`
	Program []byte `cbor:"3,keyasint,omitempty"`
}
