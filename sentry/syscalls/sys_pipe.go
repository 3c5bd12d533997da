package syscalls

import (
	"fmt"

	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/sentry/kernel"
	"runsc/sentry/pipe"
	"runsc/sentry/vfs"
)

// sysPipe implements pipe(2).
func sysPipe(t *kernel.Task, a Args) (uintptr, error) { return newPipe(t, a.Addr(0), 0) }

// sysPipe2 implements pipe2(2).
func sysPipe2(t *kernel.Task, a Args) (uintptr, error) {
	flags := a.Uint(1)
	// O_DIRECT would be packet mode.
	if flags&^(unix.O_CLOEXEC|unix.O_NONBLOCK) != 0 {
		return 0, unix.EINVAL
	}
	return newPipe(t, a.Addr(0), flags)
}

func newPipe(t *kernel.Task, addr uint64, flags uint32) (uintptr, error) {
	r, w := pipe.NewPair()
	cr := t.Cred()
	inode, ino := pipe.NewInode(r, cr.FSUID, cr.FSGID)
	name := fmt.Sprintf("pipe:[%d]", ino)
	rf := vfs.NewPseudoFile(name, r, inode, unix.O_RDONLY|flags&unix.O_NONBLOCK)
	wf := vfs.NewPseudoFile(name, w, inode, unix.O_WRONLY|flags&unix.O_NONBLOCK)
	return installPair(t, addr, rf, wf, flags&unix.O_CLOEXEC != 0)
}

// installPair gives two files descriptors and writes these to addr; it takes
// over both references. Nothing stays if it fails.
func installPair(t *kernel.Task, addr uint64, first, second *vfs.File, cloexec bool) (uintptr, error) {
	var fds [2]int32
	fd, err := t.Files().Install(t, first, 0, cloexec)
	if err != nil {
		first.DecRef()
		second.DecRef()
		return 0, err
	}
	fds[0] = fd
	if fd, err = t.Files().Install(t, second, 0, cloexec); err != nil {
		second.DecRef()
		_ = t.Files().Close(t, fds[0])
		return 0, err
	}
	fds[1] = fd
	if err := t.CopyOut(addr, abi.SliceBytes(fds[:])); err != nil {
		_ = t.Files().Close(t, fds[0])
		_ = t.Files().Close(t, fds[1])
		return 0, err
	}
	return 0, nil
}
