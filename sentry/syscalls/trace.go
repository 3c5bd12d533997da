package syscalls

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"runsc/sentry/kernel"
)

// tracer writes the debug log of system calls, a line per call.
type tracer struct {
	mu sync.Mutex
	// mu guards:
	w io.Writer
}

// call runs a call and logs it. Calls that may not come back, such as exit,
// are logged before as well.
func (tr *tracer) call(t *kernel.Task, c *Call, a Args) (uintptr, error) {
	args := formatArgs(t, c.Name, a)
	n, err := c.Handler(t, a)
	tr.line(t, c.Name, args, n, err)
	return n, err
}

// unknown logs a call that is not in the table.
func (tr *tracer) unknown(t *kernel.Task, nr uintptr, a Args) {
	tr.line(t, "syscall_"+strconv.Itoa(int(nr)), formatArgs(t, "", a), 0, unix.ENOSYS)
}

func (tr *tracer) line(t *kernel.Task, name, args string, n uintptr, err error) {
	result := strconv.FormatInt(int64(n), 10)
	if int64(n) > 1<<20 {
		result = fmt.Sprintf("%#x", n)
	}
	if e, ok := err.(unix.Errno); ok {
		result = "-1 " + errName(e)
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	fmt.Fprintf(tr.w, "%d %s(%s) = %s\n", t.TID(), name, args, result)
}

// errName is an errno's name, or the number for the restart codes.
func errName(e unix.Errno) string {
	if s := unix.ErrnoName(e); s != "" {
		return s
	}
	return "E" + strconv.Itoa(int(e))
}

// formatArgs prints the registers, and the strings that the calls with path
// names point to.
func formatArgs(t *kernel.Task, name string, a Args) string {
	var b strings.Builder
	paths := pathArgs[name]
	for i := range a {
		if i > 0 {
			b.WriteString(", ")
		}
		if paths>>i&1 != 0 && a[i] != 0 {
			if s, err := t.CopyInPath(a[i]); err == nil {
				b.WriteString(strconv.Quote(s))
				continue
			}
		}
		fmt.Fprintf(&b, "%#x", a[i])
	}
	return b.String()
}

// pathArgs says which arguments of a call are strings, bit by bit.
var pathArgs = map[string]uint8{
	"open": 1, "creat": 1, "stat": 1, "lstat": 1, "access": 1, "chdir": 1, "chroot": 1, "execve": 1,
	"mkdir": 1, "rmdir": 1, "unlink": 1, "readlink": 1, "chmod": 1, "chown": 1, "lchown": 1,
	"mknod": 1, "truncate": 1, "statfs": 1, "utime": 1, "utimes": 1, "rename": 3, "link": 3, "symlink": 3,
	"openat": 2, "openat2": 2, "newfstatat": 2, "statx": 2, "faccessat": 2, "faccessat2": 2, "mkdirat": 2,
	"mknodat": 2, "unlinkat": 2, "readlinkat": 2, "fchmodat": 2, "fchmodat2": 2, "fchownat": 2,
	"utimensat": 2, "futimesat": 2, "execveat": 2, "inotify_add_watch": 2, "renameat": 2 | 8,
	"renameat2": 2 | 8, "linkat": 2 | 8, "symlinkat": 1 | 4, "mount": 1 | 2 | 4, "umount2": 1,
	"pivot_root": 3, "memfd_create": 1, "getxattr": 3, "lgetxattr": 3, "fgetxattr": 2, "setxattr": 3,
	"lsetxattr": 3, "fsetxattr": 2, "listxattr": 1, "llistxattr": 1, "removexattr": 3, "lremovexattr": 3,
	"fremovexattr": 2,
}
