package vfs

import (
	"runsc/pkg/waitq"
	"runsc/sentry/cred"
	"runsc/sentry/mem"
	"runsc/sentry/posixacl"
)

// Caller is the task on whose behalf an operation runs; *kernel.Task
// implements it. Boot code uses KernelCaller.
type Caller interface {
	Cred() *cred.Creds
	// Block sleeps until w is woken, the deadline (CLOCK_MONOTONIC of the
	// sandbox, ns; 0 = none) passes (ETIMEDOUT) or a signal is pending
	// (errs.ERESTARTSYS).
	Block(w *waitq.Waiter, deadline int64) error
	// Waiter is the task's own waiter, for Block.
	Waiter() *waitq.Waiter
	// RealTime is CLOCK_REALTIME in ns, for timestamps.
	RealTime() int64
	// Rlimit is the soft limit of resource r (unix.RLIMIT_*).
	Rlimit(r int) uint64
	// TGID is the caller's thread group id in its own pid namespace.
	TGID() int32
}

// Timespec is a time in seconds and nanoseconds since the epoch.
type Timespec struct {
	Sec  int64
	Nsec uint32
}

// Stat is what statx(2) can tell of an inode. Mode holds type and permission
// bits. Dev and Rdev are in the kernel's 64-bit makedev form (unix.Mkdev).
type Stat struct {
	Mask         uint32 // STATX_* bits that are valid; basic stats always are
	Mode         uint32
	UID, GID     uint32
	Ino          uint64
	Nlink        uint32
	Size         uint64
	Blocks       uint64 // of 512 bytes
	BlockSize    uint32
	Dev, Rdev    uint64
	Atime, Mtime Timespec
	Ctime, Btime Timespec
	Attributes   uint64
	MountID      uint64 // set by vfs
}

// SetStat says which attributes to change. Times with Now set take the
// current time. The file system updates ctime.
type SetStat struct {
	Mode, UID, GID     *uint32 // Mode: permission bits only
	Size               *uint64
	Atime, Mtime       *Timespec
	AtimeNow, MtimeNow bool
}

// Filesystem is one superblock.
type Filesystem interface {
	// Type is the name in /proc/mounts, e.g. "tmpfs".
	Type() string
	// Root returns a new reference to the root directory's inode.
	Root() Inode
	// Statfs fills what statfs(2) reports (unix.Statfs_t without f_flags).
	Statfs(c Caller) (Statfs, error)
	// Source and Options are shown in /proc/mounts.
	Source() string
	Options() string
	// Cache says how dentries of this file system may be cached.
	Cache() CachePolicy
	// Sync writes back (syncfs).
	Sync(c Caller) error
	// Release ends the file system at its last unmount.
	Release()
}

// CachePolicy says how long a dentry may live unreferenced and whether it
// must be asked again.
type CachePolicy uint8

const (
	// CacheNone: dentries go at their last reference, every lookup asks the
	// file system (proc, sys).
	CacheNone CachePolicy = iota
	// CacheAll: dentries, also negative ones, stay until evicted (exclusive gofer).
	CacheAll
	// CacheRevalidate: kept, but each walk asks Revalidator (shared gofer).
	CacheRevalidate
	// CachePinned: positive dentries are the storage (tmpfs): Lookup is
	// cheap, unreferenced dentries may be dropped.
	CachePinned
)

// Statfs is the result of statfs(2).
type Statfs struct {
	Type                  int64
	Bsize, Frsize         int64
	Blocks, Bfree, Bavail uint64
	Files, Ffree          uint64
	Fsid                  [2]int32
	Namelen               int64
}

// Inode is a file system object. The walker holds a reference through its
// dentry.
type Inode interface {
	IncRef()
	DecRef()
	// Stat returns attributes; mask has the STATX_* bits wanted beyond
	// type, mode, uid, gid. It must not be slow for those.
	Stat(c Caller, mask uint32) (Stat, error)
	// SetStat changes attributes. vfs has checked permissions, read-only
	// mounts and limits, and asks for suid/sgid clearing through Mode.
	SetStat(c Caller, s *SetStat) error
	// Open returns the operations of a new open file description; flags are
	// open(2)'s with O_CREAT, O_EXCL and O_TRUNC already dealt with. vfs has
	// checked permissions. d is the dentry being opened.
	Open(c Caller, d *Dentry, flags uint32) (FileOps, error)
}

// Dir is implemented by directory inodes. Names are single components,
// never empty, ".", ".." or with a slash, at most 255 bytes. vfs holds the
// directory's lock in every call that changes it and has checked permissions
// and existence; a file system shared with outsiders checks again. New
// inodes are returned with a new reference, owner and mode (umask applied)
// as the CreateAttr say.
type Dir interface {
	Inode
	Lookup(c Caller, name string) (Inode, error) // ENOENT
	Create(c Caller, name string, a CreateAttr) (Inode, error)
	Mkdir(c Caller, name string, a CreateAttr) (Inode, error)
	Mknod(c Caller, name string, a CreateAttr, rdev uint64) (Inode, error)
	Symlink(c Caller, name, target string, a CreateAttr) (Inode, error)
	Link(c Caller, name string, target Inode) error
	Unlink(c Caller, name string, child Inode) error
	Rmdir(c Caller, name string, child Inode) error // ENOTEMPTY
	// Rename moves child to newDir/newName; replaced is the inode there, or
	// nil. flags: RENAME_EXCHANGE, RENAME_WHITEOUT (NOREPLACE is checked by vfs).
	Rename(c Caller, name string, child Inode, newDir Dir, newName string, replaced Inode, flags uint32) error
}

// CreateAttr says how a new inode is owned. Mode holds type and permission
// bits with the umask applied; UID and GID follow the caller and a setgid parent.
type CreateAttr struct {
	Mode     uint32
	UID, GID uint32
	// ACL and DefaultACL are inherited from the directory: attributes
	// system.posix_acl_access and _default of the new inode, nil for none.
	ACL, DefaultACL []byte
}

// ACLHolder is implemented by inodes that may have access control lists, in
// attributes that Setxattr stores as they are: vfs checks them and applies
// them. After SetStat with a mode the access list agrees with it.
type ACLHolder interface {
	// ACL borrows the access list, nil if there is none. It must not be slow.
	ACL(c Caller) (*posixacl.ACL, error)
}

// ACLReader is implemented by inodes whose access control lists another kernel
// keeps, which looks after their changes and inheritance. AccessACL is asked
// when a list could decide.
type ACLReader interface {
	AccessACL(c Caller) (*posixacl.ACL, error)
}

// Revalidator is implemented by directories of CacheRevalidate file systems.
type Revalidator interface {
	// Revalidate tells whether child is still what name means; child is nil
	// for a negative dentry.
	Revalidate(c Caller, name string, child Inode) (bool, error)
}

// Prefetcher is implemented by directories of file systems where each lookup is
// an exchange with another process (Superblock.prefetch): a walk says which names
// it is about to look up, one in the other, and with nil that it is over.
type Prefetcher interface {
	Prefetch(c Caller, names []string)
}

// Symlink is implemented by symbolic links.
type Symlink interface {
	Inode
	Readlink(c Caller) (string, error)
}

// MagicLink is implemented by links such as /proc/PID/fd/N, /proc/PID/exe
// and /proc/PID/cwd: following one jumps to the path returned (a new reference),
// whatever its name says.
type MagicLink interface {
	Symlink
	Follow(c Caller) (Path, error)
}

// Permitter is implemented by inodes that do not use the generic mode bits
// check. mask: MAY_READ 4, MAY_WRITE 2, MAY_EXEC 1.
type Permitter interface {
	Permission(c Caller, mask uint32) error
}

// Accesser is implemented by inodes that have a say in access(2) beyond
// Permission (a FUSE server).
type Accesser interface {
	Access(c Caller, mask uint32) error
}

// CreateOpener is implemented by directories that can create and open in one
// step (the gofer): same contract as Create, then Open.
type CreateOpener interface {
	CreateOpen(c Caller, name string, a CreateAttr, flags uint32) (Inode, FileOps, error)
}

// TmpfileMaker is implemented by directories that support O_TMPFILE.
type TmpfileMaker interface {
	Tmpfile(c Caller, a CreateAttr) (Inode, error)
}

// Xattrer is implemented by inodes with extended attributes (names with
// prefix). Errors: ENODATA, EOPNOTSUPP, ERANGE, EEXIST.
type Xattrer interface {
	Getxattr(c Caller, name string) ([]byte, error)
	Setxattr(c Caller, name string, value []byte, flags uint32) error
	Listxattr(c Caller) ([]string, error)
	Removexattr(c Caller, name string) error
}

// FileOps is the file system's part of an open file description. Everything
// but Release and Ready is optional, by the interfaces below; a missing one
// gives the errno Linux gives.
//
// No method blocks: a read or write that would have to wait returns EAGAIN
// with what it did so far, and File waits on Queue for In or Out.
type FileOps interface {
	// Release is called once, at the last close.
	Release()
	// Ready returns those of mask that hold now (plus Err, Hup if they do).
	Ready(mask waitq.Mask) waitq.Mask
}

// Waitable is implemented by files that can become ready later.
type Waitable interface {
	Queue() *waitq.Queue
}

// Reader and Writer are implemented by streams (pipes, eventfds, ttys).
type Reader interface {
	Read(c Caller, f *File, dst *mem.UserBuf) (int, error)
}

// Writer is Reader's counterpart.
type Writer interface {
	Write(c Caller, f *File, src *mem.UserBuf) (int, error)
}

// ReaderAt and WriterAt are implemented by files with positions; File keeps
// the offset.
type ReaderAt interface {
	ReadAt(c Caller, f *File, dst *mem.UserBuf, off int64) (int, error)
}

// WriterAt writes at off, or at the end of file when off is negative
// (O_APPEND), and returns the bytes written and the offset after them.
type WriterAt interface {
	WriteAt(c Caller, f *File, src *mem.UserBuf, off int64) (n int, end int64, err error)
}

// DirReader is implemented by open directories. ReadDir calls emit for each
// entry from position pos on ("." and ".." included), giving the position
// after the entry; it stops when emit returns false. Positions are opaque
// cookies, 0 the start.
type DirReader interface {
	ReadDir(c Caller, f *File, pos int64, emit func(Dirent) bool) error
}

// Dirent is one directory entry.
type Dirent struct {
	Name string
	Ino  uint64
	Type uint8 // unix.DT_*
	Next int64
}

// Seeker overrides the generic lseek (SEEK_DATA, SEEK_HOLE, special files).
type Seeker interface {
	Seek(c Caller, f *File, off int64, whence int) (int64, error)
}

// Mapper is implemented by files that can be mapped; without it mmap gives ENODEV.
type Mapper interface {
	Mappable(c Caller, f *File) (mem.Mappable, error)
}

// Ioctler handles ioctl(2); m is the caller's memory. Without it ENOTTY.
type Ioctler interface {
	Ioctl(c Caller, f *File, m mem.Memory, cmd uint32, arg uint64) (uintptr, error)
}

// Syncer handles fsync and fdatasync; without it they succeed on files with
// WriterAt and give EINVAL otherwise.
type Syncer interface {
	Fsync(c Caller, dataOnly bool) error
}

// Allocator handles fallocate(2); without it EOPNOTSUPP (regular files).
type Allocator interface {
	Fallocate(c Caller, mode uint32, off, n int64) error
}

// Flusher is called at each close of a descriptor (write errors of host files).
type Flusher interface {
	Flush(c Caller) error
}

// SpecialOpener is implemented by inodes of fifos, sockets and devices that
// open themselves instead of through RegisterFifo and RegisterDevice (pipes
// reopened through /proc/self/fd, stdio, fifos of the host). It may wait with
// c.Block.
type SpecialOpener interface {
	OpenSpecial(c Caller, d *Dentry, flags uint32) (FileOps, error)
}

// FileWatcher is implemented by what keeps a File registered without a
// reference to it (an epoll set): see File.Watch.
type FileWatcher interface {
	// FileReleased is called once, when the last reference to f is dropped
	// and before its FileOps are released.
	FileReleased()
}

// HostSocket is implemented by socket files of the host. Both calls return a
// descriptor of the host, non-blocking; EOPNOTSUPP if the configuration keeps
// such sockets in the sandbox.
type HostSocket interface {
	// ConnectHost connects to the server there; ECONNREFUSED without one.
	ConnectHost(typ int32) (fd int, err error)
	// BindHost puts a socket of the host in the file's place.
	BindHost(typ int32) (fd int, err error)
}

// Reopener is implemented by inodes of fifos that a restore opens again, without
// waiting for the other end.
type Reopener interface {
	Reopen(c Caller, flags uint32) (FileOps, error)
}

// Sealer is implemented by files with seals (memfd_create(2)); for others
// F_ADD_SEALS and F_GET_SEALS give EINVAL.
type Sealer interface {
	AddSeals(seals uint32) error
	Seals() uint32
}
