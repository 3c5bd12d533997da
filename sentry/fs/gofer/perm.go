package gofer

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
)

// perm is a keyed bijection on the numbers of an even count of bits: a
// balanced Feistel network whose round function is SipHash-1-3 of the half
// and the round number.
type perm struct {
	half   uint // bits of one half
	k0, k1 uint64
}

// feistelRounds is well above the four that make a Feistel network of
// pseudo-random functions a strong pseudo-random permutation (Luby, Rackoff).
const feistelRounds = 6

// newPerm returns the bijection on 2*half bits for a device under a key.
func newPerm(key *[32]byte, device uint64, half uint) perm {
	var in [32 + 8]byte
	copy(in[:], key[:])
	binary.LittleEndian.PutUint64(in[32:], device)
	sum := sha256.Sum256(in[:])
	return perm{half, binary.LittleEndian.Uint64(sum[0:]), binary.LittleEndian.Uint64(sum[8:])}
}

// forward maps x, which must have at most 2*half bits.
func (p *perm) forward(x uint64) uint64 {
	mask := uint64(1)<<p.half - 1
	l, r := x>>p.half, x&mask
	for i := uint64(0); i < feistelRounds; i++ {
		l, r = r, l^p.round(i, r)&mask
	}
	return l<<p.half | r
}

// backward is the inverse of forward.
func (p *perm) backward(y uint64) uint64 {
	mask := uint64(1)<<p.half - 1
	l, r := y>>p.half, y&mask
	for i := uint64(feistelRounds); i > 0; i-- {
		l, r = r^p.round(i-1, l)&mask, l
	}
	return l<<p.half | r
}

// round is SipHash-1-3 of one 8-byte message.
func (p *perm) round(i, half uint64) uint64 {
	m := i<<56 | half
	v0, v1 := p.k0^0x736f6d6570736575, p.k1^0x646f72616e646f6d
	v2, v3 := p.k0^0x6c7967656e657261, p.k1^0x7465646279746573^m
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0 ^= m
	const length = 8 << 56
	v3 ^= length
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0 ^= length
	v2 ^= 0xff
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	return v0 ^ v1 ^ v2 ^ v3
}

func sipRound(v0, v1, v2, v3 uint64) (uint64, uint64, uint64, uint64) {
	v0 += v1
	v1 = bits.RotateLeft64(v1, 13) ^ v0
	v0 = bits.RotateLeft64(v0, 32)
	v2 += v3
	v3 = bits.RotateLeft64(v3, 16) ^ v2
	v0 += v3
	v3 = bits.RotateLeft64(v3, 21) ^ v0
	v2 += v1
	v1 = bits.RotateLeft64(v1, 17) ^ v2
	v2 = bits.RotateLeft64(v2, 32)
	return v0, v1, v2, v3
}
