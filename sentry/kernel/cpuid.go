package kernel

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/abi/linux"
	"runsc/pkg/cpufeature"
	"runsc/sentry/mem"
)

// trapGP is the processor's number of a general protection fault (X86_TRAP_GP).
const trapGP = 13

// eflagsTF is the flag that traps after each instruction, eflagsRF the one
// that an instruction clears when it is done.
const (
	eflagsTF = 1 << 8
	eflagsRF = 1 << 16
)

// emulateCPUID answers the CPUID instruction that faulted, by the mask of
// processor features. It returns false if it was another instruction.
func (t *Task) emulateCPUID() bool {
	rip := t.regs.Rip
	code := make([]byte, cpufeature.MaxInstruction)
	for t.CopyIn(rip, code) != nil {
		// It may be the last one before a hole.
		left := -rip & (uint64(mem.PageSize) - 1)
		if left == 0 || left >= uint64(len(code)) {
			return false
		}
		code = code[:left]
	}
	n := cpufeature.Length(code)
	if n == 0 {
		return false
	}
	r := t.k.cfg.CPUMask.CPUID(uint32(t.regs.Rax), uint32(t.regs.Rcx))
	t.regs.Rax, t.regs.Rbx, t.regs.Rcx, t.regs.Rdx = uint64(r[0]), uint64(r[1]), uint64(r[2]), uint64(r[3])
	t.regs.Rip += uint64(n)
	t.regs.Eflags &^= eflagsRF
	if t.regs.Eflags&eflagsTF != 0 {
		t.forceSignal(faultInfo(int32(unix.SIGTRAP), linux.TRAP_TRACE, t.regs.Rip))
	}
	return true
}
