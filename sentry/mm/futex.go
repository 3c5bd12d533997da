package mm

import (
	"golang.org/x/sys/unix"

	"runsc/sentry/mem"
	"runsc/sentry/platform"
)

// FutexKey names a futex word: by address space for private memory, by file
// for shared memory. Keys are comparable.
type FutexKey struct {
	MM  *MM // nil for shared memory
	Obj any // mem.MapObject, nil for private memory
	Off uint64
}

// FutexKey returns the key of the word at addr. With private set
// (FUTEX_PRIVATE_FLAG) memory is not looked at. Errors: EINVAL when addr is not
// aligned, EFAULT.
func (mm *MM) FutexKey(addr uint64, private bool) (FutexKey, error) {
	if addr%4 != 0 {
		return FutexKey{}, unix.EINVAL
	}
	if private {
		return FutexKey{MM: mm, Off: addr}, nil
	}
	mm.mu.RLock()
	defer mm.mu.RUnlock()
	s := mm.vmas.Find(addr)
	if s == nil || s.V.prot == 0 {
		return FutexKey{}, unix.EFAULT
	}
	if s.V.shared {
		return FutexKey{Obj: s.V.obj, Off: s.V.off + (addr - s.Start)}, nil
	}
	return FutexKey{MM: mm, Off: addr}, nil
}

// LoadUint32 atomically loads the aligned word at addr.
func (mm *MM) LoadUint32(addr uint64) (uint32, error) {
	return mm.word(addr, platform.Read, mm.mf.LoadUint32,
		func(fd int, off int64) (uint32, error) { return mem.HostWord(fd, off, false, nil) })
}

// SwapUint32 atomically stores v at addr and returns what was there.
func (mm *MM) SwapUint32(addr uint64, v uint32) (uint32, error) {
	return mm.word(addr, platform.Write, func(off uint64) (uint32, error) { return mm.mf.SwapUint32(off, v) },
		func(fd int, off int64) (uint32, error) {
			return mem.HostWord(fd, off, true, func(uint32) (uint32, bool) { return v, true })
		})
}

// CompareAndSwapUint32 atomically stores v at addr if old is there. It
// returns what was there.
func (mm *MM) CompareAndSwapUint32(addr uint64, old, v uint32) (uint32, error) {
	return mm.word(addr, platform.Write, func(off uint64) (uint32, error) { return mm.mf.CompareAndSwapUint32(off, old, v) },
		func(fd int, off int64) (uint32, error) {
			return mem.HostWord(fd, off, true, func(cur uint32) (uint32, bool) { return v, cur == old })
		})
}

func (mm *MM) word(addr uint64, access platform.Prot, frame func(off uint64) (uint32, error), host func(fd int, off int64) (uint32, error)) (uint32, error) {
	if addr%4 != 0 {
		return 0, unix.EINVAL
	}
	var v uint32
	_, err := mm.access(addr, 4, access, false, func(p *page, off uint64, _, _ int) error {
		var err error
		if p.frames {
			v, err = frame(off)
			return err
		}
		v, err = host(int(p.fd), int64(off))
		return err
	})
	return v, err
}
