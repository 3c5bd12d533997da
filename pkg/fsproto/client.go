package fsproto

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// RootfsIndex is the mount index of a container's root.
const RootfsIndex = -1

// callTimeout bounds a call, the start of the gofer process included.
const callTimeout = 20 * time.Second

// SocketPair returns the two ends of a connection: the client's for
// NewGoferClient, and the server's, which the gofer process inherits as
// GoferShimFD.
func SocketPair() (client, server *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "gofer-client"), os.NewFile(uintptr(fds[1]), "gofer-server"), nil
}

// client implements GoferClient. Calls are made one after the other.
type client struct {
	mu sync.Mutex
	// mu guards:
	conn  *Conn
	ready bool // the gofer's hello was read
	dead  error
}

// NewGoferClient takes over the shim's end of the socket. The gofer process
// need not run yet: the first call waits for it.
func NewGoferClient(sock *os.File) (GoferClient, error) {
	c := NewConn(sock)
	if err := c.SetTimeout(callTimeout); err != nil {
		c.Close()
		return nil, err
	}
	return &client{conn: c}, nil
}

// Close implements GoferClient.
func (c *client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead == nil {
		c.dead = errors.New("gofer connection closed")
		return c.conn.Close()
	}
	return nil
}

// AddMount implements GoferClient. It first makes the tree nosuid and nodev.
func (c *client) AddMount(containerID string, index int, tree *os.File, readonly bool) (root *os.File, err error) {
	if err := restrictTree(tree, readonly); err != nil {
		return nil, err
	}
	_, root, err = c.call(&Request{Op: OpAddMount, Container: containerID, Index: index, ReadOnly: readonly}, tree)
	if err == nil && root == nil {
		err = errors.New("gofer sent no descriptor")
	}
	if err != nil {
		return nil, fmt.Errorf("add mount %d of %s: %w", index, containerID, err)
	}
	return root, nil
}

// RemoveContainer implements GoferClient.
func (c *client) RemoveContainer(id string) error {
	if _, _, err := c.call(&Request{Op: OpRemoveContainer, Container: id}, nil); err != nil {
		return fmt.Errorf("remove mounts of %s: %w", id, err)
	}
	return nil
}

// call sends one request and waits for its answer.
func (c *client) call(req *Request, file *os.File) (*Response, *os.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead != nil {
		return nil, nil, c.dead
	}
	resp, got, err := c.exchangeLocked(req, file)
	if err != nil {
		c.dead = fmt.Errorf("gofer gone: %w", err)
		c.conn.Close()
		return nil, nil, c.dead
	}
	if resp.Errno != 0 || resp.Error != "" {
		closeFile(got)
		return nil, nil, &RemoteError{Errno: unix.Errno(resp.Errno), Message: resp.Error}
	}
	return resp, got, nil
}

func (c *client) exchangeLocked(req *Request, file *os.File) (*Response, *os.File, error) {
	if !c.ready {
		var hello Response
		f, err := c.conn.Recv(&hello)
		closeFile(f)
		if err != nil {
			return nil, nil, err
		}
		if !hello.Hello {
			return nil, nil, fmt.Errorf("set-up failed: %s", hello.Error)
		}
		c.ready = true
	}
	if err := c.conn.Send(req, file); err != nil {
		return nil, nil, err
	}
	var resp Response
	got, err := c.conn.Recv(&resp)
	if err != nil {
		return nil, nil, err
	}
	return &resp, got, nil
}

// RemoteError is a failure that the gofer reports. errors.Is finds the errno.
type RemoteError struct {
	Errno   unix.Errno
	Message string
}

// Error implements error.
func (e *RemoteError) Error() string {
	if e.Errno == 0 {
		return "gofer: " + e.Message
	}
	return "gofer: " + e.Message + ": " + e.Errno.Error()
}

// Unwrap returns the errno.
func (e *RemoteError) Unwrap() error {
	if e.Errno == 0 {
		return nil
	}
	return e.Errno
}
