package systrap

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"runsc/sentry/platform"
)

// SplitFP implements platform.FPConverter.
func (p *Platform) SplitFP(fp []byte) (platform.FPState, error) { return hostFPLayout().split(fp) }

// JoinFP implements platform.FPConverter.
func (p *Platform) JoinFP(s platform.FPState) ([]byte, error) { return hostFPLayout().join(s) }

var errFP = errors.New("the floating point state is damaged")

func (l fpLayout) split(fp []byte) (platform.FPState, error) {
	if len(fp) != l.bytes() {
		return platform.FPState{}, errFP
	}
	s := platform.FPState{Legacy: append([]byte(nil), bytes.TrimRight(fp[:fxReserved], "\x00")...), InUse: featureLegacy}
	if l.features == 0 {
		return s, nil
	}
	s.InUse = binary.LittleEndian.Uint64(fp[xhdrBV:])
	for i := uint32(2); i < 64; i++ {
		if s.InUse>>i&1 == 0 {
			continue
		}
		c := components()[i]
		data := append([]byte(nil), bytes.TrimRight(fp[c.off:c.off+c.size], "\x00")...)
		if len(data) == 0 {
			s.InUse &^= 1 << i // zeros are the initial state of all of featureUser
			continue
		}
		s.Components = append(s.Components, platform.FPComponent{Bit: uint8(i), Data: data})
	}
	return s, nil
}

func (l fpLayout) join(s platform.FPState) ([]byte, error) {
	if len(s.Legacy) > fxReserved {
		return nil, errFP
	}
	fp := make([]byte, l.bytes())
	copy(fp, s.Legacy)
	if missing := s.InUse &^ (l.features | featureLegacy); missing != 0 {
		return nil, fmt.Errorf("this processor lacks the state components %#x that a thread of the image uses", missing)
	}
	if l.features == 0 {
		return fp, nil
	}
	le := binary.LittleEndian
	le.PutUint32(fp[fxReserved:], magic1)
	le.PutUint32(fp[fxReserved+4:], uint32(l.bytes()))
	le.PutUint64(fp[fxReserved+8:], l.features)
	le.PutUint32(fp[fxReserved+16:], uint32(l.size))
	le.PutUint32(fp[l.size:], magic2)
	le.PutUint64(fp[xhdrBV:], s.InUse)
	seen := uint64(0)
	for _, c := range s.Components {
		if c.Bit < 2 || c.Bit > 63 || s.InUse>>c.Bit&1 == 0 {
			return nil, errFP
		}
		at := components()[c.Bit]
		if int(at.size) < len(c.Data) {
			return nil, errFP
		}
		copy(fp[at.off:], c.Data)
		seen |= 1 << c.Bit
	}
	if s.InUse&^featureLegacy != seen {
		return nil, errFP
	}
	return fp, nil
}
