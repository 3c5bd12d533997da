package kernel

import (
	"sync/atomic"

	"runsc/sentry/vfs"
)

// Tunables has the settings of /proc/sys that a container's tasks follow.
type Tunables struct {
	FS *vfs.Tunables

	// atomic:
	ThreadsMax atomic.Int64 // kernel.threads-max
}

// DefaultThreadsMax is the initial kernel.threads-max.
const DefaultThreadsMax = 192730

func (x *Tunables) init() {
	x.FS = vfs.NewTunables()
	x.ThreadsMax.Store(DefaultThreadsMax)
}

// Tunables returns the container's settings.
func (c *Container) Tunables() *Tunables { return &c.tun }

// Tunables returns the settings of file systems for the task.
func (t *Task) Tunables() *vfs.Tunables { return t.container.tun.FS }

// PIDMax is kernel.pid_max.
func (ns *PIDNamespace) PIDMax() int32 {
	if m := ns.max.Load(); m != 0 {
		return m
	}
	return pidMax
}

// SetPIDMax sets it; the caller has checked it.
func (ns *PIDNamespace) SetPIDMax(n int32) { ns.max.Store(min(n, pidMax)) }

// SetLast makes n the number given out last.
func (ns *PIDNamespace) SetLast(n int32) {
	ns.k.mu.Lock()
	defer ns.k.mu.Unlock()
	ns.last = min(max(n, 0), ns.PIDMax()-1)
}

// PidsFailures is how often the pids limit refused a task.
func (c *Container) PidsFailures() uint64 { return c.pidsFails.Load() }

// Namespaces returns the namespaces that the identity has a number in, from
// the given one inwards.
func (p *PID) Namespaces(from *PIDNamespace) []*PIDNamespace {
	var list []*PIDNamespace
	for ns := p.ns; ns != nil && ns.level >= from.level; ns = ns.parent {
		list = append([]*PIDNamespace{ns}, list...)
	}
	return list
}
