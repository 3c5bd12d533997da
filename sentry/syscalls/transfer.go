package syscalls

import (
	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/pkg/waitq"
	"runsc/sentry/kernel"
	"runsc/sentry/mem"
	"runsc/sentry/pipe"
	"runsc/sentry/vfs"
)

// transferChunk is how much goes through a buffer of the Sentry at a time.
const transferChunk = 64 << 10

// side is one end of a transfer between two files: sendfile, splice,
// copy_file_range. Positions are the file's own or the guest's variable.
type side struct {
	t    *kernel.Task
	file *vfs.File
	end  *pipe.End // nil: not a pipe
	at   uint64    // guest address of the position, 0: the file's own
	pos  int64
	seek bool // pos counts
}

// newSide takes over the reference to f; close drops it.
func newSide(t *kernel.Task, f *vfs.File) *side {
	return &side{t: t, file: f, end: pipe.Of(f.Ops())}
}

func (s *side) close() { s.file.DecRef() }

// start finds the position. at is the guest address of an loff_t, or 0.
func (s *side) start(at uint64) error {
	_, readerAt := s.file.Ops().(vfs.ReaderAt)
	_, writerAt := s.file.Ops().(vfs.WriterAt)
	s.seek = readerAt || writerAt
	if at == 0 {
		s.pos = s.file.Offset()
		return nil
	}
	if !s.seek {
		return unix.ESPIPE
	}
	if err := s.t.CopyIn(at, abi.Bytes(&s.pos)); err != nil {
		return err
	}
	if s.pos < 0 {
		return unix.EINVAL
	}
	s.at = at
	return nil
}

// finish stores the position after a transfer.
func (s *side) finish() error {
	switch {
	case !s.seek:
		return nil
	case s.at != 0:
		return s.t.CopyOut(s.at, abi.Bytes(&s.pos))
	}
	_, err := s.file.Seek(s.t, s.pos, unix.SEEK_SET)
	return err
}

// read fills b from the file and advances; EAGAIN when a stream has nothing.
func (s *side) read(b []byte) (int, error) {
	buf := mem.KernelBuf(b)
	if s.seek {
		n, err := s.file.ReadAt(s.t, &buf, s.pos)
		s.pos += int64(n)
		return n, err
	}
	r, ok := s.file.Ops().(vfs.Reader)
	if !ok {
		return 0, unix.EINVAL
	}
	return r.Read(s.t, s.file, &buf)
}

// write drains b into the file and advances; EAGAIN, perhaps with a count,
// when a stream is full.
func (s *side) write(b []byte) (int, error) {
	buf := mem.KernelBuf(b)
	if s.seek {
		n, err := s.file.WriteAt(s.t, &buf, s.pos)
		s.pos += int64(n)
		return n, err
	}
	w, ok := s.file.Ops().(vfs.Writer)
	if !ok {
		return 0, unix.EINVAL
	}
	return w.Write(s.t, s.file, &buf)
}

// waitFor blocks until the file may be ready for the events; it may return
// early. A file that cannot be waited for is always ready.
func (s *side) waitFor(events waitq.Mask) error {
	e := waitq.Entry{Waiter: s.t.Waiter()}
	if !s.file.Register(&e, events) {
		return nil
	}
	defer s.file.Unregister(&e)
	if s.file.Ready(events) != 0 {
		return nil
	}
	return s.t.Block(e.Waiter, 0)
}

// copyFile moves up to n bytes from a file with positions to out, by way of a
// buffer. What out did not take is not counted as read. It stops early for a
// signal.
func copyFile(in, out *side, n int) (int, error) {
	buf := make([]byte, min(n, transferChunk))
	done := 0
	for done < n {
		from := in.pos
		got, err := in.read(buf[:min(n-done, len(buf))])
		if err != nil || got == 0 {
			return done, err
		}
		put, err := writeAll(out, buf[:got])
		done += put
		in.pos = from + int64(put)
		if err != nil || put < got {
			return done, err
		}
		if in.t.SignalPending() {
			return done, nil
		}
	}
	return done, nil
}

// writeAll writes b, waiting for room unless the file is non-blocking.
func writeAll(out *side, b []byte) (int, error) {
	done := 0
	for {
		n, err := out.write(b[done:])
		done += n
		if err != unix.EAGAIN || out.file.NonBlocking() {
			return done, err
		}
		if err := out.waitFor(waitq.Out); err != nil {
			return done, err
		}
	}
}
