package hostfs

import "golang.org/x/sys/unix"

// NoRef is no file.
const NoRef = -1

// Target is the file that an operation is about: one that the backend holds,
// or a descriptor of the caller's own that is open for data.
type Target struct {
	FD   int // a Ref, or the descriptor
	Data bool
}

// Ref returns the target that a backend holds as r.
func Ref(r int) Target { return Target{FD: r} }

// Data returns the target of a descriptor open for data.
func Data(fd int) Target { return Target{FD: fd, Data: true} }

// Step is a file that Walk opened.
type Step struct {
	Ref  int
	Stat unix.Statx_t // valid if asked for
}

// NewAttr says what a new file is to be. Mode holds type and permission bits.
type NewAttr struct {
	Mode     uint32
	UID, GID uint32
	Rdev     uint64 // of a device
	Link     string // of a symbolic link
}

// SetAttr says which attributes to change; times are utimensat(2)'s.
type SetAttr struct {
	SetOwner bool
	UID, GID int // -1: no change
	SetMode  bool
	Mode     uint32
	SetTimes bool
	Times    [2]unix.Timespec
}

// Backend does operations on host files. A file that it holds for its user is
// a small number, a "ref": in direct mode an O_PATH descriptor, in remote mode
// a number that the gofer gave. Descriptors for data are the caller's own in
// both. All methods may be called at once.
type Backend interface {
	// Direct tells that refs are descriptors of this process: an operation is
	// one system call, and nothing is gained by putting several in one.
	Direct() bool
	// Close lets a ref go.
	Close(ref int)

	// Stat reads the attributes of name in t, of t itself for "".
	Stat(t Target, name string, stx *unix.Statx_t) error
	// StatWalk reads the attributes of names[0] in dir, of names[1] in that,
	// and so on, up to the first failure or the first that is not a
	// directory.
	StatWalk(dir int, names []string) ([]unix.Statx_t, error)
	// Walk opens names[0] in dir, names[1] in that, and so on. With an error
	// it opened those before. Attributes are read if stat is set.
	Walk(dir int, names []string, stat bool) ([]Step, error)
	Readlink(t Target, name string) (string, error)
	Statfs(t Target, st *unix.Statfs_t) error
	Syncfs(t Target) error

	// Open opens t for data with open(2)'s flags.
	Open(t Target, flags int) (fd int, err error)
	// OpenAt opens name in dir for data and reads its attributes if stx is
	// not nil.
	OpenAt(dir int, name string, flags int, stx *unix.Statx_t) (fd int, err error)
	// OpenDir opens a directory for Getdents and SyncDir.
	OpenDir(dir int) (ref int, err error)
	// Getdents reads entries as getdents64(2) does, from position off, or on
	// from where the last call ended if off is negative.
	Getdents(ref int, off int64, buf []byte) (int, error)
	SyncDir(ref int) error

	// Create makes a regular file, which must not exist, and opens it for
	// reading and writing.
	Create(dir int, name string, a *NewAttr, stx *unix.Statx_t) (fd int, err error)
	// Tmpfile is Create for a file without a name (O_TMPFILE).
	Tmpfile(dir int, a *NewAttr, stx *unix.Statx_t) (fd int, err error)
	// Make makes anything but a regular file.
	Make(dir int, name string, a *NewAttr, stx *unix.Statx_t) error
	Link(t Target, dir int, name string) error
	Unlink(dir int, name string, flags int) error
	Rename(from int, name string, to int, newName string, flags uint32) error

	SetAttr(t Target, a *SetAttr) error
	Getxattr(t Target, name string) ([]byte, error)
	Setxattr(t Target, name string, value []byte, flags int) error
	Listxattr(t Target) ([]string, error)
	Removexattr(t Target, name string) error

	// Connect makes a socket of a type and connects it to the socket file t.
	Connect(t Target, typ int) (fd int, err error)
	// Bind makes a socket of a type with the name name in dir.
	Bind(dir int, name string, typ int, a *NewAttr, stx *unix.Statx_t) (fd int, err error)

	// Inotify returns the descriptor from which the events of watches that are
	// added from now on are read.
	Inotify() (fd int, err error)
	// Watch adds a watch on t to it and returns its number.
	Watch(t Target, mask uint32) (wd int, err error)
	// Unwatch ends a watch.
	Unwatch(wd int)
}
