package shim

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"

	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	"github.com/containerd/containerd/api/types"
	runtimeoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"runsc/pkg/controlapi"
)

// maxParams bounds what start reads from its standard input.
const maxParams = 10 << 20

// taskVersion is the version of the task API that the daemon serves.
const taskVersion = 3

// Descriptors of the daemon.
const (
	listenerFD = 3 // the socket, listening
	paramsFD   = 4 // BootstrapParams as start got them, up to EOF
)

// start makes sure that a daemon serves the container's group, and prints its
// address.
func start(f *flags) error {
	input, err := io.ReadAll(io.LimitReader(os.Stdin, maxParams))
	if err != nil {
		return fmt.Errorf("read the bootstrap parameters: %w", err)
	}
	params, err := parseParams(input, f)
	if err != nil {
		return err
	}
	annotations, err := readAnnotations(".")
	if err != nil {
		return err
	}
	group, mustLive := groupOf(f.id, annotations)
	address, err := socketAddress(params.GetSocketDir(), f.address, f.namespace, group)
	if err != nil {
		return err
	}
	var l *net.UnixListener
	if mustLive && group != f.id {
		if !answers(address) {
			// The pod is gone, or was never here (a container restored from
			// an image): a pod of its own.
			group = f.id
			if address, err = socketAddress(params.GetSocketDir(), f.address, f.namespace, group); err != nil {
				return err
			}
			l, err = claim(address)
		}
	} else {
		l, err = claim(address)
	}
	if err != nil {
		return err
	}
	if l != nil {
		if err := startDaemon(f, group, address, l, input); err != nil {
			removeSocket(address)
			return err
		}
	}
	return answerStart(address)
}

// parseParams reads the bootstrap parameters. The older protocol, which sends
// the runtime options or nothing in their place, would be told apart here.
func parseParams(input []byte, f *flags) (*bootapi.BootstrapParams, error) {
	params := &bootapi.BootstrapParams{}
	if err := proto.Unmarshal(input, params); err != nil || len(input) == 0 || params.InstanceID != f.id || params.Namespace != f.namespace {
		return nil, errors.New("started without bootstrap parameters: this shim needs containerd 2.3 or later")
	}
	return params, nil
}

// optionsOf returns the runtime options among the parameters, or nil.
func optionsOf(params *bootapi.BootstrapParams) *anypb.Any {
	for _, e := range params.GetExtensions() {
		if v := e.GetValue(); v.MessageIs(&runtimeoptions.Options{}) {
			return v
		}
	}
	return nil
}

func answerStart(address string) error {
	result := &bootapi.BootstrapResult{Version: taskVersion, Address: address, Protocol: "ttrpc"}
	// We take no mount type over from containerd; saying so saves it an -info.
	if err := result.AddExtension(&types.MountCapabilities{}); err != nil {
		return err
	}
	data, err := proto.Marshal(result)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(data)
	return err
}

// startDaemon starts the serving process. It inherits neither standard output
// nor error: containerd would wait for their end.
func startDaemon(f *flags, group, address string, l *net.UnixListener, params []byte) error {
	sock, err := l.File()
	if err != nil {
		return err
	}
	defer sock.Close()
	paramsFile, err := memoryFile(params)
	if err != nil {
		return err
	}
	defer paramsFile.Close()
	args := []string{"-namespace", f.namespace, "-id", f.id, "-address", f.address, "-socket", address}
	if f.debug {
		args = append(args, "-debug")
	}
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), groupEnv+"="+group)
	cmd.ExtraFiles = []*os.File{sock, paramsFile}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the daemon: %w", err)
	}
	if err := adjustDaemonOOMScore(cmd.Process.Pid); err != nil {
		cmd.Process.Kill()
		cmd.Wait()
		return fmt.Errorf("the daemon's OOM score: %w", err)
	}
	return nil
}

// groupEnv tells the daemon its group.
const groupEnv = "RUNSC_GROUP"

// memoryFile returns a file that holds data, at its start.
func memoryFile(data []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("params", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "params")
	if _, err := f.WriteAt(data, 0); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// daemonGroup returns the group that start chose.
func daemonGroup(f *flags) string {
	if g := os.Getenv(groupEnv); controlapi.ValidateID(g) == nil {
		return g
	}
	return f.id
}
