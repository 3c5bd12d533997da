package gofer

import (
	"golang.org/x/sys/unix"

	"runsc/sentry/vfs"
)

func timespec(t unix.StatxTimestamp) vfs.Timespec {
	return vfs.Timespec{Sec: t.Sec, Nsec: t.Nsec}
}

// utimes returns the times of a SetStat for utimensat.
func utimes(s *vfs.SetStat) [2]unix.Timespec {
	one := func(t *vfs.Timespec, now bool) unix.Timespec {
		switch {
		case now:
			return unix.Timespec{Nsec: unix.UTIME_NOW}
		case t != nil:
			return unix.Timespec{Sec: t.Sec, Nsec: int64(t.Nsec)}
		}
		return unix.Timespec{Nsec: unix.UTIME_OMIT}
	}
	return [2]unix.Timespec{one(s.Atime, s.AtimeNow), one(s.Mtime, s.MtimeNow)}
}
