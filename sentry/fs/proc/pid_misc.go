package proc

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"runsc/sentry/kernel"
	"runsc/sentry/mm"
	"runsc/sentry/vfs"
)

func (p process) empty(vfs.Caller, *bytes.Buffer) error { return nil }

// refuse is the write side of what a process cannot change here: what it
// belongs to, a user namespace or an audit session, was set for good.
func (p process) refuse(vfs.Caller, string) error { return unix.EPERM }

// ignore accepts a setting without effect.
func (p process) ignore(vfs.Caller, string) error { return nil }

// noAttr and setNoAttr are the files of a security module, of which there is
// none (security_getprocattr).
func (p process) noAttr(vfs.Caller, *bytes.Buffer) error { return unix.EINVAL }

func (p process) setNoAttr(vfs.Caller, string) error { return unix.EINVAL }

func (p process) personality(_ vfs.Caller, b *bytes.Buffer) error {
	if t := p.lead(); t != nil {
		fmt.Fprintf(b, "%08x\n", t.Personality())
	}
	return nil
}

func (p process) comm(_ vfs.Caller, b *bytes.Buffer) error {
	b.WriteString(p.name() + "\n")
	return nil
}

// setComm allows threads of the same process only (comm_write).
func (p process) setComm(c vfs.Caller, s string) error {
	t, ok := c.(*kernel.Task)
	if !ok || t.ThreadGroup() != p.tg {
		return unix.EINVAL
	}
	// A newline is kept, as Linux does.
	s, _, _ = strings.Cut(s[:min(len(s), 15)], "\x00")
	if l := p.lead(); l != nil {
		l.SetComm(s)
	}
	return nil
}

func (p process) syscall(_ vfs.Caller, b *bytes.Buffer) error {
	b.WriteString("running\n")
	return nil
}

func (p process) wchan(_ vfs.Caller, b *bytes.Buffer) error {
	b.WriteByte('0')
	return nil
}

func (p process) schedstat(_ vfs.Caller, b *bytes.Buffer) error {
	t := p.lead()
	if t == nil {
		b.WriteString("0 0 0\n")
		return nil
	}
	user, sys := t.CPUTime()
	slept, preempted := t.Switches()
	fmt.Fprintf(b, "%d 0 %d\n", user+sys, slept+preempted)
	return nil
}

func (p process) cpuset(_ vfs.Caller, b *bytes.Buffer) error {
	b.WriteString("/\n")
	return nil
}

// cgroup shows the container's cgroup as the root of its namespace.
func (p process) cgroup(_ vfs.Caller, b *bytes.Buffer) error {
	b.WriteString("0::/\n")
	return nil
}

// limitNames has the lines of /proc/PID/limits.
var limitNames = []struct {
	resource   int
	name, unit string
}{
	{unix.RLIMIT_CPU, "Max cpu time", "seconds"}, {unix.RLIMIT_FSIZE, "Max file size", "bytes"},
	{unix.RLIMIT_DATA, "Max data size", "bytes"}, {unix.RLIMIT_STACK, "Max stack size", "bytes"},
	{unix.RLIMIT_CORE, "Max core file size", "bytes"}, {unix.RLIMIT_RSS, "Max resident set", "bytes"},
	{unix.RLIMIT_NPROC, "Max processes", "processes"}, {unix.RLIMIT_NOFILE, "Max open files", "files"},
	{unix.RLIMIT_MEMLOCK, "Max locked memory", "bytes"}, {unix.RLIMIT_AS, "Max address space", "bytes"},
	{unix.RLIMIT_LOCKS, "Max file locks", "locks"}, {unix.RLIMIT_SIGPENDING, "Max pending signals", "signals"},
	{unix.RLIMIT_MSGQUEUE, "Max msgqueue size", "bytes"}, {unix.RLIMIT_NICE, "Max nice priority", ""},
	{unix.RLIMIT_RTPRIO, "Max realtime priority", ""}, {unix.RLIMIT_RTTIME, "Max realtime timeout", "us"},
}

func (p process) limits(_ vfs.Caller, b *bytes.Buffer) error {
	value := func(v uint64) string {
		if v == unix.RLIM_INFINITY {
			return "unlimited"
		}
		return strconv.FormatUint(v, 10)
	}
	fmt.Fprintf(b, "%-25s %-20s %-20s %-10s\n", "Limit", "Soft Limit", "Hard Limit", "Units")
	for _, l := range limitNames {
		lim := p.tg.Limit(l.resource)
		fmt.Fprintf(b, "%-25s %-20s %-20s ", l.name, value(lim.Cur), value(lim.Max))
		if l.unit != "" {
			fmt.Fprintf(b, "%-10s", l.unit)
		}
		b.WriteByte('\n')
	}
	return nil
}

// oomScore is what oom_badness makes of resident memory and oom_score_adj.
func (p process) oomScore(_ vfs.Caller, b *bytes.Buffer) error {
	var rss uint64
	p.withMM(func(m *mm.MM) { rss = m.Usage().RSS })
	score := int64(0)
	if total := p.in.memory().total; total > 0 {
		score = int64(rss * 1000 / total)
	}
	fmt.Fprintf(b, "%d\n", max((1000+score+int64(p.tg.OOMScoreAdj()))*2/3, 0))
	return nil
}

func (p process) oomScoreAdj(_ vfs.Caller, b *bytes.Buffer) error {
	fmt.Fprintf(b, "%d\n", p.tg.OOMScoreAdj())
	return nil
}

// oomAdj is the old scale, -17 to 15.
func (p process) oomAdj(_ vfs.Caller, b *bytes.Buffer) error {
	adj := p.tg.OOMScoreAdj()
	n := adj * 17 / 1000
	if adj == 1000 {
		n = 15
	}
	fmt.Fprintf(b, "%d\n", n)
	return nil
}

func (p process) idMap(_ vfs.Caller, b *bytes.Buffer) error {
	fmt.Fprintf(b, "%10d %10d %10d\n", 0, 0, uint32(4294967295))
	return nil
}
