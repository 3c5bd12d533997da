package gofer

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"runsc/pkg/fsproto"
	"runsc/pkg/isolate"
)

// Isolated is the first argument of the gofer process once it has an empty
// root and few capabilities.
const Isolated = "gofer-isolated"

// Isolate shuts the process in and goes on as Main in a new execution of the
// program. It returns an exit code only if that fails. Args are the arguments
// after "gofer"; they only name the sandbox in the process list. The
// descriptors are those of package fsproto.
func Isolate(args []string) int {
	err := checkNamespace()
	if err == nil {
		selfFD := strconv.Itoa(isolate.ProcSelfFD())
		err = isolate.Exec(isolate.HostFiles, append([]string{os.Args[0], Isolated, selfFD}, args...))
	}
	fmt.Fprintln(os.Stderr, "gofer:", err)
	_ = fsproto.NewConn(os.NewFile(fsproto.GoferShimFD, "shim")).Send(&fsproto.Response{Error: err.Error()}, nil)
	return 1
}

// Main runs the isolated gofer process and returns its exit code. Args are the
// arguments after Isolated.
func Main(args []string) int {
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "gofer: started without its arguments")
		return 1
	}
	selfFD, err := strconv.Atoi(args[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, "gofer:", err)
		return 1
	}
	if selfFD >= 0 {
		unix.CloseOnExec(selfFD)
	}
	unix.Umask(0) // modes come from the Sentry as they are to be
	shim := fsproto.NewConn(os.NewFile(fsproto.GoferShimFD, "shim"))
	sentry := sentryConn()
	if err := shim.Send(&fsproto.Response{Hello: true}, nil); err != nil {
		return 1
	}
	s := newServer()
	if sentry >= 0 {
		fs := newFileServer(s, selfFD)
		s.refs = fs.refs
		go fs.serve(sentry)
	}
	defer s.removeAll()
	if err := s.serve(shim); err != nil {
		fmt.Fprintln(os.Stderr, "gofer:", err)
		return 1
	}
	return 0
}

// sentryConn returns the socket to the Sentry, or -1 without one.
func sentryConn() int {
	if t, err := unix.GetsockoptInt(fsproto.GoferSentryFD, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || t != unix.SOCK_SEQPACKET {
		return -1
	}
	unix.CloseOnExec(fsproto.GoferSentryFD)
	return fsproto.GoferSentryFD
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
