package mm

import (
	"golang.org/x/sys/unix"

	"runsc/sentry/arch"
	"runsc/sentry/mem"
	"runsc/sentry/platform"
)

var _ mem.Memory = (*MM)(nil)

// CopyIn copies guest memory at addr to dst.
func (mm *MM) CopyIn(dst []byte, addr uint64) (int, error) { return mm.copyIn(dst, addr, false) }

// CopyOut copies src to guest memory at addr.
func (mm *MM) CopyOut(addr uint64, src []byte) (int, error) { return mm.copyOut(addr, src, false) }

// ZeroOut clears n bytes of guest memory at addr.
func (mm *MM) ZeroOut(addr uint64, n int) (int, error) { return mm.zeroOut(addr, n, false) }

// Forced returns mm's memory for ptrace(2) and /proc/PID/mem, which may read
// and write whatever the protections say (FOLL_FORCE); a write to a private
// mapping makes a copy.
func (mm *MM) Forced() mem.Memory { return forced{mm} }

type forced struct{ mm *MM }

func (f forced) CopyIn(dst []byte, addr uint64) (int, error)  { return f.mm.copyIn(dst, addr, true) }
func (f forced) CopyOut(addr uint64, src []byte) (int, error) { return f.mm.copyOut(addr, src, true) }
func (f forced) ZeroOut(addr uint64, n int) (int, error)      { return f.mm.zeroOut(addr, n, true) }

func (mm *MM) copyIn(dst []byte, addr uint64, force bool) (int, error) {
	return mm.access(addr, len(dst), platform.Read, force, func(p *page, off uint64, lo, hi int) error {
		if p.frames {
			return mm.mf.ReadAt(dst[lo:hi], off)
		}
		return readHost(int(p.fd), dst[lo:hi], int64(off))
	})
}

func (mm *MM) copyOut(addr uint64, src []byte, force bool) (int, error) {
	return mm.access(addr, len(src), platform.Write, force, func(p *page, off uint64, lo, hi int) error {
		if p.frames {
			return mm.mf.WriteAt(src[lo:hi], off)
		}
		return writeHost(int(p.fd), src[lo:hi], int64(off))
	})
}

var zeros [16 << 10]byte

func (mm *MM) zeroOut(addr uint64, n int, force bool) (int, error) {
	if n < 0 {
		return 0, unix.EFAULT
	}
	return mm.access(addr, n, platform.Write, force, func(p *page, off uint64, lo, hi int) error {
		if p.frames {
			return mm.mf.Zero(mem.Range{Start: off, End: off + uint64(hi-lo)})
		}
		for lo < hi {
			k := min(hi-lo, len(zeros))
			if err := writeHost(int(p.fd), zeros[:k], int64(off)); err != nil {
				return err
			}
			lo, off = lo+k, off+uint64(k)
		}
		return nil
	})
}

// access calls fn for the pages of [addr, addr+n), which it makes present:
// off is the place of byte addr+lo in the page's file. It returns how many
// bytes fn handled, and EFAULT when that is less than n.
func (mm *MM) access(addr uint64, n int, access platform.Prot, force bool, fn func(p *page, off uint64, lo, hi int) error) (int, error) {
	done := 0
	for done < n {
		if addr+uint64(done) >= arch.GuestTop || addr+uint64(done) < addr {
			return done, unix.EFAULT
		}
		k, err := mm.accessPresent(addr+uint64(done), n-done, access, force, func(p *page, off uint64, lo, hi int) error {
			return fn(p, off, done+lo, done+hi)
		})
		done += k
		if err != nil {
			return done, unix.EFAULT
		}
		if done < n {
			at := addr + uint64(done)
			if at >= arch.GuestTop || at < addr {
				return done, unix.EFAULT
			}
			if err := mm.faultCopy(at, access, force); err != nil {
				return done, err
			}
		}
	}
	return done, nil
}

// accessPresent is access up to the first page that needs a fault.
func (mm *MM) accessPresent(addr uint64, n int, access platform.Prot, force bool, fn func(p *page, off uint64, lo, hi int) error) (int, error) {
	mm.mu.RLock()
	defer mm.mu.RUnlock()
	done := 0
	for done < n {
		at := addr + uint64(done)
		s := mm.vmas.Find(at)
		if s == nil || !permits(s.V, access, force) {
			break
		}
		p := mm.pages.Find(at)
		if p == nil || access&platform.Write != 0 && !p.V.writable(s.V) {
			break
		}
		k := int(min(p.End, s.End, at+uint64(n-done)) - at)
		if err := fn(&p.V, p.V.off+(at-p.Start), done, done+k); err != nil {
			return done, err
		}
		done += k
	}
	return done, nil
}

// readHost reads from a host file that may shrink at any time; what lies
// beyond its end inside the last page reads as zero, as in a mapping.
func readHost(fd int, p []byte, off int64) error {
	first := true
	for len(p) > 0 {
		n, err := unix.Pread(fd, p, off)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if n == 0 {
			if first && off&pageMask == 0 {
				return unix.EFAULT // wholly beyond the end: SIGBUS for a guest
			}
			if rest := -off & pageMask; int64(len(p)) > rest {
				clear(p[:rest])
				return unix.EFAULT
			}
			clear(p)
			return nil
		}
		first = false
		p, off = p[n:], off+int64(n)
	}
	return nil
}

// writeHost writes to a host file as a store through a mapping would: never
// beyond its end.
func writeHost(fd int, p []byte, off int64) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if off >= (st.Size+pageMask)&^pageMask {
		return unix.EFAULT
	}
	if off >= st.Size {
		return nil
	}
	if int64(len(p)) > st.Size-off {
		p = p[:st.Size-off]
	}
	for len(p) > 0 {
		n, err := unix.Pwrite(fd, p, off)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		p, off = p[n:], off+int64(n)
	}
	return nil
}
