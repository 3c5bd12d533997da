package imagefmt

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// ErrNotEmpty is the error for a directory that has something in it.
var ErrNotEmpty = errors.New("the image directory is not empty")

// RemoveIncomplete makes room for a new image: it removes what an interrupted
// save has left. A directory that holds a complete image, or anything else,
// is left as it is.
func RemoveIncomplete(dir *os.Root) error {
	d, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer d.Close()
	// More names than an image has cannot be an image's.
	entries, err := d.ReadDir(len(StateFiles) + 2)
	if err != nil && err != io.EOF {
		return err
	}
	for _, e := range entries {
		switch name := e.Name(); {
		case name == ManifestFile:
			return fmt.Errorf("%w: it holds a complete image", ErrNotEmpty)
		case name != manifestTemp && !slices.Contains(StateFiles[:], name):
			return fmt.Errorf("%w: %q is in it", ErrNotEmpty, name)
		}
	}
	if len(entries) == 0 {
		return nil
	}
	return Remove(dir)
}

// Remove removes an image from a directory, the manifest first.
func Remove(dir *os.Root) error {
	var first error
	for _, name := range append([]string{ManifestFile, manifestTemp}, StateFiles[:]...) {
		if err := dir.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) && first == nil {
			first = err
		}
	}
	return first
}
