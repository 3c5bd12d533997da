package kernel

import (
	"fmt"

	"runsc/sentry/image"
)

// keptNumber is a process number that waits for its container.
type keptNumber struct {
	ns *PIDNamespace
	n  int32
}

// Close ends a restore in stages: nothing more is to come.
func (e *RestoreEnv) Close() {
	for _, x := range e.kept {
		x.ns.k.mu.Lock()
		delete(x.ns.kept, x.n)
		x.ns.k.mu.Unlock()
	}
	e.kept = nil
	e.Abort()
}

// keepNumbersLocked sees to it that no new process gets the numbers of those
// of containers that are still to come into a shared pid namespace.
func (r *restored) keepNumbersLocked() {
	if r.e.Needed == nil {
		return
	}
	for _, id := range r.e.IDs(image.KindPID) {
		var rec image.PID
		if _, made := image.Object[*PID](r.e.Restorer, id); made || r.e.Get(image.KindPID, id, &rec) != nil || !r.e.Needed(id) {
			continue // a record that cannot be read is an error for who needs it
		}
		ns := r.spaces[rec.Namespace]
		if ns == nil || len(rec.Numbers) != ns.level-r.c.pidNS.level+1 {
			continue
		}
		n := rec.Numbers[len(rec.Numbers)-1]
		if n <= 0 || n >= pidMax || ns.kept[n] || ns.pids[n] != nil {
			continue
		}
		if ns.kept == nil {
			ns.kept = map[int32]bool{}
		}
		ns.kept[n] = true
		r.e.kept = append(r.e.kept, keptNumber{ns, n})
	}
}

// sameSpace checks that containers which shared a namespace share it again.
func sameSpace[T comparable](was, is T, kind string) error {
	if was != is {
		return fmt.Errorf("the image's containers share a %s namespace and the new specification's (linux.namespaces) do not", kind)
	}
	return nil
}
