// Layout shared between the stub's assembler and layout_amd64.go; a test
// compares the two.

// Offsets in the stub region, which is aligned to its size of 1 GiB.
#define STUB_DATA     0x3000
#define STUB_CODESIZE 0x4000
#define STUB_CMD      0x10000
#define STUB_SLOTS    0x100000
#define STUB_SIZE     0x40000000
#define SLOT_SIZE     0x4000
#define SLOT_MASK     0x3fff
#define GUEST_TOP     0x7ffc00000000
#define HOST_TOP      0x7ffffffff000

// Offsets in the data page.
#define DATA_SA_HANDLER   0
#define DATA_SA_DEFAULT   32
#define DATA_CAPHEADER    64
#define DATA_PROG_LEADER  80
#define DATA_PROG_GUEST   96

// Offsets in the command page.
#define CMD_HEAD    0
#define CMD_SPIN    4
#define CMD_ACKWAIT 8
#define CMD_ACK     64
#define CMD_RING    2048
#define RING_MASK   31

// Fields of a ring entry.
#define ENT_OP   0
#define ENT_SEQ  4
#define ENT_A0   8
#define ENT_A1   16
#define ENT_A2   24
#define ENT_A3   32
#define ENT_A4   40
#define ENT_A5   48

// Commands. OP_ACK is a flag.
#define OP_MAP     1
#define OP_UNMAP   2
#define OP_PROTECT 3
#define OP_THREAD  4
#define OP_FORK    5
#define OP_RESUME  6
#define OP_EXIT    7
#define OP_MASK    0xff
#define OP_ACK     0x100

// Fields of a slot, relative to the end of the slot.
#define S_STATE  -256
#define S_SPIN   -252
#define S_FLAGS  -248
#define S_SET    -244
#define S_FRAME  -240
#define S_FS     -232
#define S_GS     -224
#define S_TID    -216
#define S_SPINW  -212
#define S_LEADER -208
#define S_SS     -192
#define S_T0     -128
#define S_T1     -120
#define S_CPU    -112
#define S_ERR    -200
#define S_PID    -196
#define S_SELF   -168
#define S_EFL    -160
#define S_KICK   -156
#define S_R15    -152
#define S_R14    -144
#define S_R13    -136
#define S_KIND   -108
#define S_RAX    -104
#define S_RBX    -96
#define S_RCX    -88
#define S_RDX    -80
#define S_RSI    -72
#define S_RDI    -64
#define S_RBP    -56
#define S_RSP    -48
#define S_R8     -40
#define S_R9     -32
#define S_R10    -24
#define S_R12    -16

// Results of the leader live in slot 0.
#define RESULT_ERR 0x103f38
#define RESULT_PID 0x103f3c

// Values of S_STATE.
#define ST_DEAD   0
#define ST_RUN    1
#define ST_RUNW   2
#define ST_EVENT  3
#define ST_EVENTW 4
#define ST_CHAIN  5
#define ST_CHAINW 6
#define ST_SLEEP  7
#define ST_YIELD  8
#define ST_EXIT   9
#define ST_SPILL  10

// Values of S_KIND.
#define KIND_FRAME  0
#define KIND_DIRECT 1
#define KIND_KICKED 2

// Entries of the blob, and fields of the signal frame.
#define RESTORE    512
#define RESTOREEND 1024
#define DIRECT     1024
#define FRAME_RBX  136
#define FRAME_RIP  176

// Bits of S_FLAGS and S_SET.
#define FLAG_FSGSBASE 1
#define FLAG_RDTSCP 2
#define FLAG_DIRECT 4
#define SET_FS 1
#define SET_GS 2

// System calls.
#define SYS_mmap         9
#define SYS_mprotect     10
#define SYS_munmap       11
#define SYS_rt_sigaction 13
#define SYS_rt_sigprocmask 14
#define SYS_rt_sigreturn 15
#define SYS_pwrite64     18
#define SYS_sched_yield  24
#define SYS_clone        56
#define SYS_exit         60
#define SYS_capset       126
#define SYS_sigaltstack  131
#define SYS_prctl        157
#define SYS_arch_prctl   158
#define SYS_futex        202
#define SYS_exit_group   231
#define SYS_seccomp      317
