// Package platform runs guest code: it switches a task's registers onto a
// host thread inside an address space that holds only guest memory, and
// returns when the guest makes a system call, faults or is interrupted.
//
// The implementation is systrap: one host process (stub) per guest address
// space, guest threads under a seccomp filter that traps every system call,
// registers handed over in shared memory.
package platform
