package rig

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Container says how `ctr run` starts one. Zero fields take defaults: a new id, the busybox image.
type Container struct {
	Runtime string
	ID      string
	Image   string
	Flags   []string // of ctr run
	Args    []string // the command; none runs the image's
	Stdin   io.Reader
	Timeout time.Duration
}

var lastID atomic.Int64

// NewID returns an id that the rig has not used.
func (r *Rig) NewID() string { return fmt.Sprintf("c%d", lastID.Add(1)) }

func (r *Rig) fill(c *Container) {
	if c.ID == "" {
		c.ID = r.NewID()
	}
	if c.Image == "" {
		c.Image = Busybox
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
}

func (r *Rig) command(c Container, verb ...string) []string {
	args := append([]string{"run"}, verb...)
	args = append(args, "--runtime", c.Runtime, "--fifo-dir", filepath.Join(r.Dir, "w"))
	args = append(args, c.Flags...)
	return append(append(args, c.Image, c.ID), c.Args...)
}

// Run runs a container to its end and removes it. One that hangs is removed by force.
func (r *Rig) Run(c Container) Result {
	r.fill(&c)
	res := r.ctr(c.Timeout, c.Stdin, r.command(c, "--rm")...)
	if res.TimedOut {
		r.Remove(c.ID)
	}
	return res
}

// Begin starts a detached container. Its output goes to Output(id), through a log URI, for a container without one
// would stop at a full pipe.
func (r *Rig) Begin(c Container) (id string, err error) {
	r.fill(&c)
	res := r.ctr(c.Timeout, nil, r.command(c, "-d", "--log-uri", "file://"+r.outputPath(c.ID))...)
	if err := res.Err(); err != nil {
		r.Remove(c.ID)
		return c.ID, err
	}
	return c.ID, nil
}

// Output is what a container of Begin wrote so far.
func (r *Rig) Output(id string) string {
	data, _ := os.ReadFile(r.outputPath(id)) // not there before the first byte
	return string(data)
}

func (r *Rig) outputPath(id string) string { return filepath.Join(r.Dir, "w", id+".log") }

// Remove ends a container and removes it, whatever its state.
func (r *Rig) Remove(id string) {
	r.ctr(20*time.Second, nil, "task", "rm", "-f", id)
	r.ctr(20*time.Second, nil, "c", "rm", id)
}

// Status is a task's state as `ctr task ls` has it, "" when there is no such task.
func (r *Rig) Status(id string) string {
	for line := range strings.Lines(r.Ctr("task", "ls").Stdout) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == id {
			return f[2]
		}
	}
	return ""
}

// WaitStatus waits until the task has the status.
func (r *Rig) WaitStatus(id, status string, timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	for {
		got := r.Status(id)
		if got == status {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("task %s is %q after %v, want %q", id, got, timeout, status)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// Event is one line of `ctr events`.
type Event struct {
	Topic string // e.g. /tasks/exit
	Body  map[string]any
}

// Container is the id of the container that the event is of.
func (e Event) Container() string {
	s, _ := e.Body["container_id"].(string)
	return s
}

// ExitStatus is the exit status that the event tells, 0 when absent.
func (e Event) ExitStatus() int {
	n, _ := e.Body["exit_status"].(float64)
	return int(n)
}

// Events collects the daemon's events until Stop.
type Events struct {
	cmd  *exec.Cmd
	done chan struct{}

	mu   sync.Mutex
	list []Event // guarded by mu
}

// Watch begins to collect events.
func (r *Rig) Watch() (*Events, error) {
	e := &Events{cmd: exec.Command(filepath.Join(r.tools, "bin", "ctr"), "events"), done: make(chan struct{})}
	e.cmd.Env = r.env
	out, err := e.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := e.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { // ends with ctr
		defer close(e.done)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if ev, ok := parseEvent(lines.Text()); ok {
				e.mu.Lock()
				e.list = append(e.list, ev)
				e.mu.Unlock()
			}
		}
	}()
	time.Sleep(300 * time.Millisecond) // ctr says nothing once it is subscribed
	return e, nil
}

// parseEvent reads "DATE TIME ZONE ZONE NAMESPACE TOPIC JSON".
func parseEvent(line string) (Event, bool) {
	head, body, ok := strings.Cut(line, " {")
	if !ok {
		return Event{}, false
	}
	f := strings.Fields(head)
	ev := Event{Topic: f[len(f)-1]}
	return ev, json.Unmarshal([]byte("{"+body), &ev.Body) == nil
}

// Of lists the task events of one container so far.
func (e *Events) Of(container string) []Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	var list []Event
	for _, ev := range e.list {
		if ev.Container() == container && strings.HasPrefix(ev.Topic, "/tasks/") {
			list = append(list, ev)
		}
	}
	return list
}

// Topics is the last part of each topic of a container's events, in order.
func (e *Events) Topics(container string) []string {
	var names []string
	for _, ev := range e.Of(container) {
		names = append(names, strings.TrimPrefix(ev.Topic, "/tasks/"))
	}
	return names
}

// Wait waits for an event of a container, e.g. "exit", which is that of its first process.
func (e *Events) Wait(container, name string, timeout time.Duration) (Event, error) {
	deadline := time.Now().Add(timeout)
	for {
		for _, ev := range e.Of(container) {
			id, of := ev.Body["id"]
			if ev.Topic == "/tasks/"+name && (!of || id == container) {
				return ev, nil
			}
		}
		if time.Now().After(deadline) {
			return Event{}, fmt.Errorf("no %s event of %s within %v, only %v", name, container, timeout, e.Topics(container))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Stop ends the collection.
func (e *Events) Stop() {
	e.cmd.Process.Kill()
	<-e.done
	e.cmd.Wait()
}

// Spec returns the OCI spec that ctr makes for a container, to change and pass to BeginSpec or RunSpec.
func (r *Rig) Spec(c Container) (map[string]any, error) {
	r.fill(&c)
	args := append([]string{"c", "create", "--runtime", c.Runtime}, c.Flags...)
	if res := r.Ctr(append(append(args, c.Image, c.ID), c.Args...)...); res.Err() != nil {
		return nil, res.Err()
	}
	defer r.Ctr("c", "rm", c.ID)
	res := r.Ctr("c", "info", "--spec", c.ID)
	if err := res.Err(); err != nil {
		return nil, err
	}
	var spec map[string]any
	err := json.Unmarshal([]byte(res.Stdout), &spec)
	return spec, err
}

// MountImage mounts an image's files for writing, as a root file system for a spec, until unmount is called.
func (r *Rig) MountImage(image string) (dir string, unmount func(), err error) {
	dir, err = os.MkdirTemp(filepath.Join(r.Dir, "w"), "rootfs")
	if err != nil {
		return "", nil, err
	}
	if err := r.Ctr("images", "mount", "--rw", image, dir).Err(); err != nil {
		return "", nil, err
	}
	return dir, func() { r.Ctr("images", "unmount", "--rm", dir) }, nil
}

// withSpec returns the container as ctr runs it from a spec file.
func (r *Rig) withSpec(c Container, spec map[string]any) (verb []string, err error) {
	data, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(r.Dir, "w", c.ID+".json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return nil, err
	}
	return append([]string{"--runtime", c.Runtime, "--config", file}, append(c.Flags, c.ID)...), nil
}

// RunSpec is Run from a spec; of c the runtime, id, flags and timeout count.
func (r *Rig) RunSpec(c Container, spec map[string]any) (Result, error) {
	r.fill(&c)
	args, err := r.withSpec(c, spec)
	if err != nil {
		return Result{}, err
	}
	res := r.ctr(c.Timeout, c.Stdin, append([]string{"run", "--rm"}, args...)...)
	if res.TimedOut {
		r.Remove(c.ID)
	}
	return res, nil
}
