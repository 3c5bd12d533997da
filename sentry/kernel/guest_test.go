package kernel_test

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"runsc/sentry/cred"
	"runsc/sentry/fs/tmpfs"
	"runsc/sentry/kernel"
	"runsc/sentry/mem"
	"runsc/sentry/pipe"
	"runsc/sentry/platform"
	"runsc/sentry/platform/systrap"
	"runsc/sentry/syscalls"
	"runsc/sentry/vfs"
)

// busyboxPath is the static busybox of the host that tests run as guest.
const busyboxPath = "/bin/busybox"

var registered atomic.Bool

// rig is a sandbox with one container on a tmpfs with busybox in it.
type rig struct {
	t    testing.TB
	k    *kernel.Kernel
	c    *kernel.Container
	ns   *vfs.Namespace
	root vfs.Path
	grp  platform.Group
	plat platform.Platform

	mu sync.Mutex
	// mu guards:
	exits []exit
	exitQ chan exit

	patience time.Duration
}

type exit struct {
	id     string
	status int
}

func newRig(t testing.TB, limit uint64, change func(*kernel.ContainerConfig)) *rig {
	t.Helper()
	bb, err := os.ReadFile(busyboxPath)
	if err != nil {
		t.Skip("no static busybox on this host: ", err)
	}
	mf, err := mem.New()
	if err != nil {
		t.Fatal(err)
	}
	p, err := systrap.New(systrap.Options{KeepFDs: []int{mf.FD()}})
	if err != nil {
		t.Skip("no systrap here: ", err)
	}
	g, err := p.NewGroup()
	if err != nil {
		t.Fatal(err)
	}
	acct := mem.NewAccount(nil, limit)
	if registered.CompareAndSwap(false, true) {
		pipe.Register()
	}
	r := &rig{t: t, grp: g, plat: p, exitQ: make(chan exit, 100), patience: 20 * time.Second}
	r.k = kernel.New(kernel.Config{
		MemFile: mf, Platform: p, Syscalls: syscalls.New(traceTo(t)), NumCPUs: 2,
		Log: func(level, line string) { t.Log(level, line) },
	})
	cfg := kernel.ContainerConfig{
		ID: "test", Group: g, Account: acct, Hostname: "box",
		OnExit: func(id string, status int) {
			r.mu.Lock()
			r.exits = append(r.exits, exit{id, status})
			r.mu.Unlock()
			r.exitQ <- exit{id, status}
		},
	}
	if change != nil {
		change(&cfg)
	}
	if r.c, err = r.k.NewContainer(cfg); err != nil {
		t.Fatal(err)
	}
	r.files(mf, bb)
	t.Cleanup(func() {
		r.k.KillAll()
		if !r.k.WaitTasks(5 * time.Second) {
			t.Error("tasks are left")
		}
		g.Close()
		p.Close()
		mf.Close()
	})
	return r
}

// files makes the tree with busybox in it.
func (r *rig) files(mf *mem.File, bb []byte) {
	fsAcct := mem.NewAccount(nil, 0)
	r.ns = vfs.NewNamespace(tmpfs.New(vfs.KernelCaller(), tmpfs.Config{Memory: mf, Account: fsAcct, Mode: 0o755}), 0)
	r.root = r.ns.Root()
	for _, d := range []string{"/bin", "/tmp", "/dev"} {
		r.mkdir(d)
	}
	r.write("/bin/busybox", bb, 0o755)
	r.write("/dev/null", nil, 0o666) // a file does for shells
	for _, n := range strings.Fields("sh true false echo cat seq sort head wc ls sleep kill dd mkdir rm cp grep sed awk sha256sum mkfifo find test env id touch yes tr xargs date nproc hostname uname timeout setsid expr mv ln") {
		if err := vfs.LinkAt(vfs.KernelCaller(), r.at("/bin/busybox"), r.at("/bin/"+n)); err != nil {
			r.t.Fatal(n, err)
		}
	}
}

func traceTo(testing.TB) io.Writer {
	if os.Getenv("GUEST_TRACE") != "" {
		return os.Stderr
	}
	return nil
}

func (r *rig) at(name string) vfs.At {
	return vfs.At{FS: vfs.NewFSContext(r.root, r.root, 0), Name: name}
}

func (r *rig) mkdir(name string) {
	if err := vfs.MkdirAt(vfs.KernelCaller(), r.at(name), 0o1777); err != nil {
		r.t.Fatal(name, err)
	}
}

func (r *rig) open(name string, flags int) *vfs.File {
	f, err := vfs.OpenAt(vfs.KernelCaller(), r.at(name), uint32(flags), 0o755)
	if err != nil {
		r.t.Fatal(name, err)
	}
	return f
}

func (r *rig) write(name string, data []byte, mode uint32) {
	f := r.open(name, unix.O_CREAT|unix.O_WRONLY|unix.O_TRUNC)
	defer f.DecRef()
	b := mem.KernelBuf(data)
	if _, err := f.Write(vfs.KernelCaller(), &b); err != nil {
		r.t.Fatal(name, err)
	}
}

func (r *rig) read(name string) string {
	f := r.open(name, unix.O_RDONLY)
	defer f.DecRef()
	p := make([]byte, 1<<20)
	b := mem.KernelBuf(p)
	n, err := f.Read(vfs.KernelCaller(), &b)
	if err != nil {
		r.t.Fatal(name, err)
	}
	return string(p[:n])
}

// create makes a process whose output goes to the file /out.ID.
func (r *rig) create(id string, argv ...string) *kernel.ThreadGroup {
	r.t.Helper()
	files := vfs.NewFDTable()
	in := r.open("/in."+id, unix.O_CREAT|unix.O_RDONLY)
	out := r.open("/out."+id, unix.O_CREAT|unix.O_WRONLY|unix.O_APPEND)
	out.IncRef()
	for _, f := range []*vfs.File{in, out, out} {
		if _, err := files.Install(vfs.KernelCaller(), f, 0, false); err != nil {
			r.t.Fatal(err)
		}
	}
	r.ns.IncRef()
	tg, err := r.c.CreateProcess(kernel.ProcessConfig{
		ExecID: id, Init: id == "", Filename: argv[0], Argv: argv, Env: []string{"PATH=/bin", "HOME=/"}, Cred: cred.Root(),
		FS: vfs.NewFSContext(r.root, r.root, 0o022), Files: files, MountNS: r.ns,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return tg
}

func (r *rig) start(id string, argv ...string) *kernel.ThreadGroup {
	r.t.Helper()
	tg := r.create(id, argv...)
	if err := tg.Start(); err != nil {
		r.t.Fatal(err)
	}
	return tg
}

func (r *rig) wait() exit {
	r.t.Helper()
	select {
	case e := <-r.exitQ:
		return e
	case <-time.After(r.patience):
		r.t.Fatal("no exit in ", r.patience)
	}
	return exit{}
}

// run runs init to its end and returns what it wrote.
func (r *rig) run(argv ...string) (string, int) {
	r.t.Helper()
	r.start("", argv...)
	e := r.wait()
	return r.read("/out."), e.status
}

// TestGuest runs programs on the real platform.
func TestGuest(t *testing.T) {
	tests := []struct {
		name, script string
		want         string
		status       int
	}{
		{"echo", "echo hi", "hi\n", 0},
		{"exit", "exit 7", "", 7},
		{"fork", "(echo a); echo b", "a\nb\n", 0},
		{"exec", "exec /bin/echo x y", "x y\n", 0},
		{"pipe", "seq 100000 | sort -rn | head -3", "100000\n99999\n99998\n", 0},
		{"wait", "(exit 3) & wait $!; echo $?", "3\n", 0},
		{"child killed", `sh -c 'kill -9 $$'; echo $?`, "Killed\n137\n", 0},
		{"init cannot kill itself", "kill -9 $$; echo alive", "alive\n", 0},
		{"trap", `trap 'echo got' USR1; kill -USR1 $$; echo end`, "got\nend\n", 0},
		{"trap exit", `sh -c 'trap "exit 9" TERM; kill $$; sleep 5'; echo $?`, "9\n", 0},
		{"term child", `sh -c 'kill $$; sleep 5'; echo $?`, "Terminated\n143\n", 0},
		{"segv", `sh -c 'kill -SEGV $$'; echo $?`, "Segmentation fault\n139\n", 0},
		{"missing", "nosuch; echo $?", "/bin/sh: nosuch: not found\n127\n", 0},
		{"background", "sleep 0.2 & sleep 0.1; wait; echo ok", "ok\n", 0},
		{"stop", `sleep 5 & p=$!; kill -STOP $p; kill -CONT $p; kill $p; wait $p; echo $?`, "Terminated\n143\n", 0},
		{"here document", "cat <<E\na\nb\nE", "a\nb\n", 0},
		{"fifo", "mkfifo /tmp/p; echo x >/tmp/p & cat /tmp/p", "x\n", 0},
		{"many", "i=0; while [ $i -lt 30 ]; do /bin/true; i=$((i+1)); done; echo $i", "30\n", 0},
		{"dd", "dd if=/bin/busybox of=/tmp/b bs=64k 2>/dev/null && cp /tmp/b /tmp/c && sha256sum </tmp/c >/tmp/1; sha256sum </bin/busybox >/tmp/2; [ \"$(cat /tmp/1)\" = \"$(cat /tmp/2)\" ] && echo same", "same\n", 0},
		{"awk", "awk 'BEGIN { for (i = 0; i < 1000; i++) s += i; print s }'", "499500\n", 0},
		{"hostname", "hostname; nproc", "box\n2\n", 0},
		{"timeout", "timeout 1 sleep 5; echo $?", "Terminated\n143\n", 0},
		{"ids", "echo $$ $PPID; id -u", "1 0\n0\n", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, 0, nil)
			out, status := r.run("/bin/sh", "-c", tt.script)
			if out != tt.want || status != tt.status {
				t.Errorf("%q, status %d; want %q, %d", out, status, tt.want, tt.status)
			}
		})
	}
}

// guestChecks are those of testdata/guest, a program that passes on Linux too
// (int80 where 32-bit calls are off).
const guestChecks = "threads segv exec notify itimer sleep waitid pidfd processvm sysvshm sysvsem sysvmsg sigqueue sigwait leader subreaper pdeathsig pidns pgrp " +
	"restart futextimeout timer rlimit badframe stopwait setuid gc killthreads int80 nocldwait execthread"

// buildGuest builds testdata/guest.
func buildGuest(t testing.TB) []byte {
	t.Helper()
	out := t.TempDir() + "/guest"
	cmd := exec.Command("go", "build", "-o", out, ".")
	cmd.Dir = "testdata/guest"
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestGuestChecks runs the checks of testdata/guest.
func TestGuestChecks(t *testing.T) {
	guest := buildGuest(t)
	for _, name := range strings.Fields(guestChecks) {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 0, nil)
			r.write("/bin/guest", guest, 0o755)
			out, status := r.run("/bin/sh", "-c", "/bin/guest "+name+"; exit $?")
			if status != 0 || !strings.Contains(out, "ok ") {
				t.Errorf("status %d: %s", status, out)
			}
		})
	}
}

// TestGuestBinary runs the program of $GUEST_BIN, with $GUEST_ARGS, and shows
// what it prints: a quick way to try one without containerd. It is killed
// after $GUEST_FOR.
func TestGuestBinary(t *testing.T) {
	path := os.Getenv("GUEST_BIN")
	if path == "" {
		t.Skip("GUEST_BIN is not set")
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, 0, nil)
	r.write("/bin/guest", b, 0o755)
	r.patience = 2 * time.Minute
	if d, err := time.ParseDuration(os.Getenv("GUEST_FOR")); err == nil {
		time.AfterFunc(d, r.c.KillAll)
	}
	out, status := r.run(append([]string{"/bin/sh", "-c", `/bin/guest "$@"; exit $?`, "guest"}, strings.Fields(os.Getenv("GUEST_ARGS"))...)...)
	t.Logf("status %d\n%s", status, out)
}

// TestProcessChecks runs the checks of testdata/c/process.c, which pass on
// Linux as root.
func TestProcessChecks(t *testing.T) {
	b := buildC(t, "process.c")
	r := newRig(t, 0, nil)
	r.write("/bin/process", b, 0o755)
	out, status := r.run("/bin/sh", "-c", "/bin/process; exit $?")
	if status != 0 || strings.Contains(out, "FAIL") || !strings.Contains(out, "ok cpulimit") {
		t.Errorf("status %d\n%s", status, out)
	}
}

// buildC builds a program of testdata/c.
func buildC(t testing.TB, name string) []byte {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no C compiler: ", err)
	}
	bin := t.TempDir() + "/program"
	if b, err := exec.Command(gcc, "-O1", "-static", "-pthread", "-w", "-o", bin, "testdata/c/"+name).CombinedOutput(); err != nil {
		t.Skipf("%v\n%s", err, b)
	}
	b, err := os.ReadFile(bin)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
