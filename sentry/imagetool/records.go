package imagetool

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"

	"runsc/pkg/imagefmt"
	"runsc/sentry/image"
)

// state is what the records of an image say.
type state struct {
	// Records counts them by the name of their kind.
	Records   map[string]int `json:"records"`
	Processes []process      `json:"processes"`
	Mounts    []mount        `json:"mounts"`
	Sockets   []socket       `json:"sockets,omitempty"`
}

// process is a process, parents before their children.
type process struct {
	Container string `json:"container"`
	PID       int32  `json:"pid"`
	Parent    int32  `json:"parent"`
	Depth     int    `json:"-"`
	Comm      string `json:"comm"`
	State     string `json:"state"`
	Threads   int    `json:"threads"`
	Memory    uint64 `json:"memory"` // bytes of private pages that are its own or shared by copy-on-write
	Mapped    uint64 `json:"mapped"` // bytes of address space
	Cwd       string `json:"cwd"`
	Files     []file `json:"files"`
}

// file is an open descriptor.
type file struct {
	FD     int32  `json:"fd"`
	Name   string `json:"name"`
	Offset int64  `json:"offset,omitempty"`
}

type mount struct {
	Point string `json:"point"`
	Kind  string `json:"kind"`
}

type socket struct {
	ID       image.ID `json:"id"`
	State    uint8    `json:"state"`
	Name     string   `json:"name,omitempty"`
	Messages int      `json:"messages"`
}

// kindNames are the kinds that this version knows.
var kindNames = map[image.Kind]string{
	image.KindMeta: "Meta", image.KindContainer: "Container", image.KindPIDNamespace: "PIDNamespace", image.KindPID: "PID",
	image.KindThreadGroup: "ThreadGroup", image.KindTask: "Task", image.KindSigHandlers: "SigHandlers", image.KindSession: "Session",
	image.KindProcessGroup: "ProcessGroup", image.KindUTS: "UTS", image.KindIPC: "IPC", image.KindSysV: "SysV", image.KindSysVSet: "SysVSet", image.KindSysVMsgQueue: "SysVMsgQueue", image.KindFutexes: "Futexes",
	image.KindPIDFD: "PIDFD", image.KindCreds: "Creds", image.KindSeccomp: "Seccomp", image.KindFilter: "Filter",
	image.KindMM: "MM", image.KindShm: "Shm", image.KindFrames: "Frames", image.KindPageRuns: "PageRuns",
	image.KindFDTable: "FDTable", image.KindFSContext: "FSContext", image.KindMountNamespace: "MountNamespace", image.KindMount: "Mount",
	image.KindSuperblock: "Superblock", image.KindDentry: "Dentry", image.KindFile: "File", image.KindLocks: "Locks",
	image.KindAnonInode: "AnonInode", image.KindFileData: "FileData", image.KindTmpfs: "Tmpfs", image.KindTmpfsInode: "TmpfsInode",
	image.KindTmpfsFile: "TmpfsFile", image.KindOverlay: "Overlay", image.KindOverlayInode: "OverlayInode", image.KindOverlayDir: "OverlayDir",
	image.KindGofer: "Gofer", image.KindGoferInode: "GoferInode", image.KindPseudo: "Pseudo", image.KindErofs: "Erofs", image.KindErofsInode: "ErofsInode",
	image.KindFuse: "Fuse", image.KindFuseInode: "FuseInode",
	image.KindFuseConn: "FuseConn", image.KindFuseDevice: "FuseDevice", image.KindFuseFile: "FuseFile", image.KindPipe: "Pipe",
	image.KindPipeEnd: "PipeEnd", image.KindPipeInode: "PipeInode", image.KindEventfd: "Eventfd", image.KindEpoll: "Epoll",
	image.KindTimerfd: "Timerfd", image.KindSignalfd: "Signalfd", image.KindInotify: "Inotify", image.KindHostStream: "HostStream",
	image.KindHostOps: "HostOps", image.KindUnixSocket: "UnixSocket",
}

func kindName(k image.Kind) string {
	if n, ok := kindNames[k]; ok {
		return n
	}
	return fmt.Sprintf("kind %d", k)
}

// readState reads kernel.img. It wants the records to decode, and shows what refers to nothing as it is.
func readState(o *imagefmt.Opened) (*state, error) {
	data, err := io.ReadAll(io.LimitReader(o.State[0], o.Manifest.Files[imagefmt.KernelFile].Size+1))
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", imagefmt.KernelFile, err)
	}
	st := &state{Records: map[string]int{}}
	r, err := image.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	for {
		rec, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		st.Records[kindName(rec.Kind)]++
	}
	if r, err = image.NewReader(bytes.NewReader(data)); err != nil {
		return nil, err
	}
	x, err := image.LoadRecords(r, func(image.Kind) bool { return true })
	if err != nil {
		return nil, err
	}
	return st, st.read(&tree{Restorer: x, seen: map[image.ID]bool{}})
}

// tree looks up records; those that lack are zero.
type tree struct {
	*image.Restorer
	children map[image.ID][]image.ID // groups by parent
	seen     map[image.ID]bool       // groups and page runs that were read: a hostile image may have circles
	err      error                   // the first record that does not decode
}

// get decodes a record if it is there.
func get[T any](t *tree, kind image.Kind, id image.ID) (rec T) {
	if t.Has(kind, id) {
		if err := t.Get(kind, id, &rec); err != nil && t.err == nil {
			t.err = err
		}
	}
	return rec
}

func (st *state) read(t *tree) error {
	for _, id := range t.IDs(image.KindContainer) {
		c := get[image.Container](t, image.KindContainer, id)
		t.children = map[image.ID][]image.ID{}
		of := map[image.ID]bool{}
		for _, g := range c.Groups {
			of[g] = true
		}
		var roots []image.ID
		for _, g := range c.Groups {
			if p := get[image.ThreadGroup](t, image.KindThreadGroup, g).Parent; of[p] && p != g {
				t.children[p] = append(t.children[p], g)
			} else {
				roots = append(roots, g)
			}
		}
		for _, g := range roots {
			st.process(t, c.Name, g, 0, 0)
		}
	}
	for _, id := range t.IDs(image.KindMount) {
		m := get[image.Mount](t, image.KindMount, id)
		fs := get[image.Superblock](t, image.KindSuperblock, m.Superblock).FS
		kind := kindName(fs.Kind)
		if fs.Kind == image.KindPseudo {
			kind = get[image.Pseudo](t, image.KindPseudo, fs.ID).Type
		}
		st.Mounts = append(st.Mounts, mount{Point: t.path(image.Path{Mount: m.Parent, Names: m.Point.Names}), Kind: kind})
	}
	for _, id := range t.IDs(image.KindUnixSocket) {
		s := get[image.UnixSocket](t, image.KindUnixSocket, id)
		st.Sockets = append(st.Sockets, socket{ID: id, State: s.State, Name: s.Name + s.Path.Names, Messages: len(s.Inbox)})
	}
	return t.err
}

// process adds a process and its descendants.
func (st *state) process(t *tree, container string, id image.ID, parent int32, depth int) {
	if t.seen[id] || depth > 1000 {
		return
	}
	t.seen[id] = true
	g := get[image.ThreadGroup](t, image.KindThreadGroup, id)
	leader := get[image.Task](t, image.KindTask, g.Leader)
	p := process{Container: container, Parent: parent, Depth: depth, Comm: string(bytes.TrimRight(leader.Comm, "\x00")), Threads: len(g.Tasks), State: "running"}
	if n := get[image.PID](t, image.KindPID, g.PID).Numbers; len(n) > 0 {
		p.PID = n[0]
	}
	switch {
	case g.State == image.StateZombie:
		p.State = "zombie"
	case g.Stopped:
		p.State = "stopped"
	}
	mm := get[image.MM](t, image.KindMM, leader.MM)
	for _, v := range mm.VMAs {
		p.Mapped += v.End - v.Start
	}
	for _, r := range mm.Pages {
		p.Memory += r.Len
	}
	for _, more := range mm.MorePages {
		if t.seen[more] {
			continue
		}
		t.seen[more] = true
		for _, r := range get[image.PageRuns](t, image.KindPageRuns, more).Runs {
			p.Memory += r.Len
		}
	}
	p.Cwd = t.path(get[image.FSContext](t, image.KindFSContext, leader.FS).Cwd)
	for _, fd := range get[image.FDTable](t, image.KindFDTable, leader.Files).FDs {
		f := get[image.File](t, image.KindFile, fd.File)
		p.Files = append(p.Files, file{FD: fd.FD, Name: t.path(f.Path), Offset: f.Offset})
	}
	st.Processes = append(st.Processes, p)
	for _, c := range t.children[id] {
		st.process(t, container, c, p.PID, depth+1)
	}
}

// path is the path of a place as far as the mounts that it is on can be followed.
func (t *tree) path(p image.Path) string {
	if p.Name != "" {
		return p.Name
	}
	name := ""
	if p.Dentry != 0 {
		d := get[image.Dentry](t, image.KindDentry, p.Dentry)
		name = join(d.ParentNames, d.Name) + " (deleted)"
	} else if p.Names != "" {
		name = "/" + p.Names
	}
	for at, n := p.Mount, 0; at != 0 && n < 100; n++ {
		m := get[image.Mount](t, image.KindMount, at)
		if m.Parent != 0 && m.Point.Names != "" {
			name = "/" + m.Point.Names + name
		}
		at = m.Parent
	}
	if name == "" {
		return "/"
	}
	return name
}

func join(dir, name string) string {
	if dir == "" {
		return "/" + name
	}
	return "/" + dir + "/" + name
}

// print shows the state to people.
func (st *state) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	container := ""
	for i := range st.Processes {
		p := &st.Processes[i]
		if p.Container != container {
			container = p.Container
			fmt.Fprintf(w, "\nprocesses of %s\n", printable(container))
		}
		fmt.Fprintf(w, "%*s%d %s\t%s, %d threads, %d KiB of %d KiB mapped, in %s\n", 2+2*p.Depth, "", p.PID, printable(p.Comm), p.State, p.Threads, p.Memory/1024, p.Mapped/1024, printable(p.Cwd))
		for _, f := range p.Files {
			fmt.Fprintf(w, "%*s%d: %s\tat %d\n", 6+2*p.Depth, "", f.FD, printable(f.Name), f.Offset)
		}
	}
	fmt.Fprintf(w, "\nmounts\n")
	for _, m := range st.Mounts {
		fmt.Fprintf(w, "  %s\t%s\n", printable(m.Point), printable(m.Kind))
	}
	if len(st.Sockets) > 0 {
		fmt.Fprintf(w, "\nsockets\n")
	}
	for _, s := range st.Sockets {
		fmt.Fprintf(w, "  %d %s\tstate %d, %d messages\n", s.ID, printable(s.Name), s.State, s.Messages)
	}
	fmt.Fprintf(w, "\nrecords\n")
	for _, k := range slices.Sorted(maps.Keys(st.Records)) {
		fmt.Fprintf(w, "  %s\t%d\n", k, st.Records[k])
	}
	return w.Flush()
}
