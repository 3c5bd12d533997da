package afunix

import (
	"encoding/binary"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/mem"
	"runsc/sentry/sock"
	"runsc/sentry/vfs"
)

// state is how far a socket got.
type state uint8

const (
	idle state = iota
	listening
	connected // stream and seqpacket only; stays when the peer is gone
	closed
)

// Socket is an AF_UNIX socket, struct unix_sock.
type Socket struct {
	// immutable after New
	typ  int32         `save:"rec"`
	opts *sock.Options `save:"rec"`

	mu sync.Mutex `save:"none: not held at a stop"`
	// mu guards:
	state   state                `save:"rec"`
	inbox   []*message           `save:"rec"`
	bytes   int                  `save:"rebuilt"` // what the inbox takes
	eof     bool                 `save:"rec"`     // nothing more will arrive
	err     unix.Errno           `save:"rec"`
	shutRd  bool                 `save:"rec"`
	shutWr  bool                 `save:"rec"`
	peer    *Socket              `save:"rec"`
	gone    bool                 `save:"rec"` // the peer is closed
	creds   sock.Creds           `save:"rec"` // the peer's; a listener's own
	hasCred bool                 `save:"rec"`
	backlog int                  `save:"rec"`
	pending []*Socket            `save:"rec"`
	blocked map[*Socket]struct{} `save:"rec"` // senders that wait for room
	addr    []byte               `save:"rec"` // sockaddr, nil: not bound
	name    string               `save:"rec"` // abstract name in the table
	path    vfs.Path             `save:"rec"` // reference, of the node bound to
	// hostEnd is what the host's processes connect to; hostServed is set when
	// somebody accepts there.
	hostEnd    *os.File `save:"rebuilt"`
	hostServed bool     `save:"rebuilt"`

	queue waitq.Queue `save:"rebuilt"`
}

var (
	_ sock.Socket = (*Socket)(nil)
	_ vfs.Reader  = (*Socket)(nil)
	_ vfs.Writer  = (*Socket)(nil)
)

// New returns a socket of type unix.SOCK_STREAM, SOCK_DGRAM or SOCK_SEQPACKET;
// ESOCKTNOSUPPORT for others. SOCK_RAW is taken for SOCK_DGRAM.
func New(typ int32) (*Socket, error) {
	switch typ {
	case unix.SOCK_RAW:
		typ = unix.SOCK_DGRAM
	case unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_SEQPACKET:
	default:
		return nil, unix.ESOCKTNOSUPPORT
	}
	return &Socket{typ: typ, opts: sock.NewOptions()}, nil
}

// NewPair returns two sockets connected to each other (socketpair(2)).
func NewPair(c vfs.Caller, typ int32) (a, b *Socket, err error) {
	if a, err = New(typ); err != nil {
		return nil, nil, err
	}
	b, _ = New(typ)
	cr := sock.CredsOf(c)
	a.peer, b.peer = b, a
	for _, s := range []*Socket{a, b} {
		s.creds, s.hasCred = cr, true
		if s.typ != unix.SOCK_DGRAM {
			s.state = connected
		}
	}
	return a, b, nil
}

// Info implements sock.Socket.
func (s *Socket) Info() (family, typ, protocol int32) { return unix.AF_UNIX, s.typ, 0 }

// Options implements sock.Socket.
func (s *Socket) Options() *sock.Options { return s.opts }

// Queue implements vfs.Waitable.
func (s *Socket) Queue() *waitq.Queue { return &s.queue }

// notify tells the listeners of any change; they ask Ready for what it is.
func (s *Socket) notify() {
	s.queue.Notify(waitq.In | waitq.Out | waitq.RdNorm | waitq.WrNorm | waitq.RdHup | waitq.Hup | waitq.Err)
}

// Release implements vfs.FileOps.
func (s *Socket) Release() {
	s.mu.Lock()
	peer, pending, unread := s.peer, s.pending, len(s.inbox) > 0
	wasConnected := s.state == connected
	blocked := s.blocked
	s.state, s.pending, s.blocked = closed, nil, nil
	path, hostEnd := s.unbindLocked(), s.hostEnd
	s.hostEnd = nil
	s.mu.Unlock()
	if hostEnd != nil {
		hostEnd.Close()
	}
	s.purge()
	if path.Ok() {
		path.DecRef()
	}
	if wasConnected && peer != nil {
		peer.peerGone(unread)
	}
	for _, p := range pending {
		p.Release() // never accepted: the client sees a reset
	}
	wake(blocked)
	s.notify()
	collect()
}

// peerGone ends a connection from the other side.
func (s *Socket) peerGone(reset bool) {
	s.mu.Lock()
	s.gone, s.eof = true, true
	if reset {
		s.err = unix.ECONNRESET
	}
	s.mu.Unlock()
	s.notify()
}

func wake(set map[*Socket]struct{}) {
	for s := range set {
		s.notify()
	}
}

// Ready implements vfs.FileOps, as unix_poll and unix_dgram_poll do.
func (s *Socket) Ready(mask waitq.Mask) waitq.Mask {
	s.mu.Lock()
	var m waitq.Mask
	if s.err != 0 {
		m |= waitq.Err
	}
	if len(s.inbox) > 0 || len(s.pending) > 0 || s.eof || s.shutRd {
		m |= waitq.In | waitq.RdNorm
	}
	if s.eof || s.shutRd {
		m |= waitq.RdHup
	}
	stream := s.typ != unix.SOCK_DGRAM
	if s.gone || s.shutRd && s.shutWr || stream && s.state == idle {
		m |= waitq.Hup
	}
	peer, gone, listens := s.peer, s.gone, s.state == listening
	s.mu.Unlock()
	if listens {
		return m & (mask | waitq.Always)
	}
	if mask&(waitq.Out|waitq.WrNorm) != 0 && (peer == nil || gone || peer.hasRoom(s)) {
		m |= waitq.Out | waitq.WrNorm
	}
	return m & (mask | waitq.Always)
}

// Shutdown implements sock.Socket.
func (s *Socket) Shutdown(how int32) error {
	if how < unix.SHUT_RD || how > unix.SHUT_RDWR {
		return unix.EINVAL
	}
	s.mu.Lock()
	s.shutRd = s.shutRd || how != unix.SHUT_WR
	s.shutWr = s.shutWr || how != unix.SHUT_RD
	peer := s.peer
	tell := s.state == connected && peer != nil && how != unix.SHUT_RD
	blocked := s.blocked
	s.blocked = nil
	s.mu.Unlock()
	if tell {
		peer.mu.Lock()
		peer.eof = true
		peer.mu.Unlock()
	}
	if peer != nil {
		peer.notify()
	}
	wake(blocked)
	s.notify()
	return nil
}

// TakeError implements sock.Socket.
func (s *Socket) TakeError() unix.Errno {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.err
	s.err = 0
	return err
}

// Accepting implements sock.Socket.
func (s *Socket) Accepting() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state == listening
}

// Pending implements sock.Socket: a stream's bytes, a datagram's length.
func (s *Socket) Pending() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, m := range s.inbox {
		n += len(m.data) - m.off
		if s.typ != unix.SOCK_STREAM {
			break
		}
	}
	return n
}

// Unsent implements sock.Socket.
func (s *Socket) Unsent() int {
	s.mu.Lock()
	peer := s.peer
	s.mu.Unlock()
	if peer == nil {
		return 0
	}
	return peer.Pending()
}

// GetOption implements sock.Socket: SO_PEERCRED.
func (s *Socket) GetOption(_ vfs.Caller, level, name int32) ([]byte, error) {
	if level != unix.SOL_SOCKET {
		return nil, unix.EOPNOTSUPP
	}
	if name != unix.SO_PEERCRED {
		return nil, unix.ENOPROTOOPT
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	cr := sock.Creds{UID: ^uint32(0), GID: ^uint32(0)}
	if s.hasCred {
		cr = s.creds
	}
	return cr.Bytes(), nil
}

// SetOption implements sock.Socket.
func (s *Socket) SetOption(_ vfs.Caller, level, _ int32, _ []byte) error {
	if level != unix.SOL_SOCKET {
		return unix.EOPNOTSUPP
	}
	return unix.ENOPROTOOPT
}

// Read implements vfs.Reader.
func (s *Socket) Read(c vfs.Caller, _ *vfs.File, dst *mem.UserBuf) (int, error) {
	return s.Recv(c, dst, nil, 0)
}

// Write implements vfs.Writer.
func (s *Socket) Write(c vfs.Caller, _ *vfs.File, src *mem.UserBuf) (int, error) {
	return s.Send(c, nil, src, &sock.Message{}, 0)
}

// Ioctl implements vfs.Ioctler: FIONREAD and SIOCOUTQ.
func (s *Socket) Ioctl(_ vfs.Caller, _ *vfs.File, m mem.Memory, cmd uint32, arg uint64) (uintptr, error) {
	var n int
	switch cmd {
	case unix.TIOCINQ:
		n = s.Pending()
	case unix.TIOCOUTQ:
		n = s.Unsent()
	default:
		return 0, unix.ENOTTY
	}
	_, err := m.CopyOut(arg, binary.LittleEndian.AppendUint32(nil, uint32(n)))
	return 0, err
}
