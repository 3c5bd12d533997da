package kernel

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/abi/linux"
	"runsc/sentry/arch"
)

// trapInfo is the processor's part of the last fault, for signal frames.
type trapInfo struct {
	trapNo, errCode, cr2 uint64 `save:"rec"`
}

// handleSignal makes the guest run a handler: frame, registers, mask. A frame
// that cannot be written is a SIGSEGV, without handler if it is the one of
// SIGSEGV itself that failed. Own.
func (t *Task) handleSignal(q *queuedSignal, act *arch.SigAction) {
	tg := t.tg
	sig := q.info.Signo

	tg.sigmu.Lock()
	mask := t.sig.mask
	if t.sig.restoreMask {
		mask = t.sig.savedMask
	}
	alt := t.sig.altStack
	tg.sigmu.Unlock()

	f := arch.SigFrame{
		Info: q.info, Action: *act, AltStack: alt, Mask: mask, FP: t.ctx.FPState(),
		TrapNo: t.trap.trapNo, ErrCode: t.trap.errCode, CR2: t.trap.cr2,
	}
	regs := t.regs
	buf, addr, err := f.Build(&regs)
	if err == nil {
		err = t.CopyOut(addr, buf)
	}
	if err != nil {
		t.forceSegv(sig)
		return
	}
	t.regs = regs
	// The handler starts with fresh FP state; sigreturn brings the old one back.
	t.ctx.SetFPState(nil)

	tg.sigmu.Lock()
	defer tg.sigmu.Unlock()
	t.sig.restoreMask = false
	if alt.Flags&int32(ssAutodisarm) != 0 {
		t.sig.altStack = arch.SigStack{Flags: linux.SS_DISABLE}
	}
	block := t.sig.mask | act.Mask
	if act.Flags&linux.SA_NODEFER == 0 {
		block |= arch.SigBit(sig)
	}
	t.setMaskLocked(block)
}

// ssAutodisarm is SS_AUTODISARM as the sign bit of an int.
const ssAutodisarm = -1 << 31

// forceSegv raises SIGSEGV for a frame that cannot be set up or read back
// (force_sigsegv): fatal if that was for a SIGSEGV.
func (t *Task) forceSegv(sig int32) {
	if sig == int32(unix.SIGSEGV) {
		t.tg.sigmu.Lock()
		t.tg.sig.handlers.set(sig, arch.SigAction{})
		t.tg.sigmu.Unlock()
	}
	t.forceSignal(&arch.SigInfo{Signo: int32(unix.SIGSEGV), Code: linux.SI_KERNEL})
}

// SigReturn is rt_sigreturn(2): the frame is the guest's to forge, so every
// part is checked or cut to what user mode may set. Own.
func (t *Task) SigReturn() {
	// The frame begins below the return address, which ret has popped.
	addr := t.regs.Rsp - 8
	buf := make([]byte, arch.SigFrameSize)
	err := t.CopyIn(addr, buf)
	var r arch.SigReturn
	if err == nil {
		r, err = arch.ParseSigFrame(buf)
	}
	var fp []byte
	if err == nil && r.FPAddr != 0 {
		fp, err = t.readFPState(r.FPAddr)
	}
	if err == nil {
		err = t.ctx.SetFPState(fp)
	}
	if err != nil {
		t.forceSegv(0)
		return
	}
	r.Apply(&t.regs)
	t.restart.block = nil // its call is over
	t.tg.sigmu.Lock()
	t.setMaskLocked(r.Mask)
	t.tg.sigmu.Unlock()
	// restore_altstack: errors do not matter.
	_ = t.SetAltStack(r.AltStack, t.regs.Rsp)
}

// readFPState copies the extended state of a frame, whose size its
// software-reserved bytes tell.
func (t *Task) readFPState(addr uint64) ([]byte, error) {
	fp := make([]byte, arch.FXSaveSize)
	if err := t.CopyIn(addr, fp); err != nil {
		return nil, err
	}
	n := arch.FPFrameSize(fp)
	if n <= arch.FXSaveSize {
		return fp, nil
	}
	full := make([]byte, n)
	if err := t.CopyIn(addr, full); err != nil {
		// As Linux, fall back to the legacy part.
		return fp, nil
	}
	// The size may have changed under us: use the first copy's header.
	copy(full, fp)
	return full, nil
}

// AltStack returns what sigaltstack(2) reports for the stack pointer sp. Own.
func (t *Task) AltStack(sp uint64) arch.SigStack {
	a := t.sig.altStack
	switch {
	case a.Size == 0:
		a.Flags = linux.SS_DISABLE
	case t.onAltStack(sp):
		a.Flags |= linux.SS_ONSTACK
	}
	return a
}

// onAltStack is on_sig_stack: with SS_AUTODISARM the task is never on it.
func (t *Task) onAltStack(sp uint64) bool {
	a := &t.sig.altStack
	return a.Flags&int32(ssAutodisarm) == 0 && a.Contains(sp)
}

// SetAltStack is sigaltstack(2) (do_sigaltstack): EPERM while on the stack,
// EINVAL for unknown flags, ENOMEM for a small one. Own.
func (t *Task) SetAltStack(s arch.SigStack, sp uint64) error {
	if t.onAltStack(sp) {
		return unix.EPERM
	}
	mode := s.Flags &^ int32(ssAutodisarm)
	if mode != linux.SS_DISABLE && mode != linux.SS_ONSTACK && mode != 0 {
		return unix.EINVAL
	}
	if mode == linux.SS_DISABLE {
		s.Sp, s.Size = 0, 0
	} else if s.Size < linux.MINSIGSTKSZ {
		return unix.ENOMEM
	}
	s.Flags &^= linux.SS_ONSTACK
	t.tg.sigmu.Lock()
	defer t.tg.sigmu.Unlock()
	t.sig.altStack = s
	return nil
}
