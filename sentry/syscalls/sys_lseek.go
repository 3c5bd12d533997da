package syscalls

import (
	"golang.org/x/sys/unix"

	"runsc/sentry/kernel"
)

// sysLseek implements lseek(2).
func sysLseek(t *kernel.Task, a Args) (uintptr, error) {
	f, err := getFile(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	whence := a.Uint(2)
	if whence > unix.SEEK_HOLE {
		return 0, unix.EINVAL
	}
	off, err := f.Seek(t, a.Int64(1), int(whence))
	if err != nil {
		return 0, err
	}
	return uintptr(off), nil
}
