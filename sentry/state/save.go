package state

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"runsc/pkg/imagefmt"
	"runsc/sentry/image"
	"runsc/sentry/kernel"
	"runsc/sentry/mem"
	"runsc/sentry/mm"
	"runsc/sentry/vfs"
)

// metaID is the number of the one Meta record; ids of Saver count from 1 and
// never reach it.
const metaID image.ID = 1 << 62

// Options say what is saved and how.
type Options struct {
	Containers []*kernel.Container
	// Others are the sandbox's other containers: they stand still for the cut
	// too, since they may change what the image has of shared objects.
	Others []*kernel.Container
	Memory *mem.File
	Caller vfs.Caller
	// Kernel, Index and Pages are the files of the image, empty.
	Kernel, Index, Pages *os.File
	// Validate records sizes and times of open host files.
	Validate bool
	Compress bool
	// LeavePaused leaves the containers paused when all is written.
	LeavePaused bool
}

// Save writes an image of the containers and returns its manifest, without
// what only the shim knows. The containers run on, or stay paused if they
// were, also on an error. The tasks stand still while records are written, not
// while memory is. ctx cancels it.
func Save(ctx context.Context, o Options) (*imagefmt.Manifest, error) {
	pw, err := image.NewPageWriter(o.Pages, o.Index, o.Compress)
	if err != nil {
		return nil, err
	}
	snap, err := o.Memory.NewSnapshot(pw)
	if err != nil {
		return nil, fmt.Errorf("cannot begin a snapshot of memory: %w", err)
	}
	defer snap.Close()
	image.Warm()
	// No collection of garbage begins while the tasks stand still, and none is under way. A task that does not
	// stop for long, in a call of the host, must not keep others' garbage.
	percent := debug.SetGCPercent(-1)
	collect := sync.OnceFunc(func() { debug.SetGCPercent(percent) })
	defer time.AfterFunc(gcPatience, collect).Stop()
	defer collect()
	started := time.Now()
	resume, err := stop(ctx, &o)
	if err != nil {
		return nil, err
	}
	defer func() { resume() }()
	recs, set, err := saveRecords(o)
	if err != nil {
		return nil, err
	}
	if err := snap.Begin(set); err != nil {
		return nil, fmt.Errorf("cannot begin a snapshot of memory: %w", err)
	}
	swapAll(o)
	if o.LeavePaused {
		for _, c := range o.Containers {
			if err := c.Pause(ctx); err != nil {
				return nil, err
			}
		}
	}
	resume()
	resume = func() {}
	pause := time.Since(started)
	collect()

	stopWatch := context.AfterFunc(ctx, func() { snap.Fail(context.Cause(ctx)) })
	defer stopWatch()
	m, err := finish(o, pw, snap, recs)
	if err != nil {
		if o.LeavePaused {
			for _, c := range o.Containers {
				c.Resume()
			}
		}
		return nil, err
	}
	m.PauseNanos = int64(pause)
	return m, nil
}

// gcPatience bounds how long a save keeps garbage from being collected.
const gcPatience = time.Second

// stop stops all containers; the function returned lets them run on. A pod's
// image lacks those that have ended meanwhile.
func stop(ctx context.Context, o *Options) (resume func(), err error) {
	var stopped []*kernel.Container
	resume = func() {
		for _, c := range stopped {
			c.ResumeAfterSave()
		}
	}
	list := slices.Concat(o.Containers, o.Others)
	named, in := o.Containers[0], o.Containers
	for i, c := range list {
		err := c.StopForSave(ctx)
		if err == kernel.ErrNotRunning && c != named {
			if i < len(in) {
				o.Containers = slices.DeleteFunc(slices.Clone(o.Containers), func(x *kernel.Container) bool { return x == c })
			}
			continue
		}
		if err != nil {
			resume()
			return nil, fmt.Errorf("cannot stop container %s: %w", c.ID(), err)
		}
		stopped = append(stopped, c)
	}
	return resume, nil
}

// records is kernel.img in memory. It is whole when w is closed.
type records struct {
	out bytes.Buffer
	w   *image.Writer
}

// saveRecords collects the records: the tasks stand still.
func saveRecords(o Options) (*records, *mem.FrameSet, error) {
	recs := &records{}
	recs.w = image.NewWriter(&recs.out)
	set := &mem.FrameSet{}
	env := &kernel.SaveEnv{SaveEnv: &vfs.SaveEnv{Saver: image.NewSaver(recs.w), Frames: set, Caller: o.Caller, Validate: o.Validate}}
	for _, c := range o.Others {
		for _, ns := range c.MountNamespaces() {
			if env.Outside == nil {
				env.Outside = map[*vfs.Namespace]string{}
			}
			env.Outside[ns] = c.ID()
		}
	}
	for _, c := range o.Containers {
		for _, ns := range c.MountNamespaces() {
			delete(env.Outside, ns)
		}
	}
	for _, c := range o.Containers {
		if err := c.Save(env); err != nil {
			return nil, nil, fmt.Errorf("container %s: %w", c.ID(), err)
		}
	}
	if err := env.Finish(); err != nil {
		return nil, nil, err
	}
	frames, err := o.Memory.SaveFrames(env.Saver, set)
	if err != nil {
		return nil, nil, err
	}
	if err := env.Put(image.KindMeta, &image.Meta{ID: metaID, Frames: frames}); err != nil {
		return nil, nil, err
	}
	return recs, set, nil
}

// swapAll takes the access to the snapshot's memory from all tasks of the
// containers, those made by exec too, and from those of others that share
// memory.
func swapAll(o Options) {
	seen := map[*mm.MM]bool{}
	for i, c := range slices.Concat(o.Containers, o.Others) {
		for _, tg := range c.Processes() {
			tg.WithMM(func(m *mm.MM) {
				if !seen[m] && (i < len(o.Containers) || m.SharesFrames()) {
					seen[m] = true
					m.SwapForSnapshot()
				}
			})
		}
	}
}

// finish writes what the guest need not wait for.
func finish(o Options, pw *image.PageWriter, snap *mem.Snapshot, recs *records) (*imagefmt.Manifest, error) {
	if _, err := recs.w.Close(); err != nil {
		return nil, err
	}
	records := recs.out.Bytes()
	if _, err := o.Kernel.Write(records); err != nil {
		return nil, fmt.Errorf("%s: %w", imagefmt.KernelFile, plain(err))
	}
	if err := snap.Write(); err != nil {
		return nil, fmt.Errorf("%s: %w", imagefmt.PagesFile, plain(err))
	}
	pages, imgBytes, idxBytes, err := pw.Close()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", imagefmt.PagesFile, plain(err))
	}
	m := &imagefmt.Manifest{
		Magic: imagefmt.ManifestMagic, Format: imagefmt.Format, Arch: runtime.GOARCH, Pages: pages,
		Validate: o.Validate, Compressed: o.Compress,
		Files: map[string]imagefmt.ManifestFileInfo{
			imagefmt.KernelFile: {Size: int64(len(records)), CRC32C: image.Checksum(records)},
			imagefmt.IndexFile:  {Size: int64(idxBytes)},
			imagefmt.PagesFile:  {Size: int64(imgBytes)},
		},
	}
	for _, c := range o.Containers {
		m.Containers = append(m.Containers, imagefmt.ManifestContainer{ID: c.ID()})
	}
	return m, nil
}

// plain strips the name that os gives a descriptor of the control channel.
func plain(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
