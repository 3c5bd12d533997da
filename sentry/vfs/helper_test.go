package vfs_test

import (
	"math"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"runsc/pkg/ref"
	"runsc/pkg/waitq"
	"runsc/sentry/cred"
	"runsc/sentry/errs"
	"runsc/sentry/fs/tmpfs"
	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// task is a vfs.Caller for tests. Sending on sig interrupts Block.
type task struct {
	cr     *cred.Creds
	waiter *waitq.Waiter
	limits map[int]uint64
	sig    chan struct{}
	tgid   int32
}

func newTask(uid uint32) *task {
	t := &task{waiter: waitq.NewWaiter(), limits: map[int]uint64{unix.RLIMIT_NOFILE: 1024}, sig: make(chan struct{}, 1), tgid: 1}
	if uid == 0 {
		t.cr = cred.Root()
	} else {
		t.cr = &cred.Creds{UID: uid, EUID: uid, SUID: uid, FSUID: uid, GID: uid, EGID: uid, SGID: uid, FSGID: uid}
	}
	return t
}

func (t *task) Cred() *cred.Creds     { return t.cr }
func (t *task) Waiter() *waitq.Waiter { return t.waiter }
func (t *task) RealTime() int64       { return time.Now().UnixNano() }
func (t *task) TGID() int32           { return t.tgid }

func (t *task) Rlimit(r int) uint64 {
	if n, ok := t.limits[r]; ok {
		return n
	}
	return math.MaxUint64
}

func (t *task) Block(w *waitq.Waiter, _ int64) error {
	select {
	case <-w.C:
		return nil
	case <-t.sig:
		return errs.ERESTARTSYS
	}
}

// env is a namespace over a tmpfs, and a caller with its context.
type env struct {
	t  *testing.T
	c  *task
	ns *vfs.Namespace
	fs *vfs.FSContext
	mf *mem.File
}

func newEnv(t *testing.T) *env {
	t.Helper()
	before := ref.Snapshot()
	mf, err := mem.New()
	if err != nil {
		t.Fatal(err)
	}
	c := newTask(0)
	ns := vfs.NewNamespace(tmpfs.New(c, tmpfs.Config{Memory: mf, Mode: 0o755}), 0)
	root := ns.Root()
	fs := vfs.NewFSContext(root, root, 0o022)
	root.DecRef()
	t.Cleanup(func() {
		fs.DecRef()
		ns.DecRef()
		vfs.DropCaches()
		mf.Close()
		if l := ref.Leaks(before); l != "" {
			t.Errorf("left over: %s", l)
		}
	})
	return &env{t, c, ns, fs, mf}
}

func (e *env) at(name string) vfs.At { return vfs.At{FS: e.fs, Name: name} }

func (e *env) mkdir(name string, mode uint32) {
	e.t.Helper()
	if err := vfs.MkdirAt(e.c, e.at(name), mode); err != nil {
		e.t.Fatalf("mkdir %s: %v", name, err)
	}
}

func (e *env) open(name string, flags uint32) *vfs.File {
	e.t.Helper()
	f, err := vfs.OpenAt(e.c, e.at(name), flags, 0o644)
	if err != nil {
		e.t.Fatalf("open %s: %v", name, err)
	}
	return f
}

func (e *env) write(name, data string) {
	e.t.Helper()
	f := e.open(name, unix.O_CREAT|unix.O_WRONLY|unix.O_TRUNC)
	defer f.DecRef()
	b := mem.KernelBuf([]byte(data))
	if n, err := f.Write(e.c, &b); n != len(data) || err != nil {
		e.t.Fatalf("write %s: %d, %v", name, n, err)
	}
}

func (e *env) read(name string) string {
	e.t.Helper()
	f := e.open(name, unix.O_RDONLY)
	defer f.DecRef()
	return e.readFile(f)
}

func (e *env) readFile(f *vfs.File) string {
	e.t.Helper()
	p := make([]byte, 1<<16)
	b := mem.KernelBuf(p)
	n, err := f.Read(e.c, &b)
	if err != nil {
		e.t.Fatalf("read: %v", err)
	}
	return string(p[:n])
}

func (e *env) symlink(target, name string) {
	e.t.Helper()
	if err := vfs.SymlinkAt(e.c, target, e.at(name)); err != nil {
		e.t.Fatalf("symlink %s: %v", name, err)
	}
}

func (e *env) list(name string) []string {
	e.t.Helper()
	f := e.open(name, unix.O_RDONLY|unix.O_DIRECTORY)
	defer f.DecRef()
	var names []string
	if err := f.ReadDir(e.c, func(d vfs.Dirent) bool {
		if d.Name != "." && d.Name != ".." {
			names = append(names, d.Name)
		}
		return true
	}); err != nil {
		e.t.Fatalf("readdir %s: %v", name, err)
	}
	return names
}

func (e *env) stat(name string) vfs.Stat {
	e.t.Helper()
	at := e.at(name)
	at.Flags = vfs.NoFollow
	st, err := vfs.StatAt(e.c, at, unix.STATX_BASIC_STATS)
	if err != nil {
		e.t.Fatalf("stat %s: %v", name, err)
	}
	return st
}

func (e *env) mount(name string, flags vfs.MountFlags) {
	e.t.Helper()
	if err := vfs.MountAt(e.c, e.at(name), tmpfs.New(e.c, tmpfs.Config{Memory: e.mf}), flags); err != nil {
		e.t.Fatalf("mount %s: %v", name, err)
	}
}
