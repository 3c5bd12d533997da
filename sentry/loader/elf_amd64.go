package loader

import "encoding/binary"

// machineOK tells whether an ELF header is of this machine: 64 bit, little
// endian, x86-64.
func machineOK(b *[ehdrSize]byte) bool {
	return b[4] == 2 && b[5] == 1 && binary.LittleEndian.Uint16(b[18:]) == emX8664
}

// atPlatform is AT_PLATFORM's string.
const atPlatform = "x86_64"

// hwcap2FSGSBASE is the bit of AT_HWCAP2 that permits wrfsbase.
const hwcap2FSGSBASE = 1 << 1
