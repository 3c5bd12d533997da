package shim

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"runsc/pkg/controlapi"
)

// annotationOverlay overrides the key overlay2 for one container.
const annotationOverlay = "dev.runsc.overlay2"

// Where the upper layer of a root keeps its data.
const (
	mediumNone   = "none"   // there is none: writes go to the host
	mediumMemory = "memory" // in the sandbox's memory
	mediumSelf   = "self"   // in a file without a name in the root itself
	mediumDir    = "dir"    // in one in a directory of the host
)

// overlayMode is a parsed value of overlay2.
type overlayMode struct {
	medium string
	dir    string // for mediumDir
	size   uint64 // bound of the data in bytes, 0 for none
}

// parseOverlay reads root:memory, root:self, root:dir=PATH, each with an
// optional ",size=N", or none.
func parseOverlay(s string) (overlayMode, error) {
	bad := func() (overlayMode, error) {
		return overlayMode{}, fmt.Errorf("overlay2 is %q, \"root:memory\", \"root:self\", \"root:dir=PATH\", each with \",size=N\" or not, and \"none\" are possible", s)
	}
	switch s {
	case "":
		return overlayMode{medium: mediumMemory}, nil
	case overlayNone:
		return overlayMode{medium: mediumNone}, nil
	}
	rest, ok := strings.CutPrefix(s, "root:")
	if !ok {
		return bad()
	}
	var o overlayMode
	medium, size, sized := cutLast(rest, ",size=")
	if sized {
		var err error
		if o.size, err = parseBytes(size); err != nil {
			return o, fmt.Errorf("overlay2 is %q: size %q: bytes, with k, m, g or t or without, are possible", s, size)
		}
	}
	switch dir, isDir := strings.CutPrefix(medium, "dir="); {
	case isDir && !filepath.IsAbs(dir):
		return o, fmt.Errorf("overlay2 is %q: the directory %q is not an absolute path", s, dir)
	case isDir:
		o.medium, o.dir = mediumDir, filepath.Clean(dir)
	case medium == mediumMemory || medium == mediumSelf:
		o.medium = medium
	default:
		return bad()
	}
	return o, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// parseBytes reads a number of bytes above 0 with k, m, g, t.
func parseBytes(s string) (uint64, error) {
	shift := 0
	if n := len(s); n > 0 {
		if i := strings.IndexByte("kmgt", s[n-1]|0x20); i >= 0 {
			shift, s = 10*(i+1), s[:n-1]
		}
	}
	n, err := strconv.ParseUint(s, 10, 62)
	if err != nil || n == 0 || n<<shift>>shift != n || n<<shift > 1<<62 {
		return 0, strconv.ErrRange
	}
	return n << shift, nil
}

// overlayOf takes the configuration's value unless an annotation says
// otherwise. An annotation cannot name a directory of the host: whoever may
// set annotations may not choose where on the host something is written.
func overlayOf(conf *config, annotations map[string]string) (overlayMode, error) {
	v, has := annotations[annotationOverlay]
	if !has || v == conf.Overlay2 {
		return parseOverlay(conf.Overlay2)
	}
	o, err := parseOverlay(v)
	if err != nil {
		return o, fmt.Errorf("annotation %s: %w", annotationOverlay, err)
	}
	if o.medium == mediumDir {
		return o, fmt.Errorf("annotation %s is %q: a directory can be named in the configuration only", annotationOverlay, v)
	}
	return o, nil
}

// addUpper tells the Sentry where the upper layer is, and opens the file that it is in.
func (c *container) addUpper(req *controlapi.CreateContainerRequest, o overlayMode, root string, files *fileList) error {
	if o.medium == mediumNone {
		return nil
	}
	req.Upper = &controlapi.Upper{File: controlapi.NoFile, SizeBytes: o.size}
	dir := o.dir
	switch o.medium {
	case mediumMemory:
		return nil
	case mediumSelf:
		dir = root
	}
	f, err := anonymousFile(dir)
	if err != nil {
		return fmt.Errorf("overlay2: cannot make a file for the upper layer in %s: %w", dir, err)
	}
	req.Upper.File = files.addOwned(f)
	return nil
}

// anonymousFile makes a file without a name: it is gone with its last
// descriptor, whatever becomes of whoever has it, and nobody finds it.
func anonymousFile(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), dir), nil
	}
	if err != unix.EOPNOTSUPP && err != unix.EISDIR {
		return nil, err
	}
	var b [8]byte
	rand.Read(b[:])
	d, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	name := ".runsc.upper." + hex.EncodeToString(b[:])
	f, err := d.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := d.Remove(name); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
