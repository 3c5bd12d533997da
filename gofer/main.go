package gofer

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"runsc/pkg/fsproto"
)

// Main runs the gofer process and returns its exit code. Args are the
// arguments after "gofer"; they only name the sandbox in the process list. The
// descriptors are those of package fsproto.
func Main(args []string) int {
	unix.Umask(0) // modes come from the Sentry as they are to be
	shim := fsproto.NewConn(os.NewFile(fsproto.GoferShimFD, "shim"))
	sentry := sentryConn()
	if err := isolate(); err != nil {
		fmt.Fprintln(os.Stderr, "gofer:", err)
		_ = shim.Send(&fsproto.Response{Error: err.Error()}, nil)
		return 1
	}
	if err := shim.Send(&fsproto.Response{Hello: true}, nil); err != nil {
		return 1
	}
	if sentry != nil {
		go serveSentry(sentry)
	}
	s := newServer()
	defer s.removeAll()
	if err := s.serve(shim); err != nil {
		fmt.Fprintln(os.Stderr, "gofer:", err)
		return 1
	}
	return 0
}

// sentryConn returns the connection to the Sentry, or nil without one.
func sentryConn() *fsproto.Conn {
	if t, err := unix.GetsockoptInt(fsproto.GoferSentryFD, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || t != unix.SOCK_SEQPACKET {
		return nil
	}
	unix.CloseOnExec(fsproto.GoferSentryFD)
	return fsproto.NewConn(os.NewFile(fsproto.GoferSentryFD, "sentry"))
}

// isolate leaves the process with an empty root and few capabilities.
func isolate() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := checkNamespace(); err != nil {
		return err
	}
	if err := pivot(); err != nil {
		return err
	}
	return dropPrivileges()
}

// checkNamespace refuses to work in the mount namespace of the parent, whose
// root pivot would take away.
func checkNamespace() error {
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return fmt.Errorf("own mount namespace: %w", err)
	}
	parent, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", os.Getppid()))
	if err == nil && parent == own {
		return fmt.Errorf("started in its parent's mount namespace")
	}
	return nil
}

// pivot makes an empty read-only tmpfs the root of the mount namespace. It
// moves the root and working directory of every thread along.
func pivot() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make / private: %w", err)
	}
	// /proc serves as mount point because it exists everywhere.
	if err := unix.Mount("none", "/proc", "tmpfs", unix.MS_NODEV|unix.MS_NOSUID|unix.MS_NOEXEC, "size=0,mode=555"); err != nil {
		return fmt.Errorf("mount the empty root: %w", err)
	}
	if err := unix.Chdir("/proc"); err != nil {
		return fmt.Errorf("enter the empty root: %w", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount the old root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return fmt.Errorf("enter the empty root: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NODEV|unix.MS_NOSUID|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("make the empty root read-only: %w", err)
	}
	return nil
}
