package systrap

import (
	"time"

	"runsc/sentry/arch"
	"runsc/sentry/platform"
)

// A direct call is a system call that the guest makes by a jump into the
// stub, from a call site that was rewritten: no signal, no frame, and no copy
// of FP state, which stays in the processor until something needs it.
//
// The thread finds its slot by gs, whose base is the end of the slot as long
// as the guest's own is 0. A guest that uses gs faults at the entry, which is
// then taken for an ordinary system call.

// DirectEntry is the address, in every address space, to jump to with the
// number of the system call in rax and the address to return to in rcx. The
// call preserves what a system call preserves but r11, which is lost.
func (p *Platform) DirectEntry() uint64 { return p.base + directEntry }

// directGS is the gs base of a guest that has none of its own.
func (s *slot) directGS() uint64 {
	if s.st.p.slotFlags&flagDirect == 0 {
		return 0
	}
	return s.start + slotSize
}

// readDirect is readFrame for a thread that stopped in a direct call.
func (c *context) readDirect(s *slot, kind uint32, regs *arch.Regs) (platform.Event, bool) {
	m := s.mem
	fl := m.eflags
	if s.st.p.slotFlags&flagFSGSBase != 0 {
		c.fs = m.fs
	}
	*regs = arch.Regs{
		R15: m.r15, R14: m.r14, R13: m.r13, R12: m.r12, Rbp: m.rbp, Rbx: m.rbx,
		R10: m.r10, R9: m.r9, R8: m.r8,
		Rax: m.rax, Rcx: m.rcx, Rdx: m.rdx, Rsi: m.rsi, Rdi: m.rdi,
		OrigRax: ^uint64(0), Rip: m.rcx, Eflags: uint64(fl>>8&0xff | fl&1<<11 | 0x202), Rsp: m.rsp,
		FsBase: c.fs, GsBase: c.gs,
	}
	regs.R11 = regs.Eflags
	c.direct = true
	c.fpMode = fpCPU
	c.before = *regs
	if kind != kindDirect {
		return platform.Event{Kind: platform.EventInterrupt}, true
	}
	regs.OrigRax = uint64(int64(int32(regs.Rax)))
	return platform.Event{Kind: platform.EventSyscall}, true
}

// failedDirect makes a system call of a direct call that faulted because gs is
// the guest's.
func (c *context) failedDirect(regs *arch.Regs) platform.Event {
	regs.Rip = regs.Rcx
	regs.R11 = regs.Eflags
	regs.OrigRax = uint64(int64(int32(regs.Rax)))
	return platform.Event{Kind: platform.EventSyscall}
}

// answerDirect prepares a return from the direct call without a frame. It is
// false if more than the result is to change.
func (c *context) answerDirect(s *slot, regs *arch.Regs) bool {
	if c.fpMode != fpCPU {
		return false
	}
	want := c.before
	want.Rax, want.OrigRax = regs.Rax, regs.OrigRax
	if want != *regs {
		return false
	}
	m := s.mem
	m.rax = regs.Rax
	// The stub returns from the slot: write what the guest had, all of it is
	// the guest's to spoil.
	m.kind = kindDirect
	m.set = 0
	m.flags = s.st.p.slotFlags
	return true
}

// spill has the host save the FP state of the stopped thread in a frame. If
// that fails, because the thread is gone or hostile, the state is lost.
func (c *context) spill(s *slot) {
	c.direct = false
	if c.fpMode != fpCPU {
		return
	}
	c.fpMode = fpInit
	m := s.mem
	for {
		v := m.load()
		if stopped>>v&1 == 0 {
			return
		}
		if m.cas(v, stSpill) {
			if v == stEventW {
				futexWake(&m.state)
			}
			break
		}
	}
	for deadline := time.Now().Add(startDeadline); ; {
		v := spinWhile(&m.state, 1<<stSpill, c.p.pollUnit)
		if stopped>>v&1 != 0 {
			break
		}
		if v != stSpill || s.st.dead.Load() {
			return
		}
		if time.Now().After(deadline) {
			s.st.kill()
			return
		}
		time.Sleep(50 * time.Microsecond)
	}
	addr := m.frame
	off, ok := s.slotOffset(addr, sigFrameSize)
	if !ok || off%8 != 0 {
		return
	}
	c.frame = addr
	c.fpAddr = s.st.p.ctl.frame(s.off, off).fpstate
	c.fpMode = fpLive
	c.spilled = true
}
