package systrap

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"runsc/sentry/platform"
)

// Options are the settings of a Platform.
type Options struct {
	// KeepFDs are descriptors that stay open, and the same file, until Close.
	// Mapping them needs no round trip to the stub.
	KeepFDs []int
	// DirectCalls lets guest code call the stub instead of the host, see
	// Platform.DirectEntry.
	DirectCalls bool
	// FaultCPUID lets CPUID fault in guests: EventSignal with SIGSEGV and
	// TrapNo 13. ENODEV on hosts that cannot do it.
	FaultCPUID bool
}

// Platform implements platform.Platform.
type Platform struct {
	// immutable after New:
	ctl        *control
	base       uint64 // of the stub region in every stub
	zygote     *stub
	watch      *watcher
	cpus       int
	pollUnit   uint32 // polls in pollTime
	pollCycles uint64 // cycles of the time stamp counter in pollTime
	slotFlags  uint32
	fp         fpLayout

	// atomic:
	keep     atomic.Pointer[map[int]struct{}]
	running  atomic.Int32 // contexts whose guest thread may run
	spinning atomic.Int32 // contexts that spin for one
	sleeping atomic.Int32 // contexts that occupy an OS thread of the Sentry to sleep for one

	mu sync.Mutex
	// mu guards:
	groups map[*group]struct{}
	closed bool

	kicks kicks

	// changed by tests only:
	kickDeadline     time.Duration
	kickHardDeadline time.Duration
}

// pollTime is the longest stretch that a goroutine spins without a point at
// which the runtime can preempt it.
const pollTime = 15 * time.Microsecond

// New starts the platform: it clones the first stub from this process, which
// is cheapest while the heap is small.
func New(opts Options) (*Platform, error) {
	p := &Platform{
		cpus:   runtime.NumCPU(),
		groups: map[*group]struct{}{},
		fp:     hostFPLayout(),

		kickDeadline:     kickDeadline,
		kickHardDeadline: kickHardDeadline,
	}
	keep := map[int]struct{}{}
	for _, fd := range opts.KeepFDs {
		keep[fd] = struct{}{}
	}
	p.keep.Store(&keep)
	p.kicks.waiting = map[*slot]kick{}
	if auxv(atHWCap2)&hwcap2FSGSBase != 0 {
		p.slotFlags |= flagFSGSBase
	}
	if opts.DirectCalls {
		p.slotFlags |= flagDirect
	}
	if max, _, _, _ := cpuid(0x80000000, 0); max >= 0x80000001 {
		if _, _, _, d := cpuid(0x80000001, 0); d>>27&1 != 0 {
			p.slotFlags |= flagRDTSCP
		}
	}
	if n := auxv(atMinSigStkSz); n > slotSize-slotMemSize {
		return nil, fmt.Errorf("systrap: signal frames of %d bytes do not fit", n)
	}
	p.calibrate()
	var err error
	if p.ctl, err = newControl(); err != nil {
		return nil, err
	}
	r, err := newRegion(p.ctl.fd)
	if err != nil {
		p.ctl.close()
		return nil, err
	}
	defer r.unmap()
	p.base = r.base
	area, err := p.ctl.allocArea()
	if err != nil {
		p.ctl.close()
		return nil, err
	}
	st := newStub(p, area)
	if p.watch, err = startWatcher(func() int {
		return cloneFirst(p.ctl.fd, area, p.base, opts.FaultCPUID)
	}); err != nil {
		p.ctl.close()
		return nil, err
	}
	if p.watch.first < 0 {
		err = unix.Errno(-p.watch.first)
	} else {
		err = st.adopt(p.watch.first)
	}
	if err != nil {
		p.watch.stop()
		p.ctl.close()
		return nil, err
	}
	p.zygote = st
	return p, nil
}

// calibrate finds out how many polls, and cycles, fit in pollTime.
func (p *Platform) calibrate() {
	const n = 200
	best, cycles := time.Hour, uint64(0)
	for range 5 {
		t, c := time.Now(), rdtsc()
		pause(n)
		c = rdtsc() - c
		if d := time.Since(t); d < best {
			best, cycles = d, c
		}
	}
	best = max(best, 1)
	p.pollUnit = uint32(max(n*pollTime/best, 10))
	p.pollCycles = cycles * uint64(pollTime) / uint64(best)
}

// KeepFD adds a descriptor to Options.KeepFDs.
func (p *Platform) KeepFD(fd int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	keep := map[int]struct{}{fd: {}}
	for fd := range *p.keep.Load() {
		keep[fd] = struct{}{}
	}
	p.keep.Store(&keep)
}

func (p *Platform) kept(fd int) bool {
	_, ok := (*p.keep.Load())[fd]
	return ok
}

// NewGroup implements platform.Platform.
func (p *Platform) NewGroup() (platform.Group, error) {
	g := newGroup(p)
	st, err := p.fork(p.zygote, g, true)
	if err != nil {
		return nil, err
	}
	g.zygote = st
	p.mu.Lock()
	closed := p.closed
	if !closed {
		p.groups[g] = struct{}{}
	}
	p.mu.Unlock()
	if closed {
		st.release()
		return nil, unix.ESRCH
	}
	return g, nil
}

// NewContext implements platform.Platform.
func (p *Platform) NewContext() platform.Context { return newContext(p) }

func (p *Platform) forget(g *group) {
	p.mu.Lock()
	delete(p.groups, g)
	p.mu.Unlock()
}

// Close implements platform.Platform. No goroutine may be in another method.
func (p *Platform) Close() {
	p.mu.Lock()
	p.closed = true
	var groups []*group
	for g := range p.groups {
		groups = append(groups, g)
	}
	p.mu.Unlock()
	for _, g := range groups {
		g.Close()
	}
	p.zygote.release()
	p.watch.drain()
	p.watch.stop()
	p.ctl.close()
}
