package gofer

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"runsc/pkg/hostfs"
	"runsc/pkg/waitq"
	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// HostObjects says which sockets and fifos of shared mounts are the host's; the
// others live in the sandbox.
type HostObjects struct {
	// Connect to unix sockets that the host's processes serve; Create ones
	// that they can connect to. The values "open", "create" and "all" of
	// host-uds.
	ConnectUDS, CreateUDS bool
	// OpenFifos is host-fifo "open".
	OpenFifos bool
}

// ConnectHost implements vfs.HostSocket.
func (s *special) ConnectHost(typ int32) (int, error) {
	if s.fs.exclusive || !s.fs.client.objects.ConnectUDS {
		return -1, unix.ECONNREFUSED
	}
	h, err := s.open(byPath)
	if err != nil {
		return -1, err
	}
	defer s.fs.put(h)
	return s.fs.client.fds.retry(func() (int, error) { return s.fs.client.backend.Connect(h.target(), int(typ)) })
}

// BindHost implements vfs.HostSocket. The file, which the caller has just made,
// is replaced by one that bind(2) on the host makes.
func (s *special) BindHost(typ int32) (int, error) {
	cl := s.fs.client
	if s.fs.exclusive || !cl.objects.CreateUDS || s.typ != unix.S_IFSOCK {
		return -1, unix.EOPNOTSUPP
	}
	parent, name := s.place()
	if parent == nil {
		return -1, unix.ESTALE
	}
	defer parent.DecRef()
	h, err := parent.open(byPath)
	if err != nil {
		return -1, err
	}
	defer s.fs.put(h)
	s.mu.Lock()
	a := hostfs.NewAttr{Mode: s.guest.Mode, UID: s.guest.UID, GID: s.guest.GID}
	s.mu.Unlock()
	defer cl.notifier.changing(place{parent, name}, place{i: s.inode}).done()
	if err := cl.backend.Unlink(h.fd, name, 0); err != nil {
		return -1, err
	}
	var stx unix.Statx_t
	fd, err := cl.fds.retry(func() (int, error) { return cl.backend.Bind(h.fd, name, int(typ), &a, &stx) })
	if err != nil {
		return -1, err
	}
	s.become(&stx)
	return fd, nil
}

// become makes i stand for another file in the same place. Nobody but its
// maker has used it.
func (i *inode) become(stx *unix.Statx_t) {
	fs := i.fs
	fs.client.fds.drop(i)
	fs.mu.Lock()
	if fs.inodes[i.key] == i.self {
		delete(fs.inodes, i.key)
	}
	i.key = fs.keyOf(stx)
	fs.inodes[i.key] = i.self
	fs.mu.Unlock()
	fs.client.fds.revive(i)
	i.mu.Lock()
	i.guest.Ino = fs.client.numbers.inode(i.dev, stx.Ino)
	i.mu.Unlock()
	i.update(stx)
}

// hostFifo is a fifo whose other end may be on the host.
type hostFifo struct{ *inode }

// Open implements vfs.Inode; fifos are opened by OpenSpecial.
func (f *hostFifo) Open(c vfs.Caller, _ *vfs.Dentry, flags uint32) (vfs.FileOps, error) {
	return nil, unix.ENXIO
}

// fifoPoll is how often an open looks for the other end: the host tells nobody
// of that.
const fifoPoll = 20 * time.Millisecond

// OpenSpecial implements vfs.SpecialOpener: fifo(7).
func (f *hostFifo) OpenSpecial(c vfs.Caller, _ *vfs.Dentry, flags uint32) (vfs.FileOps, error) {
	acc := int(flags & unix.O_ACCMODE)
	for {
		fd, err := f.openEnd(acc)
		wait := err == unix.ENXIO && acc == unix.O_WRONLY // no reader
		if err == nil && acc == unix.O_RDONLY && flags&unix.O_NONBLOCK == 0 && !hasWriter(fd) {
			// Kept open while waiting, so that a writer can come.
			for !hasWriter(fd) {
				if err := pause(c, fifoPoll); err != nil {
					unix.Close(fd)
					return nil, err
				}
			}
		}
		if err == nil {
			return newFifoFile(fd, acc)
		}
		if !wait || flags&unix.O_NONBLOCK != 0 {
			return nil, err
		}
		if err := pause(c, fifoPoll); err != nil {
			return nil, err
		}
	}
}

// Reopen implements vfs.Reopener: a writer waits for no reader, who may be one
// that is about to be restored.
func (f *hostFifo) Reopen(c vfs.Caller, flags uint32) (vfs.FileOps, error) {
	acc := int(flags & unix.O_ACCMODE)
	if acc == unix.O_WRONLY {
		both, err := f.openEnd(unix.O_RDWR)
		if err != nil {
			return nil, err
		}
		defer unix.Close(both)
	}
	fd, err := f.openEnd(acc)
	if err != nil {
		return nil, err
	}
	return newFifoFile(fd, acc)
}

// openEnd opens the host's fifo; ENXIO for a writer without a reader.
func (f *hostFifo) openEnd(acc int) (int, error) {
	h, err := f.open(byPath)
	if err != nil {
		return -1, err
	}
	defer f.fs.put(h)
	return f.fs.client.fds.retry(func() (int, error) { return f.fs.client.backend.Open(h.target(), acc|unix.O_NONBLOCK) })
}

// hasWriter tells whether somebody has the fifo open for writing, or has left
// bytes in it: without, tee(2) reports an end of file.
func hasWriter(fd int) bool {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return true
	}
	defer unix.Close(p[0])
	defer unix.Close(p[1])
	n, err := unix.Tee(fd, p[1], 1, unix.SPLICE_F_NONBLOCK)
	return err != nil || n > 0
}

// pause blocks for a while.
func pause(c vfs.Caller, d time.Duration) error {
	var q waitq.Queue
	e := waitq.Entry{Waiter: c.Waiter()}
	q.Register(&e, waitq.In)
	defer q.Unregister(&e)
	t := time.AfterFunc(d, func() { q.Notify(waitq.In) })
	defer t.Stop()
	return c.Block(e.Waiter, 0)
}

// fifoFile is an end of a fifo of the host.
type fifoFile struct {
	f   *os.File        `save:"rebuilt"`
	raw syscall.RawConn `save:"rebuilt"`
	acc int             `save:"rebuilt"`

	queue waitq.Queue `save:"rebuilt"`
}

// newFifoFile takes over fd. The runtime waits for readiness: a goroutine for
// each direction, which ends at Release, passes it on.
func newFifoFile(fd, acc int) (*fifoFile, error) {
	x := &fifoFile{f: os.NewFile(uintptr(fd), "fifo"), acc: acc}
	var err error
	if x.raw, err = x.f.SyscallConn(); err != nil {
		x.f.Close()
		return nil, unix.EIO
	}
	if acc != unix.O_WRONLY {
		go func() {
			_ = x.raw.Read(func(uintptr) bool { x.queue.Notify(waitq.In | waitq.RdNorm | waitq.Hup); return false })
		}()
	}
	if acc != unix.O_RDONLY {
		go func() {
			_ = x.raw.Write(func(uintptr) bool { x.queue.Notify(waitq.Out | waitq.WrNorm | waitq.Err); return false })
		}()
	}
	return x, nil
}

// Release implements vfs.FileOps.
func (x *fifoFile) Release() { x.f.Close() }

// Queue implements vfs.Waitable.
func (x *fifoFile) Queue() *waitq.Queue { return &x.queue }

// Ready implements vfs.FileOps.
func (x *fifoFile) Ready(mask waitq.Mask) (ready waitq.Mask) {
	_ = x.raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: int16(mask)}}
		if n, err := unix.Poll(p, 0); err == nil && n > 0 {
			ready = waitq.Mask(uint16(p[0].Revents)) & (mask | waitq.Always)
		}
	})
	return ready
}

// fifoBuf is the capacity of a fifo.
const fifoBuf = 64 << 10

// Read implements vfs.Reader.
func (x *fifoFile) Read(c vfs.Caller, _ *vfs.File, dst *mem.UserBuf) (int, error) {
	if dst.Len() == 0 {
		return 0, nil
	}
	buf := ioBufs.Get().(*[]byte)
	defer ioBufs.Put(buf)
	n, err := x.call(func(fd int) (int, error) { return unix.Read(fd, (*buf)[:min(dst.Len(), fifoBuf)]) })
	if err != nil {
		return 0, err
	}
	return dst.CopyOut((*buf)[:n])
}

// call runs a call on the descriptor, again after EINTR.
func (x *fifoFile) call(fn func(fd int) (int, error)) (n int, err error) {
	cerr := x.raw.Control(func(fd uintptr) {
		for {
			if n, err = fn(int(fd)); err != unix.EINTR {
				return
			}
		}
	})
	if cerr != nil {
		return 0, unix.EBADF
	}
	return max(n, 0), err
}

// Write implements vfs.Writer.
func (x *fifoFile) Write(c vfs.Caller, _ *vfs.File, src *mem.UserBuf) (int, error) {
	buf := ioBufs.Get().(*[]byte)
	defer ioBufs.Put(buf)
	done := 0
	for src.Len() > 0 {
		// The bytes leave src only when the host has taken them.
		try := *src
		n, cerr := try.CopyIn((*buf)[:min(src.Len(), fifoBuf)])
		if n == 0 {
			return done, cerr
		}
		w, err := x.call(func(fd int) (int, error) { return unix.Write(fd, (*buf)[:n]) })
		src.Skip(w)
		done += w
		switch {
		case err != nil:
			return done, err
		case cerr != nil && w == n:
			return done, cerr
		}
	}
	return done, nil
}

// Ioctl implements vfs.Ioctler: FIONREAD.
func (x *fifoFile) Ioctl(c vfs.Caller, _ *vfs.File, m mem.Memory, cmd uint32, arg uint64) (uintptr, error) {
	if cmd != unix.TIOCINQ {
		return 0, unix.ENOTTY
	}
	n, err := x.call(func(fd int) (int, error) { return unix.IoctlGetInt(fd, unix.TIOCINQ) })
	if err != nil {
		return 0, err
	}
	_, err = m.CopyOut(arg, []byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)})
	return 0, err
}
