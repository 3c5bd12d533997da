package image

// Kinds of records of files as package vfs has them.
const (
	KindFDTable        Kind = 50
	KindFSContext      Kind = 51
	KindMountNamespace Kind = 52
	KindMount          Kind = 53
	KindSuperblock     Kind = 54
	KindDentry         Kind = 55
	KindFile           Kind = 56
	KindLocks          Kind = 57
	KindAnonInode      Kind = 58
	KindFileData       Kind = 59
)

// Ref refers to an object whose kind may be one of several.
type Ref struct {
	Kind Kind `cbor:"1,keyasint,omitempty"`
	ID   ID   `cbor:"2,keyasint,omitempty"`
}

// Time is a time in seconds and nanoseconds since the epoch.
type Time struct {
	_    struct{} `cbor:",toarray"`
	Sec  int64
	Nsec uint32
}

// Path is a place in the mount tree. The zero Path is none.
type Path struct {
	Mount ID `cbor:"1,keyasint,omitempty"` // KindMount; 0: a thing with a name only
	// Names leads from the root of the mount's file system to the place;
	// names are separated by slashes.
	Names string `cbor:"2,keyasint,omitempty"`
	// Dentry is set instead of Names for what was unlinked.
	Dentry ID `cbor:"3,keyasint,omitempty"` // KindDentry
	// Name and Inode are those of a thing with a name only.
	Name  string `cbor:"4,keyasint,omitempty"`
	Inode Ref    `cbor:"5,keyasint,omitempty"`
	// Dir is set if Names lead to a directory.
	Dir bool `cbor:"6,keyasint,omitempty"`
}

// Dentry is a name that was removed while in use.
type Dentry struct {
	ID         ID `cbor:"1,keyasint"`
	Superblock ID `cbor:"2,keyasint"`
	// The directory that it was in: Parent if that is removed too, else the
	// one that ParentNames lead to.
	Parent      ID     `cbor:"3,keyasint,omitempty"`
	ParentNames string `cbor:"4,keyasint,omitempty"`
	Name        string `cbor:"5,keyasint"`
	Inode       Ref    `cbor:"6,keyasint"`
	Dead        bool   `cbor:"7,keyasint,omitempty"` // a directory that was removed
	Linkable    bool   `cbor:"8,keyasint,omitempty"` // made by O_TMPFILE: may get a name
}

// Superblock is a file system in use.
type Superblock struct {
	ID       ID   `cbor:"1,keyasint"`
	FS       Ref  `cbor:"2,keyasint"`
	ReadOnly bool `cbor:"3,keyasint,omitempty"`
	// Flags are MS_SYNCHRONOUS and its like.
	Flags uint32 `cbor:"4,keyasint,omitempty"`
}

// Mount is a mount, attached or not.
type Mount struct {
	ID         ID     `cbor:"1,keyasint"`
	Superblock ID     `cbor:"2,keyasint"`
	Number     uint64 `cbor:"3,keyasint"` // in mountinfo
	Flags      uint32 `cbor:"4,keyasint"`
	// Root is where in the file system the mount begins; Mount is 0 in it.
	Root Path `cbor:"5,keyasint,omitempty"`
	// Parent is the mount that this one is on, at Point (whose Mount is 0).
	Parent     ID     `cbor:"6,keyasint,omitempty"`
	Point      Path   `cbor:"7,keyasint,omitempty"`
	Peer       uint32 `cbor:"8,keyasint,omitempty"`
	Master     uint32 `cbor:"9,keyasint,omitempty"`
	Unbindable bool   `cbor:"10,keyasint,omitempty"`
}

// MountNamespace is a tree of mounts.
type MountNamespace struct {
	ID     ID     `cbor:"1,keyasint"`
	Number uint64 `cbor:"2,keyasint"`
	// Mounts are all of the tree, each after the one that it is on.
	Mounts []ID `cbor:"3,keyasint"`
	// Detached is set if the tree is that of a descriptor.
	Detached bool `cbor:"4,keyasint,omitempty"`
}

// KindMountFile is the kind of MountFile, KindMountContext that of MountContext.
const (
	KindMountFile    Kind = 120
	KindMountContext Kind = 121
)

// MountFile is the hold that a descriptor has on a detached tree of mounts.
type MountFile struct {
	ID ID `cbor:"1,keyasint"`
	// Namespace is the tree, 0 if it was moved elsewhere since.
	Namespace ID `cbor:"2,keyasint,omitempty"` // KindMountNamespace
}

// MountContext is what fsopen(2) makes.
type MountContext struct {
	ID      ID       `cbor:"1,keyasint"`
	Type    string   `cbor:"2,keyasint"`
	Phase   uint8    `cbor:"3,keyasint"` // 0: to be created, 1: created, 2: mounted or picked, 3: to be reconfigured, 4: failed
	Source  string   `cbor:"4,keyasint,omitempty"`
	Options []string `cbor:"5,keyasint,omitempty"` // "key" or "key=value"
	Flags   uint32   `cbor:"6,keyasint,omitempty"`
	Mask    uint32   `cbor:"7,keyasint,omitempty"` // which of Flags were given
	Log     []string `cbor:"8,keyasint,omitempty"` // messages not read yet
	Super   Path     `cbor:"9,keyasint,omitempty"` // the root of the file system, once there is one
}

// FSContext is what tasks share with CLONE_FS.
type FSContext struct {
	ID    ID     `cbor:"1,keyasint"`
	Root  Path   `cbor:"2,keyasint"`
	Cwd   Path   `cbor:"3,keyasint"`
	Umask uint32 `cbor:"4,keyasint"`
}

// FDTable is a table of descriptors.
type FDTable struct {
	ID  ID   `cbor:"1,keyasint"`
	FDs []FD `cbor:"2,keyasint"`
}

// FD is an open descriptor.
type FD struct {
	_       struct{} `cbor:",toarray"`
	FD      int32
	File    ID // KindFile
	Cloexec bool
}

// File is an open file description.
type File struct {
	ID     ID     `cbor:"1,keyasint"`
	Path   Path   `cbor:"2,keyasint"`
	Flags  uint32 `cbor:"3,keyasint"` // of open(2)
	Offset int64  `cbor:"4,keyasint,omitempty"`
	// Ops is the file system's part; without it the path is opened again.
	Ops     Ref  `cbor:"5,keyasint,omitempty"`
	Regular bool `cbor:"6,keyasint,omitempty"`
	// The owner of SIGIO.
	OwnerType int32  `cbor:"7,keyasint,omitempty"`
	OwnerPID  int32  `cbor:"8,keyasint,omitempty"`
	Signal    int32  `cbor:"9,keyasint,omitempty"`
	OwnerUID  uint32 `cbor:"10,keyasint,omitempty"`
	OwnerEUID uint32 `cbor:"11,keyasint,omitempty"`
	// Ino is the inode number that a host file keeps.
	Ino uint64 `cbor:"12,keyasint,omitempty"`
	// Check is set if the image is to be refused when the host's file changed.
	Check bool   `cbor:"13,keyasint,omitempty"`
	Size  uint64 `cbor:"14,keyasint,omitempty"`
	Mtime Time   `cbor:"15,keyasint,omitempty"`
	// Extra is what to tell a file that was opened again.
	Extra Ref `cbor:"16,keyasint,omitempty"`
	// Program is set for the file of a program that runs.
	Program bool `cbor:"17,keyasint,omitempty"`
	// Async is set if the owner gets SIGIO; AsyncFD is its number then.
	Async   bool  `cbor:"18,keyasint,omitempty"`
	AsyncFD int32 `cbor:"19,keyasint,omitempty"`
	// Notify is what F_NOTIFY asked for, DN_* bits.
	Notify   uint32 `cbor:"20,keyasint,omitempty"`
	NotifyFD int32  `cbor:"21,keyasint,omitempty"`
	// Lease is 1 for a lease for reading, 2 for one for writing.
	Lease   uint8 `cbor:"22,keyasint,omitempty"`
	LeaseFD int32 `cbor:"23,keyasint,omitempty"`
	// LeaseBreak is 1 more than the type that a lease is to become.
	LeaseBreak uint8 `cbor:"24,keyasint,omitempty"`
}

// Locks are all file locks.
type Locks struct {
	ID    ID     `cbor:"1,keyasint"`
	Locks []Lock `cbor:"2,keyasint"`
}

// Lock is a lock of flock(2) or fcntl(2).
type Lock struct {
	File      ID    `cbor:"1,keyasint"`           // a description of the file
	Table     ID    `cbor:"2,keyasint,omitempty"` // the owner of a POSIX lock; else File is
	Flock     bool  `cbor:"3,keyasint,omitempty"`
	Exclusive bool  `cbor:"4,keyasint,omitempty"`
	Start     int64 `cbor:"5,keyasint,omitempty"`
	End       int64 `cbor:"6,keyasint"` // exclusive; 1<<63-1: to the end of file
	PID       int32 `cbor:"7,keyasint,omitempty"`
	// Dev and Ino are what stat(2) told of the file.
	Dev uint64 `cbor:"8,keyasint,omitempty"`
	Ino uint64 `cbor:"9,keyasint,omitempty"`
}

// AnonInode is the inode of a thing with a name only.
type AnonInode struct {
	ID    ID     `cbor:"1,keyasint"`
	Ino   uint64 `cbor:"2,keyasint"`
	Mode  uint32 `cbor:"3,keyasint"`
	UID   uint32 `cbor:"4,keyasint,omitempty"`
	GID   uint32 `cbor:"5,keyasint,omitempty"`
	Atime Time   `cbor:"6,keyasint"`
	Mtime Time   `cbor:"7,keyasint"`
	Ctime Time   `cbor:"8,keyasint"`
}

// FileData is a piece of a host file that has no name any more.
type FileData struct {
	ID     ID     `cbor:"1,keyasint"`
	Offset int64  `cbor:"2,keyasint"`
	Data   []byte `cbor:"3,keyasint"`
}
