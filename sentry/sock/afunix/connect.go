package afunix

import (
	"sync"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/sock"
	"runsc/sentry/vfs"
)

// maxBacklog is net.core.somaxconn.
const maxBacklog = 4096

// connectMu serializes connecting, so that the locks of two sockets can be
// taken in any order under it.
var connectMu sync.Mutex

// Listen implements sock.Socket.
func (s *Socket) Listen(c vfs.Caller, backlog int32) error {
	if err := s.listen(c, backlog); err != nil {
		return err
	}
	s.mu.Lock()
	f, n := s.hostEnd, s.backlog
	s.mu.Unlock()
	if f != nil {
		return s.listenHost(f, n)
	}
	return nil
}

func (s *Socket) listen(c vfs.Caller, backlog int32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.typ == unix.SOCK_DGRAM:
		return unix.EOPNOTSUPP
	case s.addr == nil || s.state == connected || s.state == closed:
		return unix.EINVAL
	}
	if backlog < 0 || backlog > maxBacklog {
		backlog = maxBacklog
	}
	s.state, s.backlog = listening, int(backlog)
	s.creds, s.hasCred = sock.CredsOf(c), true
	return nil
}

// Accept implements sock.Socket.
func (s *Socket) Accept(vfs.Caller) (sock.Socket, []byte, error) {
	s.mu.Lock()
	switch {
	case s.typ == unix.SOCK_DGRAM:
		s.mu.Unlock()
		return nil, nil, unix.EOPNOTSUPP
	case s.state != listening:
		s.mu.Unlock()
		return nil, nil, unix.EINVAL
	case len(s.pending) == 0:
		shut := s.shutRd
		s.mu.Unlock()
		if shut {
			return nil, nil, unix.EINVAL
		}
		return nil, nil, unix.EAGAIN
	}
	n := s.pending[0]
	s.pending = s.pending[1:]
	s.mu.Unlock()
	s.notify() // there is room for another
	addr, err := n.PeerAddr()
	if err != nil {
		addr = makeAddr("", false)
	}
	return n, addr, nil
}

// Connect implements sock.Socket.
func (s *Socket) Connect(c vfs.Caller, fs *vfs.FSContext, addr []byte) (*waitq.Queue, error) {
	if len(addr) >= familyLen && addr[0] == unix.AF_UNSPEC && addr[1] == 0 {
		return nil, s.disconnect()
	}
	other, err := find(c, fs, addr)
	if err == unix.ECONNREFUSED {
		return nil, s.connectHost(c, fs, addr)
	}
	if err != nil {
		return nil, err
	}
	if other.typ != s.typ {
		return nil, unix.EPROTOTYPE
	}
	connectMu.Lock()
	defer connectMu.Unlock()
	if s.typ == unix.SOCK_DGRAM {
		return nil, s.connectDatagram(other)
	}
	return s.connectStream(c, other)
}

// disconnect is connect(2) to AF_UNSPEC, which datagram sockets know.
func (s *Socket) disconnect() error {
	if s.typ != unix.SOCK_DGRAM {
		return unix.EINVAL
	}
	s.mu.Lock()
	s.peer = nil
	s.mu.Unlock()
	s.notify()
	return nil
}

func (s *Socket) connectDatagram(other *Socket) error {
	if other != s {
		other.mu.Lock()
		state, peer := other.state, other.peer
		other.mu.Unlock()
		if state == closed {
			return unix.ECONNREFUSED
		}
		if peer != nil && peer != s {
			return unix.EPERM // unix_may_send
		}
	}
	s.mu.Lock()
	s.peer = other
	s.mu.Unlock()
	s.notify()
	return nil
}

// connectStream puts a new socket, our peer, into the listener's queue.
func (s *Socket) connectStream(c vfs.Caller, l *Socket) (*waitq.Queue, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.state {
	case connected:
		return nil, unix.EISCONN
	case listening, closed:
		return nil, unix.EINVAL
	}
	if l == s {
		return nil, unix.ECONNREFUSED
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != listening || l.shutRd {
		return nil, unix.ECONNREFUSED
	}
	if len(l.pending) > l.backlog {
		return &l.queue, unix.EAGAIN
	}
	n := &Socket{
		typ: l.typ, opts: sock.NewOptions(), state: connected, peer: s,
		creds: sock.CredsOf(c), hasCred: true, addr: l.addr,
	}
	n.opts.Inherit(l.opts)
	s.peer, s.state, s.creds, s.hasCred = n, connected, l.creds, true
	l.pending = append(l.pending, n)
	l.queue.Notify(waitq.In | waitq.RdNorm)
	s.queue.Notify(waitq.Out | waitq.WrNorm)
	return nil, nil
}
