//go:build system

package system

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"runsc/pkg/imagefmt"
	"runsc/test/rig"
)

// place is a directory of one test: images go into img, the guest sees go as /go, and what it waits for there
// comes with letGo.
type place struct {
	dir   string
	flags []string // of ctr run
}

func newPlace(t *testing.T) place {
	t.Helper()
	dir := t.TempDir()
	p := place{dir: dir}
	if err := os.Mkdir(filepath.Join(dir, "go"), 0o777); err != nil {
		t.Fatal(err)
	}
	config := p.file(t, "runsc.toml", fmt.Sprintf("restore-allow = [%q]\n", dir))
	p.flags = []string{"--runtime-config-path", config, "--mount", "type=bind,src=" + filepath.Join(dir, "go") + ",dst=/go,options=rbind:rw"}
	return p
}

func (p place) file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func (p place) letGo(t *testing.T) { p.file(t, "go/go", "") }

func (p place) img(n int) string { return filepath.Join(p.dir, "img"+strconv.Itoa(n)) }

// restored is the container that is restored from an image by the annotation.
func (p place) restored(image string) rig.Container {
	return rig.Container{Runtime: runtime, Flags: append([]string{"--annotation", "dev.runsc.restore-image=" + image}, p.flags...), Args: []string{"false"}, Timeout: 30 * time.Second}
}

// output is what a guest wrote to a file in /go.
func (p place) output(name string) string {
	data, _ := os.ReadFile(filepath.Join(p.dir, "go", name)) // not there yet
	return string(data)
}

func manifest(t *testing.T, dir string) *imagefmt.Manifest {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, imagefmt.ManifestFile))
	if err != nil {
		t.Fatal(err)
	}
	m, err := imagefmt.ParseManifest(data)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// image runs the binary's command of that name.
func image(args ...string) rig.Result {
	return R.Exec(rig.DefaultTimeout, nil, filepath.Join(R.Dir, "bin", rig.ShimName), append([]string{"image"}, args...)...)
}

// prelude gives a script the command that waits until the restored container may go on.
const prelude = "hold() { until [ -e /go/go ]; do sleep 0.02; done; }\n"

// TestCheckpointRestore saves programs in the middle of something, ends them, and restores each into
// another container, which must end as if nothing had happened.
func TestCheckpointRestore(t *testing.T) {
	begin(t)
	guest := func(mode string) []string { return []string{"/guest/checkpoint", mode} }
	tests := []struct {
		name  string
		args  []string // without any: a shell with setup
		flags []string
		setup string // says "ready" and holds
		want  string // what the restored container writes, and its exit code
		code  int
	}{
		{name: "pipeline", setup: "seq 300000 | { read a; echo ready >&2; hold; wc -l; } | { read n; echo $n lines; }; yes | head -n 1000 | wc -l", want: "299999 lines\n1000\n"},
		{name: "jobs", setup: "(hold; exit 3) & a=$!; sleep 1000 & b=$!; (hold; sleep 1; echo third) & c=$!; echo ready; wait $a; echo $?; kill $b; wait $b; echo $?; wait $c; exit 4",
			want: "3\n143\nthird\n", code: 4},
		{name: "traps", setup: "trap 'echo usr1' USR1; trap 'echo leaving' EXIT; trap '' INT; echo ready; hold; kill -USR1 $$; kill -INT $$; exit 5", want: "usr1\nleaving\n", code: 5},
		{name: "here-document", setup: "x=value; { echo ready; hold; cat; } <<EOT\nhere is $x\nEOT\necho $x", want: "here is value\nvalue\n"},
		{name: "fifo", setup: "mkfifo /tmp/p; (cat /tmp/p; echo read) & sleep 0.2; echo ready; hold; echo through > /tmp/p; wait", want: "through\nread\n"},
		{name: "open fifo", setup: "mkfifo /tmp/p; exec 3<>/tmp/p; echo early >&3; echo ready; hold; echo late >&3; read a <&3; read b <&3; echo $a $b", want: "early late\n"},
		{name: "sleep", setup: "up() { cut -d. -f1 /proc/uptime; }; a=$(up); echo ready; sleep 3; b=$(up); d=$((b-a)); [ $d -ge 2 ] && [ $d -le 6 ] && echo slept || echo slept $d", want: "slept\n"},
		{name: "unlinked file", setup: "exec 3<>/tmp/f; echo a >&3; rm /tmp/f; echo ready; hold; echo b >&3; cat /proc/self/fd/3; ls /tmp", want: "a\nb\n"},
		{name: "unlinked host file", setup: "exec 3<>/go/f; echo a >&3; rm /go/f; echo ready; hold; echo b >&3; cat /proc/self/fd/3; ls /go", want: "a\nb\ngo\n"},
		{name: "host file", setup: "echo 'one\ntwo\nthree' > /go/f; exec 3</go/f 4>>/go/f; read a <&3; echo ready; hold; read b <&3; echo $b; echo four >&4; tail -n 1 /go/f", want: "two\nfour\n"},
		{name: "half-read directory", setup: "mkdir /tmp/d; cd /tmp/d; i=0; while [ $i -lt 3000 ]; do : > file-with-a-long-name-$i; i=$((i+1)); done; echo x > /go/n; " +
			"find /tmp/d \\( -name '*-1500' -exec sh -c 'echo ready >&2; until [ -e /go/go ]; do sleep 0.02; done' \\; \\) -o -type f -print | sort -u | wc -l", want: "2999\n"},
		{name: "written root", setup: "cd /etc; echo new > new; ln new hard; ln -s new soft; rm passwd; rm -r /var/log; mkdir /var/log; echo more >> group; chmod 600 group; mkfifo p; echo ready; hold; " +
			"stat -c '%n %h %F %a' new hard soft p group; cat hard; ls passwd; ls /var/log | wc -l; tail -n 1 group; [ new -ef hard ] && echo same; ls /home",
			want: "new 2 regular file 644\nhard 2 regular file 644\nsoft 1 symbolic link 777\np 1 fifo 644\ngroup 1 regular file 600\nnew\n0\nmore\nsame\nuser\n"},
		{name: "tmpfs", flags: []string{"--mount", "type=tmpfs,dst=/t,options=size=16777216:mode=700"}, setup: "cd /t; mkdir -p a/b; seq 100000 > a/b/f; ln a/b/f g; ln -s g s; truncate -s 8M big; sha256sum g > sum; chown 5:6 s a; echo ready; hold; " +
			"sha256sum -c sum; stat -c '%a %u:%g %h %s' /t a s a/b/f big; dd if=/dev/zero of=x bs=1M count=32 2>/dev/null || echo full",
			want: "g: OK\n700 0:0 3 140\n755 5:6 3 60\n777 0:0 1 1\n644 5:6 2 588895\n644 0:0 1 8388608\nfull\n"},
		{name: "stopped process", setup: "sh -c 'kill -STOP $$; echo continued' & a=$!; sleep 0.3; echo ready; hold; grep State /proc/$a/status; kill -CONT $a; wait $a", want: "State:\tT (stopped)\ncontinued\n"},
		{name: "zombie", setup: "sh -c 'exit 9' & a=$!; sleep 0.2; echo ready; hold; wait $a; echo $?", want: "9\n"},
		{name: "removed directory", setup: "umask 027; mkdir /tmp/x; cd /tmp/x; rmdir /tmp/x; ulimit -n 77; echo ready; hold; readlink /proc/self/cwd; mkdir y 2>/dev/null || echo none; umask; ulimit -n", want: "/tmp/x (deleted)\nnone\n0027\n77\n"},
		{name: "names of any bytes", setup: "d=$(printf '/tmp/d\\377\\303\\nx'); f=$(printf 'f\\200'); mkdir \"$d\"; cd \"$d\"; echo in > \"$f\"; exec 3< \"$f\"; echo ready; hold; echo * | od -An -tx1; readlink /proc/self/cwd | od -An -tx1; cat <&3",
			want: " 66 80 0a\n 2f 74 6d 70 2f 64 ff c3 0a 78 0a\nin\n"},
		{name: "identity", flags: []string{"--user", "1000:1000", "--cap-drop", "CAP_CHOWN", "--env", "A=b"}, setup: "id > /tmp/a; grep -E '^(Uid|Cap|NoNew)' /proc/$$/status >> /tmp/a; echo ready; hold; { id; grep -E '^(Uid|Cap|NoNew)' /proc/$$/status; } | cmp - /tmp/a && echo $A", want: "b\n"},
		{name: "pids", setup: "sleep 1000 & a=$!; echo ready; hold; echo $$ $PPID; kill -0 $a && echo there; kill $a; (sleep 0) & [ $! -gt $a ] && echo newer", want: "1 0\nthere\nnewer\n"},
		{name: "standard error and exit", setup: "echo ready; hold; echo err >&2; exit 42", want: "", code: 42},
		{name: "signal", setup: "echo ready; hold; sh -c 'kill -9 $$'; echo $?", want: "137\n"},
		{name: "memory", args: guest("memory"), want: "memory is right, the child wrote 42\n"},
		{name: "threads", args: guest("threads"), want: "threads go on, turns add up\n"},
		{name: "registers", args: guest("registers"), want: "registers are right\n"},
		{name: "mounts", args: []string{"/guest/vfsstate", "mounts"}, flags: []string{"--cap-add", "CAP_SYS_ADMIN"}, want: "ok\n"},
		{name: "leases and signals", args: []string{"/guest/vfsstate", "signals"}, flags: []string{"--cap-add", "CAP_SYS_ADMIN", "--cap-add", "CAP_LINUX_IMMUTABLE"}, want: "ok\n"},
		{name: "message queues", args: []string{"/guest/vfsstate", "queues"}, want: "ok\n"},
		{name: "descriptors", args: guest("fds"), want: "the interval timer goes on\nthe timer fired 1 time, in time\n4 are ready\nthe event counted 5\npipe: in the pipe\nsocket: one, second\nsignal 12\nclock went on\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlace(t)
			p.flags = append(p.flags, tt.flags...)
			c := rig.Container{Image: rig.Guest, Flags: p.flags, Args: tt.args}
			if c.Args == nil {
				c.Args = sh(prelude + tt.setup)
			}
			id := detached(t, c)
			awaitOutput(t, id, "ready")
			ok(t, R.Ctr("task", "checkpoint", "--image-path", p.img(1), id))
			R.Remove(id)
			p.letGo(t)
			r := p.restored(p.img(1))
			r.Image = rig.Guest
			if res := R.Run(r); res.TimedOut || res.Code != tt.code || res.Stdout != tt.want {
				t.Errorf("restored: %s\nwant exit code %d and %q", res, tt.code, tt.want)
			}
		})
	}
}

// counting is a shell that counts on its standard output.
const counting = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.05; done"

// last is the last line of a text as a number.
func last(s string) int {
	lines := strings.Fields(s)
	if len(lines) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(lines[len(lines)-1])
	return n
}

// counts waits until a counter is beyond a number, and returns where it is.
func counts(t *testing.T, id string, beyond int) int {
	t.Helper()
	await(t, fmt.Sprintf("%s beyond %d", id, beyond), 10*time.Second, func() bool { return last(R.Output(id)) > beyond })
	return last(R.Output(id))
}

// TestCheckpointCommand uses ctr's command in its variants: into a directory or the content store, the task
// going on or ending.
func TestCheckpointCommand(t *testing.T) {
	begin(t)
	tests := []struct {
		name       string
		path, exit bool
	}{
		{"directory", true, false},
		{"directory and exit", true, true},
		{"store", false, false},
		{"store and exit", false, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			events := watch(t)
			p := newPlace(t)
			id := detached(t, rig.Container{Flags: p.flags, Args: sh(counting)})
			n := counts(t, id, 3)
			args := []string{"task", "checkpoint"}
			if tt.path {
				args = append(args, "--image-path", p.img(1))
			}
			if tt.exit {
				args = append(args, "--exit")
			}
			out := ok(t, R.Ctr(append(args, id)...)).Stdout
			t.Cleanup(func() { removeImages("containerd.io/checkpoint/" + id) })
			if _, err := events.Wait(id, "checkpointed", 5*time.Second); err != nil {
				t.Error(err)
			}
			if !tt.path && !strings.Contains(out, "containerd.io/checkpoint/"+id) {
				t.Errorf("ctr said %q", out)
			}
			if tt.exit {
				exits(t, events, id, 137, 10*time.Second)
				if err := R.WaitStatus(id, "STOPPED", 5*time.Second); err != nil {
					t.Error(err)
				}
			} else {
				counts(t, id, n+3)
				if s := R.Status(id); s != "RUNNING" {
					t.Errorf("%s after a checkpoint", s)
				}
			}
			if !tt.path {
				return
			}
			R.Remove(id)
			n = last(R.Output(id))
			c := p.restored(p.img(1))
			c.ID = R.NewID()
			copied := detached(t, c)
			first := counts(t, copied, 0)
			t.Logf("the original reached %d, the copy wrote %d first; pause %v", n, first, time.Duration(manifest(t, p.img(1)).PauseNanos))
			if first <= 3 || tt.exit && first > n+5 {
				t.Errorf("the copy counts from %d, the original had reached %d", first, n)
			}
		})
	}
}

// removeImages removes the images whose names begin so.
func removeImages(prefix string) {
	for _, name := range strings.Fields(R.Ctr("images", "ls", "-q").Stdout) {
		if strings.HasPrefix(name, prefix) {
			R.Ctr("images", "rm", "--sync", name)
		}
	}
}

// TestCheckpointContainer restores what ctr makes of a whole container: with the spec of the original, which
// goes on beside the copy; either may go first.
func TestCheckpointContainer(t *testing.T) {
	begin(t)
	for _, first := range []string{"original", "copy"} {
		t.Run(first+" goes first", func(t *testing.T) {
			events := watch(t)
			p := newPlace(t)
			// The copy's standard streams have no reader: both count into one file of the host.
			id := detached(t, rig.Container{Flags: p.flags, Args: sh("echo written > /root/f; trap 'exit 6' TERM; i=0; while :; do i=$((i+1)); echo $i >> /go/out; sleep 0.05; done")})
			await(t, "the counter", 10*time.Second, func() bool { return last(p.output("out")) > 3 })
			ref := "checkpoint/" + id
			rw := []string{"--rw"} // it makes no difference: the image has what was written
			if first == "copy" {
				rw = nil
			}
			ok(t, R.Ctr(append(append([]string{"c", "checkpoint"}, rw...), "--task", id, ref)...))
			t.Cleanup(func() { R.Ctr("images", "rm", "--sync", ref) })
			copied := R.NewID()
			t.Cleanup(func() { R.Remove(copied); removeUnpacked() })
			ok(t, R.Ctr(append(append([]string{"c", "restore"}, rw...), "--live", copied, ref)...))
			runs(t, id)
			runs(t, copied)
			gone, rest := id, copied
			if first == "copy" {
				gone, rest = rest, gone
			}
			ok(t, R.Ctr("task", "rm", "-f", gone))
			ok(t, R.Ctr("c", "rm", gone))
			runs(t, rest)
			if res := ok(t, R.Ctr("task", "exec", "--exec-id", "e", rest, "cat", "/root/f")); res.Stdout != "written\n" {
				t.Errorf("exec: %s", res)
			}
			n := last(p.output("out"))
			await(t, "the counter goes on", 10*time.Second, func() bool { return last(p.output("out")) > n })
			if strings.Contains(p.output("out"), "\n1\n") {
				t.Error("the copy began anew")
			}
			if rest == copied {
				ok(t, R.Ctr("task", "checkpoint", "--image-path", p.img(2), copied))
				if res := image("verify", p.img(2)); res.Code != 0 {
					t.Errorf("verify: %s", res)
				}
			}
			ok(t, R.Ctr("task", "kill", "-s", "SIGTERM", rest))
			exits(t, events, rest, 6, 10*time.Second)
		})
	}
}

// runs checks what containerd says of a task: running, with the pid of a live process.
func runs(t *testing.T, id string) {
	t.Helper()
	for line := range strings.Lines(R.Ctr("task", "ls").Stdout) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == id {
			if _, err := os.Stat("/proc/" + f[1]); f[2] != "RUNNING" || err != nil {
				t.Errorf("the task is %v, %v", f, err)
			}
			return
		}
	}
	t.Errorf("no task %s", id)
}

// removeUnpacked removes what containerd unpacked for a restore, which it leaves lying about.
func removeUnpacked() {
	dirs, _ := filepath.Glob(filepath.Join(R.Dir, "tmp", "ctrd-checkpoint*"))
	for _, d := range dirs {
		os.RemoveAll(d)
	}
}

// TestCheckpointSize measures the state of an idle container: small, and the same whether /proc and /sys
// were looked at or not, and however many CPUs the guest sees.
func TestCheckpointSize(t *testing.T) {
	begin(t)
	size := func(cpus int, walk bool) int64 {
		p := newPlace(t)
		p.file(t, "runsc.toml", fmt.Sprintf("num-cpus = %d\n", cpus))
		id := detached(t, rig.Container{Flags: p.flags, Args: []string{"sleep", "1000"}})
		if walk {
			ok(t, R.Ctr("task", "exec", "--exec-id", "e", id, "sh", "-c", "find /proc /sys > /dev/null 2>&1; ps > /dev/null; head -c 100000 /proc/*/* /proc/sys/*/* > /dev/null 2>&1; true"))
		}
		ok(t, R.Ctr("task", "checkpoint", "--image-path", p.img(1), id))
		R.Remove(id)
		return manifest(t, p.img(1)).Files[imagefmt.KernelFile].Size
	}
	idle := size(2, false)
	t.Logf("%d bytes", idle)
	if idle > 16<<10 {
		t.Errorf("kernel.img of an idle container has %d bytes", idle)
	}
	for _, tt := range []struct {
		name string
		cpus int
		walk bool
	}{{"walked", 2, true}, {"96 CPUs", 96, false}, {"96 CPUs walked", 96, true}} {
		if n := size(tt.cpus, tt.walk); n > idle+idle/100 || n < idle-idle/100 {
			t.Errorf("%s: %d bytes, an idle one has %d", tt.name, n, idle)
		}
	}
}

// TestCheckpointImage looks at images with the binary's own command.
func TestCheckpointImage(t *testing.T) {
	begin(t)
	p := newPlace(t)
	id := detached(t, rig.Container{Flags: p.flags, Args: sh("exec 5>/tmp/opened; sleep 1234 & echo ready; wait")})
	awaitOutput(t, id, "ready")
	ok(t, R.Ctr("task", "checkpoint", "--image-path", p.img(1), id))
	res := ok(t, image("inspect", p.img(1)))
	for _, want := range []string{id, "sleep", "/tmp/opened", "running"} {
		if !strings.Contains(res.Stdout, want) {
			t.Errorf("inspect does not show %q:\n%s", want, res.Stdout)
		}
	}
	var parsed struct{ Manifest imagefmt.Manifest }
	if err := json.Unmarshal([]byte(ok(t, image("inspect", "--json", p.img(1))).Stdout), &parsed); err != nil || parsed.Manifest.Containers[0].ID != id {
		t.Errorf("inspect --json: %v, %+v", err, parsed.Manifest.Containers)
	}
	ok(t, image("verify", p.img(1)))
	// One image, several containers at once.
	for range 2 {
		c := p.restored(p.img(1))
		copied := detached(t, c)
		runs(t, copied)
		if res := R.Ctr("task", "ps", copied); res.Code != 0 || strings.Count(res.Stdout, "\n") < 2 {
			t.Errorf("ps: %s", res)
		}
	}
}
