package kernel

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/abi/linux"
	"runsc/sentry/arch"
	"runsc/sentry/seccompbpf"
)

// maxFilters bounds the filters of a task: Linux bounds their total length
// (MAX_INSNS_PER_PATH), this bounds what one call may cost.
const maxFilters = 256

// seccompFilters is a task's filters, oldest first; it is immutable.
type seccompFilters []seccompbpf.Filter

// SeccompFilters returns the filters on the task's system calls.
func (t *Task) SeccompFilters() []seccompbpf.Filter {
	if f := t.seccomp.Load(); f != nil {
		return *f
	}
	return nil
}

// AddSeccompFilter puts one more filter on the task's system calls, for good,
// and with all on those of the process's other threads (SECCOMP_FILTER_FLAG_TSYNC).
// ENOMEM when there are too many; with all, ESRCH when a thread has filters
// that are not also the task's. Own.
func (t *Task) AddSeccompFilter(f seccompbpf.Filter, all bool) error {
	old := t.seccomp.Load()
	var list seccompFilters
	if old != nil {
		list = append(list, *old...)
	}
	if len(list) >= maxFilters {
		return unix.ENOMEM
	}
	list = append(list, f)
	if !all {
		t.seccomp.Store(&list)
		return nil
	}
	t.tg.sigmu.Lock()
	defer t.tg.sigmu.Unlock()
	for _, o := range t.tg.tasks {
		if fs := o.seccomp.Load(); fs != nil && fs != old && !old.startsWith(*fs) {
			return unix.ESRCH
		}
	}
	for _, o := range t.tg.tasks {
		o.seccomp.Store(&list)
	}
	return nil
}

// startsWith tells whether fs are the oldest of the filters.
func (f *seccompFilters) startsWith(fs seccompFilters) bool {
	if f == nil || len(fs) > len(*f) {
		return false
	}
	for i := range fs {
		if fs[i] != (*f)[i] {
			return false
		}
	}
	return true
}

// runSeccomp decides on a system call; it returns false when the call is not
// to be made, with the registers and signals as __seccomp_filter leaves them.
func (t *Task) runSeccomp(filters seccompFilters, nr uint32, args *[6]uint64) bool {
	d := seccompbpf.Data{Nr: int32(nr), Arch: unix.AUDIT_ARCH_X86_64, IP: t.regs.Rip, Args: *args}
	ret := seccompbpf.Strictest(filters, &d)
	data := ret & unix.SECCOMP_RET_DATA
	switch ret & unix.SECCOMP_RET_ACTION_FULL {
	case unix.SECCOMP_RET_ALLOW, unix.SECCOMP_RET_LOG:
		return true
	case unix.SECCOMP_RET_ERRNO:
		t.regs.SetReturn(-uint64(min(data, maxErrno))) // 0 makes the call succeed
	case unix.SECCOMP_RET_TRAP:
		info := &arch.SigInfo{Signo: int32(unix.SIGSYS), Errno: int32(data), Code: linux.SYS_SECCOMP}
		info.SetSyscall(t.regs.Rip, int32(nr), unix.AUDIT_ARCH_X86_64)
		t.forceSignal(info)
	case unix.SECCOMP_RET_TRACE, unix.SECCOMP_RET_USER_NOTIF:
		// Nobody traces or listens.
		t.setErrno(unix.ENOSYS)
	case unix.SECCOMP_RET_KILL_THREAD:
		t.setErrno(unix.ENOSYS)
		if t.tg.NumThreads() > 1 {
			t.run = runState{kind: runExit, status: int32(unix.SIGSYS)}
			return false
		}
		t.killBySeccomp()
	default:
		t.setErrno(unix.ENOSYS)
		t.killBySeccomp()
	}
	return false
}

// maxErrno is MAX_ERRNO of include/linux/err.h.
const maxErrno = 4095

// killBySeccomp ends the process by SIGSYS, whatever it does with the signal.
func (t *Task) killBySeccomp() {
	t.tg.sigmu.Lock()
	defer t.tg.sigmu.Unlock()
	t.tg.beginExitLocked(int32(unix.SIGSYS))
}
