package shim

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/containerd/containerd/api/events"
	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"runsc/pkg/controlapi"
	"runsc/pkg/hostcgroup"
)

// Exit statuses that do not come from the guest.
const (
	statusKilled  = 128 + 9
	statusUnknown = 255
)

// container is a task: its init, the processes exec'd in it, and what it holds
// on the host.
type container struct {
	id     string
	bundle string
	svc    *service
	sb     *sandbox
	root   bool // its end ends the sandbox

	// Immutable after Create.
	hooks       *specs.Hooks
	annotations map[string]string
	cgroup      hostcgroup.Group
	saves       saveOptions

	// op serialises Start of init, Pause, Resume, Update and Delete.
	op sync.Mutex

	// ended is closed when init has ended.
	ended chan struct{}

	mu sync.Mutex
	// mu guards, with the fields of the processes:
	init     *process
	execs    map[string]*process
	starting int        // Start calls under way
	held     []heldNote // what waits for those calls
	gone     bool       // the sandbox has ended
	// restoring is set from Create to Start of a container from an image; its
	// pid is 0 for containerd, which then lets it be deleted.
	restoring bool
	restored  *restoreSource // nil unless it comes from an image
	ooms      uint64
	limits    controlapi.Limits
	rec       record
}

// what names the container in errors.
func (c *container) what() string { return fmt.Sprintf("container %q", c.id) }

// processLocked returns init or an exec'd process.
func (c *container) processLocked(execID string) (*process, error) {
	if execID == "" {
		return c.init, nil
	}
	if p := c.execs[execID]; p != nil {
		return p, nil
	}
	return nil, fail(errdefs.ErrNotFound, "process %q of container %q", execID, c.id)
}

// noteExit takes an exit from the Sentry. It is held back while a Start is
// under way: the exit of a process must not be announced before its start,
// and the exit of init not before that of an exec'd process.
func (c *container) noteExit(n controlapi.ExitNote) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.starting > 0 {
		if len(c.held) < maxHeldExits {
			c.held = append(c.held, heldNote{exit: n})
		}
		return
	}
	c.applyExitLocked(n)
}

// heldNote is an exit, or an OOM kill.
type heldNote struct {
	oom  bool
	exit controlapi.ExitNote
}

// maxHeldExits bounds what a hostile Sentry can make us remember.
const maxHeldExits = 65536

func (c *container) applyExitLocked(n controlapi.ExitNote) {
	p, err := c.processLocked(n.ExecID)
	if err != nil || p.state == stateCreated {
		slog.Debug("exit of an unknown process", "container", c.id, "exec", n.ExecID)
		return
	}
	c.finishLocked(p, n.Status)
}

// beginStart is called before a process is asked to run.
func (c *container) beginStartLocked(p *process) {
	p.starting = true
	c.starting++
}

// endStart is called when its start, if any, was announced.
func (c *container) endStartLocked(p *process) {
	p.starting = false
	c.starting--
	if c.starting > 0 {
		return
	}
	held := c.held
	c.held = nil
	for _, n := range held {
		if n.oom {
			c.applyOOMLocked()
		} else {
			c.applyExitLocked(n.exit)
		}
	}
	if c.gone {
		c.finishLocked(c.init, statusKilled)
	}
}

// noteOOM counts and announces a kill for lack of memory.
func (c *container) noteOOM() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.starting > 0 {
		if len(c.held) < maxHeldExits {
			c.held = append(c.held, heldNote{oom: true})
		}
		return
	}
	c.applyOOMLocked()
}

func (c *container) applyOOMLocked() {
	if c.init.state == stateStopped || c.init.state == stateDeleted {
		return
	}
	c.ooms++
	c.svc.events.send(&events.TaskOOM{ContainerID: c.id})
}

// lost ends all processes of the container: the sandbox is gone.
func (c *container) lost() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = true
	if c.starting == 0 {
		c.finishLocked(c.init, statusKilled)
	}
}

// live reports whether init has neither ended nor been deleted.
func (c *container) live() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.init.state != stateStopped && c.init.state != stateDeleted
}

// writeRecord saves what delete needs.
func (c *container) writeRecord(change func(*record)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.rec)
	return writeJSON(c.bundle, recordFile, c.rec)
}

// pidOf returns the host pid that stands for init.
func (c *container) pidOf() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.init.pid
}

// shownPidLocked returns the pid that containerd is told of.
func (c *container) shownPidLocked(p *process) int {
	if c.restoring && p == c.init {
		return 0
	}
	return p.pid
}

// shownPid returns init's.
func (c *container) shownPid() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shownPidLocked(c.init)
}

// drainPatience bounds how long Delete waits for output.
const drainPatience = 10 * time.Second

// closeIO ends a process's streams once its output has been copied, or after
// a while if descendants hold them open.
func closeIO(io *procIO) {
	if io == nil {
		return
	}
	io.drain(drainPatience)
	io.close()
}
