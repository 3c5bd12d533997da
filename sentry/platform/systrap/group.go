package systrap

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"runsc/sentry/platform"
)

// How many empty stubs a group keeps ready once it has made its first address
// space: poolSize, more after the pool was found empty, until nothing was
// taken for poolIdle.
const (
	poolSize = 1
	poolMax  = 4
	poolIdle = 5 * time.Second
)

// group implements platform.Group. All its stubs are cloned from its zygote,
// a stub that never runs a guest.
type group struct {
	p      *Platform
	zygote *stub

	filler sync.WaitGroup // the goroutine of fill
	live   atomic.Int32   // processes that have not been reaped

	mu sync.Mutex
	// mu guards:
	pool    []*stub
	want    int         // size of the pool
	trim    *time.Timer // reduces want
	filling bool
	closed  bool
	spaces  map[*addrSpace]struct{}
}

// newGroup returns a group that has no zygote yet.
func newGroup(p *Platform) *group {
	g := &group{p: p, want: poolSize, spaces: map[*addrSpace]struct{}{}}
	g.trim = time.AfterFunc(poolIdle, g.shrink)
	g.trim.Stop()
	return g
}

// HostPID implements platform.Group.
func (g *group) HostPID() int { return g.zygote.pid }

// fork clones an empty process of group g from zygote z. Unless it is to be a zygote
// itself it gets its first thread, which is cheapest done before the leader
// sleeps for the first time.
func (p *Platform) fork(z *stub, g *group, zygote bool) (*stub, error) {
	area, err := p.ctl.allocArea()
	if err != nil {
		return nil, err
	}
	st := newStub(p, area)
	if !zygote {
		st.mu.Lock()
		st.idle = nil
		st.queueThread(st.slots[0])
		st.mu.Unlock()
	}
	z.mu.Lock()
	atomic.StoreUint32(&z.res.pid, 0)
	z.push(opFork|opAck, unix.CLONE_PARENT|unix.CLONE_FILES, 0, 0, 0, uint64(area), 0)
	err = z.waitAck()
	pid := int(int32(atomic.LoadUint32(&z.res.pid)))
	z.mu.Unlock()
	if err != nil {
		// The zygote is dead. It may have cloned before, so the area is lost.
		return nil, err
	}
	if pid <= 0 {
		p.ctl.free(area, nil)
		if pid == 0 {
			return nil, unix.EAGAIN
		}
		return nil, unix.Errno(-pid)
	}
	st.g = g
	g.live.Add(1)
	if err := st.adopt(pid); err != nil {
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
		if st, err = g.p.fork(g.zygote, g, false); err != nil {
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
	if !g.filling && len(g.pool) < g.want {
		g.filling = true
		g.filler.Go(g.fill)
	}
	return a, nil
}

// take returns a ready process of the pool, nil if there is none.
func (g *group) take() *stub {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.trim.Reset(poolIdle)
	for n := len(g.pool); n > 0; n = len(g.pool) {
		st := g.pool[n-1]
		g.pool = g.pool[:n-1]
		if !st.dead.Load() {
			return st
		}
		st.release()
	}
	if len(g.spaces) != 0 {
		g.want = min(g.want+1, poolMax)
	}
	return nil
}

// shrink is called when nothing was taken for poolIdle.
func (g *group) shrink() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.want = poolSize
	for len(g.pool) > g.want {
		n := len(g.pool) - 1
		g.pool[n].release()
		g.pool = g.pool[:n]
	}
}

// fill tops the pool up. It runs on a goroutine of its own, at most one per
// group, which ends with the work; Close waits for it.
func (g *group) fill() {
	for {
		st, err := g.p.fork(g.zygote, g, false)
		g.mu.Lock()
		if err == nil && !g.closed {
			g.pool = append(g.pool, st)
		}
		if err != nil || g.closed || len(g.pool) >= g.want {
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

// closeDeadline bounds how long Close waits for processes to die.
const closeDeadline = 3 * time.Second

// Close implements platform.Group. The processes have died when it returns, if
// the host is not too busy for that.
func (g *group) Close() {
	g.mu.Lock()
	g.closed = true
	g.trim.Stop()
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
	for end := time.Now().Add(closeDeadline); g.live.Load() > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}
