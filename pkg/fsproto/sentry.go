package fsproto

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// SentryClient is the Sentry's side of the connection: what its user namespace
// does not let it do on host files itself. Errors of its methods are errnos.
type SentryClient struct {
	mu sync.Mutex
	// mu guards:
	conn *Conn
	dead bool
}

// NewSentryClient takes over the Sentry's end of the socket.
func NewSentryClient(sock *os.File) (*SentryClient, error) {
	c := NewConn(sock)
	if err := c.SetTimeout(callTimeout); err != nil {
		c.Close()
		return nil, fmt.Errorf("gofer socket: %w", err)
	}
	return &SentryClient{conn: c}, nil
}

// Mknod makes a device node in the directory of an O_PATH descriptor, which is
// borrowed. EIO: the gofer is gone.
func (c *SentryClient) Mknod(dirfd int, name string, mode uint32, rdev uint64) error {
	fd, err := unix.FcntlInt(uintptr(dirfd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	dir := os.NewFile(uintptr(fd), "directory")
	defer dir.Close()
	return c.call(&Request{Op: OpMknod, Name: []byte(name), Mode: mode, Rdev: rdev}, dir)
}

func (c *SentryClient) call(req *Request, file *os.File) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return unix.EIO
	}
	err := c.conn.Send(req, file)
	var resp Response
	if err == nil {
		var got *os.File
		got, err = c.conn.Recv(&resp)
		closeFile(got)
	}
	switch {
	case err != nil:
		c.dead = true
		c.conn.Close()
		return unix.EIO
	case resp.Errno != 0:
		return unix.Errno(resp.Errno)
	case resp.Error != "":
		return unix.EIO
	}
	return nil
}

// ErrName is the error of a name that is not one path component.
var ErrName = errors.New("not a file name")

// CheckName returns the name in a request: one component that is neither "."
// nor "..".
func (r *Request) CheckName() (string, error) {
	name := string(r.Name)
	if name == "" || name == "." || name == ".." || len(name) > 255 {
		return "", ErrName
	}
	for i := range len(name) {
		if name[i] == '/' || name[i] == 0 {
			return "", ErrName
		}
	}
	return name, nil
}
