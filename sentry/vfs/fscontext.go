package vfs

import (
	"sync"
	"sync/atomic"

	"runsc/pkg/ref"
)

// FSContext is what CLONE_FS shares: root, working directory and umask
// (Linux's fs_struct).
type FSContext struct {
	refs  ref.Count     `save:"rebuilt"`
	umask atomic.Uint32 `save:"rec"`

	mu sync.RWMutex `save:"none: not held at a stop"`
	// mu guards:
	root, cwd Path `save:"rec"` // references
}

// NewFSContext returns a context with one reference; it takes references of
// its own to root and cwd.
func NewFSContext(root, cwd Path, umask uint32) *FSContext {
	root.IncRef()
	cwd.IncRef()
	f := &FSContext{root: root, cwd: cwd}
	f.refs.Init()
	f.umask.Store(umask & 0o777)
	return f
}

// IncRef takes a reference.
func (f *FSContext) IncRef() { f.refs.Inc() }

// DecRef drops a reference.
func (f *FSContext) DecRef() {
	if f.refs.Dec() {
		f.root.DecRef()
		f.cwd.DecRef()
	}
}

// Fork returns a copy that is not shared.
func (f *FSContext) Fork() *FSContext {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return NewFSContext(f.root, f.cwd, f.umask.Load())
}

// Shared tells whether another task uses the context too.
func (f *FSContext) Shared() bool { return f.refs.Load() > 1 }

// Root returns a new reference to the root directory.
func (f *FSContext) Root() Path {
	f.mu.RLock()
	defer f.mu.RUnlock()
	f.root.IncRef()
	return f.root
}

// Cwd returns a new reference to the working directory.
func (f *FSContext) Cwd() Path {
	f.mu.RLock()
	defer f.mu.RUnlock()
	f.cwd.IncRef()
	return f.cwd
}

// SetRoot replaces the root directory, taking a reference of its own.
func (f *FSContext) SetRoot(p Path) { f.swap(&f.root, p) }

// SetCwd replaces the working directory, taking a reference of its own.
func (f *FSContext) SetCwd(p Path) { f.swap(&f.cwd, p) }

func (f *FSContext) swap(at *Path, p Path) {
	p.IncRef()
	f.mu.Lock()
	old := *at
	*at = p
	f.mu.Unlock()
	old.DecRef()
}

// Umask returns the file mode creation mask.
func (f *FSContext) Umask() uint32 { return f.umask.Load() }

// SetUmask sets the mask and returns the old one.
func (f *FSContext) SetUmask(m uint32) uint32 { return f.umask.Swap(m & 0o777) }

// Replace changes root and cwd to new where they are old, as pivot_root(2)
// does for every task of the namespace.
func (f *FSContext) Replace(old, new Path) {
	f.mu.Lock()
	root, cwd := f.root == old, f.cwd == old
	f.mu.Unlock()
	if root {
		f.SetRoot(new)
	}
	if cwd {
		f.SetCwd(new)
	}
}

// translate moves root and cwd to the copies of their mounts.
func (f *FSContext) translate(made map[*Mount]*Mount) {
	for _, at := range []*Path{&f.root, &f.cwd} {
		f.mu.RLock()
		p := *at
		f.mu.RUnlock()
		if n := made[p.Mount]; n != nil {
			f.swap(at, Path{n, p.Dentry})
		}
	}
}
