//go:build system

package system

import (
	"strings"
	"testing"
	"time"

	"runsc/test/rig"
)

// TestKill sends signals to the first process of a container.
func TestKill(t *testing.T) {
	begin(t)
	tests := []struct {
		name   string
		args   []string
		ready  string // what the container writes once it may be signalled
		signal string
		want   int // exit status; -1 means that it lives on
	}{
		{"TERM without a handler", sh("echo up; while :; do sleep 0.1; done"), "up", "TERM", -1},
		{"INT without a handler", sh("echo up; exec sleep 1000"), "up", "INT", -1},
		{"TERM with a handler", sh("trap 'exit 9' TERM; echo up; while :; do sleep 0.1; done"), "up", "TERM", 9},
		{"a number", sh("trap 'exit 12' USR2; echo up; while :; do sleep 0.1; done"), "up", "12", 12},
		{"KILL", sh("echo up; while :; do sleep 0.1; done"), "up", "KILL", 137},
		{"KILL in sleep", sh("echo up; exec sleep 1000"), "up", "KILL", 137},
		{"KILL in a busy loop", sh("echo up; while :; do :; done"), "up", "KILL", 137},
		{"KILL while stopped", sh("echo up; kill -STOP $$; sh -c 'kill -STOP $PPID'; sleep 1000"), "up", "KILL", 137},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			events := watch(t)
			id := detached(t, rig.Container{Args: tt.args})
			awaitOutput(t, id, tt.ready)
			ok(t, R.Ctr("task", "kill", "-s", tt.signal, id))
			if tt.want >= 0 {
				exits(t, events, id, tt.want, 5*time.Second)
				return
			}
			time.Sleep(500 * time.Millisecond)
			if got := R.Status(id); got != "RUNNING" {
				t.Errorf("status is %q after %s", got, tt.signal)
			}
		})
	}
}

// TestKillExec sends signals to a process that exec started.
func TestKillExec(t *testing.T) {
	begin(t)
	tests := []struct {
		name   string
		args   []string
		signal string
		want   int
	}{
		{"TERM to sleep", []string{"sleep", "1000"}, "TERM", 143},
		{"KILL to sleep", []string{"sleep", "1000"}, "KILL", 137},
		{"INT to a shell with a trap", sh("trap 'exit 4' INT; while :; do sleep 0.1; done"), "INT", 4},
		{"HUP to sleep", []string{"sleep", "1000"}, "HUP", 129},
	}
	id := detached(t, rig.Container{Args: sh("while :; do sleep 0.2; done")})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			events := watch(t)
			exec := R.NewID()
			done := make(chan rig.Result, 1)
			go func() {
				done <- R.Ctr(append([]string{"task", "exec", "--exec-id", exec, id}, tt.args...)...)
			}()
			if _, err := events.Wait(id, "exec-started", 10*time.Second); err != nil {
				t.Fatal(err)
			}
			time.Sleep(300 * time.Millisecond) // for the trap
			ok(t, R.Ctr("task", "kill", "--exec-id", exec, "-s", tt.signal, id))
			select {
			case res := <-done:
				if res.Code != tt.want {
					t.Errorf("want exit code %d: %s", tt.want, res)
				}
			case <-time.After(10 * time.Second):
				R.Ctr("task", "kill", "--exec-id", exec, "-s", "KILL", id)
				t.Errorf("%q lives on: %s", tt.args, <-done)
			}
		})
	}
	if got := R.Status(id); got != "RUNNING" {
		t.Errorf("the container's status is %q afterwards", got)
	}
}

// TestKillAll ends every process of a container, not only its first, when the task is killed.
func TestKillAll(t *testing.T) {
	begin(t)
	events := watch(t)
	id := detached(t, rig.Container{Args: sh("for i in 1 2 3; do (setsid sleep 1000 &); done; trap '' HUP; echo up; sleep 1000")})
	awaitOutput(t, id, "up")
	ok(t, R.Ctr("task", "kill", "--all", "-s", "KILL", id))
	exits(t, events, id, 137, 5*time.Second)
	ok(t, R.Ctr("task", "rm", id))
}

// TestExec compares exec with runc: output, exit codes, and what an exec'd process sees.
func TestExec(t *testing.T) {
	begin(t)
	start := func(runtime string) string {
		return detached(t, rig.Container{Runtime: runtime, Args: sh("echo $$ > /tmp/pid; echo up; while :; do sleep 0.2; done")})
	}
	reference, id := start(rig.Runc), start(runtime)
	awaitOutput(t, reference, "up")
	awaitOutput(t, id, "up")
	tests := []struct {
		name  string
		flags []string
		args  []string
	}{
		{"echo", nil, []string{"echo", "ex"}},
		{"exit code", nil, sh("exit 5")},
		{"stderr", nil, sh("echo err >&2")},
		{"same files", nil, sh("cat /tmp/pid")},
		{"same processes", nil, sh("tr '\\0' ' ' < /proc/1/cmdline; readlink /proc/1/exe")},
		{"user", []string{"--user", "1000:1000"}, sh("id; grep CapEff /proc/self/status")},
		{"cwd", []string{"--cwd", "/usr"}, []string{"pwd"}},
		{"environment", nil, sh("env | grep -v SHLVL | sort")},
		{"parent", nil, sh("echo $PPID")},
		{"killed by a signal", nil, sh("kill -9 $$")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			run := func(id string) rig.Result {
				args := append([]string{"task", "exec", "--exec-id", R.NewID()}, tt.flags...)
				return R.Ctr(append(append(args, id), tt.args...)...)
			}
			equal(t, rig.Container{Args: tt.args}, run(id), run(reference))
		})
	}
	t.Run("missing binary", func(t *testing.T) {
		want := R.Ctr("task", "exec", "--exec-id", R.NewID(), reference, "/no/such")
		got := R.Ctr("task", "exec", "--exec-id", R.NewID(), id, "/no/such")
		if got.Code != want.Code || !strings.Contains(got.Stderr, "no such file or directory") {
			t.Errorf("%s\n--- runc: %s", got, want)
		}
	})
}
