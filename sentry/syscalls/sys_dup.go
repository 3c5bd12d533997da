package syscalls

import (
	"golang.org/x/sys/unix"

	"runsc/sentry/kernel"
)

// sysDup implements dup(2).
func sysDup(t *kernel.Task, a Args) (uintptr, error) {
	return dupFD(t, a.Int(0), 0, false)
}

// dupFD makes the lowest free descriptor from least on refer to fd's description.
func dupFD(t *kernel.Task, fd, least int32, cloexec bool) (uintptr, error) {
	f, err := t.Files().Get(fd)
	if err != nil {
		return 0, err
	}
	newfd, err := t.Files().Install(t, f, least, cloexec)
	if err != nil {
		f.DecRef()
		return 0, err
	}
	return uintptr(newfd), nil
}

// sysDup2 implements dup2(2).
func sysDup2(t *kernel.Task, a Args) (uintptr, error) {
	oldfd, newfd := a.Int(0), a.Int(1)
	if oldfd == newfd {
		f, err := t.Files().Get(oldfd)
		if err != nil {
			return 0, err
		}
		f.DecRef()
		return uintptr(newfd), nil
	}
	return dup3(t, oldfd, newfd, false)
}

// sysDup3 implements dup3(2).
func sysDup3(t *kernel.Task, a Args) (uintptr, error) {
	oldfd, newfd, flags := a.Int(0), a.Int(1), a.Uint(2)
	if flags&^unix.O_CLOEXEC != 0 || oldfd == newfd {
		return 0, unix.EINVAL
	}
	return dup3(t, oldfd, newfd, flags != 0)
}

func dup3(t *kernel.Task, oldfd, newfd int32, cloexec bool) (uintptr, error) {
	// The new number is checked before the old one (ksys_dup3).
	if newfd < 0 || uint64(newfd) >= t.Rlimit(unix.RLIMIT_NOFILE) {
		return 0, unix.EBADF
	}
	f, err := t.Files().Get(oldfd)
	if err != nil {
		return 0, err
	}
	if err := t.Files().Dup3(t, f, newfd, cloexec); err != nil {
		f.DecRef()
		return 0, err
	}
	return uintptr(newfd), nil
}
