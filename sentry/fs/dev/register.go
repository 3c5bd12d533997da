package dev

import (
	"golang.org/x/sys/unix"

	"runsc/sentry/vfs"
)

// Node is a device node that every container has in /dev.
type Node struct {
	Name         string
	Major, Minor uint32
}

// Default lists the nodes that the OCI runtime specification requires
// (config-linux.md, Default Devices), without those that are links.
var Default = []Node{
	{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0},
}

// Register makes the devices known to vfs.
func Register() {
	for _, d := range []struct {
		minor uint32
		ops   vfs.FileOps
	}{
		{3, null{}}, {5, zero{}}, {7, full{}}, {8, random{}}, {9, random{}},
	} {
		vfs.RegisterDevice(unix.S_IFCHR, 1, d.minor, func(vfs.Caller, *vfs.Dentry, uint32) (vfs.FileOps, error) {
			return d.ops, nil
		})
	}
	// tty(4): the controlling terminal. Without one open fails with ENXIO,
	// which is also what vfs answers for a device nobody registered.
}

// Known tells whether a character device with these numbers works here.
func Known(major, minor uint32) bool {
	if major == 10 && minor == 229 {
		return true // /dev/fuse, of package fuse
	}
	for _, n := range Default {
		if n.Major == major && n.Minor == minor {
			return true
		}
	}
	return false
}
