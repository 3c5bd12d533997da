package kernel_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"runsc/sentry/cred"
	"runsc/sentry/kernel"
	"runsc/sentry/vfs"
)

const forever = "1000"

// TestExitOrder: the exits of exec'd processes are told before init's.
func TestExitOrder(t *testing.T) {
	r := newRig(t, 0, nil)
	r.start("", "/bin/sleep", forever)
	for _, id := range []string{"a", "b", "c"} {
		r.start(id, "/bin/sh", "-c", "sleep 1000; true")
	}
	time.Sleep(50 * time.Millisecond)
	if err := r.c.SignalInit(int32(unix.SIGKILL)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if e := r.wait(); e.id == "" || e.status != 137 {
			t.Errorf("exit %+v before init's", e)
		}
	}
	if e := r.wait(); e.id != "" || e.status != 137 {
		t.Errorf("last exit is %+v", e)
	}
	if n := r.c.NumTasks(); n != 0 {
		t.Errorf("%d tasks are left", n)
	}
	if _, err := r.c.CreateProcess(kernel.ProcessConfig{}); err == nil {
		t.Error("exec after init's end")
	}
}

// TestInitSignals: pid 1 ignores signals without a handler, others do not.
func TestInitSignals(t *testing.T) {
	r := newRig(t, 0, nil)
	init := r.start("", "/bin/sleep", forever)
	e := r.start("e", "/bin/sleep", forever)
	time.Sleep(50 * time.Millisecond)
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGSEGV} {
		if err := init.SignalFromOutside(int32(sig)); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.SignalFromOutside(int32(unix.SIGTERM)); err != nil {
		t.Fatal(err)
	}
	if x := r.wait(); x != (exit{"e", 143}) {
		t.Errorf("%+v", x)
	}
	if init.Zombie() {
		t.Error("init died of a signal without a handler")
	}
	if err := e.SignalFromOutside(0); err != unix.ESRCH {
		t.Error(err)
	}
}

// TestNotStarted: a process that never ran goes silently.
func TestNotStarted(t *testing.T) {
	r := newRig(t, 0, nil)
	r.start("", "/bin/sleep", forever)
	r.create("x", "/bin/sleep", forever)
	r.c.KillAll()
	if e := r.wait(); e != (exit{"", 137}) {
		t.Errorf("%+v", e)
	}
	if n := r.c.NumTasks(); n != 0 {
		t.Errorf("%d tasks are left", n)
	}
}

// TestKilledBeforeStart: SIGKILL ends a process that waits for its start.
func TestKilledBeforeStart(t *testing.T) {
	r := newRig(t, 0, nil)
	tg := r.create("", "/bin/sleep", forever)
	if err := tg.SignalFromOutside(int32(unix.SIGKILL)); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(5 * time.Second); r.c.NumTasks() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it lives")
		}
	}
	if err := tg.Start(); err != kernel.ErrNotRunning {
		t.Error(err)
	}
	if len(r.exitQ) != 0 {
		t.Error("its exit was reported")
	}
}

// TestCreateInDyingContainer: a container ends while processes are made in it.
func TestCreateInDyingContainer(t *testing.T) {
	for i := range 10 {
		r := newRig(t, 0, nil)
		r.start("", "/bin/sleep", forever)
		var makers sync.WaitGroup
		for m := range 4 {
			makers.Go(func() {
				for n := 0; ; n++ {
					r.ns.IncRef()
					_, err := r.c.CreateProcess(kernel.ProcessConfig{
						ExecID: fmt.Sprint(m, ".", n), Filename: "/bin/sleep", Argv: []string{"/bin/sleep", forever}, Cred: cred.Root(),
						FS: vfs.NewFSContext(r.root, r.root, 0o022), Files: vfs.NewFDTable(), MountNS: r.ns,
					})
					if err != nil {
						if err != kernel.ErrNotRunning {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		time.Sleep(time.Duration(i) * time.Millisecond)
		r.c.KillAll()
		makers.Wait()
		if e := r.wait(); e != (exit{"", 137}) {
			t.Errorf("%+v", e)
		}
		if n := r.c.NumTasks(); n != 0 {
			t.Errorf("%d tasks are left", n)
		}
		for end := time.Now().Add(5 * time.Second); r.c.Account().Total() != 0; time.Sleep(time.Millisecond) {
			if time.Now().After(end) { // frames go when the stubs have gone
				t.Fatalf("%d bytes are left", r.c.Account().Total())
			}
		}
	}
}

// TestPause: nothing runs while the container is paused, and SIGKILL still
// gets through.
func TestPause(t *testing.T) {
	guest := buildGuest(t)
	r := newRig(t, 0, nil)
	r.write("/bin/guest", guest, 0o755)
	r.start("", "/bin/sh", "-c", "while :; do echo x; sleep 0.001; done")
	r.start("spin", "/bin/guest", "spin")
	time.Sleep(100 * time.Millisecond)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for range 5 {
		if err := r.c.Pause(ctx); err != nil {
			t.Fatal(err)
		}
		before := len(r.read("/out."))
		time.Sleep(20 * time.Millisecond)
		if after := len(r.read("/out.")); before != after || before == 0 {
			t.Errorf("output grew from %d to %d while paused", before, after)
		}
		r.c.Resume()
		for end := time.Now().Add(5 * time.Second); len(r.read("/out.")) == before; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("no output after the pause")
			}
		}
	}
	if err := r.c.Pause(ctx); err != nil {
		t.Fatal(err)
	}
	if err := r.c.SignalAll(int32(unix.SIGKILL)); err != nil {
		t.Fatal(err)
	}
	r.wait()
	if e := r.wait(); e != (exit{"", 137}) {
		t.Errorf("%+v", e)
	}
}

// TestPidsLimit: forks beyond the limit fail with EAGAIN.
func TestPidsLimit(t *testing.T) {
	guest := buildGuest(t)
	r := newRig(t, 0, func(c *kernel.ContainerConfig) { c.PidsLimit = 50 })
	r.write("/bin/guest", guest, 0o755)
	out, status := r.run("/bin/guest", "forks")
	if status != 0 || !strings.Contains(out, "forked true") {
		t.Errorf("status %d: %s", status, out)
	}
}

// TestOOM: the process that takes the memory is killed, and the shim is told
// before its exit.
func TestOOM(t *testing.T) {
	guest := buildGuest(t)
	oom := make(chan bool, 10)
	r := newRig(t, 64<<20, func(c *kernel.ContainerConfig) { c.OnOOM = func() { oom <- true } })
	r.write("/bin/guest", guest, 0o755)
	r.start("", "/bin/sh", "-c", "/bin/guest hog; echo status $?; exec /bin/guest hog")
	e := r.wait()
	if e.status != 137 {
		t.Errorf("%+v", e)
	}
	if out := r.read("/out."); !strings.Contains(out, "status 137") {
		t.Errorf("%q", out)
	}
	if len(oom) != 2 || r.c.OOMKills() != 2 {
		t.Errorf("%d events, %d kills, want 2", len(oom), r.c.OOMKills())
	}
}

// TestZombieLeft: a pod's pid 1 that reaps nothing does not hold up the end of
// another container.
func TestZombieLeft(t *testing.T) {
	r := newRig(t, 0, nil)
	r.start("", "/bin/sleep", forever)
	exits := make(chan exit, 10)
	app, err := r.k.NewContainer(kernel.ContainerConfig{
		ID: "app", PIDNamespace: r.c.PIDNamespace(), Group: r.grp, Account: r.c.Account(),
		OnExit: func(id string, status int) { exits <- exit{id, status} },
	})
	if err != nil {
		t.Fatal(err)
	}
	pod := r.c
	r.c = app
	r.start("", "/bin/sh", "-c", "sh -c 'sleep 0.05 & exit'; sleep 0.2; exit 4")
	if e := <-exits; e.status != 4 {
		t.Errorf("%+v", e)
	}
	r.c = pod
	if err := app.Destroy(); err != nil {
		t.Error(err)
	}
}

// TestSharedNamespace: the end of a pod's pid 1 ends the containers that share
// its namespace.
func TestSharedNamespace(t *testing.T) {
	r := newRig(t, 0, nil)
	r.start("", "/bin/sleep", forever)
	exits := make(chan exit, 10)
	app, err := r.k.NewContainer(kernel.ContainerConfig{
		ID: "app", PIDNamespace: r.c.PIDNamespace(), Group: r.grp, Account: r.c.Account(),
		OnExit: func(id string, status int) { exits <- exit{"app" + id, status} },
	})
	if err != nil {
		t.Fatal(err)
	}
	pod := r.c
	r.c = app
	tg := r.start("", "/bin/sh", "-c", "kill -9 $$; sleep 1000 & sleep 1000")
	select {
	case e := <-exits:
		// It is not pid 1, so it can kill itself.
		if e.status != 137 {
			t.Errorf("%+v", e)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("no exit")
	}
	if tg.ID(app.PIDNamespace()) != 2 {
		t.Errorf("pid %d", tg.ID(app.PIDNamespace()))
	}
	if err := app.Destroy(); err != nil {
		t.Error(err)
	}
	app, err = r.k.NewContainer(kernel.ContainerConfig{
		ID: "app", PIDNamespace: pod.PIDNamespace(), Group: r.grp, Account: pod.Account(),
		OnExit: func(id string, status int) { exits <- exit{"app" + id, status} },
	})
	if err != nil {
		t.Fatal(err)
	}
	r.c = app
	r.start("", "/bin/sh", "-c", "sleep 1000 & sleep 1000")
	time.Sleep(50 * time.Millisecond)
	if err := pod.SignalInit(int32(unix.SIGKILL)); err != nil {
		t.Fatal(err)
	}
	if e := r.wait(); e.status != 137 {
		t.Errorf("%+v", e)
	}
	select {
	case e := <-exits:
		if e != (exit{"app", 137}) {
			t.Errorf("%+v", e)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("the app lives on")
	}
	r.c = pod
}

// TestKilled kills a busy container at odd moments; nothing may be left.
func TestKilled(t *testing.T) {
	guest := buildGuest(t)
	for i := range 8 {
		r := newRig(t, 0, nil)
		r.write("/bin/guest", guest, 0o755)
		script := "while :; do /bin/guest threads exec gc killthreads pgrp stopwait execthread >/dev/null; done & "
		r.start("", "/bin/sh", "-c", script+script+"seq 100000 | sort >/dev/null; wait")
		r.start("x", "/bin/sh", "-c", script+"exec /bin/guest spin")
		time.Sleep(time.Duration(i*i) * 7 * time.Millisecond)
		r.c.KillAll()
		r.wait()
		if e := r.wait(); e != (exit{"", 137}) {
			t.Errorf("%+v", e)
		}
		if n := r.c.NumTasks(); n != 0 {
			t.Errorf("%d tasks are left", n)
		}
		// Frames go when the stubs are dead.
		for i := 0; i < 1000 && r.c.Account().Total() != 0; i++ {
			time.Sleep(time.Millisecond)
		}
		// Frames are freed when the host has reaped the stubs.
		for end := time.Now().Add(5 * time.Second); r.c.Account().Total() != 0; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d bytes are left", r.c.Account().Total())
			}
		}
		if err := r.c.Destroy(); err != nil {
			t.Error(err)
		}
	}
}
