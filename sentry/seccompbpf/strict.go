package seccompbpf

import "golang.org/x/sys/unix"

// Strict is SECCOMP_MODE_STRICT as a filter.
type Strict struct{}

// Run implements Filter (mode1_syscalls).
func (Strict) Run(d *Data) uint32 {
	switch d.Nr {
	case unix.SYS_READ, unix.SYS_WRITE, unix.SYS_EXIT, unix.SYS_RT_SIGRETURN:
		return unix.SECCOMP_RET_ALLOW
	}
	return unix.SECCOMP_RET_KILL_THREAD
}
