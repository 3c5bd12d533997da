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

// regularOrDir says what may be opened through a door: opening other files may
// wait, or wake a device.
func regularOrDir(mode uint32) bool {
	return mode&unix.S_IFMT == unix.S_IFDIR || mode&unix.S_IFMT == unix.S_IFREG
}
