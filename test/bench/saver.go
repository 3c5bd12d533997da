package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	snapshots "github.com/containerd/containerd/api/services/snapshots/v1"
	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	options "github.com/containerd/containerd/api/types/runc/options"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"runsc/test/rig"
)

// A saver is a runtime that saves and restores containers, of which it runs one at a time.
type saver interface {
	name() string
	// begin starts a container; bind, if any, is a directory of the host, mounted at /go. cpus is how many the guest
	// shows, 0 for those of the host.
	begin(cpus int, bind string, args ...string) error
	exec(args ...string) error
	signal(name string) error
	// save writes an image into a directory that is not there yet, the container running on, and returns how long that took.
	save(dir string) (time.Duration, error)
	// prepare makes all that a restore needs before its clock is started, restore does it.
	prepare(dir, bind string) error
	restore(dir string) error
	end()
	// cpu is the processor time used so far by everything that serves the container.
	cpu() (time.Duration, error)
	sandbox() (rig.Process, error)
	// state is the size of the saved state, the contents of memory excepted.
	state(dir string) (int64, error)
}

// cgroupCPU reads the processor time of a cgroup and those in it.
func cgroupCPU(path string) (time.Duration, error) {
	if data, err := os.ReadFile(filepath.Join("/sys/fs/cgroup/cpuacct", path, "cpuacct.usage")); err == nil {
		n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
		return time.Duration(n), err
	}
	data, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", path, "cpu.stat"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if usec, ok := strings.CutPrefix(line, "usage_usec "); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(usec), 10, 64)
			return time.Duration(n) * time.Microsecond, err
		}
	}
	return 0, fmt.Errorf("no usage_usec in cpu.stat of %s", path)
}

// threadsCPU sums the processor time of a process's threads.
func threadsCPU(pid int) (sum time.Duration) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, f := range files {
		data, _ := os.ReadFile(f) // a thread may have gone
		if n, err := strconv.ParseInt(strings.SplitN(string(data), " ", 2)[0], 10, 64); err == nil {
			sum += time.Duration(n)
		}
	}
	return sum
}

// ours is this runtime. Images are made and containers started through containerd's task service, as by its Go
// client: ctr would pause the task around the save.
type ours struct {
	r     *rig.Rig
	tasks tasks.TasksClient
	snaps snapshots.SnapshotsClient
	id    string
}

func newOurs(r *rig.Rig) (*ours, func(), error) {
	conn, err := grpc.NewClient("unix://"+r.Socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, nil, err
	}
	return &ours{r: r, tasks: tasks.NewTasksClient(conn), snaps: snapshots.NewSnapshotsClient(conn)}, func() { conn.Close() }, nil
}

func (o *ours) name() string { return "ours" }

func (o *ours) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(metadata.AppendToOutgoingContext(context.Background(), "containerd-namespace", o.r.Namespace), time.Minute)
}

// flags writes a configuration and returns the flags of ctr run.
func (o *ours) flags(cpus int, bind string) ([]string, error) {
	conf := fmt.Sprintf("restore-allow = [%q]\n", o.r.Dir)
	if cpus != 0 {
		conf += fmt.Sprintf("num-cpus = %d\n", cpus)
	}
	file := filepath.Join(o.r.Dir, "w", "bench.toml")
	return append(bindFlags(bind), "--runtime-config-path", file), os.WriteFile(file, []byte(conf), 0o644)
}

func bindFlags(bind string) []string {
	if bind == "" {
		return nil
	}
	return []string{"--mount", "type=bind,src=" + bind + ",dst=/go,options=rbind:rw"}
}

func (o *ours) begin(cpus int, bind string, args ...string) error {
	flags, err := o.flags(cpus, bind)
	if err != nil {
		return err
	}
	o.id, err = o.r.Begin(rig.Container{Runtime: rig.Runsc, Image: rig.Guest, Flags: flags, Args: args})
	return err
}

func (o *ours) exec(args ...string) error {
	return o.r.Ctr(append([]string{"task", "exec", "--exec-id", o.r.NewID(), "--fifo-dir", filepath.Join(o.r.Dir, "w"), o.id}, args...)...).Err()
}

func (o *ours) signal(name string) error { return o.r.Ctr("task", "kill", "-s", name, o.id).Err() }

func (o *ours) save(dir string) (time.Duration, error) {
	data, err := proto.Marshal(&options.CheckpointOptions{ImagePath: dir})
	if err != nil {
		return 0, err
	}
	ctx, cancel := o.context()
	defer cancel()
	start := time.Now()
	_, err = o.tasks.Checkpoint(ctx, &tasks.CheckpointTaskRequest{
		ContainerID: o.id, Options: &anypb.Any{TypeUrl: "containerd.runc.v1.CheckpointOptions", Value: data},
	})
	return time.Since(start), err
}

func (o *ours) prepare(dir, bind string) error {
	flags, err := o.flags(0, bind)
	if err != nil {
		return err
	}
	o.id = o.r.NewID()
	args := append([]string{"c", "create", "--runtime", rig.Runsc, "--annotation", "dev.runsc.restore-image=" + dir}, flags...)
	return o.r.Ctr(append(args, rig.Guest, o.id, "/bin/false")...).Err()
}

func (o *ours) restore(string) error {
	ctx, cancel := o.context()
	defer cancel()
	m, err := o.snaps.Mounts(ctx, &snapshots.MountsRequest{Snapshotter: "overlayfs", Key: o.id})
	if err != nil {
		return err
	}
	if _, err := o.tasks.Create(ctx, &tasks.CreateTaskRequest{ContainerID: o.id, Rootfs: m.Mounts}); err != nil {
		return err
	}
	_, err = o.tasks.Start(ctx, &tasks.StartRequest{ContainerID: o.id})
	return err
}

func (o *ours) end() { o.r.Remove(o.id) }

func (o *ours) cpu() (time.Duration, error) {
	sum, err := cgroupCPU(filepath.Join(o.r.Namespace, o.id))
	for _, p := range o.r.Processes() {
		if p.Role() == "shim" {
			sum += threadsCPU(p.PID)
		}
	}
	return sum, err
}

func (o *ours) sandbox() (rig.Process, error) {
	for _, p := range o.r.Processes() {
		if p.Role() == "sandbox" {
			return p, nil
		}
	}
	return rig.Process{}, errors.New("no sandbox runs")
}

func (o *ours) state(dir string) (int64, error) {
	st, err := os.Stat(filepath.Join(dir, "kernel.img"))
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// peer is gVisor's runsc.
type peer struct {
	r      *rig.Rig
	runsc  string
	rootfs string
	id     string
	bundle string
}

func newPeer(r *rig.Rig) (*peer, func(), error) {
	tools, err := rig.Tools()
	if err != nil {
		return nil, nil, err
	}
	p := &peer{r: r, runsc: filepath.Join(tools, "bin", "runsc")}
	if _, err := os.Stat(p.runsc); err != nil {
		return nil, nil, nil // not built
	}
	var unmount func()
	p.rootfs, unmount, err = r.MountImage(rig.Guest)
	return p, unmount, err
}

func (p *peer) name() string { return "gvisor" }

// command runs runsc in the container's cgroup, which its sandbox inherits, or in the bench's own.
func (p *peer) command(inside bool, args ...string) error {
	args = append(append([]string{p.runsc}, peerFlags(p.r)...), args...)
	if inside {
		args = append([]string{"/bin/sh", "-c", `for c in /sys/fs/cgroup/cpuacct /sys/fs/cgroup; do
			if [ -e $c/cgroup.procs ]; then mkdir -p $c/$0 && echo $$ > $c/$0/cgroup.procs; break; fi
		done; exec "$@"`, p.cgroup()}, args...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := os.CreateTemp(filepath.Join(p.r.Dir, "w"), "out") // a pipe would be open as long as the container runs
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(out.Name())
		return fmt.Errorf("runsc %s: %w: %s", strings.Join(args[1:], " "), err, text)
	}
	return nil
}

func (p *peer) cgroup() string { return filepath.Join(p.r.Namespace, "peer-"+p.id) }

func (p *peer) newBundle(bind string, args []string) error {
	spec, err := p.r.Spec(rig.Container{Runtime: rig.Runc, Image: rig.Guest, Flags: bindFlags(bind), Args: args})
	if err != nil {
		return err
	}
	p.id = p.r.NewID()
	p.bundle, err = writeBundle(p.r, p.rootfs, p.id, spec)
	return err
}

func (p *peer) begin(_ int, bind string, args ...string) error {
	if err := p.newBundle(bind, args); err != nil {
		return err
	}
	return p.command(true, "run", "--detach", "--bundle", p.bundle, p.id)
}

func (p *peer) exec(args ...string) error {
	return p.command(false, append([]string{"exec", p.id}, args...)...)
}

func (p *peer) signal(name string) error { return p.command(false, "kill", p.id, name) }

func (p *peer) save(dir string) (time.Duration, error) {
	start := time.Now()
	err := p.command(false, "checkpoint", "--leave-running", "--image-path", dir, p.id)
	return time.Since(start), err
}

func (p *peer) prepare(dir, bind string) error {
	old, err := os.ReadFile(filepath.Join(p.bundle, "config.json")) // it insists on the same specification
	if err != nil {
		return err
	}
	var spec map[string]any
	if err := json.Unmarshal(old, &spec); err != nil {
		return err
	}
	p.id = p.r.NewID()
	p.bundle, err = writeBundle(p.r, p.rootfs, p.id, spec)
	return err
}

func (p *peer) restore(dir string) error {
	return p.command(true, "restore", "--detach", "--background", "--image-path", dir, "--bundle", p.bundle, p.id)
}

func (p *peer) end() { p.command(false, "delete", "--force", p.id) }

func (p *peer) cpu() (time.Duration, error) { return cgroupCPU(p.cgroup()) }

func (p *peer) sandbox() (rig.Process, error) {
	for _, q := range rig.ProcessesOf(p.runsc) {
		if bytes.HasPrefix([]byte(strings.Join(q.Args, " ")), []byte("runsc-sandbox")) && strings.Contains(strings.Join(q.Args, " "), p.r.Dir) {
			return q, nil
		}
	}
	return rig.Process{}, fmt.Errorf("no sandbox of gVisor runs")
}

func (p *peer) state(dir string) (sum int64, err error) {
	for _, name := range []string{"checkpoint.img", "pages_meta.img"} {
		st, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			return 0, err
		}
		sum += st.Size()
	}
	return sum, nil
}
