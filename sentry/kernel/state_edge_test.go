package kernel_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"math/rand"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"runsc/sentry/cred"
	"runsc/sentry/kernel"
	"runsc/sentry/seccompbpf"
)

// TestSaveLeavesExecOut checks that exec'd processes and all that came of them
// are not in the image, and go on.
func TestSaveLeavesExecOut(t *testing.T) {
	r := newRig(t, 0, nil)
	r.start("", "/bin/sh", "-c", "sleep 0.9 & echo ready; sleep 1; kill -0 3 2>/dev/null || echo gone; (exit 4); echo $?; wait; exit 3")
	r.waitOut("ready\n")
	// Leaves a child to init, as a daemon does.
	r.start("e1", "/bin/sh", "-c", "(sleep 0.7; echo daemon) & exit 0")
	r.start("e2", "/bin/sh", "-c", "sleep 0.6; echo exec")
	if e := r.wait(); e.id != "e1" {
		t.Fatal(e)
	}
	img := r.save()
	if e := r.wait(); e.id != "e2" || r.read("/out.e2") != "exec\n" {
		t.Error("exec'd process: ", e)
	}
	if e := r.wait(); e.id != "" || e.status != 3 || r.read("/out.e1") != "daemon\n" {
		t.Errorf("original: %v, daemon %q", e, r.read("/out.e1"))
	}
	c := img.restore(t)
	if n := len(c.c.Processes()); n != 3 { // the shell and two sleeps
		t.Errorf("%d processes in the copy", n)
	}
	c.startRestored()
	if e := c.wait(); e.status != 3 || c.read("/out.e2") != "" || c.read("/out.e1") != "" || !strings.HasSuffix(c.read("/out."), "4\n") {
		t.Errorf("copy: %v, %q", e, c.read("/out."))
	}
}

// TestSavePaused saves a paused container, which stays paused.
func TestSavePaused(t *testing.T) {
	r := newRig(t, 0, nil)
	r.start("", "/bin/sh", "-c", "echo ready; sleep 0.3; echo more; seq 1000 | tail -1; echo end")
	r.waitOut("ready\n")
	ctx := context.Background()
	if err := r.c.Pause(ctx); err != nil {
		t.Fatal(err)
	}
	time.Sleep(400 * time.Millisecond)
	img := r.save()
	time.Sleep(200 * time.Millisecond)
	if out := r.read("/out."); out != "ready\n" || !r.c.Paused() {
		t.Errorf("runs on: %q", out)
	}
	img2 := r.save()
	r.c.Resume()
	if e := r.wait(); e.status != 0 || !strings.HasSuffix(r.read("/out."), "end\n") {
		t.Errorf("original: %v %q", e, r.read("/out."))
	}
	for _, i := range []*savedImage{img, img2} {
		c := i.restore(t)
		c.startRestored()
		if e := c.wait(); e.status != 0 || !strings.HasSuffix(c.read("/out."), "end\n") {
			t.Errorf("copy: %v %q", e, c.read("/out."))
		}
	}
}

// TestStopForSaveFails checks what is refused, and that nothing changes by it.
func TestStopForSaveFails(t *testing.T) {
	r := newRig(t, 0, nil)
	ctx := context.Background()
	if err := r.c.StopForSave(ctx); err != kernel.ErrNotRunning {
		t.Error("without init: ", err)
	}
	r.start("", "/bin/sh", "-c", "trap '' TERM; echo ready; sleep 0.5; echo end")
	r.waitOut("ready\n")
	if err := r.c.StopForSave(ctx); err != nil {
		t.Fatal(err)
	}
	if err := r.c.StopForSave(ctx); err != kernel.ErrSaving {
		t.Error("twice: ", err)
	}
	// Even SIGKILL waits for the end of the cut.
	r.c.InitProcess().SignalFromOutside(int32(unix.SIGKILL))
	time.Sleep(50 * time.Millisecond)
	if r.c.NumTasks() != 2 || len(r.exitQ) != 0 {
		t.Error("killed in the middle of a save")
	}
	img, err := r.saveStopped()
	if err != nil {
		t.Fatal(err)
	}
	r.c.ResumeAfterSave()
	if e := r.wait(); e.status != 137 {
		t.Error(e)
	}
	if err := r.c.StopForSave(ctx); err != kernel.ErrNotRunning {
		t.Error("at the end: ", err)
	}
	// The kill came before the cut was over: the copy has it too.
	c := img.restore(t)
	c.startRestored()
	if e := c.wait(); e.status != 137 {
		t.Error("copy: ", e)
	}
	// A copy that is never started can be discarded.
	c = img.restore(t)
	c.c.InitProcess().Discard()
	if !c.k.WaitTasks(5*time.Second) || len(c.exitQ) != 0 {
		t.Error("a copy that was not started does not go")
	}
}

// TestRestoreDamaged restores images with changed records: an error or a
// container that ends by itself or can be killed, no panic.
func TestRestoreDamaged(t *testing.T) {
	r := newRig(t, 0, nil)
	r.start("", "/bin/sh", "-c", "sleep 9 & (exit 3) & trap 'echo x' USR1; echo ready; cat /in. | sleep 9; wait")
	r.waitOut("ready\n")
	time.Sleep(100 * time.Millisecond)
	img := r.save()
	rnd := rand.New(rand.NewSource(1))
	refused := 0
	rounds := 60
	if testing.Short() {
		rounds = 10
	}
	for i := range rounds {
		bad := *img
		bad.records = damage(img.records, rnd, i)
		c, err := bad.tryRestore(t)
		if err != nil {
			refused++
			continue
		}
		if c.c.InitProcess().Start() == nil {
			time.Sleep(5 * time.Millisecond)
		}
		c.k.KillAll()
		if !c.k.WaitTasks(5 * time.Second) {
			t.Fatal("tasks are left")
		}
	}
	t.Log(refused, " of ", rounds, " refused")
}

// damage changes a byte of some records of processes and mends their checksums.
func damage(img []byte, rnd *rand.Rand, round int) []byte {
	out := bytes.Clone(img)
	le := binary.LittleEndian
	table := crc32.MakeTable(crc32.Castagnoli)
	var at []int
	for off := 16; off < len(out); off += 16 + int(le.Uint32(out[off+8:])) {
		if k := le.Uint16(out[off:]); k >= 10 && k < 40 {
			at = append(at, off)
		}
	}
	for range 1 + round%3 {
		off := at[rnd.Intn(len(at))]
		n := int(le.Uint32(out[off+8:]))
		p := out[off+16 : off+16+n]
		p[rnd.Intn(n)] ^= byte(1 + rnd.Intn(255))
		le.PutUint32(out[off+12:], crc32.Update(crc32.Checksum(out[off:off+12], table), table, p))
	}
	return out
}

// TestRestoreClocks restores into a sandbox of its own, into one where another
// container only waits, and into one where another lives by the clock.
func TestRestoreClocks(t *testing.T) {
	r := newRig(t, 0, nil)
	r.start("", "/bin/sh", "-c", "echo ready; sleep 1; echo end")
	r.waitOut("ready\n")
	time.Sleep(200 * time.Millisecond)
	img := r.save()
	mono := r.k.Clock().Monotonic()
	tests := []struct {
		name, other string
		set         bool
	}{{"alone", "", true}, {"waiting", "read x </tmp/p", true}, {"sleeping", "sleep 9", false}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := img.tryRestoreBeside(t, func(c *rig) {
				c.k.Clock().SetMonotonic(mono - int64(time.Hour))
				if tt.other != "" {
					c.other(tt.other)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			c.startRestored()
			if got := c.k.Clock().Monotonic() > mono-int64(time.Second); got != tt.set {
				t.Errorf("clock set: %v", got)
			}
			for e := c.wait(); e.id != ""; e = c.wait() {
			}
			if d := time.Since(start); d < 700*time.Millisecond || d > 1500*time.Millisecond {
				t.Errorf("slept %v", d)
			}
			if out := c.read("/out."); out != "ready\nend\n" {
				t.Errorf("%q", out)
			}
		})
	}
}

// profile is a filter such as that of a specification: it refuses one call.
type profile struct{ nr int32 }

func (p *profile) Run(d *seccompbpf.Data) uint32 {
	if d.Nr == p.nr {
		return unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	}
	return unix.SECCOMP_RET_ALLOW
}

// TestRestorePolicy checks that the new specification's filter and capabilities
// hold, whatever the image has.
func TestRestorePolicy(t *testing.T) {
	r := newRig(t, 0, nil)
	tg := r.create("", "/bin/sh", "-c", "echo ready; sleep 0.3; mkdir /tmp/a && echo made; hostname new 2>/dev/null || echo refused; rmdir /tmp/b || echo no; (sleep 0.1)")
	tg.Leader().AddSeccompFilter(&profile{unix.SYS_MKDIR}, false)
	r.mkdir("/tmp/b")
	if err := tg.Start(); err != nil {
		t.Fatal(err)
	}
	r.waitOut("ready\n")
	time.Sleep(50 * time.Millisecond)
	img := r.save()
	r.wait()
	if out := r.read("/out."); strings.Contains(out, "made") || strings.Contains(out, "refused") || strings.Contains(out, "no\n") {
		t.Errorf("original: %q", out)
	}
	img.change = func(e *kernel.RestoreEnv) {
		e.Seccomp = &profile{unix.SYS_RMDIR}
		c := cred.Root()
		c.Bounding &^= 1 << unix.CAP_SYS_ADMIN
		e.Cred = c
	}
	for range 2 {
		c := img.restore(t)
		c.startRestored()
		change := img.change
		img = c.save()
		img.change = change
		c.wait()
		if out := c.read("/out."); !strings.Contains(out, "made") || !strings.Contains(out, "refused") || !strings.Contains(out, "no\n") {
			t.Errorf("copy: %q", out)
		}
	}
}
