package syscalls

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/sentry/arch"
	"runsc/sentry/cred"
	"runsc/sentry/fs/dev"
	"runsc/sentry/fs/tmpfs"
	"runsc/sentry/kernel"
	"runsc/sentry/mem"
	"runsc/sentry/pipe"
	"runsc/sentry/platform"
	"runsc/sentry/vfs"
)

// bodyNr is the system call by which a fake guest runs the body of a test: on
// its task's goroutine, where handlers run.
const bodyNr = 511

// fakePlatform has no guest code: a context makes the call bodyNr, and what
// the signal code makes of it, until its task ends.
type fakePlatform struct{}

func (fakePlatform) NewGroup() (platform.Group, error) { return fakeGroup{}, nil }
func (fakePlatform) NewContext() platform.Context {
	return &fakeContext{intr: make(chan struct{}, 1)}
}
func (fakePlatform) Close() {}

type fakeGroup struct{}

func (fakeGroup) HostPID() int                                    { return 0 }
func (fakeGroup) NewAddressSpace() (platform.AddressSpace, error) { return fakeSpace{}, nil }
func (fakeGroup) Close()                                          {}

type fakeSpace struct{}

func (fakeSpace) Map(uint64, uint64, int, int64, platform.Prot, bool) error { return nil }
func (fakeSpace) Unmap(uint64, uint64) error                                { return nil }
func (fakeSpace) Protect(uint64, uint64, platform.Prot) error               { return nil }
func (fakeSpace) Release()                                                  {}

type fakeContext struct {
	ran  bool
	intr chan struct{}
}

func (c *fakeContext) Switch(_ platform.AddressSpace, regs *arch.Regs) (platform.Event, error) {
	if c.ran {
		<-c.intr
		return platform.Event{Kind: platform.EventInterrupt}, nil
	}
	c.ran = true
	regs.OrigRax = bodyNr
	return platform.Event{Kind: platform.EventSyscall}, nil
}

func (c *fakeContext) Interrupt() {
	select {
	case c.intr <- struct{}{}:
	default:
	}
}
func (c *fakeContext) FPState() []byte         { return nil }
func (c *fakeContext) SetFPState([]byte) error { return nil }
func (c *fakeContext) Sleep()                  {}
func (c *fakeContext) Release()                {}

// bodyTable runs bodies; it is the system call table of the fake kernel.
type bodyTable struct {
	tb     *Table
	bodies chan func(*guest)
	t      testing.TB
}

func (b *bodyTable) Dispatch(t *kernel.Task, nr uintptr, args *[6]uint64) (uintptr, error) {
	if nr != bodyNr {
		return b.tb.Dispatch(t, nr, args)
	}
	body := <-b.bodies
	if body == nil {
		t.ThreadGroup().Kill()
		return 0, nil
	}
	g := &guest{TB: b.t, task: t, tb: b.tb}
	addr, err := g.call(unix.SYS_MMAP, 0, arenaSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, -1, 0)
	if err != nil {
		b.t.Errorf("arena: %v", err)
	}
	g.arena, g.next = uint64(addr), uint64(addr)
	defer t.ThreadGroup().Kill()
	defer func() {
		if r := recover(); r != nil && r != (stopBody{}) {
			panic(r)
		}
	}()
	body(g)
	return 0, nil
}

const arenaSize = 4 << 20

// guest makes system calls as a program does.
type guest struct {
	testing.TB
	task        *kernel.Task
	tb          *Table
	arena, next uint64
	kept        [][]byte
}

// call makes a system call. Strings are placed in guest memory, and so are
// byte slices, which are copied back after it.
func (g *guest) call(nr uintptr, args ...any) (uintptr, error) {
	if g.task == nil {
		return nativeCall(nr, args)
	}
	var regs [6]uint64
	back := make(map[uint64][]byte)
	mark := g.next
	defer func() { g.next = mark }()
	for i, a := range args {
		switch v := a.(type) {
		case int:
			regs[i] = uint64(v)
		case int32:
			regs[i] = uint64(int64(v))
		case int64:
			regs[i] = uint64(v)
		case uint64:
			regs[i] = v
		case uintptr:
			regs[i] = uint64(v)
		case uint32:
			regs[i] = uint64(v)
		case string:
			regs[i] = g.put(append([]byte(v), 0))
		case []byte:
			regs[i] = g.put(v)
			back[regs[i]] = v
		default:
			g.Fatalf("argument of type %T", a)
		}
	}
	n, err := g.tb.Dispatch(g.task, nr, &regs)
	for addr, p := range back {
		if err := g.task.CopyIn(addr, p); err != nil {
			g.Errorf("read back: %v", err)
		}
	}
	return n, err
}

// put places bytes in guest memory until the call is over, or for good outside
// one.
func (g *guest) put(p []byte) uint64 {
	addr := g.next
	if err := g.task.CopyOut(addr, p); err != nil {
		g.Errorf("put: %v", err)
	}
	g.next += uint64(len(p)+15) &^ 15
	return addr
}

// keep places bytes in memory for good; natively that is the slice itself.
func (g *guest) keep(p []byte) uint64 {
	if g.task == nil {
		p = append([]byte(nil), p...)
		g.kept = append(g.kept, p)
		return nativeAddr(p)
	}
	return g.put(p)
}

// peek returns bytes that keep placed.
func (g *guest) peek(addr uint64, n int) []byte {
	if g.task == nil {
		for _, p := range g.kept {
			if nativeAddr(p) == addr {
				return p[:n]
			}
		}
		g.Fatal("no such buffer")
	}
	p := make([]byte, n)
	if err := g.task.CopyIn(addr, p); err != nil {
		g.Error(err)
	}
	return p
}

// must is call for calls that have to succeed.
func (g *guest) must(nr uintptr, args ...any) uintptr {
	g.Helper()
	n, err := g.call(nr, args...)
	if err != nil {
		g.Errorf("%s(%v): %v", name(nr), args, err)
		if g.task == nil {
			g.FailNow()
		}
		panic(stopBody{})
	}
	return n
}

// stopBody ends a body in a sandbox early.
type stopBody struct{}

// fails checks that a call fails with want.
func (g *guest) fails(want error, nr uintptr, args ...any) {
	g.Helper()
	if n, err := g.call(nr, args...); err != want {
		g.Errorf("%s(%v) = %d, %v, want %v", name(nr), args, int64(n), err, want)
	}
}

// open opens a file.
func (g *guest) open(path string, flags int, mode int) int {
	g.Helper()
	return int(g.must(unix.SYS_OPENAT, unix.AT_FDCWD, path, flags, mode))
}

// write and read move bytes.
func (g *guest) write(fd int, s string) int {
	g.Helper()
	return int(g.must(unix.SYS_WRITE, fd, []byte(s), len(s)))
}

func (g *guest) read(fd, n int) string {
	g.Helper()
	p := make([]byte, n)
	return string(p[:g.must(unix.SYS_READ, fd, p, n)])
}

func (g *guest) close(fd int) { g.Helper(); g.must(unix.SYS_CLOSE, fd) }

// pipe makes a pipe.
func (g *guest) pipe(flags int) (r, w int) {
	g.Helper()
	p := make([]byte, 8)
	g.must(unix.SYS_PIPE2, p, flags)
	return int(binary.LittleEndian.Uint32(p)), int(binary.LittleEndian.Uint32(p[4:]))
}

// stat returns a file's attributes.
func (g *guest) stat(path string) unix.Stat_t {
	g.Helper()
	var st unix.Stat_t
	g.must(unix.SYS_LSTAT, path, abi.Bytes(&st))
	return st
}

func name(nr uintptr) string {
	for _, c := range calls {
		if c.Nr == nr {
			return c.Name
		}
	}
	return fmt.Sprint(nr)
}

// sandbox is a kernel with one container on a tmpfs.
type sandbox struct {
	t        testing.TB
	k        *kernel.Kernel
	c        *kernel.Container
	ns       *vfs.Namespace
	root     vfs.Path
	bodies   chan func(*guest)
	procs    int
	creds    *cred.Creds
	done     chan string
	statuses map[string]int
}

var registered atomic.Bool

func newSandbox(t testing.TB) *sandbox {
	mf, err := mem.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(mf.Close)
	acct := mem.NewAccount(nil, 0)
	if registered.CompareAndSwap(false, true) {
		pipe.Register()
		dev.Register()
	}
	vfs.RegisterFSType(tmpfs.FSType(mf, nil))
	s := &sandbox{t: t, bodies: make(chan func(*guest)), creds: cred.Root(), done: make(chan string, 16), statuses: make(map[string]int)}
	s.k = kernel.New(kernel.Config{MemFile: mf, Platform: fakePlatform{}, Syscalls: &bodyTable{New(nil), s.bodies, t}})
	s.c, err = s.k.NewContainer(kernel.ContainerConfig{
		ID: "test", Group: fakeGroup{}, Account: acct,
		OnExit: func(id string, status int) { s.done <- id },
	})
	if err != nil {
		t.Fatal(err)
	}
	s.ns = vfs.NewNamespace(tmpfs.New(vfs.KernelCaller(), tmpfs.Config{Memory: mf, Account: acct, Mode: 0o755}), 0)
	s.root = s.ns.Root()
	s.install("/init", elf())
	return s
}

// install writes a program into the root file system.
func (s *sandbox) install(path string, data []byte) {
	fs := vfs.NewFSContext(s.root, s.root, 0)
	defer fs.DecRef()
	f, err := vfs.OpenAt(vfs.KernelCaller(), vfs.At{FS: fs, Name: path}, unix.O_CREAT|unix.O_WRONLY, 0o755)
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.DecRef()
	b := mem.KernelBuf(data)
	if _, err := f.Write(vfs.KernelCaller(), &b); err != nil {
		s.t.Fatal(err)
	}
}

// elf is the smallest program that loads: one segment, which is never run.
func elf() []byte {
	b := make([]byte, 4096)
	copy(b, "\x7fELF\x02\x01\x01")
	le := binary.LittleEndian
	le.PutUint16(b[16:], 2)  // ET_EXEC
	le.PutUint16(b[18:], 62) // EM_X86_64
	le.PutUint32(b[20:], 1)  // EV_CURRENT
	le.PutUint64(b[24:], 0x400000)
	le.PutUint64(b[32:], 64) // program headers
	le.PutUint16(b[52:], 64)
	le.PutUint16(b[54:], 56)
	le.PutUint16(b[56:], 1)
	p := b[64:]
	le.PutUint32(p, 1)     // PT_LOAD
	le.PutUint32(p[4:], 5) // read and execute
	le.PutUint64(p[16:], 0x400000)
	le.PutUint64(p[24:], 0x400000)
	le.PutUint64(p[32:], 4096)
	le.PutUint64(p[40:], 4096)
	le.PutUint64(p[48:], 4096)
	return b
}

// start runs a process whose program is body.
func (s *sandbox) start(files *vfs.FDTable, body func(*guest)) *kernel.ThreadGroup {
	s.t.Helper()
	id := ""
	if s.procs > 0 {
		id = fmt.Sprint("p", s.procs)
	}
	if files == nil {
		files = vfs.NewFDTable()
	}
	s.ns.IncRef()
	tg, err := s.c.CreateProcess(kernel.ProcessConfig{
		ExecID: id, Init: s.procs == 0, Filename: "/init", Argv: []string{"init"}, Cred: s.creds,
		FS: vfs.NewFSContext(s.root, s.root, 0o022), Files: files, MountNS: s.ns,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.procs++
	if err := tg.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.bodies <- body
	return tg
}

// wait waits until n processes have ended.
func (s *sandbox) wait(n int) {
	s.t.Helper()
	s.waitFor(n, 10*time.Second)
}

// waitFor is wait with a time limit for each.
func (s *sandbox) waitFor(n int, limit time.Duration) {
	s.t.Helper()
	for range n {
		select {
		case <-s.done:
		case <-time.After(limit):
			buf := make([]byte, 1<<16)
			s.t.Fatalf("a process does not end:\n%s", buf[:runtime.Stack(buf, true)])
		}
	}
}

// run runs one body as the init of a new sandbox.
func run(t *testing.T, body func(*guest)) {
	t.Helper()
	s := newSandbox(t)
	s.start(nil, body)
	s.wait(1)
}

// runBoth runs a body in an empty directory of the machine the test runs on,
// to see that the test is right, and then in a sandbox.
func runBoth(t *testing.T, body func(*guest)) {
	t.Run("linux", func(t *testing.T) {
		if unix.Geteuid() != 0 {
			t.Skip("the tests speak of root's rights")
		}
		t.Chdir(t.TempDir())
		old := unix.Umask(0o022)
		defer unix.Umask(old)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		before := openFDs(t)
		body(&guest{TB: t})
		for fd := range openFDs(t) {
			if !before[fd] {
				_ = unix.Close(fd)
			}
		}
	})
	t.Run("sentry", func(t *testing.T) { run(t, body) })
}

// openFDs returns the descriptors of the test itself.
func openFDs(t *testing.T) map[int]bool {
	dir, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	fds := make(map[int]bool)
	for _, d := range dir {
		fd, _ := strconv.Atoi(d.Name())
		fds[fd] = true
	}
	return fds
}
