package boot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"sort"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"runsc/pkg/controlapi"
	"runsc/pkg/imagefmt"
	"runsc/sentry/fs/dev"
	"runsc/sentry/kernel"
	"runsc/sentry/state"
	"runsc/sentry/vfs"
)

// Checkpoint saves a container, or with Pod all of the sandbox.
func (s *Sentry) Checkpoint(req *controlapi.CheckpointRequest, files []*os.File) (*controlapi.CheckpointResponse, error) {
	fds := newFileSet(files)
	defer fds.close()
	c, err := s.find(req.ID)
	if err != nil {
		return nil, err
	}
	if !c.kernel.Running() {
		return nil, controlapi.Errorf(controlapi.CodeFailedPrecondition, "container %q is not running", req.ID)
	}
	o := state.Options{
		Containers: []*kernel.Container{c.kernel}, Memory: s.memory, Caller: newCaller(),
		Validate: req.ValidateMetadata, Compress: req.Compress, LeavePaused: req.Exit,
	}
	if req.Pod {
		o.Containers = s.runningContainers(c)
	}
	for i, f := range []**os.File{&o.Kernel, &o.Index, &o.Pages} {
		if *f, err = fds.take(i); err != nil {
			return nil, err
		}
		if *f == nil {
			return nil, errInvalid("the call brought no file for %s", imagefmt.StateFiles[i])
		}
		defer (*f).Close()
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	if !s.beginSave(req.ID, cancel) {
		return nil, controlapi.Errorf(controlapi.CodeFailedPrecondition, "another checkpoint is being made in this sandbox")
	}
	defer s.endSave()
	m, err := state.Save(ctx, o)
	if err != nil {
		if ctx.Err() != nil {
			return nil, controlapi.Errorf(controlapi.CodeCanceled, "the checkpoint of container %q was given up", req.ID)
		}
		return nil, fmt.Errorf("cannot save container %q: %w", req.ID, err)
	}
	m.Pod = req.Pod
	m.CPUFeatures = s.proc.CPUFlags()
	s.logf("info", fmt.Sprintf("container %s: saved, stood still for %v", req.ID, time.Duration(m.PauseNanos)))
	return &controlapi.CheckpointResponse{Manifest: m}, nil
}

// runningContainers lists the containers of the pod that run, its root first.
func (s *Sentry) runningContainers(root *container) []*kernel.Container {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []*kernel.Container{root.kernel}
	var ids []string
	for id, c := range s.containers {
		if c != root && c.kernel.Running() {
			ids = append(ids, id)
		}
	}
	sort.Strings(ids)
	for _, id := range ids {
		list = append(list, s.containers[id].kernel)
	}
	return list
}

// errGivenUp is the cause of a cancelled save.
var errGivenUp = errors.New("given up")

// saving is the save under way.
type saving struct {
	id     string
	cancel context.CancelCauseFunc
}

func (s *Sentry) beginSave(id string, cancel context.CancelCauseFunc) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.save != nil {
		return false
	}
	s.save = &saving{id, cancel}
	return true
}

func (s *Sentry) endSave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.save = nil
}

// CancelCheckpoint makes Checkpoint of a container fail.
func (s *Sentry) CancelCheckpoint(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.save != nil && s.save.id == id {
		s.save.cancel(errGivenUp)
	}
	return nil
}

// pendingRestore is what StartContainer of a container from an image needs.
type pendingRestore struct {
	req *controlapi.CreateContainerRequest
	fds *fileSet
}

// restoreProcesses gives the container the processes of its image.
func (c *container) restoreProcesses(p *pendingRestore) (*state.Restore, error) {
	defer p.fds.close()
	b := newBuilder(c, p.req, p.fds)
	r := p.req.Restore
	var files [len(imagefmt.StateFiles)]*os.File
	for i := range files {
		f, err := p.fds.take(r.Files[i])
		if err == nil && f == nil {
			err = errInvalid("the call brought no file for %s", imagefmt.StateFiles[i])
		}
		if err != nil {
			for _, f := range files[:i] {
				f.Close()
			}
			return nil, err
		}
		files[i] = f
	}
	env := &kernel.RestoreEnv{
		RestoreEnv: &vfs.RestoreEnv{
			Account: c.account, Caller: b.who, Validate: r.ValidateMetadata,
			HostFS: b.restoredHostFS,
			NewFS: func(typ, source, options string) (vfs.Filesystem, error) {
				return c.sentry.pseudoFS(c, typ, source, options)
			},
			Stream: b.restoredStream,
		},
		Source: r.Container,
	}
	if c.seccomp != nil {
		env.Seccomp = c.seccomp
	}
	if c.spec.Process != nil {
		cr, err := credentials(c.spec.Process)
		if err != nil {
			return nil, err
		}
		env.Cred = cr
	}
	loaded, err := state.Load(c.kernel, c.sentry.memory, env, files[0], files[1], files[2])
	if err != nil {
		return nil, errInvalid("cannot restore container %q: %v", c.id, err)
	}
	return loaded, nil
}

// restoredHostFS is the host's tree that the new specification has at the
// destination of a saved mount.
func (b *builder) restoredHostFS(destination string) (vfs.Filesystem, error) {
	if destination == "/" {
		fs, _, err := b.hostFS(controlapi.RootfsIndex, "none")
		return fs, err
	}
	for i := len(b.c.spec.Mounts) - 1; i >= 0; i-- {
		m := &b.c.spec.Mounts[i]
		if path.Clean("/"+m.Destination) == path.Clean(destination) && isBind(m) {
			fs, _, err := b.hostFS(i, "none")
			return fs, err
		}
	}
	return nil, fmt.Errorf("the image has a bind mount at %s and the new specification (mounts) has none there", destination)
}

func isBind(m *specs.Mount) bool {
	opts, err := parseMountOptions(0, m.Type, m.Options)
	return err == nil && opts.bind
}

// restoredStream is standard stream n of the new task, a null device if it has
// none.
func (b *builder) restoredStream(n int) (*vfs.File, error) {
	if n < 0 || n > 2 {
		return nil, fmt.Errorf("there is no standard stream %d", n)
	}
	stdio := b.req.Stdio
	index := [...]int{stdio.Stdin, stdio.Stdout, stdio.Stderr}[n]
	hf, err := b.fds.take(index)
	if err != nil {
		return nil, err
	}
	if hf == nil {
		return dev.OpenNull(streamFlags(n)), nil
	}
	return newHostFile(hf, n)
}

// watchPages loads the rest of a restored container's memory and reports the
// end of that.
func (c *container) watchPages(r *state.Restore) {
	began := time.Now()
	r.LoadPages(func(err error) {
		if err == nil {
			c.sentry.control.NotifyRestoreLoaded(c.id, int64(c.account.Total()), time.Since(began))
			return
		}
		// The page's reader may hold locks: report and kill from elsewhere.
		go func() {
			c.sentry.control.NotifyRestoreFailed(c.id, err)
			c.kernel.KillAll()
		}()
	})
}
