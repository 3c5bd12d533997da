package shim

import (
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

func goodSpec() *specs.Spec {
	return &specs.Spec{
		Root:    &specs.Root{Path: "rootfs"},
		Process: &specs.Process{Args: []string{"x"}, Cwd: "/"},
		Linux: &specs.Linux{Namespaces: []specs.LinuxNamespace{
			{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}, {Type: specs.MountNamespace}, {Type: specs.CgroupNamespace},
		}},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid"}},
			{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{"ro"}},
			{Destination: "/data", Type: "bind", Source: "/x", Options: []string{"rbind", "rprivate", "rro", "nosuid"}},
		},
	}
}

func TestValidateSpec(t *testing.T) {
	yes, one := true, int64(1)
	tests := []struct {
		name   string
		change func(*specs.Spec)
		want   string // part of the error, "" for none
	}{
		{"good", func(*specs.Spec) {}, ""},
		{"seccomp is passed on", func(s *specs.Spec) { s.Linux.Seccomp = &specs.LinuxSeccomp{} }, ""},
		{"no process", func(s *specs.Spec) { s.Process = nil }, "process"},
		{"no args", func(s *specs.Spec) { s.Process.Args = nil }, "process.args"},
		{"relative cwd", func(s *specs.Spec) { s.Process.Cwd = "x" }, "process.cwd"},
		{"no root", func(s *specs.Spec) { s.Root = nil }, "root.path"},
		{"no linux", func(s *specs.Spec) { s.Linux = nil }, "linux"},
		{"windows", func(s *specs.Spec) { s.Windows = &specs.Windows{} }, "windows"},
		{"apparmor", func(s *specs.Spec) { s.Process.ApparmorProfile = "p" }, "process.apparmorProfile"},
		{"apparmor unconfined", func(s *specs.Spec) { s.Process.ApparmorProfile = "unconfined" }, ""},
		{"selinux", func(s *specs.Spec) { s.Process.SelinuxLabel = "l" }, "process.selinuxLabel"},
		{"scheduler", func(s *specs.Spec) { s.Process.Scheduler = &specs.Scheduler{} }, "process.scheduler"},
		{"inner hook", func(s *specs.Spec) { s.Hooks = &specs.Hooks{StartContainer: []specs.Hook{{Path: "/x"}}} }, "hooks.startContainer"},
		{"outer hook", func(s *specs.Spec) { s.Hooks = &specs.Hooks{CreateRuntime: []specs.Hook{{Path: "/x"}}} }, ""},
		{"user mappings", func(s *specs.Spec) { s.Linux.UIDMappings = []specs.LinuxIDMapping{{}} }, "linux.uidMappings"},
		{"user namespace", func(s *specs.Spec) {
			s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace})
		}, "user"},
		{"mount namespace by path", func(s *specs.Spec) { s.Linux.Namespaces[3].Path = "/proc/1/ns/mnt" }, "mount"},
		{"host pids", func(s *specs.Spec) { s.Linux.Namespaces = s.Linux.Namespaces[1:] }, "pid"},
		{"host network and name", func(s *specs.Spec) { s.Linux.Namespaces = s.Linux.Namespaces[:2] }, ""},
		{"namespace twice", func(s *specs.Spec) {
			s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.PIDNamespace})
		}, "twice"},
		{"namespace unknown", func(s *specs.Spec) {
			s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: "dreams"})
		}, "dreams"},
		{"personality", func(s *specs.Spec) { s.Linux.Personality = &specs.LinuxPersonality{Domain: specs.PerLinux32} }, "linux.personality"},
		{"shared root", func(s *specs.Spec) { s.Linux.RootfsPropagation = "shared" }, "linux.rootfsPropagation"},
		{"oom killer", func(s *specs.Spec) {
			s.Linux.Resources = &specs.LinuxResources{Memory: &specs.LinuxMemory{DisableOOMKiller: &yes}}
		}, "disableOOMKiller"},
		{"kernel memory", func(s *specs.Spec) {
			//lint:ignore SA1019 refused because it is deprecated
			s.Linux.Resources = &specs.LinuxResources{Memory: &specs.LinuxMemory{Kernel: &one}}
		}, "memory.kernel"},
		{"zero huge pages", func(s *specs.Spec) {
			s.Linux.Resources = &specs.LinuxResources{HugepageLimits: []specs.LinuxHugepageLimit{{Pagesize: "2MB"}}}
		}, ""},
		{"huge pages", func(s *specs.Spec) {
			s.Linux.Resources = &specs.LinuxResources{HugepageLimits: []specs.LinuxHugepageLimit{{Pagesize: "2MB", Limit: 1}}}
		}, "hugepageLimits"},
		{"relative destination", func(s *specs.Spec) { s.Mounts[0].Destination = "proc" }, "destination"},
		{"mount type", func(s *specs.Spec) { s.Mounts[0].Type = "nfs" }, `"nfs"`},
		{"idmapped mount", func(s *specs.Spec) { s.Mounts[3].Options = []string{"rbind", "idmap"} }, "id-mapped"},
		{"shared mount", func(s *specs.Spec) { s.Mounts[3].Options = []string{"rbind", "rshared"} }, `"rshared"`},
		{"unknown option", func(s *specs.Spec) { s.Mounts[3].Options = []string{"rbind", "frob"} }, `"frob"`},
		{"no source", func(s *specs.Spec) { s.Mounts[3].Source = "" }, "source"},
		{"tmpfs option", func(s *specs.Spec) {
			s.Mounts = append(s.Mounts, specs.Mount{Destination: "/t", Type: "tmpfs", Options: []string{"size=1m"}})
		}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := goodSpec()
			tt.change(s)
			err := validateSpec(s)
			if tt.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v, want one line with %q", err, tt.want)
			}
		})
	}
}
