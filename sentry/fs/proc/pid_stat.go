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
	cminflt, cmajflt := tg.ChildFaults()
	threads := len(tg.Tasks())
	rssLimit := tg.Limit(unix.RLIMIT_RSS).Cur
	var pending, blocked, ignored, caught uint64
	nice, prio, policy, rt, cpu := 0, 20, int32(0), int32(0), uint32(0)
	if p.task != nil {
		minflt, majflt = p.task.Faults()
	}
	if t != nil {
		policy, rt = t.Scheduler()
		cpu = t.CPU()
		pe, _, bl, ig, ca, _ := t.SignalSets()
		pending, blocked, ignored, caught = uint64(pe), uint64(bl), uint64(ig), uint64(ca)
		nice = int(t.Nice())
		if prio += nice; rt > 0 {
			prio = -1 - int(rt)
		}
	}
	wchan := 0
	if st := p.state(); threads < 2 && st != 'R' && st != 'Z' && mayRead(c, p) {
		wchan = 1 // asleep; where is nobody's business
	}
	codeStart, codeEnd := info.CodeStart, info.CodeEnd
	if shown && codeStart == 0 {
		codeStart, codeEnd = 1, 1 // as Linux does for who may not see them
	}
	const randomPID = 4194304 // PF_RANDOMIZE, which every process has
	fmt.Fprintf(b, "%d (%s) %c %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d 0 %d %d %d %d %d %d %d 0 0 %d %d %d %d %d 0 0 %d %d %d %d 0 0 0 %d %d %d %d %d %d %d 0\n",
		p.id, statName(p.name()), p.state(), tg.PPID(ns), tg.PGID(ns), tg.SID(ns), 0, -1, randomPID,
		minflt, cminflt, majflt, cmajflt, ticks(user), ticks(sys), ticks(cuser), ticks(csys), prio, nice, max(threads, 1),
		ticks(p.sinceBoot(start)), usage.Size, usage.RSS/pageSize, rssLimit, codeStart, codeEnd, info.StackStart,
		pending&sigMask, blocked&sigMask, ignored&sigMask, caught&sigMask, wchan, 17, cpu, rt, policy,
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
	text := uint64(0)
	p.withMM(func(m *mm.MM) { text, _ = textSizes(m.Info(), u) })
	fmt.Fprintf(b, "%d %d %d %d 0 %d 0\n", u.Size/pageSize, u.RSS/pageSize, u.RSSFile/pageSize, text/pageSize, (u.Data+u.Stack)/pageSize)
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
	sep := ""
	for _, g := range cr.Groups {
		fmt.Fprintf(b, "%s%d", sep, g)
		sep = " "
	}
	// One number for each namespace from the mount's to the process's.
	nsIDs := func(name string, id func(*kernel.PIDNamespace) int32) {
		b.WriteString(name + ":")
		for _, x := range tg.PID().Namespaces(ns) {
			fmt.Fprintf(b, "\t%d", id(x))
		}
		b.WriteByte('\n')
	}
	b.WriteString(" \n")
	nsIDs("NStgid", tg.ID)
	nsIDs("NSpid", func(x *kernel.PIDNamespace) int32 {
		if t != nil {
			return t.TIDIn(x)
		}
		return tg.ID(x)
	})
	nsIDs("NSpgid", tg.PGID)
	nsIDs("NSsid", tg.SID)
	b.WriteString("Kthread:\t0\n")
	p.withMM(func(m *mm.MM) { memoryStatus(b, m.Usage(), m.Info()) })
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
	cpus := affinity(t, p.in.k.NumCPUs())
	var slept, preempted int64
	if t != nil {
		slept, preempted = t.Switches()
	}
	fmt.Fprintf(b, "NoNewPrivs:\t%d\nSeccomp:\t%d\nSeccomp_filters:\t%d\nSpeculation_Store_Bypass:\tthread vulnerable\nSpeculationIndirectBranch:\tconditional enabled\n",
		noNewPrivs, mode, filters)
	fmt.Fprintf(b, "Cpus_allowed:\t%s\nCpus_allowed_list:\t%s\nMems_allowed:\t1\nMems_allowed_list:\t0\nvoluntary_ctxt_switches:\t%d\nnonvoluntary_ctxt_switches:\t%d\n",
		cpuMask(cpus), cpuList(cpus), slept, preempted)
	return nil
}

// textSizes splits executable mappings into the program's and the libraries'.
func textSizes(i mm.ProcInfo, u mm.Usage) (exe, lib uint64) {
	exe = min((i.CodeEnd+pageSize-1)&^(pageSize-1)-i.CodeStart&^(pageSize-1), u.Text)
	return exe, u.Text - exe
}

// pageTables is what the page tables of so much memory take at least: three
// upper levels, and a page for each 2 MiB.
func pageTables(rss uint64) uint64 { return (3 + (rss+2<<20-1)/(2<<20)) * pageSize }

func memoryStatus(b *bytes.Buffer, u mm.Usage, i mm.ProcInfo) {
	exe, lib := textSizes(i, u)
	for _, l := range []struct {
		name string
		n    uint64
	}{
		{"VmPeak", u.PeakSize}, {"VmSize", u.Size}, {"VmLck", u.Locked}, {"VmPin", 0}, {"VmHWM", u.PeakRSS}, {"VmRSS", u.RSS},
		{"RssAnon", u.RSSAnon}, {"RssFile", u.RSSFile}, {"RssShmem", 0}, {"VmData", u.Data}, {"VmStk", u.Stack},
		{"VmExe", exe}, {"VmLib", lib}, {"VmPTE", pageTables(u.RSS)}, {"VmSwap", 0}, {"HugetlbPages", 0},
	} {
		fmt.Fprintf(b, "%s:\t%8d kB\n", l.name, l.n/1024)
	}
}

func signalStatus(b *bytes.Buffer, t *kernel.Task, tg *kernel.ThreadGroup) {
	pending, shared, blocked, ignored, caught, queued := t.SignalSets()
	fmt.Fprintf(b, "SigQ:\t%d/%d\nSigPnd:\t%016x\nShdPnd:\t%016x\nSigBlk:\t%016x\nSigIgn:\t%016x\nSigCgt:\t%016x\n",
		queued, tg.Limit(unix.RLIMIT_SIGPENDING).Cur, uint64(pending), uint64(shared), uint64(blocked), uint64(ignored), uint64(caught))
}

// sigMask are the signals that stat has room for (collect_sigign_sigcatch's
// callers print 31 bits).
const sigMask = 0x7fffffff

// affinity returns the CPUs that t may use, of n.
func affinity(t *kernel.Task, n int) []bool {
	set := make([]bool, n)
	var mask []byte
	if t != nil {
		mask = t.Affinity()
	}
	for i := range set {
		set[i] = t == nil || i/8 < len(mask) && mask[i/8]&(1<<(i%8)) != 0
	}
	return set
}

// cpuMask and cpuList show a set of CPUs as a bit mask, in words of 32 bits,
// and as a list of ranges.
func cpuMask(set []bool) string {
	var parts []string
	for lo := (len(set) - 1) / 32 * 32; lo >= 0; lo -= 32 {
		w, n := uint32(0), min(len(set)-lo, 32)
		for i := range n {
			if set[lo+i] {
				w |= 1 << i
			}
		}
		if len(parts) == 0 {
			parts = append(parts, fmt.Sprintf("%0*x", (n+3)/4, w))
		} else {
			parts = append(parts, fmt.Sprintf("%08x", w))
		}
	}
	return strings.Join(parts, ",")
}

func cpuList(set []bool) string {
	var parts []string
	for i := 0; i < len(set); i++ {
		if !set[i] {
			continue
		}
		first := i
		for i+1 < len(set) && set[i+1] {
			i++
		}
		if i == first {
			parts = append(parts, fmt.Sprint(first))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", first, i))
		}
	}
	return strings.Join(parts, ",")
}
