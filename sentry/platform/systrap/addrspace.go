package systrap

import (
	"golang.org/x/sys/unix"

	"runsc/sentry/arch"
	"runsc/sentry/platform"
)

const pageSize = 4096

// protectMax is how many separate stretches Protect changes one by one; of
// more it takes the mappings away instead, and the guest faults again.
const protectMax = 64

// addrSpace implements platform.AddressSpace by one stub.
type addrSpace struct {
	g  *group
	st *stub
}

func checkRange(addr, n uint64) error {
	if (addr|n)%pageSize != 0 || n == 0 || addr >= arch.GuestTop || n > arch.GuestTop-addr {
		return unix.EINVAL
	}
	return nil
}

func hostProt(p platform.Prot) uint64 {
	var v uint64
	if p&platform.Read != 0 {
		v |= unix.PROT_READ
	}
	if p&platform.Write != 0 {
		v |= unix.PROT_WRITE
	}
	if p&platform.Exec != 0 {
		v |= unix.PROT_EXEC
	}
	return v
}

// Map implements platform.AddressSpace. When nothing was mapped there and the
// descriptor is one that stays (Options.KeepFDs), it only queues: the leader
// maps before it resumes the next thread. Else the old mapping must be gone,
// or the descriptor used, on return.
func (a *addrSpace) Map(addr, n uint64, fd int, off int64, prot platform.Prot, populate bool) error {
	if err := checkRange(addr, n); err != nil {
		return err
	}
	if off < 0 || off%pageSize != 0 || fd < 0 {
		return unix.EINVAL
	}
	flags := uint64(unix.MAP_SHARED | unix.MAP_FIXED)
	if populate {
		flags |= unix.MAP_POPULATE
	}
	st := a.st
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.dead.Load() {
		return platform.ErrStubDied
	}
	op := uint32(opMap)
	wait := !st.p.kept(fd) || st.mapped.overlaps(addr, addr+n)
	if wait {
		op |= opAck
	}
	st.mapped.add(addr, addr+n)
	st.dirty.Store(true)
	st.push(op, addr, n, hostProt(prot), flags, uint64(fd), uint64(off))
	if wait {
		if err := st.waitAck(); err != nil {
			return err
		}
	}
	if e := st.takeErr(); e != 0 {
		return e
	}
	return nil
}

// Unmap implements platform.AddressSpace.
func (a *addrSpace) Unmap(addr, n uint64) error {
	if err := checkRange(addr, n); err != nil {
		return err
	}
	st := a.st
	st.mu.Lock()
	defer st.mu.Unlock()
	if !st.mapped.overlaps(addr, addr+n) {
		return nil
	}
	return st.unmap(addr, n)
}

// unmap takes all mappings in the range away. st.mu is held.
func (st *stub) unmap(addr, n uint64) error {
	if !st.dead.Load() {
		st.push(opUnmap|opAck, addr, n)
		st.waitAck() // when it fails the process is dead, its mappings gone
		st.takeErr() // the leader has then unmapped all
	}
	st.mapped.remove(addr, addr+n)
	return nil
}

// Protect implements platform.AddressSpace.
func (a *addrSpace) Protect(addr, n uint64, prot platform.Prot) error {
	if err := checkRange(addr, n); err != nil {
		return err
	}
	end := addr + n
	st := a.st
	st.mu.Lock()
	defer st.mu.Unlock()
	first, count := st.mapped.count(addr, end)
	if count == 0 || st.dead.Load() {
		return nil
	}
	if count > protectMax {
		return st.unmap(addr, n)
	}
	for i, s := range st.mapped[first : first+count] {
		op := uint32(opProtect)
		if i == count-1 {
			op |= opAck
		}
		from := max(s.start, addr)
		st.push(op, from, min(s.end, end)-from, hostProt(prot))
	}
	st.waitAck()
	st.takeErr() // the leader has then unmapped the stretch
	return nil
}

// Gone returns a channel that is closed when the process is dead and reaped:
// nothing can access what was mapped then.
func (a *addrSpace) Gone() <-chan struct{} { return a.st.gone }

// Release implements platform.AddressSpace. The process is killed, not
// reused: a guest thread that only pretends to have stopped would live on in
// the next guest.
func (a *addrSpace) Release() {
	st := a.st
	st.mu.Lock()
	var owners []*context
	for _, s := range st.slots {
		if s.owner != nil {
			owners = append(owners, s.owner)
		}
	}
	st.mu.Unlock()
	for _, c := range owners {
		c.detach(st)
	}
	a.g.forget(a)
	st.release()
}
