package image

// Kinds of records of sockets.
const (
	KindUnixSocket Kind = 90
)

// SocketOptions are the options of level SOL_SOCKET. Times are in ns.
type SocketOptions struct {
	Flags    []int32  `cbor:"1,keyasint,omitempty"` // those that are on, in order
	SndBuf   int32    `cbor:"2,keyasint"`
	RcvBuf   int32    `cbor:"3,keyasint"`
	SndTimeo int64    `cbor:"4,keyasint,omitempty"`
	RcvTimeo int64    `cbor:"5,keyasint,omitempty"`
	RcvLowat int32    `cbor:"6,keyasint"`
	Priority int32    `cbor:"7,keyasint,omitempty"`
	Mark     int32    `cbor:"8,keyasint,omitempty"`
	Linger   [2]int32 `cbor:"9,keyasint"`
}

// SocketCreds are credentials, as struct ucred has them.
type SocketCreds struct {
	_   struct{} `cbor:",toarray"`
	PID int32
	UID uint32
	GID uint32
}

// UnixSocket is an AF_UNIX socket.
type UnixSocket struct {
	ID       ID            `cbor:"1,keyasint"`
	Type     int32         `cbor:"2,keyasint"`
	State    uint8         `cbor:"3,keyasint,omitempty"` // 0 idle, 1 listening, 2 connected
	Inbox    []UnixMessage `cbor:"4,keyasint,omitempty"`
	EOF      bool          `cbor:"5,keyasint,omitempty"`
	Err      int32         `cbor:"6,keyasint,omitempty"`
	ShutRd   bool          `cbor:"7,keyasint,omitempty"`
	ShutWr   bool          `cbor:"8,keyasint,omitempty"`
	HasPeer  bool          `cbor:"9,keyasint,omitempty"`
	Peer     ID            `cbor:"10,keyasint,omitempty"` // 0 with HasPeer: one that is gone
	PeerAddr []byte        `cbor:"11,keyasint,omitempty"` // of one that is gone
	Gone     bool          `cbor:"12,keyasint,omitempty"`
	Creds    SocketCreds   `cbor:"13,keyasint"`
	HasCreds bool          `cbor:"14,keyasint,omitempty"`
	Backlog  int           `cbor:"15,keyasint,omitempty"`
	Pending  []ID          `cbor:"16,keyasint,omitempty"`
	Blocked  []ID          `cbor:"17,keyasint,omitempty"` // senders that wait for room
	Addr     []byte        `cbor:"18,keyasint,omitempty"` // struct sockaddr_un
	Name     string        `cbor:"19,keyasint,omitempty"` // the abstract name that it owns
	Path     Path          `cbor:"20,keyasint,omitempty"` // the node that it owns
	Options  SocketOptions `cbor:"21,keyasint"`
}

// UnixMessage is a message that was not received, or the rest of one.
type UnixMessage struct {
	Data  []byte      `cbor:"1,keyasint,omitempty"`
	Files []ID        `cbor:"2,keyasint,omitempty"`
	Creds SocketCreds `cbor:"3,keyasint"`
	From  []byte      `cbor:"4,keyasint,omitempty"`
}
