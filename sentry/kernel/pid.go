package kernel

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
)

// pidMax is /proc/sys/kernel/pid_max: numbers are below it.
const pidMax = 4194304

// reservedPIDs is where allocation starts again after it has wrapped
// (RESERVED_PIDS in kernel/pid.c).
const reservedPIDs = 300

// maxPIDLevel is how deep namespaces nest (MAX_PID_NS_LEVEL).
const maxPIDLevel = 32

// firstNamespaceInode is the first number given to a namespace that is not
// one of Linux's initial ones (PROC_DYNAMIC_FIRST).
const firstNamespaceInode = 0xF0000000

// PIDNamespace is a pid namespace (pid_namespaces(7)).
type PIDNamespace struct {
	// immutable
	k      *Kernel       `save:"rebuilt"`
	parent *PIDNamespace `save:"rec"`
	level  int           `save:"rebuilt"`
	inode  uint64        `save:"none: a new number"`

	// k.mu guards:
	pids   map[int32]*PID `save:"rebuilt"`
	last   int32          `save:"rec"`
	kept   map[int32]bool `save:"none: containers that are to come have them"`
	reaper *ThreadGroup   `save:"rec"` // pid 1, until it is gone
	// dying is set when the reaper exits: no more pids (ENOMEM in clone).
	dying bool `save:"rec"`
	// exitQ is notified as tasks of the namespace are released.
	exitQ waitq.Queue `save:"rebuilt"`

	// max is kernel.pid_max: numbers are below it; 0 is the most there are.
	max atomic.Int32 `save:"none: a sysctl, which proc saves"`
}

func (k *Kernel) newPIDNamespace(parent *PIDNamespace) *PIDNamespace {
	ns := &PIDNamespace{k: k, parent: parent, inode: k.nextSerial.Add(1), pids: make(map[int32]*PID)}
	if parent != nil {
		ns.level = parent.level + 1
	}
	return ns
}

// NewPIDNamespace returns an empty namespace inside the root one; the first
// process made in it is its init.
func (k *Kernel) NewPIDNamespace() *PIDNamespace { return k.newPIDNamespace(k.rootNS) }

// Inode is the number shown by /proc/PID/ns/pid.
func (ns *PIDNamespace) Inode() uint64 { return ns.inode }

// Parent returns the enclosing namespace, nil for the root.
func (ns *PIDNamespace) Parent() *PIDNamespace { return ns.parent }

// Last is the number given out last, for /proc/loadavg.
func (ns *PIDNamespace) Last() int32 {
	ns.k.mu.Lock()
	defer ns.k.mu.Unlock()
	return ns.last
}

// Task returns the thread with id tid, or nil.
func (ns *PIDNamespace) Task(tid int32) *Task {
	ns.k.mu.Lock()
	defer ns.k.mu.Unlock()
	return ns.taskLocked(tid)
}

func (ns *PIDNamespace) taskLocked(tid int32) *Task {
	if p := ns.pids[tid]; p != nil {
		return p.task
	}
	return nil
}

// ThreadGroup returns the process with id pid, or nil. Zombies count.
func (ns *PIDNamespace) ThreadGroup(pid int32) *ThreadGroup {
	ns.k.mu.Lock()
	defer ns.k.mu.Unlock()
	return ns.groupLocked(pid)
}

func (ns *PIDNamespace) groupLocked(pid int32) *ThreadGroup {
	if p := ns.pids[pid]; p != nil {
		return p.tg
	}
	return nil
}

// ThreadGroups returns the processes visible in the namespace, in order of
// their numbers there.
func (ns *PIDNamespace) ThreadGroups() []*ThreadGroup {
	ns.k.mu.Lock()
	defer ns.k.mu.Unlock()
	var all []*ThreadGroup
	for _, p := range ns.pids {
		if p.tg != nil {
			all = append(all, p.tg)
		}
	}
	sortBy(all, func(tg *ThreadGroup) int32 { return tg.pid.In(ns) })
	return all
}

// PID is Linux's struct pid: one identity with a number in each namespace
// from its own up to the root. It can be the id of a task, a thread group, a
// process group and a session at once, and its numbers are free again when it
// is none of them.
type PID struct {
	// immutable
	ns   *PIDNamespace `save:"rec"`
	nums []int32       `save:"rec"` // by level

	// k.mu guards:
	task    *Task         `save:"rebuilt"`
	tg      *ThreadGroup  `save:"rebuilt"`
	pgrp    *processGroup `save:"rebuilt"`
	session *session      `save:"rebuilt"`

	// exitQ is notified when the thread group becomes a zombie (pidfds).
	exitQ waitq.Queue `save:"rebuilt"`
}

// In returns the number in ns, 0 if the identity is not visible there.
func (p *PID) In(ns *PIDNamespace) int32 {
	if p == nil || ns.level >= len(p.nums) {
		return 0
	}
	// Visible only if ns is on the way from p.ns to the root.
	up := p.ns
	for up.level > ns.level {
		up = up.parent
	}
	if up != ns {
		return 0
	}
	return p.nums[ns.level]
}

// allocPIDLocked returns a new identity in ns. want, if not empty, are the
// numbers to take from the innermost namespace outwards (clone3's set_tid).
//
// Errors: EAGAIN when the numbers are used up, ENOMEM when the namespace's
// init is gone (clone(2)), EEXIST for a wanted number that is taken.
func (ns *PIDNamespace) allocPIDLocked(want []int32) (*PID, error) {
	if ns.dying {
		return nil, unix.ENOMEM
	}
	p := &PID{ns: ns, nums: make([]int32, ns.level+1)}
	depth := 0
	for n := ns; n != nil; n = n.parent {
		var num int32
		if depth < len(want) {
			num = want[depth]
			if n.pids[num] != nil || n.kept[num] {
				ns.freeNumbersLocked(p, n.level)
				return nil, unix.EEXIST
			}
		} else if num = n.nextLocked(); num == 0 {
			ns.freeNumbersLocked(p, n.level)
			return nil, unix.EAGAIN
		}
		p.nums[n.level] = num
		n.pids[num] = p
		depth++
	}
	return p, nil
}

// nextLocked returns the next free number after the last one, 0 if there is none.
func (ns *PIDNamespace) nextLocked() int32 {
	most := ns.PIDMax()
	if len(ns.pids)+len(ns.kept) >= int(most)-reservedPIDs {
		return 0
	}
	n := ns.last
	for {
		n++
		if n >= most {
			n = reservedPIDs
		}
		if ns.pids[n] == nil && !ns.kept[n] {
			ns.last = n
			return n
		}
	}
}

// freeNumbersLocked gives back the numbers of p at levels above the given one.
func (ns *PIDNamespace) freeNumbersLocked(p *PID, above int) {
	for n := ns; n != nil && n.level > above; n = n.parent {
		delete(n.pids, p.nums[n.level])
	}
}

// putLocked frees the numbers if nothing uses the identity any more.
func (p *PID) putLocked() {
	if p.task == nil && p.tg == nil && p.pgrp == nil && p.session == nil {
		p.ns.freeNumbersLocked(p, -1)
	}
}
