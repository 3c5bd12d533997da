//go:build system

package system

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime/pprof"
	"strings"
	"syscall"
	"testing"
	"time"

	"runsc/test/rig"
)

var (
	// R is the rig that all tests share; they run one after another.
	R *rig.Rig

	// runtime is the one under test.
	runtime = rig.Runsc

	skips map[string]string // by test name, for the runtime under test
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if rt := os.Getenv("RUNTIME"); rt != "" {
		runtime = rt
	}
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "the system tests want root")
		return 1
	}
	var err error
	if skips, err = readSkips("../SKIPS.md"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if R, err = rig.Start(rig.Busybox, rig.Debian, rig.Guest); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	flag.Parse()
	guard()
	code := m.Run()
	if err := R.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "removing the rig:", err)
		code = max(code, 1)
	}
	return code
}

// guard removes the rig when the tests are interrupted, or about to be ended by their time limit.
func guard() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	limit := 24 * time.Hour
	if f := flag.Lookup("test.timeout"); f != nil {
		if d, ok := f.Value.(flag.Getter).Get().(time.Duration); ok && d > 0 {
			limit = d - 20*time.Second
		}
	}
	go func() { // ends with the process
		select {
		case sig := <-stop:
			fmt.Fprintln(os.Stderr, "ended by", sig)
		case <-time.After(limit):
			fmt.Fprintln(os.Stderr, "the time limit is near; goroutines:")
			pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
		}
		R.Close()
		os.Exit(2)
	}()
}

var skipLine = regexp.MustCompile(`(?m)^\| (Test\S+) \| (\w+) \| (.+) \|$`)

// readSkips reads the lines that concern the runtime under test.
func readSkips(file string) (map[string]string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	m := map[string]string{}
	for _, line := range skipLine.FindAllStringSubmatch(string(data), -1) {
		if line[2] == "all" || strings.Contains(runtime, "."+line[2]+".") {
			m[line[1]] = line[3]
		}
	}
	return m, nil
}

// begin comes first in every test: it skips what SKIPS.md lists, shows the log of a failure, and
// fails a test that leaves anything of its containers behind.
func begin(t *testing.T) {
	t.Helper()
	if why, ok := skips[t.Name()]; ok {
		t.Skip(why)
	}
	log, _ := os.Stat(R.LogPath())
	before := R.Leftovers(nil) // of an earlier test that failed for it
	t.Cleanup(func() {
		if runtime == rig.Runsc {
			for _, l := range R.Leftovers(before) {
				t.Errorf("left behind: %s", l)
			}
		}
		if t.Failed() {
			t.Logf("containerd's log meanwhile:\n%s", logSince(log.Size()))
		}
	})
}

// logSince returns what the daemon and the shims logged since the log had a size, bounded.
func logSince(size int64) string {
	const most = 6000
	data, _ := os.ReadFile(R.LogPath())
	if int64(len(data)) < size {
		return ""
	}
	if data = data[size:]; len(data) > most {
		return "[...]" + string(data[len(data)-most:])
	}
	return string(data)
}

// same runs a container on runc and on the runtime under test and compares output and exit code.
// It returns what the runtime under test gave.
func same(t *testing.T, c rig.Container) rig.Result {
	t.Helper()
	if c.Timeout == 0 {
		c.Timeout = 30 * time.Second
	}
	c.Runtime, c.ID = rig.Runc, R.NewID()
	want := R.Run(c)
	if want.TimedOut {
		t.Fatalf("%v on runc: %s", c.Args, want)
	}
	c.Runtime, c.ID = runtime, R.NewID()
	got := R.Run(c)
	equal(t, c, got, want)
	return got
}

// equal compares the results of one container on two runtimes.
func equal(t *testing.T, c rig.Container, got, want rig.Result) {
	t.Helper()
	if got.TimedOut || got.Code != want.Code || got.Stdout != want.Stdout {
		t.Errorf("%.200q %s\n--- runc: %s", c.Args, got, want)
		return
	}
	if got.Stderr != want.Stderr {
		t.Errorf("%.200q wrote to stderr:\n%s\n--- runc:\n%s", c.Args, got.Stderr, want.Stderr)
	}
}

// detached starts a container that the test's end removes.
func detached(t *testing.T, c rig.Container) string {
	t.Helper()
	if c.Runtime == "" {
		c.Runtime = runtime
	}
	id, err := R.Begin(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { R.Remove(id) })
	return id
}

// await waits for a condition that another process brings about.
func await(t *testing.T, what string, timeout time.Duration, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(timeout); !cond(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, timeout)
		}
	}
}

// awaitOutput waits until a detached container wrote text.
func awaitOutput(t *testing.T, id, text string) {
	t.Helper()
	await(t, fmt.Sprintf("output %q of %s", text, id), 20*time.Second, func() bool {
		return strings.Contains(R.Output(id), text)
	})
}

// watch collects events until the test's end.
func watch(t *testing.T) *rig.Events {
	t.Helper()
	e, err := R.Watch()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Stop)
	return e
}

// ok fails the test unless a command succeeded.
func ok(t *testing.T, res rig.Result) rig.Result {
	t.Helper()
	if err := res.Err(); err != nil {
		t.Fatal(err)
	}
	return res
}

// exits waits for the exit event of a container's first process and checks its status.
func exits(t *testing.T, events *rig.Events, id string, status int, within time.Duration) {
	t.Helper()
	ev, err := events.Wait(id, "exit", within)
	if err != nil {
		t.Error(err)
	} else if ev.ExitStatus() != status {
		t.Errorf("%s ended with %d, want %d", id, ev.ExitStatus(), status)
	}
}
