package controlapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

// Notes receives what the Sentry sends of its own accord. The methods are
// called from one goroutine, in the order in which the notes came, and must
// not wait for calls on the same Client.
type Notes interface {
	Hello(Hello)
	Exit(ExitNote)
	OOM(OOMNote)
	Log(LogNote)
	RestoreLoaded(RestoreLoadedNote)
	RestoreFailed(RestoreFailedNote)
}

// Client is the shim's end of the channel.
type Client struct {
	conn *Conn
	err  error // why the connection ended; read after Done
	end  chan struct{}
}

// NewClient takes over the socket f and delivers notes to n until the channel
// ends.
func NewClient(f *os.File, n Notes) (*Client, error) {
	conn, err := newConn(f, shimLimits)
	if err != nil {
		return nil, err
	}
	c := &Client{conn: conn, end: make(chan struct{})}
	go c.read(n)
	return c, nil
}

// read delivers notes; it ends with the connection.
func (c *Client) read(n Notes) {
	defer close(c.end)
	var bad error
	err := c.conn.serve(func(f *frame) {
		f.closeFiles()
		if err := deliver(n, f); err != nil && bad == nil {
			// A Sentry that breaks the protocol is not listened to any more.
			bad = err
			c.conn.Close()
		}
	})
	if bad != nil {
		err = bad
	}
	c.err = err
}

// deliver decodes and checks one note.
func deliver(n Notes, f *frame) error {
	switch f.method {
	case NoteHello:
		var v Hello
		if err := json.Unmarshal(f.body, &v); err != nil {
			return err
		}
		n.Hello(v)
	case NoteExit:
		var v ExitNote
		if err := json.Unmarshal(f.body, &v); err != nil {
			return err
		}
		if err := checkIDs(v.ID, v.ExecID); err != nil {
			return err
		}
		if v.Status < 0 || v.Status > 255 {
			v.Status = 255
		}
		n.Exit(v)
	case NoteOOM:
		var v OOMNote
		if err := json.Unmarshal(f.body, &v); err != nil {
			return err
		}
		if err := checkIDs(v.ID, ""); err != nil {
			return err
		}
		n.OOM(v)
	case NoteLog:
		var v LogNote
		if err := json.Unmarshal(f.body, &v); err != nil {
			return err
		}
		if len(v.Message) > maxErrorLen {
			v.Message = v.Message[:maxErrorLen]
		}
		n.Log(v)
	case NoteRestoreLoaded:
		var v RestoreLoadedNote
		if err := json.Unmarshal(f.body, &v); err != nil {
			return err
		}
		if err := checkIDs(v.ID, ""); err != nil {
			return err
		}
		n.RestoreLoaded(v)
	case NoteRestoreFailed:
		var v RestoreFailedNote
		if err := json.Unmarshal(f.body, &v); err != nil {
			return err
		}
		if err := checkIDs(v.ID, ""); err != nil {
			return err
		}
		if len(v.Error) > maxErrorLen {
			v.Error = v.Error[:maxErrorLen]
		}
		n.RestoreFailed(v)
	default:
		return fmt.Errorf("control: unknown note %q", f.method)
	}
	return nil
}

// Close ends the channel; a Sentry that sees it ends too.
func (c *Client) Close() error { return c.conn.Close() }

// Done is closed when the channel has ended and the last note was delivered.
func (c *Client) Done() <-chan struct{} { return c.end }

// Err tells why the channel ended, nil for an orderly end. Only after Done.
func (c *Client) Err() error { return c.err }

// call makes a call whose answer carries no descriptor.
func (c *Client) call(ctx context.Context, method string, req, resp any, files []*os.File) error {
	got, err := c.conn.call(ctx, method, req, resp, files)
	for _, f := range got {
		f.Close()
	}
	return err
}

// callForFile makes a call whose answer may carry one descriptor.
func (c *Client) callForFile(ctx context.Context, method string, req, resp any, files []*os.File) (*os.File, error) {
	got, err := c.conn.call(ctx, method, req, resp, files)
	if err != nil || len(got) == 0 {
		return nil, err
	}
	for _, f := range got[1:] {
		f.Close()
	}
	return got[0], nil
}

// Ping returns when the Sentry answers.
func (c *Client) Ping(ctx context.Context) error {
	return c.call(ctx, MethodPing, struct{}{}, nil, nil)
}

// CreateContainer sets a container up. The files are borrowed. It returns the
// pidfd of the container's first stub process, nil if the Sentry gave none.
func (c *Client) CreateContainer(ctx context.Context, req *CreateContainerRequest, files []*os.File) (*CreateContainerResponse, *os.File, error) {
	resp := &CreateContainerResponse{}
	f, err := c.callForFile(ctx, MethodCreateContainer, req, resp, files)
	return resp, f, err
}

// StartContainer runs a created container's init.
func (c *Client) StartContainer(ctx context.Context, id string) (*StartContainerResponse, error) {
	resp := &StartContainerResponse{}
	return resp, c.call(ctx, MethodStartContainer, ContainerRequest{ID: id}, resp, nil)
}

// Exec runs one more process. The files are borrowed. It returns a pidfd of
// the process's host process, nil if the Sentry gave none.
func (c *Client) Exec(ctx context.Context, req *ExecRequest, files []*os.File) (*ExecResponse, *os.File, error) {
	resp := &ExecResponse{}
	f, err := c.callForFile(ctx, MethodExec, req, resp, files)
	return resp, f, err
}

// Kill queues a signal.
func (c *Client) Kill(ctx context.Context, req *KillRequest) error {
	return c.call(ctx, MethodKill, req, nil, nil)
}

// Pause stops every task of a container.
func (c *Client) Pause(ctx context.Context, id string) error {
	return c.call(ctx, MethodPause, ContainerRequest{ID: id}, nil, nil)
}

// Resume lets the tasks of a paused container go on.
func (c *Client) Resume(ctx context.Context, id string) error {
	return c.call(ctx, MethodResume, ContainerRequest{ID: id}, nil, nil)
}

// maxProcesses bounds the list that a Sentry may return.
const maxProcesses = 65536

// Pids lists the live processes of a container.
func (c *Client) Pids(ctx context.Context, id string) ([]Process, error) {
	var resp PidsResponse
	if err := c.call(ctx, MethodPids, ContainerRequest{ID: id}, &resp, nil); err != nil {
		return nil, err
	}
	if len(resp.Processes) > maxProcesses {
		resp.Processes = resp.Processes[:maxProcesses]
	}
	for _, p := range resp.Processes {
		if err := checkExecID(p.ExecID); err != nil {
			return nil, err
		}
	}
	return resp.Processes, nil
}

// Stats returns a container's figures.
func (c *Client) Stats(ctx context.Context, id string) (*StatsResponse, error) {
	resp := &StatsResponse{}
	return resp, c.call(ctx, MethodStats, ContainerRequest{ID: id}, resp, nil)
}

// Update changes a container's limits.
func (c *Client) Update(ctx context.Context, req *UpdateRequest) error {
	return c.call(ctx, MethodUpdate, req, nil, nil)
}

// ResizePty sets the size of a terminal.
func (c *Client) ResizePty(ctx context.Context, req *ResizePtyRequest) error {
	return c.call(ctx, MethodResizePty, req, nil, nil)
}

// DestroyContainer frees all that a container holds; its processes are killed
// if any is left. When it returns, the Sentry holds no descriptor of its files.
func (c *Client) DestroyContainer(ctx context.Context, id string) error {
	return c.call(ctx, MethodDestroyContainer, ContainerRequest{ID: id}, nil, nil)
}

// Checkpoint saves a container into the files, which are borrowed and in the
// order of imagefmt.StateFiles. It has no context: after CancelCheckpoint the
// answer comes soon, and until it has come the Sentry writes.
func (c *Client) Checkpoint(req *CheckpointRequest, files []*os.File) (*CheckpointResponse, error) {
	resp := &CheckpointResponse{}
	if err := c.call(context.Background(), MethodCheckpoint, req, resp, files); err != nil {
		return nil, err
	}
	if resp.Manifest == nil {
		return nil, errors.New("the sandbox returned no manifest")
	}
	return resp, nil
}

// CancelCheckpoint makes a container's Checkpoint call fail.
func (c *Client) CancelCheckpoint(ctx context.Context, id string) error {
	return c.call(ctx, MethodCancelCheckpoint, ContainerRequest{ID: id}, nil, nil)
}

// Shutdown asks the Sentry to end.
func (c *Client) Shutdown(ctx context.Context) error {
	return c.call(ctx, MethodShutdown, struct{}{}, nil, nil)
}
