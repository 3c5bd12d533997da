// Checkpointer checkpoints and restores a container by containerd's Go client, each path that ctr has no command for:
// of a task that runs and is not paused, into the content store and back by WithTaskCheckpoint, and by a directory and
// WithRestoreImagePath. It says what it finds wrong and then exits with 1.
//
//	checkpointer SOCKET NAMESPACE RUNTIME IMAGE PREFIX DIRECTORY
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
)

func main() {
	if len(os.Args) != 7 {
		fmt.Fprintln(os.Stderr, "usage: checkpointer SOCKET NAMESPACE RUNTIME IMAGE PREFIX DIRECTORY")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(namespaces.WithNamespace(context.Background(), os.Args[2]), 100*time.Second)
	defer cancel()
	r := &run{runtime: os.Args[3], prefix: os.Args[5], dir: os.Args[6]}
	err := r.all(ctx, os.Args[1], os.Args[4])
	if cerr := r.cleanUp(); err == nil {
		err = cerr
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "checkpointer:", err)
		os.Exit(1)
	}
	fmt.Println("all is well")
}

// run is the state of one run of the program.
type run struct {
	client               *client.Client
	image                client.Image
	runtime, prefix, dir string
	cleaners             []func(context.Context) error
}

// counting counts on standard output and ends by 6 at SIGTERM.
const counting = "trap 'exit 6' TERM; echo kept > /root/f; i=0; while :; do i=$((i+1)); echo $i; sleep 0.05; done"

func (r *run) all(ctx context.Context, socket, image string) (err error) {
	if r.client, err = client.New(socket); err != nil {
		return err
	}
	if r.image, err = r.client.GetImage(ctx, image); err != nil {
		return err
	}
	original, err := r.create(ctx, "original", counting)
	if err != nil {
		return err
	}
	if err := original.start(ctx, nil); err != nil {
		return err
	}
	n, err := original.counts(ctx, 5)
	if err != nil {
		return err
	}

	// The container, its task not paused.
	ref := r.prefix + "-running"
	watched := make(chan error, 1)
	stop := make(chan struct{})
	go func() { watched <- original.neverPaused(ctx, stop) }()
	im, err := original.c.Checkpoint(ctx, ref, client.WithCheckpointRuntime, client.WithCheckpointImage, client.WithCheckpointRW, client.WithCheckpointTask)
	close(stop)
	if err != nil {
		return fmt.Errorf("checkpoint of a running task: %w", err)
	}
	r.clean(func(ctx context.Context) error { return r.client.ImageService().Delete(ctx, ref) })
	if err := <-watched; err != nil {
		return err
	}
	if err := original.checkRuns(ctx); err != nil {
		return err
	}
	if _, err := original.counts(ctx, n); err != nil {
		return err
	}
	restored, err := r.client.Restore(ctx, r.prefix+"-restored", im, client.WithRestoreImage, client.WithRestoreSpec, client.WithRestoreRuntime, client.WithRestoreRW)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	first := r.adopt("restored", restored)
	if err := first.start(ctx, client.WithTaskCheckpoint(im)); err != nil {
		return err
	}
	if err := first.goesOn(ctx, n); err != nil {
		return err
	}

	// The restored one again, into a directory; the copy is made with another command, which does not run.
	dir := filepath.Join(r.dir, "image")
	if _, err := first.task.Checkpoint(ctx, client.WithCheckpointImagePath(dir), client.WithCheckpointName(r.prefix+"-path")); err != nil {
		return fmt.Errorf("Task.Checkpoint: %w", err)
	}
	r.clean(func(ctx context.Context) error {
		r.client.ImageService().Delete(ctx, r.prefix+"-path") // only for runc is none made
		return nil
	})
	if err := first.checkRuns(ctx); err != nil {
		return err
	}
	n = first.last()
	second, err := r.create(ctx, "again", "echo wrong; exit 1")
	if err != nil {
		return err
	}
	if err := second.start(ctx, client.WithRestoreImagePath(dir)); err != nil {
		return err
	}
	if err := second.goesOn(ctx, n-40); err != nil {
		return err
	}

	// Three run. Each may go without the others, and ends as the program wants.
	for _, c := range []*counter{first, original, second} {
		if err := c.end(ctx, syscall.SIGTERM, 6); err != nil {
			return err
		}
		for _, other := range []*counter{original, second} {
			if other.task == nil {
				continue
			}
			if err := other.checkRuns(ctx); err != nil {
				return fmt.Errorf("after the end of %s: %w", c.name, err)
			}
			if _, err := other.counts(ctx, other.last()); err != nil {
				return fmt.Errorf("after the end of %s: %w", c.name, err)
			}
		}
	}
	return r.paused(ctx, im)
}

// paused checkpoints a paused task, which stays paused, and kills one that was created for a restore and never started.
func (r *run) paused(ctx context.Context, im client.Image) error {
	c, err := r.create(ctx, "paused", counting)
	if err != nil {
		return err
	}
	if err := c.start(ctx, nil); err != nil {
		return err
	}
	if err := c.task.Pause(ctx); err != nil {
		return err
	}
	if _, err := c.c.Checkpoint(ctx, r.prefix+"-paused", client.WithCheckpointTask); err != nil {
		return fmt.Errorf("checkpoint of a paused task: %w", err)
	}
	r.clean(func(ctx context.Context) error { return r.client.ImageService().Delete(ctx, r.prefix+"-paused") })
	if err := c.checkStatus(ctx, client.Paused); err != nil {
		return err
	}
	if err := c.task.Resume(ctx); err != nil {
		return err
	}
	if err := c.end(ctx, syscall.SIGKILL, 137); err != nil {
		return err
	}
	d, err := r.create(ctx, "unstarted", "exit 1")
	if err != nil {
		return err
	}
	task, err := d.c.NewTask(ctx, cio.NullIO, client.WithTaskCheckpoint(im))
	if err != nil {
		return err
	}
	d.task = task
	if err := d.checkStatus(ctx, client.Created); err != nil {
		return err
	}
	_, err = task.Delete(ctx)
	d.task = nil
	return err
}

// clean has something removed at the end.
func (r *run) clean(f func(context.Context) error) { r.cleaners = append(r.cleaners, f) }

func (r *run) cleanUp() error {
	ctx, cancel := context.WithTimeout(namespaces.WithNamespace(context.Background(), os.Args[2]), 20*time.Second)
	defer cancel()
	var errs []error
	for i := len(r.cleaners) - 1; i >= 0; i-- {
		errs = append(errs, r.cleaners[i](ctx))
	}
	return errors.Join(errs...)
}

// create makes a container that runs a script.
func (r *run) create(ctx context.Context, name, script string) (*counter, error) {
	id := r.prefix + "-" + name
	c, err := r.client.NewContainer(ctx, id,
		client.WithImage(r.image),
		client.WithNewSnapshot(id, r.image),
		client.WithRuntime(r.runtime, nil),
		client.WithNewSpec(oci.WithImageConfig(r.image), oci.WithProcessArgs("sh", "-c", script), oci.WithCgroup("/"+os.Args[2]+"/"+id)))
	if err != nil {
		return nil, err
	}
	return r.adopt(name, c), nil
}

// adopt has a container removed at the end.
func (r *run) adopt(name string, c client.Container) *counter {
	k := &counter{name: name, c: c}
	r.clean(func(ctx context.Context) error {
		if k.task != nil {
			k.task.Delete(ctx, client.WithProcessKill)
		}
		return c.Delete(ctx, client.WithSnapshotCleanup)
	})
	return k
}

// counter is a container that counts.
type counter struct {
	name string
	c    client.Container
	task client.Task
	exit <-chan client.ExitStatus
	out  output
}

// output collects what a task writes.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

func (c *counter) start(ctx context.Context, from client.NewTaskOpts) error {
	var opts []client.NewTaskOpts
	if from != nil {
		opts = append(opts, from)
	}
	task, err := c.c.NewTask(ctx, cio.NewCreator(cio.WithStreams(nil, &c.out, &c.out)), opts...)
	if err != nil {
		return fmt.Errorf("%s: new task: %w", c.name, err)
	}
	c.task = task
	if c.exit, err = task.Wait(ctx); err != nil {
		return err
	}
	if err := task.Start(ctx); err != nil {
		return fmt.Errorf("%s: start: %w", c.name, err)
	}
	return c.checkRuns(ctx)
}

func (c *counter) last() int {
	f := strings.Fields(c.out.text())
	if len(f) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(f[len(f)-1])
	return n
}

// counts waits until the output is past a number.
func (c *counter) counts(ctx context.Context, beyond int) (int, error) {
	for c.last() <= beyond {
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("%s does not count past %d: %.200q", c.name, beyond, c.out.text())
		case <-time.After(10 * time.Millisecond):
		}
	}
	return c.last(), nil
}

func (c *counter) checkStatus(ctx context.Context, want client.ProcessStatus) error {
	s, err := c.task.Status(ctx)
	if err == nil && s.Status != want {
		err = fmt.Errorf("%s is %s, want %s", c.name, s.Status, want)
	}
	return err
}

// checkRuns checks state and pid.
func (c *counter) checkRuns(ctx context.Context) error {
	if err := c.checkStatus(ctx, client.Running); err != nil {
		return err
	}
	if err := syscall.Kill(int(c.task.Pid()), 0); c.task.Pid() == 0 || err != nil {
		return fmt.Errorf("%s has pid %d: %v", c.name, c.task.Pid(), err)
	}
	return nil
}

// neverPaused asks for the state over and over.
func (c *counter) neverPaused(ctx context.Context, stop chan struct{}) error {
	for {
		select {
		case <-stop:
			return nil
		default:
			if err := c.checkStatus(ctx, client.Running); err != nil {
				return fmt.Errorf("while it is saved: %w", err)
			}
		}
	}
}

// goesOn checks a restored container: it counts on from a number, and a process joins it.
func (c *counter) goesOn(ctx context.Context, from int) error {
	if _, err := c.counts(ctx, from+3); err != nil {
		return err
	}
	if first, _, _ := strings.Cut(c.out.text(), "\n"); first == "1" || first == "wrong" {
		return fmt.Errorf("%s began anew", c.name)
	}
	var out output
	p, err := c.task.Exec(ctx, "e", &specs.Process{Args: []string{"cat", "/root/f"}, Cwd: "/", Env: []string{"PATH=/bin"}}, cio.NewCreator(cio.WithStreams(nil, &out, &out)))
	if err != nil {
		return fmt.Errorf("%s: exec: %w", c.name, err)
	}
	exit, err := p.Wait(ctx)
	if err != nil {
		return err
	}
	if err := p.Start(ctx); err != nil {
		return fmt.Errorf("%s: start of an exec: %w", c.name, err)
	}
	status := <-exit
	if _, err := p.Delete(ctx); err != nil {
		return err
	}
	if status.ExitCode() != 0 || out.text() != "kept\n" {
		return fmt.Errorf("%s: exec: status %d, %q", c.name, status.ExitCode(), out.text())
	}
	return nil
}

// end signals the task, checks its exit code and deletes it.
func (c *counter) end(ctx context.Context, sig syscall.Signal, code uint32) error {
	if err := c.task.Kill(ctx, sig); err != nil {
		return fmt.Errorf("%s: kill: %w", c.name, err)
	}
	select {
	case s := <-c.exit:
		if s.Error() != nil || s.ExitCode() != code {
			return fmt.Errorf("%s ended with %d, want %d: %v", c.name, s.ExitCode(), code, s.Error())
		}
	case <-time.After(20 * time.Second):
		return fmt.Errorf("%s does not end", c.name)
	}
	_, err := c.task.Delete(ctx)
	c.task = nil
	return err
}
