package syscalls

import (
	"golang.org/x/sys/unix"

	"runsc/sentry/kernel"
)

// sysSocket implements socket(2) for a sandbox without address families.
func sysSocket(_ *kernel.Task, a Args) (uintptr, error) {
	return 0, socketError(a.Int(0), a.Int(1))
}

// sysSocketpair implements socketpair(2), as sysSocket.
func sysSocketpair(_ *kernel.Task, a Args) (uintptr, error) {
	return 0, socketError(a.Int(0), a.Int(1))
}

// socketError is EINVAL for a bad type, else EAFNOSUPPORT (__sock_create), on
// which libcs go on without name service caches and loggers.
func socketError(family, typ int32) error {
	const flags = unix.SOCK_NONBLOCK | unix.SOCK_CLOEXEC
	if typ&^0xf&^flags != 0 || family < 0 || typ&0xf > unix.SOCK_PACKET {
		return unix.EINVAL
	}
	return unix.EAFNOSUPPORT
}
