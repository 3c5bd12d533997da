package cpufeature

// cpuid executes the instruction.
func cpuid(leaf, sub uint32) (a, b, c, d uint32)
