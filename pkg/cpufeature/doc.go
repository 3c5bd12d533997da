// Package cpufeature knows the features of x86-64 processors by the names that /proc/cpuinfo has for them, and hides
// some of them: from what CPUID answers, from AT_HWCAP and from lists of flags.
//
// A feature that needs a hidden one is hidden with it, as Linux does for clearcpuid=, so that a program never finds
// AVX2 without AVX. State that is enabled stays enabled: XGETBV and CPUID's leaf 0xd tell the truth, and programs ask
// for the feature's own bit first.
//
// Where the bits are is from the processors' manuals: Intel's SDM, volume 2A, "CPUID", and AMD's APM, volume 3,
// appendix E. The names are those of arch/x86/include/asm/cpufeatures.h.
package cpufeature
