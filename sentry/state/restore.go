package state

import (
	"fmt"
	"os"
	"sync"

	"runsc/sentry/cred"
	"runsc/sentry/image"
	"runsc/sentry/kernel"
	"runsc/sentry/mem"
	"runsc/sentry/seccompbpf"
	"runsc/sentry/vfs"
)

// Image is an image that containers of one sandbox are restored from, one
// after the other. Objects that several of them have are made once, with the
// first; what belongs to those that are still to come is kept for them. The
// image is closed when all were restored, or when Close gives the rest up: for
// the others it is then as if the rest had been killed.
type Image struct {
	// immutable after Open:
	memory *mem.File
	record image.ID // of the frames
	parts  []*part  // in order
	owners map[image.ID]*part

	mu sync.Mutex
	// mu guards:
	pages  *image.Pages // until frames has them
	frames *mem.FrameMap
	env    *kernel.RestoreEnv
	begun  bool
	closed bool
	good   int // containers restored

	loader loader
}

// Claim is what only the caller knows of a container that is restored.
type Claim struct {
	Source   string // the saved container's id; empty for the only one
	Account  *mem.Account
	Caller   vfs.Caller
	Validate bool
	HostFS   func(destination string) (vfs.Filesystem, error)
	NewFS    func(typ, source, options string) (vfs.Filesystem, error)
	Stream   func(n int) (*vfs.File, error)
	Seccomp  seccompbpf.Filter
	Cred     *cred.Creds
}

// Open reads the records of an image in the files, which it takes over.
func Open(mf *mem.File, kernelImg, index, pages *os.File) (_ *Image, err error) {
	defer kernelImg.Close()
	defer index.Close()
	var p *image.Pages
	defer func() {
		if err != nil && p != nil {
			p.Close()
		} else if err != nil {
			pages.Close()
		}
	}()
	rd, err := image.NewReader(kernelImg)
	if err != nil {
		return nil, err
	}
	records, err := image.LoadRecords(rd, known)
	if err != nil {
		return nil, err
	}
	var meta image.Meta
	if err := records.Get(image.KindMeta, metaID, &meta); err != nil {
		return nil, err
	}
	im := &Image{env: &kernel.RestoreEnv{RestoreEnv: &vfs.RestoreEnv{Restorer: records, Memory: mf}}}
	if err := im.readParts(records); err != nil {
		return nil, err
	}
	if p, err = image.OpenPages(pages, index); err != nil {
		return nil, err
	}
	im.memory, im.record, im.pages = mf, meta.Frames, p
	if len(im.parts) > 1 {
		im.env.Needed, im.env.Absent = im.needed, im.absent
	}
	return im, nil
}

// Restore gives a new container the processes of one of the image. Nothing
// runs yet. On an error the container has no process.
func (im *Image) Restore(c *kernel.Container, cl *Claim) error {
	im.mu.Lock()
	defer im.mu.Unlock()
	p, err := im.findLocked(cl.Source)
	if err != nil {
		return err
	}
	e := im.env
	e.Account, e.Caller, e.Validate, e.HostFS, e.NewFS, e.Stream = cl.Account, cl.Caller, cl.Validate, cl.HostFS, cl.NewFS, cl.Stream
	e.Seccomp, e.Cred, e.Source, e.MM, e.Clock = cl.Seccomp, cl.Cred, p.name, nil, c.Kernel().Clock()
	p.state = restored
	err = im.beginLocked(cl.Account)
	if err == nil {
		err = kernel.RestoreContainer(c, e)
	}
	if err == nil {
		err = e.Settle()
	} else {
		e.Cancel()
	}
	if err != nil {
		c.KillAll()
		im.giveUpLocked(p)
	} else {
		im.good++
	}
	if im.good == 0 || len(im.waitingLocked()) == 0 {
		im.closeLocked()
	}
	return err
}

// findLocked returns the container with an id, which is not restored yet.
func (im *Image) findLocked(name string) (*part, error) {
	if name == "" && len(im.parts) > 1 {
		return nil, fmt.Errorf("the image has %d containers: which one is to be restored?", len(im.parts))
	}
	for _, p := range im.parts {
		switch {
		case p.name != name && name != "":
		case p.state == restored:
			return nil, fmt.Errorf("container %q of the image was restored in this sandbox before", p.name)
		case p.state == gone:
			return nil, fmt.Errorf("container %q of the image is gone from this sandbox: it was not restored in time, or could not be", p.name)
		default:
			return p, nil
		}
	}
	return nil, fmt.Errorf("the image has no container %q", name)
}

// Check tells whether the container can still be restored.
func (im *Image) Check(name string) error {
	im.mu.Lock()
	defer im.mu.Unlock()
	_, err := im.findLocked(name)
	return err
}

// beginLocked makes what the first container needs: those ends of pipes of all
// others that it would else find closed, and memory.
func (im *Image) beginLocked(a *mem.Account) error {
	if im.begun {
		im.frames.Charge(a)
		return nil
	}
	im.begun = true
	if err := im.framesLocked(a); err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	for _, p := range im.parts {
		if p.state != waiting {
			continue
		}
		for _, f := range p.files {
			if f.ops.Kind != image.KindPipeEnd {
				continue
			}
			if _, err := vfs.Restored[vfs.FileOps](im.env.RestoreEnv, f.ops); err != nil {
				return err
			}
		}
	}
	return nil
}

func (im *Image) framesLocked(a *mem.Account) (err error) {
	if len(im.parts) == 1 {
		im.frames, err = im.memory.RestoreFrames(im.env.Restorer, im.record, im.pages, a)
	} else {
		im.frames, err = im.memory.RestoreStages(im.env.Restorer, im.record, im.pages)
	}
	if err != nil {
		return err
	}
	im.pages = nil
	im.frames.Charge(a)
	im.env.FrameMap, im.env.Frames = im.frames, im.frames
	im.loader.frames = im.frames
	return nil
}

// Close gives up the containers that were not restored and returns their
// names.
func (im *Image) Close() []string {
	im.mu.Lock()
	defer im.mu.Unlock()
	if im.closed {
		return nil
	}
	names := im.waitingLocked()
	im.closeLocked()
	return names
}

// Shared tells whether the image is of several containers.
func (im *Image) Shared() bool { return len(im.parts) > 1 }

// Failed tells whether the image is closed and no container came from it.
func (im *Image) Failed() bool {
	im.mu.Lock()
	defer im.mu.Unlock()
	return im.closed && im.good == 0
}

// Open tells whether a container is still to come.
func (im *Image) Open() bool {
	im.mu.Lock()
	defer im.mu.Unlock()
	return !im.closed
}

func (im *Image) waitingLocked() (names []string) {
	for _, p := range im.parts {
		if p.state == waiting {
			names = append(names, p.name)
		}
	}
	return names
}

func (im *Image) closeLocked() {
	for _, p := range im.parts {
		if p.state == waiting {
			im.giveUpLocked(p)
		}
	}
	im.closed = true
	im.env.Close()
	if im.pages != nil {
		im.pages.Close()
	}
	if im.frames != nil {
		im.frames.Finish()
		if im.good == 0 {
			im.frames.Abandon()
		}
	}
	im.env = nil
	im.loader.allRestored()
}

// giveUpLocked ends a container that was not restored.
func (im *Image) giveUpLocked(p *part) {
	p.state = gone
	for _, f := range p.files {
		if !im.needed(f.id) {
			im.env.DropOps(f.ops)
		}
	}
}

// LoadPages loads what the tasks have not asked for yet in the background, as
// soon as no container is to come, and tells when all is there or a page turned
// out damaged; done must not wait. It is called for each container restored.
func (im *Image) LoadPages(done func(error)) { im.loader.watch(done) }

// known are the kinds of records that this version understands.
func known(k image.Kind) bool {
	switch k {
	case image.KindMeta, image.KindMM, image.KindShm, image.KindFrames, image.KindPageRuns:
		return true
	}
	return kernel.KnownState(k) || vfs.KnownState(k)
}
