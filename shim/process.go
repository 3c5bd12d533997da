package shim

import (
	"encoding/json"
	"time"

	"github.com/containerd/containerd/api/events"
	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// process is a container's init or one that Exec added. Its fields are guarded
// by the container's mu, except where noted.
type process struct {
	execID string // "" for init; immutable
	names  stdioNames
	spec   json.RawMessage // specs.Process of an exec; immutable

	state    state
	pid      int
	status   int
	exitedAt time.Time
	io       *procIO

	// stdinClosed remembers a CloseIO that came before the streams were open.
	stdinClosed bool

	// starting is set while a Start call is under way.
	starting bool

	done chan struct{} // closed when the process has ended
}

func newProcess(execID string, names stdioNames) *process {
	return &process{execID: execID, names: names, done: make(chan struct{})}
}

// id is what events and State call the process.
func (p *process) id(containerID string) string {
	if p.execID == "" {
		return containerID
	}
	return p.execID
}

// exitTime is the time of the end, nil before it.
func (p *process) exitTime() *timestamppb.Timestamp {
	if p.exitedAt.IsZero() {
		return nil
	}
	return timestamppb.New(p.exitedAt)
}

// finishLocked records the end of a process, announces it and then wakes those
// who wait for it: a Delete that follows cannot overtake the event.
func (c *container) finishLocked(p *process, status int) {
	if p.state == stateStopped || p.state == stateDeleted {
		return
	}
	started := p.state != stateCreated || p.execID == ""
	p.state = stateStopped
	p.status = status
	p.exitedAt = time.Now()
	if p.execID == "" {
		c.endLocked(p)
	}
	if started {
		c.svc.events.send(&events.TaskExit{
			ContainerID: c.id,
			ID:          p.id(c.id),
			Pid:         uint32(c.shownPidLocked(p)),
			ExitStatus:  uint32(status),
			ExitedAt:    p.exitTime(),
		})
	}
	close(p.done)
}

// endLocked prepares the end of init: it is the container's last, and delete
// must find it on disk.
func (c *container) endLocked(init *process) {
	for _, e := range c.execs {
		c.finishLocked(e, statusKilled)
	}
	writeJSON(c.bundle, exitFile, exitRecord{Pid: init.pid, Status: init.status, At: init.exitedAt})
	close(c.ended)
}

// stateLocked answers State.
func (c *container) stateLocked(p *process) *taskapi.StateResponse {
	return &taskapi.StateResponse{
		ID:         p.id(c.id),
		Bundle:     c.bundle,
		Pid:        uint32(c.shownPidLocked(p)),
		Status:     p.state.status(),
		Stdin:      p.names.Stdin,
		Stdout:     p.names.Stdout,
		Stderr:     p.names.Stderr,
		Terminal:   p.names.Terminal,
		ExitStatus: uint32(p.status),
		ExitedAt:   p.exitTime(),
		ExecID:     p.execID,
	}
}
