package shim

import (
	"io"
	"log/slog"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// openLog opens the fifo from which containerd copies the daemon's log. It is
// opened for reading too, and never read: so a write while containerd is down
// is no error, and it does not block because the fifo is non-blocking: lines
// that do not fit are lost.
func openLog(path string) io.Writer {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return io.Discard
	}
	st, err := f.Stat()
	if err != nil || st.Mode()&os.ModeNamedPipe == 0 {
		f.Close()
		return io.Discard
	}
	// A raw descriptor, because os.File would wait for room in the fifo.
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	f.Close()
	if err != nil {
		return io.Discard
	}
	unix.SetNonblock(fd, true)
	return fifoLog(fd)
}

// fifoLog writes to a non-blocking descriptor and drops what does not fit.
type fifoLog int

func (f fifoLog) Write(p []byte) (int, error) {
	unix.Write(int(f), p)
	return len(p), nil
}

// setLogger makes w the destination of the package's log.
func setLogger(w io.Writer, debug bool) {
	level := slog.LevelInfo
	if debug {
		level = slog.LevelDebug
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level})))
}

// maxLogLine bounds a line that a child writes to its log.
const maxLogLine = 4096

// relayLog copies a child's log lines, which may be hostile, into the daemon's
// log until the child's end of the pipe closes. It takes over r.
func relayLog(r *os.File, from string) {
	defer r.Close()
	buf := make([]byte, 0, maxLogLine)
	flush := func() {
		if len(buf) > 0 {
			slog.Warn(printable(string(buf)), "from", from)
			buf = buf[:0]
		}
	}
	tmp := make([]byte, 4096)
	for {
		n, err := r.Read(tmp)
		for _, c := range tmp[:n] {
			if c == '\n' || len(buf) == maxLogLine {
				flush()
			}
			if c != '\n' {
				buf = append(buf, c)
			}
		}
		if err != nil {
			flush()
			return
		}
	}
}

// printable replaces control characters.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || r == 0x7f {
			return '?'
		}
		return r
	}, s)
}
