package kernel

import (
	"context"
	"errors"

	"runsc/sentry/image"
)

// SaveEnv is what the records of a container are written with.
type SaveEnv struct {
	Saver *image.Saver
}

// RestoreEnv is what a container is restored with.
type RestoreEnv struct {
	Restorer *image.Restorer
}

var errNotYet = errors.New("kernel: save and restore are not there")

// StopForSave stops all tasks of the container at points where they can be
// saved and returns when none runs: like Pause, but blocked calls unwind and are
// entered again afterwards. When ctx ends first the container runs on and its
// error is returned. A container that ends is ErrNotRunning.
func (c *Container) StopForSave(ctx context.Context) error { return c.Pause(ctx) }

// ResumeAfterSave ends StopForSave. A paused container stays paused.
func (c *Container) ResumeAfterSave() { c.Resume() }

// Save writes the records of the container, whose tasks StopForSave stopped.
func (c *Container) Save(env *SaveEnv) error { return errNotYet }

// RestoreContainer gives a new container the processes of an image. They run
// from the Start of its init process on.
func RestoreContainer(c *Container, env *RestoreEnv) error { return errNotYet }
