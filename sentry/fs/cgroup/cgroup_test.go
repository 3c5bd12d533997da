package cgroup

import (
	"testing"

	"golang.org/x/sys/unix"

	"runsc/sentry/kernel"
	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

func TestFiles(t *testing.T) {
	k := kernel.New(kernel.Config{NumCPUs: 4})
	c, err := k.NewContainer(kernel.ContainerConfig{ID: "c", Account: mem.NewAccount(nil, 64<<20), PidsLimit: 30})
	if err != nil {
		t.Fatal(err)
	}
	fs := New(Options{Container: c, CPUQuota: 50000})
	root := fs.Root().(vfs.Dir)
	for name, want := range map[string]string{
		"memory.max": "67108864\n", "memory.current": "0\n", "pids.max": "30\n", "cpu.max": "50000 100000\n",
		"cpuset.cpus.effective": "0-3\n", "cgroup.procs": "", "cgroup.type": "domain\n", "memory.high": "max\n",
	} {
		i, err := root.Lookup(nil, name)
		if err != nil {
			t.Fatal(err)
		}
		ops, err := i.Open(nil, nil, unix.O_RDONLY)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 100)
		buf := mem.KernelBuf(b)
		n, err := ops.(vfs.ReaderAt).ReadAt(nil, nil, &buf, 0)
		if err != nil || string(b[:n]) != want {
			t.Errorf("%s is %q, %v, want %q", name, b[:n], err, want)
		}
		ops.Release()
		i.DecRef()
	}
	for _, x := range []struct {
		name, value string
		want        error
	}{
		{"memory.max", "1", unix.EACCES}, {"cgroup.kill", "1", unix.EACCES}, {"cgroup.procs", "0", nil}, {"cgroup.procs", "77", unix.ESRCH},
		{"cgroup.procs", "x", unix.EINVAL}, {"cgroup.subtree_control", "+memory", unix.EBUSY}, {"cgroup.subtree_control", "-memory", nil},
		{"cgroup.subtree_control", "memory", unix.EINVAL}, {"memory.stat", "1", unix.EIO},
	} {
		i, err := root.Lookup(nil, x.name)
		if err != nil {
			t.Fatal(err)
		}
		ops, err := i.Open(nil, nil, unix.O_WRONLY)
		if err != nil {
			t.Fatal(err)
		}
		buf := mem.KernelBuf([]byte(x.value))
		if _, _, err := ops.(vfs.WriterAt).WriteAt(nil, nil, &buf, 0); err != x.want {
			t.Errorf("%q to %s: %v, want %v", x.value, x.name, err, x.want)
		}
		ops.Release()
		i.DecRef()
	}
	if _, err := root.Mkdir(nil, "x", vfs.CreateAttr{}); err != unix.EACCES {
		t.Errorf("mkdir: %v", err)
	}
	c.SetPidsLimit(0)
	root.DecRef()
	if n := fs.Live(); n != 0 {
		t.Errorf("%d nodes left", n)
	}
}
