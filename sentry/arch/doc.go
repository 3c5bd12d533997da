// Package arch holds what depends on the processor: registers, system call
// arguments, extended (FP/AVX) state and the layout of signal frames.
//
// It is the lowest layer that knows of a guest; everything above uses its
// types and never a raw register layout. It mirrors arch/x86/include/uapi/asm
// and arch/x86/kernel/signal_64.c of Linux.
package arch
