package proc

import (
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/fs/pseudo"
	"runsc/sentry/kernel"
	"runsc/sentry/vfs"
)

// Inode numbers of the namespaces that every process shares (Linux's
// PROC_*_INIT_INO).
const (
	cgroupNS = 0xEFFFFFFB
	netNS    = 0xEFFFFFF8
	timeNS   = 0xEFFFFFFA
	userNS   = 0xEFFFFFFD
	firstNS  = 0xF0000000 // of the numbers that are given out
)

// namespaces has the names in /proc/PID/ns, the type in the link's text and
// the number.
var namespaces = []struct {
	name, typ string
	ino       func(p process, t *kernel.Task) uint64
}{
	{"cgroup", "cgroup", func(process, *kernel.Task) uint64 { return cgroupNS }},
	{"ipc", "ipc", func(_ process, t *kernel.Task) uint64 {
		if ns := t.IPC(); ns != nil {
			return ns.Inode()
		}
		return 0
	}},
	{"mnt", "mnt", func(_ process, t *kernel.Task) (ino uint64) {
		t.WithMountNamespace(func(ns *vfs.Namespace) { ino = firstNS + 0x8000000 + ns.ID() })
		return ino
	}},
	{"net", "net", func(process, *kernel.Task) uint64 { return netNS }},
	{"pid", "pid", pidNS}, {"pid_for_children", "pid", pidNS},
	{"time", "time", func(process, *kernel.Task) uint64 { return timeNS }},
	{"time_for_children", "time", func(process, *kernel.Task) uint64 { return timeNS }},
	{"user", "user", func(process, *kernel.Task) uint64 { return userNS }},
	{"uts", "uts", func(_ process, t *kernel.Task) uint64 {
		if ns := t.UTS(); ns != nil {
			return ns.Inode()
		}
		return 0
	}},
}

func pidNS(_ process, t *kernel.Task) uint64 { return t.PIDNamespace().Inode() }

// nsDir is /proc/PID/ns.
type nsDir struct{ process }

// Info implements pseudo.Node.
func (d nsDir) Info(vfs.Caller) (pseudo.Info, error) {
	i, err := d.info(unix.S_IFDIR | 0o511)
	i.Nlink = 2
	return i, err
}

// Lookup implements pseudo.Dir.
func (d nsDir) Lookup(c vfs.Caller, name string) (pseudo.Node, error) {
	for i := range namespaces {
		if namespaces[i].name == name {
			return nsLink{d.process, i}, nil
		}
	}
	return nil, unix.ENOENT
}

// Each implements pseudo.Dir.
func (d nsDir) Each(_ vfs.Caller, pos int64, emit func(string, uint8, int64) bool) error {
	for i := max(pos, 0); i < int64(len(namespaces)); i++ {
		if !emit(namespaces[i].name, unix.DT_LNK, i+1) {
			return nil
		}
	}
	return nil
}

// nsLink is an entry of nsDir.
type nsLink struct {
	process
	kind int
}

// Info implements pseudo.Node.
func (l nsLink) Info(vfs.Caller) (pseudo.Info, error) { return l.info(unix.S_IFLNK | 0o777) }

// number returns the namespace's inode number.
func (l nsLink) number(c vfs.Caller) (uint64, error) {
	if !l.alive() {
		return 0, unix.ENOENT
	}
	if !mayRead(c, l.process) {
		return 0, unix.EACCES
	}
	t := l.lead()
	if t == nil {
		return 0, unix.ENOENT
	}
	ino := namespaces[l.kind].ino(l.process, t)
	if ino == 0 {
		return 0, unix.ENOENT
	}
	return ino, nil
}

// Readlink implements pseudo.Link.
func (l nsLink) Readlink(c vfs.Caller) (string, error) {
	ino, err := l.number(c)
	return fmt.Sprintf("%s:[%d]", namespaces[l.kind].typ, ino), err
}

// Follow implements pseudo.Magic.
func (l nsLink) Follow(c vfs.Caller) (vfs.Path, error) {
	ino, err := l.number(c)
	if err != nil {
		return vfs.Path{}, err
	}
	i := &nsInode{ino: ino}
	i.refs.Store(1)
	return vfs.NewPseudoPath(fmt.Sprintf("%s:[%d]", namespaces[l.kind].typ, ino), i), nil
}

var nsDev = sync.OnceValue(vfs.NewAnonDev)

// nsInode is the file behind a namespace link (nsfs): it can be held and
// compared, not read.
type nsInode struct {
	ino  uint64
	refs atomic.Int64
}

// IncRef implements vfs.Inode.
func (i *nsInode) IncRef() { i.refs.Add(1) }

// DecRef implements vfs.Inode.
func (i *nsInode) DecRef() { i.refs.Add(-1) }

// Stat implements vfs.Inode.
func (i *nsInode) Stat(vfs.Caller, uint32) (vfs.Stat, error) {
	return vfs.Stat{
		Mask: unix.STATX_BASIC_STATS, Mode: unix.S_IFREG | 0o444, Ino: i.ino, Dev: nsDev(), Nlink: 1, BlockSize: pageSize,
	}, nil
}

// SetStat implements vfs.Inode.
func (i *nsInode) SetStat(vfs.Caller, *vfs.SetStat) error { return unix.EPERM }

// Open implements vfs.Inode.
func (i *nsInode) Open(vfs.Caller, *vfs.Dentry, uint32) (vfs.FileOps, error) { return nsFile{}, nil }

// nsFile is an open namespace file.
type nsFile struct{}

// Release implements vfs.FileOps.
func (nsFile) Release() {}

// Ready implements vfs.FileOps.
func (nsFile) Ready(mask waitq.Mask) waitq.Mask { return mask & (waitq.In | waitq.Out) }
