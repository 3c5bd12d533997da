package gofer

import (
	"sync"

	"golang.org/x/sys/unix"

	"runsc/pkg/hostfs"
)

// refs is the table of files that the gofer holds for the Sentry in remote
// mode. A number is never used again for another file while it may be in use,
// and goes with its container.
type refs struct {
	limit int // in all: descriptors must be left for the shim's calls

	mu sync.Mutex
	// mu guards:
	files map[uint32]*node
	last  uint32
	live  map[string]bool // containers that have trees
}

// node is an open file.
type node struct {
	fd        int
	container string
	users     int // running calls
	gone      bool
}

func newRefs() *refs {
	r := &refs{limit: 768, files: map[uint32]*node{}, live: map[string]bool{}}
	var rl unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &rl) == nil {
		r.limit = int(min(rl.Cur, 1<<20) / 4 * 3)
	}
	return r
}

// allow lets files of a container be held.
func (r *refs) allow(id string) {
	r.mu.Lock()
	r.live[id] = true
	r.mu.Unlock()
}

// add takes over fd, which is closed if there are too many, or if the
// container is gone.
func (r *refs) add(fd int, container string) (uint32, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.files) >= r.limit || !r.live[container] {
		unix.Close(fd)
		if !r.live[container] {
			return 0, unix.ESTALE
		}
		return 0, unix.EMFILE
	}
	for {
		r.last = (r.last + 1) & 0x7fffffff
		if r.files[r.last] == nil {
			break
		}
	}
	r.files[r.last] = &node{fd: fd, container: container}
	return r.last, nil
}

// get returns the file of a number for a call, EBADF if there is none. put
// ends its use.
func (r *refs) get(n uint32) (*node, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.files[n]
	if f == nil {
		return nil, unix.EBADF
	}
	f.users++
	return f, nil
}

func (r *refs) put(f *node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f.users--
	f.closeLocked()
}

// drop lets a number go.
func (r *refs) drop(n uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f := r.files[n]; f != nil {
		delete(r.files, n)
		f.gone = true
		f.closeLocked()
	}
}

func (f *node) closeLocked() {
	if f.gone && f.users == 0 && f.fd >= 0 {
		unix.Close(f.fd)
		f.fd = -1
	}
}

// dropContainer lets everything of a container go. Calls that run keep their
// file until they end.
func (r *refs) dropContainer(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.live, id)
	for n, f := range r.files {
		if f.container == id {
			delete(r.files, n)
			f.gone = true
			f.closeLocked()
		}
	}
}

func (f *node) target() hostfs.Target { return hostfs.Ref(f.fd) }
