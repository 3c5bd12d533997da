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

const (
	// msgMax is how many messages sendmmsg and recvmmsg deal with at most
	// (UIO_MAXIOV); controlMax bounds ancillary data (optmem_max).
	msgMax     = 1024
	controlMax = 20480

	cmsgHdrLen = 16
)

// sysSendto implements sendto(2).
func sysSendto(t *kernel.Task, a Args) (uintptr, error) {
	src, err := t.UserBuf(a.Addr(1), a.Size(2))
	if err != nil {
		return 0, err
	}
	s, f, err := getSocket(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	var m sock.Message
	if a.Addr(4) != 0 {
		if m.Addr, err = copyInSockaddr(t, a.Addr(4), a.Int(5)); err != nil {
			return 0, err
		}
	}
	return send(t, s, f, &src, &m, a.Int(3))
}

// send sends a message, waiting for room unless told not to.
func send(t *kernel.Task, s sock.Socket, f *vfs.File, src *mem.UserBuf, m *sock.Message, flags int32) (uintptr, error) {
	nonblock := f.NonBlocking() || flags&unix.MSG_DONTWAIT != 0
	timeout, _ := s.Options().Timeouts()
	n := 0
	err := retry(t, s.Queue(), waitq.Out, nonblock, timeout, func() error {
		k, err := s.Send(t, t.FS(), src, m, flags)
		n += k
		return err
	})
	m.Drop()
	if err == unix.EPIPE && flags&unix.MSG_NOSIGNAL != 0 {
		if n += t.ReentryDone(); n > 0 {
			return uintptr(n), nil
		}
		return 0, err
	}
	return ioResult(t, n, err)
}

// sysSendmsg implements sendmsg(2).
func sysSendmsg(t *kernel.Task, a Args) (uintptr, error) {
	s, f, err := getSocket(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	return sendmsg(t, s, f, a.Addr(1), a.Int(2))
}

func sendmsg(t *kernel.Task, s sock.Socket, f *vfs.File, addr uint64, flags int32) (uintptr, error) {
	h, buf, err := copyInMsghdr(t, addr)
	if err != nil {
		return 0, err
	}
	var m sock.Message
	if h.Name != 0 && h.Namelen != 0 {
		if m.Addr, err = copyInSockaddr(t, h.Name, int32(min(h.Namelen, sockaddrMax))); err != nil {
			return 0, err
		}
	}
	if h.Control != 0 && h.Controllen != 0 && t.ReentryDone() == 0 {
		if err := copyInControl(t, &h, &m); err != nil {
			m.Drop()
			return 0, err
		}
	}
	return send(t, s, f, &buf, &m, flags)
}

// copyInMsghdr reads a struct msghdr and the buffer it describes.
func copyInMsghdr(t *kernel.Task, addr uint64) (h linux.Msghdr, buf mem.UserBuf, err error) {
	if err := t.CopyIn(addr, abi.Bytes(&h)); err != nil {
		return h, buf, err
	}
	if int32(h.Namelen) < 0 {
		return h, buf, unix.EINVAL
	}
	if h.Iovlen > linux.IOV_MAX {
		return h, buf, unix.EMSGSIZE
	}
	buf, err = t.CopyInIovecs(h.Iov, h.Iovlen)
	return h, buf, err
}

// copyInControl reads ancillary data to send (__scm_send).
func copyInControl(t *kernel.Task, h *linux.Msghdr, m *sock.Message) error {
	if h.Controllen > controlMax {
		return unix.ENOBUFS
	}
	b := make([]byte, h.Controllen)
	if err := t.CopyIn(h.Control, b); err != nil {
		return err
	}
	for len(b) >= cmsgHdrLen {
		var c linux.Cmsghdr
		copy(abi.Bytes(&c), b)
		if c.Len < cmsgHdrLen || c.Len > uint64(len(b)) {
			return unix.EINVAL
		}
		data := b[cmsgHdrLen:c.Len]
		if c.Level == unix.SOL_SOCKET {
			if err := addControl(t, c.Type, data, m); err != nil {
				return err
			}
		}
		b = b[min(len(b), int(c.Len+7)&^7):]
	}
	return nil
}

func addControl(t *kernel.Task, typ int32, data []byte, m *sock.Message) error {
	switch typ {
	case unix.SCM_RIGHTS:
		if len(data)/4+len(m.Files) > linux.SCM_MAX_FD {
			return unix.EINVAL
		}
		for ; len(data) >= 4; data = data[4:] {
			var fd int32
			copy(abi.Bytes(&fd), data)
			f, err := t.Files().Get(fd)
			if err != nil {
				return err
			}
			m.Files = append(m.Files, f)
		}
		return nil
	case unix.SCM_CREDENTIALS:
		if len(data) != 12 {
			return unix.EINVAL
		}
		var cr sock.Creds
		copy(abi.Bytes(&cr), data)
		m.Creds = &cr
		return checkCreds(t, cr)
	}
	return unix.EINVAL
}

// checkCreds lets a task claim its own ids only, without capabilities
// (scm_check_creds).
func checkCreds(t *kernel.Task, cr sock.Creds) error {
	own := t.Cred()
	pid := cr.PID == t.TGID() || own.Has(unix.CAP_SYS_ADMIN)
	uid := cr.UID == own.UID || cr.UID == own.EUID || cr.UID == own.SUID || own.Has(unix.CAP_SETUID)
	gid := cr.GID == own.GID || cr.GID == own.EGID || cr.GID == own.SGID || own.Has(unix.CAP_SETGID)
	if !pid || !uid || !gid {
		return unix.EPERM
	}
	return nil
}

// sysSendmmsg implements sendmmsg(2).
func sysSendmmsg(t *kernel.Task, a Args) (uintptr, error) {
	s, f, err := getSocket(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	n := uint64(min(a.Uint(2), msgMax))
	const size = 64 // struct mmsghdr
	for i := uint64(t.ReentryCount()); i < n; i++ {
		at := a.Addr(1) + i*size
		k, err := sendmsg(t, s, f, at, a.Int(3))
		if err == errs.ERESTARTCKPT {
			return 0, err
		}
		t.SetReentryCount(int(i + 1))
		if err == nil {
			sent := uint32(k)
			err = t.CopyOut(at+size-8, abi.Bytes(&sent))
		}
		if err != nil {
			if i > 0 {
				return uintptr(i), nil
			}
			return 0, err
		}
	}
	return uintptr(n), nil
}
