//go:build system

package system

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"runsc/test/rig"
)

// pod is a pod whose containers share the pid and IPC namespaces, /dev/shm as CRI has it, and a volume, /vol.
type pod struct {
	dir   string
	root  string
	flags []string // of each container
}

// newPod makes the directories of a pod; its volume is that of another one if that is given.
func newPod(t *testing.T, config string, volume *pod) *pod {
	t.Helper()
	p := &pod{dir: t.TempDir()}
	if volume == nil {
		volume = p
	}
	shm := filepath.Join(p.dir, "sandboxes", "p", "shm")
	for _, dir := range []string{shm, filepath.Join(volume.dir, "vol")} {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(p.dir, "runsc.toml")
	if err := os.WriteFile(file, []byte(fmt.Sprintf("restore-allow = [%q]\n%s", os.TempDir(), config)), 0o644); err != nil {
		t.Fatal(err)
	}
	p.flags = []string{
		"--runtime-config-path", file, "--mount", "type=bind,src=" + shm + ",dst=/dev/shm,options=rbind:rw",
		"--mount", "type=bind,src=" + filepath.Join(volume.dir, "vol") + ",dst=/vol,options=rbind:rw",
	}
	return p
}

// restoredFrom are the flags of a container that is restored.
func restoredFrom(image, name string) []string {
	return []string{"--annotation", "dev.runsc.restore-image=" + image, "--annotation", "dev.runsc.restore-container=" + name}
}

// start starts the pod's root, with more flags.
func (p *pod) start(t *testing.T, args []string, flags ...string) {
	t.Helper()
	p.root = R.NewID()
	detached(t, rig.Container{ID: p.root, Image: rig.Guest, Flags: slices.Concat(p.flags, podRoot(p.root), flags), Args: args})
}

// member is a further container of the pod, with more flags.
func (p *pod) member(args []string, flags ...string) rig.Container {
	pid := taskPid(p.root)
	return rig.Container{ID: R.NewID(), Runtime: runtime, Image: rig.Guest, Args: args, Flags: slices.Concat(p.flags, podMember(p.root), flags,
		[]string{"--with-ns", "pid:/proc/" + pid + "/ns/pid", "--with-ns", "ipc:/proc/" + pid + "/ns/ipc"})}
}

func (p *pod) add(t *testing.T, args []string, flags ...string) string {
	t.Helper()
	return detached(t, p.member(args, flags...))
}

// taskPid is what ctr task ls tells.
func taskPid(id string) string {
	for line := range strings.Lines(R.Ctr("task", "ls").Stdout) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == id {
			return f[1]
		}
	}
	return "0"
}

// progress is what /guest/pod says of itself: the turns taken, and why a kind of object goes on no more.
func (p *pod) progress(role string) (turns map[string]int, ended map[string]string) {
	turns, ended = map[string]int{}, map[string]string{}
	data, _ := os.ReadFile(filepath.Join(p.dir, "vol", role)) // not there yet
	for line := range strings.Lines(string(data)) {
		kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, why, _ := strings.Cut(rest, " ")
		turns[kind], _ = strconv.Atoi(n)
		if why != "goes on" {
			ended[kind] = why
		}
	}
	return turns, ended
}

// goesOn waits until a container has taken turns with each object beyond those given, and nothing has ended.
func (p *pod) goesOn(t *testing.T, role string, beyond map[string]int) map[string]int {
	t.Helper()
	var turns map[string]int
	var ended map[string]string
	defer func() {
		if t.Failed() {
			t.Logf("%s: %v, ended %v", role, turns, ended)
		}
	}()
	await(t, role+" goes on", 20*time.Second, func() bool {
		turns, ended = p.progress(role)
		for kind, n := range turns {
			if n < beyond[kind]+3 || ended[kind] != "" {
				return false
			}
		}
		return len(turns) > 0
	})
	return turns
}

func save(t *testing.T, id string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "img")
	ok(t, R.Ctr("task", "checkpoint", "--image-path", dir, id))
	return dir
}

// TestPodCheckpoint saves a pod of three containers that share everything, and restores it in another order:
// all objects are joined, and what is still to come counts as there.
func TestPodCheckpoint(t *testing.T) {
	begin(t)
	p := newPod(t, "", nil)
	p.start(t, []string{"/guest/pause"})
	one := p.add(t, []string{"/guest/pod", "one"})
	two := p.add(t, []string{"/guest/pod", "two"})
	p.goesOn(t, "one", nil)
	p.goesOn(t, "two", nil)
	img := save(t, p.root)
	m := manifest(t, img)
	if len(m.Containers) != 3 || !m.Pod {
		t.Fatalf("the image has %+v", m.Containers)
	}
	was := p.goesOn(t, "one", nil) // it runs on
	for _, id := range []string{one, two, p.root} {
		R.Remove(id)
	}
	old := p.root
	q := newPod(t, "", p)
	q.start(t, []string{"false"}, restoredFrom(img, old)...)
	q.add(t, []string{"false"}, restoredFrom(img, two)...)
	time.Sleep(300 * time.Millisecond)
	_, ended := p.progress("two")
	delete(ended, "signal") // its process is not there yet
	if len(ended) > 0 {
		t.Errorf("while the other is to come: %v", ended)
	}
	q.add(t, []string{"false"}, restoredFrom(img, one)...)
	p.goesOn(t, "one", was)
	p.goesOn(t, "two", was)
	onePod(t)
	// A container of the pod that is not from the image joins.
	if res := R.Run(q.member([]string{"sh", "-c", "ls /dev/shm; mount | grep -c '/dev/shm type tmpfs'; ps | grep -c '[/]guest/pod'"})); res.Stdout != "shared\nto-one\n1\n2\n" {
		t.Error(res)
	}
	// Another checkpoint of what was restored is as good.
	img = save(t, q.root)
	if m := manifest(t, img); len(m.Containers) != 3 {
		t.Errorf("the second image has %+v", m.Containers)
	}
}

// TestPodCheckpointUnclaimed restores a part of a pod's image: what belonged to the rest ends when its time is over.
func TestPodCheckpointUnclaimed(t *testing.T) {
	begin(t)
	p := newPod(t, "", nil)
	p.start(t, []string{"/guest/pause"})
	one := p.add(t, []string{"/guest/pod", "one"})
	two := p.add(t, []string{"/guest/pod", "two"})
	p.goesOn(t, "one", nil)
	p.goesOn(t, "two", nil)
	img := save(t, p.root)
	old := p.root
	for _, id := range []string{two, one, p.root} { // two must not see the end of one yet
		R.Remove(id)
	}
	q := newPod(t, "restore-wait = \"1s\"\n", p)
	q.start(t, []string{"false"}, restoredFrom(img, old)...)
	app := q.add(t, []string{"false"}, restoredFrom(img, two)...)
	want := map[string]string{"socket": "end of file", "fifo": "end of file", "signal": "the other has no pid", "lock": "it is free"}
	var ended map[string]string
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		_, ended = p.progress("two")
		if ended["socket"] == "Connection reset by peer" { // it had not read all
			ended["socket"] = want["socket"]
		}
		if fmt.Sprint(ended) == fmt.Sprint(want) {
			break
		}
		if time.Now().After(deadline) {
			t.Errorf("ended: %v, want %v", ended, want)
			break
		}
	}
	refused := func(what, want string, flags ...string) {
		t.Helper()
		c := q.member([]string{"false"}, flags...)
		if res := R.Run(c); res.Code == 0 || !strings.Contains(res.Stderr, want) {
			t.Errorf("%s: %s, want %q", what, res, want)
		}
		R.Remove(c.ID)
	}
	refused("too late", "it was not restored in time", restoredFrom(img, one)...)
	refused("twice", "was restored in this sandbox before", restoredFrom(img, two)...)
	refused("unknown", `the image has no container "three"`, restoredFrom(img, "three")...)
	// None of that does harm to those that run.
	if got := R.Status(app); got != "RUNNING" {
		t.Errorf("the container restored is %s", got)
	}
}

// TestPodCheckpointApp saves one container of a pod: it is restored alone, or into another pod beside another image's
// and a fresh container.
func TestPodCheckpointApp(t *testing.T) {
	begin(t)
	p := newPod(t, "", nil)
	p.start(t, []string{"/guest/pause"})
	app := p.add(t, sh("echo kept > /dev/shm/own; "+counting))
	counts(t, app, 3)
	img := save(t, app)
	if m := manifest(t, img); len(m.Containers) != 1 || m.Pod {
		t.Fatalf("the image has %+v", m.Containers)
	}
	n := counts(t, app, 5)
	// Alone, in the pid namespace of its own that its specification has now.
	alone := detached(t, rig.Container{Image: rig.Guest, Args: []string{"false"}, Flags: slices.Concat(p.flags, restoredFrom(img, app))})
	counts(t, alone, 3)
	if first := strings.Fields(R.Output(alone))[0]; last(first) < 3 || last(first) > n+5 {
		t.Errorf("alone it counts from %s", first)
	}
	if res := ok(t, R.Ctr("task", "exec", "--exec-id", R.NewID(), alone, "cat", "/dev/shm/own")); res.Stdout != "kept\n" {
		t.Error(res)
	}
	// In another pod, where the original still runs.
	q := newPod(t, "", p)
	q.start(t, []string{"/guest/pause"})
	fresh := q.add(t, sh(counting))
	res := R.Run(q.member([]string{"false"}, restoredFrom(img, app)...))
	if want := "process number 2 of the image is taken"; res.Code == 0 || !strings.Contains(res.Stderr, want) {
		t.Errorf("into a pid namespace where its number is taken: %s, want %q", res, want)
	}
	c := q.member([]string{"false"}, restoredFrom(img, app)...)
	c.Flags = c.Flags[:len(c.Flags)-4] // namespaces of its own
	counts(t, detached(t, c), 3)
	counts(t, fresh, 3)
	// What it had in /dev/shm is its own now: the pod's is another.
	if res := ok(t, R.Ctr("task", "exec", "--exec-id", R.NewID(), fresh, "sh", "-c", "ls /dev/shm | wc -l")); res.Stdout != "0\n" {
		t.Error(res)
	}
}

// TestPodCheckpointMoment saves a container while another one, which is not saved, writes memory that both have: the
// image has one moment of it.
func TestPodCheckpointMoment(t *testing.T) {
	begin(t)
	p := newPod(t, "", nil)
	p.start(t, []string{"/guest/pause"})
	writer := p.add(t, []string{"/guest/pod", "sweep", "/dev/shm/m", "48"})
	awaitOutput(t, writer, "sweeps")
	reader := p.add(t, []string{"/guest/pod", "check", "/dev/shm/m", "48"})
	awaitOutput(t, reader, "ready")
	img := save(t, reader)
	R.Remove(reader)
	R.Remove(writer)
	if err := os.WriteFile(filepath.Join(p.dir, "vol", "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	q := newPod(t, "", p)
	q.start(t, []string{"/guest/pause"})
	if res := R.Run(q.member([]string{"false"}, restoredFrom(img, reader)...)); res.Stdout != "one moment\n" || res.Code != 0 {
		t.Error(res)
	}
}
