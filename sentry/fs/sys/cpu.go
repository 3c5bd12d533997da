package sys

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"runsc/sentry/fs/pseudo"
	"runsc/sentry/vfs"
)

// cpusDir is devices/system/cpu: fixed files, then a directory for each CPU.
type cpusDir struct{ in *instance }

var cpusTable = pseudo.Table[*instance]{
	row("isolated", text("\n")),
	row("kernel_max", text("8191\n")),
	row("offline", text("\n")),
	row("online", (*instance).cpuListFile),
	row("possible", (*instance).cpuListFile),
	row("present", (*instance).cpuListFile),
	{Name: "smt", Type: unix.DT_DIR, Make: func(in *instance) pseudo.Node {
		return pseudo.TableDir[*instance]{Owner: in, Perm: 0o755, Table: pseudo.Table[*instance]{
			row("active", text("0\n")), row("control", text("notsupported\n")),
		}}
	}},
}

func row(name string, gen generator) pseudo.Entry[*instance] {
	return pseudo.Entry[*instance]{Name: name, Type: unix.DT_REG, Make: func(in *instance) pseudo.Node {
		return pseudo.File{Perm: 0o444, Gen: func(c vfs.Caller, b *bytes.Buffer) error { return gen(in, c, b) }}
	}}
}

// Info implements pseudo.Node.
func (d cpusDir) Info(vfs.Caller) (pseudo.Info, error) {
	return pseudo.Info{Mode: unix.S_IFDIR | 0o755, Nlink: 2 + cpusTable.Dirs() + uint32(d.in.o.NumCPUs)}, nil
}

// Lookup implements pseudo.Dir.
func (d cpusDir) Lookup(_ vfs.Caller, name string) (pseudo.Node, error) {
	if digits, ok := strings.CutPrefix(name, "cpu"); ok {
		n, err := strconv.Atoi(digits)
		if err == nil && n >= 0 && n < d.in.o.NumCPUs && strconv.Itoa(n) == digits {
			return pseudo.TreeDir[cpu]{Owner: cpu{d.in, n}, Tree: cpuTree, Perm: 0o755}, nil
		}
	}
	return cpusTable.Lookup(d.in, name)
}

// Each implements pseudo.Dir. CPUs come after the fixed names.
func (d cpusDir) Each(_ vfs.Caller, pos int64, emit func(string, uint8, int64) bool) error {
	fixed := int64(len(cpusTable))
	if pos < fixed && !cpusTable.Each(pos, emit) {
		return nil
	}
	for i := max(pos-fixed, 0); i < int64(d.in.o.NumCPUs); i++ {
		if !emit("cpu"+strconv.FormatInt(i, 10), unix.DT_DIR, fixed+i+1) {
			return nil
		}
	}
	return nil
}

// cpu is the owner of a CPU's directory.
type cpu struct {
	in *instance
	n  int
}

// cpuTree has the files of one CPU: a core of its own in one package.
var cpuTree = pseudo.Tree[cpu]{
	cache("index0", "coherency_line_size", "64"), cache("index0", "id", ""), cache("index0", "level", "1"),
	cache("index0", "number_of_sets", "64"), cache("index0", "shared_cpu_list", ""), cache("index0", "shared_cpu_map", ""),
	cache("index0", "size", "32K"), cache("index0", "type", "Data"), cache("index0", "ways_of_associativity", "8"),
	cache("index1", "coherency_line_size", "64"), cache("index1", "id", ""), cache("index1", "level", "1"),
	cache("index1", "number_of_sets", "64"), cache("index1", "shared_cpu_list", ""), cache("index1", "shared_cpu_map", ""),
	cache("index1", "size", "32K"), cache("index1", "type", "Instruction"), cache("index1", "ways_of_associativity", "8"),
	cache("index2", "coherency_line_size", "64"), cache("index2", "id", ""), cache("index2", "level", "2"),
	cache("index2", "number_of_sets", "2048"), cache("index2", "shared_cpu_list", ""), cache("index2", "shared_cpu_map", ""),
	cache("index2", "size", "1024K"), cache("index2", "type", "Unified"), cache("index2", "ways_of_associativity", "8"),
	l3("coherency_line_size", constant("64")), l3("id", constant("0")), l3("level", constant("3")), l3("number_of_sets", constant("32768")),
	l3("shared_cpu_list", cpu.all), l3("shared_cpu_map", cpu.allMap), l3("size", constant("32768K")), l3("type", constant("Unified")),
	l3("ways_of_associativity", constant("16")),
	{Path: "node0", Type: unix.DT_LNK, Make: func(cpu) pseudo.Node {
		return pseudo.Symlink{Target: func(vfs.Caller) (string, error) { return "../../node/node0", nil }}
	}},
	cpuFile("online", func(cpu) string { return "1" }),
	cpuFile("topology/cluster_cpus", cpu.selfMap), cpuFile("topology/cluster_cpus_list", cpu.self),
	cpuFile("topology/cluster_id", func(cpu) string { return "-1" }),
	cpuFile("topology/core_cpus", cpu.selfMap), cpuFile("topology/core_cpus_list", cpu.self),
	cpuFile("topology/core_id", cpu.self),
	cpuFile("topology/core_siblings", cpu.allMap), cpuFile("topology/core_siblings_list", cpu.all),
	cpuFile("topology/die_cpus", cpu.allMap), cpuFile("topology/die_cpus_list", cpu.all),
	cpuFile("topology/die_id", func(cpu) string { return "0" }),
	cpuFile("topology/package_cpus", cpu.allMap), cpuFile("topology/package_cpus_list", cpu.all),
	cpuFile("topology/physical_package_id", func(cpu) string { return "0" }),
	cpuFile("topology/thread_siblings", cpu.selfMap), cpuFile("topology/thread_siblings_list", cpu.self),
}

func (c cpu) self() string    { return strconv.Itoa(c.n) }
func (c cpu) selfMap() string { return cpuMap(c.in.o.NumCPUs, func(i int) bool { return i == c.n }) }
func (c cpu) all() string     { return cpuList(c.in.o.NumCPUs) }
func (c cpu) allMap() string  { return cpuMap(c.in.o.NumCPUs, func(int) bool { return true }) }

// l3 returns a file of the cache that all CPUs share.
func l3(name string, value func(cpu) string) pseudo.TreeEntry[cpu] {
	return cpuFile("cache/index3/"+name, value)
}

func constant(s string) func(cpu) string { return func(cpu) string { return s } }

func cpuFile(path string, value func(cpu) string) pseudo.TreeEntry[cpu] {
	return pseudo.TreeEntry[cpu]{Path: path, Type: unix.DT_REG, Make: func(c cpu) pseudo.Node {
		return pseudo.Text{Perm: 0o444, Content: value(c) + "\n"}
	}}
}

// cache returns a file of a cache; those that depend on the CPU have no value.
func cache(index, name, value string) pseudo.TreeEntry[cpu] {
	return cpuFile(fmt.Sprintf("cache/%s/%s", index, name), func(c cpu) string {
		switch name {
		case "id", "shared_cpu_list":
			return c.self()
		case "shared_cpu_map":
			return c.selfMap()
		}
		return value
	})
}
