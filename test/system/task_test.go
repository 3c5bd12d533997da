//go:build system

package system

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"runsc/test/rig"
)

// TestTaskCommands runs what ctr offers for a live task.
func TestTaskCommands(t *testing.T) {
	begin(t)
	start := func(runtime string) string {
		return detached(t, rig.Container{Runtime: runtime, Image: rig.Guest, Args: sh("/guest/memhog 32 1000 & sleep 1000"), Flags: []string{"--memory-limit", "268435456"}})
	}
	reference, id := start(rig.Runc), start(runtime)
	awaitOutput(t, id, "held")
	awaitOutput(t, reference, "held")
	if got := R.Status(id); got != "RUNNING" {
		t.Errorf("task ls says %q", got)
	}
	t.Run("ps", func(t *testing.T) {
		pids := R.Ctr("task", "ps", id)
		if ok(t, pids); strings.Count(pids.Stdout, "\n") < 2 {
			t.Errorf("no process: %s", pids)
		}
	})
	t.Run("metrics", func(t *testing.T) {
		got, want := metrics(t, id), metrics(t, reference)
		for name := range want {
			if _, there := got[name]; !there {
				t.Errorf("no %s", name)
			}
		}
		for name, least := range map[string]int{"memory.usage_in_bytes": 32 << 20, "cpuacct.usage": 1000000, "pids.current": 1} {
			if _, there := want[name]; !there {
				continue // another cgroup version
			}
			if n, _ := strconv.Atoi(got[name]); n < least {
				t.Errorf("%s is %s, want %d at least (runc: %s)", name, got[name], least, want[name])
			}
		}
		if got["memory.limit_in_bytes"] != want["memory.limit_in_bytes"] {
			t.Errorf("memory limit is %q (runc: %q)", got["memory.limit_in_bytes"], want["memory.limit_in_bytes"])
		}
	})
	t.Run("pause", func(t *testing.T) {
		ok(t, R.Ctr("task", "exec", "--exec-id", R.NewID(), id, "sh", "-c", "(i=0; while :; do i=$((i+1)); echo $i > /tmp/tick.new; mv /tmp/tick.new /tmp/tick; done) > /dev/null 2>&1 &"))
		ok(t, R.Ctr("task", "pause", id))
		if got := R.Status(id); got != "PAUSED" {
			t.Errorf("status is %q", got)
		}
		a := metrics(t, id)["cpuacct.usage"]
		time.Sleep(time.Second)
		b := metrics(t, id)["cpuacct.usage"]
		x, _ := strconv.Atoi(a)
		y, _ := strconv.Atoi(b)
		if y-x > 50000000 {
			t.Errorf("used %d ns of CPU while paused", y-x)
		}
		ok(t, R.Ctr("task", "resume", id))
		if got := R.Status(id); got != "RUNNING" {
			t.Errorf("status is %q after resume", got)
		}
		res := ok(t, R.Ctr("task", "exec", "--exec-id", R.NewID(), id, "sh", "-c", "a=$(cat /tmp/tick); sleep 0.5; [ $a != $(cat /tmp/tick) ] && echo ticks"))
		if res.Stdout != "ticks\n" {
			t.Error("does not run on after resume")
		}
	})
	t.Run("kill while paused", func(t *testing.T) {
		events := watch(t)
		ok(t, R.Ctr("task", "pause", id))
		ok(t, R.Ctr("task", "kill", "-s", "KILL", id))
		R.Ctr("task", "resume", id)
		exits(t, events, id, 137, 5*time.Second)
	})
}

// metrics reads the table of ctr task metrics.
func metrics(t *testing.T, id string) map[string]string {
	t.Helper()
	m := map[string]string{}
	_, table, _ := strings.Cut(ok(t, R.Ctr("task", "metrics", id)).Stdout, "METRIC")
	for line := range strings.Lines(table) {
		if f := strings.Fields(line); len(f) >= 2 && strings.Contains(f[0], ".") {
			m[f[0]] = f[1]
		}
	}
	return m
}

// TestEvents compares the order of events of a container with one exec.
func TestEvents(t *testing.T) {
	begin(t)
	events := watch(t)
	trace := func(runtime string) []string {
		id := R.NewID()
		if _, err := R.Begin(rig.Container{Runtime: runtime, ID: id, Args: sh("trap 'exit 3' TERM; echo up; while :; do sleep 0.1; done")}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { R.Remove(id) })
		awaitOutput(t, id, "up")
		ok(t, R.Ctr("task", "exec", "--exec-id", "e"+id, id, "true"))
		time.Sleep(200 * time.Millisecond)
		ok(t, R.Ctr("task", "pause", id))
		ok(t, R.Ctr("task", "resume", id))
		ok(t, R.Ctr("task", "kill", "-s", "TERM", id))
		if err := R.WaitStatus(id, "STOPPED", 5*time.Second); err != nil {
			t.Error(err)
		}
		if res := ok(t, R.Ctr("task", "rm", id)); !strings.Contains(res.Stderr, "exit code 3") {
			t.Errorf("task rm does not tell exit code 3: %s", res)
		}
		_, err := events.Wait(id, "delete", 3*time.Second)
		topics := events.Topics(id)
		if err != nil && runtime == rig.Runc {
			topics = append(topics, "delete") // runc's shim may end before it has sent its last event
		}
		return topics
	}
	want, got := trace(rig.Runc), trace(runtime)
	if !slices.Equal(got, want) {
		t.Errorf("events %v\n--- runc: %v", got, want)
	}
}

// TestStartAgain deletes a task and starts another on the same container; what the first wrote stays.
func TestStartAgain(t *testing.T) {
	begin(t)
	id := R.NewID()
	ok(t, R.Ctr("c", "create", "--runtime", runtime, rig.Busybox, id, "sh", "-c", "echo $(cat /state 2>/dev/null)x"))
	t.Cleanup(func() { R.Remove(id) })
	for i := range 3 {
		res := R.Ctr("task", "start", id)
		if res.Code != 0 || res.Stdout != "x\n" {
			t.Errorf("start %d: %s", i, res)
		}
	}
}

// TestMany runs 200 containers one after another, and 20 at once.
func TestMany(t *testing.T) {
	begin(t)
	t.Run("200 in a row", func(t *testing.T) {
		start := time.Now()
		for i := range 200 {
			if res := R.Run(rig.Container{Runtime: runtime, Args: []string{"true"}}); res.Err() != nil {
				t.Fatalf("container %d: %s", i, res)
			}
		}
		t.Logf("%.3f s each", time.Since(start).Seconds()/200)
	})
	t.Run("20 at once", func(t *testing.T) {
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				res := R.Run(rig.Container{Runtime: runtime, Args: sh(fmt.Sprintf("sleep 0.5; echo %d", i))})
				if res.Err() != nil || res.Stdout != fmt.Sprintln(i) {
					t.Errorf("container %d: %s", i, res)
				}
			})
		}
		wg.Wait()
	})
}

// TestDaemonRestart restarts containerd under live containers: they run on, and all commands work.
func TestDaemonRestart(t *testing.T) {
	begin(t)
	id := detached(t, rig.Container{Args: sh("trap 'exit 8' TERM; echo up; while :; do sleep 0.1; done")})
	awaitOutput(t, id, "up")
	if err := R.StopDaemon(); err != nil {
		t.Fatal(err)
	}
	if err := R.StartDaemon(); err != nil {
		t.Fatal(err)
	}
	if err := R.WaitStatus(id, "RUNNING", 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if res := ok(t, R.Ctr("task", "exec", "--exec-id", R.NewID(), id, "echo", "again")); res.Stdout != "again\n" {
		t.Error(res)
	}
	if res := ok(t, R.Ctr("task", "ps", id)); strings.Count(res.Stdout, "\n") < 2 {
		t.Errorf("no process: %s", res)
	}
	metrics(t, id)
	events := watch(t)
	ok(t, R.Ctr("task", "kill", "-s", "TERM", id))
	exits(t, events, id, 8, 5*time.Second)
	if res := ok(t, R.Ctr("task", "rm", id)); !strings.Contains(res.Stderr, "exit code 8") {
		t.Errorf("task rm does not tell exit code 8: %s", res)
	}
}

// TestErrors compares the errors of commands on tasks in the wrong state.
func TestErrors(t *testing.T) {
	begin(t)
	type step struct{ args []string }
	script := func(runtime string) []rig.Result {
		id := detached(t, rig.Container{Runtime: runtime, Args: sh("exit 4")})
		if err := R.WaitStatus(id, "STOPPED", 10*time.Second); err != nil {
			t.Error(err)
		}
		steps := []step{
			{[]string{"task", "kill", "-s", "TERM", id}},
			{[]string{"task", "pause", id}},
			{[]string{"task", "exec", "--exec-id", "e", id, "true"}},
			{[]string{"task", "start", id}},
			{[]string{"task", "rm", id}},
			{[]string{"task", "kill", "-s", "TERM", id}},
			{[]string{"task", "rm", id}},
		}
		var results []rig.Result
		for _, s := range steps {
			results = append(results, R.Ctr(s.args...))
		}
		return results
	}
	want, got := script(rig.Runc), script(runtime)
	for i := range want {
		if got[i].Code != want[i].Code || got[i].TimedOut {
			t.Errorf("step %d: %s\n--- runc: %s", i, got[i], want[i])
		}
	}
}
