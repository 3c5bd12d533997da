package syscalls

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"runsc/sentry/kernel"
)

const (
	// maxArgStrlen is MAX_ARG_STRLEN: 32 pages for one string.
	maxArgStrlen = 32 * 4096
	// argMin and argMax bound what arguments and environment may take, a
	// quarter of the stack's limit (ARG_MAX and _STK_LIM / 4 * 3).
	argMin = 128 << 10
	argMax = 6 << 20
)

// sysExecve implements execve(2).
func sysExecve(t *kernel.Task, a Args) (uintptr, error) {
	return execveat(t, unix.AT_FDCWD, a.Addr(0), a.Addr(1), a.Addr(2), 0)
}

// sysExecveat implements execveat(2).
func sysExecveat(t *kernel.Task, a Args) (uintptr, error) {
	return execveat(t, a.Int(0), a.Addr(1), a.Addr(2), a.Addr(3), a.Int(4))
}

func execveat(t *kernel.Task, dirfd int32, name, argv, envp uint64, flags int32) (uintptr, error) {
	if flags&^(unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW) != 0 {
		return 0, unix.EINVAL
	}
	path, err := t.CopyInPath(name)
	if err != nil {
		return 0, err
	}
	p, err := lookupName(t, dirfd, path, atFlags(flags))
	if err != nil {
		return 0, err
	}
	defer p.put()
	e := kernel.ExecArgs{At: p.At, Filename: path}
	if p.dir != nil {
		// alloc_bprm: the program is told a name that leads to the file.
		e.Filename = strings.TrimSuffix(fmt.Sprintf("/dev/fd/%d/%s", dirfd, path), "/")
		e.Inaccessible = cloexec(t, dirfd)
	}
	// The loader checks to the byte; here memory of the Sentry is bounded.
	left := int(min(max(t.Rlimit(unix.RLIMIT_STACK)/4, argMin), argMax)) + maxArgStrlen
	if e.Argv, err = copyInStrings(t, argv, &left); err != nil {
		return 0, err
	}
	if e.Env, err = copyInStrings(t, envp, &left); err != nil {
		return 0, err
	}
	return done(t.Exec(&e))
}

func cloexec(t *kernel.Task, fd int32) bool {
	f, flags, err := t.Files().GetFlags(fd)
	if err != nil {
		return false
	}
	f.DecRef()
	return flags&unix.FD_CLOEXEC != 0
}

// copyInStrings reads a NULL-terminated vector of strings, at most left bytes
// with their pointers: E2BIG.
func copyInStrings(t *kernel.Task, addr uint64, left *int) ([]string, error) {
	if addr == 0 {
		return nil, nil // Linux takes NULL for an empty vector
	}
	var list []string
	for ; ; addr += 8 {
		var p uint64
		if err := kernel.CopyInObj(t, addr, &p); err != nil {
			return nil, err
		}
		if p == 0 {
			return list, nil
		}
		s, err := t.CopyInString(p, min(maxArgStrlen, *left))
		if err == unix.ENAMETOOLONG {
			return nil, unix.E2BIG
		}
		if err != nil {
			return nil, err
		}
		if *left -= len(s) + 9; *left <= 0 {
			return nil, unix.E2BIG
		}
		list = append(list, s)
	}
}
