//go:build system

package system

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"runsc/test/rig"
)

// child returns an object within a spec, made if need be.
func child(spec map[string]any, path ...string) map[string]any {
	for _, name := range path {
		next, there := spec[name].(map[string]any)
		if !there {
			next = map[string]any{}
			spec[name] = next
		}
		spec = next
	}
	return spec
}

// runWithSpec runs a container whose spec was changed.
func runWithSpec(t *testing.T, c rig.Container, change func(spec map[string]any)) rig.Result {
	t.Helper()
	spec, err := R.Spec(c)
	if err != nil {
		t.Fatal(err)
	}
	image := c.Image
	if image == "" {
		image = rig.Busybox
	}
	rootfs, unmount, err := R.MountImage(image)
	if err != nil {
		t.Fatal(err)
	}
	defer unmount()
	child(spec, "root")["path"] = rootfs
	c.ID = R.NewID()
	child(spec, "linux")["cgroupsPath"] = "/" + R.Namespace + "/" + c.ID
	change(spec)
	c.Flags = nil
	res, err := R.RunSpec(c, spec)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// TestSpec compares fields of the OCI spec that ctr has no flag for.
func TestSpec(t *testing.T) {
	begin(t)
	tests := []struct {
		name   string
		args   []string
		change func(spec map[string]any)
	}{
		{"rlimits", sh("ulimit -n; ulimit -Hn; ulimit -c"), func(spec map[string]any) {
			child(spec, "process")["rlimits"] = []any{
				map[string]any{"type": "RLIMIT_NOFILE", "soft": 100, "hard": 200},
				map[string]any{"type": "RLIMIT_CORE", "soft": 0, "hard": 0},
			}
		}},
		{"additional groups", sh("id"), func(spec map[string]any) {
			child(spec, "process")["user"] = map[string]any{"uid": 1000, "gid": 1000, "additionalGids": []any{5, 2000}}
		}},
		{"umask", sh("umask; touch /tmp/x; stat -c %a /tmp/x"), func(spec map[string]any) {
			child(spec, "process", "user")["umask"] = 0o27
		}},
		{"masked and read-only paths", sh("cat /etc/passwd | wc -c; ls -A /etc/ | wc -l; ls -A /home; touch /home/x; echo $?; touch /var/x; echo $?"), func(spec map[string]any) {
			l := child(spec, "linux")
			l["maskedPaths"] = []any{"/etc/passwd", "/home", "/no/such"}
			l["readonlyPaths"] = []any{"/var", "/no/such"}
		}},
		{"devices", sh("ls -l /dev/mynull | awk '{print $1, $3, $4, $5, $6}'; echo x > /dev/mynull; echo $?"), func(spec map[string]any) {
			l := child(spec, "linux")
			l["devices"] = []any{map[string]any{"path": "/dev/mynull", "type": "c", "major": 1, "minor": 3, "fileMode": 0o620, "uid": 1, "gid": 33}}
		}},
		{"sysctl", sh("cat /proc/sys/kernel/shm_rmid_forced"), func(spec map[string]any) {
			child(spec, "linux")["sysctl"] = map[string]any{"kernel.shm_rmid_forced": "1"}
		}},
		{"oom score", sh("cat /proc/self/oom_score_adj"), func(spec map[string]any) {
			child(spec, "process")["oomScoreAdj"] = 500
		}},
		{"seccomp", sh("mkdir /tmp/d; echo $?; grep Seccomp: /proc/self/status"), func(spec map[string]any) {
			child(spec, "linux")["seccomp"] = map[string]any{
				"defaultAction": "SCMP_ACT_ALLOW",
				"architectures": []any{"SCMP_ARCH_X86_64"},
				"syscalls":      []any{map[string]any{"names": []any{"mkdir", "mkdirat"}, "action": "SCMP_ACT_ERRNO"}},
			}
		}},
		{"read-only root", sh("touch /x; echo $?"), func(spec map[string]any) {
			child(spec, "root")["readonly"] = true
		}},
		{"bind mount of a file", sh("cat /bound; echo no > /bound; echo $?"), func(spec map[string]any) {
			spec["mounts"] = append(spec["mounts"].([]any), map[string]any{
				"destination": "/bound", "type": "bind", "source": "/etc/debian_version", "options": []any{"bind", "ro"}})
		}},
		{"cpu limits", sh("echo fine"), func(spec map[string]any) {
			child(spec, "linux", "resources")["cpu"] = map[string]any{"shares": 512, "quota": 50000, "period": 100000}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := rig.Container{Runtime: rig.Runc, Args: tt.args}
			want := runWithSpec(t, c, tt.change)
			c.Runtime = runtime
			equal(t, c, runWithSpec(t, c, tt.change), want)
		})
	}
}

// TestHooks runs OCI hooks, which get the container's state on stdin as nerdctl's networking needs it.
func TestHooks(t *testing.T) {
	begin(t)
	dir := t.TempDir()
	stages := []string{"prestart", "createRuntime", "poststart", "poststop"}
	run := func(runtime string) string {
		out := filepath.Join(dir, R.NewID())
		res := runWithSpec(t, rig.Container{Runtime: runtime, Args: sh("sleep 0.3")}, func(spec map[string]any) {
			for _, s := range stages {
				// runc 1.1 calls the state of poststart created, the specification running.
				script := fmt.Sprintf(`state=$(cat)
f() { echo "$state" | grep -o "\"$1\": *\"[^\"]*\"" | head -1 | tr -d ' '; }
pid=$(echo "$state" | grep -o '"pid": *[0-9]*' | tr -dc 0-9)
{ echo %s $V $(f status | sed s/created/running/) $(f ociVersion | cut -d: -f1) $(f id | cut -d: -f1)
[ -n "$pid" ] && [ -d /proc/$pid/ns ] && echo has a pid
[ -f $(f bundle | cut -d'"' -f4)/config.json ] && echo has a bundle; } >> %s`, s, out)
				child(spec, "hooks")[s] = []any{map[string]any{"path": "/bin/sh", "args": []any{"sh", "-c", script}, "env": []any{"V=env", "PATH=/usr/bin:/bin"}}}
			}
		})
		ok(t, res)
		data, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	want, got := run(rig.Runc), run(runtime)
	if got != want {
		t.Errorf("hooks saw:\n%s--- runc:\n%s", got, want)
	}
	t.Run("failing", func(t *testing.T) {
		fail := func(runtime string) rig.Result {
			return runWithSpec(t, rig.Container{Runtime: runtime, Args: sh("echo started")}, func(spec map[string]any) {
				child(spec, "hooks")["createRuntime"] = []any{map[string]any{"path": "/bin/false"}}
			})
		}
		want, got := fail(rig.Runc), fail(runtime)
		if got.Code != want.Code || got.Stdout != want.Stdout {
			t.Errorf("%s\n--- runc: %s", got, want)
		}
	})
}

// TestUnsupportedField wants what cannot be honoured to be refused by its name.
func TestUnsupportedField(t *testing.T) {
	begin(t)
	tests := []struct {
		field  string
		change func(spec map[string]any)
	}{
		{"intelRdt", func(spec map[string]any) { child(spec, "linux")["intelRdt"] = map[string]any{"closID": "x"} }},
		{"selinuxLabel", func(spec map[string]any) { child(spec, "process")["selinuxLabel"] = "system_u:object_r:x:s0" }},
		{"apparmorProfile", func(spec map[string]any) { child(spec, "process")["apparmorProfile"] = "strict" }},
	}
	for _, tt := range tests {
		t.Run(tt.field, func(t *testing.T) {
			res := runWithSpec(t, rig.Container{Runtime: runtime, Args: sh("echo ran")}, tt.change)
			if res.Code == 0 || !strings.Contains(strings.ToLower(res.Stderr), strings.ToLower(tt.field)) {
				t.Errorf("%s was not refused by name: %s", tt.field, res)
			}
		})
	}
}

// TestConfig passes a configuration file by the runtime's options.
func TestConfig(t *testing.T) {
	begin(t)
	tests := []struct {
		name, toml, want string
	}{
		{"number of CPUs", "num-cpus = 3\n", "3\n3\n"},
		{"one CPU", "num-cpus = 1\n", "1\n1\n"},
	}
	run := func(t *testing.T, toml string) rig.Result {
		file := filepath.Join(t.TempDir(), "runsc.toml")
		if err := os.WriteFile(file, []byte(toml), 0o644); err != nil {
			t.Fatal(err)
		}
		return R.Run(rig.Container{Runtime: runtime, Flags: []string{"--runtime-config-path", file}, Args: sh("nproc; grep -c ^processor /proc/cpuinfo")})
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if res := run(t, tt.toml); res.Code != 0 || res.Stdout != tt.want {
				t.Error(res)
			}
		})
	}
	t.Run("unknown key", func(t *testing.T) {
		if res := run(t, "num-spus = 3\n"); res.Code == 0 || !strings.Contains(res.Stderr, "num-spus") {
			t.Errorf("an unknown key was not refused by name: %s", res)
		}
	})
}
