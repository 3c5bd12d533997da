package afunix

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/mem"
	"runsc/sentry/sock"
	"runsc/sentry/vfs"
)

const (
	// maxQueued is net.unix.max_dgram_qlen: how many datagrams wait at a
	// receiver that is not connected to the sender.
	maxQueued = 10
	// chunk is how much of a stream one message holds.
	chunk = 32 << 10
	// overhead is what a message takes besides its bytes.
	overhead = 256
)

// message is a part of an inbox, struct sk_buff.
type message struct {
	data  []byte      `save:"rec"`
	off   int         `save:"none: what was received is left out"` // bytes of data that were received
	files []*vfs.File `save:"rec"`
	creds sock.Creds  `save:"rec"`
	from  []byte      `save:"rec"` // sockaddr
}

// hasRoom tells whether from may send something to s.
func (s *Socket) hasRoom(from *Socket) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.roomLocked(from) > 0 {
		return true
	}
	s.blockLocked(from) // whoever asks may wait for it
	return false
}

// roomLocked is how many bytes from may send now; mu is held.
func (s *Socket) roomLocked(from *Socket) int {
	if s.typ == unix.SOCK_DGRAM && s.peer != from && len(s.inbox) > maxQueued {
		return 0
	}
	return from.opts.SendBuffer() - s.bytes
}

// blockLocked remembers a sender that waits for room; mu is held.
func (s *Socket) blockLocked(from *Socket) {
	if s.blocked == nil {
		s.blocked = make(map[*Socket]struct{})
	}
	s.blocked[from] = struct{}{}
}

// Send implements sock.Socket.
func (s *Socket) Send(c vfs.Caller, fs *vfs.FSContext, src *mem.UserBuf, m *sock.Message, flags int32) (int, error) {
	if flags&unix.MSG_OOB != 0 {
		return 0, unix.EOPNOTSUPP
	}
	to, err := s.receiver(c, fs, m.Addr)
	if err != nil {
		return 0, err
	}
	msg := message{files: m.Files, creds: sock.CredsOf(c)}
	if m.Creds != nil {
		msg.creds = *m.Creds
	}
	s.mu.Lock()
	msg.from = s.addr
	s.mu.Unlock()
	if len(m.Files) > 0 {
		if crowded() {
			collect()
		}
		flightMu.Lock()
		defer flightMu.Unlock()
		if err := mayFlyLocked(m.Files); err != nil {
			return 0, err
		}
	}
	n, err := to.deliver(s, src, &msg)
	if n > 0 || err == nil {
		launchLocked(m.Files)
		m.Files = nil
	}
	to.queue.Notify(waitq.In | waitq.RdNorm)
	return n, err
}

// receiver returns the socket that a message goes to.
func (s *Socket) receiver(c vfs.Caller, fs *vfs.FSContext, addr []byte) (*Socket, error) {
	s.mu.Lock()
	peer, st, shut, err := s.peer, s.state, s.shutWr, s.err
	if err != 0 && s.typ == unix.SOCK_DGRAM {
		s.err = 0
	}
	s.mu.Unlock()
	switch {
	case s.typ == unix.SOCK_DGRAM && err != 0:
		return nil, err
	case s.typ != unix.SOCK_DGRAM && len(addr) > 0:
		if st == connected {
			return nil, unix.EISCONN
		}
		return nil, unix.EOPNOTSUPP
	case s.typ != unix.SOCK_DGRAM && st != connected:
		return nil, unix.ENOTCONN
	case shut:
		return nil, unix.EPIPE
	case len(addr) > 0:
		to, err := find(c, fs, addr)
		if err == nil && to.typ != s.typ {
			err = unix.EPROTOTYPE
		}
		return to, err
	case peer == nil:
		return nil, unix.ENOTCONN
	}
	return peer, nil
}

// deliver appends what from sends to the inbox of s.
func (s *Socket) deliver(from *Socket, src *mem.UserBuf, msg *message) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == closed || s.shutRd {
		if s.typ == unix.SOCK_DGRAM && s.state == closed {
			return 0, unix.ECONNREFUSED
		}
		return 0, unix.EPIPE
	}
	if s.typ == unix.SOCK_DGRAM && s.peer != nil && s.peer != from {
		return 0, unix.EPERM // unix_may_send
	}
	if s.typ == unix.SOCK_STREAM {
		return s.deliverStream(from, src, msg)
	}
	n := src.Len()
	if n > from.opts.SendBuffer()-overhead {
		return 0, unix.EMSGSIZE
	}
	if s.roomLocked(from) < n+overhead && s.bytes > 0 || s.roomLocked(from) <= 0 {
		s.blockLocked(from)
		return 0, unix.EAGAIN
	}
	data := make([]byte, n)
	if _, err := src.CopyIn(data); err != nil {
		return 0, err
	}
	msg.data = data
	s.pushLocked(msg)
	return n, nil
}

// deliverStream sends a stream's bytes as far as there is room. The files go
// with the first.
func (s *Socket) deliverStream(from *Socket, src *mem.UserBuf, msg *message) (int, error) {
	done := 0
	for src.Len() > 0 {
		room := s.roomLocked(from)
		if room <= 0 {
			s.blockLocked(from)
			return done, unix.EAGAIN
		}
		part := *msg
		if done > 0 {
			part.files = nil
		}
		part.data = make([]byte, min(src.Len(), room, chunk))
		n, err := src.CopyIn(part.data)
		part.data = part.data[:n]
		if n > 0 {
			s.pushLocked(&part)
			done += n
		}
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

func (s *Socket) pushLocked(m *message) {
	s.inbox = append(s.inbox, m)
	s.bytes += len(m.data) + overhead
}

// Recv implements sock.Socket.
func (s *Socket) Recv(_ vfs.Caller, dst *mem.UserBuf, m *sock.Message, flags int32) (int, error) {
	if flags&unix.MSG_OOB != 0 {
		return 0, unix.EOPNOTSUPP
	}
	if m == nil {
		m = &sock.Message{}
		defer m.Drop()
	}
	// Files leave an inbox under flightMu only, as the collector expects.
	s.mu.Lock()
	if len(s.inbox) > 0 && len(s.inbox[0].files) > 0 {
		s.mu.Unlock()
		flightMu.Lock()
		defer flightMu.Unlock()
		s.mu.Lock()
	}
	n, err := s.recvLocked(dst, m, flags)
	blocked, peer := s.blocked, s.peer
	s.blocked = nil
	s.mu.Unlock()
	if flags&unix.MSG_PEEK == 0 && err == nil {
		wake(blocked)
		if peer != nil {
			peer.queue.Notify(waitq.Out | waitq.WrNorm)
		}
	}
	return n, err
}

func (s *Socket) recvLocked(dst *mem.UserBuf, m *sock.Message, flags int32) (int, error) {
	if len(s.inbox) == 0 {
		return 0, s.emptyLocked()
	}
	if s.typ == unix.SOCK_STREAM {
		return s.recvStream(dst, m, flags)
	}
	msg := s.inbox[0]
	n, err := dst.CopyOut(msg.data[:min(len(msg.data), dst.Len())])
	m.Full = len(msg.data)
	if n < len(msg.data) {
		m.Flags |= unix.MSG_TRUNC
	}
	if s.typ == unix.SOCK_SEQPACKET {
		m.Flags |= unix.MSG_EOR
	}
	m.Addr = msg.from
	s.takeLocked(msg, m, flags)
	if flags&unix.MSG_PEEK == 0 {
		s.popLocked()
	}
	return n, err // the message is gone, as on Linux; the caller drops its files
}

// emptyLocked is what a receiver of an empty inbox gets.
func (s *Socket) emptyLocked() error {
	switch {
	case s.err != 0:
		err := s.err
		s.err = 0
		return err
	case s.shutRd || s.eof:
		return nil
	case s.typ != unix.SOCK_DGRAM && s.state != connected:
		if s.typ == unix.SOCK_SEQPACKET {
			return unix.ENOTCONN
		}
		return unix.EINVAL
	}
	return unix.EAGAIN
}

// recvStream copies out of as many messages as fit, but of no more than one
// with files or of different senders' credentials (unix(7)).
func (s *Socket) recvStream(dst *mem.UserBuf, m *sock.Message, flags int32) (int, error) {
	done := 0
	for i := 0; i < len(s.inbox) && dst.Len() > 0; {
		msg := s.inbox[i]
		if done > 0 && (len(msg.files) > 0 || m.Creds != nil && *m.Creds != msg.creds) {
			break
		}
		n, err := dst.CopyOut(msg.data[msg.off:min(len(msg.data), msg.off+dst.Len())])
		if n > 0 || len(msg.data) == msg.off {
			s.takeLocked(msg, m, flags)
		}
		done += n
		if flags&unix.MSG_PEEK != 0 {
			i++
		} else if msg.off += n; msg.off == len(msg.data) {
			s.popLocked()
		}
		if err != nil {
			if done == 0 {
				return 0, err
			}
			break
		}
		if len(m.Files) > 0 {
			break
		}
	}
	m.Full = done
	return done, nil
}

// takeLocked gives the receiver what goes along with a message. A peek gets
// new references to the files.
func (s *Socket) takeLocked(msg *message, m *sock.Message, flags int32) {
	cr := msg.creds
	m.Creds = &cr
	if len(msg.files) == 0 {
		return
	}
	if flags&unix.MSG_PEEK != 0 {
		for _, f := range msg.files {
			f.IncRef()
		}
		m.Files = append(m.Files, msg.files...)
		return
	}
	landLocked(msg.files)
	m.Files = append(m.Files, msg.files...)
	msg.files = nil
}

// popLocked removes the first message; its files are taken care of.
func (s *Socket) popLocked() {
	s.bytes -= len(s.inbox[0].data) + overhead
	s.inbox[0] = nil
	s.inbox = s.inbox[1:]
	if len(s.inbox) == 0 {
		s.inbox = nil
	}
}
