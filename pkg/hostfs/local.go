package hostfs

import (
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// resolve restricts every name given to the host: one component, no links.
const resolve = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// openFlags are added at every open of a host file. O_NONBLOCK: an object that
// is not what it was taken for must not block the open.
const openFlags = unix.O_CLOEXEC | unix.O_NOFOLLOW | unix.O_NOCTTY | unix.O_NONBLOCK

const statxMask = unix.STATX_BASIC_STATS | unix.STATX_BTIME

// Local is the Backend that does the system calls itself.
type Local struct {
	procSelfFD int

	watchMu sync.Mutex
	// watchMu guards:
	inotify int // -1 before it is used
}

// NewLocal returns a backend. procSelfFD is a descriptor of this process's own
// /proc/self/fd, through which an O_PATH descriptor is reopened, or -1.
func NewLocal(procSelfFD int) *Local { return &Local{procSelfFD: procSelfFD, inotify: -1} }

var _ Backend = (*Local)(nil)

// Direct implements Backend.
func (l *Local) Direct() bool { return true }

// Close implements Backend.
func (l *Local) Close(ref int) { unix.Close(ref) }

// openat opens the one component name (or ".") below dirfd.
func openat(dirfd int, name string, flags int, mode uint32) (int, error) {
	if flags&unix.O_PATH != 0 {
		flags |= unix.O_CLOEXEC | unix.O_NOFOLLOW // openat2 takes no other with O_PATH
	} else {
		flags |= openFlags
	}
	how := unix.OpenHow{Flags: uint64(flags), Mode: uint64(mode), Resolve: resolve}
	for {
		// EAGAIN: a rename somewhere made the scope unsure (openat2(2)).
		fd, err := unix.Openat2(dirfd, name, &how)
		if err != unix.EINTR && err != unix.EAGAIN {
			return fd, err
		}
	}
}

// reopen opens what the descriptor fd, perhaps O_PATH, stands for.
func (l *Local) reopen(fd, flags int) (int, error) {
	if l.procSelfFD < 0 {
		return -1, unix.EOPNOTSUPP
	}
	for {
		n, err := unix.Openat(l.procSelfFD, strconv.Itoa(fd), flags|openFlags&^unix.O_NOFOLLOW, 0)
		if err != unix.EINTR {
			return n, err
		}
	}
}

// Stat implements Backend.
func (l *Local) Stat(t Target, name string, stx *unix.Statx_t) error { return statx(t.FD, name, stx) }

// StatData reads the attributes of what a descriptor stands for.
func StatData(fd int, stx *unix.Statx_t) error { return statx(fd, "", stx) }

func statx(fd int, name string, stx *unix.Statx_t) error {
	flags := unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT
	if name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	return unix.Statx(fd, name, flags, statxMask, stx)
}

// StatWalk implements Backend.
func (l *Local) StatWalk(dir int, names []string) (found []unix.Statx_t, err error) {
	at := dir
	defer func() {
		if at != dir {
			unix.Close(at)
		}
	}()
	for i, name := range names {
		var stx unix.Statx_t
		last := i == len(names)-1
		if last {
			err = statx(at, name, &stx)
		} else {
			var next int
			if next, err = openat(at, name, unix.O_PATH, 0); err == nil {
				if err = statx(next, "", &stx); err != nil {
					unix.Close(next)
				} else {
					if at != dir {
						unix.Close(at)
					}
					at = next
				}
			}
		}
		if err != nil {
			return found, err
		}
		found = append(found, stx)
		if stx.Mode&unix.S_IFMT != unix.S_IFDIR {
			break
		}
	}
	return found, nil
}

// Walk implements Backend.
func (l *Local) Walk(dir int, names []string, stat bool) ([]Step, error) {
	steps := make([]Step, 0, len(names))
	for _, name := range names {
		s := Step{}
		var err error
		if s.Ref, err = openat(dir, name, unix.O_PATH, 0); err != nil {
			return steps, err
		}
		if stat {
			if err = statx(s.Ref, "", &s.Stat); err != nil {
				unix.Close(s.Ref)
				return steps, err
			}
		}
		steps = append(steps, s)
		dir = s.Ref
	}
	return steps, nil
}

// Readlink implements Backend.
func (l *Local) Readlink(t Target, name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(t.FD, name, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// Statfs implements Backend.
func (l *Local) Statfs(t Target, st *unix.Statfs_t) error { return unix.Fstatfs(t.FD, st) }

// Syncfs implements Backend.
func (l *Local) Syncfs(t Target) error {
	return l.withData(t, func(fd int) error {
		for {
			if err := unix.Syncfs(fd); err != unix.EINTR {
				return err
			}
		}
	})
}

// withData calls fn with a descriptor of t that is open for reading.
func (l *Local) withData(t Target, fn func(fd int) error) error {
	if t.Data {
		return fn(t.FD)
	}
	fd, err := l.Open(t, unix.O_RDONLY|unix.O_DIRECTORY)
	if err == unix.ENOTDIR {
		fd, err = l.Open(t, unix.O_RDONLY)
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return fn(fd)
}

// Open implements Backend.
func (l *Local) Open(t Target, flags int) (int, error) {
	if flags&unix.O_DIRECTORY != 0 {
		return openat(t.FD, ".", flags, 0)
	}
	return l.reopen(t.FD, flags)
}

// OpenAt implements Backend.
func (l *Local) OpenAt(dir int, name string, flags int, stx *unix.Statx_t) (int, error) {
	fd, err := openat(dir, name, flags, 0)
	if err == nil && stx != nil {
		if err = statx(fd, "", stx); err != nil {
			unix.Close(fd)
			fd = -1
		}
	}
	return fd, err
}

// OpenDir implements Backend.
func (l *Local) OpenDir(dir int) (int, error) {
	return openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
}

// Getdents implements Backend.
func (l *Local) Getdents(ref int, off int64, buf []byte) (int, error) {
	if off >= 0 {
		if _, err := unix.Seek(ref, off, unix.SEEK_SET); err != nil {
			return 0, err
		}
	}
	n, err := unix.Getdents(ref, buf)
	return max(n, 0), err
}

// SyncDir implements Backend.
func (l *Local) SyncDir(ref int) error { return unix.Fsync(ref) }
