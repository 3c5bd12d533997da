//go:build system

package system

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"runsc/test/rig"
)

// witness starts a container that counts, and checks at the test's end that nothing disturbed it.
func witness(t *testing.T) {
	t.Helper()
	id := detached(t, rig.Container{Args: sh("i=0; while :; do i=$((i+1)); echo $i > /tmp/n; sleep 0.05; done")})
	t.Cleanup(func() {
		res := R.Ctr("task", "exec", "--exec-id", R.NewID(), id, "sh", "-c", "a=$(cat /tmp/n); sleep 0.5; b=$(cat /tmp/n); [ $b -gt $a ] && echo counts")
		if res.Stdout != "counts\n" {
			t.Errorf("another container was disturbed: %s", res)
		}
	})
}

// roommate starts a pod whose root counts and returns the flags that put a container into the pod.
func roommate(t *testing.T) []string {
	t.Helper()
	id := R.NewID()
	detached(t, rig.Container{ID: id, Flags: podRoot(id), Args: sh("echo up; while :; do sleep 0.05; done")})
	awaitOutput(t, id, "up")
	t.Cleanup(func() {
		if res := R.Ctr("task", "exec", "--exec-id", R.NewID(), id, "echo", "fine"); res.Stdout != "fine\n" {
			t.Errorf("the pod's root was disturbed: %s", res)
		}
	})
	return podMember(id)
}

// TestGarbage runs instructions that no program has, beside another container and in a pod.
func TestGarbage(t *testing.T) {
	begin(t)
	witness(t)
	flags := roommate(t)
	for range 3 {
		res := ok(t, R.Run(rig.Container{Runtime: runtime, Image: rig.Guest, Flags: flags, Args: []string{"/guest/garbage"}}))
		if strings.Count(res.Stdout, ": signal ") != 15 {
			t.Error(res)
		}
	}
}

// TestStubJump attacks the code that serves guest threads, from inside.
func TestStubJump(t *testing.T) {
	begin(t)
	witness(t)
	flags := roommate(t)
	res := R.Run(rig.Container{Runtime: runtime, Image: rig.Guest, Flags: flags, Args: []string{"/guest/stubjump"}, Timeout: 3 * time.Minute})
	if res.Code != 0 || res.TimedOut || res.Stdout != "held\n" {
		t.Error(res)
	}
	t.Logf("%s", res.Stderr)
}

// TestForgedEntries enters the kernel by doors that programs do not use, and returns from signals with
// forged frames: what is not Linux's ends the process that tried it, and no more.
func TestForgedEntries(t *testing.T) {
	begin(t)
	witness(t)
	flags := roommate(t)
	res := R.Run(rig.Container{Runtime: runtime, Image: rig.Guest, Flags: flags, Args: []string{"/guest/forge"}, Timeout: 3 * time.Minute})
	if res.Code != 0 || res.TimedOut || res.Stdout != "all done\n" {
		t.Error(res)
	}
	t.Logf("%s", res.Stderr)
}

// TestForkBomb forks until the container's pid limit, which is exact, stops it.
func TestForkBomb(t *testing.T) {
	begin(t)
	witness(t)
	const limit = 64
	run := func(runtime string) rig.Result {
		c := rig.Container{Runtime: runtime, Image: rig.Guest, Args: []string{"/guest/forkbomb", "1000"}}
		return runWithSpec(t, c, func(spec map[string]any) {
			child(spec, "linux", "resources")["pids"] = map[string]any{"limit": limit}
		})
	}
	want, got := run(rig.Runc), run(runtime)
	if line := fmt.Sprintf("%d children, then EAGAIN\n", limit-1); want.Stdout != line {
		t.Fatalf("runc: %s", want)
	}
	equal(t, rig.Container{Args: []string{"forkbomb"}}, got, want)
}

// TestKilledAnywhere kills containers in the middle of everything, many times.
func TestKilledAnywhere(t *testing.T) {
	begin(t)
	witness(t)
	flags := roommate(t)
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	for i := range rounds {
		c := rig.Container{Image: rig.Guest, Args: []string{"/guest/churn"}}
		if i%2 == 1 {
			c.Flags = flags
		}
		events := watch(t)
		id := detached(t, c)
		awaitOutput(t, id, "churning")
		time.Sleep(time.Duration(rand.IntN(400)) * time.Millisecond)
		ok(t, R.Ctr("task", "kill", "-s", "KILL", id))
		exits(t, events, id, 137, 10*time.Second)
		events.Stop()
		if res := R.Ctr("task", "rm", id); res.Code != 0 {
			t.Error(res)
		}
	}
}

// TestSpinningThreads has threads spin at barriers, as many as CPUs and more; how fast is for make
// bench, here they only have to get through.
func TestSpinningThreads(t *testing.T) {
	begin(t)
	for _, threads := range []string{"2", "4", "16"} {
		t.Run(threads, func(t *testing.T) {
			res := R.Run(rig.Container{Runtime: runtime, Image: rig.Guest, Args: []string{"/guest/barrier", threads, "200"}})
			if res.Err() != nil || res.Stdout != threads+" threads met 200 times\n" {
				t.Error(res)
			}
			t.Logf("%s ns a round", strings.TrimSpace(res.Stderr))
		})
	}
}

// TestKilledSandbox kills processes of ours from outside: the exit is told soon, and ctr can delete.
func TestKilledSandbox(t *testing.T) {
	begin(t)
	for _, role := range []string{"sandbox", "gofer", "shim", "stub"} {
		t.Run(role, func(t *testing.T) {
			events := watch(t)
			id := detached(t, rig.Container{Args: sh("echo up; while :; do ls -R / > /dev/null 2>&1; done")})
			awaitOutput(t, id, "up")
			killed := false
			for _, p := range R.Processes() {
				if p.Role() == role {
					syscall.Kill(p.PID, syscall.SIGKILL)
					killed = true
				}
			}
			if !killed {
				t.Skipf("no process has the role %s: %v", role, R.Processes())
			}
			if role == "stub" {
				// Guests end with their stubs; containers need not, but none may hang.
				R.Ctr("task", "kill", "-s", "KILL", id)
			}
			if _, err := events.Wait(id, "exit", 5*time.Second); err != nil {
				t.Error(err)
			}
			if res := R.Ctr("task", "rm", "-f", id); res.TimedOut {
				t.Error(res)
			}
			if res := R.Ctr("c", "rm", id); res.Err() != nil {
				t.Error(res)
			}
			if res := R.Run(rig.Container{Runtime: runtime, ID: id, Args: []string{"echo", "again"}}); res.Stdout != "again\n" {
				t.Errorf("the id cannot be used again: %s", res)
			}
		})
	}
}

// TestSandboxProcesses looks at our processes from the host: who they are and what they may do.
func TestSandboxProcesses(t *testing.T) {
	begin(t)
	id := detached(t, rig.Container{Args: sh("echo up; sleep 1000")})
	awaitOutput(t, id, "up")
	seen := map[string]int{}
	for _, p := range R.Processes() {
		role := p.Role()
		seen[role]++
		if role == "shim" {
			continue
		}
		st := status(t, p.PID)
		if st["NoNewPrivs"] != "1" {
			t.Errorf("%s: no_new_privs is %s", p, st["NoNewPrivs"])
		}
		for _, ns := range []string{"mnt", "pid", "ipc", "uts", "user"} {
			if role == "gofer" && ns != "mnt" {
				continue // its mount namespace is what the gofer owes
			}
			if link(t, p.PID, "ns/"+ns) == link(t, os.Getpid(), "ns/"+ns) {
				t.Errorf("%s is in the host's %s namespace", p, ns)
			}
		}
	}
	if seen["shim"] != 1 || seen["sandbox"] != 1 || seen["gofer"] != 1 {
		t.Errorf("processes: %v", seen)
	}
}
