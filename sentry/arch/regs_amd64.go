package arch

// Regs are the general registers of a guest thread, as user_regs_struct
// (ptrace(2), PTRACE_GETREGS) has them, without the segment selectors that
// a 64-bit task cannot meaningfully change.
type Regs struct {
	R15, R14, R13, R12, Rbp, Rbx uint64
	R11, R10, R9, R8             uint64
	Rax, Rcx, Rdx, Rsi, Rdi      uint64
	OrigRax                      uint64 // system call number, or ^0 outside a call
	Rip, Eflags, Rsp             uint64
	FsBase, GsBase               uint64
}

// GuestTop is the first address that no guest mapping may reach (TASK_SIZE).
// The platform's stub lives above it.
const GuestTop = 0x7ffc_0000_0000

// TaskSize is Linux's limit of user addresses (TASK_SIZE_MAX with four levels
// of page tables), which munmap(2) checks lengths against.
const TaskSize = 0x7fff_ffff_f000

// UserEflags are the flag bits that user mode may set (arithmetic flags, TF,
// DF, AC, ID...): CF PF AF ZF SF TF DF OF RF AC ID.
const UserEflags = 0x0025_0dd5

// Syscall returns the number of the trapped call.
func (r *Regs) Syscall() uintptr { return uintptr(r.OrigRax) }

// Args returns the six arguments of the trapped call in order.
func (r *Regs) Args() [6]uint64 {
	return [6]uint64{r.Rdi, r.Rsi, r.Rdx, r.R10, r.R8, r.R9}
}

// SetReturn stores the call's result.
func (r *Regs) SetReturn(v uint64) { r.Rax = v }
