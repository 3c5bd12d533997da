package gofer

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"runsc/pkg/fsproto"
	"runsc/pkg/hostfs"
)

// TestMain turns the test binary into a gofer process when asked to.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "gofer":
			os.Exit(Isolate(os.Args[2:]))
		case Isolated:
			os.Exit(Main(os.Args[2:]))
		}
	}
	os.Exit(m.Run())
}

// start runs a gofer process and returns its client and process.
func start(t *testing.T) (fsproto.GoferClient, *exec.Cmd) {
	t.Helper()
	c, _, cmd := startBoth(t)
	return c, cmd
}

// startBoth returns the Sentry's client too.
func startBoth(t *testing.T) (fsproto.GoferClient, *fsproto.Files, *exec.Cmd) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	cl, srv, err := fsproto.SocketPair()
	if err != nil {
		t.Fatal(err)
	}
	scl, ssrv, err := fsproto.SocketPair()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "gofer")
	cmd.SysProcAttr = fsproto.GoferSysProcAttr()
	cmd.ExtraFiles = []*os.File{srv, ssrv}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	srv.Close()
	ssrv.Close()
	c, err := fsproto.NewGoferClient(cl)
	if err != nil {
		t.Fatal(err)
	}
	sc, err := fsproto.NewFiles(scl)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		if err := mknod(sc, 0, "x", unix.S_IFCHR, 0); err != unix.EIO {
			t.Errorf("call to a gofer that is gone: %v", err)
		}
	})
	return c, sc, cmd
}

func addMount(t *testing.T, c fsproto.GoferClient, path string, readonly bool) *os.File {
	t.Helper()
	tree, err := fsproto.CloneTree(path, true)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	root, err := c.AddMount("c1", 0, tree, readonly)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

func TestAddMount(t *testing.T) {
	c, cmd := start(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("hello"), 0o644); err != nil {
		t.Fatal(err)
	}
	root := addMount(t, c, dir, false)
	how := &unix.OpenHow{Flags: unix.O_RDWR | unix.O_CREAT, Mode: 0o600, Resolve: unix.RESOLVE_BENEATH}
	fd, err := unix.Openat2(int(root.Fd()), "g", how)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	if _, err := os.Stat(filepath.Join(dir, "g")); err != nil {
		t.Error(err)
	}

	// ".." stays in the tree, with and without the kernel's help.
	var a, b unix.Stat_t
	if err := unix.Fstat(int(root.Fd()), &a); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fstatat(int(root.Fd()), "../..", &b, 0); err != nil {
		t.Fatal(err)
	}
	if a.Dev != b.Dev || a.Ino != b.Ino {
		t.Error("\"..\" left the mount tree")
	}

	// The process sees nothing of the host.
	links, err := os.ReadDir("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/root")
	if err != nil || len(links) != 0 {
		t.Errorf("root of the gofer: %v, %v", links, err)
	}
	status, err := os.ReadFile("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/status")
	if err != nil || !strings.Contains(string(status), "NoNewPrivs:\t1") {
		t.Errorf("status of the gofer: %v\n%s", err, status)
	}
	tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/task/*/status")
	for _, f := range tasks {
		s, _ := os.ReadFile(f)
		if !strings.Contains(string(s), "CapPrm:\t000000008800001f") {
			t.Errorf("capabilities in %s:\n%s", f, s)
		}
	}
}

func TestAddMountReadOnly(t *testing.T) {
	c, _ := start(t)
	root := addMount(t, c, t.TempDir(), true)
	if err := unix.Mkdirat(int(root.Fd()), "d", 0o755); err != unix.EROFS {
		t.Errorf("mkdir on a read-only mount: %v", err)
	}
}

func TestAddMountFile(t *testing.T) {
	c, _ := start(t)
	path := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(path, []byte("127.0.0.1"), 0o644); err != nil {
		t.Fatal(err)
	}
	root := addMount(t, c, path, false)
	got, err := os.ReadFile("/proc/self/fd/" + strconv.Itoa(int(root.Fd())))
	if err != nil || string(got) != "127.0.0.1" {
		t.Errorf("read %q, %v", got, err)
	}
}

func TestRemoveContainer(t *testing.T) {
	c, _ := start(t)
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		t.Fatal(err)
	}
	root := addMount(t, c, dir, false)
	if err := unix.Unmount(dir, 0); err != nil {
		t.Errorf("the original mount is busy: %v", err)
	}
	root.Close()
	if err := c.RemoveContainer("c1"); err != nil {
		t.Error(err)
	}
	if err := c.RemoveContainer("unknown"); err != nil {
		t.Error(err)
	}
}

// mknod has the gofer make a node as in direct mode.
func mknod(sc *fsproto.Files, dir int, name string, mode uint32, rdev uint64) error {
	var stx unix.Statx_t
	return sc.MakeIn(hostfs.Data(dir), name, &hostfs.NewAttr{Mode: mode, Rdev: rdev}, &stx)
}

func TestMknod(t *testing.T) {
	c, sc, _ := startBoth(t)
	dir := t.TempDir()
	root := addMount(t, c, dir, false)
	fd := int(root.Fd())
	if err := mknod(sc, fd, "null", unix.S_IFCHR|0o666, unix.Mkdev(1, 3)); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(dir+"/null", &st); err != nil || st.Mode != unix.S_IFCHR|0o666 || st.Rdev != unix.Mkdev(1, 3) {
		t.Errorf("%o %#x, %v", st.Mode, st.Rdev, err)
	}
	// The tree is nodev: nobody opens a device through it.
	if _, err := unix.Openat(fd, "null", unix.O_RDWR, 0); err != unix.EACCES {
		t.Errorf("open of a device in the tree: %v", err)
	}
	for name, want := range map[string]error{"null": unix.EEXIST, "../x": unix.EINVAL, "..": unix.EINVAL, "": unix.EINVAL, "a\x00b": unix.EINVAL} {
		if err := mknod(sc, fd, name, unix.S_IFCHR, 0); err != want {
			t.Errorf("mknod %q: %v, want %v", name, err, want)
		}
	}
	if err := mknod(sc, fd, "f", unix.S_IFREG, 0); err != unix.EINVAL {
		t.Errorf("mknod of a file: %v", err)
	}
}

func TestRefusesParentNamespace(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	cl, srv, err := fsproto.SocketPair()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "gofer")
	cmd.ExtraFiles = []*os.File{srv}
	if err := cmd.Run(); err == nil {
		t.Error("ran in the parent's mount namespace")
	}
	srv.Close()
	c, err := fsproto.NewGoferClient(cl)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.RemoveContainer("x"); err == nil {
		t.Error("call succeeded")
	}
	var re *fsproto.RemoteError
	if errors.As(err, &re) {
		t.Error("set-up failure looks like an answer")
	}
}
