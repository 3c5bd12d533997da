package boot

import (
	"fmt"
	"os"
	"path"
	"strings"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"runsc/pkg/controlapi"
	"runsc/pkg/imagefmt"
	"runsc/sentry/fs/dev"
	"runsc/sentry/state"
	"runsc/sentry/vfs"
)

// pendingRestore is what StartContainer of a container from an image needs.
type pendingRestore struct {
	req *controlapi.CreateContainerRequest
	fds *fileSet
}

// podImage is an image that containers of this sandbox are restored from.
type podImage struct {
	name  string
	image *state.Image
	timer *time.Timer // imageMu guards it; ends the wait for further containers
}

// defaultRestoreWait is how long an image's further containers have.
const defaultRestoreWait = 2 * time.Minute

// restoreWait is how long after one container of an image was started the next
// one must be.
func (s *Sentry) restoreWait() time.Duration {
	if d, err := time.ParseDuration(s.conf.Options["restore-wait"]); err == nil {
		return d
	}
	return defaultRestoreWait
}

// checkRestore refuses a container that cannot come from its image any more.
func (s *Sentry) checkRestore(r *controlapi.Restore) error {
	s.imageMu.Lock()
	im := s.images[r.Image]
	s.imageMu.Unlock()
	if im == nil {
		return nil
	}
	return im.image.Check(r.Container)
}

// openImage returns the image of a restore, which is opened once for all
// containers that come from it.
func (s *Sentry) openImage(r *controlapi.Restore, fds *fileSet) (*podImage, error) {
	s.imageMu.Lock()
	defer s.imageMu.Unlock()
	if im := s.images[r.Image]; im != nil {
		return im, nil
	}
	var files [len(imagefmt.StateFiles)]*os.File
	for i := range files {
		f, err := fds.take(r.Files[i])
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
	x, err := state.Open(s.memory, files[0], files[1], files[2])
	if err != nil {
		return nil, err
	}
	im := &podImage{name: r.Image[:min(len(r.Image), 12)], image: x}
	if !x.Shared() {
		return im, nil
	}
	if s.images == nil {
		s.images = map[string]*podImage{}
	}
	s.images[r.Image] = im
	return im, nil
}

// restoreProcesses gives the container the processes of its image.
func (c *container) restoreProcesses(p *pendingRestore) (*podImage, error) {
	defer p.fds.close()
	b := newBuilder(c, p.req, p.fds)
	r := p.req.Restore
	cl := &state.Claim{
		Source: r.Container, Account: c.account, Caller: b.who, Validate: r.ValidateMetadata,
		HostFS: b.restoredHostFS, Stream: b.restoredStream,
		NewFS: func(typ, source, options string) (vfs.Filesystem, error) {
			return c.sentry.pseudoFS(c, typ, source, options)
		},
	}
	if c.seccomp != nil {
		cl.Seccomp = c.seccomp
	}
	if c.spec.Process != nil {
		cr, err := credentials(c.spec.Process)
		if err != nil {
			return nil, err
		}
		cl.Cred = cr
	}
	im, err := c.sentry.openImage(r, p.fds)
	if err == nil {
		err = im.image.Restore(c.kernel, cl)
		c.sentry.awaitRest(r.Image, im, err == nil && c.alone())
	}
	if err != nil {
		return nil, errInvalid("cannot restore container %q: %v", c.id, err)
	}
	return im, nil
}

// alone tells whether no further container can come into the sandbox.
func (c *container) alone() bool { return c.root && c.kind != controlapi.KindSandbox }

// awaitRest gives the containers of the image that are still to come their
// time. An image that nothing was restored from is forgotten.
func (s *Sentry) awaitRest(key string, im *podImage, alone bool) {
	if alone {
		im.image.Close()
	}
	open := im.image.Open()
	s.imageMu.Lock()
	defer s.imageMu.Unlock()
	if im.timer != nil {
		im.timer.Stop()
		im.timer = nil
	}
	if im.image.Failed() && s.images[key] == im {
		delete(s.images, key)
	}
	if !open {
		return
	}
	wait := s.restoreWait()
	im.timer = time.AfterFunc(wait, func() {
		if names := im.image.Close(); len(names) > 0 {
			s.logf("warning", fmt.Sprintf("image %s: not restored within %v, ended: container %s", im.name, wait, strings.Join(names, ", ")))
		}
	})
}

// restoredHostFS is the host's tree that the new specification has at the
// destination of a saved mount.
func (b *builder) restoredHostFS(destination string) (vfs.Filesystem, error) {
	if destination == "/" {
		return b.lower()
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
func (c *container) watchPages(im *podImage) {
	began := time.Now()
	im.image.LoadPages(func(err error) {
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
