package hostfs

import (
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// Some calls take a path and nothing else. They are made by a thread whose
// working directory is the one that the path is relative to: /proc/self/fd, for
// "N" to be the file of a descriptor, or the directory of a new name.

// inDirectory runs fn in a thread with that working directory.
func inDirectory(dirfd int, fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_FS)
		if err == nil {
			err = unix.Fchdir(dirfd)
		}
		if err == nil {
			err = fn()
		}
		done <- err
	}()
	return <-done
}

// Connect implements Backend.
func (l *Local) Connect(t Target, typ int) (int, error) {
	if l.procSelfFD < 0 {
		return -1, unix.EOPNOTSUPP
	}
	fd, err := unix.Socket(unix.AF_UNIX, typ|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	err = inDirectory(l.procSelfFD, func() error {
		return unix.Connect(fd, &unix.SockaddrUnix{Name: strconv.Itoa(t.FD)})
	})
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// Bind implements Backend.
func (l *Local) Bind(dir int, name string, typ int, a *NewAttr, stx *unix.Statx_t) (int, error) {
	if len(name) > 107 {
		return -1, unix.ENAMETOOLONG
	}
	fd, err := unix.Socket(unix.AF_UNIX, typ|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	// bind(2) takes the mode of the name from the socket's.
	if err = unix.Fchmod(fd, a.Mode&0o777); err == nil {
		err = inDirectory(dir, func() error { return unix.Bind(fd, &unix.SockaddrUnix{Name: name}) })
	}
	if err == unix.EADDRINUSE {
		err = unix.EEXIST
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	if err = l.adopt(-1, dir, name, a, stx); err != nil {
		unix.Close(fd)
		_ = unix.Unlinkat(dir, name, 0)
		return -1, err
	}
	return fd, nil
}

// Inotify implements Backend.
func (l *Local) Inotify() (int, error) {
	l.watchMu.Lock()
	defer l.watchMu.Unlock()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return -1, err
	}
	theirs, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	if l.inotify >= 0 {
		unix.Close(l.inotify)
	}
	l.inotify = fd
	return theirs, nil
}

// Watch implements Backend.
func (l *Local) Watch(t Target, mask uint32) (wd int, err error) {
	l.watchMu.Lock()
	defer l.watchMu.Unlock()
	if l.procSelfFD < 0 || l.inotify < 0 {
		return -1, unix.EOPNOTSUPP
	}
	err = inDirectory(l.procSelfFD, func() error {
		wd, err = unix.InotifyAddWatch(l.inotify, strconv.Itoa(t.FD), mask)
		return err
	})
	return wd, err
}

// Unwatch implements Backend.
func (l *Local) Unwatch(wd int) {
	l.watchMu.Lock()
	defer l.watchMu.Unlock()
	if l.inotify >= 0 {
		_, _ = unix.InotifyRmWatch(l.inotify, uint32(wd))
	}
}
