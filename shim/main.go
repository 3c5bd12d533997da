package shim

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
)

// Name is the runtime's name in errors and in -info.
const Name = "io.containerd.runsc.v1"

// flags are what containerd passes on the command line.
type flags struct {
	debug      bool
	version    bool
	info       bool
	id         string
	namespace  string
	socket     string
	bundle     string
	address    string
	containerd string
	action     string
}

func parseFlags(args []string) (*flags, error) {
	f := &flags{}
	fs := flag.NewFlagSet(Name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.BoolVar(&f.debug, "debug", false, "log more")
	fs.BoolVar(&f.version, "v", false, "print the version")
	fs.BoolVar(&f.version, "version", false, "print the version")
	fs.BoolVar(&f.info, "info", false, "print runtime information as protobuf")
	fs.StringVar(&f.namespace, "namespace", "", "namespace that owns the shim")
	fs.StringVar(&f.id, "id", "", "id of the task")
	fs.StringVar(&f.socket, "socket", "", "socket to serve")
	fs.StringVar(&f.bundle, "bundle", "", "bundle, if it is not the working directory")
	fs.StringVar(&f.address, "address", "", "containerd's gRPC socket")
	fs.StringVar(&f.containerd, "publish-binary", "", "containerd's binary; not used")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	f.action = fs.Arg(0)
	return f, nil
}

// Main runs the shim's actions and the daemon; args are the command line after
// the program's name. Nothing may be written to standard error on success:
// containerd reads it with the answer.
func Main(args []string) int {
	if err := run(args); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %s\n", Name, err)
		return 1
	}
	return 0
}

func run(args []string) error {
	f, err := parseFlags(args)
	if err != nil {
		return err
	}
	switch {
	case f.version:
		version, revision := buildVersion()
		fmt.Printf("%s:\n  Version:  %s\n  Revision: %s\n  Go version: %s\n", Name, version, revision, runtime.Version())
		return nil
	case f.info:
		return info(os.Stdin, os.Stdout)
	}
	if f.namespace == "" {
		return errors.New("no namespace given")
	}
	if f.id == "" {
		return errors.New("no id given")
	}
	switch f.action {
	case "start":
		return start(f)
	case "delete":
		return remove(f)
	case "":
		return serve(f)
	}
	return fmt.Errorf("unknown action %q", f.action)
}

// buildVersion returns the module's version and the revision it was built from.
func buildVersion() (version, revision string) {
	version, revision = "(devel)", "unknown"
	bi, ok := debug.ReadBuildInfo()
	if !ok {
		return version, revision
	}
	if bi.Main.Version != "" {
		version = bi.Main.Version
	}
	for _, s := range bi.Settings {
		if s.Key == "vcs.revision" {
			revision = s.Value
		}
	}
	return version, revision
}
