//go:build system

package system

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"runsc/test/rig"
)

// podRoot is the flags that make a container the root of a pod, as CRI annotates it.
func podRoot(id string) []string {
	return []string{"--annotation", "io.kubernetes.cri.container-type=sandbox", "--annotation", "io.kubernetes.cri.sandbox-id=" + id}
}

// podMember is the flags that make a container one of the pod's others.
func podMember(pod string) []string {
	return []string{"--annotation", "io.kubernetes.cri.container-type=container", "--annotation", "io.kubernetes.cri.sandbox-id=" + pod}
}

// count counts our processes by role.
func count() map[string]int {
	n := map[string]int{}
	for _, p := range R.Processes() {
		n[p.Role()]++
	}
	return n
}

// onePod checks that all containers share one shim and one Sentry.
func onePod(t *testing.T) {
	t.Helper()
	if n := count(); runtime == rig.Runsc && (n["shim"] != 1 || n["sandbox"] != 1) {
		t.Errorf("a pod has %v, want one shim and one sandbox: %v", n, R.Processes())
	}
}

// status reads /proc/pid/status.
func status(t *testing.T, pid int) map[string]string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Error(err)
	}
	m := map[string]string{}
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(line, ":")
		m[name] = strings.TrimSpace(value)
	}
	return m
}

// link reads a link of /proc/pid.
func link(t *testing.T, pid int, name string) string {
	t.Helper()
	s, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), name))
	if err != nil {
		t.Error(err)
	}
	return s
}

// TestPodByAnnotation groups containers by CRI's annotation, through a second start of the shim.
func TestPodByAnnotation(t *testing.T) {
	begin(t)
	events := watch(t)
	pod := R.NewID()
	detached(t, rig.Container{ID: pod, Flags: podRoot(pod), Args: sh("echo up; while :; do sleep 0.1; done")})
	awaitOutput(t, pod, "up")
	var apps []string
	for i := range 3 {
		app := detached(t, rig.Container{Flags: podMember(pod), Args: sh(fmt.Sprintf("echo app %d > /tmp/who; echo up; while :; do sleep 0.1; done", i))})
		awaitOutput(t, app, "up")
		apps = append(apps, app)
	}
	onePod(t)
	for i, app := range apps {
		if res := ok(t, R.Ctr("task", "exec", "--exec-id", R.NewID(), app, "cat", "/tmp/who")); res.Stdout != fmt.Sprintf("app %d\n", i) {
			t.Errorf("containers of a pod share files: %s", res)
		}
		if res := ok(t, R.Ctr("task", "exec", "--exec-id", R.NewID(), app, "sh", "-c", "ls -d /proc/[0-9]* | wc -l")); strings.TrimSpace(res.Stdout) > "5" {
			t.Errorf("containers of a pod share processes: %s", res)
		}
	}
	// One app's end leaves the others.
	ok(t, R.Ctr("task", "kill", "-s", "KILL", apps[0]))
	exits(t, events, apps[0], 137, 5*time.Second)
	ok(t, R.Ctr("task", "rm", apps[0]))
	ok(t, R.Ctr("c", "rm", apps[0]))
	for _, id := range append(apps[1:], pod) {
		if res := R.Ctr("task", "exec", "--exec-id", R.NewID(), id, "echo", "alive"); res.Stdout != "alive\n" {
			t.Errorf("%s after another's end: %s", id, res)
		}
	}
	// A new one may join.
	if res := R.Run(rig.Container{Runtime: runtime, Flags: podMember(pod), Args: []string{"echo", "joined"}}); res.Stdout != "joined\n" {
		t.Error(res)
	}
	if runtime != rig.Runsc {
		return // runc's root does not take the others with it
	}
	// The root's end ends every app.
	ok(t, R.Ctr("task", "kill", "-s", "KILL", pod))
	for _, id := range append(apps[1:], pod) {
		exits(t, events, id, 137, 5*time.Second)
	}
	for _, id := range append(apps[1:], pod) {
		ok(t, R.Ctr("task", "rm", id))
		ok(t, R.Ctr("c", "rm", id))
	}
}

// handler is the CRI runtime handler of the runtime under test.
func handler() string {
	if runtime == rig.Runc {
		return "runc"
	}
	return "runsc"
}

// criPod starts a pod on the host's network through CRI, with a runtime handler of config.toml.
func criPod(t *testing.T, handler string) (pod, config string) {
	t.Helper()
	for _, image := range []string{rig.Busybox, rig.Pause} {
		if err := R.Import("k8s.io", image); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	id := R.NewID()
	config = writeJSON(t, filepath.Join(dir, "pod.json"), map[string]any{
		"metadata":      map[string]any{"name": "p" + id, "namespace": "default", "uid": id, "attempt": 1},
		"log_directory": dir,
		"linux": map[string]any{
			"cgroup_parent":    "/" + R.Namespace,
			"security_context": map[string]any{"namespace_options": map[string]any{"network": 2}},
		},
	})
	pod = strings.TrimSpace(ok(t, R.Crictl("runp", "-r", handler, config)).Stdout)
	t.Cleanup(func() { R.Crictl("rmp", "-f", pod) })
	return pod, config
}

func writeJSON(t *testing.T, file string, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestCRI runs a pod with a container through crictl, from start to removal.
func TestCRI(t *testing.T) {
	begin(t)
	pod, config := criPod(t, handler())
	dir := filepath.Dir(config)
	c := writeJSON(t, filepath.Join(dir, "c.json"), map[string]any{
		"metadata": map[string]any{"name": "c1", "attempt": 1},
		"image":    map[string]any{"image": rig.Busybox},
		"log_path": "c1.log",
		"command":  []any{"sh", "-c", "i=0; while true; do echo tick $i; i=$((i+1)); sleep 0.2; done"},
		"linux":    map[string]any{},
	})
	id := strings.TrimSpace(ok(t, R.Crictl("create", pod, c, config)).Stdout)
	ok(t, R.Crictl("start", id))
	onePod(t)
	await(t, "log lines", 10*time.Second, func() bool {
		data, _ := os.ReadFile(filepath.Join(dir, "c1.log"))
		return strings.Contains(string(data), "stdout F tick 2")
	})
	if res := ok(t, R.Crictl("exec", "-s", id, "sh", "-c", "echo in; exit 0")); strings.TrimSpace(res.Stdout) != "in" {
		t.Error(res)
	}
	if res := R.Crictl("exec", "-s", id, "sh", "-c", "exit 3"); res.Code == 0 {
		t.Errorf("exec -s lost the exit code: %s", res)
	}
	if res := ok(t, R.Crictl("ps", "-a", "-o", "json", "--id", id)); !strings.Contains(res.Stdout, "CONTAINER_RUNNING") {
		t.Error(res)
	}
	ok(t, R.Crictl("stats", id))
	ok(t, R.Crictl("statsp", pod))
	ok(t, R.Crictl("inspect", id))
	ok(t, R.Crictl("inspectp", pod))
	ok(t, R.Crictl("stop", "-t", "1", id))
	res := ok(t, R.Crictl("inspect", "-o", "go-template", "--template", "{{.status.state}} {{.status.exitCode}}", id))
	if got := strings.TrimSpace(res.Stdout); got != "CONTAINER_EXITED 143" { // CRI has the pod share one pid namespace: sh is not its init
		t.Errorf("a stopped container is %q", got)
	}
	ok(t, R.Crictl("rm", id))
	ok(t, R.Crictl("stopp", pod))
	ok(t, R.Crictl("rmp", pod))
}

// TestPodBySandboxID lets ctr join a pod of CRI through the sandbox id of the container's record.
func TestPodBySandboxID(t *testing.T) {
	begin(t)
	pod, _ := criPod(t, handler())
	id := R.NewID()
	res := R.Ctr("-n", "k8s.io", "run", "--rm", "--runtime", runtime, "--sandbox", pod, "--cgroup", "/"+R.Namespace+"/"+id, rig.Busybox, id, "echo", "joined")
	if res.Code != 0 || res.Stdout != "joined\n" {
		t.Error(res)
	}
	ok(t, R.Ctr("-n", "k8s.io", "run", "-d", "--runtime", runtime, "--sandbox", pod, "--cgroup", "/"+R.Namespace+"/"+id, rig.Busybox, id, "sleep", "1000"))
	onePod(t)
	if got := ok(t, R.Ctr("-n", "k8s.io", "task", "exec", "--exec-id", "e", id, "echo", "in")); got.Stdout != "in\n" {
		t.Error(got)
	}
	ok(t, R.Ctr("-n", "k8s.io", "task", "rm", "-f", id))
	ok(t, R.Ctr("-n", "k8s.io", "c", "rm", id))
	if res := ok(t, R.Crictl("inspectp", pod)); !strings.Contains(res.Stdout, "SANDBOX_READY") {
		t.Errorf("the pod after an app's end: %s", res)
	}
}
