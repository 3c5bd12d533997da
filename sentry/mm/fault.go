package mm

import (
	"time"

	"golang.org/x/sys/unix"

	"runsc/sentry/arch"
	"runsc/sentry/mem"
	"runsc/sentry/platform"
)

// Fault is the error of an access that the guest may not make: the signal
// that it gets.
type Fault struct {
	Signal int32 // unix.SIGSEGV or unix.SIGBUS
	Code   int32 // siginfo's si_code
	Addr   uint64
}

func (f *Fault) Error() string { return unix.Signal(f.Signal).String() }

// Codes of siginfo (sigaction(2)).
const (
	SegvMapErr = 1 // SEGV_MAPERR
	SegvAccErr = 2 // SEGV_ACCERR
	BusAdrErr  = 2 // BUS_ADRERR
)

const (
	// aheadMin and aheadMax bound how much anonymous memory one fault brings.
	aheadMin = 64 << 10
	aheadMax = 1 << 20
	// cowBlock is how much a write to a shared frame copies, if all is shared.
	cowBlock = 16 << 10
	// takeOverMax is how much of what a fork no longer shares one write fault
	// makes writable again.
	takeOverMax = 2 << 20
	// fileWindow is how much of a file one fault maps.
	fileWindow = 16 << 20
	// oomWait is how long a user copy waits between two tries when memory is
	// short.
	oomWait = 2 * time.Millisecond
)

// oomTries is how often a user copy tries to get memory, while the OOM killer
// works. Tests change it.
var oomTries = 50

// HandleFault makes the page at addr accessible in the stub. It returns nil
// when the guest is to try again, a *Fault with the signal to deliver, or
// mem.ErrLimit when the container is out of memory: the OOM killer was told,
// and the caller lets its own signals be delivered and tries again a little later.
func (mm *MM) HandleFault(addr uint64, access platform.Prot) error {
	return mm.fault(addr, access, true, false)
}

// faultCopy is fault for user copies.
func (mm *MM) faultCopy(addr uint64, access platform.Prot, force bool) error {
	for i := 0; ; i++ {
		err := mm.fault(addr, access, false, force)
		if err == nil {
			return nil
		}
		if err != mem.ErrLimit || i == oomTries {
			return unix.EFAULT
		}
		time.Sleep(oomWait)
	}
}

// lookup is a call of Region that a fault needs, and its result.
type lookup struct {
	// key, to be compared before the result is used:
	obj   any
	gen   uint64
	write bool
	start uint64 // address of off
	off   int64
	n     int64

	done   bool
	region mem.Region
}

// fault makes the page at addr present for access and, with host set, mapped
// in the stub. With force, protections of vmas do not matter.
func (mm *MM) fault(addr uint64, access platform.Prot, host, force bool) error {
	if addr >= arch.GuestTop {
		return &Fault{int32(unix.SIGSEGV), SegvMapErr, addr}
	}
	var l lookup
	for {
		mm.mu.Lock()
		s := mm.vmas.Find(addr)
		if s == nil {
			if s = mm.growStackLocked(addr); s == nil {
				mm.mu.Unlock()
				return &Fault{int32(unix.SIGSEGV), SegvMapErr, addr}
			}
		}
		if !permits(s.V, access, force) {
			mm.mu.Unlock()
			return &Fault{int32(unix.SIGSEGV), SegvAccErr, addr}
		}
		at := addr &^ pageMask
		write := access&platform.Write != 0
		if host && s.V.stable && !s.V.shared && s.V.prot&platform.Write != 0 {
			// The data of programs and libraries is read to be relocated.
			write = true
		}
		if off, ok := mm.unreadyLocked(at, false); ok {
			mm.mu.Unlock()
			if err := mm.mf.Prepare(off, false); err != nil {
				return &Fault{int32(unix.SIGBUS), BusAdrErr, addr}
			}
			continue
		}
		need, err := mm.presentLocked(s, at, write, &l)
		if err == nil && !need {
			if off, ok := mm.unreadyLocked(at, host && write); ok {
				mm.mu.Unlock()
				if err := mm.mf.Prepare(off, host && write); err != nil {
					return &Fault{int32(unix.SIGBUS), BusAdrErr, addr}
				}
				continue
			}
			if host {
				err = mm.mapHostLocked(at, s.Start, s.End, s.V)
				if err == unix.EPERM || err == unix.EACCES || err == unix.ENODEV {
					err = mm.mapCopyLocked(s, at)
				}
			}
			mm.mu.Unlock()
			if err == mem.ErrLimit {
				mm.mf.LimitHit(mm.acct, pageSize)
				return err
			}
			if err != nil {
				return &Fault{int32(unix.SIGBUS), BusAdrErr, addr}
			}
			return nil
		}
		if err == nil {
			file := s.V.file
			file.IncRef()
			mm.mu.Unlock()
			err = l.call(file, at)
			file.DecRef()
		} else {
			mm.mu.Unlock()
		}
		if err == mem.ErrLimit {
			mm.mf.LimitHit(mm.acct, pageSize)
			return err
		}
		if err != nil {
			return &Fault{int32(unix.SIGBUS), BusAdrErr, addr}
		}
	}
}

// unreadyLocked tells whether the page at addr is a frame that cannot be
// accessed yet: its contents are still in an image or, for a write, needed
// by a snapshot. It returns the frame.
func (mm *MM) unreadyLocked(addr uint64, write bool) (uint64, bool) {
	p := mm.pages.Find(addr)
	if p == nil || !p.V.frames {
		return 0, false
	}
	off := p.V.off + (addr - p.Start)
	return off, !mm.mf.Ready(off, write)
}

// mapCopyLocked is for a file that the host does not map (a noexec mount, a
// file system without mmap): a private mapping gets copies of its pages.
func (mm *MM) mapCopyLocked(s *vmaSeg, addr uint64) error {
	p := mm.pages.Find(addr)
	if s.V.shared || p.V.frames {
		return unix.EACCES
	}
	if err := mm.copyPagesLocked(s, p, addr); err != nil {
		return err
	}
	return mm.mapHostLocked(addr, s.Start, s.End, s.V)
}

// permits is access_error of arch/x86/mm/fault.c, or check_vma_flags of
// mm/gup.c for forced accesses.
func permits(v *vma, access platform.Prot, force bool) bool {
	if force {
		return access&platform.Write == 0 || !v.shared || v.prot&platform.Write != 0
	}
	switch {
	case access&platform.Write != 0:
		return v.prot&platform.Write != 0
	case access&platform.Exec != 0:
		return v.prot&platform.Exec != 0
	}
	return v.prot != 0
}

// call asks the file. The first question is for much of the file, from before
// the page; when its answer does not reach the page, the page alone is asked for.
func (l *lookup) call(file mem.Mappable, at uint64) error {
	r, err := file.Region(l.off, l.n, l.write)
	skip := int64(at - l.start)
	if skip > 0 && (err != nil || r.Len <= skip) {
		l.off += skip
		l.n -= skip
		l.start = at
		r, err = file.Region(l.off, l.n, l.write)
	}
	if err != nil {
		return err
	}
	r.Len = min(r.Len, l.n) &^ pageMask
	if r.Len <= 0 {
		return unix.EIO
	}
	l.region, l.done = r, true
	return nil
}

// presentLocked makes the page at addr present, for writing if write is set.
// It returns true when l is to be called first.
func (mm *MM) presentLocked(s *vmaSeg, addr uint64, write bool, l *lookup) (bool, error) {
	v := s.V
	if p := mm.pages.Find(addr); p != nil {
		switch {
		case !write || p.V.writable(v):
			return false, nil
		case p.V.owned:
			return false, mm.breakCOWLocked(s, p, addr)
		case !v.shared:
			return false, mm.copyPagesLocked(s, p, addr)
		}
		// A shared mapping that so far only reads.
	} else if v.file == nil {
		return false, mm.anonymousLocked(s, addr)
	}
	ask := v.shared && write
	if l.done && l.obj == v.obj && l.gen == mm.gen && l.write == ask &&
		l.start <= addr && addr < l.start+uint64(l.region.Len) &&
		l.start >= s.Start && v.off+(l.start-s.Start) == uint64(l.off) {
		mm.installLocked(s, l)
		if write && !v.shared {
			return false, mm.copyPagesLocked(s, mm.pages.Find(addr), addr)
		}
		return false, nil
	}
	*l = lookup{obj: v.obj, gen: mm.gen, write: ask}
	// Writers may make the file allocate: they ask for less.
	span := uint64(fileWindow)
	if ask {
		span = aheadMin
	}
	lo, hi := max(s.Start, addr&^(span-1)), min(s.End, addr&^(span-1)+span)
	if p := mm.pages.Find(addr); p == nil {
		lo, hi = mm.absentLocked(lo, hi, addr)
	}
	l.start = lo
	l.off = int64(v.off + (lo - s.Start))
	l.n = int64(hi - lo)
	return true, nil
}

// installLocked makes what a file told the pages of its range, except where
// there are private copies.
func (mm *MM) installLocked(s *vmaSeg, l *lookup) {
	end := min(l.start+uint64(l.region.Len), s.End)
	mm.dropPagesLocked(l.start, end, false)
	p := page{fd: int32(l.region.FD), frames: l.region.Frames, dirty: l.write}
	for at := l.start; at < end; {
		stop := end
		i := mm.pages.Search(at)
		if i < mm.pages.Len() && mm.pages.At(i).Start < end {
			stop = mm.pages.At(i).Start
			if stop <= at {
				at = min(mm.pages.At(i).End, end)
				continue
			}
		}
		p.off = uint64(l.region.Off) + (at - l.start)
		mm.setPagesLocked(at, stop, p)
		at = stop
	}
}

// anonymousLocked allocates zero-filled frames around addr: more when touches
// are sequential, one page when memory is scarce.
func (mm *MM) anonymousLocked(s *vmaSeg, addr uint64) error {
	v := s.V
	lo, hi := addr&^(aheadMin-1), addr&^(aheadMin-1)+aheadMin
	if addr == v.next && v.ahead > 0 {
		v.ahead = min(v.ahead*2, aheadMax)
		lo, hi = addr, addr+v.ahead
	} else {
		v.ahead = aheadMin
	}
	if mm.acct != nil && mm.acct.Room() < 8*(hi-lo) {
		lo, hi = addr, addr+pageSize
	}
	lo, hi = mm.absentLocked(max(lo, s.Start), min(hi, s.End), addr)
	v.next = hi
	done, err := mm.allocLocked(lo, hi, true)
	if err != nil && done <= addr {
		_, err = mm.allocLocked(addr, addr+pageSize, true)
		v.next = addr + pageSize
		return err
	}
	return nil
}

// absentLocked narrows [lo, hi) around addr to where there are no pages.
func (mm *MM) absentLocked(lo, hi, addr uint64) (uint64, uint64) {
	i := mm.pages.Search(addr)
	if i < mm.pages.Len() {
		hi = min(hi, mm.pages.At(i).Start)
	}
	if i > 0 {
		lo = max(lo, mm.pages.At(i-1).End)
	}
	return lo, hi
}

// breakCOWLocked makes the page at addr, part of run p, writable: it takes
// over frames that nobody else holds any more, else it copies some.
func (mm *MM) breakCOWLocked(s *vmaSeg, p *pageSeg, addr uint64) error {
	lo, hi := max(p.Start, s.Start), min(p.End, s.End)
	shared := func(a uint64) bool { return mm.mf.Shared(p.V.off + (a - p.Start)) }
	if !shared(addr) {
		lo = max(lo, addr&^(takeOverMax-1))
		hi = min(hi, addr&^(takeOverMax-1)+takeOverMax)
		from, to := addr, addr+pageSize
		for from > lo && !shared(from-pageSize) {
			from -= pageSize
		}
		for to < hi && !shared(to) {
			to += pageSize
		}
		i, j := mm.pages.Isolate(from, to)
		for ; i < j; i++ {
			mm.pages.At(i).V.cow = false
		}
		mm.pages.MergeRange(from, to)
		return nil
	}
	lo = max(lo, addr&^(cowBlock-1))
	hi = min(hi, addr&^(cowBlock-1)+cowBlock)
	from, to := addr, addr+pageSize
	if mm.acct == nil || mm.acct.Room() > 8*cowBlock {
		for from > lo && shared(from-pageSize) {
			from -= pageSize
		}
		for to < hi && shared(to) {
			to += pageSize
		}
	}
	return mm.replaceLocked(s.V, from, to)
}

// copyPagesLocked gives a private file mapping its own copy of the page at
// addr, in run p. Pages that the program did not write follow changes of the
// file; only where none are expected, its neighbours are copied too.
func (mm *MM) copyPagesLocked(s *vmaSeg, p *pageSeg, addr uint64) error {
	size := uint64(aheadMin)
	if !s.V.stable || mm.acct != nil && mm.acct.Room() < 8*size {
		size = pageSize
	}
	lo := max(p.Start, s.Start, addr&^(size-1))
	hi := min(p.End, s.End, addr&^(size-1)+size)
	return mm.replaceLocked(s.V, lo, hi)
}

// replaceLocked replaces the pages [lo, hi), one run in v, by owned copies.
func (mm *MM) replaceLocked(v *vma, lo, hi uint64) error {
	p := mm.pages.Find(lo)
	old := p.V
	src := old.off + (lo - p.Start)
	for lo < hi {
		stop := min(hi, lo&^(mem.WindowSize-1)+mem.WindowSize)
		dst, err := mm.framesLocked(lo, stop, false)
		if err != nil {
			return err
		}
		if old.frames {
			err = mm.mf.Copy(dst, src, stop-lo)
		} else {
			err = mm.mf.CopyFromHost(dst, int(old.fd), int64(src), stop-lo)
		}
		if err != nil {
			mm.mf.DecRef(mem.Range{Start: dst, End: dst + (stop - lo)})
			return err
		}
		fresh := page{off: dst, fd: int32(mm.mf.FD()), frames: true, owned: true}
		if old.host != 0 {
			// Other threads of the guest must not see the old frames after
			// their references are gone: the host mapping changes first.
			prot := fresh.hostProt(v)
			if as := mm.as.Load(); as != nil && prot != 0 && (*as).Map(lo, stop-lo, mm.mf.FD(), int64(dst), prot, true) == nil {
				fresh.host = prot
			} else {
				mm.unhostLocked(lo, stop)
			}
		}
		mm.pages.Remove(lo, stop, mm.freePage)
		mm.setPagesLocked(lo, stop, fresh)
		src += stop - lo
		lo = stop
	}
	return nil
}

// growStackLocked extends a stack down to addr (expand_stack) and returns its
// vma, or nil.
func (mm *MM) growStackLocked(addr uint64) *vmaSeg {
	i := mm.vmas.Search(addr)
	if i == mm.vmas.Len() {
		return nil
	}
	s := mm.vmas.At(i)
	at := addr &^ pageMask
	if !s.V.grows || at < minAddr || s.End-at > mm.limits(unix.RLIMIT_STACK) {
		return nil
	}
	n := s.Start - at
	if i > 0 {
		below := mm.vmas.At(i - 1)
		if below.V.prot != 0 && below.End+stackGuardGap > at {
			return nil
		}
	}
	if mm.space.total+n > mm.limits(unix.RLIMIT_AS) {
		return nil
	}
	if s.V.lock != unlocked && mm.space.locked+n > mm.limits(unix.RLIMIT_MEMLOCK) {
		return nil
	}
	mm.vmas.ExtendDown(i, at)
	mm.space.count(s.V, n, 1)
	return mm.vmas.At(i)
}

// populate faults in [start, end) as far as it goes; errors do not matter
// (mm_populate).
func (mm *MM) populate(start, end uint64, access platform.Prot) error {
	for at := start; at < end; {
		mm.mu.RLock()
		s := mm.vmas.Find(at)
		var v *vma
		var stop uint64
		if s != nil {
			v, stop = s.V, min(s.End, end)
			if access == 0 && v.prot&platform.Write != 0 && !v.shared {
				access = platform.Write
			}
			if p := mm.pages.Find(at); p != nil && p.V.host != 0 && (access&platform.Write == 0 || p.V.writable(v)) {
				at = min(p.End, stop)
				mm.mu.RUnlock()
				continue
			}
		}
		mm.mu.RUnlock()
		if s == nil {
			return unix.ENOMEM
		}
		a := access
		if a == 0 {
			a = platform.Read
		}
		if err := mm.fault(at, a, true, false); err != nil {
			return err
		}
		mm.mu.RLock()
		next := at + pageSize
		if p := mm.pages.Find(at); p != nil {
			if mm.as.Load() == nil {
				next = max(next, min(p.End, stop))
			}
		}
		mm.mu.RUnlock()
		at = next
	}
	return nil
}
