package shim

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

const (
	loggerStart = 10 * time.Second // for a logger to say that it is ready
	loggerEnd   = 12 * time.Second // from SIGTERM to SIGKILL
)

// loggers counts logger processes, so that the daemon does not end before them.
var loggers = newCounter()

// logger is the process of a binary:// log URI. It reads the guest's output
// from descriptors 3 and 4 itself.
type logger struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process was reaped
}

// openLogger starts the program of a URI like binary:///path?key=value.
func (p *procIO) openLogger(uri, id, namespace string) error {
	u, err := url.Parse(uri)
	if err != nil || u.Path == "" {
		return fail(errdefs.ErrInvalidArgument, "log URI %q", uri)
	}
	var args []string
	query := u.Query()
	for _, k := range sortedKeys(query) {
		args = append(args, k)
		if v := query[k]; len(v) > 0 {
			args = append(args, v[0])
		}
	}
	var reads [2]*os.File
	for i := range reads {
		var fds [2]int
		if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
			return err
		}
		reads[i] = os.NewFile(uintptr(fds[0]), "logger-pipe")
		defer reads[i].Close()
		p.guest[1+i] = os.NewFile(uintptr(fds[1]), "guest-pipe")
	}
	ready, theirs, err := pipe(readEnd)
	if err != nil {
		return err
	}
	defer ready.Close()
	defer theirs.Close()
	cmd := exec.Command(u.Path, args...)
	cmd.Env = append(os.Environ(), "CONTAINER_ID="+id, "CONTAINER_NAMESPACE="+namespace)
	cmd.ExtraFiles = []*os.File{reads[0], reads[1], theirs}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("log program: %w", err)
	}
	l := &logger{cmd: cmd, done: make(chan struct{})}
	loggers.add(1)
	go func() {
		defer loggers.add(-1)
		defer close(l.done)
		if err := cmd.Wait(); err != nil {
			slog.Debug("log program", "path", u.Path, "err", err)
		}
	}()
	p.logger = l
	theirs.Close()
	return l.waitReady(ready, u.Scheme == "binary-v2")
}

// waitReady waits until the program closes its ready descriptor; one of the
// second version also writes a byte first, so that its death is not taken for
// readiness.
func (l *logger) waitReady(ready *os.File, wantByte bool) error {
	ready.SetReadDeadline(time.Now().Add(loggerStart))
	var b [1]byte
	n, err := ready.Read(b[:])
	switch {
	case n == 1:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("log program is not ready after %s", loggerStart)
	case wantByte:
		return errors.New("log program ended before it was ready")
	case errors.Is(err, io.EOF):
		return nil
	}
	return err
}

// stop ends the program: it has read all output once the guest's ends are
// closed, so it gets a moment to end by itself.
func (l *logger) stop() {
	go func() {
		select {
		case <-l.done:
			return
		case <-time.After(time.Second):
		}
		l.cmd.Process.Signal(unix.SIGTERM)
		select {
		case <-l.done:
		case <-time.After(loggerEnd):
			l.cmd.Process.Kill()
		}
	}()
}

func sortedKeys(m map[string][]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
