package image

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// Names of the files of an image.
const (
	ManifestFile = "manifest.json"
	KernelFile   = "kernel.img"
	IndexFile    = "pages.idx"
	PagesFile    = "pages.img"
)

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
	ID   string          `json:"id"`
	Name string          `json:"name"` // CRI's container name, if any
	Root bool            `json:"root"`
	Spec json.RawMessage `json:"spec"`
}

// ManifestFileInfo describes a file of an image.
type ManifestFileInfo struct {
	Size   int64  `json:"size"`
	CRC32C uint32 `json:"crc32c,omitempty"` // not of pages.img, whose chunks have their own
}

// maxManifest bounds manifest.json.
const maxManifest = 64 << 20

// WriteManifest puts the manifest in place: the image is complete then.
func WriteManifest(dir *os.Root, m *Manifest) error {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	const tmp = "manifest.json.tmp"
	f, err := dir.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
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
		err = dir.Rename(tmp, ManifestFile)
	}
	if err != nil {
		dir.Remove(tmp)
	}
	return err
}

// ReadManifest reads and checks the manifest of an image given by its open
// manifest file.
func ReadManifest(f io.Reader) (*Manifest, error) {
	b, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxManifest {
		return nil, errors.New("manifest.json is too large")
	}
	m := &Manifest{}
	if err := json.NewDecoder(bytes.NewReader(b)).Decode(m); err != nil || m.Magic != ManifestMagic {
		return nil, errors.New("manifest.json is not that of a checkpoint image")
	}
	if m.Format < 1 || m.Format > Format {
		return nil, fmt.Errorf("the image has format %d, this version reads 1 to %d", m.Format, Format)
	}
	return m, nil
}

// OpenManifest reads the manifest of the image in a directory.
func OpenManifest(dir string) (*Manifest, error) {
	f, err := os.Open(filepath.Join(dir, ManifestFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s holds no complete checkpoint image: %s is missing", dir, ManifestFile)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m, err := ReadManifest(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return m, nil
}
