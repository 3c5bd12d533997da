package shim

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/containerd/containerd/api/types"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/opencontainers/runtime-spec/specs-go/features"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// featuresURL is the type URL of features.Features in containerd.
const featuresURL = "types.containerd.io/opencontainers/runtime-spec/1/features/Features"

// info is the -info action: it reads the runtime options, an Any that may be
// empty, and writes a RuntimeInfo. containerd's CRI plugin needs the features
// to be there.
func info(in io.Reader, out io.Writer) error {
	input, err := io.ReadAll(io.LimitReader(in, maxParams))
	if err != nil {
		return err
	}
	version, revision := buildVersion()
	ri := &types.RuntimeInfo{
		Name:    Name,
		Version: &types.RuntimeVersion{Version: version, Revision: revision},
	}
	if len(input) > 0 {
		opts := &anypb.Any{}
		if err := proto.Unmarshal(input, opts); err != nil {
			return fmt.Errorf("runtime options: %w", err)
		}
		if opts.TypeUrl != "" {
			ri.Options = opts
		}
	}
	body, err := json.Marshal(supported())
	if err != nil {
		return err
	}
	ri.Features = &anypb.Any{TypeUrl: featuresURL, Value: body}
	data, err := proto.Marshal(ri)
	if err != nil {
		return err
	}
	_, err = out.Write(data)
	return err
}

// supported says what this runtime honours of the OCI spec.
func supported() *features.Features {
	yes, no := true, false
	return &features.Features{
		OCIVersionMin: "1.0.0",
		OCIVersionMax: specs.Version,
		Hooks:         []string{"prestart", "createRuntime", "poststart", "poststop"},
		MountOptions: []string{
			"async", "atime", "bind", "defaults", "dev", "diratime", "exec", "noatime", "nodev", "nodiratime",
			"noexec", "norelatime", "nostrictatime", "nosuid", "private", "rbind", "relatime", "ro", "rprivate",
			"rro", "rslave", "rw", "slave", "strictatime", "suid", "sync",
		},
		Linux: &features.Linux{
			Namespaces:      []string{"cgroup", "ipc", "mount", "network", "pid", "uts"},
			Capabilities:    nil,
			Cgroup:          &features.Cgroup{V1: &yes, V2: &yes, Systemd: &no, SystemdUser: &no},
			Seccomp:         &features.Seccomp{Enabled: &yes},
			Apparmor:        &features.Apparmor{Enabled: &no},
			Selinux:         &features.Selinux{Enabled: &no},
			MountExtensions: &features.MountExtensions{IDMap: &features.IDMap{Enabled: &no}},
		},
	}
}
