package image

// Kinds of records of files without a file system.
const (
	KindPipe       Kind = 80
	KindPipeEnd    Kind = 81
	KindPipeInode  Kind = 82
	KindEventfd    Kind = 83
	KindEpoll      Kind = 84
	KindTimerfd    Kind = 85
	KindSignalfd   Kind = 86
	KindInotify    Kind = 87
	KindHostStream Kind = 88
	KindHostOps    Kind = 89
)

// Pipe is a pipe or a fifo in use. Who reads and writes follows from the ends.
type Pipe struct {
	ID         ID     `cbor:"1,keyasint"`
	Capacity   int    `cbor:"2,keyasint"`
	Data       []byte `cbor:"3,keyasint,omitempty"`
	ReadOpens  uint64 `cbor:"4,keyasint"`
	WriteOpens uint64 `cbor:"5,keyasint"`
}

// PipeEnd is an open end.
type PipeEnd struct {
	ID     ID   `cbor:"1,keyasint"`
	Pipe   ID   `cbor:"2,keyasint"`
	Reads  bool `cbor:"3,keyasint,omitempty"`
	Writes bool `cbor:"4,keyasint,omitempty"`
	// IsQuiet is set as long as no writer has come since opens of writers
	// counted Quiet: no hang-up yet.
	IsQuiet bool   `cbor:"5,keyasint,omitempty"`
	Quiet   uint64 `cbor:"6,keyasint,omitempty"`
	// Fifo is set if the end is a fifo's, which the file's path leads to.
	Fifo bool `cbor:"7,keyasint,omitempty"`
}

// PipeInode is the inode of a pipe.
type PipeInode struct {
	ID   ID  `cbor:"1,keyasint"`
	Anon Ref `cbor:"2,keyasint"` // KindAnonInode
	Pipe ID  `cbor:"3,keyasint"`
}

// Eventfd is a counter.
type Eventfd struct {
	ID        ID     `cbor:"1,keyasint"`
	Count     uint64 `cbor:"2,keyasint"`
	Semaphore bool   `cbor:"3,keyasint,omitempty"`
}

// Epoll is an epoll instance.
type Epoll struct {
	ID    ID          `cbor:"1,keyasint"`
	Items []EpollItem `cbor:"2,keyasint,omitempty"`
	// Ready are indices of Items in the order in which they became ready.
	Ready []int `cbor:"3,keyasint,omitempty"`
}

// EpollItem is a member of an epoll instance.
type EpollItem struct {
	File   ID     `cbor:"1,keyasint"`
	FD     int32  `cbor:"2,keyasint"`
	Events uint32 `cbor:"3,keyasint"`
	Data   uint64 `cbor:"4,keyasint"`
}

// Timerfd is a timer. Times are in ns.
type Timerfd struct {
	ID       ID    `cbor:"1,keyasint"`
	Clock    int32 `cbor:"2,keyasint"`
	Deadline int64 `cbor:"3,keyasint,omitempty"` // CLOCK_MONOTONIC
	Interval int64 `cbor:"4,keyasint,omitempty"`
	Fired    bool  `cbor:"5,keyasint,omitempty"`
	// Wall is the deadline as CLOCK_REALTIME has it, for a timer set to an
	// absolute time of that clock.
	Wall int64 `cbor:"6,keyasint,omitempty"`
}

// Signalfd takes signals of a task.
type Signalfd struct {
	ID   ID     `cbor:"1,keyasint"`
	Task ID     `cbor:"2,keyasint,omitempty"`
	Mask uint64 `cbor:"3,keyasint"`
}

// Inotify is an inotify instance.
type Inotify struct {
	ID      ID             `cbor:"1,keyasint"`
	LastWD  int32          `cbor:"2,keyasint"`
	Watches []InotifyWatch `cbor:"3,keyasint,omitempty"`
	Events  []InotifyEvent `cbor:"4,keyasint,omitempty"`
}

// InotifyWatch is a watched file.
type InotifyWatch struct {
	WD   int32  `cbor:"1,keyasint"`
	Path Path   `cbor:"2,keyasint"`
	Mask uint32 `cbor:"3,keyasint"`
}

// InotifyEvent is an event that was not read.
type InotifyEvent struct {
	_      struct{} `cbor:",toarray"`
	WD     int32
	Mask   uint32
	Cookie uint32
	Name   string
}

// HostStream is a standard stream of the container.
type HostStream struct {
	ID   ID  `cbor:"1,keyasint"`
	Slot int `cbor:"2,keyasint"` // 0, 1 or 2
}

// HostOps is an open description of a standard stream.
type HostOps struct {
	ID     ID     `cbor:"1,keyasint"`
	Stream ID     `cbor:"2,keyasint"`
	Flags  uint32 `cbor:"3,keyasint"`
}
