package syscalls

import (
	"runsc/sentry/image"
	"runsc/sentry/kernel"
)

// Kinds of image.Restart; numbers are never reused.
const (
	restartSleep uint8 = 1
	restartPoll  uint8 = 2
	restartFutex uint8 = 3
)

// SaveRestart implements kernel.Restarter.
func (s sleepRestart) SaveRestart() image.Restart {
	return image.Restart{Kind: restartSleep, Args: []uint64{uint64(s.deadline), s.rem}}
}

// SaveRestart implements kernel.Restarter.
func (p pollRestart) SaveRestart() image.Restart {
	return image.Restart{Kind: restartPoll, Args: []uint64{p.fds, uint64(p.n), uint64(p.deadline)}}
}

// SaveRestart implements kernel.Restarter.
func (w futexWait) SaveRestart() image.Restart {
	private := uint64(0)
	if w.private {
		private = 1
	}
	return image.Restart{
		Kind: restartFutex,
		Args: []uint64{w.addr, uint64(w.val), uint64(w.bits), private, uint64(w.deadline), uint64(w.wall)},
	}
}

func init() {
	kernel.RegisterRestart(restartSleep, func(a []uint64, shift func(int64) int64) kernel.Restarter {
		if len(a) != 2 {
			return nil
		}
		return sleepRestart{deadline: shift(int64(a[0])), rem: a[1]}
	})
	kernel.RegisterRestart(restartPoll, func(a []uint64, shift func(int64) int64) kernel.Restarter {
		if len(a) != 3 {
			return nil
		}
		return pollRestart{a[0], uint32(a[1]), shift(int64(a[2]))}
	})
	kernel.RegisterRestart(restartFutex, func(a []uint64, shift func(int64) int64) kernel.Restarter {
		if len(a) != 6 {
			return nil
		}
		return futexWait{
			addr: a[0], val: uint32(a[1]), bits: uint32(a[2]), private: a[3] != 0, deadline: shift(int64(a[4])), wall: int64(a[5]),
		}
	})
}
