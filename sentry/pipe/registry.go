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
	open map[vfs.Inode]*fifo
}

// fifo is a pipe with the number of ends that use it.
type fifo struct {
	*Pipe
	users int
}

// fifoEnd is an end of a fifo.
type fifoEnd struct {
	*End  `save:"rec"`
	table *fifos    `save:"rebuilt"` // nil while it is being restored
	inode vfs.Inode `save:"rebuilt"`
}

// registered is the table that vfs uses.
var registered atomic.Pointer[fifos]

// Register makes vfs open fifos through this package. Boot calls it once.
func Register() {
	t := &fifos{open: make(map[vfs.Inode]*fifo)}
	registered.Store(t)
	vfs.RegisterFifo(t.openEnd)
}

// openEnd is a vfs.FifoOpener.
func (t *fifos) openEnd(c vfs.Caller, inode vfs.Inode, flags uint32) (vfs.FileOps, error) {
	t.mu.Lock()
	f := t.open[inode]
	if f == nil {
		f = &fifo{Pipe: New()}
		t.open[inode] = f
	}
	f.users++
	t.mu.Unlock()
	e, err := f.OpenFifo(c, flags)
	if err != nil {
		t.put(inode)
		return nil, err
	}
	return &fifoEnd{e, t, inode}, nil
}

// Release implements vfs.FileOps.
func (e *fifoEnd) Release() {
	e.End.Release()
	if e.table != nil {
		e.table.put(e.inode)
	}
}

func (t *fifos) put(inode vfs.Inode) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.open[inode]
	if f.users--; f.users == 0 {
		delete(t.open, inode)
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
