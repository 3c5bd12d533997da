package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"runsc/test/rig"
)

// A place is a target with a tree of files of the host as $T, a directory for the results of a clone as $C, the host's
// programs in /usr and the guest programs in $G.
type place struct {
	name string
	run  func(script string) rig.Result
}

// patience is how long one command may take: gVisor's is what it is for.
const patience = 10 * time.Minute

// filePlaces lists the places: native, runc, gvisor if built, ours.
func filePlaces(r *rig.Rig, tree string) (places []place, done func(), err error) {
	tools, err := rig.Tools()
	if err != nil {
		return nil, nil, err
	}
	guest := filepath.Join(tools, "guest")
	flags := []string{
		"--mount", "type=bind,src=" + tree + ",dst=/t,options=rbind:rw", "--mount", "type=bind,src=/usr,dst=/usr,options=rbind:ro",
		"--mount", "type=bind,src=" + guest + ",dst=/guest,options=rbind:ro",
	}
	settings := "export HOME=/root GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'; "
	args := func(script string) []string {
		return []string{"bash", "-c", settings + "T=/t G=/guest C=/root; " + script}
	}
	through := func(runtime string) func(string) rig.Result {
		return func(script string) rig.Result {
			return r.Run(rig.Container{Runtime: runtime, Image: rig.Debian, Flags: flags, Args: args(script), Timeout: patience})
		}
	}
	places = []place{
		{"native", func(script string) rig.Result {
			dir, err := os.MkdirTemp(filepath.Join(r.Dir, "w"), "clone")
			if err != nil {
				return rig.Result{Code: -1, Stderr: err.Error()}
			}
			defer os.RemoveAll(dir)
			return run(patience, []string{"bash", "-c", settings + fmt.Sprintf("T=%s G=%s C=%s; ", tree, guest, dir) + script})
		}},
		{"runc", through(rig.Runc)},
	}
	done = func() {}
	peer := filepath.Join(tools, "bin", "runsc")
	if _, err := os.Stat(peer); err == nil {
		var rootfs string
		if rootfs, done, err = r.MountImage(rig.Debian); err != nil {
			return nil, nil, err
		}
		spec, err := r.Spec(rig.Container{Runtime: rig.Runc, Image: rig.Debian, Flags: flags, Args: args("")})
		if err != nil {
			return nil, nil, err
		}
		places = append(places, place{"gvisor", func(script string) rig.Result {
			id := r.NewID()
			spec["process"].(map[string]any)["args"] = args(script)
			bundle, err := writeBundle(r, rootfs, id, spec)
			if err != nil {
				return rig.Result{Code: -1, Stderr: err.Error()}
			}
			cmd := append([]string{peer}, peerFlags(r)...)
			return run(patience, append(cmd, "run", "--bundle", bundle, id))
		}})
	}
	return append(places, place{"ours", through(rig.Runsc)}), done, nil
}

// filesCommand is something to time in each place.
type filesCommand struct {
	name, script string
	after        string // not timed
	scales       bool   // with the number of files: gVisor is spared the large ones
}

var filesCommands = []filesCommand{
	{name: "find", script: "find $T/tree > /dev/null"},
	{name: "find again", script: "find $T/tree > /dev/null"},
	{name: "8 finds", script: "for i in 1 2 3 4 5 6 7 8; do find $T/tree > /dev/null & done; wait", scales: true},
	{name: "du -s", script: "du -s $T/tree > /dev/null", scales: true},
	{name: "ls -lR", script: "ls -lR $T/tree > /dev/null", scales: true},
	{name: "tar cf -", script: "tar cf - -C $T tree | cat > /dev/null", scales: true},
	{name: "git clone into the mount", script: "git clone -q $T/repo $T/clone", after: "rm -rf $T/clone"},
	{name: "git clone into the root", script: "git clone -q $T/repo $C/clone", after: "rm -rf $C/clone"},
}

// largeTree is from where gVisor runs find only.
const largeTree = 200_000

// fileTrees prints the times of programs that walk trees of host files in a bind mount.
func fileTrees(r *rig.Rig, n int) error {
	if err := r.Import(r.Namespace, rig.Debian); err != nil {
		return err
	}
	tree := filepath.Join(r.Dir, "w", "files")
	if err := os.Mkdir(tree, 0o755); err != nil {
		return err
	}
	if err := syscall.Mount("bench", tree, "tmpfs", 0, "size=8g,nr_inodes=2m,mode=755"); err != nil {
		return err
	}
	defer syscall.Unmount(tree, syscall.MNT_DETACH)
	if err := makeFiles(filepath.Join(tree, "tree"), n); err != nil {
		return err
	}
	const inRepo = 20_000
	if err := makeRepo(filepath.Join(tree, "repo"), inRepo); err != nil {
		return err
	}
	places, done, err := filePlaces(r, tree)
	if err != nil {
		return err
	}
	defer done()
	fmt.Printf("\n%-34s", fmt.Sprintf("s, %d files in a bind mount", n))
	for _, p := range places {
		fmt.Printf("%10s", p.name)
	}
	fmt.Printf("%11s%12s  %s\n", "ours/runc", "ours/gvisor", "mark")
	for _, c := range filesCommands {
		got := map[string]float64{}
		fmt.Printf("%-34s", c.name)
		for _, p := range places {
			if p.name == "gvisor" && c.scales && n > largeTree {
				fmt.Printf("%10s", "-")
				continue
			}
			s, err := seconds(p, c)
			if err != nil {
				fmt.Printf("%10s", "failed")
				fmt.Fprintf(os.Stderr, "%s in %s: %v\n", c.name, p.name, err)
				continue
			}
			got[p.name] = s
			fmt.Printf("%10.3f", s)
		}
		said := ""
		if c.name == "find" && got["ours"] != 0 {
			said = "<= 0.1 of gVisor: " + reached(got["ours"] <= 0.1*got["gvisor"]) + ", <= 6 of runc: " + reached(got["ours"] <= 6*got["runc"])
		}
		fmt.Printf("%11s%12s  %s\n", ratio(got["ours"], got["runc"]), ratio(got["ours"], got["gvisor"]), said)
	}
	return fileCalls(places)
}

func reached(yes bool) string {
	if yes {
		return "reached"
	}
	return "missed"
}

// seconds runs a command in a place and returns what it took there: the container's start does not count.
func seconds(p place, c filesCommand) (float64, error) {
	script := "a=$EPOCHREALTIME; " + c.script + " || exit 1; b=$EPOCHREALTIME; echo $a $b"
	if c.after != "" {
		script += "; " + c.after
	}
	res := p.run(script)
	f := strings.Fields(res.Stdout)
	if res.Code != 0 || len(f) != 2 {
		return 0, errors.New(res.String())
	}
	a, err := strconv.ParseFloat(f[0], 64)
	if err != nil {
		return 0, err
	}
	b, err := strconv.ParseFloat(f[1], 64)
	return b - a, err
}

// fileCalls prints what single calls on files of the mount take.
func fileCalls(places []place) error {
	results := map[string]map[string]float64{}
	var order []string
	for _, p := range places {
		res := p.run("exec $G/dirs $T")
		if res.Code != 0 {
			fmt.Printf("%s: dirs failed: %s\n", p.name, res)
		}
		results[p.name] = times(res.Stdout, &order)
	}
	fmt.Printf("\n%-34s", "ns, getdents: for an entry")
	for _, p := range places {
		fmt.Printf("%10s", p.name)
	}
	fmt.Printf("%11s%12s  %s\n", "ours/runc", "ours/gvisor", "mark")
	for _, op := range order {
		fmt.Printf("%-34s", op)
		for _, p := range places {
			fmt.Printf("%10s", number(results[p.name][op]))
		}
		o, g, said := results["ours"][op], results["gvisor"][op], ""
		if strings.HasPrefix(op, "getdents") && g != 0 {
			said = "<= 0.3 of gVisor: " + reached(o <= 0.3*g)
		}
		fmt.Printf("%11s%12s  %s\n", ratio(o, results["runc"][op]), ratio(o, g), said)
	}
	return nil
}

// makeRepo makes a git repository with n small files.
func makeRepo(dir string, n int) error {
	if err := makeFiles(filepath.Join(dir, "src"), n); err != nil {
		return err
	}
	for i := range n {
		name := filepath.Join(dir, "src", strconv.Itoa(i/1000), fmt.Sprintf("file%03d", i%1000))
		if err := os.WriteFile(name, fmt.Appendf(nil, "file %d\n%s", i, strings.Repeat("x", i%500)), 0o644); err != nil {
			return err
		}
	}
	for _, args := range [][]string{
		{"init", "-q"}, {"add", "."}, {"-c", "gc.auto=0", "-c", "user.name=bench", "-c", "user.email=bench@localhost", "commit", "-q", "-m", "files"}, {"gc", "-q"},
	} {
		cmd := exec.Command("git", append([]string{"-C", dir}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("git %s: %w: %s", args[0], err, out)
		}
	}
	return nil
}
