package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

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
	return printExecs(r, shim)
}

// printExecs prints when each exec of the binary happened during a run of true, as fanotify(7) tells.
func printExecs(r *rig.Rig, shim string) error {
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_NOTIF|unix.FAN_CLOEXEC|unix.FAN_NONBLOCK, unix.O_RDONLY|unix.O_CLOEXEC)
	if err != nil {
		fmt.Printf("execs are not counted: fanotify_init: %v\n", err)
		return nil
	}
	defer unix.Close(fd)
	if err := unix.FanotifyMark(fd, unix.FAN_MARK_ADD, unix.FAN_OPEN_EXEC, unix.AT_FDCWD, shim); err != nil {
		fmt.Printf("execs are not counted: fanotify_mark: %v\n", err)
		return nil
	}
	type run struct {
		execs []time.Duration
		took  time.Duration
	}
	var best run
	for range 5 {
		var now run
		start := time.Now()
		done := make(chan rig.Result, 1)
		go func() { done <- r.Run(rig.Container{Runtime: rig.Runsc, Args: []string{"true"}}) }() // ends with the run
		for running := true; running; {
			select {
			case res := <-done:
				if res.Code != 0 {
					fmt.Printf("ours failed: %s\n", res)
					return nil
				}
				now.took, running = res.Took, false
			case <-time.After(500 * time.Microsecond):
			}
			for range readExecs(fd) {
				now.execs = append(now.execs, time.Since(start))
			}
		}
		if best.took == 0 || now.took < best.took {
			best = now
		}
	}
	fmt.Printf("a run of true: %d execs of the binary, at", len(best.execs))
	for _, at := range best.execs {
		fmt.Printf(" %.0f", at.Seconds()*1000)
	}
	fmt.Printf(" ms of %.0f\n", best.took.Seconds()*1000)
	return nil
}

// readExecs reads the fanotify events that are there and counts them.
func readExecs(fd int) int {
	b := make([]byte, 4096)
	n, _ := unix.Read(fd, b)
	count := 0
	for b = b[:max(n, 0)]; len(b) >= unix.FAN_EVENT_METADATA_LEN; count++ {
		// struct fanotify_event_metadata: event_len, three small fields, mask, fd, pid
		unix.Close(int(int32(binary.NativeEndian.Uint32(b[16:]))))
		b = b[binary.NativeEndian.Uint32(b):]
	}
	return count
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
