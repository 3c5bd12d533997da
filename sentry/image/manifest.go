package image

import (
	"os"

	"runsc/pkg/imagefmt"
)

// Names of the files of an image.
const (
	ManifestFile = imagefmt.ManifestFile
	KernelFile   = imagefmt.KernelFile
	IndexFile    = imagefmt.IndexFile
	PagesFile    = imagefmt.PagesFile
)

// ManifestMagic is the value of Manifest.Magic.
const ManifestMagic = imagefmt.ManifestMagic

// The manifest is the shim's too, which must not import this package.
type (
	Manifest          = imagefmt.Manifest
	ManifestContainer = imagefmt.ManifestContainer
	ManifestFileInfo  = imagefmt.ManifestFileInfo
)

// WriteManifest puts the manifest in place: the image is complete then.
func WriteManifest(dir *os.Root, m *Manifest) error { return imagefmt.WriteManifest(dir, m) }
