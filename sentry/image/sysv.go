package image

// Kinds of records of System V IPC objects.
const (
	KindSysV         Kind = 25
	KindSysVSet      Kind = 26
	KindSysVMsgQueue Kind = 27
)

// SysV is the System V objects of an IPC namespace. Slots are those of their
// ids; Last and Seq are the slot and the sequence number given last, for
// segments, sets and queues.
type SysV struct {
	ID       ID            `cbor:"1,keyasint"`
	Segments []SysVSegment `cbor:"2,keyasint,omitempty"`
	Sets     []ID          `cbor:"3,keyasint,omitempty"`
	Queues   []ID          `cbor:"4,keyasint,omitempty"`
	Last     []int32       `cbor:"5,keyasint,omitempty"`
	Seq      []uint32      `cbor:"6,keyasint,omitempty"`
}

// SysVPerm is the owner and the permissions of an object, and its slot.
type SysVPerm struct {
	Slot int32  `cbor:"1,keyasint"`
	Seq  uint32 `cbor:"2,keyasint,omitempty"`
	Key  int32  `cbor:"3,keyasint,omitempty"`
	UID  uint32 `cbor:"4,keyasint,omitempty"`
	GID  uint32 `cbor:"5,keyasint,omitempty"`
	CUID uint32 `cbor:"6,keyasint,omitempty"`
	CGID uint32 `cbor:"7,keyasint,omitempty"`
	Mode uint32 `cbor:"8,keyasint,omitempty"`
}

// SysVSegment is a shared memory segment. Times are seconds of the day.
type SysVSegment struct {
	Perm  SysVPerm `cbor:"1,keyasint"`
	Shm   ID       `cbor:"2,keyasint"`
	Size  uint64   `cbor:"3,keyasint"`
	CPID  int32    `cbor:"4,keyasint,omitempty"`
	LPID  int32    `cbor:"5,keyasint,omitempty"`
	Atime int64    `cbor:"6,keyasint,omitempty"`
	Dtime int64    `cbor:"7,keyasint,omitempty"`
	Ctime int64    `cbor:"8,keyasint,omitempty"`
}

// SysVSet is a set of semaphores.
type SysVSet struct {
	ID     ID       `cbor:"1,keyasint"`
	Perm   SysVPerm `cbor:"2,keyasint"`
	Values []int32  `cbor:"3,keyasint"`
	PIDs   []int32  `cbor:"4,keyasint"`
	Otime  int64    `cbor:"5,keyasint,omitempty"`
	Ctime  int64    `cbor:"6,keyasint,omitempty"`
}

// SysVUndo is what the end of a process adds to the semaphores of a set.
type SysVUndo struct {
	Set ID      `cbor:"1,keyasint"`
	Adj []int16 `cbor:"2,keyasint"`
}

// SysVMsgQueue is a message queue.
type SysVMsgQueue struct {
	ID       ID            `cbor:"1,keyasint"`
	Perm     SysVPerm      `cbor:"2,keyasint"`
	QBytes   uint64        `cbor:"3,keyasint"`
	LSPID    int32         `cbor:"4,keyasint,omitempty"`
	LRPID    int32         `cbor:"5,keyasint,omitempty"`
	Stime    int64         `cbor:"6,keyasint,omitempty"`
	Rtime    int64         `cbor:"7,keyasint,omitempty"`
	Ctime    int64         `cbor:"8,keyasint,omitempty"`
	Messages []SysVMessage `cbor:"9,keyasint,omitempty"`
}

// SysVMessage is one message.
type SysVMessage struct {
	Type int64  `cbor:"1,keyasint"`
	Data []byte `cbor:"2,keyasint,omitempty"`
}
