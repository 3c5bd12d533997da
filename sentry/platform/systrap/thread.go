package systrap

import (
	"time"

	"golang.org/x/sys/unix"

	"runsc/sentry/platform"
)

// interruptSignal is the signal that stops a guest thread. Host signals other
// than those of the processor never reach the guest, any number will do.
const interruptSignal = unix.SIGUSR1

// startDeadline is how long a new thread may take to report.
const startDeadline = 20 * time.Second

const threadFlags = unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND |
	unix.CLONE_THREAD | unix.CLONE_SYSVSEM | unix.CLONE_PARENT_SETTID | unix.CLONE_CHILD_CLEARTID

// acquire returns a stopped thread of the stub, a parked one or a new one,
// owned by owner (nil: it is parked).
func (st *stub) acquire(owner *context) (*slot, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.dead.Load() {
		return nil, platform.ErrStubDied
	}
	for n := len(st.parked); n > 0 && owner != nil; n = len(st.parked) {
		s := st.parked[n-1]
		st.parked = st.parked[:n-1]
		if s.mem.load() != stDead {
			s.owner = owner
			return s, nil
		}
		st.idle = append(st.idle, s) // it died while parked
	}
	s, err := st.idleSlot()
	if err != nil {
		return nil, err
	}
	if err := st.startThread(s); err != nil {
		if !st.dead.Load() {
			st.idle = append(st.idle, s)
		}
		return nil, err
	}
	s.owner = owner
	if owner == nil {
		st.parked = append(st.parked, s)
	}
	return s, nil
}

// idleSlot returns a slot without a thread. st.mu is held.
func (st *stub) idleSlot() (*slot, error) {
	if n := len(st.exiting); n > 0 && st.exiting[0].mem.load() == stDead {
		s := st.exiting[0]
		st.exiting = st.exiting[1:]
		return s, nil
	}
	if n := len(st.idle); n > 0 {
		s := st.idle[n-1]
		st.idle = st.idle[:n-1]
		return s, nil
	}
	n := len(st.slots)
	if n+chunkSlots > slotMax {
		return nil, unix.EAGAIN
	}
	off, err := st.p.ctl.allocChunk()
	if err != nil {
		return nil, err
	}
	st.chunks = append(st.chunks, off)
	addr := st.p.base + stubSlotsOff + uint64(n)*slotSize
	st.takeErr()
	st.push(opMap|opAck, addr, chunkSize, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_FIXED, uint64(st.p.ctl.fd), uint64(off))
	if err := st.waitAck(); err != nil {
		return nil, err
	}
	if e := st.takeErr(); e != 0 {
		return nil, e
	}
	for i := range chunkSlots {
		st.slots = append(st.slots, st.newSlot(n+i, off+int64(i)*slotSize))
	}
	st.idle = append(st.idle, st.slots[n+1:]...)
	st.threads.Store(int32(len(st.slots)))
	return st.slots[n], nil
}

// startThread starts the thread of s and waits until it has stopped. st.mu is
// held.
func (st *stub) startThread(s *slot) error {
	st.takeErr()
	st.queueThread(s)
	return st.awaitThread(s)
}

// queueThread has the leader clone the thread of s. st.mu is held.
func (st *stub) queueThread(s *slot) {
	m := s.mem
	m.leader = st.p.base + stubCmdOff
	m.ssSP = s.start
	m.ssFl = 0
	m.ssSize = slotSize - slotMemSize
	m.flags = st.p.slotFlags
	m.self = s.start + slotSize
	m.spin = 0
	m.tid = 0
	m.store(stRun)
	addr := s.start + slotSize - slotMemSize
	st.push(opThread|opAck, threadFlags, addr-64, addr+40, addr, 0, 0)
}

// awaitThread waits until the thread of s, which is the last command queued,
// has installed its filter and stopped. st.mu is held.
func (st *stub) awaitThread(s *slot) error {
	m := s.mem
	if err := st.waitAck(); err != nil {
		return err
	}
	if m.load() == stRun {
		if e := st.takeErr(); e != 0 {
			return e
		}
	}
	s.tid = int(int32(m.tid)) // a hint; tgkill checks that it is one of the process
	deadline := time.Now().Add(startDeadline)
	for {
		v := spinWhile(&m.state, 1<<stRun|1<<stRunW, st.p.pollUnit)
		switch v {
		case stEvent, stEventW, stYield:
			return nil
		case stRun:
			m.cas(stRun, stRunW)
		case stRunW:
			futexWait(&m.state, stRunW, &unix.Timespec{Nsec: 50e6})
		default:
			return platform.ErrStubDied
		}
		if st.dead.Load() || time.Now().After(deadline) {
			st.kill()
			return platform.ErrStubDied
		}
	}
}

// parkedMax bounds the threads kept for reuse in one process.
const parkedMax = 8

// park takes the thread of s, which is stopped, from its owner.
func (st *stub) park(s *slot) {
	st.mu.Lock()
	defer st.mu.Unlock()
	s.owner = nil
	if st.dead.Load() {
		return
	}
	for {
		v := s.mem.load()
		switch v {
		case stDead:
			st.idle = append(st.idle, s)
			return
		case stEvent, stEventW, stSleep, stYield:
			want := uint32(stSleep) // it need not poll for the next owner
			if len(st.parked) >= parkedMax {
				want = stExit
			} else if v == stEventW {
				want = stEventW
			}
			if !s.mem.cas(v, want) {
				continue
			}
			if want == stExit {
				futexWake(&s.mem.state)
				// The host clears the state when the thread is gone.
				st.exiting = append(st.exiting, s)
			} else {
				st.parked = append(st.parked, s)
			}
			return
		default:
			// Forged, or still running.
			st.kill()
			return
		}
	}
}
