package state

import (
	"fmt"
	"os"

	"runsc/sentry/image"
	"runsc/sentry/kernel"
	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// Restore is a container that is being made from an image.
type Restore struct {
	frames *mem.FrameMap
}

// Load makes the container's processes from the image in the files, which it
// takes over. env holds what only the caller knows: Caller, Account, HostFS,
// NewFS, Stream, Seccomp, Source and Validate. Nothing runs yet. On an error
// the container has no process.
func Load(c *kernel.Container, mf *mem.File, env *kernel.RestoreEnv, kernelImg, index, pages *os.File) (_ *Restore, err error) {
	defer kernelImg.Close()
	defer index.Close()
	rd, err := image.NewReader(kernelImg)
	if err != nil {
		pages.Close()
		return nil, err
	}
	env.Restorer, err = image.LoadRecords(rd, known)
	if err != nil {
		pages.Close()
		return nil, err
	}
	var meta image.Meta
	if err := env.Get(image.KindMeta, metaID, &meta); err != nil {
		pages.Close()
		return nil, err
	}
	p, err := image.OpenPages(pages, index)
	if err != nil {
		pages.Close()
		return nil, err
	}
	fm, err := mf.RestoreFrames(env.Restorer, meta.Frames, p, env.Account)
	if err != nil {
		return nil, fmt.Errorf("memory: %w", err)
	}
	env.FrameMap, env.Frames, env.Memory, env.Clock = fm, fm, mf, c.Kernel().Clock()
	err = kernel.RestoreContainer(c, env)
	if err == nil {
		err = env.RestoreEnv.Finish()
	} else {
		env.RestoreEnv.Abort()
	}
	fm.Finish()
	if err != nil {
		c.KillAll()
		fm.Abandon()
		return nil, err
	}
	return &Restore{fm}, nil
}

// LoadPages loads what the tasks have not asked for yet in the background and
// tells when all is there or a page turned out damaged; done must not wait.
func (r *Restore) LoadPages(done func(error)) { r.frames.StartLoader(done) }

// known are the kinds of records that this version understands.
func known(k image.Kind) bool {
	switch k {
	case image.KindMeta, image.KindMM, image.KindShm, image.KindFrames, image.KindPageRuns:
		return true
	}
	return kernel.KnownState(k) || vfs.KnownState(k)
}
