package shim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/containerd/containerd/api/events"
	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"runsc/pkg/controlapi"
	"runsc/pkg/imagefmt"
)

// annotationName is CRI's name of a container within its pod.
const annotationName = "io.kubernetes.cri.container-name"

// exitPatience bounds the wait for the end of a container that was saved to
// be ended.
const exitPatience = 10 * time.Second

// checkpointOptions decodes the options of a request. containerd lets runc's
// type through and nothing else. What runc needs to be told about terminals,
// sockets and locks is always saved here.
func checkpointOptions(opts *anypb.Any) (*runcoptions.CheckpointOptions, error) {
	o := &runcoptions.CheckpointOptions{}
	if opts == nil || opts.GetTypeUrl() == "" {
		return o, nil
	}
	if !opts.MessageIs(o) {
		return nil, fail(errdefs.ErrInvalidArgument, "checkpoint options of type %q", printable(opts.GetTypeUrl()))
	}
	if err := proto.Unmarshal(opts.GetValue(), o); err != nil {
		return nil, fail(errdefs.ErrInvalidArgument, "checkpoint options: %v", err)
	}
	return o, nil
}

// checkpoint saves the container into a directory. State, Stats, Pids, Wait
// and Kill do not wait for it; Pause, Resume, Update and Delete do.
func (c *container) checkpoint(ctx context.Context, r *taskapi.CheckpointTaskRequest) error {
	opts, err := checkpointOptions(r.Options)
	if err != nil {
		return err
	}
	path := r.Path
	if path == "" {
		path = opts.ImagePath
	}
	if !filepath.IsAbs(path) {
		return fail(errdefs.ErrInvalidArgument, "the image path %q is not absolute", path)
	}
	// One save at a time for all containers of the sandbox.
	select {
	case c.sb.saving <- struct{}{}:
		defer func() { <-c.sb.saving }()
	case <-ctx.Done():
		return ctx.Err()
	}
	c.op.Lock()
	defer c.op.Unlock()
	c.mu.Lock()
	was := c.init.state
	err = was.check(opCheckpoint, c.what())
	c.mu.Unlock()
	if err != nil {
		return err
	}

	dir, err := newImageDir(path)
	if err != nil {
		return fail(classOfPath(err), "checkpoint of %s: %v", c.what(), err)
	}
	defer dir.close()
	watch := newStopwatch("id", c.id)
	err = c.save(ctx, dir, opts.Exit, was)
	if err != nil {
		dir.remove()
		return fmt.Errorf("checkpoint of %s: %w", c.what(), err)
	}
	watch.log("saved")
	c.svc.events.send(&events.TaskCheckpointed{ContainerID: c.id, Checkpoint: path})
	if opts.Exit {
		c.endSaved()
	}
	return nil
}

// save has the Sentry write the state files and completes the image.
func (c *container) save(ctx context.Context, dir *imageDir, exit bool, was state) error {
	req := &controlapi.CheckpointRequest{
		ID:               c.id,
		Exit:             exit,
		Pod:              c.root && c.svc.kindHere(c.annotations) == controlapi.KindSandbox,
		ValidateMetadata: c.saves.validate,
		Compress:         c.saves.compress,
	}
	resp, err := c.askToSave(ctx, req, dir)
	if err != nil {
		return fromSentry(err)
	}
	m := resp.Manifest
	c.svc.describe(m, c.sb)
	err = dir.complete(m)
	if err == nil {
		err = ctx.Err() // who asked for it has given up
	}
	if err == nil {
		err = imagefmt.WriteManifest(dir.root, m)
	}
	if err != nil {
		if exit && was == stateRunning {
			// It stands still, to be ended, and must go on instead.
			rctx, cancel := context.WithTimeout(context.Background(), appPatience)
			defer cancel()
			if rerr := c.sb.client.Resume(rctx, c.id); rerr != nil {
				slog.Error("resume after a failed checkpoint", "container", c.id, "err", rerr)
			}
		}
		return err
	}
	slog.Info("checkpoint", "container", c.id, "pause", time.Duration(m.PauseNanos), "pages", m.Pages)
	return nil
}

// askToSave calls the Sentry. If the caller gives up, or the directory is
// removed under us, the save is cancelled. It returns when the Sentry has: it
// writes no more then.
func (c *container) askToSave(ctx context.Context, req *controlapi.CheckpointRequest, dir *imageDir) (*controlapi.CheckpointResponse, error) {
	type answer struct {
		resp *controlapi.CheckpointResponse
		err  error
	}
	done := make(chan answer, 1)
	go func() {
		resp, err := c.sb.client.Checkpoint(req, dir.files)
		done <- answer{resp, err}
	}()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	var why error
	for {
		giveUp := ctx.Done()
		if why != nil {
			giveUp = nil
		}
		select {
		case a := <-done:
			if why != nil {
				return nil, why
			}
			return a.resp, a.err
		case <-giveUp:
			why = ctx.Err()
		case <-tick.C:
			if why != nil || !dir.removed() {
				continue
			}
			why = fail(context.Canceled, "the image directory was removed")
		}
		cctx, cancel := context.WithTimeout(context.Background(), appPatience)
		if err := c.sb.client.CancelCheckpoint(cctx, c.id); err != nil {
			slog.Warn("cancel a checkpoint", "container", c.id, "err", err)
		}
		cancel()
	}
}

// endSaved kills the container and waits for its end, which should be known
// when the call returns.
func (c *container) endSaved() {
	ctx, cancel := context.WithTimeout(context.Background(), exitPatience)
	defer cancel()
	if err := c.sb.client.Kill(ctx, &controlapi.KillRequest{ID: c.id, Signal: 9, All: true}); err != nil {
		slog.Warn("end a saved container", "container", c.id, "err", err)
	}
	select {
	case <-c.ended:
	case <-ctx.Done():
		slog.Error("a saved container does not end", "container", c.id)
	}
}

// describe adds to a manifest what the Sentry does not know or should not be
// asked: when it was, and the containers' names and specs.
func (s *service) describe(m *imagefmt.Manifest, sb *sandbox) {
	m.Created = time.Now().UTC()
	if m.Arch == "" {
		m.Arch = runtime.GOARCH
	}
	for i := range m.Containers {
		mc := &m.Containers[i]
		mc.Spec, mc.Name = nil, ""
		c, err := s.get(mc.ID)
		if err != nil || c.sb != sb {
			continue
		}
		mc.Name = c.annotations[annotationName]
		mc.Root = c.root
		if raw, _, err := readSpec(c.bundle); err == nil {
			mc.Spec = raw
		}
	}
}

// imageDir is a directory that an image is written into.
type imageDir struct {
	path  string
	made  bool // by us
	root  *os.Root
	self  *os.File   // the directory
	files []*os.File // as imagefmt.StateFiles
}

// newImageDir makes the directory if it is missing, checks that it is empty
// or holds no more than what an interrupted save left, and makes the files.
func newImageDir(path string) (_ *imageDir, err error) {
	d := &imageDir{path: path}
	defer func() {
		if err != nil {
			d.remove()
			d.close()
		}
	}()
	st, err := os.Stat(path)
	switch {
	case err == nil && !st.IsDir():
		return nil, &fs.PathError{Op: "open", Path: path, Err: unix.ENOTDIR}
	case errors.Is(err, os.ErrNotExist):
		if err := os.MkdirAll(path, 0o700); err != nil {
			return nil, err
		}
		d.made = true
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	if err := imagefmt.RemoveIncomplete(root); err != nil {
		root.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	d.root = root // from here on, what is in it is ours
	if d.self, err = root.Open("."); err != nil {
		return nil, err
	}
	for _, name := range imagefmt.StateFiles {
		f, err := root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil, err
		}
		d.files = append(d.files, f)
	}
	return d, nil
}

// complete checks the manifest, compares it with the files, and makes these
// durable.
func (d *imageDir) complete(m *imagefmt.Manifest) error {
	if err := m.Check(); err != nil {
		return fmt.Errorf("the sandbox's answer: %w", err)
	}
	for i, f := range d.files {
		st, err := f.Stat()
		if err != nil {
			return err
		}
		name := imagefmt.StateFiles[i]
		if want := m.Files[name].Size; st.Size() != want {
			return fmt.Errorf("%s has %d bytes, the sandbox wrote %d", name, st.Size(), want)
		}
		if err := f.Sync(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// removed reports whether the directory is gone: containerd removes the one
// it made when its client has given up, and tells us nothing.
func (d *imageDir) removed() bool {
	var st unix.Stat_t
	return unix.Fstat(int(d.self.Fd()), &st) == nil && st.Nlink == 0
}

// remove undoes newImageDir.
func (d *imageDir) remove() {
	if d.root != nil {
		imagefmt.Remove(d.root)
	}
	if d.made {
		os.Remove(d.path)
	}
}

func (d *imageDir) close() {
	for _, f := range d.files {
		f.Close()
	}
	if d.self != nil {
		d.self.Close()
	}
	if d.root != nil {
		d.root.Close()
	}
}

// classOfPath is the error class for an image path that cannot be used.
func classOfPath(err error) error {
	switch {
	case errors.Is(err, imagefmt.ErrNotEmpty):
		return errdefs.ErrAlreadyExists
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EROFS):
		return errdefs.ErrInvalidArgument
	}
	return errdefs.ErrUnknown
}
