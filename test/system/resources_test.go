//go:build system

package system

import (
	"slices"
	"testing"
	"time"

	"runsc/test/rig"
)

// TestMemoryLimit has a container exceed its limit: the guest is killed, and TaskOOM comes before
// TaskExit.
func TestMemoryLimit(t *testing.T) {
	begin(t)
	witness(t)
	events := watch(t)
	c := rig.Container{Image: rig.Guest, Flags: []string{"--memory-limit", "67108864"}, Args: []string{"/guest/memhog", "200"}}
	id := detached(t, c)
	exits(t, events, id, 137, 30*time.Second)
	topics := events.Topics(id)
	if oom, exit := slices.Index(topics, "oom"), slices.Index(topics, "exit"); oom < 0 || oom > exit {
		t.Errorf("events %v, want oom before exit", topics)
	}
	t.Run("below the limit", func(t *testing.T) {
		c.Runtime, c.Args = runtime, []string{"/guest/memhog", "40"}
		if res := R.Run(c); res.Err() != nil {
			t.Error(res)
		}
	})
	t.Run("a child is the victim", func(t *testing.T) {
		c.Runtime, c.Args = runtime, sh("/guest/memhog 200; echo $?; echo lives")
		if res := R.Run(c); res.Stdout != "137\nlives\n" {
			t.Error(res)
		}
	})
	t.Run("files in memory count", func(t *testing.T) {
		c.Runtime, c.Args = runtime, sh("dd if=/dev/zero of=/dev/shm/f bs=1M count=200 2>/dev/null; echo $?")
		if res := R.Run(c); res.Code == 0 && res.Stdout == "0\n" {
			t.Errorf("200 MiB fit into 64 MiB: %s", res)
		}
	})
}

// TestPodMemoryLimits gives containers of one pod different limits.
func TestPodMemoryLimits(t *testing.T) {
	begin(t)
	events := watch(t)
	flags := roommate(t)
	limited := func(limit string) rig.Container {
		return rig.Container{Image: rig.Guest, Flags: append([]string{"--memory-limit", limit}, flags...), Args: []string{"/guest/memhog", "150", "1000"}}
	}
	large := detached(t, limited("268435456"))
	awaitOutput(t, large, "held")
	small := detached(t, limited("67108864"))
	exits(t, events, small, 137, 30*time.Second)
	if !slices.Contains(events.Topics(small), "oom") {
		t.Errorf("no OOM event: %v", events.Topics(small))
	}
	if slices.Contains(events.Topics(large), "oom") || R.Status(large) != "RUNNING" {
		t.Errorf("the container with the larger limit is %s: %v", R.Status(large), events.Topics(large))
	}
	onePod(t)
}

// TestIdle has a container sleep for a minute: all our processes together use less than 0.1 s of CPU.
func TestIdle(t *testing.T) {
	begin(t)
	id := detached(t, rig.Container{Args: sh("echo up; exec sleep 1000")})
	awaitOutput(t, id, "up")
	time.Sleep(2 * time.Second) // what follows a start
	used := func() (sum time.Duration) {
		for _, p := range R.Processes() {
			sum += p.CPU
		}
		return sum
	}
	length := time.Minute
	if testing.Short() {
		length = 10 * time.Second
	}
	before := used()
	time.Sleep(length)
	if got, most := used()-before, length/600; got >= most {
		t.Errorf("asleep for %v our processes used %v of CPU, want less than %v: %v", length, got, most, R.Processes())
	} else {
		t.Logf("%v of CPU in %v", got, length)
	}
}
