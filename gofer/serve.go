package gofer

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"runsc/pkg/fsproto"
)

// maxMounts bounds what one container may hold, as a guard against a leak of
// descriptors.
const maxMounts = 4096

// server holds the mount trees.
type server struct {
	// refs are the files that the Sentry holds: those of a container go with it.
	refs *refs

	mu sync.Mutex
	// mu guards:
	containers map[string]*container
}

// container is the set of trees of one container by mount index. A tree is
// dissolved by the kernel when its last descriptor is closed.
type container struct {
	trees map[int]*os.File
}

func newServer() *server { return &server{containers: map[string]*container{}} }

// root opens the root of a tree.
func (s *server) root(id string, index int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.containers[id]
	if c == nil || c.trees[index] == nil {
		return -1, unix.ENOENT
	}
	tree := c.trees[index]
	var st unix.Stat_t
	if err := unix.Fstat(int(tree.Fd()), &st); err != nil {
		return -1, err
	}
	return openRootFD(tree, st.Mode&unix.S_IFMT == unix.S_IFDIR)
}

// serve answers the shim's requests until the connection ends.
func (s *server) serve(c *fsproto.Conn) error {
	for {
		var req fsproto.Request
		file, err := c.Recv(&req)
		if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) {
			return nil
		}
		if err != nil {
			return err
		}
		resp, out := s.handle(&req, file)
		err = c.Send(resp, out)
		if out != nil {
			out.Close()
		}
		if err != nil {
			return err
		}
	}
}

// handle carries out one request; it takes over file. The descriptor that it
// returns goes out with the answer.
func (s *server) handle(req *fsproto.Request, file *os.File) (*fsproto.Response, *os.File) {
	switch req.Op {
	case fsproto.OpAddMount:
		if file == nil {
			return failure("no mount tree in the request", unix.EBADF), nil
		}
		return s.addMount(req, file)
	case fsproto.OpRemoveContainer:
		if file != nil {
			file.Close()
		}
		s.removeContainer(req.Container)
		return &fsproto.Response{}, nil
	}
	if file != nil {
		file.Close()
	}
	return failure(fmt.Sprintf("unknown operation %q", req.Op), unix.ENOSYS), nil
}

// addMount keeps the tree and returns its root, reopened.
func (s *server) addMount(req *fsproto.Request, tree *os.File) (*fsproto.Response, *os.File) {
	var st unix.Stat_t
	if err := unix.Fstat(int(tree.Fd()), &st); err != nil {
		tree.Close()
		return failure("stat of the mount tree", err), nil
	}
	dir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	root, err := openRoot(tree, dir)
	if err != nil {
		tree.Close()
		return failure("open the root of the mount tree", err), nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.containers[req.Container]
	if c == nil {
		c = &container{trees: map[int]*os.File{}}
		s.containers[req.Container] = c
	}
	if old := c.trees[req.Index]; old != nil {
		old.Close()
	} else if len(c.trees) >= maxMounts {
		tree.Close()
		root.Close()
		return failure("too many mounts", unix.EMFILE), nil
	}
	c.trees[req.Index] = tree
	if s.refs != nil {
		s.refs.allow(req.Container)
	}
	return &fsproto.Response{IsDir: dir}, root
}

// openRoot returns an O_PATH descriptor of the tree's root. It is a
// description of its own for a directory, so that only the gofer's descriptor keeps the
// tree; the root of a file's tree can only be duplicated.
func openRoot(tree *os.File, dir bool) (*os.File, error) {
	fd, err := openRootFD(tree, dir)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "root"), nil
}

func openRootFD(tree *os.File, dir bool) (int, error) {
	var fd int
	var err error
	if dir {
		fd, err = unix.Openat2(int(tree.Fd()), ".", &unix.OpenHow{
			Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
		})
	} else {
		fd, err = unix.FcntlInt(tree.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	}
	return fd, err
}

func (s *server) removeContainer(id string) {
	if s.refs != nil {
		s.refs.dropContainer(id)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.containers[id]
	if c == nil {
		return
	}
	for _, t := range c.trees {
		t.Close()
	}
	delete(s.containers, id)
}

func (s *server) removeAll() {
	s.mu.Lock()
	ids := slices.Collect(maps.Keys(s.containers))
	s.mu.Unlock()
	for _, id := range ids {
		s.removeContainer(id)
	}
}

func failure(what string, err error) *fsproto.Response {
	r := &fsproto.Response{Error: what}
	var e unix.Errno
	if errors.As(err, &e) {
		r.Errno = int(e)
	}
	return r
}
