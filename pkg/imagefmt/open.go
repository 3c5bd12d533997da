package imagefmt

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Opened is an image opened for reading. What it was opened from may be
// removed.
type Opened struct {
	Manifest *Manifest
	// Raw is the manifest as read.
	Raw []byte
	// State are the files that StateFiles names.
	State [len(StateFiles)]*os.File
}

// Close closes the files.
func (o *Opened) Close() {
	for _, f := range o.State {
		if f != nil {
			f.Close()
		}
	}
}

// Identity is the same for all who open one image: containers of a pod that
// are restored one by one are known by it to belong together.
func (o *Opened) Identity() string {
	sum := sha256.Sum256(o.Raw)
	return hex.EncodeToString(sum[:])
}

// Open opens and checks the image in a directory, which may be hostile: no
// link is followed in it, nothing but regular files is opened, nothing waits.
// The last element of dir may be no link either.
func Open(dir string) (*Opened, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("image directory %s: %w", dir, err)
	}
	d := os.NewFile(uintptr(fd), dir)
	defer d.Close()
	return OpenIn(d)
}

// OpenIn opens and checks the image in an open directory.
func OpenIn(dir *os.File) (_ *Opened, err error) {
	o := &Opened{}
	defer func() {
		if err != nil {
			o.Close()
			err = fmt.Errorf("image %s: %w", dir.Name(), err)
		}
	}()
	mf, err := openRegular(dir, ManifestFile)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("it is incomplete or no checkpoint image: %s is missing", ManifestFile)
	}
	if err != nil {
		return nil, err
	}
	defer mf.Close()
	if o.Manifest, o.Raw, err = readManifest(mf); err != nil {
		return nil, err
	}
	for i, name := range StateFiles {
		if o.State[i], err = openRegular(dir, name); errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("it is incomplete: %s is missing", name)
		}
		if err != nil {
			return nil, err
		}
	}
	return o, o.checkSizes()
}

// checkSizes compares the files with what the manifest says of them.
func (o *Opened) checkSizes() error {
	for i, name := range StateFiles {
		st, err := o.State[i].Stat()
		if err != nil {
			return err
		}
		switch want := o.Manifest.Files[name].Size; {
		case st.Size() < want:
			return fmt.Errorf("%s is cut off: it has %d bytes of %d", name, st.Size(), want)
		case st.Size() > want:
			return fmt.Errorf("%s has %d bytes, %d more than the manifest says", name, st.Size(), st.Size()-want)
		}
	}
	return nil
}

// openRegular opens a regular file of a directory. A fifo or device is not
// opened at all: the name is opened without its contents first.
func openRegular(dir *os.File, name string) (*os.File, error) {
	// O_NONBLOCK: whatever it is by now, the open returns.
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return f, nil
}
