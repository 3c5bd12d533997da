package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"runsc/test/rig"
)

func main() {
	only := flag.String("only", "", "measure one of ops, spin, run, start, memory, checkpoint, files")
	files := flag.Int("files", 50_000, "how many files the trees of part files have; from 200,000 on gVisor's runsc is only asked to find")
	flag.Parse()
	if err := bench(*only, *files, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func bench(only string, files int, names []string) error {
	r, err := rig.Start(rig.Busybox, rig.Guest)
	if err != nil {
		return err
	}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() { // ends with the process
		<-interrupted
		r.Close()
		os.Exit(1)
	}()
	defer r.Close()
	targets, done, err := allTargets(r)
	if err != nil {
		return err
	}
	defer done()
	printHost()
	parts := []struct {
		name string
		run  func() error
	}{
		{"ops", func() error { return operations(targets, names) }},
		{"spin", func() error { return spinning(targets) }},
		{"run", func() error { return wholeRuns(targets) }},
		{"start", func() error { return startParts(r) }},
		{"memory", func() error { return memory(r, targets) }},
		{"checkpoint", func() error { return checkpoints(r, names) }},
		{"files", func() error { return fileTrees(r, files) }},
	}
	for _, p := range parts {
		if only != "" && only != p.name {
			continue
		}
		if err := p.run(); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

func printHost() {
	var uts syscall.Utsname
	syscall.Uname(&uts)
	release := make([]byte, 0, len(uts.Release))
	for _, c := range uts.Release {
		if c == 0 {
			break
		}
		release = append(release, byte(c))
	}
	fmt.Printf("%d CPUs, Linux %s, %s\n", runtime.NumCPU(), release, runtime.Version())
}

// marks are the ratios to gVisor's runsc that the project wants at most.
var marks = map[string]string{
	"getpid": "0.45", "pipe-pingpong": "0.6", "fork+exec+wait": "0.7", "mmap+munmap-64k": "0.15",
}

// times reads lines of a name and a number, and adds new names to order.
func times(output string, order *[]string) map[string]float64 {
	all := map[string]float64{}
	for line := range strings.Lines(output) {
		f := strings.Fields(line)
		if len(f) != 2 {
			continue
		}
		if !slices.Contains(*order, f[0]) {
			*order = append(*order, f[0])
		}
		all[f[0]], _ = strconv.ParseFloat(f[1], 64)
	}
	return all
}

// operations prints a table of single operations: a column for each target, then ratios of ours.
func operations(targets []target, names []string) error {
	results := map[string]map[string]float64{}
	var order []string
	for _, t := range targets {
		res := t.run(5*time.Minute, append([]string{"/guest/bench"}, names...)...)
		if res.Code != 0 {
			fmt.Printf("%s: bench failed: %s\n", t.name, res)
		}
		results[t.name] = times(res.Stdout, &order)
	}
	fmt.Printf("\n%-24s", "ns per operation")
	for _, t := range targets {
		fmt.Printf("%12s", t.name)
	}
	fmt.Printf("%12s%12s%8s\n", "ours/runc", "ours/gvisor", "mark")
	for _, op := range order {
		fmt.Printf("%-24s", op)
		for _, t := range targets {
			fmt.Printf("%12s", number(results[t.name][op]))
		}
		fmt.Printf("%12s%12s%8s\n", ratio(results["ours"][op], results["runc"][op]), ratio(results["ours"][op], results["gvisor"][op]), marks[op])
	}
	return nil
}

// spinning prints how long a round of spinning barriers takes, with as many threads as CPUs and more.
func spinning(targets []target) error {
	n := runtime.NumCPU()
	fmt.Printf("\n%-24s", "ns per barrier")
	for _, t := range targets {
		fmt.Printf("%12s", t.name)
	}
	fmt.Printf("%12s\n", "ours/runc")
	for _, threads := range []int{n, 2 * n, 8 * n} {
		fmt.Printf("%-24s", fmt.Sprintf("%d threads", threads))
		got := map[string]float64{}
		for _, t := range targets {
			var all []float64
			for range 3 {
				res := t.run(time.Minute, "/guest/barrier", strconv.Itoa(threads), "300")
				if ns, err := strconv.ParseFloat(strings.TrimSpace(res.Stderr), 64); err == nil && res.Code == 0 {
					all = append(all, ns)
				}
			}
			got[t.name] = median(all)
			fmt.Printf("%12s", number(got[t.name]))
		}
		fmt.Printf("%12s\n", ratio(got["ours"], got["runc"]))
	}
	return nil
}

// wholeRuns prints the wall time of a run of true: through ctr for runc and ours, runsc run alone for
// gVisor, whose shim does not start everywhere.
func wholeRuns(targets []target) error {
	const runs = 15
	fmt.Printf("\nrun of true, s           median     best\n")
	got := map[string]float64{}
	for _, t := range targets {
		if t.name == "native" {
			continue
		}
		var all []float64
		for range runs {
			res := t.run(time.Minute, "/bin/true")
			if res.Code == 0 && !res.TimedOut {
				all = append(all, res.Took.Seconds())
			}
		}
		if len(all) == 0 {
			fmt.Printf("%-24s failed\n", t.name)
			continue
		}
		got[t.name] = median(all)
		fmt.Printf("%-24s %6.3f   %6.3f   %s\n", t.name, got[t.name], slices.Min(all), t.how)
	}
	fmt.Printf("ours/runc %s (mark 1.0)\n", ratio(got["ours"], got["runc"]))
	return nil
}

func number(ns float64) string {
	if ns == 0 {
		return "-"
	}
	return strconv.FormatFloat(ns, 'f', 0, 64)
}

func ratio(a, b float64) string {
	if a == 0 || b == 0 {
		return "-"
	}
	return strconv.FormatFloat(a/b, 'f', 2, 64)
}

func median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// run runs a program of the host.
func run(timeout time.Duration, args []string) rig.Result {
	var out, errs strings.Builder
	cmd := exec.Command("timeout", append([]string{strconv.Itoa(int(timeout.Seconds()))}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	start := time.Now()
	cmd.Run() // the exit code says it
	return rig.Result{Stdout: out.String(), Stderr: errs.String(), Code: cmd.ProcessState.ExitCode(), Took: time.Since(start)}
}
