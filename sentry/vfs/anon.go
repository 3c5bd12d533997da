package vfs

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// anonFilesystem holds what has no path: eventfds, pipes, sockets. Dentries of
// it have a name only.
type anonFilesystem struct {
	dev uint64
	ino atomic.Uint64
}

func (*anonFilesystem) Type() string       { return "anon_inodefs" }
func (*anonFilesystem) Source() string     { return "none" }
func (*anonFilesystem) Options() string    { return "" }
func (*anonFilesystem) Cache() CachePolicy { return CacheNone }
func (*anonFilesystem) Sync(Caller) error  { return nil }
func (*anonFilesystem) Release()           {}
func (fs *anonFilesystem) Root() Inode     { return NewAnonInode(unix.S_IFDIR|0o555, 0, 0) }
func (*anonFilesystem) Statfs(Caller) (Statfs, error) {
	return Statfs{Type: 0x09041934, Bsize: 4096, Frsize: 4096, Namelen: nameMax}, nil
}

var (
	anonFS    = &anonFilesystem{dev: NewAnonDev()}
	anonMount = sync.OnceValue(func() *Mount {
		m := NewMount(anonFS, unix.MS_NOEXEC|unix.MS_NODEV)
		m.sb.anon = anonFS
		return m
	})
)

// Its mount has the same number in every process, so that others can keep
// theirs across a checkpoint.
func init() { anonMount() }

// anonName is the path of a dentry without one: its name as it is.
func (d *Dentry) anonName() string { return d.name }

// AnonInode is an inode without a file system: pipes, sockets, eventfds.
type AnonInode struct {
	ino uint64 `save:"rec"`

	mu sync.Mutex `save:"none: not held at a stop"`
	// mu guards:
	st Stat `save:"rec"`
}

// NewAnonInode returns an inode of that mode, type bits included, with a new
// inode number.
func NewAnonInode(mode, uid, gid uint32) *AnonInode {
	ino := anonFS.ino.Add(1)
	now := TimespecOf(time.Now().UnixNano())
	return &AnonInode{ino: ino, st: Stat{
		Mask: unix.STATX_BASIC_STATS, Mode: mode, UID: uid, GID: gid, Ino: ino, Nlink: 1,
		BlockSize: 4096, Dev: anonFS.dev, Atime: now, Mtime: now, Ctime: now,
	}}
}

// Ino is the inode number, as in "pipe:[NUMBER]".
func (i *AnonInode) Ino() uint64 { return i.ino }

// IncRef implements Inode; the garbage collector does the work.
func (i *AnonInode) IncRef() {}

// DecRef implements Inode.
func (i *AnonInode) DecRef() {}

// Stat implements Inode.
func (i *AnonInode) Stat(Caller, uint32) (Stat, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.st, nil
}

// SetStat implements Inode.
func (i *AnonInode) SetStat(c Caller, s *SetStat) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	s.Apply(&i.st, c.RealTime())
	return nil
}

// Open implements Inode: there is no second way in (Linux's no_open).
func (i *AnonInode) Open(Caller, *Dentry, uint32) (FileOps, error) { return nil, unix.ENXIO }

// Apply changes st as s says, all but the size, for file systems that keep a
// Stat. now is CLOCK_REALTIME in ns.
func (s *SetStat) Apply(st *Stat, now int64) {
	t := TimespecOf(now)
	if s.Mode != nil {
		st.Mode = st.Mode&unix.S_IFMT | *s.Mode&^unix.S_IFMT
	}
	if s.UID != nil {
		st.UID = *s.UID
	}
	if s.GID != nil {
		st.GID = *s.GID
	}
	switch {
	case s.AtimeNow:
		st.Atime = t
	case s.Atime != nil:
		st.Atime = *s.Atime
	}
	switch {
	case s.MtimeNow:
		st.Mtime = t
	case s.Mtime != nil:
		st.Mtime = *s.Mtime
	}
	st.Ctime = t
}

// NewAnonFile returns a file that has no path; name is what /proc/PID/fd shows,
// such as "anon_inode:[eventfd]". It takes over ops.
func NewAnonFile(name string, ops FileOps, flags uint32) *File {
	return NewPseudoFile(name, ops, NewAnonInode(0o600, 0, 0), flags)
}

// NewPseudoFile is NewAnonFile with an inode of its own, the reference to
// which it takes over: a pipe, a socket, a memfd. A file that can be opened
// again through /proc/PID/fd has an inode with SpecialOpener or a useful Open.
// The inode's Stat must do without a Caller.
func NewPseudoFile(name string, ops FileOps, inode Inode, flags uint32) *File {
	f := NewFile(NewPseudoPath(name, inode), ops, flags)
	if st, err := inode.Stat(nil, 0); err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
		f.mode |= fileRegular
	}
	return f
}

// NewPseudoPath returns a new reference to a place that has a name only. It
// takes over the reference to inode.
func NewPseudoPath(name string, inode Inode) Path {
	m := anonMount()
	m.IncRef()
	d := newDentry(m.sb, nil, name, inode)
	d.state.Or(dentryUnhashed)
	return Path{m, d}
}
