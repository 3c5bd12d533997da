package fsproto

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"runsc/pkg/hostfs"
)

// maxChannels bounds the calls that run at once.
const maxChannels = 8

// Files is the client of the file protocol: the backend of remote mode, and in
// direct mode what does the few things that the Sentry may not. A call takes
// one of a few sockets for as long as it runs; the gofer serves each by itself.
// When the gofer is gone everything is EIO.
type Files struct {
	free chan int // sockets; one is always there or in use
	dead atomic.Bool

	mu sync.Mutex
	// mu guards:
	made   int      // sockets in all
	closed []uint32 // references to let go with the next call
}

var _ hostfs.Backend = (*Files)(nil)

// NewFiles takes over the Sentry's end of the socket to the gofer.
func NewFiles(sock *os.File) (*Files, error) {
	fd, err := unix.FcntlInt(sock.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	sock.Close()
	if err != nil {
		return nil, fmt.Errorf("gofer socket: %w", err)
	}
	f := &Files{free: make(chan int, 2*maxChannels), made: 1}
	if err := f.add(fd); err != nil {
		return nil, fmt.Errorf("gofer socket: %w", err)
	}
	return f, nil
}

// add makes a socket one that calls can take.
func (f *Files) add(fd int) error {
	tv := unix.NsecToTimeval(callTimeout.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		unix.Close(fd)
		return err
	}
	f.free <- fd
	return nil
}

// Shut ends the connection: the sockets that no call uses at once, the others
// with their call.
func (f *Files) Shut() {
	f.dead.Store(true)
	for {
		select {
		case fd := <-f.free:
			if fd >= 0 {
				unix.Close(fd)
			}
		default:
			f.free <- -1 // for the next one who waits
			return
		}
	}
}

// put gives a socket back.
func (f *Files) put(fd int) {
	if f.dead.Load() {
		unix.Close(fd)
		return
	}
	f.free <- fd
}

// call is one exchange. Its fields are the message going out, then the answer.
type call struct {
	Encoder
	Decoder
	fds []int // to go with the message
	got int   // the descriptor that came, or -1
	buf []byte
}

var callPool = sync.Pool{New: func() any { return &call{buf: make([]byte, MaxFileMessage)} }}

// begin starts a message.
func (f *Files) begin(op uint8) *call {
	c := callPool.Get().(*call)
	c.Encoder.B, c.fds, c.got = c.Encoder.B[:0], c.fds[:0], -1
	c.Encoder.U8(op)
	f.mu.Lock()
	refs := f.closed
	if len(refs) > maxCloses {
		refs = refs[len(refs)-maxCloses:]
	}
	c.Encoder.U16(uint16(len(refs)))
	for _, r := range refs {
		c.Encoder.U32(r)
	}
	f.closed = f.closed[:len(f.closed)-len(refs)]
	f.mu.Unlock()
	return c
}

// maxCloses bounds the references that go with one call, flushCloses is how
// many wait for one.
const (
	maxCloses   = 1024
	flushCloses = 64
)

// target appends a target to the message.
func (c *call) target(t hostfs.Target) {
	if t.Data {
		c.Encoder.U8(targetFD)
		c.fds = append(c.fds, t.FD)
		return
	}
	c.Encoder.U8(targetRef)
	c.Encoder.U32(uint32(t.FD))
}

// end returns the buffers.
func (c *call) end() { callPool.Put(c) }

// exchange sends the message and reads the answer.
func (f *Files) exchange(c *call) error {
	if f.dead.Load() {
		return unix.EIO
	}
	sock, err := f.take()
	if err != nil {
		return err
	}
	var n int
	var got []int
	if len(c.Encoder.B) > MaxFileMessage {
		f.put(sock)
		return unix.E2BIG
	}
	if err = SendFiles(sock, c.Encoder.B, c.fds...); err == nil {
		n, got, err = RecvFiles(sock, c.buf)
	}
	if err != nil {
		// What was sent may be answered late: no socket can be used on.
		unix.Close(sock)
		f.Shut()
		return unix.EIO
	}
	f.put(sock)
	if len(got) > 1 {
		CloseAll(got[1:])
	}
	if len(got) > 0 {
		c.got = got[0]
	}
	c.Decoder = Decoder{B: c.buf[:n]}
	if e := c.Decoder.U32(); e != 0 || c.Bad {
		if c.got >= 0 {
			unix.Close(c.got)
			c.got = -1
		}
		if c.Bad {
			return unix.EIO
		}
		return unix.Errno(e)
	}
	return nil
}

// take returns a socket, a new one if all are in use and there may be more.
func (f *Files) take() (int, error) {
	select {
	case fd := <-f.free:
		return f.alive(fd)
	default:
	}
	f.mu.Lock()
	grow := f.made < maxChannels
	if grow {
		f.made++
	}
	f.mu.Unlock()
	fd, err := f.alive(<-f.free)
	if err != nil || !grow {
		return fd, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fd, nil
	}
	// The request for a socket is the one without an answer of its own.
	err = SendFiles(fd, []byte{FileChannel, 0, 0}, pair[1])
	unix.Close(pair[1])
	if err != nil {
		unix.Close(pair[0])
	} else {
		_ = f.add(pair[0])
	}
	return fd, nil
}

func (f *Files) alive(fd int) (int, error) {
	if fd < 0 || f.dead.Load() {
		if fd >= 0 {
			unix.Close(fd)
		}
		f.free <- -1 // for the next one who waits
		return -1, unix.EIO
	}
	return fd, nil
}

// simple makes a call without results.
func (f *Files) simple(c *call) error {
	defer c.end()
	return f.exchange(c)
}

// fd makes a call that answers with a descriptor.
func (f *Files) fd(c *call, stx *unix.Statx_t) (int, error) {
	defer c.end()
	if err := f.exchange(c); err != nil {
		return -1, err
	}
	if stx != nil {
		c.Decoder.Stat(stx)
	}
	if c.got < 0 || c.Bad {
		if c.got >= 0 {
			unix.Close(c.got)
		}
		return -1, unix.EIO
	}
	return c.got, nil
}

// Attach returns a reference to the root of a tree that the gofer holds, and
// whether that is a directory.
func (f *Files) Attach(container string, index int) (ref int, err error) {
	c := f.begin(FileAttach)
	defer c.end()
	c.Encoder.Str(container)
	c.Encoder.U64(uint64(index))
	if err := f.exchange(c); err != nil {
		return hostfs.NoRef, err
	}
	return c.ref()
}

// ref reads a reference from an answer.
func (c *call) ref() (int, error) {
	r := c.Decoder.U32()
	if c.Bad || int32(r) < 0 {
		return hostfs.NoRef, unix.EIO
	}
	return int(r), nil
}

// Close implements hostfs.Backend. The reference goes with the next call, or
// with others like it.
func (f *Files) Close(ref int) {
	f.mu.Lock()
	f.closed = append(f.closed, uint32(ref))
	flush := len(f.closed) >= flushCloses
	f.mu.Unlock()
	if flush {
		f.Flush()
	}
}

// Flush lets go what Close was told of.
func (f *Files) Flush() { _ = f.simple(f.begin(FileClose)) }

// Direct implements hostfs.Backend.
func (f *Files) Direct() bool { return false }
