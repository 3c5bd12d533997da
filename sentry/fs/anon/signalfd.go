package anon

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/pkg/abi/linux"
	"runsc/pkg/waitq"
	"runsc/sentry/arch"
	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// SignalSource is a task as a signalfd sees it; *kernel.Task implements it.
type SignalSource interface {
	// DequeueSignal takes a pending signal of set; the task's own goroutine
	// calls it.
	DequeueSignal(set arch.SigSet) (arch.SigInfo, bool)
	// PendingSignals are those of the task and of its process.
	PendingSignals() arch.SigSet
	// SignalQueue is notified when a signal is queued.
	SignalQueue() *waitq.Queue
}

// Signalfd takes the caller's pending signals, signalfd(2). A read is about the
// reader's signals, as on Linux; readiness and waiting are about those of the
// task that made the descriptor, while Linux asks for the caller's there too.
type Signalfd struct {
	owner SignalSource  `save:"rec"` // immutable, but for a restore
	mask  atomic.Uint64 `save:"rec"`
}

// NewSignalfd returns a descriptor for the signals of mask.
func NewSignalfd(owner SignalSource, mask uint64) *Signalfd {
	s := &Signalfd{owner: owner}
	s.mask.Store(mask)
	return s
}

// SetMask replaces the set of signals.
func (s *Signalfd) SetMask(mask uint64) {
	s.mask.Store(mask)
	s.owner.SignalQueue().Notify(waitq.In)
}

// Mask returns the set, for /proc/PID/fdinfo.
func (s *Signalfd) Mask() uint64 { return s.mask.Load() }

// Release implements vfs.FileOps.
func (s *Signalfd) Release() {}

// Queue implements vfs.Waitable.
func (s *Signalfd) Queue() *waitq.Queue { return s.owner.SignalQueue() }

// Ready implements vfs.FileOps.
func (s *Signalfd) Ready(mask waitq.Mask) waitq.Mask {
	if uint64(s.owner.PendingSignals())&s.mask.Load() == 0 {
		return 0
	}
	return mask & (waitq.In | waitq.RdNorm)
}

// Read implements vfs.Reader: as many signals as there are and fit.
func (s *Signalfd) Read(c vfs.Caller, _ *vfs.File, dst *mem.UserBuf) (int, error) {
	const size = 128 // struct signalfd_siginfo
	if dst.Len() < size {
		return 0, unix.EINVAL
	}
	from, ok := c.(SignalSource)
	if !ok {
		from = s.owner
	}
	done := 0
	for dst.Len() >= size {
		info, ok := from.DequeueSignal(arch.SigSet(s.mask.Load()))
		if !ok {
			break
		}
		out := signalfdInfo(&info)
		if _, err := dst.CopyOut(abi.Bytes(&out)); err != nil {
			if done == 0 {
				return 0, err
			}
			break
		}
		done += size
	}
	if done == 0 {
		return 0, unix.EAGAIN
	}
	return done, nil
}

// signalfdInfo spreads a siginfo over the fields that its kind has
// (signalfd_copyinfo).
func signalfdInfo(i *arch.SigInfo) unix.SignalfdSiginfo {
	out := unix.SignalfdSiginfo{Signo: uint32(i.Signo), Errno: i.Errno, Code: i.Code}
	sig := unix.Signal(i.Signo)
	switch {
	case i.Code == linux.SI_TIMER:
		out.Tid, out.Overrun = uint32(i.TimerID()), uint32(i.Overrun())
		out.Ptr, out.Int = i.Value(), int32(i.Value())
	case i.Code == linux.SI_USER || i.Code == linux.SI_TKILL:
		out.Pid, out.Uid = uint32(i.PID()), i.UID()
	case i.Code < 0 && i.Code != linux.SI_SIGIO:
		out.Pid, out.Uid = uint32(i.PID()), i.UID()
		out.Ptr, out.Int = i.Value(), int32(i.Value())
	case sig == unix.SIGCHLD:
		out.Pid, out.Uid, out.Status = uint32(i.PID()), i.UID(), i.Status()
		utime, stime := i.Times()
		out.Utime, out.Stime = uint64(utime), uint64(stime)
	case sig == unix.SIGPOLL || i.Code == linux.SI_SIGIO:
		band, fd := i.Band()
		out.Band, out.Fd = uint32(band), fd
	case sig == unix.SIGSEGV || sig == unix.SIGBUS || sig == unix.SIGILL || sig == unix.SIGFPE || sig == unix.SIGTRAP:
		out.Addr = i.Addr()
	default:
		out.Pid, out.Uid = uint32(i.PID()), i.UID()
	}
	return out
}
