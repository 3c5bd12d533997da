package host

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"runsc/sentry/vfs"
)

var (
	dev     = sync.OnceValue(vfs.NewAnonDev)
	lastIno atomic.Uint64
)

// inode is what fstat(2) of a standard stream shows. It implements
// vfs.SpecialOpener, for /proc/self/fd and /dev/stdout.
type inode struct {
	h    *hostFD `save:"rebuilt"` // a reference
	slot int     `save:"rec"`     // 1 more than the number of the standard stream, 0: it is none

	refs atomic.Int64 `save:"rebuilt"`

	mu sync.Mutex `save:"none: not held at a stop"`
	// mu guards:
	st vfs.Stat `save:"none: that of the new stream"`
}

// Options are the settings of NewFile.
type Options struct {
	// UID and GID own the inode: the user of the process, as containers
	// expect to be able to reopen their streams.
	UID, GID uint32
	// Now is CLOCK_REALTIME in ns, for timestamps.
	Now int64
	// Flags is the access mode for the guest, and O_APPEND or O_NONBLOCK.
	Flags uint32
}

// shared is the poller of New.
var shared = NewPoller()

// New is NewFile with the sandbox's one poller, for root.
func New(fd int, flags uint32) (*vfs.File, error) {
	return NewFile(shared, fd, Options{Flags: flags, Now: time.Now().UnixNano()})
}

// NewFile takes over the host descriptor fd, also on failure, and returns an
// open file over it. EACCES: the descriptor does not permit the access mode.
func NewFile(p *Poller, fd int, o Options) (*vfs.File, error) {
	h, err := open(p, fd)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("standard stream: %w", err)
	}
	i := &inode{h: h}
	h.inode = i
	i.refs.Store(1)
	t := vfs.TimespecOf(o.Now)
	i.st = vfs.Stat{
		Mask: unix.STATX_BASIC_STATS,
		Mode: 0o600, UID: o.UID, GID: o.GID,
		Ino: lastIno.Add(1), Dev: dev(), Nlink: 1, BlockSize: 4096,
		Atime: t, Mtime: t, Ctime: t,
	}
	name := ""
	switch h.typ {
	case unix.S_IFREG, unix.S_IFDIR:
		i.st.Mode |= unix.S_IFREG
		name = fmt.Sprintf("/host/%d", i.st.Ino)
	case unix.S_IFSOCK:
		i.st.Mode |= unix.S_IFSOCK
		i.st.Mode |= 0o177
		name = fmt.Sprintf("socket:[%d]", i.st.Ino)
	case unix.S_IFCHR, unix.S_IFBLK:
		// Whatever the host's device is, it acts like the null device
		// or an unnamed pipe; there is no number for the latter.
		i.st.Mode |= unix.S_IFCHR | 0o066
		i.st.Rdev = unix.Mkdev(1, 3)
		name = "/dev/null"
	default:
		i.st.Mode |= unix.S_IFIFO
		name = fmt.Sprintf("pipe:[%d]", i.st.Ino)
	}
	ops, err := i.ops(o.Flags)
	if err != nil {
		h.decRef()
		return nil, err
	}
	return vfs.NewPseudoFile(name, ops, i, o.Flags), nil
}

// ops returns the operations of a new description.
func (i *inode) ops(flags uint32) (vfs.FileOps, error) {
	acc := flags & unix.O_ACCMODE
	reads, writes := acc != unix.O_WRONLY, acc != unix.O_RDONLY
	if reads && !i.h.readable || writes && !i.h.writable {
		return nil, unix.EACCES
	}
	i.h.refs.Add(1)
	switch i.h.typ {
	case unix.S_IFREG, unix.S_IFDIR, unix.S_IFBLK:
		return &plain{stream{i.h, reads, writes}}, nil
	}
	return &stream{i.h, reads, writes}, nil
}

// IncRef implements vfs.Inode.
func (i *inode) IncRef() { i.refs.Add(1) }

// DecRef implements vfs.Inode.
func (i *inode) DecRef() {
	if i.refs.Add(-1) == 0 {
		i.h.decRef()
	}
}

// Stat implements vfs.Inode.
func (i *inode) Stat(c vfs.Caller, mask uint32) (vfs.Stat, error) {
	i.mu.Lock()
	st := i.st
	i.mu.Unlock()
	if i.h.typ == unix.S_IFREG {
		var host unix.Stat_t
		if err := unix.Fstat(i.h.fd, &host); err == nil {
			st.Size, st.Blocks = uint64(host.Size), uint64(host.Blocks)
		}
	}
	return st, nil
}

// SetStat implements vfs.Inode: owner, mode and times are the sandbox's own.
// A size changes the host's file.
func (i *inode) SetStat(c vfs.Caller, s *vfs.SetStat) error {
	if s.Size != nil {
		if i.h.typ != unix.S_IFREG {
			return unix.EINVAL
		}
		if err := unix.Ftruncate(i.h.fd, int64(*s.Size)); err != nil {
			return err
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	s.Apply(&i.st, c.RealTime())
	return nil
}

// Open implements vfs.Inode.
func (i *inode) Open(c vfs.Caller, d *vfs.Dentry, flags uint32) (vfs.FileOps, error) {
	return i.ops(flags)
}

// OpenSpecial implements vfs.SpecialOpener.
func (i *inode) OpenSpecial(c vfs.Caller, d *vfs.Dentry, flags uint32) (vfs.FileOps, error) {
	if i.h.typ == unix.S_IFSOCK {
		return nil, unix.ENXIO // open(2): a socket cannot be opened
	}
	return i.ops(flags)
}
