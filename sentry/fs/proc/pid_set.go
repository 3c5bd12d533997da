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

// maxNumber is PROC_NUMBUF less one: what is looked at of a number.
const maxNumber = 12

// number reads an integer as kstrtol does after strstrip: a sign, 0x and 0 as
// prefixes when base is 0, nothing after it.
func number(s string, base int) (int64, error) {
	s = strings.TrimSpace(strings.TrimRight(s, "\x00"))
	neg := false
	if s != "" && (s[0] == '-' || s[0] == '+') {
		neg = s[0] == '-'
		s = s[1:]
	}
	if base == 0 {
		switch {
		case len(s) > 2 && s[0] == '0' && s[1]|0x20 == 'x':
			base, s = 16, s[2:]
		case len(s) > 1 && s[0] == '0':
			base, s = 8, s[1:]
		default:
			base = 10
		}
	}
	if s == "" || s[0] == '-' || s[0] == '+' || strings.Contains(s, "_") {
		return 0, unix.EINVAL
	}
	n, err := strconv.ParseInt(s, base, 64)
	if err != nil {
		if e, ok := err.(*strconv.NumError); ok && e.Err == strconv.ErrRange {
			return 0, unix.ERANGE
		}
		return 0, unix.EINVAL
	}
	if neg {
		n = -n
	}
	return n, nil
}

// numberIn is number with bounds, outside of which is EINVAL.
func numberIn(s string, base int, lo, hi int64) (int64, error) {
	n, err := number(s, base)
	if err == nil && (n < lo || n > hi) {
		err = unix.EINVAL
	}
	return n, err
}

// setOOMScoreAdj is oom_score_adj_write.
func (p process) setOOMScoreAdj(c vfs.Caller, s string) error {
	n, err := numberIn(s[:min(len(s), maxNumber)], 0, -1000, 1000)
	if err != nil {
		return err
	}
	return p.setOOM(c, int32(n))
}

// setOOM needs CAP_SYS_RESOURCE to go below what somebody with it has set.
func (p process) setOOM(c vfs.Caller, n int32) error {
	t, ok := c.(*kernel.Task)
	if !ok {
		return unix.EPERM
	}
	return p.tg.WriteOOMScoreAdj(t, n)
}

func (p process) setOOMAdj(c vfs.Caller, s string) error {
	n, err := numberIn(s[:min(len(s), maxNumber)], 0, -17, 15)
	if err != nil {
		return err
	}
	adj := int32(n) * 1000 / 17
	if n == 15 {
		adj = 1000
	}
	return p.setOOM(c, adj)
}

func (p process) loginUID(_ vfs.Caller, b *bytes.Buffer) error {
	fmt.Fprintf(b, "%d", p.tg.LoginUID())
	return nil
}

// setLoginUID is for the own process only (proc_loginuid_write).
func (p process) setLoginUID(c vfs.Caller, s string) error {
	if t, ok := c.(*kernel.Task); !ok || t.ThreadGroup() != p.tg {
		return unix.EPERM
	}
	n, err := numberIn(s, 10, 0, 1<<32-1)
	if err != nil {
		return err
	}
	return p.tg.SetLoginUID(c.Cred(), uint32(n))
}

func (p process) sessionID(_ vfs.Caller, b *bytes.Buffer) error {
	fmt.Fprintf(b, "%d", p.tg.AuditSession())
	return nil
}

func (p process) io(_ vfs.Caller, b *bytes.Buffer) error {
	u := p.tg.IO()
	if p.task != nil {
		u = p.task.IO()
	}
	fmt.Fprintf(b, "rchar: %d\nwchar: %d\nsyscr: %d\nsyscw: %d\nread_bytes: 0\nwrite_bytes: 0\ncancelled_write_bytes: 0\n",
		u.ReadBytes, u.WrittenBytes, u.ReadCalls, u.WriteCalls)
	return nil
}

func (p process) setgroups(_ vfs.Caller, b *bytes.Buffer) error {
	b.WriteString("allow\n")
	return nil
}

// setSetgroups: the user namespace has its group map, so that nothing can
// change any more (proc_setgroups_write).
func (p process) setSetgroups(c vfs.Caller, s string) error {
	switch word := strings.TrimRight(s, " \n\t"); {
	case len(s) >= 8 || word != "allow" && word != "deny":
		return unix.EINVAL
	case word == "deny":
		return unix.EPERM
	}
	return nil
}

func (p process) coredumpFilter(_ vfs.Caller, b *bytes.Buffer) error {
	if p.withMM(func(*mm.MM) {}) {
		fmt.Fprintf(b, "%08x\n", p.tg.DumpFilter())
	}
	return nil
}

func (p process) setCoredumpFilter(_ vfs.Caller, s string) error {
	n, err := numberIn(s, 0, 0, 1<<32-1)
	if err == nil {
		p.tg.SetDumpFilter(uint32(n))
	}
	return err
}

// mayTune is for settings of another's scheduling: CAP_SYS_NICE.
func (p process) mayTune(c vfs.Caller) bool {
	t, ok := c.(*kernel.Task)
	return ok && t.ThreadGroup() == p.tg || c.Cred().Has(unix.CAP_SYS_NICE)
}

func (p process) timerSlack(c vfs.Caller, b *bytes.Buffer) error {
	if !p.mayTune(c) {
		return unix.EPERM
	}
	if t := p.lead(); t != nil {
		fmt.Fprintf(b, "%d\n", t.TimerSlack())
	}
	return nil
}

// setTimerSlack is timerslack_ns_write.
func (p process) setTimerSlack(c vfs.Caller, s string) error {
	n, err := numberIn(s, 10, 0, 1<<63-1)
	if err != nil {
		return err
	}
	if !p.mayTune(c) {
		return unix.EPERM
	}
	if t := p.lead(); t != nil {
		t.SetTimerSlack(uint64(n))
	}
	return nil
}

// clearRefs is clear_refs_write: only the peak of resident memory can be set
// back, pages have no referenced bits here.
func (p process) clearRefs(_ vfs.Caller, s string) error {
	n, err := numberIn(s[:min(len(s), maxNumber)], 10, 1, 5)
	if err == nil && n == 5 {
		p.withMM((*mm.MM).ResetPeak)
	}
	return err
}

func (p process) timeOffsets(_ vfs.Caller, b *bytes.Buffer) error {
	fmt.Fprintf(b, "%-10s %10d %9d\n%-10s %10d %9d\n", "monotonic", 0, 0, "boottime", 0, 0)
	return nil
}

func (p process) autogroup(_ vfs.Caller, b *bytes.Buffer) error {
	fmt.Fprintf(b, "/autogroup-%d nice 0\n", max(p.tg.SID(p.in.ns), 0))
	return nil
}

func (p process) setAutogroup(_ vfs.Caller, s string) error {
	_, err := numberIn(s[:min(len(s), maxNumber)], 0, -20, 19)
	return err
}

func (p process) ksmPages(_ vfs.Caller, b *bytes.Buffer) error {
	b.WriteString("0\n")
	return nil
}

func (p process) ksmStat(_ vfs.Caller, b *bytes.Buffer) error {
	b.WriteString("ksm_rmap_items 0\nksm_zero_pages 0\nksm_merging_pages 0\nksm_process_profit 0\nksm_merge_any: no\nksm_mergeable: no\n")
	return nil
}

// sched has those lines of proc_sched_show_task that mean something here.
func (p process) sched(_ vfs.Caller, b *bytes.Buffer) error {
	t := p.lead()
	if t == nil {
		return nil
	}
	user, sys := t.CPUTime()
	slept, preempted := t.Switches()
	policy, rt := t.Scheduler()
	prio := 120 + int64(t.Nice())
	if rt > 0 {
		prio = 99 - int64(rt)
	}
	fmt.Fprintf(b, "%s (%d, #threads: %d)\n%s\n", p.name(), p.id, len(p.tg.Tasks()), strings.Repeat("-", 67))
	ms := func(name string, ns int64) { fmt.Fprintf(b, "%-45s:%14d.%06d\n", name, ns/1e6, ns%1e6) }
	ms("se.exec_start", p.in.k.Clock().Monotonic())
	ms("se.vruntime", user+sys)
	ms("se.sum_exec_runtime", user+sys)
	for _, l := range []struct {
		name string
		n    int64
	}{
		{"se.nr_migrations", 0}, {"nr_switches", slept + preempted}, {"nr_voluntary_switches", slept},
		{"nr_involuntary_switches", preempted}, {"se.load.weight", 1048576}, {"policy", int64(policy)}, {"prio", prio},
	} {
		fmt.Fprintf(b, "%-45s:%21d\n", l.name, l.n)
	}
	return nil
}
