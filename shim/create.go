package shim

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/containerd/containerd/api/events"
	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/types/known/anypb"

	"runsc/pkg/controlapi"
	"runsc/pkg/fsproto"
	"runsc/pkg/hostcgroup"
)

// earlySandbox is a sandbox that boots while containerd still prepares Create.
type earlySandbox struct {
	id   string        // of the container whose bundle it was made from
	done chan struct{} // closed when the rest is set

	sb   *sandbox
	conf *config
	rec  record
	err  error
}

// startEarly starts the sandbox of the container whose bundle this is.
func (s *service) startEarly(id, bundle string, opts *anypb.Any) {
	e := &earlySandbox{id: id, done: make(chan struct{})}
	s.mu.Lock()
	s.early = e
	s.mu.Unlock()
	go func() {
		defer close(e.done)
		_, spec, err := readSpec(bundle)
		if err == nil {
			s.leavePod(spec)
			err = validateSpec(spec)
		}
		if err == nil {
			e.conf, err = configFromOptions(opts)
		}
		if err != nil {
			e.err = err // Create meets it again and reports it
			return
		}
		e.rec = s.newRecord(id, true)
		e.sb, e.err = s.startSandbox(bundle, spec, e.conf, &e.rec)
	}()
}

// dropEarly ends an early sandbox that nobody has taken.
func (s *service) dropEarly() {
	s.mu.Lock()
	e := s.early
	s.early = nil
	s.mu.Unlock()
	if e != nil {
		e.drop()
	}
}

func (e *earlySandbox) drop() {
	<-e.done
	if e.sb != nil {
		e.sb.stop()
		e.sb.cgroup.Delete()
	}
}

// newRecord returns the record of a new container.
func (s *service) newRecord(id string, root bool) record {
	return record{ID: id, SandboxID: s.group, Root: root, Address: s.address, Shim: s.self}
}

// startSandbox starts the sandbox of a root container and keeps its record in
// the bundle up to date.
func (s *service) startSandbox(bundle string, spec *specs.Spec, conf *config, rec *record) (*sandbox, error) {
	path, err := cgroupPath(rec.ID, spec)
	if err != nil {
		return nil, err
	}
	rec.Cgroup, rec.OwnsCgroup = path, true
	if err := writeJSON(bundle, recordFile, rec); err != nil {
		return nil, err
	}
	return startSandbox(sandboxArgs{
		id:        s.group,
		conf:      conf,
		net:       networkOf(spec),
		cgroup:    path,
		resources: spec.Linux.Resources,
		oomScore:  spec.Process.OOMScoreAdj,
		owner:     s,
		started: func(sandbox, gofer hostProcess) error {
			rec.Sandbox, rec.Gofer = sandbox, gofer
			return writeJSON(bundle, recordFile, rec)
		},
	})
}

// maxBeside bounds the search for a cgroup that nobody has.
const maxBeside = 3

// cgroupPath returns where a container's cgroup goes. A spec restored from an
// image may name the cgroup of a container that lives: then it is one beside.
func cgroupPath(id string, spec *specs.Spec) (string, error) {
	path, err := hostcgroup.HostPath(spec.Linux.CgroupsPath, id)
	if err != nil {
		return "", fail(errdefs.ErrInvalidArgument, "%v", err)
	}
	// The same id may live in another of containerd's namespaces.
	for range maxBeside {
		if !hostcgroup.Busy(path) {
			break
		}
		path = hostcgroup.Beside(path, id)
	}
	return path, nil
}

// create makes a task, or undoes what it did of it.
func (s *service) create(ctx context.Context, r *taskapi.CreateTaskRequest) (_ *container, err error) {
	if err := controlapi.ValidateID(r.ID); err != nil {
		return nil, fail(errdefs.ErrInvalidArgument, "%v", err)
	}
	switch {
	case r.Terminal:
		return nil, fail(errdefs.ErrInvalidArgument, "terminals are not supported yet: run the container without one")
	}
	if err := s.reserve(r.ID); err != nil {
		return nil, err
	}
	var undo undoList
	defer func() {
		if err != nil {
			undo.run()
			// containerd removes the bundle now: nothing may be written there any more.
			s.dropEarly()
		}
		s.mu.Lock()
		delete(s.creating, r.ID)
		s.mu.Unlock()
	}()

	raw, spec, err := readSpec(r.Bundle)
	if err != nil {
		return nil, err
	}
	s.leavePod(spec)
	if err := validateSpec(spec); err != nil {
		return nil, fail(errdefs.ErrInvalidArgument, "%v", err)
	}
	if spec.Process.Terminal {
		return nil, fail(errdefs.ErrInvalidArgument, "terminals are not supported yet: run the container without one")
	}
	conf, err := configFromOptions(r.Options)
	if err != nil {
		return nil, fail(errdefs.ErrInvalidArgument, "%v", err)
	}

	c := &container{
		id:          r.ID,
		bundle:      r.Bundle,
		svc:         s,
		hooks:       spec.Hooks,
		annotations: spec.Annotations,
		limits:      guestLimits(spec),
		ended:       make(chan struct{}),
		init:        newProcess("", stdioNames{Stdin: r.Stdin, Stdout: r.Stdout, Stderr: r.Stderr}),
		execs:       map[string]*process{},
	}
	watch := newStopwatch("id", c.id)
	if c.saves, err = saveOptionsOf(conf, spec.Annotations); err != nil {
		return nil, fail(errdefs.ErrInvalidArgument, "%v", err)
	}
	image, err := openRestore(ctx, r, conf, spec.Annotations)
	if err != nil {
		return nil, fail(errdefs.ErrInvalidArgument, "%v", err)
	}
	if image != nil {
		defer image.Close()
		c.restored, c.restoring = &image.restoreSource, true
		watch.lap("image")
	}
	// While an early sandbox starts. Delete needs no record of it.
	if err := mountRootfs(r, &undo); err != nil {
		return nil, err
	}
	watch.lap("mount")
	if err := s.placeContainer(c, spec, conf, &undo); err != nil {
		return nil, err
	}
	watch.lap("sandbox")
	if c.init.io, err = openStdio(c.init.names, c.id, s.namespace); err != nil {
		return nil, err
	}
	undo.add(c.init.io.close)
	c.init.pid = c.sb.proc.Pid
	if err := c.load(ctx, raw, spec, conf, image, &undo, watch); err != nil {
		return nil, err
	}
	watch.log("created")
	s.mu.Lock()
	s.containers[c.id] = c
	s.mu.Unlock()
	undo.add(func() {
		s.mu.Lock()
		delete(s.containers, c.id)
		s.mu.Unlock()
	})
	s.events.send(&events.TaskCreate{
		ContainerID: c.id,
		Bundle:      c.bundle,
		Rootfs:      r.Rootfs,
		IO:          &events.TaskIO{Stdin: r.Stdin, Stdout: r.Stdout, Stderr: r.Stderr, Terminal: r.Terminal},
		Checkpoint:  r.Checkpoint,
		Pid:         uint32(c.shownPid()),
	})
	if c.root {
		go s.watchRoot(c)
	}
	if !c.sb.alive() {
		c.lost()
	}
	return c, nil
}

// undoList holds what to undo if an operation fails, last thing first.
type undoList struct{ steps []func() }

func (u *undoList) add(step func()) { u.steps = append(u.steps, step) }

func (u *undoList) run() {
	for _, step := range slices.Backward(u.steps) {
		step()
	}
}

// reserve takes an id for a Create.
func (s *service) reserve(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.stopping:
		return fail(errdefs.ErrUnavailable, "the shim is about to end")
	case s.containers[id] != nil || s.creating[id]:
		return fail(errdefs.ErrAlreadyExists, "container %q", id)
	}
	s.creating[id] = true
	return nil
}

// placement serialises the choice of a sandbox for a new container.
var placement sync.Mutex

// placeContainer puts a container into the pod's sandbox, or makes the sandbox
// for it.
func (s *service) placeContainer(c *container, spec *specs.Spec, conf *config, undo *undoList) error {
	placement.Lock()
	defer placement.Unlock()
	s.mu.Lock()
	sb, early := s.sb, s.early
	s.early = nil
	others := len(s.containers)
	s.mu.Unlock()
	if sb != nil && !sb.alive() && others == 0 {
		sb = nil // its last container was deleted: the next one starts afresh
	}
	if sb != nil {
		return s.joinSandbox(c, sb, spec, conf, undo)
	}

	c.root = true
	if early != nil {
		<-early.done
		if early.err == nil && early.id == c.id && early.conf.equal(conf) && early.sb.alive() {
			c.sb, c.rec = early.sb, early.rec
		} else {
			early.drop()
		}
	}
	if c.sb == nil {
		c.rec = s.newRecord(c.id, true)
		var err error
		if c.sb, err = s.startSandbox(c.bundle, spec, conf, &c.rec); err != nil {
			return err
		}
	}
	c.cgroup = c.sb.cgroup
	sb = c.sb
	s.mu.Lock()
	s.sb = sb
	s.mu.Unlock()
	undo.add(func() {
		sb.stop()
		c.cgroup.Delete()
		s.mu.Lock()
		if s.sb == sb {
			s.sb = nil
		}
		s.mu.Unlock()
	})
	go s.watchSandbox(sb)
	return nil
}

// joinSandbox puts a container into a sandbox that runs.
func (s *service) joinSandbox(c *container, sb *sandbox, spec *specs.Spec, conf *config, undo *undoList) error {
	if !sb.alive() || !s.rootLives(sb) {
		return fail(errdefs.ErrFailedPrecondition, "sandbox %q has ended", s.group)
	}
	if !sb.conf.equal(conf) {
		return fail(errdefs.ErrInvalidArgument, "the runtime options differ from those that sandbox %q was started with", s.group)
	}
	if err := sb.checkNetwork(spec); err != nil {
		return fail(errdefs.ErrInvalidArgument, "%v", err)
	}
	c.sb = sb
	path, err := cgroupPath(c.id, spec)
	if err != nil {
		return err
	}
	c.rec = s.newRecord(c.id, false)
	c.rec.Cgroup, c.rec.OwnsCgroup = path, true
	if err := writeJSON(c.bundle, recordFile, c.rec); err != nil {
		return err
	}
	if c.cgroup, err = hostcgroup.New(path, spec.Linux.Resources); err != nil {
		return fmt.Errorf("cgroup %s: %w", path, err)
	}
	undo.add(func() { c.cgroup.Delete() })
	return nil
}

// rootLives reports whether a sandbox's root container has not ended.
func (s *service) rootLives(sb *sandbox) bool {
	for _, c := range s.all() {
		if c.sb == sb && c.root {
			return c.live()
		}
	}
	// Being created: it is in none of our tables yet.
	return true
}

// checkNetwork checks that a container's network is the sandbox's.
func (sb *sandbox) checkNetwork(spec *specs.Spec) error {
	path, has := namespacePath(spec, specs.NetworkNamespace)
	switch {
	case !has && !sb.net.host:
		return fmt.Errorf("the spec's linux.namespaces lacks network: the sandbox is not in the host's")
	case path == "":
		return nil
	}
	want, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("the spec's network namespace: %w", err)
	}
	have, err := os.Stat(fmt.Sprintf("/proc/%d/ns/net", sb.proc.Pid))
	if err != nil {
		return fmt.Errorf("the sandbox's network namespace: %w", err)
	}
	if !os.SameFile(want, have) {
		return fmt.Errorf("the spec's network namespace %s is not the sandbox's", path)
	}
	return nil
}

// rootfsOf is where containerd wants a bundle's root file system mounted.
func rootfsOf(bundle string) string { return filepath.Join(bundle, "rootfs") }

// mountRootfs mounts what containerd asks for onto the bundle's rootfs.
func mountRootfs(r *taskapi.CreateTaskRequest, undo *undoList) error {
	if len(r.Rootfs) == 0 {
		return nil
	}
	mounts := make([]mount.Mount, 0, len(r.Rootfs))
	for _, m := range r.Rootfs {
		mounts = append(mounts, mount.Mount{Type: m.Type, Source: m.Source, Target: m.Target, Options: m.Options})
	}
	rootfs := rootfsOf(r.Bundle)
	undo.add(func() { mount.UnmountRecursive(rootfs, 0) })
	if err := os.MkdirAll(rootfs, 0o711); err != nil {
		return err
	}
	if err := mount.All(mounts, rootfs); err != nil {
		return fmt.Errorf("mount the root file system: %w", err)
	}
	return nil
}

// load gives the container to the gofer and to the Sentry, and runs the hooks
// that come before its start.
func (c *container) load(ctx context.Context, raw json.RawMessage, spec *specs.Spec, conf *config, image *restoreImage, undo *undoList, watch *stopwatch) error {
	req := &controlapi.CreateContainerRequest{
		ID:        c.id,
		SandboxID: c.svc.group,
		Kind:      c.svc.kindHere(spec.Annotations),
		Root:      c.root,
		Spec:      raw,
		Limits:    c.limits,
	}
	if err := c.joins(req, spec); err != nil {
		return fail(errdefs.ErrInvalidArgument, "%v", err)
	}
	var files fileList
	defer files.close()
	undo.add(func() { c.sb.files.RemoveContainer(c.id) })
	if err := c.addMounts(req, spec, conf, &files); err != nil {
		return err
	}
	req.Stdio = files.addStdio(c.init.io)
	if image != nil {
		req.Restore = image.request(&files)
	}
	watch.lap("gofer")

	state := hookState(c.id, c.bundle, c.init.pid, specs.StateCreating, c.annotations)
	if h := c.hooks; h != nil {
		//lint:ignore SA1019 deprecated, and still in use
		if err := runHooks("prestart", h.Prestart, state); err != nil {
			return err
		}
		if err := runHooks("createRuntime", h.CreateRuntime, state); err != nil {
			return err
		}
	}
	if err := c.sb.ready(ctx); err != nil {
		return err
	}
	watch.lap("boot")
	// The Sentry may have taken the container even if the answer is lost.
	undo.add(func() { c.sb.client.DestroyContainer(context.Background(), c.id) })
	_, zygote, err := c.sb.client.CreateContainer(ctx, req, files.all)
	if err != nil {
		return fmt.Errorf("create the container in the sandbox: %w", fromSentry(err))
	}
	watch.lap("sentry")
	c.init.io.sent()
	if zygote == nil {
		return nil
	}
	defer zygote.Close()
	return c.adoptZygote(zygote, spec.Process.OOMScoreAdj)
}

// adoptZygote puts the process from which the container's stubs are cloned
// into its cgroup. Its pid stands for an app container's init.
func (c *container) adoptZygote(zygote *os.File, oomScore *int) error {
	pid, err := pidOfPidfd(zygote)
	if err != nil {
		return fmt.Errorf("the container's first process: %w", err)
	}
	// The root's was cloned from the sandbox process, which was in the cgroup
	// before it booted; each move costs a grace period.
	if !c.root {
		if err := c.cgroup.Add(pid); err != nil {
			return fmt.Errorf("cgroup %s: %w", c.cgroup.Path(), err)
		}
	}
	if oomScore != nil {
		if err := setOOMScore(pid, *oomScore); err != nil {
			return fmt.Errorf("process.oomScoreAdj: %w", err)
		}
	}
	if !c.root {
		c.init.pid = pid
	}
	return nil
}

// addMounts gives the gofer the root and the bind mounts of the container.
func (c *container) addMounts(req *controlapi.CreateContainerRequest, spec *specs.Spec, conf *config, files *fileList) error {
	mode, err := overlayOf(conf, spec.Annotations)
	if err != nil {
		return fail(errdefs.ErrInvalidArgument, "%v", err)
	}
	root := rootPath(c.bundle, spec)
	if err := c.addUpper(req, mode, root, files); err != nil {
		return err
	}
	image, err := openRootImage(conf, spec.Annotations)
	if err != nil {
		return fail(errdefs.ErrInvalidArgument, "%v", err)
	}
	if image != nil {
		addRootImage(req, image, files)
		return c.addBinds(req, spec, files)
	}
	// With the overlay nothing that the guest writes reaches the files of the root.
	readonly := spec.Root.Readonly || mode.medium != mediumNone
	if err := c.addMount(req, controlapi.RootfsIndex, root, true, readonly, files); err != nil {
		return fmt.Errorf("root file system: %w", err)
	}
	return c.addBinds(req, spec, files)
}

// addBinds gives the gofer the bind mounts of the container.
func (c *container) addBinds(req *controlapi.CreateContainerRequest, spec *specs.Spec, files *fileList) error {
	for i := range spec.Mounts {
		m := &spec.Mounts[i]
		if !isBind(m) {
			continue
		}
		source := m.Source
		if source[0] != '/' {
			source = c.bundle + "/" + source
		}
		recursive := slices.Contains(m.Options, "rbind")
		readonly := slices.Contains(m.Options, "ro") || slices.Contains(m.Options, "rro")
		if err := c.addMount(req, i, source, recursive, readonly, files); err != nil {
			return fmt.Errorf("bind mount on %s: %w", m.Destination, err)
		}
	}
	return nil
}

func (c *container) addMount(req *controlapi.CreateContainerRequest, index int, path string, recursive, readonly bool, files *fileList) error {
	tree, err := fsproto.CloneTree(path, recursive)
	if err != nil {
		return err
	}
	defer tree.Close()
	root, err := c.sb.files.AddMount(c.id, index, tree, readonly)
	if err != nil {
		return err
	}
	st, err := root.Stat()
	if err != nil {
		root.Close()
		return err
	}
	file := controlapi.NoFile
	if c.sb.conf.FileAccessMode == "remote" {
		root.Close() // the Sentry asks the gofer for it
	} else {
		file = files.addOwned(root)
	}
	req.Mounts = append(req.Mounts, controlapi.Mount{
		Index:    index,
		File:     file,
		IsDir:    st.IsDir(),
		ReadOnly: readonly,
	})
	return nil
}
