package proc

import (
	"runsc/sentry/cred"
	"runsc/sentry/kernel"
	"runsc/sentry/vfs"
)

// process is a process, or one thread of it, as the owner of a directory.
type process struct {
	in *instance
	id int32 // in the instance's namespace
	tg *kernel.ThreadGroup
	// task is the thread for task/TID and for /proc/TID; nil for a whole
	// process.
	task *kernel.Task
}

// process returns the process with a number in the instance's namespace. As
// on Linux a thread's number is found too, though it is not listed.
func (in *instance) process(id int32) (process, bool) {
	if tg := in.ns.ThreadGroup(id); tg != nil {
		return process{in: in, id: id, tg: tg}, true
	}
	if t := in.ns.Task(id); t != nil {
		return process{in: in, id: id, tg: t.ThreadGroup(), task: t}, true
	}
	return process{}, false
}

// alive tells whether p's number still means p.
func (p process) alive() bool {
	if p.task == nil {
		return p.in.ns.ThreadGroup(p.id) == p.tg
	}
	return p.in.ns.Task(p.id) == p.task
}

// lead returns the thread that stands for p: the thread itself or the leader.
// It is nil for a process on its way out.
func (p process) lead() *kernel.Task {
	if p.task != nil {
		return p.task
	}
	return p.tg.Leader()
}

// cred returns the credentials of p.
func (p process) cred() *cred.Creds {
	if t := p.lead(); t != nil {
		if cr := t.Cred(); cr != nil {
			return cr
		}
	}
	return &cred.Creds{}
}

// mayRead is Linux's ptrace_may_access with PTRACE_MODE_READ_FSCREDS: whether
// c may see p's secrets. The Sentry itself may.
func mayRead(c vfs.Caller, p process) bool {
	t, ok := c.(*kernel.Task)
	if !ok || t.ThreadGroup() == p.tg {
		return true
	}
	o := p.lead()
	return o != nil && t.MayInspect(o, true)
}

// mayList applies hidepid (has_pid_permissions).
func (in *instance) mayList(c vfs.Caller, p process) bool {
	if in.hidepid == hideNothing {
		return true
	}
	t, ok := c.(*kernel.Task)
	if !ok || in.hidepid != hidePtraceable && t.Cred().InGroup(in.gid) {
		return true
	}
	return mayRead(c, p)
}
