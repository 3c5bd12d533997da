package fsproto

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Operations of requests.
const (
	OpAddMount        = "add-mount"        // from the shim, with the tree's descriptor
	OpRemoveContainer = "remove-container" // from the shim
)

// Request is one call to the gofer.
type Request struct {
	Op        string `json:"op"`
	Container string `json:"container,omitempty"`
	Index     int    `json:"index,omitempty"`
	ReadOnly  bool   `json:"readOnly,omitempty"`
}

// Response answers a Request.
type Response struct {
	// Errno is the error number of a failed call, 0 for success.
	Errno int `json:"errno,omitempty"`
	// Error says what failed, for logs.
	Error string `json:"error,omitempty"`
	// IsDir tells whether the root of an added mount is a directory.
	IsDir bool `json:"isDir,omitempty"`
	// Hello is set in the note that the gofer sends when it is ready.
	Hello bool `json:"hello,omitempty"`
}

// maxMessage bounds a datagram.
const maxMessage = 64 << 10

// Conn sends and receives datagrams of JSON with a descriptor.
type Conn struct {
	f *os.File
}

// NewConn takes over the socket f and puts it in blocking mode: calls are short
// and one at a time.
func NewConn(f *os.File) *Conn {
	f.Fd() // leaves non-blocking mode
	return &Conn{f: f}
}

// SetTimeout bounds each Recv; a peer that takes longer is an error.
func (c *Conn) SetTimeout(d time.Duration) error {
	tv := unix.NsecToTimeval(d.Nanoseconds())
	return c.control(func(fd int) error {
		return unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv)
	})
}

// Close closes the socket.
func (c *Conn) Close() error { return c.f.Close() }

// Send writes one message. The file, which may be nil, is borrowed.
func (c *Conn) Send(msg any, file *os.File) error {
	body, err := json.Marshal(msg)
	if err != nil {
		return err
	}
	if len(body) > maxMessage {
		return errors.New("gofer message too long")
	}
	var oob []byte
	if file != nil {
		oob = unix.UnixRights(int(file.Fd()))
	}
	return c.control(func(fd int) error {
		_, err := unix.SendmsgN(fd, body, oob, nil, unix.MSG_NOSIGNAL)
		return err
	})
}

// Recv reads one message into msg and returns the descriptor that came with
// it, or nil. It returns io.EOF when the peer is gone.
func (c *Conn) Recv(msg any) (*os.File, error) {
	buf := make([]byte, maxMessage)
	oob := make([]byte, unix.CmsgSpace(4*4))
	var n, oobn, flags int
	err := c.control(func(fd int) error {
		var err error
		n, oobn, flags, _, err = unix.Recvmsg(fd, buf, oob, unix.MSG_CMSG_CLOEXEC)
		return err
	})
	if err != nil {
		return nil, err
	}
	file, err := takeFile(oob[:oobn])
	if err != nil {
		return nil, err
	}
	if flags&(unix.MSG_CTRUNC|unix.MSG_TRUNC) != 0 {
		closeFile(file)
		return nil, errors.New("gofer message truncated")
	}
	if n == 0 {
		closeFile(file)
		return nil, io.EOF
	}
	if err := json.Unmarshal(buf[:n], msg); err != nil {
		closeFile(file)
		return nil, fmt.Errorf("gofer message: %w", err)
	}
	return file, nil
}

// control runs a socket call on the descriptor, again after EINTR.
func (c *Conn) control(call func(fd int) error) error {
	raw, err := c.f.SyscallConn()
	if err != nil {
		return err
	}
	var cerr error
	err = raw.Control(func(fd uintptr) {
		for {
			if cerr = call(int(fd)); cerr != unix.EINTR {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	return cerr
}

// takeFile returns the one descriptor in the control messages, or nil; more
// than one is an error.
func takeFile(oob []byte) (*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for i := range msgs {
		fds, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			continue
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "passed"))
		}
	}
	if len(files) > 1 {
		for _, f := range files {
			f.Close()
		}
		return nil, errors.New("gofer message with several descriptors")
	}
	if len(files) == 0 {
		return nil, nil
	}
	return files[0], nil
}

func closeFile(f *os.File) {
	if f != nil {
		f.Close()
	}
}
