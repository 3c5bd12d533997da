package isolate

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// HostFiles are the capabilities that acting on host files for a guest, whose
// permissions have been checked, needs.
const HostFiles = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH |
	1<<unix.CAP_FOWNER | 1<<unix.CAP_FSETID | 1<<unix.CAP_MKNOD | 1<<unix.CAP_SETFCAP

// Exec moves the process, which is alone in a mount namespace of its own, into
// an empty read-only root, leaves it with those of its capabilities that are
// in keep, for good, and executes this program again with the arguments argv
// (argv[0] included). It returns only if something failed.
func Exec(keep uint64, argv []string) error {
	runtime.LockOSThread() // for good: this thread is the process that goes on
	self, err := unix.Open("/proc/self/exe", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot open the program's own file: %w", err)
	}
	if err := emptyRoot(); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot set no_new_privs: %w", err)
	}
	if err := limitCaps(keep); err != nil {
		return fmt.Errorf("cannot drop capabilities: %w", err)
	}
	return fmt.Errorf("cannot execute the program anew: %w", execveat(self, argv, os.Environ()))
}

// limitCaps takes all capabilities but keep from the thread. With no_new_privs
// no exec gives any back, so that the bounding set does not matter.
func limitCaps(keep uint64) error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return err
	}
	for i := range data {
		k := uint32(keep >> (32 * i))
		data[i] = unix.CapUserData{Permitted: data[i].Permitted & k, Effective: data[i].Permitted & k}
	}
	return unix.Capset(&hdr, &data[0])
}

// emptyRoot makes an empty read-only tmpfs the root of the mount namespace and
// detaches everything else.
func emptyRoot() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("cannot make the mounts private: %w", err)
	}
	const safe = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	// /proc serves as mount point because every host has it.
	if err := unix.Mount("none", "/proc", "tmpfs", safe, "size=4k,nr_inodes=2,mode=555"); err != nil {
		return fmt.Errorf("cannot mount an empty root: %w", err)
	}
	if err := unix.Chdir("/proc"); err != nil {
		return fmt.Errorf("cannot enter the empty root: %w", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("cannot pivot into the empty root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("cannot detach the host's mounts: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|safe, ""); err != nil {
		return fmt.Errorf("cannot make the empty root read-only: %w", err)
	}
	return unix.Chdir("/")
}

// ProcSelfFD opens /proc/self/fd of a procfs instance of the process's pid
// namespace that is mounted nowhere. It returns -1 when the host does not
// allow one (because its /proc is masked). The descriptor survives an exec.
func ProcSelfFD() int {
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
	fd, err := unix.Openat(mnt, "self/fd", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return -1
	}
	return fd
}
