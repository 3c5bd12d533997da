package fsproto

import (
	"io"

	"golang.org/x/sys/unix"
)

// MaxPassed is how many descriptors a message may bring.
const MaxPassed = 2

// SendFiles writes one datagram of the file protocol; fds are borrowed.
func SendFiles(sock int, body []byte, fds ...int) error {
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	for {
		_, err := unix.SendmsgN(sock, body, oob, nil, unix.MSG_NOSIGNAL)
		if err != unix.EINTR {
			return err
		}
	}
}

// RecvFiles reads one datagram of the file protocol into buf and returns what
// came with it. io.EOF: the peer is gone.
func RecvFiles(sock int, buf []byte) (n int, fds []int, err error) {
	var space [64]byte
	oob := space[:unix.CmsgSpace(4*MaxPassed)]
	var oobn, flags int
	for {
		n, oobn, flags, _, err = unix.Recvmsg(sock, buf, oob, unix.MSG_CMSG_CLOEXEC)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return 0, nil, err
	}
	if oobn > 0 {
		fds = passed(oob[:oobn])
	}
	if n == 0 || flags&(unix.MSG_CTRUNC|unix.MSG_TRUNC) != 0 {
		CloseAll(fds)
		return 0, nil, io.EOF
	}
	return n, fds, nil
}

// passed returns the descriptors in control messages.
func passed(oob []byte) (fds []int) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range msgs {
		if got, err := unix.ParseUnixRights(&msgs[i]); err == nil {
			fds = append(fds, got...)
		}
	}
	return fds
}

// CloseAll closes descriptors.
func CloseAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}
