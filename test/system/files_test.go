//go:build system

package system

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"runsc/test/rig"
)

// fullSize is set in the environment to run the tests of this file at their full size: a million files
// take minutes.
const fullSize = "FULL_SIZE"

// size returns one of two sizes of a test.
func size(small, full int) int {
	if os.Getenv(fullSize) != "" {
		return full
	}
	return small
}

// hostTmpfs mounts a tmpfs on the host until the test's end. It is called before the containers that
// use it are started, so that it goes after them.
func hostTmpfs(t *testing.T, options string) string {
	t.Helper()
	dir, err := os.MkdirTemp(R.Dir, "m")
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("t", dir, "tmpfs", 0, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("the sandbox kept the mount: %v", err)
			syscall.Unmount(dir, syscall.MNT_DETACH)
		}
		os.Remove(dir)
	})
	return dir
}

// makeTree makes empty files in directories of 1000.
func makeTree(t *testing.T, root string, files int) {
	t.Helper()
	for i := 0; i < files; i++ {
		dir := filepath.Join(root, fmt.Sprintf("d%04d", i/1000))
		if i%1000 == 0 {
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		fd, err := syscall.Open(filepath.Join(dir, fmt.Sprintf("file%03d", i%1000)), syscall.O_CREAT|syscall.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		syscall.Close(fd)
	}
}

// bind is the flag of ctr run for a bind mount.
func bind(source, destination, options string) string {
	return fmt.Sprintf("type=bind,src=%s,dst=%s,options=rbind:%s", source, destination, options)
}

// inside runs a shell command in a running container.
func inside(t *testing.T, id, script string, timeout time.Duration) string {
	t.Helper()
	res := R.Exec(timeout, nil, "ctr", "task", "exec", "--exec-id", R.NewID(), "--fifo-dir", filepath.Join(R.Dir, "w"), id, "sh", "-c", script)
	if err := res.Err(); err != nil {
		t.Fatal(err)
	}
	return res.Stdout
}

// sandbox returns the only sandbox process that the rig runs.
func sandbox(t *testing.T) rig.Process {
	t.Helper()
	var found []rig.Process
	for _, p := range R.Processes() {
		if p.Role() == "sandbox" {
			found = append(found, p)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d sandboxes: %v", len(found), found)
	}
	return found[0]
}

// anonymous returns the sandbox's anonymous memory in KiB, the least of several readings: garbage
// that the next collection takes is not held.
func anonymous(t *testing.T) int {
	t.Helper()
	p, least := sandbox(t), 0
	for i := range 8 {
		_, a := p.Pss()
		if i == 0 || a < least {
			least = a
		}
		time.Sleep(250 * time.Millisecond)
	}
	return least
}

// TestWalkMemory walks a bind mount of many files three times: nothing that grows with files seen is
// kept. With remembered inode numbers the same run shows growth, else the measurement would be at
// fault.
func TestWalkMemory(t *testing.T) {
	begin(t)
	n := size(100_000, 1_000_000)
	dir := hostTmpfs(t, "size=2g,nr_inodes=1100000")
	makeTree(t, dir, n)
	want := fmt.Sprint(n + n/1000 + 1)
	walk := func(t *testing.T, flags ...string) (growth []int) {
		id := detached(t, rig.Container{Flags: append(flags, "--mount", bind(dir, "/mnt", "rw")), Args: sh("echo up; exec sleep 1000")})
		awaitOutput(t, id, "up")
		idle := anonymous(t)
		for range 3 {
			if got := strings.TrimSpace(inside(t, id, "find /mnt | wc -l", 10*time.Minute)); got != want {
				t.Fatalf("find saw %s files, want %s", got, want)
			}
			growth = append(growth, anonymous(t)-idle)
		}
		t.Logf("%d files: anonymous memory grew by %v KiB in three passes", n, growth)
		return growth
	}
	t.Run("hash", func(t *testing.T) {
		g := walk(t)
		if g[2] > 8192 {
			t.Errorf("anonymous memory grew by %d KiB, want at most 8192", g[2])
		}
		if g[2]-g[1] >= 1024 {
			t.Errorf("anonymous memory grew by %d KiB from the second pass to the third, want less than 1024", g[2]-g[1])
		}
	})
	t.Run("map", func(t *testing.T) {
		config := filepath.Join(t.TempDir(), "c.toml")
		if err := os.WriteFile(config, []byte("inode-policy = \"map\"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		// Two words for each file at the least.
		if g := walk(t, "--runtime-config-path", config); g[2] < n*16/1024 {
			t.Errorf("anonymous memory grew by %d KiB only: a map of %d files is larger", g[2], n)
		}
	})
}

// TestListCalls lists a large directory: getdents64 needs no stat of each entry on the host.
func TestListCalls(t *testing.T) {
	begin(t)
	n := size(50_000, 200_000)
	dir := hostTmpfs(t, "size=1g,nr_inodes=400000")
	for i := range n {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("entry%06d", i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	id := detached(t, rig.Container{Flags: []string{"--mount", bind(dir, "/mnt", "rw")}, Args: sh("echo up; exec sleep 1000")})
	awaitOutput(t, id, "up")
	calls := hostCalls(t, "%stat,%lstat,%fstat,statx,getdents64", func() {
		// busybox's ls and find would ask for each file's attributes; a pattern asks for names only.
		if got := inside(t, id, "cd /mnt; echo * | wc -w", time.Minute); got != fmt.Sprintln(n) {
			t.Errorf("seen %q, want %d files", got, n)
		}
	})
	stats := 0
	for name, n := range calls {
		if name != "getdents64" {
			stats += n
		}
	}
	if calls["getdents64"] == 0 {
		t.Errorf("no getdents64 seen: %v", calls)
	}
	if stats >= n/100 {
		t.Errorf("listing %d names made %d stat calls on the host, want fewer than 1 in 100: %v", n, stats, calls)
	}
	t.Logf("%d entries: %v", n, calls)
}

// hostCalls counts host system calls of the sandbox's threads, by name, while a function runs.
// strace(1) tells which sets there are.
func hostCalls(t *testing.T, set string, while func()) map[string]int {
	t.Helper()
	out := filepath.Join(t.TempDir(), "strace")
	cmd := exec.Command("strace", "-f", "-c", "-U", "calls,name", "-e", "trace="+set, "-o", out, "-p", strconv.Itoa(sandbox(t).PID))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "strace", 10*time.Second, func() bool {
		data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", sandbox(t).PID))
		return !bytes.Contains(data, []byte("TracerPid:\t0\n"))
	})
	time.Sleep(200 * time.Millisecond) // until it has all threads
	while()
	cmd.Process.Signal(syscall.SIGINT)
	cmd.Wait()
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
	calls := map[string]int{}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) == 2 && f[1] != "total" {
			if n, err := strconv.Atoi(f[0]); err == nil {
				calls[f[1]] = n
			}
		}
	}
	return calls
}

// TestTreeCycles copies, greps and deletes a tree again and again: memory stays where it was.
func TestTreeCycles(t *testing.T) {
	begin(t)
	files, cycles := size(2_000, 10_000), size(15, 50)
	dir := hostTmpfs(t, "size=1g,nr_inodes=100000")
	makeTree(t, dir, files)
	for i := 0; i < files; i += 50 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("d%04d/file%03d", i/1000, i%1000)), []byte("needle\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	id := detached(t, rig.Container{Flags: []string{"--mount", bind(dir, "/mnt", "rw")}, Args: sh("echo up; exec sleep 1000")})
	awaitOutput(t, id, "up")
	cycle := func(n int) {
		script := fmt.Sprintf("for i in $(seq %d); do mkdir /mnt/copy; cp -r /mnt/d* /mnt/copy; grep -r needle /mnt/copy | wc -l; rm -r /mnt/copy; done", n)
		if got, want := inside(t, id, script, 10*time.Minute), strings.Repeat(fmt.Sprintln(files/50), n); got != want {
			t.Fatalf("matches %q, want %q", got, want)
		}
	}
	cycle(5)
	before := anonymous(t)
	cycle(cycles - 5)
	if after := anonymous(t); after-before > 2048 {
		t.Errorf("anonymous memory went from %d KiB after 5 cycles to %d KiB after %d", before, after, cycles)
	} else {
		t.Logf("%d files: %d KiB after 5 cycles, %d KiB after %d", files, before, after, cycles)
	}
}
