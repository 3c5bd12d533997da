package syscalls

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// nativeCall makes a system call of the machine the test runs on, with the
// arguments that guest.call takes. A buffer's address is that of its first
// byte; the slices are alive until the call is over.
func nativeCall(nr uintptr, args []any) (uintptr, error) {
	var regs [6]uintptr
	var keep [][]byte
	for i, a := range args {
		switch v := a.(type) {
		case int:
			regs[i] = uintptr(v)
		case int32:
			regs[i] = uintptr(v)
		case int64:
			regs[i] = uintptr(v)
		case uint64:
			regs[i] = uintptr(v)
		case uintptr:
			regs[i] = v
		case uint32:
			regs[i] = uintptr(v)
		case string:
			b := append([]byte(v), 0)
			keep = append(keep, b)
			regs[i] = uintptr(unsafe.Pointer(&b[0]))
		case []byte:
			if len(v) == 0 {
				v = make([]byte, 1)
			}
			keep = append(keep, v)
			regs[i] = uintptr(unsafe.Pointer(&v[0]))
		default:
			panic(fmt.Sprintf("argument of type %T", a))
		}
	}
	n, _, e := unix.Syscall6(nr, regs[0], regs[1], regs[2], regs[3], regs[4], regs[5])
	for e == unix.EINTR { // the Go runtime's signals
		n, _, e = unix.Syscall6(nr, regs[0], regs[1], regs[2], regs[3], regs[4], regs[5])
	}
	runtime.KeepAlive(keep)
	if e != 0 {
		return n, e
	}
	return n, nil
}

// nativeAddr is the address of a buffer on the heap, which does not move.
func nativeAddr(p []byte) uint64 {
	if len(p) == 0 {
		return 0
	}
	return uint64(uintptr(unsafe.Pointer(&p[0])))
}
