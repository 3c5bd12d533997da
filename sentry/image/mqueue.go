package image

// Kinds of records of POSIX message queues.
const (
	KindMqueueFS       Kind = 122
	KindMqueue         Kind = 123
	KindMqueueMessages Kind = 124
)

// MqueueFS is the message queues of an IPC namespace.
type MqueueFS struct {
	ID      ID           `cbor:"1,keyasint"`
	Dev     uint64       `cbor:"2,keyasint"`
	LastIno uint64       `cbor:"3,keyasint"`
	Queues  []MqueueName `cbor:"4,keyasint,omitempty"`
	// Limits are queues_max, msg_max, msgsize_max, msg_default and
	// msgsize_default of /proc/sys/fs/mqueue.
	Limits []int64 `cbor:"5,keyasint"`
	Mode   uint32  `cbor:"6,keyasint"` // of the root directory
	UID    uint32  `cbor:"7,keyasint,omitempty"`
	GID    uint32  `cbor:"8,keyasint,omitempty"`
}

// MqueueName is a queue with its name.
type MqueueName struct {
	_     struct{} `cbor:",toarray"`
	Name  string
	Queue ID // KindMqueue
}

// Mqueue is a message queue.
type Mqueue struct {
	ID      ID     `cbor:"1,keyasint"`
	FS      ID     `cbor:"2,keyasint"` // KindMqueueFS
	Ino     uint64 `cbor:"3,keyasint"`
	MaxMsg  int64  `cbor:"4,keyasint"`
	MsgSize int64  `cbor:"5,keyasint"`
	Owner   uint32 `cbor:"6,keyasint,omitempty"` // the user whose RLIMIT_MSGQUEUE it counts in
	Mode    uint32 `cbor:"7,keyasint"`
	UID     uint32 `cbor:"8,keyasint,omitempty"`
	GID     uint32 `cbor:"9,keyasint,omitempty"`
	Atime   Time   `cbor:"10,keyasint"`
	Mtime   Time   `cbor:"11,keyasint"`
	Ctime   Time   `cbor:"12,keyasint"`
	// Messages are those that wait, the next one to be received first.
	Messages []ID `cbor:"13,keyasint,omitempty"` // KindMqueueMessages
	// Target is who is to be notified: a task, 0 for nobody.
	Target ID     `cbor:"14,keyasint,omitempty"`
	TGID   int32  `cbor:"15,keyasint,omitempty"`
	Signal int32  `cbor:"16,keyasint,omitempty"`
	Value  uint64 `cbor:"17,keyasint,omitempty"`
}

// MqueueMessages is some messages of a queue.
type MqueueMessages struct {
	ID       ID              `cbor:"1,keyasint"`
	Messages []MqueueMessage `cbor:"2,keyasint"`
}

// MqueueMessage is one message.
type MqueueMessage struct {
	_    struct{} `cbor:",toarray"`
	Prio uint32
	Data []byte
}
