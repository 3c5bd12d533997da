package systrap

import (
	"golang.org/x/sys/unix"

	"runsc/sentry/arch"
	"runsc/sentry/platform"
)

// si_code values and processor traps used here (sigaction(2), asm/trapnr.h).
const (
	siKernel  = 0x80
	trapPF    = 14
	pfWrite   = 1 << 1
	pfInstr   = 1 << 4
	x32SysBit = 0x40000000
)

// slotOffset returns the offset in the slot of n bytes at a stub address.
func (s *slot) slotOffset(addr, n uint64) (uint64, bool) {
	off := addr - s.start
	if off > slotSize-slotMemSize || n > slotSize-slotMemSize-off {
		return 0, false
	}
	return off, true
}

// readFrame copies the state of the stopped thread into regs and says why it
// stopped. It is false if there is no frame in the slot or the frame makes no
// sense, as only a hostile guest's does. fs and gs are the bases as the
// Sentry knows them.
func (c *context) readFrame(s *slot, regs *arch.Regs) (platform.Event, bool) {
	if s.st.p.slotFlags&flagDirect != 0 {
		if kind := s.mem.kind; kind != kindFrame {
			return c.readDirect(s, kind, regs)
		}
	}
	addr := s.mem.frame
	off, ok := s.slotOffset(addr, sigFrameSize)
	if !ok || off%8 != 0 {
		return platform.Event{}, false
	}
	c.f = *s.st.p.ctl.frame(s.off, off)
	f := &c.f
	c.frame = addr
	c.fpAddr = f.fpstate
	c.fpMode = fpLive
	c.direct = false
	*regs = arch.Regs{
		R15: f.r15, R14: f.r14, R13: f.r13, R12: f.r12, Rbp: f.rbp, Rbx: f.rbx,
		R11: f.r11, R10: f.r10, R9: f.r9, R8: f.r8,
		Rax: f.rax, Rcx: f.rcx, Rdx: f.rdx, Rsi: f.rsi, Rdi: f.rdi,
		OrigRax: ^uint64(0), Rip: f.rip, Eflags: f.eflags, Rsp: f.rsp,
	}
	if s.st.p.slotFlags&flagFSGSBase != 0 {
		c.fs, c.hostGS = s.mem.fs, s.mem.gs
		c.gs = c.hostGS
		if c.gs == s.directGS() {
			c.gs = 0
		}
	}
	regs.FsBase, regs.GsBase = c.fs, c.gs
	ev := platform.Event{Signal: f.signo, Code: f.code, TrapNo: f.trapno, ErrCode: f.err}
	switch unix.Signal(f.signo) {
	case unix.SIGSYS:
		ev.Kind = platform.EventSyscall
		nr := f.syscall
		ev.Compat = f.arch != unix.AUDIT_ARCH_X86_64 || nr&x32SysBit != 0 && nr > 0
		regs.OrigRax = uint64(int64(nr))
		ev.Signal, ev.Code = 0, 0
	case interruptSignal:
		ev.Kind = platform.EventInterrupt
		ev.Signal, ev.Code = 0, 0
	case unix.SIGSEGV:
		if f.code == siKernel || f.trapno != trapPF {
			ev.Kind = platform.EventSignal
			ev.Addr = f.addr
			break
		}
		ev.Kind = platform.EventFault
		ev.Addr = f.cr2
		switch {
		case f.err&pfInstr != 0:
			ev.Access = platform.Exec
		case f.err&pfWrite != 0:
			ev.Access = platform.Write
		default:
			ev.Access = platform.Read
		}
	case unix.SIGBUS, unix.SIGILL, unix.SIGFPE, unix.SIGTRAP:
		ev.Kind = platform.EventSignal
		ev.Addr = f.addr
	default:
		return platform.Event{}, false
	}
	if regs.Rip == s.st.p.DirectEntry() && s.st.p.slotFlags&flagDirect != 0 {
		return c.failedDirect(regs), true
	}
	return ev, true
}

// canonical reports whether the host takes addr as a segment base.
func canonical(addr uint64) bool {
	return int64(addr<<16)>>16 == int64(addr)
}

// writeFrame writes the frame from which the thread resumes with regs. Of
// what lies in the slot only live floating point state is kept. What another
// thread of the guest does to the frame meanwhile it could do after, too.
func (c *context) writeFrame(s *slot, regs *arch.Regs) {
	p := s.st.p
	m := s.mem
	if c.direct {
		if c.answerDirect(s, regs) {
			return
		}
		c.spill(s)
	}
	var fpAddr uint64
	there := c.fpMode == fpLive && !c.spilled
	c.spilled = false
	switch {
	case c.fpMode == fpLive:
		// The frame stays where the host put it; so does the state.
		fpAddr = c.fpAddr
		if _, ok := s.slotOffset(fpAddr, fxSize); !ok || fpAddr%64 != 0 {
			fpAddr = 0
		}
	default:
		top := s.start + slotSize - slotMemSize
		if c.fpMode == fpSet {
			fpAddr = (top - uint64(len(c.fp))) &^ 63
			copy(p.ctl.stack(s.off)[fpAddr-s.start:], c.fp)
			top = fpAddr
		}
		c.frame = (top-sigFrameSize)&^15 - 8
	}
	have := c.f
	f := &c.f
	f.flags = ucSigcontextSS | ucStrictRestoreSS
	if fpAddr != 0 && p.fp.features != 0 {
		f.flags |= ucFPXstate
	}
	f.link = 0
	f.ssSP, f.ssFl, f.ssSize = s.start, 0, slotSize-slotMemSize
	f.r15, f.r14, f.r13, f.r12, f.rbp, f.rbx = regs.R15, regs.R14, regs.R13, regs.R12, regs.Rbp, regs.Rbx
	f.r11, f.r10, f.r9, f.r8 = regs.R11, regs.R10, regs.R9, regs.R8
	f.rax, f.rcx, f.rdx, f.rsi, f.rdi = regs.Rax, regs.Rcx, regs.Rdx, regs.Rsi, regs.Rdi
	f.rip, f.rsp = regs.Rip, regs.Rsp
	f.eflags = regs.Eflags&arch.UserEflags | 0x202
	f.cs, f.gs, f.fs, f.ss = userCS, 0, 0, userDS
	f.fpstate = fpAddr
	f.mask = 0
	// Write only what is not there already: every cache line written has to
	// travel back.
	storeFrame(p.ctl.frame(s.off, c.frame-s.start), f, &have, !there)
	m.frame = c.frame
	if m.kind != kindFrame {
		m.kind = kindFrame
	}
	set := uint32(0)
	if (regs.FsBase != c.fs || c.fresh) && canonical(regs.FsBase) {
		c.fs = regs.FsBase
		m.fs = c.fs
		set |= setFS
	}
	c.gs = regs.GsBase
	gs := c.gs
	if gs == 0 {
		gs = s.directGS()
	}
	if (gs != c.hostGS || c.fresh) && canonical(gs) {
		c.hostGS = gs
		m.gs = gs
		set |= setGS
	}
	m.set = set
	m.flags = p.slotFlags
	c.fpMode = fpLive
	c.fp = nil
	c.fresh = false
}
