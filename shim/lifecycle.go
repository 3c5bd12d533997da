package shim

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"runsc/pkg/controlapi"
)

// start runs init.
func (c *container) start(ctx context.Context) (int, error) {
	c.op.Lock()
	defer c.op.Unlock()
	c.mu.Lock()
	if err := c.init.state.check(opStart, c.what()); err != nil {
		c.mu.Unlock()
		return 0, err
	}
	c.beginStartLocked(c.init)
	c.mu.Unlock()

	_, err := c.sb.client.StartContainer(ctx, c.id)

	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.endStartLocked(c.init)
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", c.what(), fromSentry(err))
	}
	c.init.state = stateRunning
	c.restoring = false
	c.init.io.started()
	if c.hooks != nil && len(c.hooks.Poststart) > 0 {
		if err := c.poststartLocked(); err != nil {
			return 0, err
		}
	}
	c.svc.events.send(&events.TaskStart{ContainerID: c.id, Pid: uint32(c.init.pid)})
	return c.init.pid, nil
}

// poststartLocked runs the poststart hooks with mu released; exits are held
// back meanwhile. If one fails the container is killed.
func (c *container) poststartLocked() error {
	state := hookState(c.id, c.bundle, c.init.pid, specs.StateRunning, c.annotations)
	c.mu.Unlock()
	err := runHooks("poststart", c.hooks.Poststart, state)
	if err != nil {
		ctx, cancel := context.WithTimeout(context.Background(), appPatience)
		c.sb.client.Kill(ctx, &controlapi.KillRequest{ID: c.id, Signal: 9, All: true})
		cancel()
	}
	c.mu.Lock()
	return err
}

// pause stops all tasks of the container.
func (c *container) pause(ctx context.Context) error {
	c.op.Lock()
	defer c.op.Unlock()
	if err := c.change(opPause, statePausing); err != nil {
		return err
	}
	err := c.sb.client.Pause(ctx, c.id)
	if err != nil {
		c.settle(statePausing, stateRunning)
		return fmt.Errorf("pause %s: %w", c.what(), fromSentry(err))
	}
	return c.settle(statePausing, statePaused)
}

// resume lets them go on.
func (c *container) resume(ctx context.Context) error {
	c.op.Lock()
	defer c.op.Unlock()
	if err := c.change(opResume, statePaused); err != nil {
		return err
	}
	if err := c.sb.client.Resume(ctx, c.id); err != nil {
		return fmt.Errorf("resume %s: %w", c.what(), fromSentry(err))
	}
	return c.settle(statePaused, stateRunning)
}

// change moves init to a state if op is possible.
func (c *container) change(op operation, to state) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.init.state.check(op, c.what()); err != nil {
		return err
	}
	c.init.state = to
	return nil
}

// settle moves init from one state to the next unless it has ended meanwhile.
func (c *container) settle(from, to state) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.init.state != from {
		return fail(errdefs.ErrFailedPrecondition, "%s has %s", c.what(), c.init.state)
	}
	c.init.state = to
	return nil
}

// kill queues a signal for init, an exec'd process or all processes.
func (c *container) kill(ctx context.Context, execID string, sig int, all bool) error {
	if sig < 0 || sig > 64 {
		return fail(errdefs.ErrInvalidArgument, "signal %d", sig)
	}
	c.mu.Lock()
	p, err := c.processLocked(execID)
	if err != nil {
		c.mu.Unlock()
		return err
	}
	what := c.what()
	if execID != "" {
		what = fmt.Sprintf("process %q of %s", execID, what)
	}
	if err := p.state.check(opKill, what); err != nil {
		c.mu.Unlock()
		return err
	}
	if p.state == stateCreated && !p.starting {
		if execID != "" {
			c.mu.Unlock()
			return fail(errdefs.ErrFailedPrecondition, "%s was not started", what)
		}
		if sig == 9 {
			// Nothing runs yet: the task ends here, Delete frees the rest.
			c.finishLocked(p, statusKilled)
			c.mu.Unlock()
			return nil
		}
	}
	c.mu.Unlock()
	err = c.sb.client.Kill(ctx, &controlapi.KillRequest{ID: c.id, ExecID: execID, Signal: sig, All: all && execID == ""})
	if err == nil {
		return nil
	}
	if controlapi.CodeOf(err) == controlapi.CodeNotFound || !c.sb.alive() {
		// It ended in between; callers ignore NotFound only.
		return fail(errdefs.ErrNotFound, "%s has already ended", what)
	}
	return fmt.Errorf("signal %s: %w", what, fromSentry(err))
}

// deleteTask removes an ended or never started container and all it holds.
func (s *service) deleteTask(ctx context.Context, c *container) (*process, error) {
	c.op.Lock()
	defer c.op.Unlock()
	c.mu.Lock()
	if err := c.init.state.check(opDelete, c.what()); err != nil {
		c.mu.Unlock()
		return nil, err
	}
	c.finishLocked(c.init, statusKilled) // if it was never started
	execs := make([]*process, 0, len(c.execs))
	for _, e := range c.execs {
		execs = append(execs, e)
	}
	c.mu.Unlock()

	for _, e := range execs {
		if e.io != nil {
			e.io.close()
		}
	}
	s.release(ctx, c)
	c.mu.Lock()
	c.init.state = stateDeleted
	c.mu.Unlock()
	s.mu.Lock()
	delete(s.containers, c.id)
	s.mu.Unlock()
	s.events.send(&events.TaskDelete{
		ContainerID: c.id,
		Pid:         uint32(c.init.pid),
		ExitStatus:  uint32(c.init.status),
		ExitedAt:    c.init.exitTime(),
	})
	return c.init, nil
}

// releasePatience bounds the calls that free a container's descriptors.
const releasePatience = 5 * time.Second

// release frees what the container holds in the sandbox and on the host. It
// goes on after a failure: the delete action tries again what is left.
func (s *service) release(ctx context.Context, c *container) {
	clean := true
	note := func(what string, err error) {
		if err != nil {
			clean = false
			slog.Error("delete", "container", c.id, "what", what, "err", err)
		}
	}
	if c.root {
		// Its end ended the sandbox and all others in it.
		c.sb.stop()
	} else if c.sb.alive() {
		dctx, cancel := context.WithTimeout(ctx, releasePatience)
		err := c.sb.client.DestroyContainer(dctx, c.id)
		cancel()
		if err == nil {
			err = c.sb.files.RemoveContainer(c.id)
		}
		switch {
		case err == nil:
		case c.sb.ending():
			c.sb.stop() // nothing of it holds anything when this returns
		default:
			note("sandbox", err)
		}
	}
	// The Sentry's ends of the pipes are closed now.
	closeIO(c.init.io)
	note("root file system", mount.UnmountRecursive(rootfsOf(c.bundle), 0))
	note("cgroup", c.cgroup.Delete())
	if c.hooks != nil {
		state := hookState(c.id, c.bundle, 0, specs.StateStopped, c.annotations)
		if err := runHooks("poststop", c.hooks.Poststop, state); err != nil {
			slog.Warn("delete", "container", c.id, "err", err) // as the OCI wants: log and go on
		}
	}
	if clean {
		if err := c.writeRecord(func(r *record) { r.Clean = true }); err != nil {
			slog.Error("delete", "container", c.id, "err", err)
		}
	}
}
