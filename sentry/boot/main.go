package boot

import (
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"runsc/pkg/controlapi"
	"runsc/pkg/fsproto"
	"runsc/sentry/arch/vdso"
	"runsc/sentry/clock"
	"runsc/sentry/control"
	"runsc/sentry/fs/gofer"
	"runsc/sentry/fs/proc"
	"runsc/sentry/kernel"
	"runsc/sentry/mem"
	"runsc/sentry/platform/systrap"
	"runsc/sentry/syscalls"
)

// Main runs the sandbox process and returns its exit code. Args are the
// arguments after "sandbox".
func Main(args []string) int {
	started := time.Now()
	b, err := controlapi.OpenBoot(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "sandbox:", err)
		return 1
	}
	if err := run(b, started); err != nil {
		fmt.Fprintln(b.Log, "sandbox:", err)
		return 1
	}
	return 0
}

// gcPercent trades a little time of the collector, which has little to do
// here, for a small heap.
const gcPercent = 50

// run boots the Sentry and serves the shim until it is told to end or the
// shim is gone.
func run(b *controlapi.Boot, started time.Time) error {
	debug.SetGCPercent(gcPercent)
	s, err := newSentry(b)
	if err != nil {
		return err
	}
	defer s.platform.Close()
	served := make(chan error, 1)
	go func() { served <- s.control.Serve(s, time.Since(started)) }()
	select {
	case <-s.done:
		// The answer to Shutdown is on its way; the shim closes the channel
		// when it has it.
		select {
		case err = <-served:
		case <-time.After(time.Second):
		}
	case err = <-served:
	}
	if err == io.EOF {
		err = nil
	}
	return err
}

// newSentry isolates the process and makes the parts of the Sentry.
func newSentry(b *controlapi.Boot) (*Sentry, error) {
	s := &Sentry{conf: b.Config, done: make(chan struct{}), containers: map[string]*container{}}
	var err error
	if s.selfFD, err = enterEmptyRoot(); err != nil {
		return nil, err
	}
	if s.memory, err = mem.New(); err != nil {
		return nil, fmt.Errorf("cannot make guest memory: %w", err)
	}
	if err := b.WaitPlaced(); err != nil {
		return nil, err
	}
	if s.platform, err = systrap.New(systrap.Options{KeepFDs: []int{s.memory.FD()}}); err != nil {
		return nil, fmt.Errorf("cannot start the platform: %w", err)
	}
	if err := dropPrivileges(); err != nil {
		return nil, err
	}
	s.account = mem.NewAccount(nil, 0)
	if err := s.newGofer(b.Gofer); err != nil {
		return nil, err
	}
	if s.control, err = control.New(b.Control); err != nil {
		return nil, err
	}
	var trace io.Writer
	if b.Config.Options["strace"] == "true" {
		trace = b.Log
	}
	ck := clock.New()
	vd, err := vdso.New(s.memory, ck)
	if err != nil {
		return nil, fmt.Errorf("cannot make the vDSO: %w", err)
	}
	cpus := b.Config.NumCPUs
	if cpus <= 0 {
		cpus = runtime.NumCPU()
	}
	s.kernel = kernel.New(kernel.Config{Platform: s.platform, MemFile: s.memory, Clock: ck, VDSO: vd, Syscalls: syscalls.New(trace), NumCPUs: cpus, Log: s.logf})
	s.proc = proc.NewSystem(s.kernel, s.selfFD)
	s.registerTypes()
	return s, nil
}

// newGofer makes the client that the host file systems share. It takes over
// the socket to the gofer process.
func (s *Sentry) newGofer(sock *os.File) error {
	remote, err := fsproto.NewSentryClient(sock)
	if err != nil {
		return err
	}
	policy, err := gofer.ParsePolicy(s.conf.Options["inode-policy"])
	if err != nil {
		return err
	}
	key, err := hex.DecodeString(s.conf.Options["inode-key"])
	if err != nil || len(key) != 0 && len(key) != len(s.inodeKey) {
		return fmt.Errorf("inode-key is not %d bytes in hexadecimal", len(s.inodeKey))
	}
	copy(s.inodeKey[:], key)
	s.gofer = gofer.NewClient(gofer.ClientOptions{Key: s.inodeKey, Policy: policy, ProcSelfFD: s.selfFD, Gofer: remote})
	return nil
}
