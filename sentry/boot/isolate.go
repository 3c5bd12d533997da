package boot

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// keptCaps are the capabilities that serving host files needs: the Sentry
// checks the guest's permissions itself and acts on the host files that it was
// given as their owner would.
const keptCaps = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH |
	1<<unix.CAP_FOWNER | 1<<unix.CAP_FSETID | 1<<unix.CAP_MKNOD | 1<<unix.CAP_SETFCAP

// enterEmptyRoot moves the process, which is alone in a new mount namespace,
// into an empty read-only root. It returns a descriptor of the directory
// /proc/self/fd of a procfs instance of the new pid namespace that is mounted
// nowhere, or -1 when the host does not allow one (a masked /proc outside).
func enterEmptyRoot() (selfFD int, err error) {
	selfFD = procSelfFD()
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return -1, fmt.Errorf("cannot make the sandbox's mounts private: %w", err)
	}
	// /proc is a directory that every host has; what is mounted there now is
	// detached with the rest of the old tree below.
	if err := unix.Mount("none", "/proc", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=4k,nr_inodes=2,mode=555"); err != nil {
		return -1, fmt.Errorf("cannot mount an empty root: %w", err)
	}
	if err := unix.Chdir("/proc"); err != nil {
		return -1, err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return -1, fmt.Errorf("cannot pivot into the empty root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return -1, fmt.Errorf("cannot detach the host's mounts: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return -1, fmt.Errorf("cannot make the empty root read-only: %w", err)
	}
	return selfFD, unix.Chdir("/")
}

// procSelfFD opens /proc/self/fd of a detached procfs of this pid namespace.
func procSelfFD() int {
	fs, err := unix.Fsopen("proc", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1
	}
	mnt, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return -1
	}
	defer unix.Close(mnt)
	fd, err := unix.Openat(mnt, "self/fd", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return fd
}

// dropPrivileges leaves the process's threads with keptCaps only, for good.
func dropPrivileges() error {
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if keptCaps&(1<<c) != 0 {
			continue
		}
		// EINVAL: the host does not know the capability.
		if _, _, e := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0, 0, 0, 0); e != 0 && e != unix.EINVAL {
			return fmt.Errorf("cannot drop capability %d from the bounding set: %w", c, e)
		}
	}
	if err := capsetAllThreads(keptCaps); err != nil {
		return fmt.Errorf("cannot drop capabilities: %w", err)
	}
	if _, _, e := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); e != 0 {
		return fmt.Errorf("cannot set no_new_privs: %w", e)
	}
	return nil
}
