package pipe

import (
	"sync"
	"sync/atomic"

	"runsc/sentry/vfs"
)

// fifos finds the pipe behind a fifo's inode while an end of it is open, or is
// being opened.
type fifos struct {
	mu sync.Mutex
	// mu guards:
	open map[any]*fifo // by vfs.Node
}

// fifo is a pipe with the number of ends that use it.
type fifo struct {
	*Pipe
	users int
}

// fifoEnd is an end of a fifo.
type fifoEnd struct {
	*End  `save:"rec"`
	table *fifos `save:"rebuilt"` // nil while it is being restored
	node  any    `save:"rebuilt"`
}

// registered is the table that vfs uses.
var registered atomic.Pointer[fifos]

// Register makes vfs open fifos through this package. Boot calls it once.
func Register() {
	t := &fifos{open: make(map[any]*fifo)}
	registered.Store(t)
	vfs.RegisterFifo(t.openEnd)
}

// openEnd is a vfs.FifoOpener.
func (t *fifos) openEnd(c vfs.Caller, inode vfs.Inode, flags uint32) (vfs.FileOps, error) {
	node := vfs.Node(inode)
	t.mu.Lock()
	f := t.open[node]
	if f == nil {
		f = &fifo{Pipe: New()}
		t.open[node] = f
	}
	f.users++
	t.mu.Unlock()
	e, err := f.OpenFifo(c, flags)
	if err != nil {
		t.put(node)
		return nil, err
	}
	return &fifoEnd{e, t, node}, nil
}

// Release implements vfs.FileOps.
func (e *fifoEnd) Release() {
	e.End.Release()
	if e.table != nil {
		e.table.put(e.node)
	}
}

func (t *fifos) put(node any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.open[node]
	if f.users--; f.users == 0 {
		delete(t.open, node)
	}
}

// Of returns the end that a file's operations are, be it a pipe's or a
// fifo's; nil for other files.
func Of(ops vfs.FileOps) *End {
	switch e := ops.(type) {
	case *End:
		return e
	case *fifoEnd:
		return e.End
	}
	return nil
}
