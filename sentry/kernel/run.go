package kernel

import (
	"fmt"

	"golang.org/x/sys/unix"

	"runsc/pkg/abi/linux"
	"runsc/pkg/waitq"
	"runsc/sentry/arch"
	"runsc/sentry/errs"
	"runsc/sentry/mem"
	"runsc/sentry/mm"
	"runsc/sentry/platform"
)

// runState is what a task has to finish before its guest code runs on. Each
// step is carried out by step, so that a checkpoint finds it here and not on a
// goroutine's stack.
type runState struct {
	kind runKind `save:"rec"`
	// runVfork: the child's mm is gone or replaced when it is woken.
	vfork *waitq.Waiter `save:"rec"`
	// runExec: the new program, ready but for the other threads.
	exec *execImage `save:"none: an exec is over before the cut"`
	// runExit: the wait status of exit(2).
	status int32 `save:"none: the task has exited"`
}

type runKind uint8

const (
	runGuest   runKind = iota // guest code, or signals before it
	runVfork                  // wait for the child of vfork
	runExec                   // wait for the other threads, then become the new program
	runExit                   // exit(2) was called
	runReenter                // a call unwound for a save: enter it again
)

// faultLoop notices a fault that comes back although it was dealt with.
type faultLoop struct {
	addr, rip uint64
	access    platform.Prot
	count     int
}

// maxSameFault is how often one access may fault in a row. Other threads may
// take mappings away again, but not for ever.
const maxSameFault = 5000

// start runs the task on a goroutine of its own, which ends with the task;
// Kernel.WaitTasks waits for it.
func (t *Task) start() {
	if t.container.freezer.active() {
		t.work.Store(true)
	}
	t.k.taskWG.Add(1)
	t.k.nLive.Add(1)
	t.k.nRunning.Add(1)
	go t.main()
}

// main is the life of a task.
func (t *Task) main() {
	defer t.k.taskWG.Done()
	t.acct.start(t.Now())
	for t.step() {
	}
	t.exit()
}

// step does one round; it returns false when the task has to exit.
func (t *Task) step() bool {
	switch t.run.kind {
	case runGuest:
		if t.work.Load() {
			return t.doWork()
		}
		return t.runGuest()
	case runExec:
		return t.finishExec()
	case runExit:
		return false
	}
	t.park()
	if t.killed.Load() {
		t.run = runState{}
		return false
	}
	if t.run.kind == runReenter {
		t.run = runState{}
		t.reentry.used, t.reentry.again = true, true
		args := t.regs.Args()
		t.dispatch(uint32(t.regs.OrigRax), &args)
		return true
	}
	// Signals wait, as in wait_for_vfork_done; SIGKILL does not.
	if t.BlockKillable(t.run.vfork, 0) == nil {
		t.run = runState{}
	}
	return true
}

// runGuest enters the guest once and handles what it comes back with.
func (t *Task) runGuest() bool {
	if t.regs.Rip >= arch.GuestTop {
		t.forceSignal(faultInfo(int32(unix.SIGSEGV), linux.SEGV_MAPERR, t.regs.Rip))
		return true
	}
	as, err := t.mm.AddressSpace()
	if err != nil {
		return t.platformFailed(err)
	}
	t.acct.enterGuest(t.Now())
	t.inGuest.Store(true)
	if t.work.Load() {
		// interrupt may have missed inGuest.
		t.inGuest.Store(false)
		t.acct.leaveGuest(t.Now())
		return true
	}
	ev, err := t.ctx.Switch(as, &t.regs)
	t.inGuest.Store(false)
	t.acct.leaveGuest(t.Now())
	if err != nil {
		return t.platformFailed(err)
	}
	switch ev.Kind {
	case platform.EventSyscall:
		t.syscall(&ev)
	case platform.EventFault:
		t.fault(&ev)
	case platform.EventSignal:
		if t.k.cfg.CPUMask != nil && ev.Signal == int32(unix.SIGSEGV) && ev.TrapNo == trapGP && t.emulateCPUID() {
			break
		}
		t.trap = trapInfo{ev.TrapNo, ev.ErrCode, t.trap.cr2}
		t.forceSignal(faultInfo(ev.Signal, ev.Code, ev.Addr))
	case platform.EventInterrupt:
		t.acct.nivcsw.Add(1)
	}
	return true
}

// platformFailed ends the process when its host thread or stub is gone.
func (t *Task) platformFailed(err error) bool {
	if t.killed.Load() {
		return false
	}
	if err != platform.ErrStubDied {
		t.k.logf("warning", fmt.Sprintf("container %s: no host thread for a guest task: %v", t.container.ID(), err))
	}
	t.tg.Kill()
	return false
}

// syscall dispatches a call and stores its result, or what decides it later.
func (t *Task) syscall(ev *platform.Event) {
	nr := uint32(t.regs.OrigRax)
	if ev.Compat && nr&x32Bit == 0 {
		// int 0x80 in a kernel without IA32 emulation is a general protection
		// fault at the instruction.
		t.regs.Rip -= 2
		t.trap = trapInfo{trapNo: 13, errCode: 0x80<<3 | 2}
		t.forceSignal(&arch.SigInfo{Signo: int32(unix.SIGSEGV), Code: linux.SI_KERNEL})
		return
	}
	args := t.regs.Args()
	t.skipReturn = false
	t.lastFlt.count = 0
	if f := t.seccomp.Load(); f != nil && !t.runSeccomp(*f, nr, &args) {
		return
	}
	t.dispatch(nr, &args)
}

// dispatch makes a call, perhaps not for the first time.
func (t *Task) dispatch(nr uint32, args *[6]uint64) {
	ret, err := t.k.cfg.Syscalls.Dispatch(t, uintptr(nr), args)
	if err == errs.ERESTARTCKPT {
		t.run = runState{kind: runReenter}
		return
	}
	if t.reentry.used {
		t.endReentry()
	}
	switch {
	case t.skipReturn:
	case err == nil:
		t.regs.SetReturn(uint64(ret))
	default:
		t.setError(err)
	}
	t.endTempMask(err)
}

// x32Bit marks calls of the x32 ABI (__X32_SYSCALL_BIT); the table has none.
const x32Bit = 0x40000000

func (t *Task) setError(err error) {
	e, ok := err.(unix.Errno)
	if !ok {
		t.k.logf("error", fmt.Sprintf("system call %d failed without an errno: %v", t.regs.OrigRax, err))
		e = unix.EIO
	}
	if e >= 512 && e <= 516 {
		// Decided in sigdeliver.go, now that a signal is pending or was.
		t.restart.code = e
		t.work.Store(true)
		e = unix.EINTR
	}
	t.setErrno(e)
}

// KeepRegs makes the call that runs leave the registers as it set them
// (rt_sigreturn). Own.
func (t *Task) KeepRegs() { t.skipReturn = true }

// fault makes the page present or raises the signal.
func (t *Task) fault(ev *platform.Event) {
	t.acct.minflt.Add(1)
	l := &t.lastFlt
	if l.addr == ev.Addr && l.rip == t.regs.Rip && l.access == ev.Access {
		l.count++
	} else {
		*l = faultLoop{addr: ev.Addr, rip: t.regs.Rip, access: ev.Access}
	}
	if l.count > maxSameFault {
		t.k.logf("warning", fmt.Sprintf("container %s: fault at %#x comes back for ever", t.container.ID(), ev.Addr))
		t.forceSignal(faultInfo(int32(unix.SIGBUS), linux.BUS_ADRERR, ev.Addr))
		return
	}
	err := t.mm.HandleFault(ev.Addr, ev.Access)
	if err == nil {
		return
	}
	if err == mem.ErrLimit {
		t.waitForMemory()
		return
	}
	t.trap = trapInfo{ev.TrapNo, ev.ErrCode, ev.Addr}
	if f, ok := err.(*mm.Fault); ok {
		t.forceSignal(faultInfo(f.Signal, f.Code, f.Addr))
		return
	}
	t.forceSignal(faultInfo(int32(unix.SIGBUS), linux.BUS_ADRERR, ev.Addr))
}

func faultInfo(sig, code int32, addr uint64) *arch.SigInfo {
	info := &arch.SigInfo{Signo: sig, Code: code}
	info.SetAddr(addr)
	return info
}
