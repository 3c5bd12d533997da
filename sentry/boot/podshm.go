package boot

import (
	"path"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"runsc/pkg/controlapi"
	"runsc/sentry/fs/tmpfs"
	"runsc/sentry/vfs"
)

// The pod's /dev/shm. CRI makes a tmpfs on the host and binds it into each
// container that shares the pod's IPC. Nobody else has it, so that one in the
// Sentry does as well: it is faster, it is counted, and it is in the
// checkpoints of the pod, with the mappings of its files.

// isPodShm tells whether m is what CRI shares as /dev/shm:
// <state directory>/sandboxes/<pod>/shm.
func (c *container) isPodShm(m *specs.Mount) bool {
	dir := path.Dir(path.Clean(m.Source))
	return c.kind != controlapi.KindPlain && path.Clean(m.Destination) == "/dev/shm" && isBind(m) &&
		path.Base(path.Clean(m.Source)) == "shm" && path.Base(path.Dir(dir)) == "sandboxes"
}

// podShm returns a new mount of the pod's /dev/shm.
func (s *Sentry) podShm(who *caller, source string, flags vfs.MountFlags) (*vfs.Mount, error) {
	s.shmMu.Lock()
	defer s.shmMu.Unlock()
	m := s.shm[source]
	if m == nil {
		conf := tmpfs.Config{Memory: s.memory, Account: s.account, Source: "shm"}
		if err := tmpfs.ParseOptions(&conf, "mode=1777,size=65536k"); err != nil {
			return nil, err
		}
		m = vfs.NewMount(tmpfs.New(who, conf), 0)
		s.setShmLocked(source, m)
	}
	return m.Again(flags), nil
}

func (s *Sentry) setShmLocked(source string, m *vfs.Mount) {
	if s.shm == nil {
		s.shm = map[string]*vfs.Mount{}
	}
	s.shm[source] = m
}

// adoptShm makes the /dev/shm of a restored container the pod's, so that
// containers which are not from the image share it.
func (c *container) adoptShm() {
	s := c.sentry
	for i := range c.spec.Mounts {
		m := &c.spec.Mounts[i]
		if !c.isPodShm(m) {
			continue
		}
		root := c.mounts.Root()
		fs := vfs.NewFSContext(root, root, 0)
		p, err := vfs.LookupAt(newCaller(), vfs.At{FS: fs, Name: "/dev/shm"})
		fs.DecRef()
		root.DecRef()
		if err != nil {
			continue // the container has unmounted it
		}
		s.shmMu.Lock()
		if s.shm[m.Source] == nil && p.Dentry == p.Mount.Root().Dentry && p.Mount.Filesystem().Type() == "tmpfs" {
			s.setShmLocked(m.Source, p.Mount.Again(0))
		}
		s.shmMu.Unlock()
		p.DecRef()
	}
}
