package syscalls

import (
	"runtime"

	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/pkg/abi/linux"
	"runsc/sentry/kernel"
)

// sysSchedYield implements sched_yield(2).
func sysSchedYield(t *kernel.Task, a Args) (uintptr, error) {
	runtime.Gosched()
	return 0, nil
}

// schedTarget finds the thread of a sched_* call: EINVAL for a negative id, ESRCH.
func schedTarget(t *kernel.Task, id int32) (*kernel.Task, error) {
	if id < 0 {
		return nil, unix.EINVAL
	}
	return t.TaskByID(id)
}

// mayRenice is check_same_owner.
func mayRenice(t, o *kernel.Task) bool {
	c, d := t.Cred(), o.Cred()
	return c.EUID == d.EUID || c.EUID == d.UID || c.Has(unix.CAP_SYS_NICE)
}

// sysSchedGetaffinity implements sched_getaffinity(2), which returns the size
// of the mask.
func sysSchedGetaffinity(t *kernel.Task, a Args) (uintptr, error) {
	size := uint64(a.Uint(1))
	if size*8 < uint64(t.Kernel().NumCPUs()) || size%8 != 0 {
		return 0, unix.EINVAL
	}
	// No check for a negative id here: ESRCH (find_process_by_pid).
	o, err := t.TaskByID(a.Int(0))
	if err != nil {
		return 0, err
	}
	m := o.Affinity()
	n := min(size, uint64(len(m)))
	return uintptr(n), t.CopyOut(a.Addr(2), m[:n])
}

// sysSchedSetaffinity implements sched_setaffinity(2).
func sysSchedSetaffinity(t *kernel.Task, a Args) (uintptr, error) {
	mask := make([]byte, min(a.Uint(1), 1024))
	if err := t.CopyIn(a.Addr(2), mask); err != nil {
		return 0, err
	}
	o, err := t.TaskByID(a.Int(0))
	if err != nil {
		return 0, err
	}
	if !mayRenice(t, o) {
		return 0, unix.EPERM
	}
	return done(o.SetAffinity(mask))
}

// schedPrioRange is the range of priorities of a policy.
func schedPrioRange(policy int32) (lo, hi int32, err error) {
	switch policy {
	case linux.SCHED_FIFO, linux.SCHED_RR:
		return 1, 99, nil
	case linux.SCHED_NORMAL, linux.SCHED_BATCH, linux.SCHED_IDLE, linux.SCHED_DEADLINE:
		return 0, 0, nil
	}
	return 0, 0, unix.EINVAL
}

// sysSchedGetPriorityMax implements sched_get_priority_max(2).
func sysSchedGetPriorityMax(t *kernel.Task, a Args) (uintptr, error) {
	_, hi, err := schedPrioRange(a.Int(0))
	return uintptr(hi), err
}

// sysSchedGetPriorityMin implements sched_get_priority_min(2).
func sysSchedGetPriorityMin(t *kernel.Task, a Args) (uintptr, error) {
	lo, _, err := schedPrioRange(a.Int(0))
	return uintptr(lo), err
}

// sysSchedRrGetInterval implements sched_rr_get_interval(2).
func sysSchedRrGetInterval(t *kernel.Task, a Args) (uintptr, error) {
	o, err := schedTarget(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	slice := int64(4e6)
	switch p, _ := o.Scheduler(); p {
	case linux.SCHED_RR:
		slice = 100e6
	case linux.SCHED_FIFO:
		slice = 0
	}
	return done(copyOutTimespec(t, a.Addr(1), slice))
}

// sysSchedGetparam implements sched_getparam(2).
func sysSchedGetparam(t *kernel.Task, a Args) (uintptr, error) {
	if a.Addr(1) == 0 {
		return 0, unix.EINVAL
	}
	o, err := schedTarget(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	_, prio := o.Scheduler()
	return done(t.CopyOut(a.Addr(1), abi.Bytes(&prio)))
}

// sysSchedGetscheduler implements sched_getscheduler(2).
func sysSchedGetscheduler(t *kernel.Task, a Args) (uintptr, error) {
	o, err := schedTarget(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	p, _ := o.Scheduler()
	return uintptr(p), nil
}

// sysSchedSetparam implements sched_setparam(2).
func sysSchedSetparam(t *kernel.Task, a Args) (uintptr, error) {
	o, err := schedTarget(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	p, _ := o.Scheduler()
	return setScheduler(t, o, p, a.Addr(1))
}

// sysSchedSetscheduler implements sched_setscheduler(2).
func sysSchedSetscheduler(t *kernel.Task, a Args) (uintptr, error) {
	o, err := schedTarget(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	return setScheduler(t, o, a.Int(1)&^linux.SCHED_RESET_ON_FORK, a.Addr(2))
}

func setScheduler(t, o *kernel.Task, policy int32, param uint64) (uintptr, error) {
	if param == 0 {
		return 0, unix.EINVAL
	}
	var prio int32
	if err := t.CopyIn(param, abi.Bytes(&prio)); err != nil {
		return 0, err
	}
	lo, hi, err := schedPrioRange(policy)
	if err != nil || policy == linux.SCHED_DEADLINE || prio < lo || prio > hi {
		return 0, unix.EINVAL
	}
	if !mayRenice(t, o) {
		return 0, unix.EPERM
	}
	if hi > 0 && !t.Cred().Has(unix.CAP_SYS_NICE) && uint64(prio) > o.Rlimit(unix.RLIMIT_RTPRIO) {
		return 0, unix.EPERM
	}
	o.SetScheduler(policy, prio)
	return 0, nil
}

// prioTargets lists the processes that getpriority and setpriority mean.
func prioTargets(t *kernel.Task, which, who int32) ([]*kernel.Task, error) {
	var all []*kernel.Task
	switch which {
	case unix.PRIO_PROCESS:
		if o, err := t.TaskByID(who); err == nil {
			all = append(all, o)
		}
	case unix.PRIO_PGRP:
		for _, tg := range t.ProcessesOfGroup(who) {
			all = append(all, tg.Tasks()...)
		}
	case unix.PRIO_USER:
		uid := uint32(who)
		if who == 0 {
			uid = t.Cred().UID
		}
		for _, tg := range t.PIDNamespace().ThreadGroups() {
			for _, o := range tg.Tasks() {
				if o.Cred().UID == uid {
					all = append(all, o)
				}
			}
		}
	default:
		return nil, unix.EINVAL
	}
	if len(all) == 0 {
		return nil, unix.ESRCH
	}
	return all, nil
}

// sysGetpriority implements getpriority(2); the system call returns 20-nice.
func sysGetpriority(t *kernel.Task, a Args) (uintptr, error) {
	all, err := prioTargets(t, a.Int(0), a.Int(1))
	if err != nil {
		return 0, err
	}
	best := int32(19)
	for _, o := range all {
		best = min(best, o.Nice())
	}
	return uintptr(20 - best), nil
}

// sysSetpriority implements setpriority(2).
func sysSetpriority(t *kernel.Task, a Args) (uintptr, error) {
	nice := min(max(a.Int(2), -20), 19)
	all, err := prioTargets(t, a.Int(0), a.Int(1))
	if err != nil {
		return 0, err
	}
	for _, o := range all {
		c, d := t.Cred(), o.Cred()
		switch {
		case c.UID != d.EUID && c.EUID != d.EUID && !c.Has(unix.CAP_SYS_NICE):
			err = unix.EPERM
		case nice < o.Nice() && !c.Has(unix.CAP_SYS_NICE) && uint64(20-nice) > o.Rlimit(unix.RLIMIT_NICE):
			err = unix.EACCES
		default:
			o.SetNice(nice)
		}
	}
	return 0, err
}

// sysIoprioGet implements ioprio_get(2) for one thread.
func sysIoprioGet(t *kernel.Task, a Args) (uintptr, error) {
	if a.Int(0) != 1 { // IOPRIO_WHO_PROCESS
		return 0, unix.EINVAL
	}
	o, err := t.TaskByID(a.Int(1))
	if err != nil {
		return 0, err
	}
	return uintptr(o.IOPrio()), nil
}

// sysIoprioSet implements ioprio_set(2) for one thread.
func sysIoprioSet(t *kernel.Task, a Args) (uintptr, error) {
	class := a.Int(2) >> 13
	if a.Int(0) != 1 || class < 0 || class > 3 {
		return 0, unix.EINVAL
	}
	if class == 1 && !t.Cred().Has(unix.CAP_SYS_ADMIN) && !t.Cred().Has(unix.CAP_SYS_NICE) {
		return 0, unix.EPERM
	}
	o, err := t.TaskByID(a.Int(1))
	if err != nil {
		return 0, err
	}
	if !mayRenice(t, o) {
		return 0, unix.EPERM
	}
	o.SetIOPrio(a.Int(2))
	return 0, nil
}

// sysGetcpu implements getcpu(2).
func sysGetcpu(t *kernel.Task, a Args) (uintptr, error) {
	cpu, node := t.CPU(), uint32(0)
	if addr := a.Addr(0); addr != 0 {
		if err := t.CopyOut(addr, abi.Bytes(&cpu)); err != nil {
			return 0, err
		}
	}
	if addr := a.Addr(1); addr != 0 {
		return done(t.CopyOut(addr, abi.Bytes(&node)))
	}
	return 0, nil
}

// sysMembarrier implements membarrier(2). A trap into the Sentry and back is a
// full barrier of the caller only; for the others, each is made to pass
// through the Sentry.
func sysMembarrier(t *kernel.Task, a Args) (uintptr, error) {
	const known = linux.MEMBARRIER_CMD_GLOBAL | linux.MEMBARRIER_CMD_GLOBAL_EXPEDITED | linux.MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED |
		linux.MEMBARRIER_CMD_PRIVATE_EXPEDITED | linux.MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED
	if a.Uint(1) != 0 {
		return 0, unix.EINVAL
	}
	switch a.Int(0) {
	case linux.MEMBARRIER_CMD_QUERY:
		return known, nil
	case linux.MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, linux.MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED:
		return 0, nil
	case linux.MEMBARRIER_CMD_PRIVATE_EXPEDITED:
		return done(t.Barrier(false))
	case linux.MEMBARRIER_CMD_GLOBAL, linux.MEMBARRIER_CMD_GLOBAL_EXPEDITED:
		return done(t.Barrier(true))
	}
	return 0, unix.EINVAL
}
