package cgroup

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"runsc/sentry/fs/pseudo"
	"runsc/sentry/kernel"
	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// Options are the settings of a mount.
type Options struct {
	Container *kernel.Container
	// CPUQuota and CPUPeriod are the container's CPU limit in us; a quota of
	// 0 or less is none.
	CPUQuota, CPUPeriod int64
	Source              string
	MountOptions        string
}

// instance is one cgroup2 mount.
type instance struct{ o Options }

// New returns the file system.
func New(o Options) *pseudo.FS {
	if o.CPUPeriod <= 0 {
		o.CPUPeriod = 100000
	}
	return pseudo.New(pseudo.Options{
		Type: "cgroup2", Magic: unix.CGROUP2_SUPER_MAGIC, Source: o.Source, MountOptions: o.MountOptions,
		Root:        pseudo.TableDir[*instance]{Owner: &instance{o}, Table: files},
		CreateError: unix.EACCES, MkdirError: unix.EACCES,
	})
}

const pressure = "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"

var files = pseudo.Table[*instance]{
	file("cgroup.controllers", text("cpuset cpu io memory pids\n")),
	file("cgroup.events", text("populated 1\nfrozen 0\n")),
	knob("cgroup.freeze", text("0\n"), refuse),
	knob("cgroup.kill", nil, refuse),
	knob("cgroup.max.depth", text("max\n"), refuse),
	knob("cgroup.max.descendants", text("max\n"), refuse),
	knob("cgroup.pressure", text("1\n"), refuse),
	knob("cgroup.procs", (*instance).procs, (*instance).join),
	file("cgroup.stat", text("nr_descendants 0\nnr_dying_descendants 0\n")),
	knob("cgroup.subtree_control", text("\n"), (*instance).delegate),
	knob("cgroup.threads", (*instance).threads, (*instance).join),
	knob("cgroup.type", text("domain\n"), refuse),
	knob("cpu.idle", text("0\n"), refuse),
	knob("cpu.max", (*instance).cpuMax, refuse),
	knob("cpu.max.burst", text("0\n"), refuse),
	knob("cpu.pressure", text(pressure), refuse),
	file("cpu.stat", (*instance).cpuStat),
	file("cpu.stat.local", text("throttled_usec 0\n")),
	knob("cpu.weight", text("100\n"), refuse),
	knob("cpu.weight.nice", text("0\n"), refuse),
	knob("cpuset.cpus", text("\n"), refuse),
	file("cpuset.cpus.effective", (*instance).cpus),
	knob("cpuset.cpus.partition", text("member\n"), refuse),
	knob("cpuset.mems", text("\n"), refuse),
	file("cpuset.mems.effective", text("0\n")),
	knob("io.max", text(""), refuse),
	knob("io.pressure", text(pressure), refuse),
	file("io.stat", text("")),
	knob("io.weight", text("default 100\n"), refuse),
	file("memory.current", (*instance).memoryCurrent),
	file("memory.events", (*instance).memoryEvents),
	file("memory.events.local", (*instance).memoryEvents),
	knob("memory.high", text("max\n"), refuse),
	knob("memory.low", text("0\n"), refuse),
	knob("memory.max", (*instance).memoryMax, refuse),
	knob("memory.min", text("0\n"), refuse),
	file("memory.numa_stat", (*instance).memoryNUMA),
	knob("memory.oom.group", text("0\n"), refuse),
	knob("memory.peak", (*instance).memoryPeak, refuse),
	knob("memory.pressure", text(pressure), refuse),
	knob("memory.reclaim", nil, refuse),
	file("memory.stat", (*instance).memoryStat),
	file("memory.swap.current", text("0\n")),
	file("memory.swap.events", text("high 0\nmax 0\nfail 0\n")),
	knob("memory.swap.high", text("max\n"), refuse),
	knob("memory.swap.max", text("0\n"), refuse),
	knob("memory.swap.peak", text("0\n"), refuse),
	file("pids.current", (*instance).pidsCurrent),
	file("pids.events", (*instance).pidsEvents),
	knob("pids.max", (*instance).pidsMax, refuse),
}

type generator = func(*instance, vfs.Caller, *bytes.Buffer) error

// knob is a file that Linux lets be written to; without a generator it cannot
// be read.
func knob(name string, gen generator, set func(*instance, vfs.Caller, string) error) pseudo.Entry[*instance] {
	return pseudo.Entry[*instance]{Name: name, Type: unix.DT_REG, Make: func(in *instance) pseudo.Node {
		put := func(c vfs.Caller, data []byte) (int, error) {
			if err := set(in, c, strings.TrimSpace(string(data))); err != nil {
				return 0, err
			}
			return len(data), nil
		}
		if gen == nil {
			none := func(vfs.Caller, *bytes.Buffer) error { return unix.EINVAL }
			return pseudo.Knob{File: pseudo.File{Perm: 0o200, Gen: none}, Set: put}
		}
		read := func(c vfs.Caller, b *bytes.Buffer) error { return gen(in, c, b) }
		return pseudo.Knob{File: pseudo.File{Perm: 0o644, Gen: read}, Set: put}
	}}
}

// refuse: limits are the specification's, not the guest's.
func refuse(*instance, vfs.Caller, string) error { return unix.EACCES }

// join moves a process into the cgroup, where those of the container are
// already (cgroup_procs_write): EINVAL, ESRCH.
func (in *instance) join(c vfs.Caller, s string) error {
	id, err := strconv.ParseInt(s, 10, 32)
	switch {
	case err != nil || id < 0:
		return unix.EINVAL
	case id == 0:
		return nil
	}
	t := in.namespace(c).Task(int32(id))
	if t == nil {
		return unix.ESRCH
	}
	if t.Container() != in.o.Container {
		return unix.EACCES
	}
	return nil
}

// delegate refuses controllers for children, as of any cgroup with processes
// in it (cgroup_subtree_control_write).
func (in *instance) delegate(_ vfs.Caller, s string) error {
	add := false
	for _, f := range strings.Fields(s) {
		if f[0] != '+' && f[0] != '-' {
			return unix.EINVAL
		}
		switch f[1:] {
		case "cpuset", "cpu", "io", "memory", "pids":
		default:
			return unix.EINVAL
		}
		add = add || f[0] == '+'
	}
	if add {
		return unix.EBUSY
	}
	return nil
}

func file(name string, gen generator) pseudo.Entry[*instance] {
	return pseudo.Entry[*instance]{Name: name, Type: unix.DT_REG, Make: func(in *instance) pseudo.Node {
		return pseudo.File{Perm: 0o444, Gen: func(c vfs.Caller, b *bytes.Buffer) error { return gen(in, c, b) }}
	}}
}

func text(s string) generator {
	return func(_ *instance, _ vfs.Caller, b *bytes.Buffer) error {
		b.WriteString(s)
		return nil
	}
}

// number writes a limit, "max" for none.
func number(b *bytes.Buffer, n uint64, none bool) error {
	if none {
		b.WriteString("max\n")
		return nil
	}
	b.WriteString(strconv.FormatUint(n, 10) + "\n")
	return nil
}

// procs has the numbers in the reader's pid namespace.
func (in *instance) procs(c vfs.Caller, b *bytes.Buffer) error {
	ns := in.namespace(c)
	for _, tg := range in.o.Container.Processes() {
		if id := tg.ID(ns); id != 0 {
			fmt.Fprintf(b, "%d\n", id)
		}
	}
	return nil
}

func (in *instance) threads(c vfs.Caller, b *bytes.Buffer) error {
	ns := in.namespace(c)
	for _, tg := range in.o.Container.Processes() {
		for _, t := range tg.Tasks() {
			if id := t.TIDIn(ns); id != 0 {
				fmt.Fprintf(b, "%d\n", id)
			}
		}
	}
	return nil
}

func (in *instance) namespace(c vfs.Caller) *kernel.PIDNamespace {
	if t, ok := c.(*kernel.Task); ok {
		return t.PIDNamespace()
	}
	return in.o.Container.PIDNamespace()
}

func (in *instance) cpuMax(_ vfs.Caller, b *bytes.Buffer) error {
	if in.o.CPUQuota <= 0 {
		fmt.Fprintf(b, "max %d\n", in.o.CPUPeriod)
		return nil
	}
	fmt.Fprintf(b, "%d %d\n", in.o.CPUQuota, in.o.CPUPeriod)
	return nil
}

func (in *instance) cpuStat(_ vfs.Caller, b *bytes.Buffer) error {
	var user, sys int64
	for _, tg := range in.o.Container.Processes() {
		u, s := tg.CPUTime()
		user, sys = user+u, sys+s
	}
	if init := in.o.Container.InitProcess(); init != nil {
		u, s := init.ChildCPUTime()
		user, sys = user+u, sys+s
	}
	fmt.Fprintf(b, "usage_usec %d\nuser_usec %d\nsystem_usec %d\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\nnr_bursts 0\nburst_usec 0\n",
		(user+sys)/1000, user/1000, sys/1000)
	return nil
}

func (in *instance) cpus(_ vfs.Caller, b *bytes.Buffer) error {
	if n := in.o.Container.Kernel().NumCPUs(); n > 1 {
		fmt.Fprintf(b, "0-%d\n", n-1)
		return nil
	}
	b.WriteString("0\n")
	return nil
}

func (in *instance) memoryCurrent(_ vfs.Caller, b *bytes.Buffer) error {
	return number(b, in.o.Container.Account().Total(), false)
}

func (in *instance) memoryPeak(_ vfs.Caller, b *bytes.Buffer) error {
	return number(b, in.o.Container.Account().Peak(), false)
}

func (in *instance) memoryMax(_ vfs.Caller, b *bytes.Buffer) error {
	l := in.o.Container.Account().Limit()
	return number(b, l, l == 0)
}

func (in *instance) memoryEvents(_ vfs.Caller, b *bytes.Buffer) error {
	kills := in.o.Container.OOMKills()
	fmt.Fprintf(b, "low 0\nhigh 0\nmax %d\noom %d\noom_kill %d\noom_group_kill 0\n", in.o.Container.Account().Failures(), kills, kills)
	return nil
}

func (in *instance) memoryStat(_ vfs.Caller, b *bytes.Buffer) error {
	a := in.o.Container.Account()
	anon, shmem, cache := a.Used(mem.Anonymous), a.Used(mem.Tmpfs), a.Used(mem.PageCache)
	var minor, major int64
	for _, tg := range in.o.Container.Processes() {
		mi, ma := tg.Faults()
		minor, major = minor+mi, major+ma
	}
	fmt.Fprintf(b, "anon %d\nfile %d\nkernel 0\nkernel_stack 0\npagetables 0\nsock 0\nvmalloc 0\nshmem %d\nfile_mapped 0\nfile_dirty 0\nfile_writeback 0\nswapcached 0\n",
		anon, cache+shmem, shmem)
	fmt.Fprintf(b, "inactive_anon %d\nactive_anon %d\ninactive_file 0\nactive_file %d\nunevictable 0\nslab_reclaimable 0\nslab_unreclaimable 0\nslab 0\npgfault %d\npgmajfault %d\n",
		shmem, anon, cache, minor+major, major)
	return nil
}

// memoryNUMA is memory.numa_stat: all is on node 0.
func (in *instance) memoryNUMA(_ vfs.Caller, b *bytes.Buffer) error {
	a := in.o.Container.Account()
	fmt.Fprintf(b, "anon N0=%d\nfile N0=%d\nkernel_stack N0=0\npagetables N0=0\nshmem N0=%d\n",
		a.Used(mem.Anonymous), a.Used(mem.PageCache)+a.Used(mem.Tmpfs), a.Used(mem.Tmpfs))
	return nil
}

func (in *instance) pidsEvents(_ vfs.Caller, b *bytes.Buffer) error {
	fmt.Fprintf(b, "max %d\n", in.o.Container.PidsFailures())
	return nil
}

func (in *instance) pidsCurrent(_ vfs.Caller, b *bytes.Buffer) error {
	return number(b, uint64(in.o.Container.NumTasks()), false)
}

func (in *instance) pidsMax(_ vfs.Caller, b *bytes.Buffer) error {
	l := in.o.Container.PidsLimit()
	return number(b, uint64(l), l <= 0)
}
