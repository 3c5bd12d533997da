package kernel

import (
	"runsc/sentry/image"
	"runsc/sentry/vfs"
)

// StateKind implements vfs.StateSaver.
func (p *pidfd) StateKind() image.Kind { return image.KindPIDFD }

// SaveState implements vfs.StateSaver. A process that the image does not have
// is gone after a restore.
func (p *pidfd) SaveState(e *vfs.SaveEnv, id image.ID) error {
	return e.Put(image.KindPIDFD, &image.PIDFD{ID: id, Group: e.Known(p.tg)})
}

func restorePIDFD(e *vfs.RestoreEnv, id image.ID) (any, error) {
	var rec image.PIDFD
	if err := e.Get(image.KindPIDFD, id, &rec); err != nil {
		return nil, err
	}
	if tg, ok := image.Object[*ThreadGroup](e.Restorer, rec.Group); ok {
		return &pidfd{pid: tg.pid, tg: tg}, nil
	}
	for _, id := range e.IDs(image.KindContainer) {
		if c, ok := image.Object[*Container](e.Restorer, id); ok {
			tg := newThreadGroup(c)
			tg.exitState = exitDead
			tg.pid = &PID{ns: c.pidNS, nums: make([]int32, c.pidNS.level+1)}
			return &pidfd{pid: tg.pid, tg: tg}, nil
		}
	}
	return nil, bad("a pidfd without a container")
}

func init() { vfs.RegisterState(image.KindPIDFD, restorePIDFD) }
