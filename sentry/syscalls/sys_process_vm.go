package syscalls

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/sentry/kernel"
	"runsc/sentry/mem"
	"runsc/sentry/mm"
)

// sysProcessVMReadv implements process_vm_readv(2).
func sysProcessVMReadv(t *kernel.Task, a Args) (uintptr, error) {
	return processVM(t, a, transfer)
}

// sysProcessVMWritev implements process_vm_writev(2).
func sysProcessVMWritev(t *kernel.Task, a Args) (uintptr, error) {
	return processVM(t, a, func(local, remote *mem.UserBuf, buf []byte) (int, error) { return transfer(remote, local, buf) })
}

// processVM decodes either call and moves bytes until a buffer ends or an address cannot be reached.
func processVM(t *kernel.Task, a Args, step func(local, remote *mem.UserBuf, buf []byte) (int, error)) (uintptr, error) {
	if a.Uint64(5) != 0 {
		return 0, unix.EINVAL
	}
	local, err := t.CopyInIovecs(a.Addr(1), a.Size(2))
	if err != nil {
		return 0, err
	}
	segs, err := remoteIovecs(t, a.Addr(3), a.Size(4))
	if err != nil || local.Len() == 0 {
		return 0, err
	}
	o, err := t.TaskByID(a.Int(0))
	if err != nil {
		return 0, err
	}
	if !t.MayInspect(o, false) {
		return 0, unix.EPERM
	}
	done := 0
	if !o.WithMM(func(m *mm.MM) {
		remote := mem.NewUserVec(m, segs)
		buf := make([]byte, min(local.Len(), remote.Len(), processVMChunk))
		for len(buf) > 0 && err == nil && local.Len() > 0 && remote.Len() > 0 && !t.SignalPending() {
			var n int
			n, err = step(&local, &remote, buf)
			done += n
		}
	}) {
		return 0, unix.ESRCH
	}
	if done > 0 {
		return uintptr(done), nil
	}
	return 0, err
}

// processVMChunk is how many bytes are moved at a time.
const processVMChunk = 64 << 10

// remoteIovecs reads the vector of remote ranges, whose addresses are not checked beforehand.
func remoteIovecs(t *kernel.Task, addr, n uint64) ([]mem.Seg, error) {
	if n > 1024 { // UIO_MAXIOV
		return nil, unix.EINVAL
	}
	segs := make([]mem.Seg, n)
	if err := t.CopyIn(addr, abi.SliceBytes(segs)); err != nil {
		return nil, err
	}
	left := uint64(1<<31 - 4096) // MAX_RW_COUNT
	for i := range segs {
		if segs[i].Len > 1<<63-1 {
			return nil, unix.EINVAL
		}
		segs[i].Len = min(segs[i].Len, left)
		left -= segs[i].Len
	}
	return segs, nil
}

// transfer moves up to len(buf) bytes from one buffer to the other.
func transfer(dst, src *mem.UserBuf, buf []byte) (int, error) {
	n, err := src.CopyIn(buf[:min(len(buf), src.Len(), dst.Len())])
	if n == 0 {
		return 0, err
	}
	m, outErr := dst.CopyOut(buf[:n])
	if outErr != nil {
		err = outErr
	}
	return m, err
}
