package shim

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"runsc/pkg/controlapi"
)

// Annotations that name a file with the file system of a container's root,
// which the sandbox itself reads.
const (
	annotationRootType   = "dev.runsc.rootfs.type"
	annotationRootSource = "dev.runsc.rootfs.source"
)

// openRootImage opens the file that the annotations name, nil if they name
// none.
func openRootImage(conf *config, annotations map[string]string) (*os.File, error) {
	typ, source := annotations[annotationRootType], annotations[annotationRootSource]
	switch {
	case typ == "" && source == "":
		return nil, nil
	case typ == "" || source == "":
		return nil, fmt.Errorf("the annotations %s and %s go together", annotationRootType, annotationRootSource)
	case typ != "erofs":
		return nil, fmt.Errorf("annotation %s is %q, only \"erofs\" is possible", annotationRootType, typ)
	}
	f, err := openBelow(door{annotationRootSource, "rootfs-allow", conf.RootfsAllow}, source)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("annotation %s: %s is not a regular file", annotationRootSource, source)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// addRootImage gives the image to the Sentry.
func addRootImage(req *controlapi.CreateContainerRequest, f *os.File, files *fileList) {
	// Whatever the mode of the descriptor, nothing is ever written.
	req.RootImage = &controlapi.RootImage{Type: "erofs", File: files.addOwned(f)}
}

// door is how annotations get at files of the host: below directories that a
// key of a configuration of root's lists.
type door struct {
	annotation, key string
	allow           []string
}

// checkOwner refuses what others than root could still change while a container
// lives on it.
func checkOwner(f *os.File, name string) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	switch {
	case st.Uid != 0:
		return fmt.Errorf("%s belongs to user %d, not to root", name, st.Uid)
	case st.Mode&0o022 != 0:
		return fmt.Errorf("%s can be written by others than root (mode %#o)", name, st.Mode&0o7777)
	}
	return nil
}

// regularOrDir says what may be opened through a door: opening other files may
// wait, or wake a device.
func regularOrDir(mode uint32) bool {
	return mode&unix.S_IFMT == unix.S_IFDIR || mode&unix.S_IFMT == unix.S_IFREG
}
