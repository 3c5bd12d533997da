package proc

import (
	"bytes"
	"fmt"
	"runsc/pkg/abi/linux"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"runsc/sentry/kernel"
	"runsc/sentry/mm"
	"runsc/sentry/vfs"
)

const pageSize = 4096

// tids returns the ids of the threads, in order.
func (p process) tids() []int32 {
	var ids []int32
	for _, t := range p.tg.Tasks() {
		if id := t.TIDIn(p.in.ns); id != 0 {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// name is the comm.
func (p process) name() string {
	if t := p.lead(); t != nil {
		return t.Comm()
	}
	return ""
}

// state is the letter of stat.
func (p process) state() byte {
	if p.task != nil {
		return p.task.State()
	}
	return p.tg.State()
}

// withMM calls f with the address space, if there is one left.
func (p process) withMM(f func(*mm.MM)) bool {
	if p.task != nil {
		return p.task.WithMM(f)
	}
	return p.tg.WithMM(f)
}

// stat is /proc/PID/stat.
func (p process) stat(c vfs.Caller, b *bytes.Buffer) error {
	ns, tg, t := p.in.ns, p.tg, p.lead()
	var usage mm.Usage
	var info mm.ProcInfo
	var brk uint64
	shown := p.withMM(func(m *mm.MM) {
		usage = m.Usage()
		if mayRead(c, p) {
			info = m.Info()
			brk, _ = m.BrkStart()
		}
	})
	user, sys := tg.CPUTime()
	start := tg.StartTime()
	if p.task != nil {
		user, sys = p.task.CPUTime()
		start = p.task.StartTime()
	}
	cuser, csys := tg.ChildCPUTime()
	minflt, majflt := tg.Faults()
	threads := len(tg.Tasks())
	rssLimit := tg.Limit(unix.RLIMIT_RSS).Cur
	var pending, blocked, ignored, caught uint64
	nice := 0
	if t != nil {
		pe, _, bl, ig, ca, _ := t.SignalSets()
		pending, blocked, ignored, caught = uint64(pe), uint64(bl), uint64(ig), uint64(ca)
		nice = int(t.Nice())
	}
	codeStart, codeEnd := info.CodeStart, info.CodeEnd
	if shown && codeStart == 0 {
		codeStart, codeEnd = 1, 1 // as Linux does for who may not see them
	}
	const randomPID = 4194304 // PF_RANDOMIZE, which every process has
	fmt.Fprintf(b, "%d (%s) %c %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d 0 %d %d %d %d %d %d %d 0 0 %d %d %d %d 0 0 0 %d %d 0 0 0 0 0 %d %d %d %d %d %d %d 0\n",
		p.id, statName(p.name()), p.state(), tg.PPID(ns), tg.PGID(ns), tg.SID(ns), 0, -1, randomPID,
		minflt, 0, majflt, 0, ticks(user), ticks(sys), ticks(cuser), ticks(csys), 20+nice, nice, threads,
		ticks(p.sinceBoot(start)), usage.Size, usage.RSS/pageSize, rssLimit, codeStart, codeEnd, info.StackStart,
		pending, blocked, ignored, caught, 17, 0,
		info.DataStart, info.DataEnd, brk, info.ArgStart, info.ArgEnd, info.EnvStart, info.EnvEnd)
	return nil
}

// statName keeps a comm from breaking the line.
func statName(s string) string { return strings.NewReplacer("\n", `\n`, `\`, `\\`).Replace(s) }

// sinceBoot turns a monotonic time into one since boot, which stat counts
// from.
func (p process) sinceBoot(monotonic int64) int64 {
	clk := p.in.k.Clock()
	return max(monotonic+clk.Boottime()-clk.Monotonic(), 0)
}

// statm is /proc/PID/statm, in pages.
func (p process) statm(_ vfs.Caller, b *bytes.Buffer) error {
	var u mm.Usage
	p.withMM(func(m *mm.MM) { u = m.Usage() })
	fmt.Fprintf(b, "%d %d %d %d 0 %d 0\n", u.Size/pageSize, u.RSS/pageSize, u.RSSFile/pageSize, u.Text/pageSize, (u.Data+u.Stack)/pageSize)
	return nil
}

var stateNames = map[byte]string{
	'R': "running", 'S': "sleeping", 'D': "disk sleep", 'T': "stopped", 't': "tracing stop", 'Z': "zombie", 'X': "dead",
}

// status is /proc/PID/status.
func (p process) status(_ vfs.Caller, b *bytes.Buffer) error {
	ns, tg, t := p.in.ns, p.tg, p.lead()
	st := p.state()
	fmt.Fprintf(b, "Name:\t%s\n", statName(p.name()))
	_ = p.withFS(func(fs *vfs.FSContext) { fmt.Fprintf(b, "Umask:\t%04o\n", fs.Umask()) })
	cr := p.cred()
	fmt.Fprintf(b, "State:\t%c (%s)\nTgid:\t%d\nNgid:\t0\nPid:\t%d\nPPid:\t%d\nTracerPid:\t0\n", st, stateNames[st], tg.ID(ns), p.id, tg.PPID(ns))
	fmt.Fprintf(b, "Uid:\t%d\t%d\t%d\t%d\nGid:\t%d\t%d\t%d\t%d\n",
		cr.UID, cr.EUID, cr.SUID, cr.FSUID, cr.GID, cr.EGID, cr.SGID, cr.FSGID)
	fdSize := 0
	p.withFiles(func(ft *vfs.FDTable) { fdSize = max((ft.Count()+63)&^63, 64) })
	fmt.Fprintf(b, "FDSize:\t%d\nGroups:\t", fdSize)
	for _, g := range cr.Groups {
		fmt.Fprintf(b, "%d ", g)
	}
	// One number for each namespace from the mount's to the process's.
	fmt.Fprintf(b, "\nNStgid:\t%d\nNSpid:\t%d\nNSpgid:\t%d\nNSsid:\t%d\nKthread:\t0\n", tg.ID(ns), p.id, tg.PGID(ns), tg.SID(ns))
	p.withMM(func(m *mm.MM) { memoryStatus(b, m.Usage()) })
	fmt.Fprintf(b, "CoreDumping:\t0\nTHP_enabled:\t1\nuntag_mask:\t0xffffffffffffffff\nThreads:\t%d\n", len(tg.Tasks()))
	if t != nil {
		signalStatus(b, t, tg)
	}
	mode, filters := 0, 0
	if t != nil {
		if filters = len(t.SeccompFilters()); filters > 0 {
			mode = linux.SECCOMP_MODE_FILTER
		}
	}
	noNewPrivs := 0
	if cr.NoNewPrivs {
		noNewPrivs = 1
	}
	fmt.Fprintf(b, "CapInh:\t%016x\nCapPrm:\t%016x\nCapEff:\t%016x\nCapBnd:\t%016x\nCapAmb:\t%016x\n",
		uint64(cr.Inheritable), uint64(cr.Permitted), uint64(cr.Effective), uint64(cr.Bounding), uint64(cr.Ambient))
	n := p.in.k.NumCPUs()
	fmt.Fprintf(b, "NoNewPrivs:\t%d\nSeccomp:\t%d\nSeccomp_filters:\t%d\nSpeculation_Store_Bypass:\tthread vulnerable\nSpeculationIndirectBranch:\tconditional enabled\n",
		noNewPrivs, mode, filters)
	fmt.Fprintf(b, "Cpus_allowed:\t%s\nCpus_allowed_list:\t%s\nMems_allowed:\t1\nMems_allowed_list:\t0\nvoluntary_ctxt_switches:\t0\nnonvoluntary_ctxt_switches:\t0\n",
		cpuMask(n), cpuList(n))
	return nil
}

func memoryStatus(b *bytes.Buffer, u mm.Usage) {
	for _, l := range []struct {
		name string
		n    uint64
	}{
		{"VmPeak", u.PeakSize}, {"VmSize", u.Size}, {"VmLck", u.Locked}, {"VmPin", 0}, {"VmHWM", u.PeakRSS}, {"VmRSS", u.RSS},
		{"RssAnon", u.RSSAnon}, {"RssFile", u.RSSFile}, {"RssShmem", 0}, {"VmData", u.Data}, {"VmStk", u.Stack},
		{"VmExe", u.Text}, {"VmLib", 0}, {"VmPTE", 0}, {"VmSwap", 0}, {"HugetlbPages", 0},
	} {
		fmt.Fprintf(b, "%s:\t%8d kB\n", l.name, l.n/1024)
	}
}

func signalStatus(b *bytes.Buffer, t *kernel.Task, tg *kernel.ThreadGroup) {
	pending, shared, blocked, ignored, caught, queued := t.SignalSets()
	fmt.Fprintf(b, "SigQ:\t%d/%d\nSigPnd:\t%016x\nShdPnd:\t%016x\nSigBlk:\t%016x\nSigIgn:\t%016x\nSigCgt:\t%016x\n",
		queued, tg.Limit(unix.RLIMIT_SIGPENDING).Cur, uint64(pending), uint64(shared), uint64(blocked), uint64(ignored), uint64(caught))
}

// cpuMask and cpuList show the CPUs 0 to n-1 as a bit mask and as a list.
func cpuMask(n int) string {
	var parts []string
	for n > 0 {
		w := uint64(1)<<min(n, 32) - 1
		if len(parts) == 0 && n < 32 {
			parts = append(parts, fmt.Sprintf("%x", w))
		} else {
			parts = append(parts, fmt.Sprintf("%08x", w))
		}
		n -= 32
	}
	slices.Reverse(parts) // the highest word comes first
	if len(parts) > 1 {
		parts[0] = strings.TrimLeft(parts[0], "0")
	}
	return strings.Join(parts, ",")
}

func cpuList(n int) string {
	if n == 1 {
		return "0"
	}
	return fmt.Sprintf("0-%d", n-1)
}
