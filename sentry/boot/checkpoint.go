package boot

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"runsc/pkg/controlapi"
	"runsc/pkg/imagefmt"
	"runsc/sentry/kernel"
	"runsc/sentry/state"
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
		Memory: s.memory, Caller: newCaller(),
		Validate: req.ValidateMetadata, Compress: req.Compress, LeavePaused: req.Exit,
	}
	o.Containers, o.Others = s.scope(c, req.Pod)
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

// scope lists the containers that are saved, the one named first, and the
// others of the sandbox.
func (s *Sentry) scope(named *container, pod bool) (in, others []*kernel.Container) {
	s.mu.Lock()
	defer s.mu.Unlock()
	in = append(in, named.kernel)
	for _, id := range slices.Sorted(maps.Keys(s.containers)) {
		switch c := s.containers[id]; {
		case c == named:
		case pod && c.kernel.Running():
			in = append(in, c.kernel)
		default:
			others = append(others, c.kernel)
		}
	}
	return in, others
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
