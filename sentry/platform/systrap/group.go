package systrap

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"runsc/sentry/platform"
)

// poolSize is how many empty stubs a group keeps ready once it has made its
// first address space.
const poolSize = 1

// group implements platform.Group. All its stubs are cloned from its zygote,
// a stub that never runs a guest.
type group struct {
	p      *Platform
	zygote *stub

	filler sync.WaitGroup // the goroutine of fill

	mu sync.Mutex
	// mu guards:
	pool    []*stub
	filling bool
	closed  bool
	spaces  map[*addrSpace]struct{}
}

// HostPID implements platform.Group.
func (g *group) HostPID() int { return g.zygote.pid }

// fork clones an empty process from zygote z.
func (p *Platform) fork(z *stub) (*stub, error) {
	area, err := p.ctl.allocArea()
	if err != nil {
		return nil, err
	}
	st := newStub(p, area)
	z.mu.Lock()
	atomic.StoreUint32(&z.res.pid, 0)
	z.push(opFork|opAck, unix.CLONE_PARENT|unix.CLONE_FILES, 0, 0, 0, uint64(area), 0)
	err = z.waitAck()
	pid := int(int32(atomic.LoadUint32(&z.res.pid)))
	z.mu.Unlock()
	if err == nil && pid <= 0 {
		err = unix.Errno(-pid)
		if pid == 0 {
			err = unix.EAGAIN
		}
	}
	if err != nil {
		p.ctl.free(area, nil)
		return nil, err
	}
	if err := st.adopt(pid); err != nil {
		st.release()
		return nil, err
	}
	return st, nil
}

// spawn returns a new empty process with one thread ready.
func (g *group) spawn() (*stub, error) {
	st, err := g.p.fork(g.zygote)
	if err != nil {
		return nil, err
	}
	if _, err := st.acquire(nil); err != nil {
		st.release()
		return nil, err
	}
	return st, nil
}

// NewAddressSpace implements platform.Group.
func (g *group) NewAddressSpace() (platform.AddressSpace, error) {
	st := g.take()
	if st == nil {
		var err error
		if st, err = g.spawn(); err != nil {
			return nil, err
		}
	}
	a := &addrSpace{g: g, st: st}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		st.release()
		return nil, unix.ESRCH
	}
	g.spaces[a] = struct{}{}
	if !g.filling && len(g.pool) < poolSize {
		g.filling = true
		g.filler.Go(g.fill)
	}
	return a, nil
}

// take returns a ready process of the pool, nil if there is none.
func (g *group) take() *stub {
	g.mu.Lock()
	defer g.mu.Unlock()
	for n := len(g.pool); n > 0; n = len(g.pool) {
		st := g.pool[n-1]
		g.pool = g.pool[:n-1]
		if !st.dead.Load() {
			return st
		}
		st.release()
	}
	return nil
}

// fill tops the pool up. It runs on a goroutine of its own, at most one per
// group, which ends with the work; Close waits for it.
func (g *group) fill() {
	for {
		st, err := g.spawn()
		g.mu.Lock()
		if err == nil && !g.closed {
			g.pool = append(g.pool, st)
		}
		if err != nil || g.closed || len(g.pool) >= poolSize {
			g.filling = false
			closed := g.closed
			g.mu.Unlock()
			if err == nil && closed {
				st.release()
			}
			return
		}
		g.mu.Unlock()
	}
}

func (g *group) forget(a *addrSpace) {
	g.mu.Lock()
	delete(g.spaces, a)
	g.mu.Unlock()
}

// Close implements platform.Group.
func (g *group) Close() {
	g.mu.Lock()
	g.closed = true
	pool := g.pool
	g.pool = nil
	spaces := g.spaces
	g.spaces = nil
	g.mu.Unlock()
	for _, st := range pool {
		st.release()
	}
	for a := range spaces {
		a.Release()
	}
	g.zygote.release()
	g.filler.Wait()
	g.p.forget(g)
}
