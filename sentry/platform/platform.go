package platform

import "runsc/sentry/arch"

// Prot is a set of host page protections.
type Prot uint8

// Protections of a host mapping.
const (
	Read Prot = 1 << iota
	Write
	Exec
)

// EventKind says why Switch returned.
type EventKind uint8

// Reasons for which Switch returns.
const (
	// EventSyscall: the guest made a system call; Regs.OrigRax is its number,
	// Rip is after the instruction. Rax still holds the number.
	EventSyscall EventKind = iota
	// EventFault: a memory access faulted; Addr and Access are valid, Rip is
	// at the instruction.
	EventFault
	// EventSignal: the instruction raised Signal (SIGILL, SIGFPE, SIGTRAP,
	// SIGBUS, or SIGSEGV without an address such as a general protection
	// fault); Code and Addr are those of siginfo.
	EventSignal
	// EventInterrupt: Interrupt was called, or the thread was kicked.
	EventInterrupt
)

// Event describes why a guest thread stopped.
type Event struct {
	Kind   EventKind
	Signal int32  // EventSignal, EventFault
	Code   int32  // siginfo si_code
	Addr   uint64 // fault address
	Access Prot   // EventFault: the access that was tried (from the page fault's error code)
	// Compat is set for EventSyscall when the call came by a foreign entry
	// (int 0x80, x32): the kernel answers ENOSYS or a signal.
	Compat bool
	// TrapNo and ErrCode are the processor's, for the signal frame.
	TrapNo, ErrCode uint64
}

// Platform makes stub groups. There is one per sandbox.
type Platform interface {
	// NewGroup starts a group of stubs (one per container, so that a
	// container's stubs can live in its own cgroup) and returns it.
	NewGroup() (Group, error)
	// NewContext returns a new execution context for one task.
	NewContext() Context
	// Close kills every stub and frees all resources.
	Close()
}

// Group is the set of stubs of one container.
type Group interface {
	// HostPID is the pid, in the sandbox's pid namespace, of the process all
	// further stubs of the group are cloned from. Moving it into a cgroup
	// moves all later stubs.
	HostPID() int
	// NewAddressSpace returns an empty address space.
	NewAddressSpace() (AddressSpace, error)
	// Close kills all stubs of the group and waits until they are gone, some
	// seconds at most.
	Close()
}

// AddressSpace is the host side of one guest address space. Addresses and
// lengths are page aligned and below arch.GuestTop. Methods may be called by
// several goroutines; each is complete (or, for Map and Protect, guaranteed
// to be complete before any guest thread of this space runs on) when it
// returns.
type AddressSpace interface {
	// Map maps [off, off+n) of host file fd (a descriptor of this process) at
	// addr, shared, replacing what was there. populate asks the host to fill
	// the page tables at once; set it only where the file's pages are present.
	// ENOMEM means the host's mapping limit is reached: the caller unmaps all
	// and maps again on fault. An error may be that of an earlier Map, which
	// then looks like a mapping that was not made: the guest faults again.
	Map(addr, n uint64, fd int, off int64, prot Prot, populate bool) error
	// Unmap removes host mappings of the range. Only ranges that may hold
	// mappings are passed.
	Unmap(addr, n uint64) error
	// Protect changes protections of the present mappings in the range.
	Protect(addr, n uint64, prot Prot) error
	// Release kills or recycles the stub. No thread may be in Switch. It does
	// not wait: what was mapped may be accessed until the channel is closed
	// that the optional method Gone() <-chan struct{} returns.
	Release()
}

// Context runs one guest thread. It is used by one goroutine, but for
// Interrupt.
type Context interface {
	// Switch runs the guest with regs in as until an event; regs hold the
	// new state on return. Floating point state stays with the context. When
	// as differs from the last call's, the context moves (exec) and its FP
	// state is kept unless SetFPState(nil) was called.
	//
	// Errors: ErrStubDied when the stub process or thread vanished (the task
	// is to be killed as by SIGKILL), any other error when no host thread can be had.
	Switch(as AddressSpace, regs *arch.Regs) (Event, error)
	// Interrupt makes the Switch in progress, or else the next one, return
	// EventInterrupt soon. Safe from any goroutine.
	Interrupt()
	// FPState returns a copy of the XSAVE area in the kernel's signal frame
	// layout (fxsave legacy area with sw_reserved magic, xstate header,
	// components, trailing FP_XSTATE_MAGIC2); nil means the initial state.
	FPState() []byte
	// SetFPState replaces it; the input may be guest controlled: it is
	// validated (EINVAL) and reserved bits are cleared. nil resets to the initial state.
	SetFPState(fp []byte) error
	// Sleep tells the context that its task is about to block, so that the
	// stub thread stops spinning for an answer.
	Sleep()
	// Release parks or ends the host thread.
	Release()
}

// ErrStubDied is returned by Switch when the host thread or process is gone.
var ErrStubDied = stubDied{}

type stubDied struct{}

func (stubDied) Error() string { return "platform: stub process died" }
