package hostcgroup

import (
	"os"
	"os/exec"
	"testing"

	v1 "github.com/containerd/cgroups/v3/cgroup1/stats"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

func TestHostPath(t *testing.T) {
	tests := []struct {
		name, path, want string
		bad              bool
	}{
		{"empty", "", "/runsc/c1", false},
		{"path", "/default/c1", "/default/c1", false},
		{"relative", "default/c1", "/default/c1", false},
		{"climbing", "/a/../../../b", "/b", false},
		{"systemd", "kubepods-burstable-podX.slice:cri-containerd:c1", "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podX.slice/cri-containerd-c1.scope", false},
		{"systemd default slice", ":p:c1", "/system.slice/p-c1.scope", false},
		{"systemd no slice", "x:p:c1", "", true},
		{"two parts", "x.slice:c1", "", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := HostPath(tt.path, "c1")
			if got != tt.want || (err != nil) != tt.bad {
				t.Errorf("HostPath(%q) = %q, %v", tt.path, got, err)
			}
		})
	}
}

func TestHostLimits(t *testing.T) {
	limit, pids := int64(1<<20), int64(5)
	got := hostLimits(&specs.LinuxResources{
		Memory: &specs.LinuxMemory{Limit: &limit},
		Pids:   &specs.LinuxPids{Limit: &pids},
	})
	if got.Pids != nil {
		t.Error("pids.max would reach the host")
	}
	if *got.Memory.Limit != limit+headroom || limit != 1<<20 {
		t.Errorf("limit %d (spec %d)", *got.Memory.Limit, limit)
	}
}

func TestGroup(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	limit := int64(64 << 20)
	g, err := New("/runsc-unit-test/a", &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit}})
	if err != nil {
		t.Skipf("no cgroups here: %v", err)
	}
	defer func() {
		if err := g.Delete(); err != nil {
			t.Error(err)
		}
		if err := g.Delete(); err != nil {
			t.Errorf("second delete: %v", err)
		}
		if p, err := Load("/runsc-unit-test"); err == nil {
			p.Delete()
		}
	}()
	cmd := exec.Command("sleep", "100")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	if err := g.Add(cmd.Process.Pid); err != nil {
		t.Error(err)
	}
	st, err := g.Stat()
	if err != nil {
		t.Error(err)
	}
	if m, ok := st.(*v1.Metrics); ok {
		if m.Memory == nil || m.Memory.Usage.Limit != uint64(limit+headroom) {
			t.Errorf("memory %+v", m.Memory)
		}
		if m.CPU == nil {
			t.Error("no CPU figures")
		}
	}
}
