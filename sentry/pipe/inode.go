package pipe

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/vfs"
)

// inode is the inode of a pipe: opening it again, through /proc/PID/fd, gives
// a further end of the same pipe.
type inode struct {
	*vfs.AnonInode `save:"rec"`
	p              *Pipe `save:"rec"`
}

// NewInode returns the inode for the pipe that e is an end of.
func NewInode(e *End, uid, gid uint32) (vfs.Inode, uint64) {
	i := &inode{vfs.NewAnonInode(unix.S_IFIFO|0o600, uid, gid), e.p}
	return i, i.Ino()
}

// OpenSpecial implements vfs.SpecialOpener. Other than for a fifo it does not
// wait for a partner (the is_pipe case of Linux's fifo_open).
func (i *inode) OpenSpecial(_ vfs.Caller, _ *vfs.Dentry, flags uint32) (vfs.FileOps, error) {
	e := &End{p: i.p}
	switch flags & unix.O_ACCMODE {
	case unix.O_RDONLY:
		e.reads = true
	case unix.O_WRONLY:
		e.writes = true
	case unix.O_RDWR:
		e.reads, e.writes = true, true
	default:
		return nil, unix.EINVAL
	}
	p := i.p
	p.mu.Lock()
	if e.reads {
		p.readers++
		p.readOpens++
	}
	if e.writes {
		p.writers++
		p.writeOpens++
	}
	p.mu.Unlock()
	p.queue.Notify(waitq.In | waitq.Out | waitq.RdNorm | waitq.WrNorm)
	return e, nil
}
