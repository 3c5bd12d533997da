package syscalls

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/kernel"
	"runsc/sentry/pipe"
	"runsc/sentry/vfs"
)

const spliceFlags = unix.SPLICE_F_MOVE | unix.SPLICE_F_NONBLOCK | unix.SPLICE_F_MORE | unix.SPLICE_F_GIFT

// openSides returns the two sides of a transfer, of files open for reading and
// for writing; EBADF.
func openSides(t *kernel.Task, infd, outfd int32) (in, out *side, err error) {
	inf, err := getFile(t, infd)
	if err != nil {
		return nil, nil, err
	}
	outf, err := getFile(t, outfd)
	if err == nil && (!inf.Readable() || !outf.Writable()) {
		outf.DecRef()
		err = unix.EBADF
	}
	if err != nil {
		inf.DecRef()
		return nil, nil, err
	}
	return newSide(t, inf), newSide(t, outf), nil
}

// sysSendfile implements sendfile(2).
func sysSendfile(t *kernel.Task, a Args) (uintptr, error) {
	in, out, err := openSides(t, a.Int(1), a.Int(0))
	if err != nil {
		return 0, err
	}
	defer in.close()
	defer out.close()
	if err := in.start(a.Addr(2)); err != nil {
		return 0, err
	}
	if err := out.start(0); err != nil {
		return 0, err
	}
	if !in.seek || out.file.StatusFlags()&unix.O_APPEND != 0 {
		return 0, unix.EINVAL // sendfile(2), ERRORS
	}
	n, err := copyFile(in, out, int(min(a.Size(3), maxRW))-t.ReentryDone())
	countCopy(t, n)
	return endTransfer(t, in, out, n, err)
}

// countCopy counts a transfer as a read and a write (do_sendfile).
func countCopy(t *kernel.Task, n int) {
	t.CountRead(n)
	t.CountWrite(n)
}

// endTransfer stores the positions after a transfer of n bytes.
func endTransfer(t *kernel.Task, in, out *side, n int, err error) (uintptr, error) {
	if n > 0 {
		if e := in.finish(); e != nil {
			return 0, e
		}
		if e := out.finish(); e != nil {
			return 0, e
		}
	}
	return ioResult(t, n, err)
}

// sysCopyFileRange implements copy_file_range(2).
func sysCopyFileRange(t *kernel.Task, a Args) (uintptr, error) {
	if a.Uint(5) != 0 {
		return 0, unix.EINVAL
	}
	in, out, err := openSides(t, a.Int(0), a.Int(2))
	if err != nil {
		return 0, err
	}
	defer in.close()
	defer out.close()
	if err := checkCopyRange(t, in, out); err != nil {
		return 0, err
	}
	if err := in.start(a.Addr(1)); err != nil {
		return 0, err
	}
	if err := out.start(a.Addr(3)); err != nil {
		return 0, err
	}
	n := int(min(a.Size(4), maxRW))
	if in.pos+int64(n) < in.pos || out.pos+int64(n) < out.pos {
		return 0, unix.EOVERFLOW
	}
	// No more than there is now, also if the file grows by its own bytes.
	st, err := in.file.Stat(t, unix.STATX_SIZE)
	if err != nil {
		return 0, err
	}
	n = int(min(int64(n), max(int64(st.Size)-in.pos, 0)))
	if in.file.Inode() == out.file.Inode() && in.pos < out.pos+int64(n) && out.pos < in.pos+int64(n) {
		return 0, unix.EINVAL
	}
	n, err = copyFile(in, out, n)
	countCopy(t, n)
	return endTransfer(t, in, out, n, err)
}

// checkCopyRange refuses what is not a pair of regular files
// (generic_copy_file_checks).
func checkCopyRange(t *kernel.Task, in, out *side) error {
	for _, s := range []*side{in, out} {
		switch kind, err := fileKind(t, s.file); {
		case err != nil:
			return err
		case kind == unix.S_IFDIR:
			return unix.EISDIR
		case kind != unix.S_IFREG:
			return unix.EINVAL
		}
	}
	if out.file.StatusFlags()&unix.O_APPEND != 0 {
		return unix.EBADF
	}
	return nil
}

// sysSplice implements splice(2).
func sysSplice(t *kernel.Task, a Args) (uintptr, error) {
	flags := a.Uint(5)
	if a.Size(4) == 0 {
		return 0, nil
	}
	if flags&^spliceFlags != 0 {
		return 0, unix.EINVAL
	}
	in, out, err := openSides(t, a.Int(0), a.Int(2))
	if err != nil {
		return 0, err
	}
	defer in.close()
	defer out.close()
	if in.end != nil && a.Addr(1) != 0 || out.end != nil && a.Addr(3) != 0 {
		return 0, unix.ESPIPE
	}
	if err := in.start(a.Addr(1)); err != nil {
		return 0, err
	}
	if err := out.start(a.Addr(3)); err != nil {
		return 0, err
	}
	n, err := splice(in, out, int(min(a.Size(4), maxRW)), flags&unix.SPLICE_F_NONBLOCK != 0, false)
	return endTransfer(t, in, out, n, err)
}

// splice moves up to n bytes, one of the sides being a pipe, and waits until
// there is at least one. With keep (tee) the source keeps them.
func splice(in, out *side, n int, nonblock, keep bool) (int, error) {
	step := spliceStep(in, out, n, keep)
	if step == nil {
		return 0, unix.EINVAL
	}
	for {
		done, waitIn, err := step()
		if done > 0 || err != unix.EAGAIN {
			return done, err
		}
		waiting, events := out, waitq.Out
		if waitIn {
			waiting, events = in, waitq.In
		}
		if nonblock || waiting.file.NonBlocking() {
			return 0, unix.EAGAIN
		}
		if err := waiting.waitFor(events); err != nil {
			return 0, err
		}
	}
}

// spliceStep returns the function that tries once; on EAGAIN it tells whether
// to wait for the source or the sink.
func spliceStep(in, out *side, n int, keep bool) func() (done int, waitIn bool, err error) {
	switch {
	case in.end != nil && out.end != nil:
		return func() (int, bool, error) {
			done, which, err := pipe.Transfer(in.end.Pipe(), out.end.Pipe(), n, keep)
			return done, which == pipe.Source, err
		}
	case out.end != nil && !keep:
		return func() (int, bool, error) {
			tried := false
			done, err := out.end.Pipe().Fill(n, func(b []byte) (int, error) {
				tried = true
				return in.read(b)
			})
			return done, tried, err
		}
	case in.end != nil && !keep && out.file.StatusFlags()&unix.O_APPEND == 0:
		return func() (int, bool, error) {
			tried := false
			done, err := in.end.Pipe().Drain(n, func(b []byte) (int, error) {
				tried = true
				return out.write(b)
			})
			return done, !tried, err
		}
	}
	return nil
}

// sysTee implements tee(2).
func sysTee(t *kernel.Task, a Args) (uintptr, error) {
	flags := a.Uint(3)
	if flags&^spliceFlags != 0 {
		return 0, unix.EINVAL
	}
	if a.Size(2) == 0 {
		return 0, nil
	}
	in, out, err := openSides(t, a.Int(0), a.Int(1))
	if err != nil {
		return 0, err
	}
	defer in.close()
	defer out.close()
	n, err := splice(in, out, int(min(a.Size(2), maxRW)), flags&unix.SPLICE_F_NONBLOCK != 0, true)
	return ioResult(t, n, err)
}

// sysVmsplice implements vmsplice(2) by copying: pages are not lent.
func sysVmsplice(t *kernel.Task, a Args) (uintptr, error) {
	if a.Uint(3)&^spliceFlags != 0 {
		return 0, unix.EINVAL
	}
	f, err := getFile(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	if pipe.Of(f.Ops()) == nil {
		return 0, unix.EBADF
	}
	buf, err := t.CopyInIovecs(a.Addr(1), a.Size(2))
	if err != nil {
		return 0, err
	}
	if a.Uint(3)&unix.SPLICE_F_NONBLOCK != 0 && f.Ready(vmspliceEvents(f)) == 0 {
		return 0, unix.EAGAIN
	}
	var n int
	if f.Writable() {
		n, err = f.Write(t, &buf)
	} else {
		n, err = f.Read(t, &buf)
	}
	return ioResult(t, n, err)
}

func vmspliceEvents(f *vfs.File) waitq.Mask {
	if f.Writable() {
		return waitq.Out
	}
	return waitq.In
}
