package systrap

import (
	"bytes"
	"encoding/binary"
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"

	"runsc/sentry/arch"
)

// blobEnd marks the end of the stub's code.
var blobEnd = []byte{0x0f, 0x0b, 0xde, 0xad, 0xbe, 0xef, 0x0f, 0x0b, 0x0b, 0x0b}

// stubBlobBytes returns the code of the stub as it lies in this program.
func stubBlobBytes() ([]byte, error) {
	// Invariant: the blob is one function of the text segment, shorter than
	// stubDataOff, and ends in blobEnd; text follows it.
	text := unsafe.Slice((*byte)(pointer(uint64(stubBlobAddr()))), stubDataOff)
	n := bytes.Index(text, blobEnd)
	if n < 0 {
		return nil, errors.New("systrap: stub code has no end")
	}
	return text[:n], nil
}

// region is the stub region while it is mapped in the Sentry, which is until
// the first stub has been cloned.
type region struct {
	base uint64
}

// newRegion finds a place for the stub region that is free in this process
// and writes code and data to it.
func newRegion(ctlFD int) (*region, error) {
	blob, err := stubBlobBytes()
	if err != nil {
		return nil, err
	}
	// Keep away from the stack, which may grow.
	const guard = 64 << 20
	const flags = unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_NORESERVE | unix.MAP_FIXED_NOREPLACE
	for base := uint64(arch.GuestTop); base+stubSize+guard < hostTop; base += stubSize {
		p, err := unix.MmapPtr(-1, 0, pointer(base), stubSize+guard, unix.PROT_NONE, flags)
		if err != nil {
			continue
		}
		if uint64(uintptr(p)) != base { // a kernel that ignores NOREPLACE
			unix.MunmapPtr(p, stubSize+guard)
			continue
		}
		unix.MunmapPtr(unsafe.Add(p, stubSize), guard)
		r := &region{base: base}
		if err := r.fill(p, blob, ctlFD); err != nil {
			r.unmap()
			return nil, err
		}
		return r, nil
	}
	return nil, errors.New("systrap: no free address range for the stub")
}

func (r *region) fill(p unsafe.Pointer, blob []byte, ctlFD int) error {
	if err := protect(p, stubCodeSize, unix.PROT_READ|unix.PROT_WRITE); err != nil {
		return err
	}
	mem := unsafe.Slice((*byte)(p), stubCodeSize)
	copy(mem, blob)
	data := mem[stubDataOff:]
	le := binary.LittleEndian
	// struct sigaction: handler, flags, restorer, mask.
	const saSiginfo, saOnstack, saRestorer = 0x4, 0x08000000, 0x04000000
	le.PutUint64(data[dataHandler:], r.base+handlerEntry)
	le.PutUint64(data[dataHandler+8:], saSiginfo|saOnstack|saRestorer)
	le.PutUint64(data[dataHandler+16:], r.base+handlerEntry) // never returned to
	le.PutUint64(data[dataHandler+24:], ^uint64(0))
	le.PutUint32(data[dataCapHeader:], unix.LINUX_CAPABILITY_VERSION_3)
	off := dataFilters
	put := func(at int, prog []unix.SockFilter) {
		le.PutUint16(data[at:], uint16(len(prog)))
		le.PutUint64(data[at+8:], r.base+stubDataOff+uint64(off))
		for _, f := range prog {
			le.PutUint16(data[off:], f.Code)
			data[off+2], data[off+3] = f.Jt, f.Jf
			le.PutUint32(data[off+4:], f.K)
			off += 8
		}
	}
	put(dataProgLeader, compileFilter(r.base, leaderRules(ctlFD)))
	put(dataProgGuest, compileFilter(r.base, guestRules()))
	return protect(p, stubCodeSize, unix.PROT_READ|unix.PROT_EXEC)
}

// pointer returns addr as a pointer to memory that the Go runtime does not
// manage.
func pointer(addr uint64) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

func protect(p unsafe.Pointer, n int, prot int) error {
	return unix.Mprotect(unsafe.Slice((*byte)(p), n), prot)
}

func (r *region) unmap() {
	unix.MunmapPtr(pointer(r.base), stubSize)
}
