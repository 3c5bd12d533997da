package boot

import (
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"runsc/pkg/controlapi"
	"runsc/pkg/cpufeature"
	"runsc/pkg/fsproto"
	"runsc/pkg/isolate"
	"runsc/sentry/arch/vdso"
	"runsc/sentry/clock"
	"runsc/sentry/control"
	"runsc/sentry/fs/gofer"
	"runsc/sentry/fs/proc"
	"runsc/sentry/kernel"
	"runsc/sentry/mem"
	"runsc/sentry/platform/systrap"
	"runsc/sentry/syscalls"
	"runsc/sentry/vfs"
)

// Isolated is the first argument of the sandbox process once it has an empty
// root and few capabilities; a descriptor number follows (see isolate.ProcSelfFD).
const Isolated = "sandbox-isolated"

// Isolate shuts the process in and goes on as Main in a new execution of the
// program. It returns an exit code only if that fails. Args are the arguments
// after "sandbox".
func Isolate(args []string) int {
	selfFD := strconv.Itoa(isolate.ProcSelfFD())
	err := isolate.Exec(isolate.HostFiles, append([]string{os.Args[0], Isolated, selfFD}, args...))
	fmt.Fprintln(os.Stderr, "sandbox:", err)
	return 1
}

// Main runs the isolated sandbox process and returns its exit code. Args are
// the arguments after Isolated.
func Main(args []string) int {
	started := time.Now()
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "sandbox: started without its arguments")
		return 1
	}
	selfFD, err := strconv.Atoi(args[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, "sandbox:", err)
		return 1
	}
	if selfFD >= 0 {
		unix.CloseOnExec(selfFD)
	}
	b, err := controlapi.OpenBoot(args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "sandbox:", err)
		return 1
	}
	if err := run(b, selfFD, started); err != nil {
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
func run(b *controlapi.Boot, selfFD int, started time.Time) error {
	debug.SetGCPercent(gcPercent)
	s, err := newSentry(b, selfFD)
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

// newSentry makes the parts of the Sentry.
func newSentry(b *controlapi.Boot, selfFD int) (*Sentry, error) {
	s := &Sentry{conf: b.Config, done: make(chan struct{}), containers: map[string]*container{}, selfFD: selfFD}
	var err error
	if s.memory, err = mem.New(); err != nil {
		return nil, fmt.Errorf("cannot make guest memory: %w", err)
	}
	if err := b.WaitPlaced(); err != nil {
		return nil, err
	}
	mask, err := cpuMask(b.Config.Options)
	if err != nil {
		return nil, err
	}
	if s.platform, err = systrap.New(systrap.Options{KeepFDs: []int{s.memory.FD()}, FaultCPUID: mask != nil}); err != nil {
		return nil, fmt.Errorf("cannot start the platform: %w", err)
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
	s.kernel = kernel.New(kernel.Config{Platform: s.platform, MemFile: s.memory, Clock: ck, VDSO: vd, Syscalls: syscalls.New(trace), NumCPUs: cpus, CPUMask: mask, Log: s.logf})
	s.proc = proc.NewSystem(s.kernel, s.selfFD)
	s.registerTypes()
	return s, nil
}

// cpuMask returns what hides features of the processor, nil if nothing does.
func cpuMask(options map[string]string) (*cpufeature.Mask, error) {
	names := strings.Fields(options["cpu-features-mask"])
	if len(names) == 0 {
		return nil, nil
	}
	return cpufeature.New(names)
}

// newGofer makes the client that the host file systems share. It takes over
// the socket to the gofer process.
func (s *Sentry) newGofer(sock *os.File) error {
	remote, err := fsproto.NewFiles(sock)
	if err != nil {
		return err
	}
	policy, err := gofer.ParsePolicy(s.conf.Options["inode-policy"])
	if err != nil {
		return err
	}
	key, err := hex.DecodeString(s.conf.Options["inode-key"])
	opts := gofer.ClientOptions{Policy: policy, ProcSelfFD: s.selfFD, Gofer: remote}
	if err != nil || len(key) != 0 && len(key) != len(opts.Key) {
		return fmt.Errorf("inode-key is not %d bytes in hexadecimal", len(opts.Key))
	}
	copy(opts.Key[:], key)
	uds := s.conf.Options["host-uds"]
	opts.Objects = gofer.HostObjects{
		ConnectUDS: uds == "open" || uds == "all",
		CreateUDS:  uds == "create" || uds == "all",
		OpenFifos:  s.conf.Options["host-fifo"] == "open",
	}
	if n, _ := strconv.Atoi(s.conf.Options["dentry-cache-size"]); n > 0 {
		vfs.SetDentryLimit(n)
	}
	switch mode := s.conf.Options["file-access-mode"]; mode {
	case "", "direct":
	case "remote":
		opts.Backend, opts.Gofer, s.remote = remote, nil, remote
	default:
		return fmt.Errorf("file-access-mode %q is none of direct, remote", mode)
	}
	s.gofer = gofer.NewClient(opts)
	return nil
}
