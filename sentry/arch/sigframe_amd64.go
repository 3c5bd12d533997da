package arch

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"runsc/pkg/abi/linux"
)

// Layout of struct rt_sigframe (arch/x86/include/asm/sigframe.h), which lies
// at the stack pointer when a handler starts: return address, ucontext (flags,
// link, stack, sigcontext, mask), siginfo.
const (
	frameFlags   = 8
	frameLink    = 16
	frameStack   = 24 // stack_t: sp, flags, size
	frameContext = 48 // struct sigcontext: 23 words and 8 reserved
	frameMask    = frameContext + 256
	frameInfo    = frameMask + 8

	// SigFrameSize is the size of the frame without the FP state.
	SigFrameSize = frameInfo + 128

	// FXSaveSize is the legacy part of the FP state.
	FXSaveSize = 512

	redZone = 128

	ucFPXState        = 1 // UC_FP_XSTATE
	ucSigcontextSS    = 2 // UC_SIGCONTEXT_SS
	ucStrictRestoreSS = 4 // UC_STRICT_RESTORE_SS

	userCS, userSS = 0x33, 0x2b

	// Software-reserved bytes of the FXSAVE area (struct _fpx_sw_bytes).
	fpSWOffset = 464
	fpMagic1   = 0x46505853
	maxFPFrame = 16 << 10

	eflagsTF = 0x100
	eflagsDF = 0x400
	eflagsRF = 0x10000
)

// sigcontext register order (struct sigcontext_64).
func contextRegs(r *Regs) [18]*uint64 {
	return [18]*uint64{
		&r.R8, &r.R9, &r.R10, &r.R11, &r.R12, &r.R13, &r.R14, &r.R15,
		&r.Rdi, &r.Rsi, &r.Rbp, &r.Rbx, &r.Rdx, &r.Rax, &r.Rcx, &r.Rsp, &r.Rip, &r.Eflags,
	}
}

// SigFrame is what goes into a signal frame.
type SigFrame struct {
	Info     SigInfo
	Action   SigAction
	AltStack SigStack
	Mask     SigSet // to be restored by sigreturn
	// FP is the extended state in the layout of the frame, nil for the
	// initial state.
	FP                   []byte
	TrapNo, ErrCode, CR2 uint64
}

// Build lays the frame out below the stack that regs and the action choose. It
// returns the bytes and their address, and makes regs those of the handler's
// first instruction. EFAULT when there is no place for it or no restorer.
func (f *SigFrame) Build(regs *Regs) (buf []byte, addr uint64, err error) {
	if f.Action.Flags&linux.SA_RESTORER == 0 {
		return nil, 0, unix.EFAULT
	}
	fp := f.FP
	if fp == nil {
		fp = initialFP()
	}
	onAlt := f.AltStack.Flags>>31 == 0 && f.AltStack.Contains(regs.Rsp)
	sp := regs.Rsp - redZone
	entering := false
	if f.Action.Flags&linux.SA_ONSTACK != 0 && f.AltStack.Size != 0 && f.AltStack.Flags&linux.SS_DISABLE == 0 && !onAlt {
		sp = f.AltStack.Sp + f.AltStack.Size
		entering = true
	}
	fpAddr := (sp - uint64(len(fp))) &^ 63
	addr = (fpAddr-SigFrameSize)&^15 - 8
	// An overflow of the alternate stack must not run into what lies below.
	if (onAlt || entering) && !f.AltStack.Contains(addr) || addr > regs.Rsp && !entering || addr >= GuestTop {
		return nil, 0, unix.EFAULT
	}

	buf = make([]byte, fpAddr+uint64(len(fp))-addr)
	put := func(off int, v uint64) { binary.LittleEndian.PutUint64(buf[off:], v) }
	put(0, f.Action.Restorer)
	flags := uint64(ucSigcontextSS | ucStrictRestoreSS)
	if FPFrameSize(fp) > FXSaveSize {
		flags |= ucFPXState
	}
	put(frameFlags, flags)
	put(frameLink, 0)
	put(frameStack, f.AltStack.Sp)
	put(frameStack+8, uint64(uint32(f.stackFlags(onAlt))))
	put(frameStack+16, f.AltStack.Size)
	for i, r := range contextRegs(regs) {
		put(frameContext+8*i, *r)
	}
	put(frameContext+144, userCS|userSS<<48)
	put(frameContext+152, f.ErrCode)
	put(frameContext+160, f.TrapNo)
	put(frameContext+168, uint64(f.Mask))
	put(frameContext+176, f.CR2)
	put(frameContext+184, fpAddr)
	put(frameMask, uint64(f.Mask))
	putInfo(buf[frameInfo:], &f.Info)
	copy(buf[fpAddr-addr:], fp)

	regs.Rdi = uint64(f.Info.Signo)
	regs.Rsi = addr + frameInfo
	regs.Rdx = addr + frameFlags
	regs.Rax = 0
	regs.Rip = f.Action.Handler
	regs.Rsp = addr
	regs.Eflags &^= eflagsDF | eflagsRF | eflagsTF
	regs.OrigRax = ^uint64(0)
	return buf, addr, nil
}

// stackFlags is sas_ss_flags for the frame's uc_stack.
func (f *SigFrame) stackFlags(onAlt bool) int32 {
	switch {
	case f.AltStack.Size == 0:
		return linux.SS_DISABLE
	case onAlt:
		return f.AltStack.Flags | linux.SS_ONSTACK
	}
	return f.AltStack.Flags
}

func putInfo(b []byte, s *SigInfo) {
	binary.LittleEndian.PutUint32(b, uint32(s.Signo))
	binary.LittleEndian.PutUint32(b[4:], uint32(s.Errno))
	binary.LittleEndian.PutUint32(b[8:], uint32(s.Code))
	copy(b[16:128], s.Fields[:])
}

// initialFP is the FXSAVE area of a thread that has not used FP.
func initialFP() []byte {
	fp := make([]byte, FXSaveSize)
	binary.LittleEndian.PutUint16(fp, 0x37f)       // fcw
	binary.LittleEndian.PutUint32(fp[24:], 0x1f80) // mxcsr
	binary.LittleEndian.PutUint32(fp[28:], 0xffff) // mxcsr_mask
	return fp
}

// FPFrameSize returns the size of the whole extended state that the FXSAVE
// area fp begins, FXSaveSize if that is all.
func FPFrameSize(fp []byte) int {
	if len(fp) < FXSaveSize || binary.LittleEndian.Uint32(fp[fpSWOffset:]) != fpMagic1 {
		return FXSaveSize
	}
	// extended_size includes the trailing magic.
	n := binary.LittleEndian.Uint32(fp[fpSWOffset+4:])
	if n < FXSaveSize || n > maxFPFrame {
		return FXSaveSize
	}
	return int(n)
}

// SigReturn is a frame as rt_sigreturn(2) reads it. All of it is the guest's.
type SigReturn struct {
	regs     Regs
	Mask     SigSet
	AltStack SigStack
	FPAddr   uint64 // 0: initial state
}

// ParseSigFrame reads a frame; EFAULT if it is short.
func ParseSigFrame(b []byte) (SigReturn, error) {
	var s SigReturn
	if len(b) < SigFrameSize {
		return s, unix.EFAULT
	}
	get := func(off int) uint64 { return binary.LittleEndian.Uint64(b[off:]) }
	for i, r := range contextRegs(&s.regs) {
		*r = get(frameContext + 8*i)
	}
	s.FPAddr = get(frameContext + 184)
	s.Mask = SigSet(get(frameMask))
	s.AltStack = SigStack{Sp: get(frameStack), Flags: int32(get(frameStack + 8)), Size: get(frameStack + 16)}
	return s, nil
}

// Apply sets the registers: flags only as far as user mode may set them, the
// instruction pointer only within the guest. Segment bases and selectors stay.
func (s *SigReturn) Apply(r *Regs) {
	fs, gs, flags := r.FsBase, r.GsBase, r.Eflags
	*r = s.regs
	r.FsBase, r.GsBase = fs, gs
	r.Eflags = flags&^UserEflags | s.regs.Eflags&UserEflags
	r.OrigRax = ^uint64(0)
}
