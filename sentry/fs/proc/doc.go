// Package proc is the proc file system (proc(5)): a view of package kernel,
// computed when it is looked at.
//
// Key types: System (one per sandbox), instance (one mount: which pid
// namespace and container it shows), process (a task or process as the owner
// of a directory's nodes). The directories are tables of package level data;
// nothing exists of them in memory before a lookup, nothing stays after it,
// and all state shown is the kernel's, but for sysctls that were written, which a
// Sysctls keeps for each container.
//
// It mirrors fs/proc of Linux. What a guest may see of other processes
// follows ptrace's read access (access.go), and hidepid.
package proc
