package vfs_test

import (
	"fmt"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"runsc/pkg/ref"
	"runsc/sentry/vfs"
)

// fakeFS is a file system with one directory whose names and calls a test
// controls.
type fakeFS struct {
	policy vfs.CachePolicy

	mu      sync.Mutex
	names   map[string]uint64 // to the number of the inode
	lookups int
	live    int
}

func (*fakeFS) Type() string                          { return "fake" }
func (*fakeFS) Source() string                        { return "fake" }
func (*fakeFS) Options() string                       { return "" }
func (fs *fakeFS) Cache() vfs.CachePolicy             { return fs.policy }
func (*fakeFS) Sync(vfs.Caller) error                 { return nil }
func (*fakeFS) Release()                              {}
func (*fakeFS) Statfs(vfs.Caller) (vfs.Statfs, error) { return vfs.Statfs{}, nil }
func (fs *fakeFS) Root() vfs.Inode                    { return fs.inode(1) }
func (fs *fakeFS) count() (lookups, live int) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.lookups, fs.live
}
func (fs *fakeFS) set(name string, ino uint64) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.names[name] = ino
}
func (fs *fakeFS) remove(name string) { fs.mu.Lock(); defer fs.mu.Unlock(); delete(fs.names, name) }
func (fs *fakeFS) inode(ino uint64) *fakeDir {
	fs.live++
	i := &fakeDir{fs: fs, ino: ino}
	i.refs.Init()
	return i
}

type fakeDir struct {
	vfs.Dir
	fs   *fakeFS
	ino  uint64
	refs ref.Count
}

func (d *fakeDir) IncRef() { d.refs.Inc() }

func (d *fakeDir) DecRef() {
	if d.refs.Dec() {
		d.fs.mu.Lock()
		d.fs.live--
		d.fs.mu.Unlock()
	}
}

func (d *fakeDir) Stat(vfs.Caller, uint32) (vfs.Stat, error) {
	return vfs.Stat{Mode: unix.S_IFDIR | 0o755, Ino: d.ino, Nlink: 2}, nil
}

func (d *fakeDir) Lookup(_ vfs.Caller, name string) (vfs.Inode, error) {
	d.fs.mu.Lock()
	defer d.fs.mu.Unlock()
	d.fs.lookups++
	ino, ok := d.fs.names[name]
	if !ok {
		return nil, unix.ENOENT
	}
	return d.fs.inode(ino), nil
}

func (d *fakeDir) Revalidate(_ vfs.Caller, name string, child vfs.Inode) (bool, error) {
	d.fs.mu.Lock()
	defer d.fs.mu.Unlock()
	ino, ok := d.fs.names[name]
	if child == nil {
		return !ok, nil
	}
	return ok && ino == child.(*fakeDir).ino, nil
}

func TestCachePolicies(t *testing.T) {
	tests := []struct {
		name    string
		policy  vfs.CachePolicy
		lookups int // for two walks of a name and two of one that is missing
		live    int // inodes but for the root, with nothing held
		changed uint64
	}{
		{"none", vfs.CacheNone, 4, 0, 3},
		{"all", vfs.CacheAll, 2, 1, 2},
		{"revalidate", vfs.CacheRevalidate, 3, 1, 3},
		{"pinned", vfs.CachePinned, 3, 1, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := ref.Snapshot()
			c := newTask(0)
			fake := &fakeFS{policy: tt.policy, names: map[string]uint64{"a": 2}}
			ns := vfs.NewNamespace(fake, 0)
			root := ns.Root()
			ctx := vfs.NewFSContext(root, root, 0)
			root.DecRef()
			at := func(n string) vfs.At { return vfs.At{FS: ctx, Name: n} }
			for range 2 {
				if st, err := vfs.StatAt(c, at("/a"), 0); err != nil || st.Ino != 2 {
					t.Fatalf("stat: %+v, %v", st, err)
				}
				if _, err := vfs.StatAt(c, at("/missing"), 0); err != unix.ENOENT {
					t.Fatalf("stat of a missing name: %v", err)
				}
			}
			lookups, live := fake.count()
			if lookups != tt.lookups || live-1 != tt.live {
				t.Errorf("%d lookups, %d inodes; want %d, %d", lookups, live-1, tt.lookups, tt.live)
			}
			// Another file takes the name behind our back.
			fake.set("a", 3)
			if st, _ := vfs.StatAt(c, at("/a"), 0); st.Ino != tt.changed {
				t.Errorf("inode %d after a change outside, want %d", st.Ino, tt.changed)
			}
			fake.remove("a")
			_, err := vfs.StatAt(c, at("/a"), 0)
			if want := tt.policy == vfs.CacheAll || tt.policy == vfs.CachePinned; (err == nil) != want {
				t.Errorf("stat after a removal outside: %v", err)
			}
			ctx.DecRef()
			ns.DecRef()
			if _, live := fake.count(); live != 0 {
				t.Errorf("%d inodes live", live)
			}
			if l := ref.Leaks(before); l != "" {
				t.Errorf("left over: %s", l)
			}
		})
	}
}

// TestDentryLimit looks at many names: what is kept is bounded.
func TestDentryLimit(t *testing.T) {
	c := newTask(0)
	fake := &fakeFS{policy: vfs.CacheAll, names: map[string]uint64{}}
	for i := range 3000 {
		fake.names[fmt.Sprint(i)] = uint64(i + 2)
	}
	ns := vfs.NewNamespace(fake, 0)
	root := ns.Root()
	defer ns.DecRef()
	defer root.DecRef()
	vfs.SetDentryLimit(100)
	defer vfs.SetDentryLimit(vfs.DefaultDentryLimit)
	for i := range 3000 {
		if _, err := vfs.StatAt(c, vfs.At{Dir: root, Name: fmt.Sprint(i)}, 0); err != nil {
			t.Fatal(err)
		}
		// A name in use survives the others.
		if _, err := vfs.StatAt(c, vfs.At{Dir: root, Name: "0"}, 0); err != nil {
			t.Fatal(err)
		}
	}
	lookups, live := fake.count()
	if live > 102 {
		t.Errorf("%d inodes live", live)
	}
	if lookups > 3100 {
		t.Errorf("%d lookups: a used name was thrown out", lookups)
	}
}

// FuzzLookup walks arbitrary paths through a tree with every kind of link.
func FuzzLookup(f *testing.F) {
	for _, s := range []string{"/", "a/../b//l/", "/up/up/up", "loop/x", "l/./../a/f", "a/f/"} {
		f.Add(s, uint32(0))
	}
	f.Fuzz(func(t *testing.T, path string, flags uint32) {
		e := newEnv(t)
		e.mkdir("/a", 0o755)
		e.mkdir("/b", 0o755)
		e.write("/a/f", "x")
		e.symlink("../a", "/b/l")
		e.symlink("b/l/", "/l")
		e.symlink("loop", "/loop")
		e.symlink("..", "/up")
		at := e.at(path)
		at.Flags = vfs.LookupFlags(flags)
		if p, err := vfs.LookupAt(e.c, at); err == nil {
			p.DecRef()
		}
		if fl, err := vfs.OpenAt(e.c, at, flags&(unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_PATH), 0o600); err == nil {
			fl.DecRef()
		}
		_ = vfs.RenameAt(e.c, at, e.at("/b/x"), 0)
		_ = vfs.MkdirAt(e.c, at, 0o755)
		_ = vfs.RmdirAt(e.c, at)
		_ = vfs.UnlinkAt(e.c, at)
	})
}

func BenchmarkOpenClose(b *testing.B) {
	c := newTask(0)
	fake := &fakeFS{policy: vfs.CacheAll, names: map[string]uint64{"a": 2}}
	ns := vfs.NewNamespace(fake, 0)
	root := ns.Root()
	defer ns.DecRef()
	defer root.DecRef()
	b.ReportAllocs()
	for b.Loop() {
		f, err := vfs.OpenAt(c, vfs.At{Dir: root, Name: "a"}, unix.O_PATH, 0)
		if err != nil {
			b.Fatal(err)
		}
		f.DecRef()
	}
}
