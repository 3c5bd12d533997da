package gofer

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	goferproc "runsc/gofer"
	"runsc/pkg/fsproto"
)

// TestMain turns the test binary into a gofer process when asked to.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "gofer":
			os.Exit(goferproc.Isolate(os.Args[2:]))
		case goferproc.Isolated:
			os.Exit(goferproc.Main(os.Args[2:]))
		}
	}
	code := m.Run()
	if p := theGofer; p != nil {
		p.files.Shut()
		p.shim.Close()
		_ = p.cmd.Wait()
	}
	os.Exit(code)
}

// process is a gofer process with the connections of a shim and a Sentry.
type process struct {
	shim  fsproto.GoferClient
	files *fsproto.Files
	cmd   *exec.Cmd
}

var theGofer *process

// startGofer starts the gofer process of all tests.
var startGofer = sync.OnceValue(func() error {
	cl, srv, err := fsproto.SocketPair()
	if err != nil {
		return err
	}
	scl, ssrv, err := fsproto.SocketPair()
	if err != nil {
		return err
	}
	p := &process{cmd: exec.Command("/proc/self/exe", "gofer")}
	p.cmd.SysProcAttr = fsproto.GoferSysProcAttr()
	p.cmd.ExtraFiles = []*os.File{srv, ssrv}
	p.cmd.Stderr = os.Stderr
	if err := p.cmd.Start(); err != nil {
		return err
	}
	srv.Close()
	ssrv.Close()
	if p.shim, err = fsproto.NewGoferClient(cl); err != nil {
		return err
	}
	if p.files, err = fsproto.NewFiles(scl); err != nil {
		return err
	}
	theGofer = p
	return nil
})

var containers atomic.Int32

// attach makes the tree one whose files the gofer process reaches.
func (x *tree) attach(co Coherence, idle int) {
	x.Helper()
	if err := startGofer(); err != nil {
		x.Fatal(err)
	}
	x.remote = fmt.Sprint("c", containers.Add(1))
	tree, err := fsproto.CloneTree(x.path, true)
	if err != nil {
		x.Fatal(err)
	}
	root, err := theGofer.shim.AddMount(x.remote, 0, tree, false)
	tree.Close()
	if err != nil {
		x.Fatal(err)
	}
	root.Close()
	x.Cleanup(func() {
		if err := theGofer.shim.RemoveContainer(x.remote); err != nil {
			x.Error(err)
		}
	})
	x.cl = NewClient(ClientOptions{Key: *testKey(1), Backend: theGofer.files, IdleFDs: idle})
	ref, err := x.rootFD()
	if err != nil {
		x.Fatal(err)
	}
	if x.fs, err = x.cl.New(Options{RootFD: ref, Coherence: co}); err != nil {
		x.Fatal(err)
	}
	x.begin()
}

// rootFD is the root as the backend holds it.
func (x *tree) rootFD() (int, error) {
	if x.remote != "" {
		return theGofer.files.Attach(x.remote, 0)
	}
	return unix.Open(x.path, unix.O_PATH|unix.O_CLOEXEC, 0)
}
