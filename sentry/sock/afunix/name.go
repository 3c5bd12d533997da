package afunix

import (
	"bytes"
	"fmt"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"runsc/sentry/vfs"
)

const (
	familyLen  = 2
	maxAddrLen = familyLen + 108 // sizeof(struct sockaddr_un)
)

// names are the addresses in use.
var names struct {
	mu sync.Mutex
	// mu guards:
	abstract map[string]*Socket
	nodes    map[any]*Socket // by vfs.Node
	last     uint32          // autobind's last number
}

// parseAddr checks a sockaddr_un and splits it: abstract is set for a name
// that starts with NUL, which then is part of name. An empty name is that of
// autobind.
func parseAddr(addr []byte) (name string, abstract bool, err error) {
	if len(addr) < familyLen || len(addr) > maxAddrLen {
		return "", false, unix.EINVAL
	}
	if family := uint16(addr[0]) | uint16(addr[1])<<8; family != unix.AF_UNIX {
		return "", false, unix.EINVAL
	}
	p := addr[familyLen:]
	if len(p) > 0 && p[0] == 0 {
		return string(p), true, nil
	}
	if i := bytes.IndexByte(p, 0); i >= 0 {
		p = p[:i]
	}
	return string(p), false, nil
}

// makeAddr is the sockaddr_un of a name; a path gets its NUL.
func makeAddr(name string, abstract bool) []byte {
	b := append([]byte{unix.AF_UNIX, 0}, name...)
	if !abstract && name != "" {
		b = append(b, 0)
	}
	return b
}

// Bind implements sock.Socket. Errors: EINVAL if bound before, EADDRINUSE.
func (s *Socket) Bind(c vfs.Caller, fs *vfs.FSContext, addr []byte) error {
	name, abstract, err := parseAddr(addr)
	if err != nil {
		return err
	}
	s.mu.Lock()
	bound := s.addr != nil
	s.mu.Unlock()
	switch {
	case len(addr) == familyLen:
		return s.autobind()
	case name == "":
		return unix.EINVAL
	case bound && abstract:
		return unix.EINVAL
	case abstract:
		return s.bindAbstract(name)
	}
	path, err := vfs.BindSocketAt(c, vfs.At{FS: fs, Name: name}, 0o777)
	if err != nil {
		return err
	}
	if err := s.bindHost(path); err != nil {
		path.DecRef()
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.addr != nil || s.state == closed {
		// The name comes first (unix_bind_bsd), and goes again.
		_ = vfs.UnlinkAt(c, vfs.At{FS: fs, Name: name})
		path.DecRef()
		return unix.EINVAL
	}
	s.addr, s.path = makeAddr(name, false), path
	names.mu.Lock()
	defer names.mu.Unlock()
	if names.nodes == nil {
		names.nodes = make(map[any]*Socket)
	}
	names.nodes[vfs.Node(path.Inode())] = s
	return nil
}

func (s *Socket) bindAbstract(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.addr != nil || s.state == closed {
		return unix.EINVAL
	}
	names.mu.Lock()
	defer names.mu.Unlock()
	if names.abstract[name] != nil {
		return unix.EADDRINUSE
	}
	if names.abstract == nil {
		names.abstract = make(map[string]*Socket)
	}
	names.abstract[name] = s
	s.addr, s.name = makeAddr(name, true), name
	return nil
}

// autobind takes an abstract name of five hexadecimal digits (unix(7)).
func (s *Socket) autobind() error {
	for range 1 << 20 {
		names.mu.Lock()
		names.last++
		name := fmt.Sprintf("\x00%05x", names.last&0xfffff)
		names.mu.Unlock()
		s.mu.Lock()
		bound := s.addr != nil
		s.mu.Unlock()
		if bound {
			return nil
		}
		if err := s.bindAbstract(name); err != unix.EADDRINUSE {
			return err
		}
	}
	return unix.ENOSPC
}

// unbindLocked takes the socket out of the tables and returns the reference
// to its path; mu is held.
func (s *Socket) unbindLocked() vfs.Path {
	names.mu.Lock()
	defer names.mu.Unlock()
	if s.name != "" {
		delete(names.abstract, s.name)
	}
	path := s.path
	if path.Ok() && names.nodes[vfs.Node(path.Inode())] == s {
		delete(names.nodes, vfs.Node(path.Inode()))
	}
	s.name, s.path = "", vfs.Path{}
	return path
}

// find returns the socket bound to an address: ECONNREFUSED if there is none,
// and the errors of a path. It may be closed by the time it is used.
func find(c vfs.Caller, fs *vfs.FSContext, addr []byte) (*Socket, error) {
	name, abstract, err := parseAddr(addr)
	if err != nil {
		return nil, err
	}
	if abstract {
		names.mu.Lock()
		defer names.mu.Unlock()
		if s := names.abstract[name]; s != nil {
			return s, nil
		}
		return nil, unix.ECONNREFUSED
	}
	if fs == nil || strings.Trim(name, "\x00") == "" {
		return nil, unix.EINVAL
	}
	path, err := vfs.LookupAt(c, vfs.At{FS: fs, Name: name})
	if err != nil {
		return nil, err
	}
	defer path.DecRef()
	self := vfs.At{FS: fs, Dir: path, Flags: vfs.EmptyPath}
	if err := vfs.AccessAt(c, self, unix.W_OK, true); err != nil {
		return nil, err
	}
	names.mu.Lock()
	defer names.mu.Unlock()
	if s := names.nodes[vfs.Node(path.Inode())]; s != nil {
		return s, nil
	}
	return nil, unix.ECONNREFUSED
}

// LocalAddr implements sock.Socket.
func (s *Socket) LocalAddr() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.addr == nil {
		return makeAddr("", false)
	}
	return s.addr
}

// PeerAddr implements sock.Socket.
func (s *Socket) PeerAddr() ([]byte, error) {
	s.mu.Lock()
	peer := s.peer
	s.mu.Unlock()
	if peer == nil {
		return nil, unix.ENOTCONN
	}
	return peer.LocalAddr(), nil
}
