package proc

import (
	"bytes"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"runsc/pkg/abi/linux"
	"runsc/sentry/fs/pseudo"
	"runsc/sentry/kernel"
	"runsc/sentry/vfs"
)

// root is the root directory: fixed names, then processes.
type root struct{ in *instance }

// rootTable has the fixed names in the order of getdents.
var rootTable pseudo.Table[*instance]

func init() { // breaks the initialization cycle of table and nodes
	rootTable = pseudo.Table[*instance]{
		{Name: "self", Type: unix.DT_LNK, Make: func(in *instance) pseudo.Node { return pseudo.Symlink{Target: in.self} }},
		{Name: "thread-self", Type: unix.DT_LNK, Make: func(in *instance) pseudo.Node { return pseudo.Symlink{Target: in.threadSelf} }},
		file("buddyinfo", 0o444, (*instance).buddyinfo),
		dir("bus", nil),
		file("cgroups", 0o444, text("#subsys_name\thierarchy\tnum_cgroups\tenabled\n")),
		file("cmdline", 0o444, text("\n")),
		file("consoles", 0o444, text("")),
		file("cpuinfo", 0o444, (*instance).cpuinfo),
		file("crypto", 0o444, text("")),
		file("devices", 0o444, text(devices)),
		file("diskstats", 0o444, text("")),
		dir("driver", nil),
		file("execdomains", 0o444, text("0-0\tLinux           \t[kernel]\n")),
		file("filesystems", 0o444, (*instance).filesystems),
		dir("fs", nil),
		file("interrupts", 0o444, (*instance).interrupts),
		file("iomem", 0o400, text("")),
		file("ioports", 0o400, text("")),
		dir("irq", pseudo.Table[*instance]{file("default_smp_affinity", 0o644, text("1\n"))}),
		file("kallsyms", 0o444, text("")),
		file("key-users", 0o444, text("    0:     0 0/0 0/1000000 0/25000000\n")),
		file("keys", 0o444, text("")),
		{Name: "kmsg", Type: unix.DT_REG, Make: func(*instance) pseudo.Node { return noLog{} }},
		file("loadavg", 0o444, (*instance).loadavg),
		file("locks", 0o444, (*instance).locks),
		file("meminfo", 0o444, (*instance).meminfo),
		file("misc", 0o444, text("229 fuse\n")),
		file("modules", 0o444, text("")),
		{Name: "mounts", Type: unix.DT_LNK, Make: linkTo("self/mounts")},
		{Name: "net", Type: unix.DT_LNK, Make: linkTo("self/net")},
		file("partitions", 0o444, text("major minor  #blocks  name\n\n")),
		dir("pressure", pseudo.Table[*instance]{
			file("cpu", 0o444, text(pressure)), file("io", 0o444, text(pressure)), file("memory", 0o444, text(pressure)),
		}),
		file("slabinfo", 0o400, text("slabinfo - version: 2.1\n")),
		file("softirqs", 0o444, (*instance).softirqs),
		file("stat", 0o444, (*instance).stat),
		file("swaps", 0o444, text("Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n")),
		{Name: "sys", Type: unix.DT_DIR, Make: func(in *instance) pseudo.Node {
			return pseudo.TreeDir[*instance]{Owner: in, Tree: sysctlTree, OneLink: true}
		}},
		dir("sysvipc", pseudo.Table[*instance]{
			file("msg", 0o444, (*instance).sysvMsg), file("sem", 0o444, (*instance).sysvSem), file("shm", 0o444, (*instance).sysvShm),
		}),
		dir("tty", pseudo.Table[*instance]{file("drivers", 0o444, text(ttyDrivers))}),
		file("uptime", 0o444, (*instance).uptime),
		file("version", 0o444, (*instance).version),
		file("vmallocinfo", 0o400, text("")),
		file("vmstat", 0o444, (*instance).vmstat),
		file("zoneinfo", 0o444, text("")),
	}
}

// pidPosition is the position of pid 0 in the root's getdents order: well
// above the fixed names, as FIRST_PROCESS_ENTRY.
const pidPosition = 256

// file returns a table row for a generated file.
func file(name string, perm uint32, gen func(*instance, vfs.Caller, *bytes.Buffer) error) pseudo.Entry[*instance] {
	return pseudo.Entry[*instance]{Name: name, Type: unix.DT_REG, Make: func(in *instance) pseudo.Node {
		return pseudo.File{Perm: perm, Gen: func(c vfs.Caller, b *bytes.Buffer) error { return gen(in, c, b) }}
	}}
}

// dir returns a table row for a directory.
func dir(name string, t pseudo.Table[*instance]) pseudo.Entry[*instance] {
	return pseudo.Entry[*instance]{Name: name, Type: unix.DT_DIR, Make: func(in *instance) pseudo.Node {
		return pseudo.TableDir[*instance]{Owner: in, Table: t}
	}}
}

func linkTo(target string) func(*instance) pseudo.Node {
	return func(*instance) pseudo.Node {
		return pseudo.Symlink{Target: func(vfs.Caller) (string, error) { return target, nil }}
	}
}

func text(s string) func(*instance, vfs.Caller, *bytes.Buffer) error {
	return func(_ *instance, _ vfs.Caller, b *bytes.Buffer) error {
		b.WriteString(s)
		return nil
	}
}

// Info implements pseudo.Node.
func (r root) Info(vfs.Caller) (pseudo.Info, error) {
	n := uint32(2) + rootTable.Dirs()
	return pseudo.Info{Mode: unix.S_IFDIR | 0o555, Nlink: n + uint32(len(r.in.ns.ThreadGroups()))}, nil
}

// Lookup implements pseudo.Dir.
func (r root) Lookup(c vfs.Caller, name string) (pseudo.Node, error) {
	in := r.in
	if pid, ok := parseID(name); ok {
		p, ok := in.process(pid)
		if !ok || in.hidepid >= hideInvisible && !in.mayList(c, p) {
			return nil, unix.ENOENT
		}
		return processDir{p}, nil
	}
	if in.onlyPids && name != "self" && name != "thread-self" {
		return nil, unix.ENOENT
	}
	return rootTable.Lookup(in, name)
}

// Each implements pseudo.Dir.
func (r root) Each(c vfs.Caller, pos int64, emit func(string, uint8, int64) bool) error {
	in := r.in
	fixed := rootTable
	if in.onlyPids {
		fixed = rootTable[:2]
	}
	if pos < pidPosition && !fixed.Each(pos, emit) {
		return nil
	}
	for _, tg := range in.ns.ThreadGroups() {
		pid := int64(tg.ID(in.ns))
		at := pidPosition + pid
		if pid <= 0 || at <= pos {
			continue
		}
		if in.hidepid >= hideInvisible {
			if p, ok := in.process(int32(pid)); !ok || !in.mayList(c, p) {
				continue
			}
		}
		if !emit(strconv.FormatInt(pid, 10), unix.DT_DIR, at) {
			return nil
		}
	}
	return nil
}

// parseID reads a process id as name_to_int does: no signs, no leading zeros.
func parseID(name string) (int32, bool) {
	if name == "" || name[0] < '1' || name[0] > '9' {
		return 0, false
	}
	n, err := strconv.ParseInt(name, 10, 32)
	return int32(n), err == nil
}

// self is the text of /proc/self.
func (in *instance) self(c vfs.Caller) (string, error) {
	t, ok := c.(*kernel.Task)
	if ok {
		if id := t.ThreadGroup().ID(in.ns); id != 0 {
			return strconv.Itoa(int(id)), nil
		}
	}
	return "", unix.ENOENT
}

// threadSelf is the text of /proc/thread-self.
func (in *instance) threadSelf(c vfs.Caller) (string, error) {
	pid, err := in.self(c)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s/task/%d", pid, c.(*kernel.Task).TIDIn(in.ns)), nil
}

func (in *instance) version(_ vfs.Caller, b *bytes.Buffer) error {
	fmt.Fprintf(b, "%s version %s (runsc@sandbox) (go) %s\n", linux.Sysname, linux.Release, linux.Version)
	return nil
}

func (in *instance) filesystems(_ vfs.Caller, b *bytes.Buffer) error {
	for _, t := range vfs.FSTypes() {
		if t.NoDev {
			b.WriteString("nodev")
		}
		b.WriteString("\t" + t.Name + "\n")
	}
	return nil
}

func (in *instance) locks(_ vfs.Caller, b *bytes.Buffer) error {
	for i, l := range vfs.Locks() {
		kind, mode, end := "POSIX ", "READ ", "EOF"
		switch {
		case l.Flock:
			kind = "FLOCK "
		case l.OFD:
			kind = "OFDLCK"
		}
		if l.Exclusive {
			mode = "WRITE"
		}
		if l.End != 1<<63-1 {
			end = strconv.FormatInt(l.End, 10)
		}
		fmt.Fprintf(b, "%d: %s ADVISORY  %s %d %02x:%02x:%d %d %s\n", i+1, kind, mode, l.PID,
			unix.Major(l.Dev), unix.Minor(l.Dev), l.Ino, l.Start, end)
	}
	return nil
}

const devices = `Character devices:
  1 mem
  5 /dev/tty
  5 /dev/console
  5 /dev/ptmx
 10 misc
128 ptm
136 pts

Block devices:
`

const pressure = `some avg10=0.00 avg60=0.00 avg300=0.00 total=0
full avg10=0.00 avg60=0.00 avg300=0.00 total=0
`

const ttyDrivers = `/dev/tty             /dev/tty        5       0 system:/dev/tty
/dev/console         /dev/console    5       1 system:console
/dev/ptmx            /dev/ptmx       5       2 system
pty_slave            /dev/pts      136 0-1048575 pty:slave
pty_master           /dev/ptm      128 0-1048575 pty:master
`
