// Package seccompbpf evaluates seccomp filters on guest system calls: classic
// BPF programs that guests install (seccomp(2)) and the profile of the OCI
// spec. It mirrors kernel/seccomp.c and net/core/filter.c of Linux.
//
// The guest's filters restrict the guest only; the sandbox does not rely on
// them.
package seccompbpf
