package rig

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Runtimes that tests name.
const (
	Runc  = "io.containerd.runc.v2"
	Runsc = "io.containerd.runsc.v1"
)

// ShimName is the binary under test.
const ShimName = "containerd-shim-runsc-v1"

// Images that build.sh makes.
const (
	Busybox = "localhost/busybox:1"
	Debian  = "localhost/debian:1"
	Guest   = "localhost/guest:1"
	Pause   = "localhost/pause:1"
)

// DefaultTimeout ends a command that hangs.
const DefaultTimeout = 60 * time.Second

//go:embed config.toml
var configTemplate string

// Rig is a running private containerd.
type Rig struct {
	Dir       string // all of its state
	Namespace string // of containerd; also the first component of its containers' cgroup paths

	tools  string // what build.sh made
	env    []string
	daemon *exec.Cmd
	ended  chan struct{} // closed when daemon has been waited for
	shim   os.FileInfo   // our copy of the shim; nil when there is none
}

// Top returns the repository's top directory.
func Top() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == "/" {
			return "", errors.New("no go.mod above the working directory")
		}
		dir = filepath.Dir(dir)
	}
}

// Tools returns the directory that build.sh fills: $RIG_DIR, or build/rig in the repository.
func Tools() (string, error) {
	if d := os.Getenv("RIG_DIR"); d != "" {
		return d, nil
	}
	top, err := Top()
	return filepath.Join(top, "build", "rig"), err
}

// Start starts a containerd in a new directory below the temporary directory and imports images.
// The shim comes from bin/ of the repository, or from $SHIM_DIR; the rig runs a copy, which tells its
// processes from those of other rigs and lets the original be rebuilt meanwhile.
func Start(images ...string) (*Rig, error) {
	tools, err := Tools()
	if err != nil {
		return nil, err
	}
	sweep(tools)
	if _, err := os.Stat(filepath.Join(tools, "bin", "containerd")); err != nil {
		return nil, fmt.Errorf("%w (make rig builds it)", err)
	}
	dir, err := os.MkdirTemp("", "rig")
	if err != nil {
		return nil, err
	}
	r := &Rig{Dir: dir, Namespace: filepath.Base(dir), tools: tools}
	if err := r.start(images); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *Rig) start(images []string) error {
	// The Sentry and gofer run as other users in other roots; what they may reach is passed to them
	// by descriptor, but the path to the binary must be theirs to walk.
	if err := os.Chmod(r.Dir, 0o711); err != nil {
		return err
	}
	for _, d := range []string{"bin", "tmp", "w"} {
		if err := os.Mkdir(filepath.Join(r.Dir, d), 0o711); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(r.Dir, "owner"), []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
		return err
	}
	if err := r.copyShim(); err != nil {
		return err
	}
	config := strings.NewReplacer("@DIR@", r.Dir, "@HANDLER@", "runsc").Replace(configTemplate)
	if err := os.WriteFile(filepath.Join(r.Dir, "config.toml"), []byte(config), 0o644); err != nil {
		return err
	}
	r.env = append(os.Environ(),
		"PATH="+filepath.Join(r.Dir, "bin")+":"+filepath.Join(r.tools, "bin")+":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"TMPDIR="+filepath.Join(r.Dir, "tmp"),
		"CONTAINERD_ADDRESS="+r.Socket(),
		"CONTAINERD_NAMESPACE="+r.Namespace,
		"CONTAINER_RUNTIME_ENDPOINT=unix://"+r.Socket(),
		"IMAGE_SERVICE_ENDPOINT=unix://"+r.Socket(),
		"HOME="+filepath.Join(r.Dir, "tmp"))
	if err := r.StartDaemon(); err != nil {
		return err
	}
	for _, image := range images {
		if err := r.Import(r.Namespace, image); err != nil {
			return err
		}
	}
	return nil
}

func (r *Rig) copyShim() error {
	dir := os.Getenv("SHIM_DIR")
	if dir == "" {
		top, err := Top()
		if err != nil {
			return err
		}
		dir = filepath.Join(top, "bin")
	}
	data, err := os.ReadFile(filepath.Join(dir, ShimName))
	if errors.Is(err, os.ErrNotExist) {
		return nil // good for runc alone
	}
	if err != nil {
		return err
	}
	dst := filepath.Join(r.Dir, "bin", ShimName)
	if err := os.WriteFile(dst, data, 0o755); err != nil {
		return err
	}
	r.shim, err = os.Stat(dst)
	return err
}

// Socket is the daemon's address.
func (r *Rig) Socket() string { return filepath.Join(r.Dir, "c.sock") }

// LogPath is the daemon's log, which the shims' lines go to as well.
func (r *Rig) LogPath() string { return filepath.Join(r.Dir, "log") }

// StartDaemon starts containerd and waits until it answers.
func (r *Rig) StartDaemon() error {
	log, err := os.OpenFile(r.LogPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(r.tools, "bin", "containerd"), "-c", filepath.Join(r.Dir, "config.toml"))
	cmd.Env, cmd.Stdout, cmd.Stderr = r.env, log, log
	cmd.Dir = r.Dir // containerd takes a shim that lies in its working directory before those in its PATH
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	r.daemon, r.ended = cmd, make(chan struct{})
	if err := os.WriteFile(filepath.Join(r.Dir, "pid"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o644); err != nil {
		return err
	}
	go func(ended chan struct{}) { // ends with the daemon
		cmd.Wait()
		close(ended)
	}(r.ended)
	for range 100 {
		if r.ctr(5*time.Second, nil, "version").Code == 0 {
			return nil
		}
		select {
		case <-r.ended:
			return fmt.Errorf("containerd ended at once:\n%s", r.LogTail(20))
		case <-time.After(100 * time.Millisecond):
		}
	}
	return fmt.Errorf("containerd does not answer:\n%s", r.LogTail(20))
}

// StopDaemon ends containerd; containers live on with their shims.
func (r *Rig) StopDaemon() error {
	if r.daemon == nil {
		return nil
	}
	r.daemon.Process.Signal(syscall.SIGTERM)
	select {
	case <-r.ended:
	case <-time.After(20 * time.Second):
		r.daemon.Process.Kill()
		<-r.ended
		return errors.New("containerd did not end at SIGTERM")
	}
	r.daemon = nil
	return nil
}

// Import imports an image that build.sh made into a namespace.
func (r *Rig) Import(namespace, image string) error {
	name := strings.TrimSuffix(strings.TrimPrefix(image, "localhost/"), ":1")
	res := r.Ctr("-n", namespace, "images", "import", filepath.Join(r.tools, "images", name+".tar"))
	return res.Err()
}

// Result is what a command left.
type Result struct {
	Stdout   string
	Stderr   string
	Code     int // -1 when it was killed
	TimedOut bool
	Took     time.Duration
	command  string
}

// Err is nil when the command succeeded.
func (r Result) Err() error {
	if r.Code == 0 && !r.TimedOut {
		return nil
	}
	return fmt.Errorf("%s: %s", r.command, r)
}

// String shows the result in an error message.
func (r Result) String() string {
	s := fmt.Sprintf("exit code %d after %.1f s", r.Code, r.Took.Seconds())
	if r.TimedOut {
		s = fmt.Sprintf("timed out after %.1f s", r.Took.Seconds())
	}
	if r.Stdout != "" {
		s += "\nstdout: " + clip(r.Stdout)
	}
	if r.Stderr != "" {
		s += "\nstderr: " + clip(r.Stderr)
	}
	return s
}

// clip bounds what of a text goes into a message.
func clip(s string) string {
	const most = 2000
	if s = strings.TrimRight(s, "\n"); len(s) > most {
		return s[:most/2] + "\n[...]\n" + s[len(s)-most/2:]
	}
	return s
}

// Exec runs a program with the rig's environment.
func (r *Rig) Exec(timeout time.Duration, stdin io.Reader, name string, args ...string) Result {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if p := filepath.Join(r.tools, "bin", name); !strings.Contains(name, "/") {
		if _, err := os.Stat(p); err == nil {
			name = p
		}
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = r.env, stdin, &stdout, &stderr
	cmd.WaitDelay = 5 * time.Second // a child may hold on to the output
	start := time.Now()
	err := cmd.Run()
	res := Result{
		Stdout:   stdout.String(),
		Stderr:   notices(stderr.String()),
		Code:     cmd.ProcessState.ExitCode(),
		TimedOut: ctx.Err() != nil,
		Took:     time.Since(start),
		command:  filepath.Base(name) + " " + strings.Join(args, " "),
	}
	if err != nil && res.Code == 0 {
		res.Code, res.Stderr = -1, res.Stderr+err.Error()
	}
	return res
}

// notices removes what ctr and crictl say at every call and no test asks for.
func notices(stderr string) string {
	var b strings.Builder
	for line := range strings.Lines(stderr) {
		if !strings.Contains(line, "DEPRECATION") && !strings.Contains(line, "crictl.yaml") {
			b.WriteString(line)
		}
	}
	return b.String()
}

func (r *Rig) ctr(timeout time.Duration, stdin io.Reader, args ...string) Result {
	return r.Exec(timeout, stdin, "ctr", args...)
}

// Ctr runs ctr.
func (r *Rig) Ctr(args ...string) Result { return r.ctr(DefaultTimeout, nil, args...) }

// CtrWithin runs ctr for so long at most.
func (r *Rig) CtrWithin(timeout time.Duration, args ...string) Result {
	return r.ctr(timeout, nil, args...)
}

// Crictl runs crictl.
func (r *Rig) Crictl(args ...string) Result {
	return r.Exec(DefaultTimeout, nil, "crictl", append([]string{"-t", "60s"}, args...)...)
}

// LogTail returns the last lines of the daemon's log.
func (r *Rig) LogTail(lines int) string {
	data, err := os.ReadFile(r.LogPath())
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return strings.Join(all, "\n")
}

// Close ends every container and the daemon and removes all of the rig's traces. What it had to
// remove by force it reports.
func (r *Rig) Close() error {
	var errs []error
	if r.daemon != nil {
		for _, ns := range []string{r.Namespace, "k8s.io"} {
			r.removeContainers(ns)
		}
		errs = append(errs, r.StopDaemon())
	}
	for _, p := range r.Processes() {
		errs = append(errs, fmt.Errorf("process left: %s", p))
		syscall.Kill(p.PID, syscall.SIGKILL)
	}
	return errors.Join(append(errs, r.erase())...)
}

// erase removes mounts, cgroups with what runs in them, and files.
func (r *Rig) erase() error {
	var errs []error
	removeCgroups(r.Namespace)
	for _, m := range r.mounts() {
		if err := syscall.Unmount(m, syscall.MNT_DETACH); err != nil {
			errs = append(errs, fmt.Errorf("unmount %s: %w", m, err))
		}
	}
	return errors.Join(append(errs, os.RemoveAll(filepath.Join("/run/containerd/runc", r.Namespace)), os.RemoveAll(r.Dir))...)
}

// sweep removes rigs whose owner was killed before it could.
func sweep(tools string) {
	owners, _ := filepath.Glob(filepath.Join(os.TempDir(), "rig*", "owner"))
	for _, file := range owners {
		data, _ := os.ReadFile(file)
		pid, err := strconv.Atoi(string(data))
		if err != nil || syscall.Kill(pid, 0) == nil {
			continue
		}
		r := &Rig{Dir: filepath.Dir(file)}
		r.Namespace = filepath.Base(r.Dir)
		r.shim, _ = os.Stat(filepath.Join(r.Dir, "bin", ShimName))
		daemon, _ := os.ReadFile(filepath.Join(r.Dir, "pid"))
		if pid, err := strconv.Atoi(string(daemon)); err == nil {
			if p, ok := readProcess(pid); ok && strings.Contains(strings.Join(p.Args, " "), r.Dir+"/") {
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		processes := r.Processes()
		for _, p := range ProcessesOf(filepath.Join(tools, "bin", "containerd-shim-runc-v2")) {
			if slices.Contains(p.Args, r.Namespace) {
				processes = append(processes, p)
			}
		}
		for _, p := range processes {
			syscall.Kill(p.PID, syscall.SIGKILL)
		}
		r.erase() // as far as it goes
	}
}

// removeContainers ends and removes every container of a namespace.
func (r *Rig) removeContainers(namespace string) {
	if namespace == "k8s.io" {
		for _, pod := range strings.Fields(r.Crictl("pods", "-q").Stdout) {
			r.Crictl("rmp", "-f", pod)
		}
	}
	for _, id := range strings.Fields(r.Ctr("-n", namespace, "c", "ls", "-q").Stdout) {
		r.Ctr("-n", namespace, "task", "rm", "-f", id)
		r.Ctr("-n", namespace, "c", "rm", id)
	}
}
