package kernel_test

import (
	"context"
	"strings"
	"testing"
	"time"
)

// stopping stops and resumes the container again and again until quit is closed.
func (r *rig) stopping(quit chan struct{}, pause time.Duration) (n int) {
	for {
		select {
		case <-quit:
			return n
		case <-time.After(pause):
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		if err := r.c.StopForSave(ctx); err == nil {
			n++
			r.c.ResumeAfterSave()
		} else if ctx.Err() != nil {
			r.t.Error("tasks do not stop: ", err)
		}
		cancel()
	}
}

// runStopped is run with stops in between.
func (r *rig) runStopped(argv ...string) (string, int, int) {
	r.t.Helper()
	r.start("", argv...)
	quit, count := make(chan struct{}), make(chan int)
	go func() { count <- r.stopping(quit, 3*time.Millisecond) }()
	e := r.wait()
	close(quit)
	return r.read("/out."), e.status, <-count
}

// TestStopForSave checks that guests do not notice stops for a save.
func TestStopForSave(t *testing.T) {
	tests := []struct{ name, script, want string }{
		{"sleep", "i=0; while [ $i -lt 8 ]; do sleep 0.1; i=$((i+1)); done; echo $i", "8\n"},
		{"pipeline", "seq 200000 | sort -rn | head -3", "200000\n199999\n199998\n"},
		{"big pipe", "dd if=/dev/zero2 bs=1M count=1 2>/dev/null | (sleep 0.5; wc -c)", "1048576\n"},
		{"fork", "i=0; while [ $i -lt 60 ]; do (exit 3) || /bin/true; i=$((i+1)); done; echo $i", "60\n"},
		{"fifo", "mkfifo /tmp/p; (sleep 0.3; echo x >/tmp/p) & cat /tmp/p; cat /tmp/p & sleep 0.3; echo y >/tmp/p; wait", "x\ny\n"},
		{"trap", `trap 'echo got' USR1; (sleep 0.3; kill -USR1 1; sleep 0.3; kill -USR1 1) & wait; wait; wait; echo end`, "got\ngot\nend\n"},
		{"stopped job", `sh -c 'sleep 0.1; echo a' & p=$!; kill -STOP $p; sleep 0.4; echo b; kill -CONT $p; wait $p`, "b\na\n"},
		{"timeout", "timeout 1 sleep 5; echo $?", "Terminated\n143\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, 0, nil)
			r.write("/dev/zero2", make([]byte, 1<<20), 0o666)
			out, status, n := r.runStopped("/bin/sh", "-c", tt.script)
			if out != tt.want || status != 0 {
				t.Errorf("%q, status %d; want %q", out, status, tt.want)
			}
			t.Log(n, " stops")
		})
	}
}

// TestStopGuestChecks runs the checks of testdata/guest with stops.
func TestStopGuestChecks(t *testing.T) {
	guest := buildGuest(t)
	for _, name := range strings.Fields(guestChecks) {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 0, nil)
			r.write("/bin/guest", guest, 0o755)
			out, status, n := r.runStopped("/bin/sh", "-c", "/bin/guest "+name+"; exit $?")
			if status != 0 || !strings.Contains(out, "ok ") {
				t.Errorf("status %d: %s", status, out)
			}
			t.Log(n, " stops")
		})
	}
}
