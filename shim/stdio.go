package shim

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// stdioNames are the standard streams as containerd gave them; State returns
// them unchanged.
type stdioNames struct {
	Stdin, Stdout, Stderr string
	Terminal              bool
}

// procIO connects a process's standard streams: pipes whose far ends go to the
// Sentry, and goroutines that copy between them and containerd's fifos or a
// file. The Sentry never gets a fifo itself, so that a process left behind
// cannot keep a client waiting.
type procIO struct {
	// guest holds the ends for the Sentry until sent: stdin, stdout, stderr;
	// nil means the guest's /dev/null.
	guest [3]*os.File

	// stdinFrom is the read end of the client's fifo, stdinTo the pipe.
	stdinFrom, stdinTo *os.File

	// out counts the goroutines that copy output.
	out sync.WaitGroup

	// ending is closed when output is waited for no longer than patience allows.
	ending  chan struct{}
	endOnce sync.Once

	logger *logger // of a binary:// URI, or nil

	mu sync.Mutex
	// mu guards:
	stdinKeep io.Closer // our write end of the stdin fifo
	closers   []io.Closer
	closed    bool
}

// openStdio opens the streams. It never waits for a client.
func openStdio(names stdioNames, id, namespace string) (_ *procIO, err error) {
	p := &procIO{ending: make(chan struct{})}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if names.Stdin != "" {
		if err := p.openStdin(names.Stdin); err != nil {
			return nil, fmt.Errorf("stdin: %w", err)
		}
	}
	if scheme := schemeOf(names.Stdout); scheme == "binary" || scheme == "binary-v2" {
		return p, p.openLogger(names.Stdout, id, namespace)
	}
	if names.Stdout != "" {
		if err := p.openOutput(1, names.Stdout); err != nil {
			return nil, fmt.Errorf("stdout: %w", err)
		}
	}
	switch {
	case names.Stderr == "":
	case schemeOf(names.Stderr) != "" && names.Stderr == names.Stdout:
		// One file for both streams: one pipe keeps their order.
		p.guest[2] = dup(p.guest[1])
	default:
		if err := p.openOutput(2, names.Stderr); err != nil {
			return nil, fmt.Errorf("stderr: %w", err)
		}
	}
	return p, nil
}

// schemeOf returns a URI's scheme, "" for a plain path.
func schemeOf(name string) string {
	u, err := url.Parse(name)
	if err != nil {
		return ""
	}
	return u.Scheme
}

func dup(f *os.File) *os.File {
	if f == nil {
		return nil
	}
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(fd), f.Name())
}

// pipe returns a pipe. The end that stays here is in the poller (a read or
// write on it can be ended by Close); the other is an ordinary one.
func pipe(ourEnd int) (ours, theirs *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, err
	}
	unix.SetNonblock(fds[ourEnd], true)
	return os.NewFile(uintptr(fds[ourEnd]), "pipe"), os.NewFile(uintptr(fds[1-ourEnd]), "guest-pipe"), nil
}

const (
	readEnd  = 0
	writeEnd = 1
)

// openStdin opens the client's fifo and a second, writing end of it: the guest
// sees the end of its input only after CloseIO.
func (p *procIO) openStdin(name string) error {
	if schemeOf(name) != "" {
		return fail(errdefs.ErrInvalidArgument, "scheme of %q", name)
	}
	from, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	p.stdinFrom = from
	p.closers = append(p.closers, from)
	st, err := from.Stat()
	if err != nil {
		return err
	}
	if st.Mode()&os.ModeNamedPipe != 0 {
		keep, err := os.OpenFile(name, os.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		p.stdinKeep = keep
	}
	ours, theirs, err := pipe(writeEnd)
	if err != nil {
		return err
	}
	p.stdinTo, p.guest[0] = ours, theirs
	p.closers = append(p.closers, ours)
	return nil
}

// openOutput connects output stream i to a fifo or a file.
func (p *procIO) openOutput(i int, name string) error {
	var to, keep *os.File
	var err error
	switch scheme := schemeOf(name); scheme {
	case "":
		if to, keep, err = openOutputFifo(name); errors.Is(err, unix.ENXIO) {
			err = nil // the client opens it later
		}
	case "file":
		var u *url.URL
		if u, err = url.Parse(name); err != nil {
			return fail(errdefs.ErrInvalidArgument, "%v", err)
		}
		if err = os.MkdirAll(filepath.Dir(u.Path), 0o755); err == nil {
			to, err = os.OpenFile(u.Path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
		}
	default:
		err = fail(errdefs.ErrInvalidArgument, "scheme %q of a log URI is not known", scheme)
	}
	if err != nil {
		return err
	}
	ours, theirs, err := pipe(readEnd)
	if err != nil {
		closeFiles(to, keep)
		return err
	}
	p.guest[i] = theirs
	p.own(ours, to, keep)
	p.out.Add(1)
	go func() {
		defer p.out.Done()
		if to == nil {
			to, keep = p.awaitClient(name)
		}
		copyOut(to, ours)
		// The client sees the end now, not when the process is deleted.
		closeFiles(to, ours, keep)
	}()
	return nil
}

// own has close close the files, those that are not nil, at once if it was called.
func (p *procIO) own(files ...*os.File) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		closeFiles(files...)
		return
	}
	for _, f := range files {
		if f != nil {
			p.closers = append(p.closers, f)
		}
	}
}

func closeFiles(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

const (
	clientPoll = 100 * time.Millisecond // longest pause between two looks for a client
	// clientPatience is for a client that is not there at the process's end.
	clientPatience = time.Second
)

// awaitClient opens a fifo when its client has. The output of a short process
// waits in the pipe until then: a fifo that we fill and close before the client
// opens it loses what is in it, and leaves the client waiting for a writer. The
// files are nil if no client comes.
func (p *procIO) awaitClient(name string) (to, keep *os.File) {
	ending := p.ending
	var late <-chan time.Time
	for pause := time.Millisecond; ; pause = min(2*pause, clientPoll) {
		to, keep, err := openOutputFifo(name)
		if err == nil {
			p.own(to, keep)
			return to, keep
		}
		if !errors.Is(err, unix.ENXIO) {
			slog.Warn("output is dropped", "err", err)
			return nil, nil
		}
		select {
		case <-time.After(pause):
		case <-ending:
			ending, late = nil, time.After(clientPatience)
		case <-late:
			return nil, nil
		}
	}
}

// openOutputFifo opens a fifo for writing; it is ENXIO if nobody has it open for
// reading. The reading end that is opened as well stays open: a client that goes
// away (containerd restarting) must not end the guest with SIGPIPE.
func openOutputFifo(name string) (to, keep *os.File, err error) {
	st, err := os.Stat(name)
	if err != nil {
		return nil, nil, err
	}
	if st.Mode()&os.ModeNamedPipe == 0 {
		to, err = os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
		return to, nil, err
	}
	if to, err = os.OpenFile(name, os.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
		return nil, nil, err
	}
	if keep, err = os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
		to.Close()
		return nil, nil, err
	}
	return to, keep, nil
}

// copyBuffers are shared by all copies; each stream has one in use at a time.
var copyBuffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

// copyOut copies until the guest's last descriptor is closed, or close. Output
// that cannot be written, or has no client (to is nil), is dropped: the guest
// must not hang for it.
func copyOut(to, from *os.File) {
	buf := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(buf)
	for {
		n, err := from.Read(*buf)
		if n > 0 && to != nil {
			if _, werr := to.Write((*buf)[:n]); errors.Is(werr, os.ErrClosed) {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// copyIn copies the client's input until its end or until nobody reads it.
func (p *procIO) copyIn() {
	buf := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(buf)
	defer p.stdinFrom.Close()
	defer p.stdinTo.Close()
	for {
		n, err := p.stdinFrom.Read(*buf)
		if n > 0 {
			if _, werr := p.stdinTo.Write((*buf)[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// sent is called when the Sentry has its ends: ours are closed, so that the
// end of the output shows.
func (p *procIO) sent() {
	for i, f := range p.guest {
		if f != nil {
			f.Close()
			p.guest[i] = nil
		}
	}
}

// started lets input flow.
func (p *procIO) started() {
	if p.stdinFrom != nil {
		go p.copyIn()
	}
}

// closeStdin gives up our write end of the stdin fifo.
func (p *procIO) closeStdin() {
	p.mu.Lock()
	keep := p.stdinKeep
	p.stdinKeep = nil
	p.mu.Unlock()
	if keep != nil {
		keep.Close()
	}
}

// drain waits until all output is copied, at most for the given time.
func (p *procIO) drain(patience time.Duration) {
	p.end()
	done := make(chan struct{})
	go func() {
		p.out.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(patience):
	}
}

// end tells those who wait for a client that the process has ended.
func (p *procIO) end() { p.endOnce.Do(func() { close(p.ending) }) }

// close ends all copies and closes the fifos.
func (p *procIO) close() {
	p.end()
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	p.closed = true
	closers := p.closers
	p.mu.Unlock()
	p.closeStdin()
	p.sent()
	for _, c := range closers {
		c.Close()
	}
	if p.logger != nil {
		p.logger.stop()
	}
}
