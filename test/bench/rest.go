package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"time"

	"runsc/test/rig"
)

var inittrace = regexp.MustCompile(`(?m)^init (\S+) @.*, ([\d.]+) ms clock`)

// startParts prints what an exec of the binary costs before main: the packages whose init takes
// longest, as the Go runtime traces them.
func startParts(r *rig.Rig) error {
	shim := filepath.Join(r.Dir, "bin", rig.ShimName)
	if _, err := os.Stat(shim); err != nil {
		return nil // nothing of ours is built
	}
	fmt.Printf("\nan exec of the binary (-v)\n")
	var best time.Duration
	var trace []byte
	for range 10 {
		cmd := exec.Command(shim, "-v")
		cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
		var errs bytes.Buffer
		cmd.Stderr = &errs
		start := time.Now()
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%w: %s", err, errs.Bytes())
		}
		if took := time.Since(start); best == 0 || took < best {
			best, trace = took, errs.Bytes()
		}
	}
	type cost struct {
		pkg string
		ms  float64
	}
	var costs []cost
	sum := 0.0
	for _, m := range inittrace.FindAllSubmatch(trace, -1) {
		ms, _ := strconv.ParseFloat(string(m[2]), 64)
		costs = append(costs, cost{string(m[1]), ms})
		sum += ms
	}
	sort.Slice(costs, func(i, j int) bool { return costs[i].ms > costs[j].ms })
	fmt.Printf("%.1f ms in all, %.2f ms in %d package inits:", best.Seconds()*1000, sum, len(costs))
	for i, c := range costs {
		if i == 6 || c.ms < 0.05 {
			break
		}
		fmt.Printf(" %s %.2f", c.pkg, c.ms)
	}
	fmt.Println()
	return nil
}

// memory prints what the processes of an idle pod hold: ours, and gVisor's sandbox and gofer.
func memory(r *rig.Rig, targets []target) error {
	fmt.Printf("\nidle pod, KiB            anonymous      Pss\n")
	id, err := r.Begin(rig.Container{Runtime: rig.Runsc, Args: []string{"sleep", "1000"}})
	if err != nil {
		fmt.Printf("ours failed: %v\n", err)
	} else {
		time.Sleep(3 * time.Second)
		total := 0
		for _, p := range r.Processes() {
			pss, anonymous := p.Pss()
			total += pss
			fmt.Printf("ours %-20s %8d %8d\n", p.Role(), anonymous, pss)
		}
		fmt.Printf("ours %-20s %8s %8d (mark: sandbox 6144 anonymous, all 30720 Pss)\n", "all", "", total)
		r.Remove(id)
	}
	for _, t := range targets {
		if t.name == "gvisor" {
			return peerMemory(r, t)
		}
	}
	return nil
}

func peerMemory(r *rig.Rig, t target) error {
	done := make(chan rig.Result, 1)
	go func() { done <- t.run(8*time.Second, "/bin/sleep", "5") }() // ends with the container
	time.Sleep(4 * time.Second)
	tools, err := rig.Tools()
	if err != nil {
		return err
	}
	total := 0
	for _, p := range rig.ProcessesOf(filepath.Join(tools, "bin", "runsc")) {
		pss, anonymous := p.Pss()
		total += pss
		fmt.Printf("gvisor %-18.18s %8d %8d\n", fmt.Sprint(p.Args[:min(1, len(p.Args))]), anonymous, pss)
	}
	fmt.Printf("gvisor %-18s %8s %8d\n", "all", "", total)
	<-done
	return nil
}
