package imagefmt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Format is the version of the format that this code writes. It reads all
// from 1 on.
const Format = 1

// Names of the files of an image.
const (
	ManifestFile = "manifest.json"
	KernelFile   = "kernel.img"
	IndexFile    = "pages.idx"
	PagesFile    = "pages.img"
)

// manifestTemp is the manifest before it is complete.
const manifestTemp = "manifest.json.tmp"

// StateFiles are the files of an image besides the manifest, in the order in
// which they travel over the control channel.
var StateFiles = [...]string{KernelFile, IndexFile, PagesFile}

// Manifest is manifest.json. It is written last: a directory without it is
// not an image.
type Manifest struct {
	Magic  string `json:"magic"` // ManifestMagic
	Format int    `json:"format"`
	// Arch is the processor architecture, CPUFeatures what of it the guest
	// could see (names as in /proc/cpuinfo).
	Arch        string    `json:"arch"`
	CPUFeatures []string  `json:"cpuFeatures"`
	Created     time.Time `json:"created"`
	// Pod is set for an image of all containers of a pod.
	Pod        bool                `json:"pod"`
	Containers []ManifestContainer `json:"containers"`
	// PauseNanos is how long the guest stood still.
	PauseNanos int64 `json:"pauseNanos"`
	// Validate is set if the sizes and times of open files are recorded and
	// to be checked at restore.
	Validate   bool   `json:"validateMetadata"`
	Compressed bool   `json:"compressed"`
	Pages      uint64 `json:"pages"` // that are stored
	// Files are the image's other files.
	Files map[string]ManifestFileInfo `json:"files"`
}

// ManifestMagic is the value of Manifest.Magic.
const ManifestMagic = "runsc-checkpoint"

// ManifestContainer is a container in an image.
type ManifestContainer struct {
	ID   string `json:"id"`
	Name string `json:"name"` // CRI's container name, if any
	Root bool   `json:"root"`
	// Spec is what the container was made from (specs.Spec). It is there to be
	// read; a restore takes nothing from it.
	Spec json.RawMessage `json:"spec,omitempty"`
}

// ManifestFileInfo describes a file of an image.
type ManifestFileInfo struct {
	Size   int64  `json:"size"`
	CRC32C uint32 `json:"crc32c,omitempty"` // not of pages.img, whose chunks have their own
}

// maxManifest bounds manifest.json.
const maxManifest = 16 << 20

// maxContainers bounds the containers of one image.
const maxContainers = 1024

// WriteManifest puts the manifest in place durably: the image is complete
// then.
func WriteManifest(dir *os.Root, m *Manifest) error {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if len(b) >= maxManifest {
		return fmt.Errorf("%s of %d bytes is too large", ManifestFile, len(b))
	}
	f, err := dir.OpenFile(manifestTemp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = dir.Rename(manifestTemp, ManifestFile)
	}
	if err != nil {
		dir.Remove(manifestTemp)
		return err
	}
	return syncDir(dir)
}

func syncDir(dir *os.Root) error {
	d, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// ReadManifest reads and checks the manifest of an image given by its open
// manifest file.
func ReadManifest(f io.Reader) (*Manifest, error) {
	m, _, err := readManifest(f)
	return m, err
}

// readManifest also returns the bytes read.
func readManifest(f io.Reader) (*Manifest, []byte, error) {
	b, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
	if err != nil {
		return nil, nil, err
	}
	if len(b) > maxManifest {
		return nil, nil, fmt.Errorf("%s is too large", ManifestFile)
	}
	m, err := ParseManifest(b)
	return m, b, err
}

// ParseManifest decodes and checks a manifest.
func ParseManifest(b []byte) (*Manifest, error) {
	m := &Manifest{}
	err := json.NewDecoder(bytes.NewReader(b)).Decode(m)
	if err != nil && m.Magic == "" {
		return nil, fmt.Errorf("%s is damaged, or not that of a checkpoint image: %v", ManifestFile, err)
	}
	if cerr := m.Check(); cerr != nil {
		// First: a newer format may hold what does not decode here.
		return nil, cerr
	}
	if err != nil {
		return nil, fmt.Errorf("%s is damaged: %v", ManifestFile, err)
	}
	return m, nil
}

// Check checks what does not depend on the host.
func (m *Manifest) Check() error {
	switch {
	case m.Magic != ManifestMagic:
		return fmt.Errorf("%s is not that of a checkpoint image", ManifestFile)
	case m.Format < 1 || m.Format > Format:
		return fmt.Errorf("the image has format %d, this version reads 1 to %d", m.Format, Format)
	case len(m.Containers) == 0:
		return fmt.Errorf("%s is damaged: it lists no container", ManifestFile)
	case len(m.Containers) > maxContainers:
		return fmt.Errorf("%s is damaged: it lists %d containers", ManifestFile, len(m.Containers))
	}
	for _, name := range StateFiles {
		if m.Files[name].Size < 0 {
			return fmt.Errorf("%s is damaged: %s has a negative size", ManifestFile, name)
		}
	}
	return nil
}

// Find returns the container that a restore means: by id, by CRI's name, or,
// if what is empty, the only one or the root.
func (m *Manifest) Find(what string) (*ManifestContainer, error) {
	var root *ManifestContainer
	for i := range m.Containers {
		c := &m.Containers[i]
		if what != "" && (c.ID == what || c.Name == what) {
			return c, nil
		}
		if c.Root || len(m.Containers) == 1 {
			root = c
		}
	}
	switch {
	case what != "":
		return nil, fmt.Errorf("the image has no container %q", what)
	case root == nil:
		return nil, errors.New("the image has several containers and none was named")
	}
	return root, nil
}
