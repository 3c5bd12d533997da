package syscalls

import (
	"golang.org/x/sys/unix"

	"runsc/sentry/errs"
	"runsc/sentry/kernel"
)

// maxRW is MAX_RW_COUNT, the most that one call transfers (read(2), NOTES).
const maxRW = 0x7ffff000

// ioResult turns the outcome of a transfer into a call's result: progress
// beats failure, and the signals that go with some errors are sent here.
func ioResult(t *kernel.Task, n int, err error) (uintptr, error) {
	if err != errs.ERESTARTCKPT {
		n += t.ReentryDone()
	}
	if err == nil {
		return uintptr(n), nil
	}
	switch err {
	case errs.ERESTARTCKPT:
		t.AddReentryDone(n)
		return 0, err
	case unix.EPIPE:
		// Also after a short count: pipe_write() raises it whenever it finds
		// no readers.
		t.SendSelf(unix.SIGPIPE)
	case unix.EFBIG:
		// Only the resource limit raises the signal, not the largest file
		// size (generic_write_checks).
		if n == 0 && t.Rlimit(unix.RLIMIT_FSIZE) != unix.RLIM_INFINITY {
			t.SendSelf(unix.SIGXFSZ)
		}
	}
	if n > 0 {
		return uintptr(n), nil
	}
	return 0, err
}

// done is the result of a call that returns 0 or an error.
func done(err error) (uintptr, error) { return 0, err }
