package syscalls

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/pkg/abi/linux"
	"runsc/pkg/waitq"
	"runsc/sentry/errs"
	"runsc/sentry/kernel"
	"runsc/sentry/mem"
	"runsc/sentry/sock"
	"runsc/sentry/vfs"
)

// sysRecvfrom implements recvfrom(2).
func sysRecvfrom(t *kernel.Task, a Args) (uintptr, error) {
	dst, err := t.UserBuf(a.Addr(1), a.Size(2))
	if err != nil {
		return 0, err
	}
	s, f, err := getSocket(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	var m sock.Message
	n, err := receive(t, s, f, &dst, &m, a.Int(3))
	m.Drop()
	if err == nil && a.Addr(4) != 0 {
		err = copyOutSockaddr(t, m.Addr, a.Addr(4), a.Addr(5))
	}
	return n, err
}

// receive receives a message, waiting for one unless told not to. With
// MSG_TRUNC the result is the message's own length.
func receive(t *kernel.Task, s sock.Socket, f *vfs.File, dst *mem.UserBuf, m *sock.Message, flags int32) (uintptr, error) {
	if flags&unix.MSG_ERRQUEUE != 0 {
		return 0, unix.EAGAIN
	}
	nonblock := f.NonBlocking() || flags&unix.MSG_DONTWAIT != 0
	_, timeout := s.Options().Timeouts()
	_, typ, _ := s.Info()
	all := flags&unix.MSG_WAITALL != 0 && typ == unix.SOCK_STREAM && flags&unix.MSG_PEEK == 0
	done := 0
	err := retry(t, s.Queue(), waitq.In|waitq.RdHup, nonblock, timeout, func() error {
		n, err := s.Recv(t, dst, m, flags)
		done += n
		if err == nil && all && n > 0 && dst.Len() > 0 && len(m.Files) == 0 {
			return unix.EAGAIN
		}
		return err
	})
	if err == errs.ERESTARTCKPT {
		t.AddReentryDone(done)
		return 0, err
	}
	if done += t.ReentryDone(); done > 0 {
		err = nil
	}
	if err != nil {
		return 0, err
	}
	if flags&unix.MSG_TRUNC != 0 && typ != unix.SOCK_STREAM {
		return uintptr(m.Full), nil
	}
	return uintptr(done), nil
}

// sysRecvmsg implements recvmsg(2).
func sysRecvmsg(t *kernel.Task, a Args) (uintptr, error) {
	s, f, err := getSocket(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	return recvmsg(t, s, f, a.Addr(1), a.Int(2))
}

func recvmsg(t *kernel.Task, s sock.Socket, f *vfs.File, addr uint64, flags int32) (uintptr, error) {
	h, buf, err := copyInMsghdr(t, addr)
	if err != nil {
		return 0, err
	}
	var m sock.Message
	defer m.Drop()
	n, err := receive(t, s, f, &buf, &m, flags)
	if err != nil {
		return 0, err
	}
	if h.Name != 0 {
		if err := t.CopyOut(h.Name, m.Addr[:min(len(m.Addr), int(h.Namelen))]); err != nil {
			return 0, err
		}
		h.Namelen = uint32(len(m.Addr))
	}
	h.Flags = m.Flags | flags&unix.MSG_CMSG_CLOEXEC
	w := controlWriter{t: t, at: h.Control, room: int(min(h.Controllen, controlMax))}
	w.credentials(s, &m)
	w.rights(&m, flags&unix.MSG_CMSG_CLOEXEC != 0)
	if w.err != nil {
		return 0, w.err
	}
	if w.cut {
		h.Flags |= unix.MSG_CTRUNC
	}
	h.Controllen = w.at - h.Control
	return n, t.CopyOut(addr, abi.Bytes(&h))
}

// controlWriter lays out ancillary data in the receiver's buffer (put_cmsg).
type controlWriter struct {
	t    *kernel.Task
	at   uint64
	room int
	cut  bool // something did not fit
	err  error
}

// put writes one header and its data, which fit.
func (w *controlWriter) put(typ int32, data []byte) {
	c := linux.Cmsghdr{Len: uint64(cmsgHdrLen + len(data)), Level: unix.SOL_SOCKET, Type: typ}
	b := append(append([]byte(nil), abi.Bytes(&c)...), data...)
	if w.err = w.t.CopyOut(w.at, b); w.err != nil {
		return
	}
	n := min((len(b)+7)&^7, w.room)
	w.at += uint64(n)
	w.room -= n
}

// credentials adds SCM_CREDENTIALS if the socket asks for them.
func (w *controlWriter) credentials(s sock.Socket, m *sock.Message) {
	if m.Creds == nil || !s.Options().Flag(unix.SO_PASSCRED) {
		return
	}
	data := m.Creds.Bytes()
	if w.room < cmsgHdrLen+len(data) {
		w.cut = true
		return
	}
	w.put(unix.SCM_CREDENTIALS, data)
}

// rights installs the files and adds SCM_RIGHTS, as many as fit; the rest is
// dropped (scm_detach_fds).
func (w *controlWriter) rights(m *sock.Message, cloexec bool) {
	if len(m.Files) == 0 || w.err != nil {
		return
	}
	fit := min(len(m.Files), max(w.room-cmsgHdrLen, 0)/4)
	var fds []int32
	for len(fds) < fit {
		fd, err := w.t.Files().Install(w.t, m.Files[0], 0, cloexec)
		if err != nil {
			break
		}
		m.Files = m.Files[1:]
		fds = append(fds, fd)
	}
	w.cut = w.cut || len(m.Files) > 0
	if len(fds) > 0 {
		w.put(unix.SCM_RIGHTS, abi.SliceBytes(fds))
	}
}

// sysRecvmmsg implements recvmmsg(2). The timeout is looked at after each
// message, as on Linux (recvmmsg(2), BUGS).
func sysRecvmmsg(t *kernel.Task, a Args) (uintptr, error) {
	deadline, err := copyInDeadline(t, a.Addr(4))
	if err != nil {
		return 0, err
	}
	s, f, err := getSocket(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	n, flags := uint64(min(a.Uint(2), msgMax)), a.Int(3)
	const size = 64 // struct mmsghdr
	i := uint64(t.ReentryCount())
	if i > 0 && flags&unix.MSG_WAITFORONE != 0 {
		flags |= unix.MSG_DONTWAIT
	}
	for ; i < n; i++ {
		at := a.Addr(1) + i*size
		k, err := recvmsg(t, s, f, at, flags&^unix.MSG_WAITFORONE)
		if err == errs.ERESTARTCKPT {
			return 0, err
		}
		t.SetReentryCount(int(i + 1))
		if err == nil {
			got := uint32(k)
			err = t.CopyOut(at+size-8, abi.Bytes(&got))
		}
		if err != nil {
			if i > 0 {
				return uintptr(i), nil
			}
			return 0, err
		}
		if flags&unix.MSG_WAITFORONE != 0 {
			flags |= unix.MSG_DONTWAIT
		}
		if deadline != 0 && t.Now() >= deadline {
			return uintptr(i + 1), nil
		}
	}
	return uintptr(n), nil
}
