package isolate

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// execveat executes the file behind fd.
func execveat(fd int, argv, envv []string) error {
	args, err := syscall.SlicePtrFromStrings(argv)
	if err != nil {
		return err
	}
	env, err := syscall.SlicePtrFromStrings(envv)
	if err != nil {
		return err
	}
	empty := [1]byte{}
	// Invariant: the arrays end with nil and live until the call returns,
	// which it does only if it failed.
	_, _, e := unix.RawSyscall6(unix.SYS_EXECVEAT, uintptr(fd), uintptr(unsafe.Pointer(&empty[0])),
		uintptr(unsafe.Pointer(&args[0])), uintptr(unsafe.Pointer(&env[0])), unix.AT_EMPTY_PATH, 0)
	runtime.KeepAlive(args)
	runtime.KeepAlive(env)
	return e
}
