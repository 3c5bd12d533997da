package mm

import (
	"golang.org/x/sys/unix"

	"runsc/sentry/mem"
)

// mapSyncer is implemented by a Mappable whose dirty pages can be written
// back (MS_SYNC).
type mapSyncer interface {
	SyncMapping(off, n int64) error
}

// MSync implements msync(2).
func (mm *MM) MSync(addr, n uint64, flags int) error {
	if flags&^(unix.MS_ASYNC|unix.MS_INVALIDATE|unix.MS_SYNC) != 0 ||
		flags&unix.MS_ASYNC != 0 && flags&unix.MS_SYNC != 0 {
		return unix.EINVAL
	}
	end, err := userRange(addr, n)
	if err != nil {
		return err
	}
	type job struct {
		file   mem.Mappable
		off, n int64
	}
	var jobs []job
	hole := false
	mm.mu.RLock()
	at := addr
	for i := mm.vmas.Search(addr); at < end; i++ {
		if i == mm.vmas.Len() || mm.vmas.At(i).Start >= end {
			hole = true
			break
		}
		s := mm.vmas.At(i)
		if s.Start > at {
			hole = true
			at = s.Start
		}
		if flags&unix.MS_INVALIDATE != 0 && s.V.lock != unlocked {
			err = unix.EBUSY
			break
		}
		if flags&unix.MS_SYNC != 0 && s.V.shared && s.V.file != nil {
			s.V.file.IncRef()
			jobs = append(jobs, job{s.V.file, int64(s.V.off + (at - s.Start)), int64(min(s.End, end) - at)})
		}
		at = min(s.End, end)
	}
	mm.mu.RUnlock()
	for _, j := range jobs {
		if sy, ok := j.file.(mapSyncer); ok && err == nil {
			err = sy.SyncMapping(j.off, j.n)
		}
		j.file.DecRef()
	}
	if err == nil && hole {
		err = unix.ENOMEM
	}
	return err
}

// MIncore implements mincore(2): a byte for each page of the range, whose
// lowest bit tells whether it is resident.
func (mm *MM) MIncore(addr, n uint64, emit func([]byte) error) error {
	if addr&pageMask != 0 {
		return unix.EINVAL
	}
	end, err := userRange(addr, n)
	if err != nil {
		return unix.ENOMEM
	}
	var buf [pageSize]byte
	for at := addr; at < end; {
		k := 0
		mm.mu.RLock()
		for ; at < end && k < len(buf); at, k = at+pageSize, k+1 {
			if mm.vmas.Find(at) == nil {
				mm.mu.RUnlock()
				return unix.ENOMEM
			}
			buf[k] = 0
			if mm.pages.Find(at) != nil {
				buf[k] = 1
			}
		}
		mm.mu.RUnlock()
		if err := emit(buf[:k]); err != nil {
			return err
		}
	}
	return nil
}
