package shim

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"runsc/pkg/controlapi"
	"runsc/pkg/imagefmt"
)

// Checkpoint writes an image that is none. The second argument of init tells
// how that goes.
func (f *fakeKernel) Checkpoint(req *controlapi.CheckpointRequest, files []*os.File) (*controlapi.CheckpointResponse, error) {
	defer func() {
		for _, file := range files {
			file.Close()
		}
	}()
	f.mu.Lock()
	c, err := f.get(req.ID)
	if err != nil {
		f.mu.Unlock()
		return nil, err
	}
	how := strings.Join(c.procs[""].args[1:], " ")
	cancel := c.cancel
	f.mu.Unlock()
	if len(files) != len(imagefmt.StateFiles) {
		return nil, fmt.Errorf("%d files", len(files))
	}
	m := &imagefmt.Manifest{
		Magic: imagefmt.ManifestMagic, Format: imagefmt.Format, CPUFeatures: []string{"fpu"}, Pod: req.Pod,
		Validate: req.ValidateMetadata, Compressed: req.Compress, Files: map[string]imagefmt.ManifestFileInfo{},
		Containers: []imagefmt.ManifestContainer{{ID: req.ID}},
	}
	for i, name := range imagefmt.StateFiles {
		n, err := fmt.Fprintf(files[i], "this is %s", name)
		if err != nil {
			return nil, err
		}
		m.Files[name] = imagefmt.ManifestFileInfo{Size: int64(n)}
	}
	switch how {
	case "slow":
		<-cancel
		return nil, controlapi.Errorf(controlapi.CodeCanceled, "cancelled")
	case "late": // saves though it was told not to
		<-cancel
	case "fails":
		return nil, controlapi.Errorf(controlapi.CodeInternal, "write pages.img: no space left on device")
	case "lies":
		files[2].Truncate(3)
	case "nonsense":
		m.Magic = "?"
	case "crash":
		os.Exit(1)
	}
	f.mu.Lock()
	c.saved = req
	c.paused = c.paused || req.Exit
	f.mu.Unlock()
	return &controlapi.CheckpointResponse{Manifest: m}, nil
}

// CancelCheckpoint implements control.Handler.
func (f *fakeKernel) CancelCheckpoint(id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, err := f.get(id)
	if err != nil {
		return err
	}
	select {
	case <-c.cancel:
	default:
		close(c.cancel)
	}
	return nil
}

// checkRestore reads the files of an image.
func (f *fakeKernel) checkRestore(r *controlapi.Restore, files []*os.File) error {
	if _, err := imagefmt.ParseManifest(r.Manifest); err != nil {
		return err
	}
	for i, name := range imagefmt.StateFiles {
		b, err := io.ReadAll(files[r.Files[i]])
		if err != nil {
			return err
		}
		if string(b) != "this is "+name {
			return controlapi.Errorf(controlapi.CodeInvalidArgument, "%s is damaged", name)
		}
	}
	return nil
}

// endRestore says how the background loader fared.
func (f *fakeKernel) endRestore(id string, args []string) {
	if len(args) > 1 && args[1] == "damaged" {
		f.srv.NotifyRestoreFailed(id, errors.New("pages.img is damaged at offset 4096"))
		return
	}
	f.srv.NotifyRestoreLoaded(id, 4096, time.Millisecond)
}
