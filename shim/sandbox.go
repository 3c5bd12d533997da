package shim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"runsc/pkg/controlapi"
	"runsc/pkg/fsproto"
	"runsc/pkg/hostcgroup"
)

// bootPatience bounds the wait for a new sandbox to answer.
const bootPatience = 30 * time.Second

// Where a sandbox's network is.
type network struct {
	// path is the namespace to join, "" for none.
	path string
	// host is set if the sandbox stays in the host's network.
	host bool
}

// networkOf returns the network that a root container's spec asks for.
func networkOf(spec *specs.Spec) network {
	path, has := namespacePath(spec, specs.NetworkNamespace)
	return network{path: path, host: !has}
}

// sandbox is a sandbox process, its gofer and the channels to both.
type sandbox struct {
	id   string
	net  network
	conf *config

	// proc and gofer are immutable after startSandbox.
	proc, gofer hostProcess
	client      *controlapi.Client
	files       fsproto.GoferClient
	cgroup      hostcgroup.Group // the root container's
	saving      chan struct{}    // holds a token while a checkpoint is made
	kill        func()           // sends SIGKILL to both processes

	hello chan struct{} // closed when the Sentry has booted
	done  chan struct{} // closed when both processes have been reaped

	mu sync.Mutex
	// mu guards:
	helloErr error
	greeted  bool
}

// sandboxNotes is what a sandbox tells its owner.
type sandboxNotes interface {
	exited(sb *sandbox, n controlapi.ExitNote)
	oomKilled(sb *sandbox, id string)
	restoreLoaded(sb *sandbox, n controlapi.RestoreLoadedNote)
	restoreFailed(sb *sandbox, n controlapi.RestoreFailedNote)
}

// notesAdapter implements controlapi.Notes.
type notesAdapter struct {
	sb    *sandbox
	owner sandboxNotes
}

func (a notesAdapter) Hello(h controlapi.Hello) {
	a.sb.mu.Lock()
	defer a.sb.mu.Unlock()
	if a.sb.greeted {
		return
	}
	a.sb.greeted = true
	if h.Version != controlapi.Version {
		a.sb.helloErr = fmt.Errorf("the sandbox speaks version %d of the control protocol, the shim %d", h.Version, controlapi.Version)
	}
	slog.Debug("sandbox booted", "took", time.Duration(h.BootNanos))
	close(a.sb.hello)
}

func (a notesAdapter) Exit(n controlapi.ExitNote) { a.owner.exited(a.sb, n) }
func (a notesAdapter) OOM(n controlapi.OOMNote)   { a.owner.oomKilled(a.sb, n.ID) }

func (a notesAdapter) RestoreLoaded(n controlapi.RestoreLoadedNote) { a.owner.restoreLoaded(a.sb, n) }
func (a notesAdapter) RestoreFailed(n controlapi.RestoreFailedNote) { a.owner.restoreFailed(a.sb, n) }

func (a notesAdapter) Log(n controlapi.LogNote) {
	level := slog.LevelInfo
	switch n.Level {
	case "debug":
		level = slog.LevelDebug
	case "warning":
		level = slog.LevelWarn
	case "error":
		level = slog.LevelError
	}
	slog.Log(context.Background(), level, printable(n.Message), "from", "sentry")
}

// sandboxArgs say what startSandbox makes.
type sandboxArgs struct {
	id        string
	conf      *config
	net       network
	cgroup    string
	resources *specs.LinuxResources
	oomScore  *int
	owner     sandboxNotes
	// started is called with the pids before the Sentry reads its config.
	started func(sandbox, gofer hostProcess) error
}

// channels are the descriptors between a new sandbox, its gofer and the shim.
type channels struct {
	control, controlFar *os.File // shim and Sentry
	files, filesFar     *os.File // shim and gofer
	sentry, gofer       *os.File // Sentry and gofer
	config, configFar   *os.File // shim and Sentry, one way
}

func newChannels() (_ *channels, err error) {
	c := &channels{}
	defer func() {
		if err != nil {
			c.closeFar()
			c.closeNear()
		}
	}()
	if c.control, c.controlFar, err = socketpair(unix.SOCK_STREAM); err != nil {
		return nil, err
	}
	if c.files, c.filesFar, err = socketpair(unix.SOCK_SEQPACKET); err != nil {
		return nil, err
	}
	if c.sentry, c.gofer, err = socketpair(unix.SOCK_SEQPACKET); err != nil {
		return nil, err
	}
	c.configFar, c.config, err = os.Pipe()
	return c, err
}

// closeFar closes what the children have.
func (c *channels) closeFar() {
	for _, f := range []*os.File{c.controlFar, c.filesFar, c.sentry, c.gofer, c.configFar} {
		f.Close()
	}
}

func (c *channels) closeNear() {
	for _, f := range []*os.File{c.control, c.files, c.config} {
		f.Close()
	}
}

// startSandbox starts a sandbox and its gofer, in their cgroup. It does not
// wait for the Sentry to boot.
func startSandbox(a sandboxArgs) (_ *sandbox, err error) {
	var undo undoList
	defer func() {
		if err != nil {
			undo.run()
		}
	}()
	watch := newStopwatch("id", a.id)
	defer func() { watch.log("sandbox started") }()
	sb := &sandbox{id: a.id, net: a.net, conf: a.conf, saving: make(chan struct{}, 1), hello: make(chan struct{}), done: make(chan struct{})}
	bootConfig, err := a.bootConfig()
	if err != nil {
		return nil, err
	}
	ch, err := newChannels()
	if err != nil {
		return nil, err
	}
	defer ch.closeFar()
	undo.add(ch.closeNear)

	if _, err := ch.config.Write(bootConfig); err != nil {
		return nil, fmt.Errorf("boot config: %w", err)
	}
	// The cgroup is made meanwhile; it is removed after the processes' end.
	made := make(chan error, 1)
	go func() {
		var err error
		sb.cgroup, err = hostcgroup.New(a.cgroup, a.resources)
		made <- err
	}()
	undo.add(func() {
		if sb.cgroup != nil {
			sb.cgroup.Delete()
		}
	})
	// Both processes start at once; the Sentry waits for its config, the gofer
	// for its first mount.
	cmd, gcmd := sandboxCommand(a.id, !a.net.host && a.net.path == ""), goferCommand()
	if sb.proc, err = startChild(cmd, "sandbox", a.net.path, ch.controlFar, ch.configFar, nil, ch.sentry); err == nil {
		undo.add(func() { cmd.Process.Kill(); cmd.Wait() })
		watch.lap("spawn sandbox")
		if sb.gofer, err = startChild(gcmd, "gofer", "", ch.filesFar, ch.gofer, nil); err == nil {
			undo.add(func() { gcmd.Process.Kill(); gcmd.Wait() })
			watch.lap("spawn gofer")
		}
	}
	if merr := <-made; merr != nil && err == nil {
		err = fmt.Errorf("cgroup %s: %w", a.cgroup, merr)
	}
	if err != nil {
		return nil, err
	}
	if err := a.started(sb.proc, sb.gofer); err != nil {
		return nil, err
	}
	if a.oomScore != nil {
		if err := setOOMScore(sb.proc.Pid, *a.oomScore); err != nil {
			return nil, fmt.Errorf("process.oomScoreAdj: %w", err)
		}
	}
	// The Sentry waits for the end of its config before it clones anything; the
	// gofer can follow.
	if err := sb.cgroup.Add(sb.proc.Pid); err != nil {
		return nil, fmt.Errorf("cgroup %s: %w", a.cgroup, err)
	}
	watch.lap("enter cgroup")
	ch.config.Close()
	if err := sb.cgroup.Add(sb.gofer.Pid); err != nil {
		return nil, fmt.Errorf("cgroup %s: %w", a.cgroup, err)
	}
	watch.lap("gofer enters")
	if sb.files, err = fsproto.NewGoferClient(ch.files); err != nil {
		return nil, fmt.Errorf("gofer: %w", err)
	}
	if sb.client, err = controlapi.NewClient(ch.control, notesAdapter{sb, a.owner}); err != nil {
		return nil, err
	}
	// os.Process knows whether it was reaped: a reused pid is not hit.
	sb.kill = func() {
		cmd.Process.Kill()
		gcmd.Process.Kill()
	}
	go sb.watch(cmd, gcmd)
	return sb, nil
}

// bootConfig returns what the Sentry reads first.
func (a *sandboxArgs) bootConfig() ([]byte, error) {
	options, err := a.conf.sentryOptions()
	if err != nil {
		return nil, err
	}
	return controlapi.EncodeBootConfig(&controlapi.BootConfig{
		Version:     controlapi.Version,
		SandboxID:   a.id,
		NumCPUs:     a.conf.NumCPUs,
		Debug:       a.conf.Debug,
		HostNetwork: a.net.host,
		Options:     options,
	})
}

// startChild starts a sandbox or gofer process with its descriptors from 3 on;
// nil stands for its log.
func startChild(cmd *exec.Cmd, name, netns string, files ...*os.File) (hostProcess, error) {
	log, err := withLog(cmd, name, files...)
	if err != nil {
		return hostProcess{}, err
	}
	defer log.Close()
	if err := spawns.start(cmd, netns); err != nil {
		return hostProcess{}, fmt.Errorf("start the %s: %w", name, err)
	}
	p, err := identify(cmd.Process.Pid)
	if err != nil {
		cmd.Process.Kill()
		cmd.Wait()
		return hostProcess{}, fmt.Errorf("the %s ended at once: %w", name, err)
	}
	return p, nil
}

// withLog gives a command its descriptors from 3 on, with a log pipe in the
// place of the nil one and as standard error. The returned file is the pipe's
// writing end, to be closed once the child has it.
func withLog(cmd *exec.Cmd, from string, files ...*os.File) (*os.File, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, err
	}
	unix.SetNonblock(fds[0], true)
	r, w := os.NewFile(uintptr(fds[0]), "log"), os.NewFile(uintptr(fds[1]), "log")
	for i, f := range files {
		if f == nil {
			files[i] = w
		}
	}
	cmd.ExtraFiles = files
	cmd.Stderr = w
	go relayLog(r, from)
	return w, nil
}

// watch waits for the ends of both processes: one does not outlive the other,
// nor the control channel.
func (sb *sandbox) watch(cmd, gcmd *exec.Cmd) {
	ended := make(chan string, 3)
	var both sync.WaitGroup
	for _, c := range []struct {
		cmd  *exec.Cmd
		name string
	}{{cmd, "sandbox"}, {gcmd, "gofer"}} {
		both.Add(1)
		go func() {
			defer both.Done()
			err := c.cmd.Wait()
			slog.Debug("process ended", "name", c.name, "err", err)
			ended <- c.name
		}()
	}
	go func() {
		<-sb.client.Done()
		if err := sb.client.Err(); err != nil {
			slog.Error("control channel", "err", err)
		}
		ended <- "control channel"
	}()
	slog.Debug("sandbox ends", "id", sb.id, "first", <-ended)
	sb.kill()
	both.Wait()
	sb.client.Close()
	sb.files.Close()
	<-sb.client.Done()
	close(sb.done)
}

// alive reports whether the sandbox has not ended.
func (sb *sandbox) alive() bool {
	select {
	case <-sb.done:
		return false
	default:
		return true
	}
}

// ending reports whether the sandbox has ended or cannot go on.
func (sb *sandbox) ending() bool {
	select {
	case <-sb.client.Done():
		return true
	default:
		return !sb.alive()
	}
}

// ready waits for the Sentry to boot.
func (sb *sandbox) ready(ctx context.Context) error {
	t := time.NewTimer(bootPatience)
	defer t.Stop()
	select {
	case <-sb.hello:
		sb.mu.Lock()
		defer sb.mu.Unlock()
		return sb.helloErr
	case <-sb.done:
		return errors.New("the sandbox ended while it booted; the shim's log tells why")
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return fmt.Errorf("the sandbox has not booted after %s", bootPatience)
	}
}

// stop ends both processes and returns when they are gone, with every process
// of the guest and every mount they held.
func (sb *sandbox) stop() {
	sb.kill()
	<-sb.done
}
