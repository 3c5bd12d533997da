package mm

import (
	"golang.org/x/sys/unix"

	"runsc/sentry/platform"
)

// MProtect implements mprotect(2). With growsDown (PROT_GROWSDOWN) the change
// extends to the start of the stack that addr lies in.
func (mm *MM) MProtect(addr, n uint64, prot platform.Prot, growsDown bool) error {
	end, err := userRange(addr, n)
	if err != nil {
		return err
	}
	if end == addr {
		return nil
	}
	mm.mapMu.Lock()
	defer mm.mapMu.Unlock()
	mm.mu.Lock()
	defer mm.unlock()
	if growsDown {
		s := mm.vmas.Find(addr)
		if s == nil {
			return unix.ENOMEM
		}
		if !s.V.grows {
			return unix.EINVAL
		}
		addr = s.Start
	}
	if s := mm.vmas.Find(addr); s == nil {
		return unix.ENOMEM
	}
	// Linux changes what precedes an error; so do we.
	stop, err := mm.checkProtectLocked(addr, end, prot)
	if stop == addr {
		return err
	}
	lo, hi := mm.vmas.Isolate(addr, stop)
	for i := lo; i < hi; i++ {
		s := mm.vmas.At(i)
		mm.space.count(s.V, s.End-s.Start, -1)
		s.V.prot = prot
		mm.space.count(s.V, s.End-s.Start, 1)
	}
	mm.vmas.MergeRange(addr, stop)
	if perr := mm.protectLocked(addr, stop); perr != nil && err == nil {
		err = unix.ENOMEM
	}
	return err
}

// checkProtectLocked returns up to where [addr, end) may get prot, and the
// error of what follows.
func (mm *MM) checkProtectLocked(addr, end uint64, prot platform.Prot) (uint64, error) {
	at := addr
	data := mm.space.data
	for i := mm.vmas.Search(addr); at < end; i++ {
		if i == mm.vmas.Len() || mm.vmas.At(i).Start > at {
			return at, unix.ENOMEM
		}
		s := mm.vmas.At(i)
		if prot&^s.V.maxProt != 0 {
			return at, unix.EACCES
		}
		n := min(s.End, end) - at
		if !s.V.shared && !s.V.grows && prot&platform.Write != 0 && s.V.prot&platform.Write == 0 {
			// Private memory that becomes writable counts as data.
			data += n
			if data > mm.limits(unix.RLIMIT_DATA) {
				return at, unix.ENOMEM
			}
			if !s.V.nores && mm.strict() && !mm.acct.MayCommit(n) {
				return at, unix.ENOMEM
			}
		}
		if s.V.prot != prot && (s.Start < at || s.End > end) && mm.vmas.Len()+1 > mm.maxMapCount() {
			return at, unix.ENOMEM
		}
		at += n
	}
	return end, nil
}
