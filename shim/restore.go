package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"golang.org/x/sys/unix"

	"runsc/pkg/controlapi"
	"runsc/pkg/cpufeature"
	"runsc/pkg/imagefmt"
)

// Annotations of containers that have to do with images. containerd lets no
// options of ours through to a checkpoint or a restore.
const (
	annotationValidate  = "dev.runsc.validate-metadata"
	annotationCompress  = "dev.runsc.compress"
	annotationImage     = "dev.runsc.restore-image"
	annotationContainer = "dev.runsc.restore-container"
)

// saveOptions say how a container's images are made.
type saveOptions struct {
	validate bool
	compress bool
}

// saveOptionsOf takes the configuration's values unless an annotation says
// otherwise.
func saveOptionsOf(conf *config, annotations map[string]string) (saveOptions, error) {
	o := saveOptions{validate: conf.ValidateMetadata, compress: conf.Compression == compressionZstd}
	if v, has := annotations[annotationValidate]; has {
		on, err := strconv.ParseBool(v)
		if err != nil {
			return o, fmt.Errorf("annotation %s is %q, \"true\" and \"false\" are possible", annotationValidate, v)
		}
		o.validate = on
	}
	if v, has := annotations[annotationCompress]; has {
		switch v {
		case compressionNone, compressionZstd:
			o.compress = v == compressionZstd
		default:
			on, err := strconv.ParseBool(v)
			if err != nil {
				return o, fmt.Errorf("annotation %s is %q, %q, %q, \"true\" and \"false\" are possible", annotationCompress, v, compressionNone, compressionZstd)
			}
			o.compress = on
		}
	}
	return o, nil
}

// restoreSource is what a container was restored from.
type restoreSource struct {
	path      string
	container string // its id in the image
}

// restoreImage is an image opened for a Create.
type restoreImage struct {
	restoreSource
	*imagefmt.Opened
	validate bool
}

// openRestore opens and checks the image that a container is to be made from:
// the directory that containerd passes, or what an annotation names. It
// returns nil if there is none.
func openRestore(ctx context.Context, r *taskapi.CreateTaskRequest, conf *config, annotations map[string]string) (_ *restoreImage, err error) {
	im := &restoreImage{validate: true}
	named := annotations[annotationContainer]
	switch {
	case r.Checkpoint != "":
		im.path = r.Checkpoint
		if annotations[annotationImage] != "" {
			named = "" // both are left over from the container that was saved
		}
		im.Opened, err = openGiven(im.path)
	case annotations[annotationImage] != "":
		im.path = annotations[annotationImage]
		im.Opened, err = openAllowed(ctx, im.path, r.Bundle, conf.RestoreAllow)
	default:
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot restore: %w", err)
	}
	defer func() {
		if err != nil {
			im.Close()
		}
	}()
	if err := im.Manifest.CheckHost(); err != nil {
		return nil, fmt.Errorf("cannot restore from %s: %w", im.path, err)
	}
	for _, f := range cpufeature.Hidden(conf.CPUFeaturesMask) {
		if slices.Contains(im.Manifest.CPUFeatures, f) {
			return nil, fmt.Errorf("cannot restore from %s: the image needs the processor feature %q, which the config key cpu-features-mask hides", im.path, f)
		}
	}
	mc, err := pickContainer(im.Manifest, named, annotations)
	if err != nil {
		return nil, fmt.Errorf("cannot restore from %s: %w", im.path, err)
	}
	if err := controlapi.ValidateID(mc.ID); err != nil {
		return nil, fmt.Errorf("cannot restore from %s: container %w", im.path, err)
	}
	im.container = mc.ID
	if v, err := strconv.ParseBool(annotations[annotationValidate]); err == nil && !v {
		im.validate = false
	}
	return im, nil
}

// pickContainer chooses the container of an image: the one named, or of
// several that with the same name in its pod, or the root.
func pickContainer(m *imagefmt.Manifest, named string, annotations map[string]string) (*imagefmt.ManifestContainer, error) {
	if named == "" && len(m.Containers) > 1 {
		if name := annotations[annotationName]; name != "" {
			return m.Find(name)
		}
	}
	return m.Find(named)
}

// openGiven opens an image directory that containerd names. It is the user's,
// or a copy that containerd has unpacked; it is never changed or removed.
func openGiven(path string) (*imagefmt.Opened, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("the image path %q is not absolute", path)
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("image directory %s: %w", path, err)
	}
	dir := os.NewFile(uintptr(fd), path)
	defer dir.Close()
	return imagefmt.OpenIn(dir)
}

// openAllowed opens the image that an annotation names: whoever may write
// annotations reaches what is below the allowed directories, and through no
// link anything else.
func openAllowed(ctx context.Context, path, bundle string, allow []string) (*imagefmt.Opened, error) {
	f, err := openBelow(door{annotationImage, "restore-allow", allow}, path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	switch {
	case st.IsDir():
		o, err := imagefmt.OpenIn(f)
		if err != nil {
			return nil, err
		}
		for i, s := range o.State {
			if err := checkOwner(s, imagefmt.StateFiles[i]); err != nil {
				o.Close()
				return nil, fmt.Errorf("annotation %s: %s: %w", annotationImage, path, err)
			}
		}
		return o, nil
	case st.Mode().IsRegular():
		return imagefmt.OpenArchive(ctx, f, scratchOf(bundle))
	}
	return nil, fmt.Errorf("%s is neither a directory nor an archive", path)
}

// openBelow opens a directory or regular file below one of the allowed
// directories, without following any link on the way from there.
func openBelow(d door, path string) (*os.File, error) {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path {
		return nil, fmt.Errorf("annotation %s: %q is not a clean absolute path", d.annotation, path)
	}
	for _, prefix := range d.allow {
		rel, below := strings.CutPrefix(path, strings.TrimSuffix(prefix, "/")+"/")
		if !below || rel == "" {
			continue
		}
		base, err := unix.Open(prefix, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", d.key, prefix, err)
		}
		defer unix.Close(base)
		how := &unix.OpenHow{
			Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
		}
		fd, err := unix.Openat2(base, rel, how)
		if errors.Is(err, unix.ELOOP) {
			return nil, fmt.Errorf("annotation %s: there is a symbolic link in %s", d.annotation, path)
		}
		if err != nil {
			return nil, fmt.Errorf("annotation %s: %s: %w", d.annotation, path, err)
		}
		defer unix.Close(fd)
		// Only now is it known not to be a fifo or device, which an open
		// would wait for or wake.
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return nil, err
		}
		switch {
		case regularOrDir(st.Mode):
		case st.Mode&unix.S_IFMT == unix.S_IFLNK:
			return nil, fmt.Errorf("annotation %s: %s is a symbolic link", d.annotation, path)
		default:
			return nil, fmt.Errorf("annotation %s: %s is neither a directory nor a regular file", d.annotation, path)
		}
		rfd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("annotation %s: %s: %w", d.annotation, path, err)
		}
		f := os.NewFile(uintptr(rfd), path)
		if err := checkOwner(f, path); err != nil {
			f.Close()
			return nil, fmt.Errorf("annotation %s: %w", d.annotation, err)
		}
		return f, nil
	}
	return nil, fmt.Errorf("annotation %s: %s is not below a directory of the config key %s", d.annotation, path, d.key)
}

// scratchOf returns a directory on a disk for a container's temporary files:
// the bundle itself is in memory.
func scratchOf(bundle string) string {
	work := filepath.Join(bundle, "work")
	if st, err := os.Stat(work); err == nil && st.IsDir() {
		return work
	}
	return bundle
}

// request returns what the Sentry is told of the image.
func (im *restoreImage) request(files *fileList) *controlapi.Restore {
	r := &controlapi.Restore{
		Image:            im.Identity(),
		Container:        im.container,
		Manifest:         json.RawMessage(im.Raw),
		ValidateMetadata: im.validate && im.Manifest.Validate,
	}
	for i, f := range im.State {
		r.Files[i] = files.add(f)
	}
	return r
}

// noteRestoreLoaded says in the log and by an event that the container's image
// may be removed.
func (c *container) noteRestoreLoaded(n controlapi.RestoreLoadedNote) {
	if c.restored == nil {
		return
	}
	slog.Info("restored: the image is not needed any more", "container", c.id, "image", c.restored.path,
		"bytes", n.Bytes, "took", time.Duration(n.Nanos))
	c.svc.events.sendRestored(c.id, c.restored.path)
}
