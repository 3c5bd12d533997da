package mem

import "golang.org/x/sys/unix"

// Memory is guest memory as the rest of the Sentry sees it: *mm.MM, or bytes
// of the Sentry itself. Copies may be partial: they return the number of
// bytes done and EFAULT when that is less than asked for.
type Memory interface {
	CopyIn(dst []byte, addr uint64) (int, error)
	CopyOut(addr uint64, src []byte) (int, error)
	ZeroOut(addr uint64, n int) (int, error)
}

// Seg is one range of an iovec.
type Seg struct {
	Addr, Len uint64
}

// UserBuf is a range (or vector of ranges) of memory that a read fills or a
// write drains, front to back. Pass it by pointer: copies advance it.
type UserBuf struct {
	m    Memory
	cur  Seg
	rest []Seg
	n    int // bytes left in all
}

// NewUserBuf returns the buffer [addr, addr+n) of m.
func NewUserBuf(m Memory, addr uint64, n int) UserBuf {
	return UserBuf{m: m, cur: Seg{addr, uint64(n)}, n: n}
}

// NewUserVec returns the concatenation of segs, whose total length the caller
// has checked to fit an int.
func NewUserVec(m Memory, segs []Seg) UserBuf {
	b := UserBuf{m: m, rest: segs}
	for _, s := range segs {
		b.n += int(s.Len)
	}
	return b
}

// KernelBuf returns a buffer over the Sentry's own bytes.
func KernelBuf(p []byte) UserBuf {
	return UserBuf{m: kernelMemory(p), cur: Seg{0, uint64(len(p))}, n: len(p)}
}

// Len is the number of bytes left.
func (b *UserBuf) Len() int { return b.n }

// Memory returns the memory that the buffer lies in.
func (b *UserBuf) Memory() Memory { return b.m }

// Front returns the current range (after advancing past empty ones).
func (b *UserBuf) Front() Seg {
	for b.cur.Len == 0 && len(b.rest) > 0 {
		b.cur, b.rest = b.rest[0], b.rest[1:]
	}
	return b.cur
}

// Skip advances over n bytes, at most Len.
func (b *UserBuf) Skip(n int) {
	for n > 0 && b.n > 0 {
		s := b.Front()
		k := min(uint64(n), s.Len)
		b.cur.Addr += k
		b.cur.Len -= k
		b.n -= int(k)
		n -= int(k)
	}
}

// CopyOut copies src to the front of the buffer and advances. It stops at the
// end of either; EFAULT with a short count when memory is not writable.
func (b *UserBuf) CopyOut(src []byte) (int, error) {
	done := 0
	for done < len(src) && b.n > 0 {
		s := b.Front()
		k := int(min(uint64(len(src)-done), s.Len))
		n, err := b.m.CopyOut(s.Addr, src[done:done+k])
		b.Skip(n)
		done += n
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// CopyIn fills dst from the front of the buffer and advances.
func (b *UserBuf) CopyIn(dst []byte) (int, error) {
	done := 0
	for done < len(dst) && b.n > 0 {
		s := b.Front()
		k := int(min(uint64(len(dst)-done), s.Len))
		n, err := b.m.CopyIn(dst[done:done+k], s.Addr)
		b.Skip(n)
		done += n
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// ZeroOut writes n zero bytes and advances.
func (b *UserBuf) ZeroOut(n int) (int, error) {
	done := 0
	for done < n && b.n > 0 {
		s := b.Front()
		k := int(min(uint64(n-done), s.Len))
		m, err := b.m.ZeroOut(s.Addr, k)
		b.Skip(m)
		done += m
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

type kernelMemory []byte

func (k kernelMemory) CopyIn(dst []byte, addr uint64) (int, error) {
	if addr > uint64(len(k)) {
		return 0, unix.EFAULT
	}
	n := copy(dst, k[addr:])
	if n < len(dst) {
		return n, unix.EFAULT
	}
	return n, nil
}

func (k kernelMemory) CopyOut(addr uint64, src []byte) (int, error) {
	if addr > uint64(len(k)) {
		return 0, unix.EFAULT
	}
	n := copy(k[addr:], src)
	if n < len(src) {
		return n, unix.EFAULT
	}
	return n, nil
}

func (k kernelMemory) ZeroOut(addr uint64, n int) (int, error) {
	if addr > uint64(len(k)) {
		return 0, unix.EFAULT
	}
	m := min(n, len(k)-int(addr))
	clear(k[addr : int(addr)+m])
	if m < n {
		return m, unix.EFAULT
	}
	return m, nil
}

// Truncate leaves at most n bytes in the buffer.
func (b *UserBuf) Truncate(n int) {
	if n >= b.n {
		return
	}
	b.n = n
	if uint64(n) <= b.cur.Len {
		b.cur.Len, b.rest = uint64(n), nil
		return
	}
	left := uint64(n) - b.cur.Len
	var rest []Seg // the caller's vector is not ours to change
	for _, s := range b.rest {
		s.Len = min(s.Len, left)
		left -= s.Len
		rest = append(rest, s)
		if left == 0 {
			break
		}
	}
	b.rest = rest
}
