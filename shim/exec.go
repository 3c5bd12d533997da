package shim

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/containerd/containerd/api/events"
	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"runsc/pkg/controlapi"
)

// addExec registers a process that Start will run.
func (c *container) addExec(r *taskapi.ExecProcessRequest) error {
	if err := controlapi.ValidateID(r.ExecID); err != nil {
		return fail(errdefs.ErrInvalidArgument, "%v", err)
	}
	spec, terminal, err := execSpec(r)
	if err != nil {
		return fail(errdefs.ErrInvalidArgument, "exec %q: %v", r.ExecID, err)
	}
	if terminal {
		return fail(errdefs.ErrInvalidArgument, "terminals are not supported yet: exec %q needs one", r.ExecID)
	}
	p := newProcess(r.ExecID, stdioNames{Stdin: r.Stdin, Stdout: r.Stdout, Stderr: r.Stderr, Terminal: terminal})
	p.spec = spec
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.execs[r.ExecID] != nil || r.ExecID == c.id {
		return fail(errdefs.ErrAlreadyExists, "process %q of %s", r.ExecID, c.what())
	}
	if err := c.init.state.check(opExec, c.what()); err != nil {
		return err
	}
	c.execs[r.ExecID] = p
	c.svc.events.send(&events.TaskExecAdded{ContainerID: c.id, ExecID: r.ExecID})
	return nil
}

// execSpec checks the process of a request and returns it as text.
func execSpec(r *taskapi.ExecProcessRequest) (json.RawMessage, bool, error) {
	if r.Spec == nil {
		return nil, false, fmt.Errorf("no process")
	}
	var p specs.Process
	if err := json.Unmarshal(r.Spec.Value, &p); err != nil {
		return nil, false, err
	}
	if len(p.Args) == 0 {
		return nil, false, fmt.Errorf("no arguments")
	}
	if err := validateProcess(&p); err != nil {
		return nil, false, err
	}
	// What the request says of a terminal goes before what the process says.
	p.Terminal = r.Terminal
	raw, err := json.Marshal(&p)
	return raw, r.Terminal, err
}

// startExec runs a registered process.
func (c *container) startExec(ctx context.Context, execID string) (_ int, err error) {
	c.mu.Lock()
	p, err := c.processLocked(execID)
	if err == nil {
		err = c.canExecLocked(p)
	}
	if err != nil {
		c.mu.Unlock()
		return 0, err
	}
	c.beginStartLocked(p)
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if err != nil {
			// Not announced as started, so its end is not either; but those
			// who wait for it must learn of it.
			if p.state == stateCreated {
				p.state = stateStopped
				p.status = statusUnknown
				close(p.done)
			}
		}
		c.endStartLocked(p)
	}()

	io, err := openStdio(p.names, c.id, c.svc.namespace)
	if err != nil {
		return 0, err
	}
	req := &controlapi.ExecRequest{ID: c.id, ExecID: execID, Process: p.spec, Terminal: p.names.Terminal}
	var files fileList
	req.Stdio = files.addStdio(io)
	_, pidfd, err := c.sb.client.Exec(ctx, req, files.all)
	if err != nil {
		io.close()
		return 0, fmt.Errorf("exec %q in %s: %w", execID, c.what(), fromSentry(err))
	}
	io.sent()
	pid := c.pidOf()
	if pidfd != nil {
		if n, perr := pidOfPidfd(pidfd); perr == nil {
			pid = n
		}
		pidfd.Close()
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	p.io = io
	p.pid = pid
	if p.stdinClosed {
		io.closeStdin()
	}
	io.started()
	p.state = stateRunning
	c.svc.events.send(&events.TaskExecStarted{ContainerID: c.id, ExecID: execID, Pid: uint32(pid)})
	return pid, nil
}

// canExecLocked checks that a registered process can be started now.
func (c *container) canExecLocked(p *process) error {
	if c.init.state != stateRunning {
		return fail(errdefs.ErrFailedPrecondition, "cannot start process %q: %s is %s", p.execID, c.what(), c.init.state)
	}
	if p.state != stateCreated || p.starting {
		return fail(errdefs.ErrFailedPrecondition, "process %q of %s was already started", p.execID, c.what())
	}
	return nil
}

// deleteExec removes an exec'd process that has ended or never ran.
func (c *container) deleteExec(execID string) (*process, error) {
	c.mu.Lock()
	p, err := c.processLocked(execID)
	if err == nil {
		err = p.state.check(opDelete, fmt.Sprintf("process %q of %s", execID, c.what()))
		if err == nil && p.starting {
			err = fail(errdefs.ErrFailedPrecondition, "process %q of %s is being started", execID, c.what())
		}
	}
	if err != nil {
		c.mu.Unlock()
		return nil, err
	}
	if p.state == stateCreated {
		close(p.done)
	}
	p.state = stateDeleted
	io := p.io
	c.mu.Unlock()
	closeIO(io)
	c.mu.Lock()
	delete(c.execs, execID)
	c.mu.Unlock()
	return p, nil
}
