package sys

import (
	"bytes"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"runsc/sentry/fs/pseudo"
	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// visit calls fn for every node below i.
func visit(t *testing.T, path string, i vfs.Inode, fn func(path string, i vfs.Inode)) {
	t.Helper()
	fn(path, i)
	d, ok := i.(vfs.Dir)
	if !ok {
		return
	}
	ops, err := d.Open(nil, nil, unix.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	defer ops.Release()
	var names []vfs.Dirent
	err = ops.(vfs.DirReader).ReadDir(nil, nil, 2, func(e vfs.Dirent) bool {
		names = append(names, e)
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	dirs := uint32(2)
	for _, e := range names {
		ch, err := d.Lookup(nil, e.Name)
		if err != nil {
			t.Errorf("lookup %s/%s: %v", path, e.Name, err)
			continue
		}
		st, err := ch.Stat(nil, 0)
		if err != nil || st.Ino != e.Ino || uint8(st.Mode>>12) != e.Type {
			t.Errorf("%s/%s: entry %+v, stat %+v, %v", path, e.Name, e, st, err)
		}
		if e.Type == unix.DT_DIR {
			dirs++
		}
		visit(t, path+"/"+e.Name, ch, fn)
		ch.DecRef()
	}
	if st, err := i.Stat(nil, 0); err != nil || st.Nlink != dirs {
		t.Errorf("%s has %d links, want %d", path, st.Nlink, dirs)
	}
}

func files(t *testing.T, cpus int) (map[string]string, *pseudo.FS) {
	fs := New(Options{NumCPUs: cpus, MemTotal: func() uint64 { return 1 << 30 }})
	got := map[string]string{}
	root := fs.Root()
	visit(t, "", root, func(path string, i vfs.Inode) {
		if l, ok := i.(vfs.Symlink); ok {
			got[path], _ = l.Readlink(nil)
			return
		}
		if _, ok := i.(vfs.Dir); ok {
			got[path+"/"] = ""
			return
		}
		ops, err := i.Open(nil, nil, unix.O_RDONLY)
		if err != nil {
			t.Fatal(err)
		}
		defer ops.Release()
		b := make([]byte, 4096)
		buf := mem.KernelBuf(b)
		n, err := ops.(vfs.ReaderAt).ReadAt(nil, nil, &buf, 0)
		if err != nil {
			t.Fatal(err)
		}
		got[path] = string(b[:n])
	})
	root.DecRef()
	return got, fs
}

func TestTree(t *testing.T) {
	got, fs := files(t, 4)
	for path, want := range map[string]string{
		"/devices/system/cpu/online":                           "0-3\n",
		"/devices/system/cpu/possible":                         "0-3\n",
		"/devices/system/cpu/cpu3/topology/core_id":            "3\n",
		"/devices/system/cpu/cpu1/topology/thread_siblings":    "2\n",
		"/devices/system/cpu/cpu0/topology/core_siblings_list": "0-3\n",
		"/devices/system/cpu/cpu2/cache/index0/type":           "Data\n",
		"/devices/system/node/node0/cpumap":                    "f\n",
		"/devices/system/node/online":                          "0\n",
		"/class/net/lo":                                        "../../devices/virtual/net/lo",
		"/devices/virtual/net/lo/mtu":                          "65536\n",
		"/kernel/mm/transparent_hugepage/enabled":              "always madvise [never]\n",
		"/fs/cgroup/": "",
		"/block/":     "",
	} {
		if v, ok := got[path]; !ok || v != want {
			t.Errorf("%s is %q (%v), want %q", path, v, ok, want)
		}
	}
	for path := range got {
		if strings.Contains(path, "cpu4") {
			t.Errorf("%s: there are only 4 CPUs", path)
		}
	}
	if n := fs.Live(); n != 0 {
		t.Errorf("%d nodes left", n)
	}
}

func TestManyCPUs(t *testing.T) {
	got, fs := files(t, 512)
	if got["/devices/system/cpu/online"] != "0-511\n" {
		t.Error(got["/devices/system/cpu/online"])
	}
	if m := got["/devices/system/node/node0/cpumap"]; m != strings.TrimSuffix(strings.Repeat("ffffffff,", 16), ",")+"\n" {
		t.Error(m)
	}
	if n := fs.Live(); n != 0 {
		t.Errorf("%d nodes left", n)
	}
}

func TestCPUMap(t *testing.T) {
	for _, x := range []struct {
		n, cpu int
		want   string
	}{{1, 0, "1"}, {2, 1, "2"}, {8, 7, "80"}, {33, 32, "1,00000000"}, {64, 0, "00000000,00000001"}} {
		if got := cpuMap(x.n, func(i int) bool { return i == x.cpu }); got != x.want {
			t.Errorf("CPU %d of %d: %s, want %s", x.cpu, x.n, got, x.want)
		}
	}
}

func TestErrors(t *testing.T) {
	fs := New(Options{NumCPUs: 1})
	root := fs.Root().(vfs.Dir)
	defer root.DecRef()
	if _, err := root.Create(nil, "x", vfs.CreateAttr{}); err != unix.EACCES {
		t.Error(err)
	}
	if _, err := root.Mkdir(nil, "x", vfs.CreateAttr{}); err != unix.EPERM {
		t.Error(err)
	}
	if _, err := root.Lookup(nil, "x"); err != unix.ENOENT {
		t.Error(err)
	}
	var b bytes.Buffer
	if err := (pseudo.Text{Content: "x"}).Read(nil, &b); err != nil || b.String() != "x" {
		t.Error("Text")
	}
}
