package image

// Kinds of a FUSE file system. Since format 1.
const (
	KindFuse       Kind = 75
	KindFuseInode  Kind = 76
	KindFuseConn   Kind = 77
	KindFuseDevice Kind = 78
	KindFuseFile   Kind = 79
)

// Fuse is a mounted FUSE file system.
type Fuse struct {
	ID          ID     `cbor:"1,keyasint"`
	Conn        ID     `cbor:"2,keyasint"` // KindFuseConn
	Source      string `cbor:"3,keyasint,omitempty"`
	Subtype     string `cbor:"4,keyasint,omitempty"`
	Options     string `cbor:"5,keyasint,omitempty"`
	Dev         uint64 `cbor:"6,keyasint"`
	User        uint32 `cbor:"7,keyasint,omitempty"`
	Group       uint32 `cbor:"8,keyasint,omitempty"`
	MaxRead     uint32 `cbor:"9,keyasint,omitempty"`
	Permissions bool   `cbor:"10,keyasint,omitempty"`
	Others      bool   `cbor:"11,keyasint,omitempty"`
	// Inodes are all that are in use, the root first.
	Inodes []ID `cbor:"12,keyasint"`
}

// FuseInode is a file that the server told of.
type FuseInode struct {
	ID         ID     `cbor:"1,keyasint"`
	FS         ID     `cbor:"2,keyasint"` // KindFuse
	Node       uint64 `cbor:"3,keyasint"`
	Generation uint64 `cbor:"4,keyasint,omitempty"`
	// Mode, Owner, Group, Ino and Size are what it had when it was last asked.
	Mode  uint32 `cbor:"5,keyasint"`
	Owner uint32 `cbor:"6,keyasint,omitempty"`
	Group uint32 `cbor:"7,keyasint,omitempty"`
	Ino   uint64 `cbor:"8,keyasint,omitempty"`
	Size  uint64 `cbor:"9,keyasint,omitempty"`
	// Lookups is how often the server told of it.
	Lookups uint64 `cbor:"10,keyasint,omitempty"`
	// Parent is the node of the directory that it has Name in; 0 if it has none.
	Parent uint64 `cbor:"11,keyasint,omitempty"`
	Name   string `cbor:"12,keyasint,omitempty"`
	// Pages is the file in memory that mappings see, Handle what it is
	// written to the server through.
	Pages  Ref    `cbor:"13,keyasint"`
	Handle uint64 `cbor:"14,keyasint,omitempty"`
	// Listed is set for those in the list of the file system.
	Listed bool `cbor:"15,keyasint,omitempty"`
}

// FuseConn is the connection to a server.
type FuseConn struct {
	ID         ID     `cbor:"1,keyasint"`
	FS         ID     `cbor:"2,keyasint"`           // KindFuse
	State      uint8  `cbor:"3,keyasint,omitempty"` // 0: before INIT's answer, 1: open, 2: aborted
	LastUnique uint64 `cbor:"4,keyasint"`
	Flags      uint32 `cbor:"5,keyasint,omitempty"`
	Minor      uint32 `cbor:"6,keyasint,omitempty"`
	MaxWrite   uint32 `cbor:"7,keyasint,omitempty"`
	// Missing are the operations that the server does not have.
	Missing []uint32 `cbor:"8,keyasint,omitempty"`
	// Requests are those not answered and those whose answer nobody took, in
	// the order in which they are to be sent.
	Requests []FuseRequest `cbor:"9,keyasint,omitempty"`
	// Forgets are nodes and counts, one after the other.
	Forgets []uint64 `cbor:"10,keyasint,omitempty"`
}

// FuseRequest is a message to a server.
type FuseRequest struct {
	Unique uint64 `cbor:"1,keyasint"`
	Data   []byte `cbor:"2,keyasint"`           // as the server reads it
	State  uint8  `cbor:"3,keyasint,omitempty"` // 0: waits, 1: read by the server, 2: answered
	Least  int64  `cbor:"4,keyasint,omitempty"` // bytes of the answer
	Most   int64  `cbor:"5,keyasint,omitempty"`
	// Waited is set if a task will ask for the answer.
	Waited      bool   `cbor:"6,keyasint,omitempty"`
	Interrupted bool   `cbor:"7,keyasint,omitempty"` // INTERRUPT was sent or is to be
	Interrupt   bool   `cbor:"8,keyasint,omitempty"` // it is to be sent
	Reply       []byte `cbor:"9,keyasint,omitempty"`
	Error       uint32 `cbor:"10,keyasint,omitempty"`
}

// FuseDevice is an open /dev/fuse.
type FuseDevice struct {
	ID   ID `cbor:"1,keyasint"`
	Conn ID `cbor:"2,keyasint,omitempty"` // KindFuseConn; 0 without one
}

// FuseFile is what the server knows of an open file or directory.
type FuseFile struct {
	ID     ID     `cbor:"1,keyasint"`
	Inode  ID     `cbor:"2,keyasint"` // KindFuseInode
	Handle uint64 `cbor:"3,keyasint,omitempty"`
	Flags  uint32 `cbor:"4,keyasint,omitempty"`
	None   bool   `cbor:"5,keyasint,omitempty"` // the server does not want to know
	Opened uint32 `cbor:"6,keyasint,omitempty"` // flags of the answer to OPEN
}
