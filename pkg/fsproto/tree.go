package fsproto

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// CloneTree returns a detached copy of the mount tree at path, with or without
// the mounts below it (rbind or bind). The copy is not in any mount namespace,
// so `..` from a directory in it ends at its root. It is private: mounts made later
// under path on the host do not appear in it. Symbolic links in path are
// followed.
func CloneTree(path string, recursive bool) (*os.File, error) {
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC)
	if recursive {
		flags |= unix.AT_RECURSIVE
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, flags)
	if err != nil {
		return nil, fmt.Errorf("open_tree %s: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	attr := unix.MountAttr{Propagation: unix.MS_PRIVATE}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil && !errors.Is(err, unix.EINVAL) {
		f.Close()
		return nil, fmt.Errorf("mount_setattr %s: %w", path, err)
	}
	return f, nil
}

// restrictTree makes a detached tree nosuid and nodev, so that nobody can open
// a host device through it, and read-only if asked.
func restrictTree(tree *os.File, readonly bool) error {
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOSUID}
	if readonly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	var serr error
	raw, err := tree.SyscallConn()
	if err != nil {
		return err
	}
	if err := raw.Control(func(fd uintptr) {
		serr = unix.MountSetattr(int(fd), "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr)
	}); err != nil {
		return err
	}
	if serr != nil {
		return fmt.Errorf("mount_setattr %s: %w", tree.Name(), serr)
	}
	return nil
}
