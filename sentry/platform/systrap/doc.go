// Package systrap is the platform that runs guest code in stub processes.
//
// One host process (a stub) holds one guest address space and nothing else of
// the host but a region of stub code above arch.GuestTop. Its leader thread
// never runs guest code; it executes the memory operations that the Sentry
// writes to a command page, which the guest can read and not write. Every
// guest thread runs under a seccomp filter that turns each system call into
// SIGSYS. A signal handler in the stub hands the signal frame, which the host
// kernel wrote into memory shared with the Sentry (the slot of the thread),
// over to the Sentry and waits there; rt_sigreturn from the same frame, which
// the Sentry rewrote, resumes the guest.
//
// Rules that hold the boundary:
//
//   - A guest can write whatever its stub can write, and can jump to any byte
//     of the stub. So guest threads may make no other call than futex wait and
//     wake, sched_yield, rt_sigreturn, arch_prctl for the segment bases, and
//     exit; the leader takes operands only from its read-only page and
//     registers, and acknowledges by pwrite to the control file, a call that
//     no guest thread can make.
//   - A thread that claims to have stopped may be running. Nothing that
//     removes access (Unmap, Protect, Map over a mapping) returns before the
//     leader has acknowledged it, or the process is dead.
//   - A guest whose processor features are masked cannot see them by CPUID:
//     the first stub is cloned from a thread in which the instruction faults,
//     all others from it, and the filters let none of them change that.
//   - What is read from a slot is copied once, then checked. All of the frame
//     but the floating point state is written anew before each resume.
//   - No wait is for ever: death of a stub is seen by its pidfd, of a thread
//     by CLONE_CHILD_CLEARTID, and a thread that ignores Interrupt is killed
//     with its process.
//
// Lock order: context.mu, then stub.mu, then leaf locks.
//
// It mirrors arch/x86/kernel/signal_64.c and kernel/seccomp.c of Linux.
package systrap
