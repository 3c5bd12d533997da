package rig

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const cgroupRoot = "/sys/fs/cgroup"

// Process is one that runs the rig's copy of the shim, in whichever role.
type Process struct {
	PID  int
	PPID int
	Args []string
	CPU  time.Duration // user and system time so far
}

// Role is shim, sandbox, gofer or stub (a process with no arguments of its own).
func (p Process) Role() string {
	if len(p.Args) > 1 {
		// Such a process executes the program anew once it is isolated.
		role := strings.TrimSuffix(p.Args[1], "-isolated")
		if role == "sandbox" || role == "gofer" {
			return role
		}
	}
	if len(p.Args) == 0 {
		return "stub"
	}
	return "shim"
}

func (p Process) String() string {
	return fmt.Sprintf("%s %d (parent %d): %s", p.Role(), p.PID, p.PPID, strings.Join(p.Args, " "))
}

// Processes lists the processes that run the rig's copy of the shim: shims, sandboxes, gofers and
// stubs. A stub has unmapped the binary, but the kernel remembers what it was.
func (r *Rig) Processes() []Process {
	if r.shim == nil {
		return nil
	}
	return processesOf(r.shim)
}

// ProcessesOf lists the processes that run a program.
func ProcessesOf(program string) []Process {
	fi, err := os.Stat(program)
	if err != nil {
		return nil
	}
	return processesOf(fi)
}

func processesOf(program os.FileInfo) []Process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var ps []Process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		exe, err := os.Stat(filepath.Join("/proc", e.Name(), "exe"))
		if err != nil || !os.SameFile(exe, program) {
			continue
		}
		if p, ok := readProcess(pid); ok {
			ps = append(ps, p)
		}
	}
	return ps
}

// readProcess reads /proc/pid; a process that is gone or a zombie is none.
func readProcess(pid int) (Process, bool) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return Process{}, false
	}
	// proc(5): the name in parentheses may hold anything; state is the third field.
	f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(f) < 13 || f[0] == "Z" || f[0] == "X" {
		return Process{}, false
	}
	p := Process{PID: pid}
	p.PPID, _ = strconv.Atoi(f[1])
	utime, _ := strconv.Atoi(f[11])
	stime, _ := strconv.Atoi(f[12])
	p.CPU = time.Duration(utime+stime) * 10 * time.Millisecond // USER_HZ is 100
	cmdline, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
	if s := strings.TrimRight(string(cmdline), "\x00"); s != "" {
		p.Args = strings.Split(s, "\x00")
	}
	return p, true
}

// Pss sums the proportional set size and the anonymous memory of a process, in KiB.
func (p Process) Pss() (pss, anonymous int) {
	data, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.PID), "smaps_rollup"))
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		n, _ := strconv.Atoi(f[1])
		switch f[0] {
		case "Pss:":
			pss = n
		case "Anonymous:":
			anonymous = n
		}
	}
	return pss, anonymous
}

// mounts lists the mounts below the rig's directory, innermost first.
func (r *Rig) mounts() []string {
	data, _ := os.ReadFile("/proc/self/mountinfo")
	var ms []string
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], r.Dir+"/") {
			ms = append(ms, f[4])
		}
	}
	sort.Sort(sort.Reverse(sort.StringSlice(ms)))
	return ms
}

// hierarchies lists the cgroup trees of the host: one on v2, one for each controller on v1.
func hierarchies() []string {
	if _, err := os.Stat(filepath.Join(cgroupRoot, "cgroup.controllers")); err == nil {
		return []string{cgroupRoot}
	}
	dirs, _ := filepath.Glob(cgroupRoot + "/*")
	return dirs
}

// cgroups lists the cgroups below the one of a containerd namespace.
func cgroups(namespace string) []string {
	var found []string
	for _, top := range hierarchiesOf(namespace) {
		filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && path != top {
				found = append(found, path)
			}
			return nil
		})
	}
	return found
}

// removeCgroups removes what cgroups lists, and its parents. What still runs in them is killed: nothing
// but a rig's containers can.
func removeCgroups(namespace string) {
	for range 20 {
		busy := false
		found := append(cgroups(namespace), hierarchiesOf(namespace)...)
		sort.Sort(sort.Reverse(sort.StringSlice(found)))
		for _, c := range found {
			procs, _ := os.ReadFile(filepath.Join(c, "cgroup.procs"))
			for f := range strings.FieldsSeq(string(procs)) {
				if pid, err := strconv.Atoi(f); err == nil {
					syscall.Kill(pid, syscall.SIGKILL)
				}
			}
			busy = syscall.Rmdir(c) == syscall.EBUSY || busy
		}
		if !busy {
			return
		}
		time.Sleep(50 * time.Millisecond) // for the killed to end
	}
}

// hierarchiesOf lists the cgroup of a containerd namespace in every hierarchy.
func hierarchiesOf(namespace string) []string {
	var all []string
	for _, h := range hierarchies() {
		all = append(all, filepath.Join(h, namespace))
	}
	return all
}

// files lists what containers leave in the rig's directories when nothing runs: task bundles,
// sockets, temporary files, checkpoint work.
func (r *Rig) files() []string {
	var found []string
	list := func(dir string, depth int) {
		pattern := filepath.Join(r.Dir, dir) + strings.Repeat("/*", depth)
		matches, _ := filepath.Glob(pattern)
		found = append(found, matches...)
	}
	list("run/io.containerd.runtime.v2.task", 2)
	list("root/io.containerd.runtime.v2.task", 2)
	list("s", 1)
	list("tmp", 1)
	return found
}

// leftovers lists everything of containers that is there now.
func (r *Rig) leftovers() []string {
	var all []string
	for _, p := range r.Processes() {
		all = append(all, "process "+p.String())
	}
	for _, m := range r.mounts() {
		all = append(all, "mount "+m)
	}
	for _, c := range cgroups(r.Namespace) {
		all = append(all, "cgroup "+c)
	}
	for _, f := range r.files() {
		all = append(all, "file "+f)
	}
	return all
}

// Leftovers lists what is left of containers when none should be: processes (stubs included),
// mounts, cgroups of every hierarchy, sockets and files. What known lists is not told again; of what
// is new it waits a while for the end.
func (r *Rig) Leftovers(known []string) []string {
	var left []string
	for range 50 {
		left = slices.DeleteFunc(r.leftovers(), func(l string) bool { return slices.Contains(known, l) })
		if len(left) == 0 {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return left
}
