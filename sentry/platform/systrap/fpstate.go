package systrap

import (
	"encoding/binary"
	"sync"

	"golang.org/x/sys/unix"
)

// Layout of the extended state in a signal frame (struct _fpstate and
// _xstate, arch/x86/include/uapi/asm/sigcontext.h).
const (
	fxSize        = 512
	fxMXCSR       = 24
	fxMXCSRMask   = 28
	fxReserved    = 464 // struct _fpx_sw_bytes
	xhdrBV        = 512 // xstate header
	xhdrSize      = 64
	xcompactBV    = 520
	magic1        = 0x46505853
	magic2        = 0x46505845
	featureLegacy = 3 // x87, SSE
	// featureUser are the components that a signal frame holds without
	// further permission: x87, SSE, AVX, MPX, AVX-512, PKRU.
	featureUser = 0x2ff
)

// fpLayout is what the host's signal frames can hold.
type fpLayout struct {
	features  uint64 // 0: no XSAVE, the legacy area only
	size      int    // of the area without magic2
	mxcsrMask uint32
}

// component is where a signal frame has one part of the state.
type component struct{ off, size uint32 }

// components asks the processor once: under a hypervisor each CPUID takes
// tens of microseconds.
var components = sync.OnceValue(func() *[64]component {
	t := new([64]component)
	for i := uint32(2); i < 64; i++ {
		if featureUser>>i&1 != 0 {
			t[i].size, t[i].off, _, _ = cpuid(0xd, i)
		}
	}
	return t
})

func hostFPLayout() fpLayout {
	l := fpLayout{features: xcr0() & featureUser, size: fxSize, mxcsrMask: 0xffff}
	if l.features == 0 {
		return l
	}
	l.size = fxSize + xhdrSize
	for i := uint32(2); i < 64; i++ {
		if l.features>>i&1 != 0 {
			c := components()[i]
			l.size = max(l.size, int(c.off+c.size))
		}
	}
	return l
}

// bytes is the length of a valid state.
func (l fpLayout) bytes() int {
	if l.features == 0 {
		return l.size
	}
	return l.size + 4
}

// check validates a state of unknown origin and returns it in the host's
// layout, in new memory.
func (l fpLayout) check(fp []byte) ([]byte, error) {
	le := binary.LittleEndian
	if len(fp) < fxSize {
		return nil, unix.EINVAL
	}
	out := make([]byte, l.bytes())
	copy(out, fp[:fxSize])
	mask := le.Uint32(out[fxMXCSRMask:])
	if le.Uint32(out[fxMXCSR:])&^l.mxcsrMask != 0 || (mask != 0 && le.Uint32(out[fxMXCSR:])&^mask != 0) {
		return nil, unix.EINVAL
	}
	clear(out[fxReserved:fxSize])
	if l.features == 0 {
		return out, nil
	}
	le.PutUint32(out[fxReserved:], magic1)
	le.PutUint32(out[fxReserved+4:], uint32(l.bytes()))
	le.PutUint64(out[fxReserved+8:], l.features)
	le.PutUint32(out[fxReserved+16:], uint32(l.size))
	le.PutUint32(out[l.size:], magic2)
	bv := uint64(featureLegacy)
	if le.Uint32(fp[fxReserved:]) == magic1 {
		size := int(le.Uint32(fp[fxReserved+16:]))
		has := le.Uint64(fp[fxReserved+8:])
		if size < fxSize+xhdrSize || size > l.size || len(fp) < size+4 || le.Uint32(fp[size:]) != magic2 {
			return nil, unix.EINVAL
		}
		bv = le.Uint64(fp[xhdrBV:])
		if bv&^has != 0 || bv&^l.features != 0 {
			return nil, unix.EINVAL
		}
		for _, b := range fp[xcompactBV : fxSize+xhdrSize] {
			if b != 0 {
				return nil, unix.EINVAL
			}
		}
		for i := uint32(2); i < 64; i++ {
			if bv>>i&1 == 0 {
				continue
			}
			off, n := components()[i].off, components()[i].size
			if int(off+n) > size {
				return nil, unix.EINVAL
			}
			copy(out[off:off+n], fp[off:off+n])
		}
	}
	le.PutUint64(out[xhdrBV:], bv)
	return out, nil
}

// capture copies the state that a signal frame points to, at offset at of a
// thread's signal stack. The guest can write it meanwhile; the copy is then
// checked like any other. It returns nil, the initial state, if it is not
// valid.
func (l fpLayout) capture(stack []byte, at int) []byte {
	if at < 0 || at+l.bytes() > len(stack) {
		return nil
	}
	fp := make([]byte, l.bytes())
	copy(fp, stack[at:])
	fp, err := l.check(fp)
	if err != nil {
		return nil
	}
	return fp
}
