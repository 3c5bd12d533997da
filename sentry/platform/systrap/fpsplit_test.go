package systrap

import (
	"bytes"
	"encoding/binary"
	"testing"

	"runsc/sentry/platform"
)

func TestFPSplit(t *testing.T) {
	l := hostFPLayout()
	fp := make([]byte, l.bytes())
	for i := range fxReserved {
		fp[i] = byte(i)
	}
	binary.LittleEndian.PutUint32(fp[fxMXCSR:], 0x1f80)
	binary.LittleEndian.PutUint32(fp[fxMXCSRMask:], 0)
	if l.features != 0 {
		le := binary.LittleEndian
		le.PutUint32(fp[fxReserved:], magic1)
		le.PutUint32(fp[fxReserved+4:], uint32(l.bytes()))
		le.PutUint64(fp[fxReserved+8:], l.features)
		le.PutUint32(fp[fxReserved+16:], uint32(l.size))
		le.PutUint32(fp[l.size:], magic2)
		le.PutUint64(fp[xhdrBV:], l.features)
		for i := range 64 {
			if c := components()[i]; i >= 2 && l.features>>i&1 != 0 && i != 7 {
				for k := range c.size / 2 {
					fp[c.off+k] = byte(i)
				}
			}
		}
	}
	s, err := l.split(fp)
	if err != nil {
		t.Fatal(err)
	}
	got, err := l.join(s)
	if err != nil {
		t.Fatal(err)
	}
	if l.features != 0 {
		// A component of zeros is as good as one that is not in use.
		copy(fp[xhdrBV:xhdrBV+8], got[xhdrBV:xhdrBV+8])
	}
	if !bytes.Equal(got, fp) {
		t.Error("state differs")
	}
	if _, err := l.check(got); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(s *platform.FPState){
		"legacy":    func(s *platform.FPState) { s.Legacy = make([]byte, 465) },
		"lacking":   func(s *platform.FPState) { s.InUse |= 1 << 62 },
		"not there": func(s *platform.FPState) { s.Components = append(s.Components, platform.FPComponent{Bit: 61}) },
		"too long": func(s *platform.FPState) {
			s.InUse |= 4
			s.Components = []platform.FPComponent{{Bit: 2, Data: make([]byte, 4096)}}
		},
	} {
		s, _ := l.split(fp)
		if change(&s); l.features == 0 {
			continue
		}
		if _, err := l.join(s); err == nil {
			t.Error(name, " is accepted")
		}
	}
}
