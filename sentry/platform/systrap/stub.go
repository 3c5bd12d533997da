package systrap

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"runsc/sentry/platform"
)

// ackDeadline is how long a leader may take for a command. A leader cannot be
// diverted, only starved; when it takes that long its process is killed.
const ackDeadline = 20 * time.Second

// stub is one host process. Its leader executes the commands in the ring.
type stub struct {
	p       *Platform
	g       *group // nil of the first
	area    int64
	cmd     *cmdPage
	res     *slotMem // first slot, which holds the leader's results
	pid     int
	pidfd   int
	last    atomic.Pointer[slot] // the slot that last reported an event
	dirty   atomic.Bool          // commands are published that nobody may have waited for
	users   atomic.Int32         // contexts that use slots
	threads atomic.Int32         // slots made
	dead    atomic.Bool          // the process is reaped
	gone    chan struct{}        // closed after dead is set and all slots are marked

	mu sync.Mutex
	// mu guards:
	head     uint32 // commands written
	acked    uint32 // commands known to be done
	mapped   ranges // guest ranges that may have host mappings
	slots    []*slot
	parked   []*slot // stopped threads without an owner
	idle     []*slot // slots without a thread
	exiting  []*slot // slots whose thread was told to exit, oldest first
	chunks   []int64
	released bool
	freed    bool

	sigMu sync.Mutex // held while signals are sent; dead is set under it
}

// slot is one guest thread of a stub.
type slot struct {
	st    *stub
	off   int64 // in the control file
	start uint64
	mem   *slotMem
	tid   int
	steps atomic.Uint64 // counts starts and ends of runs: odd while the guest runs

	owner *context // guarded by st.mu
}

func newStub(p *Platform, area int64) *stub {
	st := &stub{
		p:    p,
		area: area,
		cmd:  p.ctl.cmd(area),
		res:  p.ctl.slot(area + slotSize),
		gone: make(chan struct{}),
	}
	st.slots = []*slot{st.newSlot(0, area+slotSize)}
	st.idle = []*slot{st.slots[0]}
	st.threads.Store(1)
	return st
}

func (st *stub) newSlot(i int, off int64) *slot {
	return &slot{
		st:    st,
		off:   off,
		start: st.p.base + stubSlotsOff + uint64(i)*slotSize,
		mem:   st.p.ctl.slot(off),
	}
}

// adopt starts to watch the new process and waits until its leader has done
// what is queued.
func (st *stub) adopt(pid int) error {
	st.pid = pid
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		// It is a child that nobody has reaped: only a lack of descriptors
		// or memory remains.
		unix.Kill(pid, unix.SIGKILL)
		unix.Wait4(pid, nil, unix.WALL, nil)
		st.dead.Store(true)
		st.tellGone()
		return err
	}
	st.pidfd = fd
	if err := st.p.watch.add(st); err != nil {
		st.kill()
		st.markDead()
		return err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if len(st.idle) != 0 { // a zygote
		st.push(opNop | opAck)
		return st.waitAck()
	}
	s := st.slots[0]
	if err := st.awaitThread(s); err != nil {
		return err
	}
	st.parked = append(st.parked, s)
	return nil
}

// push writes a command and publishes it. The leader need not be awake: the
// caller goes on with waitAck or a resume. st.mu is held.
func (st *stub) push(op uint32, a ...uint64) {
	if st.head-st.acked >= ringSize-1 {
		st.acked = atomic.LoadUint32(&st.cmd.ack)
		if st.head-st.acked >= ringSize-1 {
			st.put(opNop|opAck, nil)
			st.waitAck() // a dead stub takes no commands and needs none
		}
	}
	st.put(op, a)
}

func (st *stub) put(op uint32, a []uint64) {
	e := &st.cmd.ring[st.head%ringSize]
	e.op = op
	e.seq = st.head + 1
	copy(e.args[:], a)
	st.head++
	atomic.StoreUint32(&st.cmd.head, st.head)
}

// waitAck waits until the leader has done all commands, of which the last has
// opAck set. st.mu is held. It fails only when the process is dead.
func (st *stub) waitAck() error {
	want := st.head
	st.dirty.Store(false)
	if s := st.last.Load(); s == nil || !s.mem.cas(stEvent, stYield) {
		futexWake(&st.cmd.head)
	}
	ack := &st.cmd.ack
	if st.p.cpus > 1 {
		if got := spinUntil(ack, want, st.p.pollUnit); int32(got-want) >= 0 {
			st.acked = got
			return nil
		}
	}
	atomic.StoreUint32(&st.cmd.ackWait, 1)
	defer atomic.StoreUint32(&st.cmd.ackWait, 0)
	var start time.Time
	for {
		got := atomic.LoadUint32(ack)
		if int32(got-want) >= 0 {
			st.acked = got
			return nil
		}
		if st.dead.Load() {
			st.acked = want
			return platform.ErrStubDied
		}
		// Whoever was to wake the leader may not have done it.
		futexWake(&st.cmd.head)
		if start.IsZero() {
			start = time.Now()
		} else if time.Since(start) > ackDeadline {
			st.kill()
			<-st.gone
			continue
		}
		futexWait(ack, got, &unix.Timespec{Nsec: 50e6})
	}
}

// takeErr returns and clears the errno of a failed command. The guest can
// forge it, to its own harm only.
func (st *stub) takeErr() unix.Errno {
	e := atomic.LoadUint32(&st.res.err)
	if e == 0 {
		return 0
	}
	atomic.StoreUint32(&st.res.err, 0)
	if e > 4095 {
		return unix.EINVAL
	}
	return unix.Errno(e)
}

// kill kills the process.
func (st *stub) kill() {
	st.sigMu.Lock()
	defer st.sigMu.Unlock()
	if !st.dead.Load() && st.pidfd > 0 {
		unix.PidfdSendSignal(st.pidfd, unix.SIGKILL, nil, 0)
	}
}

// kick interrupts the thread of s.
func (st *stub) kick(s *slot) {
	st.sigMu.Lock()
	defer st.sigMu.Unlock()
	if !st.dead.Load() {
		unix.Tgkill(st.pid, s.tid, interruptSignal)
	}
}

// markDead reaps the dead process and tells all who wait for it.
func (st *stub) markDead() {
	// Under sigMu, so that no signal goes to the next owner of the pid.
	st.sigMu.Lock()
	for unix.Waitid(unix.P_PIDFD, st.pidfd, nil, unix.WEXITED|unix.WALL, nil) == unix.EINTR {
	}
	st.dead.Store(true)
	unix.Close(st.pidfd)
	st.sigMu.Unlock()
	// A waiter in waitAck holds mu; it polls dead.
	futexWake(&st.cmd.ack)
	st.mu.Lock()
	for _, s := range st.slots {
		s.mem.store(stDead)
		futexWake(&s.mem.state)
	}
	st.tellGone()
	st.freeLocked()
	st.mu.Unlock()
}

// tellGone is the last thing about a process that has been reaped.
func (st *stub) tellGone() {
	close(st.gone)
	if st.g != nil {
		st.g.live.Add(-1)
	}
}

// release gives up the process: it dies, and its memory is freed when the
// last context has left it.
func (st *stub) release() {
	st.kill()
	st.mu.Lock()
	st.released = true
	st.freeLocked()
	st.mu.Unlock()
}

// freeLocked frees the shared memory if nobody uses it any more.
func (st *stub) freeLocked() {
	if st.freed || !st.released || !st.dead.Load() || st.users.Load() != 0 {
		return
	}
	st.freed = true
	st.p.ctl.free(st.area, st.chunks)
}

// leave ends a use that users counted.
func (st *stub) leave() {
	if st.users.Add(-1) == 0 && st.dead.Load() {
		st.mu.Lock()
		st.freeLocked()
		st.mu.Unlock()
	}
}
