package shim

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	runtimeoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"google.golang.org/protobuf/types/known/anypb"
)

func TestParseConfig(t *testing.T) {
	tests := []struct {
		name, body, bad string
		want            config
	}{
		{"empty", "", "", config{Overlay2: overlayMemory}},
		{"all", "num-cpus = 3\ndebug = true\ndebug-log = \"/l\"\noverlay2 = \"none\"\n", "", config{NumCPUs: 3, Debug: true, DebugLog: "/l", Overlay2: overlayNone}},
		{"unknown key", "frob = 1\nnum-cpus = 2\n", `unknown key "frob"`, config{}},
		{"unknown table", "[frob]\nx = 1\n", `unknown key "frob`, config{}},
		{"type", "num-cpus = \"x\"\n", "num-cpus", config{}},
		{"range", "num-cpus = -1\n", "num-cpus is -1", config{}},
		{"overlay", "overlay2 = \"x\"\n", "overlay2", config{}},
		{"files", "file-access-mode = \"remote\"\nfile-access = \"shared\"\nfile-access-mounts = \"exclusive\"\ndentry-cache-size = 100\nhost-uds = \"all\"\nhost-fifo = \"open\"\n", "", config{Overlay2: overlayMemory}},
		{"placement", "file-access-mode = \"x\"\n", `file-access-mode is "x", ["direct" "remote"] are possible`, config{}},
		{"coherence", "file-access-mounts = \"x\"\n", "file-access-mounts", config{}},
		{"sockets", "host-uds = \"x\"\n", "host-uds", config{}},
		{"dentries", "dentry-cache-size = -1\n", "dentry-cache-size is -1", config{}},
		{"syntax", "= 1", "c.toml", config{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := parseConfig("c.toml", []byte(tt.body))
			if tt.bad != "" {
				if err == nil || !strings.Contains(err.Error(), tt.bad) {
					t.Errorf("%v, want %q", err, tt.bad)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if c.NumCPUs != tt.want.NumCPUs || c.Debug != tt.want.Debug || c.DebugLog != tt.want.DebugLog || c.Overlay2 != tt.want.Overlay2 {
				t.Errorf("%+v", c)
			}
		})
	}
}

func TestCPUFeaturesMask(t *testing.T) {
	faults := true
	old := cpuidFaults
	cpuidFaults = func() bool { return faults }
	defer func() { cpuidFaults = old }()
	c, err := parseConfig("c.toml", []byte(`cpu-features-mask = ["rdrand", "avx", "avx"]`))
	if err != nil {
		t.Fatal(err)
	}
	o, err := (&config{InodePolicy: "host", CPUFeaturesMask: c.CPUFeaturesMask}).sentryOptions()
	if err != nil || o["cpu-features-mask"] != "avx rdrand" {
		t.Errorf("%q, %v", o, err)
	}
	if _, err := parseConfig("c.toml", []byte(`cpu-features-mask = ["sse"]`)); err == nil || !strings.Contains(err.Error(), `c.toml: cpu-features-mask: "sse" cannot be hidden`) {
		t.Error(err)
	}
	faults = false
	if _, err := parseConfig("c.toml", []byte(`cpu-features-mask = ["avx"]`)); err == nil || !strings.Contains(err.Error(), "cpu-features-mask is not possible on this host") {
		t.Error(err)
	}
	if _, err := parseConfig("c.toml", []byte(`cpu-features-mask = []`)); err != nil {
		t.Error(err)
	}
}

func TestConfigFromOptions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.toml")
	if err := os.WriteFile(path, []byte("num-cpus = 4\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	wrap := func(o *runtimeoptions.Options) *anypb.Any {
		a, err := anyOf(o)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	runc, err := anyOf(&runcoptions.Options{IoUid: 7})
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		opts *anypb.Any
		cpus int
		bad  bool
	}{
		{"none", nil, 0, false},
		{"empty", &anypb.Any{}, 0, false},
		{"runc's", runc, 0, false},
		{"path", wrap(&runtimeoptions.Options{ConfigPath: path}), 4, false},
		{"body", wrap(&runtimeoptions.Options{ConfigBody: []byte("num-cpus = 5\n")}), 5, false},
		{"missing file", wrap(&runtimeoptions.Options{ConfigPath: path + "x"}), 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := configFromOptions(tt.opts)
			if (err != nil) != tt.bad || err == nil && c.NumCPUs != tt.cpus {
				t.Errorf("%+v, %v", c, err)
			}
		})
	}
}
