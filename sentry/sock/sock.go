package sock

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// Socket is a socket of any family. Addresses are sockaddr structures as the
// guest lays them out, family included.
type Socket interface {
	vfs.FileOps
	vfs.Waitable

	// Info returns family, type and protocol.
	Info() (family, typ, protocol int32)
	// Options are those of level SOL_SOCKET.
	Options() *Options

	Bind(c vfs.Caller, fs *vfs.FSContext, addr []byte) error
	Listen(c vfs.Caller, backlog int32) error
	// Accept returns a connection that has arrived, and its peer's address.
	Accept(c vfs.Caller) (Socket, []byte, error)
	// Connect may return EAGAIN with the queue to wait on (for Out).
	Connect(c vfs.Caller, fs *vfs.FSContext, addr []byte) (*waitq.Queue, error)
	Shutdown(how int32) error
	LocalAddr() []byte
	PeerAddr() ([]byte, error)

	// Send sends from src and takes over m.Files when it sent anything. A
	// count comes with EAGAIN when there is no room for the rest. flags are
	// MSG_*.
	Send(c vfs.Caller, fs *vfs.FSContext, src *mem.UserBuf, m *Message, flags int32) (int, error)
	// Recv receives into dst and fills m, whose Files then are the
	// caller's. m may be nil.
	Recv(c vfs.Caller, dst *mem.UserBuf, m *Message, flags int32) (int, error)

	// GetOption and SetOption are about other levels than SOL_SOCKET, and
	// about options of that level that Options does not have.
	GetOption(c vfs.Caller, level, name int32) ([]byte, error)
	SetOption(c vfs.Caller, level, name int32, value []byte) error
	// Pending is what FIONREAD tells, Unsent what SIOCOUTQ tells.
	Pending() int
	Unsent() int
	// TakeError returns and clears SO_ERROR; Accepting is SO_ACCEPTCONN.
	TakeError() unix.Errno
	Accepting() bool
}

// Creds are the credentials of SCM_CREDENTIALS and SO_PEERCRED, struct ucred.
type Creds struct {
	PID      int32
	UID, GID uint32
}

// CredsOf returns the caller's effective credentials.
func CredsOf(c vfs.Caller) Creds {
	cr := c.Cred()
	return Creds{c.TGID(), cr.EUID, cr.EGID}
}

// Message is what goes along with the bytes of a message.
type Message struct {
	// Addr is the destination, or the source; nil for none.
	Addr []byte
	// Files are those of SCM_RIGHTS; references.
	Files []*vfs.File
	// Creds are the sender's, of SCM_CREDENTIALS. When sending nil means
	// the caller's own.
	Creds *Creds
	// Flags are the MSG_* of a received message: MSG_TRUNC, MSG_EOR.
	Flags int32
	// Full is the length of the whole message, for MSG_TRUNC.
	Full int
}

// Drop releases the files.
func (m *Message) Drop() {
	for _, f := range m.Files {
		f.DecRef()
	}
	m.Files = nil
}

// Bytes is the struct ucred.
func (c Creds) Bytes() []byte {
	b := int32Bytes(c.PID)
	b = append(b, int32Bytes(int32(c.UID))...)
	return append(b, int32Bytes(int32(c.GID))...)
}
