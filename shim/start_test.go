package shim

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/api/types"
	"github.com/opencontainers/runtime-spec/specs-go/features"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

func TestGroupOf(t *testing.T) {
	tests := []struct {
		name        string
		annotations map[string]string
		group       string
		mustLive    bool
	}{
		{"plain", nil, "c", false},
		{"pod's root", map[string]string{annotationType: "sandbox", annotationSandboxID: "c"}, "c", false},
		{"restored root", map[string]string{annotationType: "sandbox", annotationSandboxID: "old"}, "c", false},
		{"app", map[string]string{annotationType: "container", annotationSandboxID: "pod"}, "pod", true},
		{"id alone", map[string]string{annotationSandboxID: "pod"}, "pod", false},
		{"bad id", map[string]string{annotationSandboxID: "../x"}, "c", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			group, mustLive := groupOf("c", tt.annotations)
			if group != tt.group || mustLive != tt.mustLive {
				t.Errorf("%q, %v", group, mustLive)
			}
		})
	}
}

func TestSocketAddress(t *testing.T) {
	a, err := socketAddress("/s", "/run/containerd.sock", "ns", "id")
	if err != nil || !strings.HasPrefix(a, "unix:///s/") || len(a) != len("unix:///s/")+64 {
		t.Errorf("%q, %v", a, err)
	}
	if _, err := socketAddress("/"+strings.Repeat("x", 60), "/c", "ns", "id"); err == nil {
		t.Error("a path that no socket can have")
	}
}

func TestClaimReplacesADeadSocket(t *testing.T) {
	address := "unix://" + filepath.Join(t.TempDir(), "d", "s")
	l, err := claim(address)
	if err != nil || l == nil {
		t.Fatal(l, err)
	}
	l.Close() // the socket's file stays
	l, err = claim(address)
	if err != nil || l == nil {
		t.Fatal(l, err)
	}
	defer l.Close()
	st, err := os.Stat(socketPath(address))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
}

func TestInfo(t *testing.T) {
	opts, _ := proto.Marshal(&anypb.Any{TypeUrl: "x", Value: []byte("y")})
	for _, in := range [][]byte{nil, opts} {
		var out bytes.Buffer
		if err := info(bytes.NewReader(in), &out); err != nil {
			t.Fatal(err)
		}
		var ri types.RuntimeInfo
		if err := proto.Unmarshal(out.Bytes(), &ri); err != nil {
			t.Fatal(err)
		}
		var f features.Features
		if err := json.Unmarshal(ri.Features.GetValue(), &f); err != nil || f.Linux == nil || len(f.MountOptions) == 0 {
			t.Errorf("features %+v, %v", f, err)
		}
		if (in != nil) != (ri.Options.GetTypeUrl() == "x") {
			t.Errorf("options %v", ri.Options)
		}
	}
}

func TestStartRefusesTheOldProtocol(t *testing.T) {
	f := &flags{id: "a", namespace: "ns"}
	for _, in := range []string{"", "garbage"} {
		if _, err := parseParams([]byte(in), f); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", in, err)
		}
	}
}

// runDelete runs the delete action on a bundle and returns its answer.
func runDelete(t *testing.T, id, bundle string) *taskapi.DeleteResponse {
	t.Helper()
	old := os.Stdout
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	os.Stdout = w
	err = remove(&flags{id: id, bundle: bundle})
	os.Stdout = old
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	out.ReadFrom(r)
	resp := &taskapi.DeleteResponse{}
	if err := proto.Unmarshal(out.Bytes(), resp); err != nil {
		t.Fatal(err)
	}
	return resp
}

func TestDelete(t *testing.T) {
	t.Run("no record", func(t *testing.T) {
		if got := runDelete(t, "a", t.TempDir()); got.ExitStatus != 137 || got.ExitedAt == nil {
			t.Errorf("%v", got)
		}
	})
	t.Run("recorded exit", func(t *testing.T) {
		dir := t.TempDir()
		writeJSON(dir, recordFile, record{ID: "a", Clean: true})
		writeJSON(dir, exitFile, exitRecord{Pid: 5, Status: 3, At: time.Unix(9, 0)})
		if got := runDelete(t, "a", dir); got.ExitStatus != 3 || got.Pid != 5 || got.ExitedAt.Seconds != 9 {
			t.Errorf("%v", got)
		}
	})
	t.Run("kills what is left, twice", func(t *testing.T) {
		dir := t.TempDir()
		cmd := exec.Command("sleep", "100")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		p, err := identify(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		writeJSON(dir, recordFile, record{ID: "a", Root: true, Sandbox: p, Gofer: hostProcess{Pid: 1, StartTime: 1 << 60}})
		runDelete(t, "a", dir)
		if p.alive() {
			t.Error("alive")
		}
		cmd.Wait()
		runDelete(t, "a", dir)
	})
	t.Run("another's record", func(t *testing.T) {
		dir := t.TempDir()
		writeJSON(dir, recordFile, record{ID: "b"})
		if err := remove(&flags{id: "a", bundle: dir}); err == nil {
			t.Error("accepted")
		}
	})
}

func TestRecordedPidReused(t *testing.T) {
	me, err := identify(os.Getpid())
	if err != nil || !me.alive() {
		t.Fatal(me, err)
	}
	me.StartTime++
	if me.alive() {
		t.Error("a process that started at another time is taken for it")
	}
	if err := me.kill(time.Second); err != nil { // must not kill us
		t.Error(err)
	}
}
