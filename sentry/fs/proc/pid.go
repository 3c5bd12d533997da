package proc

import (
	"bytes"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"runsc/sentry/fs/pseudo"
	"runsc/sentry/kernel"
	"runsc/sentry/vfs"
)

// processDir is /proc/PID, threadDir /proc/PID/task/TID.
type processDir struct{ process }

var _ kernel.ProcessDir = processDir{}

// DirProcess implements kernel.ProcessDir.
func (d processDir) DirProcess() *kernel.ThreadGroup { return d.tg }

type threadDir struct{ process }

// pidTable has the names in both; those only in one follow.
var pidTable, processTable, threadTable, attrTable pseudo.Table[process]

func init() {
	pidTable = pseudo.Table[process]{
		{Name: "fd", Type: unix.DT_DIR, Make: func(p process) pseudo.Node { return fdDir{process: p} }},
		{Name: "fdinfo", Type: unix.DT_DIR, Make: func(p process) pseudo.Node { return fdDir{process: p, info: true} }},
		{Name: "ns", Type: unix.DT_DIR, Make: func(p process) pseudo.Node { return nsDir{p} }},
		{Name: "net", Type: unix.DT_DIR, Make: func(p process) pseudo.Node { return netDir(p) }},
		{Name: "attr", Type: unix.DT_DIR, Make: func(p process) pseudo.Node {
			return pseudo.TableDir[process]{Owner: p, Table: attrTable}
		}},
		secret("environ", 0o400, process.environ),
		secret("auxv", 0o400, process.auxv),
		plain("status", 0o444, process.status),
		secret("personality", 0o400, process.personality),
		plain("limits", 0o444, process.limits),
		knob("comm", 0o644, process.comm, process.setComm),
		secret("syscall", 0o400, process.syscall),
		plain("cmdline", 0o444, process.cmdline),
		plain("stat", 0o444, process.stat),
		plain("statm", 0o444, process.statm),
		secret("maps", 0o444, process.maps),
		secret("smaps", 0o444, process.smaps),
		secret("smaps_rollup", 0o444, process.smapsRollup),
		{Name: "pagemap", Type: unix.DT_REG, Make: func(p process) pseudo.Node { return pagemap{p} }},
		secret("numa_maps", 0o444, process.numaMaps),
		knob("clear_refs", 0o200, nil, process.clearRefs),
		knob("sched", 0o644, process.sched, process.ignore),
		plain("arch_status", 0o444, process.empty),
		secret("ksm_merging_pages", 0o400, process.ksmPages),
		secret("ksm_stat", 0o400, process.ksmStat),
		{Name: "mem", Type: unix.DT_REG, Make: func(p process) pseudo.Node { return memNode{p} }},
		{Name: "cwd", Type: unix.DT_LNK, Make: func(p process) pseudo.Node { return pathLink{p, process.cwd} }},
		{Name: "root", Type: unix.DT_LNK, Make: func(p process) pseudo.Node { return pathLink{p, process.root} }},
		{Name: "exe", Type: unix.DT_LNK, Make: func(p process) pseudo.Node { return pathLink{p, process.exe} }},
		plain("mounts", 0o444, process.mounts),
		plain("mountinfo", 0o444, process.mountinfo),
		secret("mountstats", 0o400, process.mountstats),
		plain("wchan", 0o444, process.wchan),
		secret("stack", 0o400, process.empty),
		plain("schedstat", 0o444, process.schedstat),
		plain("cpuset", 0o444, process.cpuset),
		plain("cgroup", 0o444, process.cgroup),
		plain("oom_score", 0o444, process.oomScore),
		knob("oom_adj", 0o644, process.oomAdj, process.setOOMAdj),
		knob("oom_score_adj", 0o644, process.oomScoreAdj, process.setOOMScoreAdj),
		knob("loginuid", 0o644, process.loginUID, process.setLoginUID),
		plain("sessionid", 0o444, process.sessionID),
		secret("io", 0o400, process.io),
		knob("uid_map", 0o644, process.idMap, process.refuse),
		knob("gid_map", 0o644, process.idMap, process.refuse),
		knob("projid_map", 0o644, process.idMap, process.refuse),
		knob("setgroups", 0o644, process.setgroups, process.setSetgroups),
	}
	for _, name := range []string{"current", "exec", "fscreate", "keycreate", "prev", "sockcreate"} {
		perm := uint32(0o666)
		if name == "prev" {
			perm = 0o444
		}
		attrTable = append(attrTable, knob(name, perm, process.noAttr, process.setNoAttr))
	}
	processTable = pseudo.Table[process]{
		{Name: "task", Type: unix.DT_DIR, Make: func(p process) pseudo.Node { return taskDir{p} }},
		{Name: "map_files", Type: unix.DT_DIR, Make: func(p process) pseudo.Node { return mapFiles{p} }},
		knob("coredump_filter", 0o644, process.coredumpFilter, process.setCoredumpFilter),
		plain("timers", 0o444, process.empty),
		knob("timerslack_ns", 0o666, process.timerSlack, process.setTimerSlack),
		knob("timens_offsets", 0o644, process.timeOffsets, process.refuse),
		knob("autogroup", 0o644, process.autogroup, process.setAutogroup),
	}
	threadTable = pseudo.Table[process]{
		plain("children", 0o444, process.children),
	}
}

// pidFile is a generated file of a process.
type pidFile struct {
	process
	perm   uint32
	secret bool // only for who may read the process's memory
	gen    func(process, vfs.Caller, *bytes.Buffer) error
}

// pidKnob is one that can be written to.
type pidKnob struct {
	pidFile
	set func(process, vfs.Caller, string) error
}

type generator = func(process, vfs.Caller, *bytes.Buffer) error

func plain(name string, perm uint32, gen generator) pseudo.Entry[process] {
	return pseudo.Entry[process]{Name: name, Type: unix.DT_REG, Make: func(p process) pseudo.Node {
		return pidFile{process: p, perm: perm, gen: gen}
	}}
}

func secret(name string, perm uint32, gen generator) pseudo.Entry[process] {
	return pseudo.Entry[process]{Name: name, Type: unix.DT_REG, Make: func(p process) pseudo.Node {
		return pidFile{process: p, perm: perm, gen: gen, secret: true}
	}}
}

func knob(name string, perm uint32, gen generator, set func(process, vfs.Caller, string) error) pseudo.Entry[process] {
	return pseudo.Entry[process]{Name: name, Type: unix.DT_REG, Make: func(p process) pseudo.Node {
		return pidKnob{pidFile{process: p, perm: perm, gen: gen}, set}
	}}
}

// info returns the attributes of a node of p: its owner is the process's
// effective user, or root if it is not dumpable (task_dump_owner).
func (p process) info(mode uint32) (pseudo.Info, error) {
	if !p.alive() {
		return pseudo.Info{}, unix.ENOENT
	}
	i := pseudo.Info{Mode: mode}
	if mode == unix.S_IFDIR|0o555 || p.tg.Dumpable() == 1 {
		cr := p.cred()
		i.UID, i.GID = cr.EUID, cr.EGID
	}
	return i, nil
}

// Info implements pseudo.Node.
func (f pidFile) Info(vfs.Caller) (pseudo.Info, error) { return f.info(unix.S_IFREG | f.perm) }

// Read implements pseudo.Reader.
func (f pidFile) Read(c vfs.Caller, b *bytes.Buffer) error {
	if !f.alive() {
		return unix.ESRCH
	}
	if f.gen == nil {
		return unix.EINVAL // no read operation
	}
	return f.gen(f.process, c, b)
}

// Open implements pseudo.Opener: it only checks.
func (f pidFile) Open(c vfs.Caller, flags uint32) (vfs.FileOps, error) {
	switch {
	case !f.alive():
		return nil, unix.ESRCH
	case f.secret && !mayRead(c, f.process):
		return nil, unix.EACCES
	}
	return nil, nil
}

// Write implements pseudo.Writer.
func (k pidKnob) Write(c vfs.Caller, data []byte) (int, error) {
	if !k.alive() {
		return 0, unix.ESRCH
	}
	if err := k.set(k.process, c, string(data)); err != nil {
		return 0, err
	}
	return len(data), nil
}

// pathLink is a link to a place that a process holds.
type pathLink struct {
	process
	get func(process) (vfs.Path, error) // a new reference
}

// Info implements pseudo.Node.
func (l pathLink) Info(vfs.Caller) (pseudo.Info, error) { return l.info(unix.S_IFLNK | 0o777) }

// Readlink implements pseudo.Link.
func (l pathLink) Readlink(c vfs.Caller) (string, error) {
	p, err := l.Follow(c)
	if err != nil {
		return "", err
	}
	defer p.DecRef()
	return pathFor(c, p), nil
}

// Follow implements pseudo.Magic.
func (l pathLink) Follow(c vfs.Caller) (vfs.Path, error) {
	switch {
	case !l.alive():
		return vfs.Path{}, unix.ENOENT
	case !mayRead(c, l.process):
		return vfs.Path{}, unix.EACCES
	}
	return l.get(l.process)
}

// pathFor is p as the caller names it.
func pathFor(c vfs.Caller, p vfs.Path) string {
	t, ok := c.(*kernel.Task)
	if !ok || t.FS() == nil {
		return p.String(vfs.Path{})
	}
	root := t.FS().Root()
	defer root.DecRef()
	return p.String(root)
}

func (p process) cwd() (path vfs.Path, err error) {
	err = p.withFS(func(fs *vfs.FSContext) { path = fs.Cwd() })
	return path, err
}

func (p process) root() (path vfs.Path, err error) {
	err = p.withFS(func(fs *vfs.FSContext) { path = fs.Root() })
	return path, err
}

// withFS calls f with p's root and working directory: ENOENT when they are
// gone.
func (p process) withFS(f func(*vfs.FSContext)) error {
	for _, t := range p.threads() {
		if t.WithFS(f) {
			return nil
		}
	}
	return unix.ENOENT
}

// threads returns the threads to ask for what p's threads share.
func (p process) threads() []*kernel.Task {
	if p.task != nil {
		return []*kernel.Task{p.task}
	}
	return p.tg.Tasks()
}

// Info implements pseudo.Node.
func (d processDir) Info(c vfs.Caller) (pseudo.Info, error) {
	i, err := d.info(unix.S_IFDIR | 0o555)
	i.Nlink = 2 + pidTable.Dirs() + processTable.Dirs()
	return i, err
}

// Lookup implements pseudo.Dir.
func (d processDir) Lookup(c vfs.Caller, name string) (pseudo.Node, error) {
	if err := d.enter(c); err != nil {
		return nil, err
	}
	n, err := pidTable.Lookup(d.process, name)
	if err == unix.ENOENT {
		return processTable.Lookup(d.process, name)
	}
	return n, err
}

// Each implements pseudo.Dir.
func (d processDir) Each(c vfs.Caller, pos int64, emit func(string, uint8, int64) bool) error {
	if err := d.enter(c); err != nil {
		return err
	}
	both(pos, pidTable, processTable, emit)
	return nil
}

// enter checks that d is alive and that hidepid lets c in.
func (p process) enter(c vfs.Caller) error {
	if !p.alive() {
		return unix.ENOENT
	}
	if !p.in.mayList(c, p) {
		return unix.EPERM
	}
	return nil
}

// both goes through two tables as one.
func both(pos int64, a, b pseudo.Table[process], emit func(string, uint8, int64) bool) {
	n := int64(len(a))
	if pos < n && !a.Each(pos, emit) {
		return
	}
	b.Each(pos-n, func(name string, typ uint8, next int64) bool { return emit(name, typ, next+n) })
}

// Info implements pseudo.Node.
func (d threadDir) Info(c vfs.Caller) (pseudo.Info, error) {
	i, err := d.info(unix.S_IFDIR | 0o555)
	i.Nlink = 2 + pidTable.Dirs()
	return i, err
}

// Lookup implements pseudo.Dir.
func (d threadDir) Lookup(c vfs.Caller, name string) (pseudo.Node, error) {
	if err := d.enter(c); err != nil {
		return nil, err
	}
	n, err := pidTable.Lookup(d.process, name)
	if err == unix.ENOENT {
		return threadTable.Lookup(d.process, name)
	}
	return n, err
}

// Each implements pseudo.Dir.
func (d threadDir) Each(c vfs.Caller, pos int64, emit func(string, uint8, int64) bool) error {
	if err := d.enter(c); err != nil {
		return err
	}
	both(pos, pidTable, threadTable, emit)
	return nil
}

// taskDir is /proc/PID/task.
type taskDir struct{ process }

// Info implements pseudo.Node.
func (d taskDir) Info(vfs.Caller) (pseudo.Info, error) {
	i, err := d.info(unix.S_IFDIR | 0o555)
	i.Nlink = 2 + uint32(len(d.tg.Tasks()))
	return i, err
}

// Lookup implements pseudo.Dir.
func (d taskDir) Lookup(c vfs.Caller, name string) (pseudo.Node, error) {
	tid, ok := parseID(name)
	if !ok {
		return nil, unix.ENOENT
	}
	t := d.in.ns.Task(tid)
	if t == nil || t.ThreadGroup() != d.tg {
		return nil, unix.ENOENT
	}
	return threadDir{process{in: d.in, id: tid, tg: d.tg, task: t}}, nil
}

// Each implements pseudo.Dir. Positions are thread ids.
func (d taskDir) Each(c vfs.Caller, pos int64, emit func(string, uint8, int64) bool) error {
	if !d.alive() {
		return unix.ENOENT
	}
	for _, tid := range d.tids() {
		if int64(tid) > pos && !emit(strconv.Itoa(int(tid)), unix.DT_DIR, int64(tid)) {
			return nil
		}
	}
	return nil
}

func (p process) children(_ vfs.Caller, b *bytes.Buffer) error {
	for _, ch := range p.tg.Children() {
		if id := ch.ID(p.in.ns); id != 0 {
			fmt.Fprintf(b, "%d ", id)
		}
	}
	return nil
}
