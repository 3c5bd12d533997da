package boot

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// mountOpts is a parsed options list of an OCI mount.
type mountOpts struct {
	flags uintptr  // unix.MS_* of the mount itself
	bind  bool     // bind or rbind
	data  []string // file system options: mode=755, size=64k
}

// mountFlagByOption maps the names of mount(8) to the flags they set or clear.
var mountFlagByOption = map[string]struct {
	flag  uintptr
	clear bool
}{
	"ro": {unix.MS_RDONLY, false}, "rw": {unix.MS_RDONLY, true},
	"nosuid": {unix.MS_NOSUID, false}, "suid": {unix.MS_NOSUID, true},
	"nodev": {unix.MS_NODEV, false}, "dev": {unix.MS_NODEV, true},
	"noexec": {unix.MS_NOEXEC, false}, "exec": {unix.MS_NOEXEC, true},
	"noatime": {unix.MS_NOATIME, false}, "atime": {unix.MS_NOATIME, true},
	"nodiratime": {unix.MS_NODIRATIME, false}, "diratime": {unix.MS_NODIRATIME, true},
	"relatime": {unix.MS_RELATIME, false}, "norelatime": {unix.MS_RELATIME, true},
	"strictatime": {unix.MS_STRICTATIME, false}, "nostrictatime": {unix.MS_STRICTATIME, true},
	"sync": {unix.MS_SYNCHRONOUS, false}, "async": {unix.MS_SYNCHRONOUS, true},
	"dirsync": {unix.MS_DIRSYNC, false}, "silent": {unix.MS_SILENT, false},
	"defaults": {0, false},
	// A read-only bind tree is made read-only by the shim as a whole.
	"rro": {unix.MS_RDONLY, false},
}

// propagationOptions are accepted: nothing of the host can be mounted into a
// running container, and nothing of the container reaches the host, so that
// each of them means private here.
var propagationOptions = map[string]bool{
	"private": true, "rprivate": true, "slave": true, "rslave": true,
	"shared": true, "rshared": true, "unbindable": true, "runbindable": true,
}

// parseMountOptions splits the options of mount number i. Options that are
// not flags go to the file system; a bind mount has none, so there they are
// refused.
func parseMountOptions(i int, typ string, options []string) (mountOpts, error) {
	var m mountOpts
	for _, o := range options {
		switch f, ok := mountFlagByOption[o]; {
		case ok && f.clear:
			m.flags &^= f.flag
		case ok:
			m.flags |= f.flag
		case o == "bind" || o == "rbind":
			m.bind = true
		case propagationOptions[o]:
		case o == "tmpcopyup":
			return m, fmt.Errorf("mounts[%d]: option %q is not supported: put the files into the image or mount a directory", i, o)
		default:
			m.data = append(m.data, o)
		}
	}
	if typ == "bind" {
		m.bind = true
	}
	if m.bind && len(m.data) > 0 {
		return m, fmt.Errorf("mounts[%d]: option %q is not one of a bind mount", i, strings.Join(m.data, ","))
	}
	return m, nil
}
