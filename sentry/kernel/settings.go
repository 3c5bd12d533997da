package kernel

import (
	"golang.org/x/sys/unix"
)

// SetPDeathSig is prctl(PR_SET_PDEATHSIG): the signal, 0 for none, that the
// task gets when its parent ends. Own.
func (t *Task) SetPDeathSig(sig int32) {
	t.k.mu.Lock()
	defer t.k.mu.Unlock()
	t.pdeathSig = sig
}

// PDeathSig returns it. Own.
func (t *Task) PDeathSig() int32 {
	t.k.mu.Lock()
	defer t.k.mu.Unlock()
	return t.pdeathSig
}

// SetSubreaper is prctl(PR_SET_CHILD_SUBREAPER). Own.
func (t *Task) SetSubreaper(on bool) {
	t.k.mu.Lock()
	defer t.k.mu.Unlock()
	t.tg.subreaper = on
	if on {
		t.tg.markDescendantsLocked()
	}
}

// markDescendantsLocked tells all descendants that they have a subreaper above.
func (tg *ThreadGroup) markDescendantsLocked() {
	for _, ch := range tg.children {
		if !ch.hasSubreaper {
			ch.hasSubreaper = true
			ch.markDescendantsLocked()
		}
	}
}

// Subreaper returns it. Own.
func (t *Task) Subreaper() bool {
	t.k.mu.Lock()
	defer t.k.mu.Unlock()
	return t.tg.subreaper
}

// Dumpable is prctl(PR_GET_DUMPABLE): 0 or 1.
func (tg *ThreadGroup) Dumpable() int32 { return tg.dumpable.Load() }

// SetDumpable sets it.
func (tg *ThreadGroup) SetDumpable(v int32) { tg.dumpable.Store(v) }

// TimerSlack is prctl(PR_GET_TIMERSLACK), in ns.
func (t *Task) TimerSlack() uint64 { return t.misc.timerSlack.Load() }

// SetTimerSlack sets it; 0 is the default.
func (t *Task) SetTimerSlack(ns uint64) {
	if ns == 0 {
		ns = defaultTimerSlack
	}
	t.misc.timerSlack.Store(ns)
}

// Personality is personality(2).
func (t *Task) Personality() uint32 { return t.misc.personality.Load() }

// SetPersonality sets it.
func (t *Task) SetPersonality(p uint32) { t.misc.personality.Store(p) }

// THPDisable is prctl(PR_GET_THP_DISABLE), which changes nothing here.
func (t *Task) THPDisable() bool { return t.misc.thpDisable.Load() }

// SetTHPDisable sets it.
func (t *Task) SetTHPDisable(on bool) { t.misc.thpDisable.Store(on) }

// Nice is the nice value, -20 to 19. It changes nothing: guest tasks share the
// host's scheduler.
func (t *Task) Nice() int32 { return t.misc.nice.Load() }

// SetNice sets it, clamped.
func (t *Task) SetNice(n int32) { t.misc.nice.Store(min(max(n, -20), 19)) }

// Scheduler returns policy and realtime priority.
func (t *Task) Scheduler() (policy, priority int32) {
	return t.misc.policy.Load(), t.misc.rtPriority.Load()
}

// SetScheduler sets them.
func (t *Task) SetScheduler(policy, priority int32) {
	t.misc.policy.Store(policy)
	t.misc.rtPriority.Store(priority)
}

// IOPrio is ioprio_get(2)'s value.
func (t *Task) IOPrio() int32 { return t.misc.ioprio.Load() }

// SetIOPrio sets it.
func (t *Task) SetIOPrio(v int32) { t.misc.ioprio.Store(v) }

// Affinity is the CPU mask of sched_getaffinity(2), one bit per CPU, least
// significant first.
func (t *Task) Affinity() []byte {
	if m := t.misc.affinity.Load(); m != nil {
		return append([]byte(nil), *m...)
	}
	return t.k.allCPUs()
}

func (k *Kernel) allCPUs() []byte {
	m := make([]byte, (k.NumCPUs()+63)/64*8)
	for i := range k.NumCPUs() {
		m[i/8] |= 1 << (i % 8)
	}
	return m
}

// SetAffinity sets the mask; EINVAL when it names no CPU there is. Tasks run
// where the host puts them.
func (t *Task) SetAffinity(mask []byte) error {
	m := t.k.allCPUs()
	any := false
	for i := range m {
		if i < len(mask) {
			m[i] &= mask[i]
		} else {
			m[i] = 0
		}
		any = any || m[i] != 0
	}
	if !any {
		return unix.EINVAL
	}
	t.misc.affinity.Store(&m)
	return nil
}

// TaskByID returns the thread with id tid in the task's namespace, or the task
// for 0: ESRCH. Own.
func (t *Task) TaskByID(tid int32) (*Task, error) {
	if tid == 0 {
		return t, nil
	}
	if o := t.PIDNamespace().Task(tid); o != nil {
		return o, nil
	}
	return nil, unix.ESRCH
}

// PPID returns the parent's id in the task's namespace, 0 if it has none there. Own.
func (t *Task) PPID() int32 { return t.tg.PPID(t.PIDNamespace()) }

// NumThreads is the number of threads that are not gone.
func (tg *ThreadGroup) NumThreads() int {
	tg.sigmu.Lock()
	defer tg.sigmu.Unlock()
	return len(tg.tasks)
}

// CPU is the number of the CPU the task pretends to run on (getcpu(2)).
func (t *Task) CPU() uint32 {
	m := t.Affinity()
	for i := range t.k.NumCPUs() {
		if m[i/8]&(1<<(i%8)) != 0 {
			return uint32(i)
		}
	}
	return 0
}

// ProcessesOfGroup returns the members of process group pgid (0: the task's
// own) in the task's namespace. Own.
func (t *Task) ProcessesOfGroup(pgid int32) []*ThreadGroup {
	t.k.mu.Lock()
	defer t.k.mu.Unlock()
	pg := t.tg.pgrp
	if pgid != 0 {
		p := t.PID().ns.pids[pgid]
		if p == nil {
			return nil
		}
		pg = p.pgrp
	}
	if pg == nil {
		return nil
	}
	return append([]*ThreadGroup(nil), pg.members...)
}

// MemInfo returns the memory that the container has and what is free of it, in
// bytes: its limit or, without one, the host's.
func (k *Kernel) MemInfo(c *Container) (total, free uint64) {
	total = k.hostMemory()
	var used uint64
	if a := c.Account(); a != nil {
		used = a.Total()
		if l := a.Limit(); l != 0 {
			total = min(total, l)
		}
	}
	return total, total - min(used, total)
}

// hostMemory is the host's memory in bytes.
func (k *Kernel) hostMemory() uint64 {
	var si unix.Sysinfo_t
	if unix.Sysinfo(&si) != nil {
		return 1 << 30
	}
	return si.Totalram * uint64(si.Unit)
}

// Barrier makes every task of the process, or of the sandbox with all set,
// pass through the Sentry, so that what it wrote before is seen after
// (membarrier(2)). Own.
func (t *Task) Barrier(all bool) error {
	for _, o := range t.barrierTasks(all) {
		if o == t || !o.inGuest.Load() {
			continue
		}
		seen := o.acct.entered.Load()
		o.kick()
		for o.inGuest.Load() && o.acct.entered.Load() == seen {
			w := t.waiter
			w.Clear()
			if err := t.BlockKillable(w, t.Now()+20_000); err != nil && err != unix.ETIMEDOUT {
				return err
			}
		}
	}
	return nil
}

func (t *Task) barrierTasks(all bool) []*Task {
	if !all {
		return t.tg.Tasks()
	}
	t.k.mu.Lock()
	defer t.k.mu.Unlock()
	var tasks []*Task
	for _, c := range t.k.containers {
		for o := range c.tasks {
			tasks = append(tasks, o)
		}
	}
	return tasks
}
