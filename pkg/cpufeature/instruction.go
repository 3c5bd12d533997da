package cpufeature

// MaxInstruction is the length of the longest instruction of the processor.
const MaxInstruction = 15

// Length returns the length of the CPUID instruction that code begins with, 0 if it begins with another one.
// Prefixes mean nothing to it, except LOCK, which raises another fault.
func Length(code []byte) int {
	code = code[:min(len(code), MaxInstruction)]
	i := 0
	for i < len(code) && isPrefix(code[i]) {
		i++
	}
	if len(code) < i+2 || code[i] != 0x0f || code[i+1] != 0xa2 {
		return 0
	}
	return i + 2
}

// isPrefix reports whether b is a prefix: of a segment, of a size, of a repetition, or REX, which means nothing
// wherever it is.
func isPrefix(b byte) bool {
	if b&0xf0 == 0x40 {
		return true
	}
	switch b {
	case 0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf2, 0xf3:
		return true
	}
	return false
}
