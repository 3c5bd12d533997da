package host

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// bufSize is the size of the buffers between host descriptors and guest
// memory: the capacity of a pipe.
const bufSize = 64 << 10

var bufs = sync.Pool{New: func() any { b := make([]byte, bufSize); return &b }}

// hostFD is a descriptor that the files on it share; the last one closes it.
type hostFD struct {
	fd   int
	typ  uint32 // S_IFMT bits of the host's file
	refs atomic.Int64

	inode *inode // the one over it

	poller *Poller
	polled *pollFile // nil for what is always ready
	queue  waitq.Queue
	// blocking is set for a descriptor that is not made non-blocking: it is
	// polled before each call.
	blocking bool

	readable, writable bool
}

func (h *hostFD) decRef() {
	if h.refs.Add(-1) > 0 {
		return
	}
	if h.polled != nil {
		h.poller.remove(h.fd, h.polled)
	}
	unix.Close(h.fd)
}

// open prepares fd for use and takes it over.
func open(p *Poller, fd int) (*hostFD, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return nil, err
	}
	unix.CloseOnExec(fd)
	h := &hostFD{fd: fd, typ: st.Mode & unix.S_IFMT, poller: p}
	h.refs.Store(1)
	acc := flags & unix.O_ACCMODE
	h.readable, h.writable = acc != unix.O_WRONLY, acc != unix.O_RDONLY
	switch h.typ {
	case unix.S_IFREG, unix.S_IFDIR, unix.S_IFBLK:
		return h, nil
	}
	h.polled, err = p.add(fd, &h.queue)
	if err == unix.EPERM { // always ready: /dev/null, for one
		return h, nil
	}
	if err != nil {
		return nil, err
	}
	// A pipe or socket handed to the sandbox is its own description. A
	// terminal's is shared with whoever gave it, whose reads must go on
	// blocking.
	if h.typ == unix.S_IFIFO || h.typ == unix.S_IFSOCK {
		if err := unix.SetNonblock(fd, true); err != nil {
			p.remove(fd, h.polled)
			return nil, err
		}
	} else {
		h.blocking = flags&unix.O_NONBLOCK == 0
	}
	return h, nil
}

// ready returns the events that hold.
func (h *hostFD) ready(mask waitq.Mask) waitq.Mask {
	if h.polled == nil {
		return mask & (waitq.In | waitq.Out | waitq.RdNorm | waitq.WrNorm)
	}
	pfd := []unix.PollFd{{Fd: int32(h.fd), Events: int16(mask)}}
	for {
		n, err := unix.Poll(pfd, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return 0
		}
		return waitq.Mask(uint16(pfd[0].Revents)) & (mask | waitq.Always)
	}
}

// stream is an open pipe, socket, terminal or character device.
type stream struct {
	h *hostFD `save:"rec"`
	// reads and writes are what this description was opened for.
	reads, writes bool `save:"rec"`
}

// Release implements vfs.FileOps.
func (s *stream) Release() { s.h.decRef() }

// Ready implements vfs.FileOps.
func (s *stream) Ready(mask waitq.Mask) waitq.Mask {
	if !s.reads {
		mask &^= waitq.In | waitq.RdNorm
	}
	if !s.writes {
		mask &^= waitq.Out | waitq.WrNorm
	}
	return s.h.ready(mask)
}

// Queue implements vfs.Waitable.
func (s *stream) Queue() *waitq.Queue { return &s.h.queue }

// Read implements vfs.Reader.
func (s *stream) Read(c vfs.Caller, _ *vfs.File, dst *mem.UserBuf) (int, error) {
	if dst.Len() == 0 {
		return 0, nil
	}
	if s.h.blocking && s.h.ready(waitq.In) == 0 {
		return 0, unix.EAGAIN
	}
	buf := bufs.Get().(*[]byte)
	defer bufs.Put(buf)
	// One read: a second could wait for data on a terminal, and a pipe
	// gives all it has at once up to its size.
	for {
		n, err := unix.Read(s.h.fd, (*buf)[:min(dst.Len(), bufSize)])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return 0, err
		}
		return dst.CopyOut((*buf)[:n])
	}
}

// Write implements vfs.Writer.
func (s *stream) Write(c vfs.Caller, _ *vfs.File, src *mem.UserBuf) (int, error) {
	buf := bufs.Get().(*[]byte)
	defer bufs.Put(buf)
	done := 0
	for src.Len() > 0 {
		if s.h.blocking && s.h.ready(waitq.Out) == 0 {
			return done, unix.EAGAIN
		}
		// The bytes leave src only when the host has taken them: a copy of
		// src is advanced.
		try := *src
		n, cerr := try.CopyIn((*buf)[:min(src.Len(), bufSize)])
		if n == 0 {
			return done, cerr
		}
		w, err := unix.Write(s.h.fd, (*buf)[:n])
		if w > 0 {
			src.Skip(w)
			done += w
		}
		switch {
		case err == unix.EINTR:
		case err != nil:
			return done, err
		case cerr != nil && w == n:
			return done, cerr
		}
	}
	return done, nil
}

// Ioctl implements vfs.Ioctler: what asks for no more than the amount of
// data. Terminals of the host are not the guest's to control.
func (s *stream) Ioctl(c vfs.Caller, _ *vfs.File, m mem.Memory, cmd uint32, arg uint64) (uintptr, error) {
	if cmd != unix.TIOCINQ {
		return 0, unix.ENOTTY
	}
	n, err := unix.IoctlGetInt(s.h.fd, unix.TIOCINQ)
	if err != nil {
		return 0, unix.ENOTTY
	}
	b := [4]byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)}
	_, err = m.CopyOut(arg, b[:])
	return 0, err
}

// plain is an open regular file or block device. It uses the offset of the
// host's description: standard output and error may share one, and whoever
// gave it may go on writing behind the guest.
type plain struct {
	stream `save:"rec"`
}

// Seek implements vfs.Seeker.
func (p *plain) Seek(c vfs.Caller, _ *vfs.File, off int64, whence int) (int64, error) {
	switch whence {
	case unix.SEEK_SET, unix.SEEK_CUR, unix.SEEK_END, unix.SEEK_DATA, unix.SEEK_HOLE:
		return unix.Seek(p.h.fd, off, whence)
	}
	return 0, unix.EINVAL
}

// Fsync implements vfs.Syncer.
func (p *plain) Fsync(c vfs.Caller, dataOnly bool) error { return unix.Fsync(p.h.fd) }
