package syscalls

import (
	"golang.org/x/sys/unix"

	"runsc/sentry/kernel"
)

// sysNameToHandleAt implements name_to_handle_at(2) for file systems without
// handles.
func sysNameToHandleAt(t *kernel.Task, a Args) (uintptr, error) {
	if a.Int(4)&^(unix.AT_SYMLINK_FOLLOW|unix.AT_EMPTY_PATH) != 0 {
		return 0, unix.EINVAL
	}
	lf := atFlags(a.Int(4) | unix.AT_SYMLINK_NOFOLLOW)
	p, err := lookup(t, a.Int(0), a.Addr(1), lf)
	if err != nil {
		return 0, err
	}
	defer p.put()
	return 0, unix.EOPNOTSUPP
}

// sysOpenByHandleAt implements open_by_handle_at(2) for file systems without
// handles: EPERM for those who may not use any.
func sysOpenByHandleAt(t *kernel.Task, a Args) (uintptr, error) {
	if !t.Cred().Has(unix.CAP_DAC_READ_SEARCH) {
		return 0, unix.EPERM
	}
	return 0, unix.EOPNOTSUPP
}
