package pipe

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"runsc/sentry/image"
	"runsc/sentry/vfs"
)

// StateKind implements vfs.StateSaver.
func (p *Pipe) StateKind() image.Kind { return image.KindPipe }

// SaveState implements vfs.StateSaver: the bytes. How many readers and writers
// there are follows from the ends that are in the image.
func (p *Pipe) SaveState(e *vfs.SaveEnv, id image.ID) error {
	p.mu.Lock()
	a, b := p.ring.data(p.ring.n)
	rec := image.Pipe{ID: id, Capacity: p.capacity, Data: slices.Concat(a, b), ReadOpens: p.readOpens, WriteOpens: p.writeOpens}
	p.mu.Unlock()
	return e.Put(image.KindPipe, &rec)
}

// StateKind implements vfs.StateSaver.
func (e *End) StateKind() image.Kind { return image.KindPipeEnd }

// SaveState implements vfs.StateSaver.
func (e *End) SaveState(env *vfs.SaveEnv, id image.ID) error { return e.save(env, id, false) }

// SaveState implements vfs.StateSaver.
func (e *fifoEnd) SaveState(env *vfs.SaveEnv, id image.ID) error { return e.save(env, id, true) }

func (e *End) save(env *vfs.SaveEnv, id image.ID, fifo bool) error {
	p, err := env.Save(e.p)
	if err != nil {
		return err
	}
	return env.Put(image.KindPipeEnd, &image.PipeEnd{
		ID: id, Pipe: p.ID, Reads: e.reads, Writes: e.writes, IsQuiet: e.isQuiet, Quiet: e.quiet, Fifo: fifo,
	})
}

// StateKind implements vfs.StateSaver.
func (i *inode) StateKind() image.Kind { return image.KindPipeInode }

// SaveState implements vfs.StateSaver.
func (i *inode) SaveState(e *vfs.SaveEnv, id image.ID) error {
	anon, err := e.Save(i.AnonInode)
	if err != nil {
		return err
	}
	p, err := e.Save(i.p)
	if err != nil {
		return err
	}
	return e.Put(image.KindPipeInode, &image.PipeInode{ID: id, Anon: anon, Pipe: p.ID})
}

func init() {
	vfs.RegisterState(image.KindPipe, func(e *vfs.RestoreEnv, id image.ID) (any, error) {
		var rec image.Pipe
		if err := e.Get(image.KindPipe, id, &rec); err != nil {
			return nil, err
		}
		return restore(&rec)
	})
	vfs.RegisterState(image.KindPipeEnd, func(e *vfs.RestoreEnv, id image.ID) (any, error) {
		var rec image.PipeEnd
		if err := e.Get(image.KindPipeEnd, id, &rec); err != nil {
			return nil, err
		}
		p, err := vfs.Restored[*Pipe](e, image.Ref{Kind: image.KindPipe, ID: rec.Pipe})
		if err != nil {
			return nil, err
		}
		return p.restoreEnd(&rec), nil
	})
	vfs.RegisterState(image.KindPipeInode, func(e *vfs.RestoreEnv, id image.ID) (any, error) {
		var rec image.PipeInode
		if err := e.Get(image.KindPipeInode, id, &rec); err != nil {
			return nil, err
		}
		a, err := vfs.Restored[*vfs.AnonInode](e, rec.Anon)
		if err != nil {
			return nil, err
		}
		p, err := vfs.Restored[*Pipe](e, image.Ref{Kind: image.KindPipe, ID: rec.Pipe})
		if err != nil {
			return nil, err
		}
		return &inode{a, p}, nil
	})
}

func restore(rec *image.Pipe) (*Pipe, error) {
	n := rec.Capacity
	if n < pageSize || n > 16*MaxSize || n&(n-1) != 0 || len(rec.Data) > n {
		return nil, fmt.Errorf("pipe %d of the image has %d bytes and room for %d", rec.ID, len(rec.Data), n)
	}
	p := New()
	p.capacity, p.readOpens, p.writeOpens = n, rec.ReadOpens, rec.WriteOpens
	if len(rec.Data) > 0 {
		if !p.ring.reserve(len(rec.Data)) {
			return nil, unix.ENOMEM
		}
		p.ring.append(rec.Data)
	}
	return p, nil
}

func (p *Pipe) restoreEnd(rec *image.PipeEnd) vfs.FileOps {
	e := &End{p: p, reads: rec.Reads, writes: rec.Writes, isQuiet: rec.IsQuiet, quiet: rec.Quiet}
	p.mu.Lock()
	if e.reads {
		p.readers++
	}
	if e.writes {
		p.writers++
	}
	p.mu.Unlock()
	if rec.Fifo {
		return &fifoEnd{End: e}
	}
	return e
}

var errFifo = errors.New("the fifo of the image is another's")

// BindPath implements vfs.PathBound: later opens of the fifo find the pipe by
// the inode.
func (e *fifoEnd) BindPath(at vfs.Path) error {
	t := registered.Load()
	if t == nil || e.table != nil {
		return errFifo
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	node := vfs.Node(at.Inode())
	f := t.open[node]
	if f == nil {
		f = &fifo{Pipe: e.p}
		t.open[node] = f
	}
	if f.Pipe != e.p {
		return errFifo
	}
	f.users++
	e.table, e.node = t, node
	return nil
}
