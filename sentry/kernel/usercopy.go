package kernel

import (
	"bytes"

	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/sentry/arch"
	"runsc/sentry/mem"
)

// maxRW is what one read or write moves at most (MAX_RW_COUNT).
const maxRW = 0x7ffff000

// CopyIn fills dst from guest memory; EFAULT if any byte cannot be read. Own.
func (t *Task) CopyIn(addr uint64, dst []byte) error {
	if len(dst) == 0 {
		return nil
	}
	if t.mm == nil {
		return unix.EFAULT
	}
	_, err := t.mm.CopyIn(dst, addr)
	return err
}

// CopyOut writes src to guest memory; EFAULT if any byte cannot be written. Own.
func (t *Task) CopyOut(addr uint64, src []byte) error {
	if len(src) == 0 {
		return nil
	}
	if t.mm == nil {
		return unix.EFAULT
	}
	_, err := t.mm.CopyOut(addr, src)
	return err
}

// CopyInObj reads a flat structure (see abi.Bytes) from guest memory. Own.
func CopyInObj[T any](t *Task, addr uint64, p *T) error { return t.CopyIn(addr, abi.Bytes(p)) }

// CopyOutObj writes a flat structure to guest memory. Own.
func CopyOutObj[T any](t *Task, addr uint64, p *T) error { return t.CopyOut(addr, abi.Bytes(p)) }

// CopyInString reads a NUL-terminated string of less than max bytes;
// ENAMETOOLONG if there is no NUL among max bytes, EFAULT. Own.
func (t *Task) CopyInString(addr uint64, max int) (string, error) {
	s, ok, err := t.copyInCString(addr, max)
	if err == nil && !ok {
		return "", unix.ENAMETOOLONG
	}
	return s, err
}

// copyInCString reads up to max bytes, until a NUL; ok tells whether there was one.
func (t *Task) copyInCString(addr uint64, max int) (s string, ok bool, err error) {
	if t.mm == nil {
		return "", false, unix.EFAULT
	}
	var buf [256]byte
	out := buf[:0]
	for len(out) < max {
		// Never beyond the page: the next one may not exist.
		n := min(max-len(out), 4096-int(addr&4095), 256)
		at := len(out)
		out = append(out, make([]byte, n)...)
		k, err := t.mm.CopyIn(out[at:], addr)
		if i := bytes.IndexByte(out[at:at+k], 0); i >= 0 {
			return string(out[:at+i]), true, nil
		}
		if err != nil {
			return "", false, err
		}
		addr += uint64(n)
	}
	return string(out), false, nil
}

// CopyInPath reads a path name: EFAULT, or ENAMETOOLONG from PATH_MAX bytes
// on. It may be empty; that is for the walker to judge. Own.
func (t *Task) CopyInPath(addr uint64) (string, error) {
	return t.CopyInString(addr, unix.PathMax)
}

// UserBuf returns the buffer [addr, addr+n) of guest memory, cut to
// MAX_RW_COUNT; EFAULT if the range is not one of user addresses. What was
// through before the call was entered again is left out. Own.
func (t *Task) UserBuf(addr, n uint64) (mem.UserBuf, error) {
	if n > 1<<63-1 {
		return mem.UserBuf{}, unix.EINVAL
	}
	if t.mm == nil || addr+n < addr || addr+n > arch.GuestTop {
		return mem.UserBuf{}, unix.EFAULT
	}
	b := mem.NewUserBuf(t.mm, addr, int(min(n, maxRW)))
	b.Skip(t.reentry.part.done)
	return b, nil
}

// taskIO is the buffer of the read or write that the task carries out.
type taskIO struct{ buf mem.UserBuf }

// IOBuf is UserBuf in a place of the task's own, good until the next call, so
// that read and write need no memory of the heap. Own.
func (t *Task) IOBuf(addr, n uint64) (*mem.UserBuf, error) {
	b, err := t.UserBuf(addr, n)
	t.io.buf = b
	return &t.io.buf, err
}

// CopyInIovecs reads n struct iovec and returns the buffer they describe, cut
// to MAX_RW_COUNT: EINVAL for more than IOV_MAX or a negative length, EFAULT.
// What was through before the call was entered again is left out. Own.
func (t *Task) CopyInIovecs(addr, n uint64) (mem.UserBuf, error) {
	if n > 1024 { // UIO_MAXIOV
		return mem.UserBuf{}, unix.EINVAL
	}
	if t.mm == nil {
		return mem.UserBuf{}, unix.EFAULT
	}
	segs := make([]mem.Seg, n)
	if err := t.CopyIn(addr, abi.SliceBytes(segs)); err != nil {
		return mem.UserBuf{}, err
	}
	left := uint64(maxRW)
	for i := range segs {
		s := &segs[i]
		if s.Len > 1<<63-1 {
			return mem.UserBuf{}, unix.EINVAL
		}
		if s.Addr+s.Len < s.Addr || s.Addr+s.Len > arch.GuestTop {
			return mem.UserBuf{}, unix.EFAULT
		}
		s.Len = min(s.Len, left)
		left -= s.Len
	}
	b := mem.NewUserVec(t.mm, segs)
	b.Skip(t.reentry.part.done)
	return b, nil
}
