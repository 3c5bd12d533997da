package controlapi

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// MaxFiles is the most descriptors one frame carries. Linux allows 253
// (SCM_MAX_FD).
const MaxFiles = 250

// A frame is a header, the method's name and the body.
//
//	offset  size
//	0       4     length of the body
//	4       2     length of the method
//	6       1     kind
//	7       1     number of descriptors
//	8       8     request id
const headerLen = 16

type kind uint8

const (
	kindRequest kind = 1
	kindResult  kind = 2
	kindError   kind = 3
	kindNote    kind = 4
)

// maxMethodLen bounds a method name.
const maxMethodLen = 64

// Limits on what a side accepts from its peer.
type limits struct {
	body  int // bytes of one frame's body
	files int // descriptors in one frame
	// requests is set on the side that serves calls.
	requests bool
}

// The Sentry takes large specs; the shim takes small answers from a process
// that may be in the guest's hands.
var (
	sentryLimits = limits{body: 32 << 20, files: MaxFiles, requests: true}
	shimLimits   = limits{body: 4 << 20, files: 4}
)

// frame is one message as read from the socket.
type frame struct {
	kind   kind
	id     uint64
	method string
	body   []byte
	files  []*os.File
}

func (f *frame) closeFiles() {
	for _, file := range f.files {
		file.Close()
	}
	f.files = nil
}

// Conn is one end of the control channel.
type Conn struct {
	file *os.File
	raw  syscall.RawConn
	lim  limits

	// wmu serialises frames on the socket.
	wmu sync.Mutex

	mu sync.Mutex
	// mu guards:
	nextID  uint64
	pending map[uint64]chan *frame
	err     error // set once the connection has ended

	done chan struct{}
}

// newConn takes over the socket f.
func newConn(f *os.File, lim limits) (*Conn, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	f.Close()
	// Non-blocking, so that reads wait in the poller and not in a thread.
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("control socket: %w", err)
	}
	nf := os.NewFile(uintptr(fd), "control")
	raw, err := nf.SyscallConn()
	if err != nil {
		nf.Close()
		return nil, err
	}
	return &Conn{file: nf, raw: raw, lim: lim, pending: map[uint64]chan *frame{}, done: make(chan struct{})}, nil
}

// Close ends the connection; calls in flight fail with ErrClosed.
func (c *Conn) Close() error {
	c.fail(ErrClosed)
	return nil
}

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

func (c *Conn) fail(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	pending := c.pending
	c.pending = nil
	c.mu.Unlock()
	for _, ch := range pending {
		close(ch)
	}
	close(c.done)
	c.file.Close()
}

// call sends a request and waits for its answer. The files are borrowed. The
// descriptors of the answer are the caller's to close.
func (c *Conn) call(ctx context.Context, method string, req, resp any, files []*os.File) ([]*os.File, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	ch := make(chan *frame, 1)
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return nil, ErrClosed
	}
	c.nextID++
	id := c.nextID
	c.pending[id] = ch
	c.mu.Unlock()

	if err := c.send(kindRequest, id, method, body, files); err != nil {
		c.forget(id)
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	select {
	case f, ok := <-ch:
		if !ok {
			return nil, ErrClosed
		}
		return decodeAnswer(f, resp)
	case <-ctx.Done():
		c.forget(id)
		// The answer may have come in between: do not leak its descriptors.
		select {
		case f, ok := <-ch:
			if ok {
				f.closeFiles()
			}
		default:
		}
		return nil, ctx.Err()
	}
}

func decodeAnswer(f *frame, resp any) ([]*os.File, error) {
	if f.kind == kindError {
		f.closeFiles()
		e := &Error{}
		if err := json.Unmarshal(f.body, e); err != nil {
			return nil, fmt.Errorf("control error: %w", err)
		}
		return nil, toWire(e)
	}
	if resp != nil {
		if err := json.Unmarshal(f.body, resp); err != nil {
			f.closeFiles()
			return nil, fmt.Errorf("control answer: %w", err)
		}
	}
	return f.files, nil
}

func (c *Conn) forget(id uint64) {
	c.mu.Lock()
	delete(c.pending, id)
	c.mu.Unlock()
}

// serve reads frames until the connection ends. Answers go to their callers,
// the rest to handle, which is called from this goroutine, in order.
func (c *Conn) serve(handle func(*frame)) error {
	var err error
	for {
		var f *frame
		if f, err = c.recv(); err != nil {
			break
		}
		switch f.kind {
		case kindResult, kindError:
			c.mu.Lock()
			ch := c.pending[f.id]
			delete(c.pending, f.id)
			if ch != nil {
				ch <- f // never blocks: one answer per id, and the channel holds one
			}
			c.mu.Unlock()
			if ch == nil {
				f.closeFiles()
			}
		case kindRequest:
			if !c.lim.requests {
				f.closeFiles()
				err = errors.New("control: unexpected request")
			} else {
				handle(f)
			}
		case kindNote:
			handle(f)
		default:
			f.closeFiles()
			err = fmt.Errorf("control: unknown frame kind %d", f.kind)
		}
		if err != nil {
			break
		}
	}
	c.mu.Lock()
	if c.err != nil || errors.Is(err, io.EOF) {
		err = nil // closed here, or by the peer between two frames
	}
	c.mu.Unlock()
	c.fail(ErrClosed)
	return err
}

// send writes one frame. The files are borrowed.
func (c *Conn) send(k kind, id uint64, method string, body []byte, files []*os.File) error {
	if len(files) > MaxFiles {
		return fmt.Errorf("control: %d descriptors in one message, at most %d are possible", len(files), MaxFiles)
	}
	buf := make([]byte, headerLen, headerLen+len(method)+len(body))
	binary.LittleEndian.PutUint32(buf[0:], uint32(len(body)))
	binary.LittleEndian.PutUint16(buf[4:], uint16(len(method)))
	buf[6] = byte(k)
	buf[7] = byte(len(files))
	binary.LittleEndian.PutUint64(buf[8:], id)
	buf = append(buf, method...)
	buf = append(buf, body...)
	var oob []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		oob = unix.UnixRights(fds...)
	}

	c.wmu.Lock()
	defer c.wmu.Unlock()
	for len(buf) > 0 {
		var n int
		var serr error
		err := c.raw.Write(func(fd uintptr) bool {
			n, serr = unix.SendmsgN(int(fd), buf, oob, nil, unix.MSG_NOSIGNAL)
			return serr != unix.EAGAIN && serr != unix.EINTR
		})
		if err == nil {
			err = serr
		}
		if err != nil {
			return fmt.Errorf("control send: %w", err)
		}
		buf, oob = buf[n:], nil
	}
	return nil
}

// recv reads one frame. Descriptors travel with its first byte.
func (c *Conn) recv() (*frame, error) {
	var hdr [headerLen]byte
	oob := make([]byte, unix.CmsgSpace(4*MaxFiles))
	f := &frame{}
	for got := 0; got < headerLen; {
		n, err := c.recvmsg(hdr[got:], oob, f)
		if err != nil {
			f.closeFiles()
			return nil, err
		}
		got += n
	}
	bodyLen := int(binary.LittleEndian.Uint32(hdr[0:]))
	methodLen := int(binary.LittleEndian.Uint16(hdr[4:]))
	f.kind = kind(hdr[6])
	f.id = binary.LittleEndian.Uint64(hdr[8:])
	if bodyLen > c.lim.body || methodLen > maxMethodLen || len(f.files) != int(hdr[7]) || len(f.files) > c.lim.files {
		f.closeFiles()
		return nil, fmt.Errorf("control: bad frame (body %d, method %d, descriptors %d of %d)", bodyLen, methodLen, len(f.files), hdr[7])
	}
	buf := make([]byte, methodLen+bodyLen)
	if _, err := io.ReadFull(c.file, buf); err != nil {
		f.closeFiles()
		return nil, err
	}
	f.method, f.body = string(buf[:methodLen]), buf[methodLen:]
	return f, nil
}

func (c *Conn) recvmsg(p, oob []byte, f *frame) (int, error) {
	var n, oobn, flags int
	var rerr error
	err := c.raw.Read(func(fd uintptr) bool {
		n, oobn, flags, _, rerr = unix.Recvmsg(int(fd), p, oob, unix.MSG_CMSG_CLOEXEC)
		return rerr != unix.EAGAIN && rerr != unix.EINTR
	})
	if err == nil {
		err = rerr
	}
	if err != nil {
		return 0, err
	}
	if oobn > 0 {
		if err := f.takeRights(oob[:oobn]); err != nil {
			return 0, err
		}
	}
	if flags&unix.MSG_CTRUNC != 0 {
		return 0, errors.New("control: descriptors lost (open file limit reached?)")
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// takeRights adds the descriptors of control messages to the frame.
func (f *frame) takeRights(oob []byte) error {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return err
	}
	for i := range msgs {
		fds, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			return err
		}
		for _, fd := range fds {
			f.files = append(f.files, os.NewFile(uintptr(fd), "passed"))
		}
	}
	return nil
}
