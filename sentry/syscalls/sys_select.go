package syscalls

import (
	"math/bits"

	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/pkg/waitq"
	"runsc/sentry/errs"
	"runsc/sentry/kernel"
)

// selectMasks are the poll events of the three sets: readable, writable,
// exceptional (POLLIN_SET and so on of fs/select.c).
var selectMasks = [3]waitq.Mask{
	waitq.In | waitq.RdNorm | waitq.RdBand | waitq.Hup | waitq.Err,
	waitq.Out | waitq.WrNorm | waitq.WrBand | waitq.Err,
	waitq.Pri,
}

// sysSelect implements select(2), which updates its timeout.
func sysSelect(t *kernel.Task, a Args) (uintptr, error) {
	deadline := int64(0)
	if a.Addr(4) != 0 {
		var tv unix.Timeval
		if err := t.CopyIn(a.Addr(4), abi.Bytes(&tv)); err != nil {
			return 0, err
		}
		// Microseconds may be more than a second here (kern_select).
		if tv.Sec < 0 || tv.Usec < 0 {
			return 0, unix.EINVAL
		}
		ns, err := nanoseconds(unix.Timespec{Sec: tv.Sec + tv.Usec/1e6, Nsec: tv.Usec % 1e6 * 1e3})
		if err != nil {
			return 0, err
		}
		deadline = t.ReentryDeadline(deadlineIn(t, ns))
	}
	n, err := selectFDs(t, a, deadline)
	if a.Addr(4) != 0 && deadline != 0 && err != errs.ERESTARTCKPT {
		tv := unix.NsecToTimeval(timeLeft(t, deadline))
		_ = t.CopyOut(a.Addr(4), abi.Bytes(&tv))
	}
	return n, err
}

// sysPselect6 implements pselect(2). The last argument points to a pair of
// the signal mask's address and size.
func sysPselect6(t *kernel.Task, a Args) (uintptr, error) {
	var mask [2]uint64
	if a.Addr(5) != 0 {
		if err := t.CopyIn(a.Addr(5), abi.SliceBytes(mask[:])); err != nil {
			return 0, err
		}
	}
	deadline, err := copyInDeadline(t, a.Addr(4))
	if err != nil {
		return 0, err
	}
	if err := setTempMask(t, mask[0], mask[1]); err != nil {
		return 0, err
	}
	n, err := selectFDs(t, a, deadline)
	if err != errs.ERESTARTCKPT {
		copyOutTimeLeft(t, a.Addr(4), deadline)
	}
	return n, err
}

// selectFDs polls the descriptors of the three sets at arguments 1 to 3.
func selectFDs(t *kernel.Task, a Args, deadline int64) (uintptr, error) {
	n := a.Int(0)
	if n < 0 {
		return 0, unix.EINVAL
	}
	n = min(n, maxPoll) // no descriptor is larger
	words := (int(n) + 63) / 64
	var sets [3][]uint64
	for i := range sets {
		sets[i] = make([]uint64, words)
		if a.Addr(1+i) != 0 {
			if err := t.CopyIn(a.Addr(1+i), abi.SliceBytes(sets[i])); err != nil {
				return 0, err
			}
		}
	}
	s := pollSet{t: t}
	defer s.release()
	fds, err := s.addSets(&sets, n)
	if err != nil {
		return 0, err
	}
	if _, err := s.wait(deadline); err != nil {
		if err == errs.ERESTARTSYS {
			err = errs.ERESTARTNOHAND
		}
		return 0, err
	}
	count := s.result(&sets, fds)
	for i := range sets {
		if a.Addr(1+i) != 0 {
			if err := t.CopyOut(a.Addr(1+i), abi.SliceBytes(sets[i])); err != nil {
				return 0, err
			}
		}
	}
	return uintptr(count), nil
}

// addSets fills s with the files that are in one of the sets, of descriptors
// below n, and returns their descriptors in the same order; EBADF.
func (s *pollSet) addSets(sets *[3][]uint64, n int32) ([]int32, error) {
	var fds []int32
	for w := range sets[0] {
		for all := sets[0][w] | sets[1][w] | sets[2][w]; all != 0; all &= all - 1 {
			fd := int32(w*64 + bits.TrailingZeros64(all))
			if fd >= n {
				break
			}
			f, err := getFile(s.t, fd)
			if err != nil {
				return nil, err
			}
			p := polled{file: f}
			for i, mask := range selectMasks {
				if sets[i][w]>>(fd%64)&1 != 0 {
					p.want |= mask
				}
			}
			s.files = append(s.files, p)
			fds = append(fds, fd)
		}
	}
	return fds, nil
}

// result turns the events into the sets to return and counts their bits.
func (s *pollSet) result(sets *[3][]uint64, fds []int32) int {
	count := 0
	for i, mask := range selectMasks {
		out := make([]uint64, len(sets[i]))
		for j := range s.files {
			bit := uint64(1) << (fds[j] % 64)
			if sets[i][fds[j]/64]&bit != 0 && s.files[j].got&mask != 0 {
				out[fds[j]/64] |= bit
				count++
			}
		}
		sets[i] = out
	}
	return count
}
