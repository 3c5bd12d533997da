package proc

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"runsc/pkg/cpufeature"
	"runsc/sentry/vfs"
)

// ticks converts ns to USER_HZ, 100.
func ticks(ns int64) int64 { return ns / 1e7 }

// bootNow returns the time since boot, and the realtime of boot, in ns.
func (in *instance) bootNow() (since, at int64) {
	clk := in.k.Clock()
	since = clk.Boottime()
	return since, clk.Realtime() - since
}

// cpuTimes sums what the processes of the namespace have used, in ns.
func (in *instance) cpuTimes() (user, sys int64) {
	for _, tg := range in.ns.ThreadGroups() {
		u, s := tg.CPUTime()
		user, sys = user+u, sys+s
	}
	if init := in.ns.ThreadGroup(1); init != nil { // what is gone was reaped in the end by init
		u, s := init.ChildCPUTime()
		user, sys = user+u, sys+s
	}
	return user, sys
}

// stat is /proc/stat. The time is spread evenly over the CPUs.
func (in *instance) stat(_ vfs.Caller, b *bytes.Buffer) error {
	n := int64(in.k.NumCPUs())
	since, at := in.bootNow()
	user, sys := in.cpuTimes()
	idle := max(since*n-user-sys, 0)
	line := func(name string, div int64) {
		fmt.Fprintf(b, "%s %d 0 %d %d 0 0 0 0 0 0\n", name, ticks(user/div), ticks(sys/div), ticks(idle/div))
	}
	line("cpu ", 1)
	for i := int64(0); i < n; i++ {
		line(fmt.Sprintf("cpu%d", i), n)
	}
	_, running := in.k.Tasks()
	fmt.Fprintf(b, "intr 0\nctxt %d\nbtime %d\nprocesses %d\nprocs_running %d\nprocs_blocked 0\nsoftirq 0 0 0 0 0 0 0 0 0 0 0\n",
		in.switches(), at/1e9, in.k.Forks(), max(running, 1))
	return nil
}

func (in *instance) uptime(_ vfs.Caller, b *bytes.Buffer) error {
	since, _ := in.bootNow()
	user, sys := in.cpuTimes()
	idle := max(since*int64(in.k.NumCPUs())-user-sys, 0)
	fmt.Fprintf(b, "%d.%02d %d.%02d\n", since/1e9, since%1e9/1e7, idle/1e9, idle%1e9/1e7)
	return nil
}

// loadAverage follows the number of running tasks, computed when asked for:
// between two looks the number is taken to be the mean of both.
type loadAverage struct {
	mu sync.Mutex
	// mu guards:
	last    int64 // ns
	running float64
	avg     [3]float64
}

func (l *loadAverage) update(now int64, running float64) [3]float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last != 0 && now > l.last {
		dt := float64(now-l.last) / 1e9
		mean := (running + l.running) / 2
		for i, period := range [3]float64{60, 300, 900} {
			keep := math.Exp(-dt / period)
			l.avg[i] = l.avg[i]*keep + mean*(1-keep)
		}
	}
	l.last, l.running = now, running
	return l.avg
}

func (in *instance) loadavg(_ vfs.Caller, b *bytes.Buffer) error {
	total, running := in.k.Tasks()
	running = max(running, 1) // the reader
	avg := in.sys.load.update(in.k.Clock().Monotonic(), float64(running-1))
	fmt.Fprintf(b, "%.2f %.2f %.2f %d/%d %d\n", avg[0], avg[1], avg[2], running, total, in.ns.Last())
	return nil
}

// cpuinfo shows the host's CPU once for each of the guest's CPUs.
func (in *instance) cpuinfo(_ vfs.Caller, b *bytes.Buffer) error {
	n := in.k.NumCPUs()
	model := in.sys.hostCPU()
	for i := 0; i < n; i++ {
		fmt.Fprintf(b, "processor\t: %d\n", i)
		for _, l := range model {
			switch l.key {
			case "physical id":
				l.value = "0"
			case "siblings", "cpu cores":
				l.value = fmt.Sprint(n)
			case "core id", "apicid", "initial apicid":
				l.value = fmt.Sprint(i)
			}
			sep := "\t"
			if len(l.key) < 8 {
				sep = "\t\t"
			}
			if l.value == "" {
				fmt.Fprintf(b, "%s%s:\n", l.key, sep)
				continue
			}
			fmt.Fprintf(b, "%s%s: %s\n", l.key, sep, l.value)
		}
		b.WriteByte('\n')
	}
	return nil
}

type cpuLine struct{ key, value string }

// hidesCPUFlag reports whether guests are not shown a feature: they cannot
// use it here, or it is not to be used.
func (s *System) hidesCPUFlag(name string) bool {
	if slices.Contains(cpufeature.Unusable, name) || name == "cpuid_fault" {
		return true
	}
	mask := s.k.CPUMask()
	return mask != nil && mask.Hides(name)
}

// hostCPU returns the lines of the host's first processor.
func (s *System) hostCPU() []cpuLine {
	lines := s.parseCPU(s.readHostCPU())
	if len(lines) == 0 {
		lines = []cpuLine{
			{"vendor_id", "unknown"}, {"cpu family", "6"}, {"model", "0"}, {"model name", "unknown"}, {"stepping", "0"},
			{"physical id", ""}, {"siblings", ""}, {"core id", ""}, {"cpu cores", ""}, {"apicid", ""}, {"initial apicid", ""},
			{"fpu", "yes"}, {"fpu_exception", "yes"}, {"cpuid level", "13"}, {"wp", "yes"},
			{"flags", "fpu tsc msr cx8 cmov clflush mmx fxsr sse sse2 ht syscall nx lm"},
			{"bogomips", "4000.00"}, {"clflush size", "64"}, {"cache_alignment", "64"},
			{"address sizes", "46 bits physical, 48 bits virtual"}, {"power management", ""},
		}
	}
	return lines
}

// readHostCPU returns the beginning of the host's cpuinfo.
func (s *System) readHostCPU() string {
	if s.procSelfFD < 0 {
		return ""
	}
	// The descriptor is /proc/PID/fd: its grandparent is the root of proc.
	fd, err := unix.Openat(s.procSelfFD, "../../cpuinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	buf := make([]byte, 8192)
	n, err := unix.Read(fd, buf)
	if err != nil {
		return ""
	}
	return string(buf[:n])
}

// parseCPU returns the lines of the first processor but its number.
func (s *System) parseCPU(text string) []cpuLine {
	first, _, ok := strings.Cut(text, "\n\n")
	if !ok {
		return nil
	}
	var lines []cpuLine
	for _, line := range strings.Split(first, "\n") {
		key, value, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		switch key {
		case "processor":
			continue
		case "flags":
			value = strings.Join(slices.DeleteFunc(strings.Fields(value), s.hidesCPUFlag), " ")
		}
		lines = append(lines, cpuLine{key, value})
	}
	return lines
}

func (in *instance) interrupts(_ vfs.Caller, b *bytes.Buffer) error {
	in.cpuHeader(b, 11)
	return nil
}

func (in *instance) softirqs(_ vfs.Caller, b *bytes.Buffer) error {
	in.cpuHeader(b, 20)
	for _, name := range []string{"HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"} {
		fmt.Fprintf(b, "%12s:", name)
		for i := 0; i < in.k.NumCPUs(); i++ {
			fmt.Fprintf(b, " %10d", 0)
		}
		b.WriteByte('\n')
	}
	return nil
}

func (in *instance) cpuHeader(b *bytes.Buffer, indent int) {
	b.WriteString(strings.Repeat(" ", indent))
	for i := 0; i < in.k.NumCPUs(); i++ {
		fmt.Fprintf(b, "%-11s", fmt.Sprintf("CPU%d", i))
	}
	b.WriteByte('\n')
}

// CPUFlags are the processor's features that guests are shown.
func (s *System) CPUFlags() []string {
	for _, l := range s.hostCPU() {
		if l.key == "flags" {
			return strings.Fields(l.value)
		}
	}
	return nil
}

// switches sums the context switches of the namespace's tasks.
func (in *instance) switches() (n int64) {
	for _, tg := range in.ns.ThreadGroups() {
		for _, t := range tg.Tasks() {
			slept, preempted := t.Switches()
			n += slept + preempted
		}
	}
	return n
}
