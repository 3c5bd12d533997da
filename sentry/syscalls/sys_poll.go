package syscalls

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/pkg/waitq"
	"runsc/sentry/errs"
	"runsc/sentry/kernel"
)

// sysPoll implements poll(2).
func sysPoll(t *kernel.Task, a Args) (uintptr, error) {
	timeout := int64(a.Int(2))
	if timeout > 0 {
		timeout *= 1e6
	}
	p := pollRestart{a.Addr(0), a.Uint(1), t.ReentryDeadline(deadlineIn(t, timeout))}
	return p.Restart(t)
}

// pollRestart is a poll that an interruption leaves to restart_syscall(2),
// with its deadline (do_restart_poll).
type pollRestart struct {
	fds      uint64
	n        uint32
	deadline int64
}

// Restart implements kernel.Restarter.
func (p pollRestart) Restart(t *kernel.Task) (uintptr, error) {
	ready, err := pollFDs(t, p.fds, p.n, p.deadline)
	if err == errs.ERESTARTSYS {
		err = t.SetRestart(p)
	}
	return uintptr(ready), err
}

// sysPpoll implements ppoll(2).
func sysPpoll(t *kernel.Task, a Args) (uintptr, error) {
	deadline, err := copyInDeadline(t, a.Addr(2))
	if err != nil {
		return 0, err
	}
	if err := setTempMask(t, a.Addr(3), a.Size(4)); err != nil {
		return 0, err
	}
	n, err := pollFDs(t, a.Addr(0), a.Uint(1), deadline)
	switch err {
	case errs.ERESTARTCKPT:
		return 0, err
	case errs.ERESTARTSYS:
		err = errs.ERESTARTNOHAND
	}
	copyOutTimeLeft(t, a.Addr(2), deadline)
	return uintptr(n), err
}

// pollFDs polls an array of struct pollfd in guest memory.
func pollFDs(t *kernel.Task, addr uint64, n uint32, deadline int64) (int, error) {
	if uint64(n) > t.Rlimit(unix.RLIMIT_NOFILE) || n > maxPoll {
		return 0, unix.EINVAL
	}
	fds := make([]unix.PollFd, n)
	if err := t.CopyIn(addr, abi.SliceBytes(fds)); err != nil {
		return 0, err
	}
	s := pollSet{t: t, files: make([]polled, n)}
	defer s.release()
	for i, fd := range fds {
		if fd.Fd < 0 {
			continue
		}
		p := &s.files[i]
		f, err := getFile(t, fd.Fd)
		if err != nil {
			p.got = waitq.Nval
			continue
		}
		p.file, p.want = f, waitq.Mask(uint16(fd.Events))|waitq.Always
	}
	ready, err := s.wait(deadline)
	if err != nil {
		return 0, err
	}
	for i := range fds {
		fds[i].Revents = int16(s.files[i].got)
	}
	if err := t.CopyOut(addr, abi.SliceBytes(fds)); err != nil {
		return 0, err
	}
	return ready, nil
}

// maxPoll bounds the arrays of poll whatever RLIMIT_NOFILE says.
const maxPoll = 1 << 20

// copyInDeadline reads an optional timeout: none waits for ever. A call that is
// entered again keeps its deadline.
func copyInDeadline(t *kernel.Task, addr uint64) (int64, error) {
	if addr == 0 {
		return 0, nil
	}
	var ts unix.Timespec
	if err := t.CopyIn(addr, abi.Bytes(&ts)); err != nil {
		return 0, err
	}
	ns, err := nanoseconds(ts)
	if err != nil {
		return 0, err
	}
	return t.ReentryDeadline(deadlineIn(t, ns)), nil
}

// copyOutTimeLeft updates a timeout. A failure is not the call's: the array
// may be read-only (poll_select_finish).
func copyOutTimeLeft(t *kernel.Task, addr uint64, deadline int64) {
	if addr == 0 || deadline == 0 {
		return
	}
	ts := unix.NsecToTimespec(timeLeft(t, deadline))
	_ = t.CopyOut(addr, abi.Bytes(&ts))
}
