//go:build system

package system

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"runsc/test/rig"
)

// busy is a container that counts beside programs with threads in system calls, faults and forks, and processes that
// come and go.
func busy(p place) rig.Container {
	const storm = "for i in 1 2 3 4; do /guest/churn > /dev/null & done; (while :; do (:); /bin/true; done) & "
	return rig.Container{Image: rig.Guest, Flags: p.flags, Args: sh(storm + counting)}
}

// TestCheckpointLoad saves a busy container many times in a row: none fails, the container goes on, the last
// image is as busy when it is restored, and can be saved again.
func TestCheckpointLoad(t *testing.T) {
	begin(t)
	p := newPlace(t)
	id := detached(t, busy(p))
	n := counts(t, id, 5)
	c, ctx := service(t)
	const saves = 20
	var longest time.Duration
	for i := range saves {
		if err := saveRunning(ctx, c, id, p.img(i)); err != nil {
			t.Fatalf("save %d: %v", i, err)
		}
		longest = max(longest, time.Duration(manifest(t, p.img(i)).PauseNanos))
		if i%5 == 4 {
			ok(t, image("verify", p.img(i)))
		}
		if i < saves-1 {
			os.RemoveAll(p.img(i))
		}
		n = counts(t, id, n)
	}
	t.Logf("the longest pause was %v", longest)
	R.Remove(id)
	r := p.restored(p.img(saves - 1))
	r.Image = rig.Guest
	id = detached(t, r)
	counts(t, id, last(R.Output(id))+3)
	if err := saveRunning(ctx, c, id, p.img(saves)); err != nil {
		t.Errorf("the copy: %v", err)
	}
	ok(t, image("verify", p.img(saves)))
}

// TestCheckpointsAtOnce asks for several saves of one container at once: one after the other is made, all are good.
func TestCheckpointsAtOnce(t *testing.T) {
	begin(t)
	p := newPlace(t)
	id := detached(t, busy(p))
	counts(t, id, 3)
	c, ctx := service(t)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			if err := saveRunning(ctx, c, id, p.img(i)); err != nil {
				t.Errorf("save %d: %v", i, err)
			} else if res := image("verify", p.img(i)); res.Code != 0 {
				t.Errorf("verify: %s", res)
			}
		})
	}
	all.Wait()
	counts(t, id, last(R.Output(id)))
}

// TestCheckpointKilled kills a busy container at some moment of its save: it ends, and the image is good or is none.
func TestCheckpointKilled(t *testing.T) {
	begin(t)
	events := watch(t)
	c, ctx := service(t)
	for i, after := range []time.Duration{0, 5 * time.Millisecond, 20 * time.Millisecond, 60 * time.Millisecond} {
		p := newPlace(t)
		id := detached(t, busy(p))
		counts(t, id, 2)
		done := make(chan error, 1)
		go func() { done <- saveRunning(ctx, c, id, p.img(i)) }()
		time.Sleep(after)
		ok(t, R.CtrWithin(10*time.Second, "task", "kill", "-a", "-s", "KILL", id))
		exits(t, events, id, 137, 10*time.Second)
		if err := within(t, "the save", 20*time.Second, done); err == nil {
			ok(t, image("verify", p.img(i)))
		} else if left, _ := filepath.Glob(filepath.Join(p.img(i), "*")); len(left) > 0 {
			t.Error(fmt.Errorf("%w, and left: %v", err, left))
		}
		R.Remove(id)
	}
}
