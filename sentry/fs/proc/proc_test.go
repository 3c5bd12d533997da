package proc

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"runsc/sentry/arch"
	"runsc/sentry/cred"
	"runsc/sentry/fs/gofer"
	"runsc/sentry/fs/pseudo"
	"runsc/sentry/kernel"
	"runsc/sentry/mem"
	"runsc/sentry/platform"
	"runsc/sentry/vfs"
)

// fakePlatform never runs a guest.
type fakePlatform struct{}

func (fakePlatform) NewGroup() (platform.Group, error) { return fakeGroup{}, nil }
func (fakePlatform) NewContext() platform.Context      { return fakeContext{make(chan struct{}, 1)} }
func (fakePlatform) Close()                            {}

type fakeGroup struct{}

func (fakeGroup) HostPID() int                                    { return 0 }
func (fakeGroup) NewAddressSpace() (platform.AddressSpace, error) { return fakeSpace{}, nil }
func (fakeGroup) Close()                                          {}

type fakeSpace struct{}

func (fakeSpace) Map(uint64, uint64, int, int64, platform.Prot, bool) error { return nil }
func (fakeSpace) Unmap(uint64, uint64) error                                { return nil }
func (fakeSpace) Protect(uint64, uint64, platform.Prot) error               { return nil }
func (fakeSpace) Release()                                                  {}

type fakeContext struct{ intr chan struct{} }

func (c fakeContext) Switch(platform.AddressSpace, *arch.Regs) (platform.Event, error) {
	<-c.intr
	return platform.Event{Kind: platform.EventInterrupt}, nil
}
func (c fakeContext) Interrupt() {
	select {
	case c.intr <- struct{}{}:
	default:
	}
}
func (fakeContext) FPState() []byte         { return nil }
func (fakeContext) SetFPState([]byte) error { return nil }
func (fakeContext) Sleep()                  {}
func (fakeContext) Release()                {}

type noSyscalls struct{}

func (noSyscalls) Dispatch(*kernel.Task, uintptr, *[6]uint64) (uintptr, error) {
	return 0, unix.ENOSYS
}

// program is a static ELF file with one segment.
func program() []byte {
	var b bytes.Buffer
	le := binary.LittleEndian
	ehdr := make([]byte, 64)
	copy(ehdr, "\x7fELF\x02\x01\x01")
	le.PutUint16(ehdr[16:], 2)            // ET_EXEC
	le.PutUint16(ehdr[18:], 62)           // EM_X86_64
	le.PutUint32(ehdr[20:], 1)            // EV_CURRENT
	le.PutUint64(ehdr[24:], 0x400000+120) // entry
	le.PutUint64(ehdr[32:], 64)           // phoff
	le.PutUint16(ehdr[52:], 64)
	le.PutUint16(ehdr[54:], 56)
	le.PutUint16(ehdr[56:], 1)
	phdr := make([]byte, 56)
	le.PutUint32(phdr[0:], 1) // PT_LOAD
	le.PutUint32(phdr[4:], 5) // R X
	le.PutUint64(phdr[16:], 0x400000)
	le.PutUint64(phdr[24:], 0x400000)
	le.PutUint64(phdr[32:], 124)
	le.PutUint64(phdr[40:], 124)
	le.PutUint64(phdr[48:], 4096)
	b.Write(ehdr)
	b.Write(phdr)
	b.WriteString("\xeb\xfe\x90\x90") // jmp .
	return b.Bytes()
}

// sandbox is a kernel with a container, whose root is a host directory with
// proc mounted on it.
type sandbox struct {
	*testing.T
	k    *kernel.Kernel
	c    *kernel.Container
	sys  *System
	fs   *pseudo.FS
	ns   *vfs.Namespace
	ctx  *vfs.FSContext
	init *kernel.Task
}

func newSandbox(t *testing.T, cpus int, options string) *sandbox {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	for _, d := range []string{"proc", "etc"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "prog"), program(), 0o755); err != nil {
		t.Fatal(err)
	}
	mf, err := mem.New()
	if err != nil {
		t.Fatal(err)
	}
	s := &sandbox{T: t}
	s.k = kernel.New(kernel.Config{Platform: fakePlatform{}, MemFile: mf, Syscalls: noSyscalls{}, NumCPUs: cpus})
	s.c, err = s.k.NewContainer(kernel.ContainerConfig{ID: "c", Hostname: "box", Group: fakeGroup{}, Account: mem.NewAccount(nil, 1<<30)})
	if err != nil {
		t.Fatal(err)
	}
	self, err := unix.Open("/proc/self/fd", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	s.sys = NewSystem(s.k, self)
	root, err := unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	gfs, err := gofer.NewClient(gofer.ClientOptions{ProcSelfFD: self}).New(gofer.Options{RootFD: root})
	if err != nil {
		t.Fatal(err)
	}
	s.ns = vfs.NewNamespace(gfs, 0)
	top := s.ns.Root()
	s.ctx = vfs.NewFSContext(top, top, 0o22)
	top.DecRef()
	if s.fs, err = s.sys.newFS(s.c, s.c.PIDNamespace(), "proc", options); err != nil {
		t.Fatal(err)
	}
	if err := vfs.MountAt(vfs.KernelCaller(), vfs.At{FS: s.ctx, Name: "/proc"}, s.fs, unix.MS_NOSUID); err != nil {
		t.Fatal(err)
	}
	s.init = s.process("", 0, "/prog", "arg one", "two")
	return s
}

// process makes a process of a user; an id that is not empty makes it an
// exec'd one.
func (s *sandbox) process(id string, uid uint32, argv ...string) *kernel.Task {
	s.Helper()
	cr := cred.Root().Copy()
	if uid != 0 {
		*cr = cred.Creds{UID: uid, EUID: uid, SUID: uid, FSUID: uid, GID: uid, EGID: uid, SGID: uid, FSGID: uid}
	}
	s.ns.IncRef()
	tg, err := s.c.CreateProcess(kernel.ProcessConfig{
		ExecID: id, Init: id == "", Filename: argv[0], Argv: argv, Env: []string{"A=1", "SECRET=x"},
		Cred: cr, FS: s.ctx.Fork(), Files: vfs.NewFDTable(), MountNS: s.ns,
	})
	if err != nil {
		s.Fatal(err)
	}
	return tg.Leader()
}

func (s *sandbox) open(t *kernel.Task, name string, flags uint32) (*vfs.File, error) {
	return vfs.OpenAt(t, vfs.At{FS: t.FS(), Name: name}, flags, 0)
}

func (s *sandbox) read(t *kernel.Task, name string) string {
	s.Helper()
	b, err := s.tryRead(t, name)
	if err != nil {
		s.Errorf("read %s: %v", name, err)
	}
	return b
}

func (s *sandbox) tryRead(t *kernel.Task, name string) (string, error) {
	f, err := s.open(t, name, unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer f.DecRef()
	var out bytes.Buffer
	for {
		chunk := make([]byte, 700) // makes reads go on in the middle
		buf := mem.KernelBuf(chunk)
		n, err := f.Read(t, &buf)
		if err != nil {
			return "", err
		}
		if n == 0 {
			return out.String(), nil
		}
		out.Write(chunk[:n])
	}
}

func (s *sandbox) write(t *kernel.Task, name, text string) error {
	f, err := s.open(t, name, unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer f.DecRef()
	buf := mem.KernelBuf([]byte(text))
	_, err = f.Write(t, &buf)
	return err
}

func (s *sandbox) list(t *kernel.Task, name string) []vfs.Dirent {
	s.Helper()
	f, err := s.open(t, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		s.Fatalf("open %s: %v", name, err)
	}
	defer f.DecRef()
	var all []vfs.Dirent
	for {
		n := 0
		err := f.ReadDir(t, func(e vfs.Dirent) bool {
			if n == 3 { // few at a time
				return false
			}
			n++
			all = append(all, e)
			return true
		})
		if err != nil {
			s.Fatalf("list %s: %v", name, err)
		}
		if n == 0 {
			return all
		}
	}
}

func (s *sandbox) link(t *kernel.Task, name string) string {
	s.Helper()
	l, err := vfs.ReadlinkAt(t, vfs.At{FS: t.FS(), Name: name, Flags: vfs.NoFollow})
	if err != nil {
		s.Errorf("readlink %s: %v", name, err)
	}
	return l
}

// walk visits everything below dir and reads what can be read.
func (s *sandbox) walk(t *kernel.Task, dir string, files map[string]string) {
	for _, e := range s.list(t, dir) {
		if e.Name == "." || e.Name == ".." {
			continue
		}
		name := dir + "/" + e.Name
		st, err := vfs.StatAt(t, vfs.At{FS: t.FS(), Name: name, Flags: vfs.NoFollow}, unix.STATX_BASIC_STATS)
		if err != nil {
			s.Errorf("stat %s: %v", name, err)
			continue
		}
		if st.Ino != e.Ino || uint8(st.Mode>>12) != e.Type {
			s.Errorf("%s: entry %d type %d, stat %d type %d", name, e.Ino, e.Type, st.Ino, st.Mode>>12)
		}
		switch e.Type {
		case unix.DT_DIR:
			s.walk(t, name, files)
		case unix.DT_REG:
			if st.Mode&0o444 != 0 && e.Name != "mem" && e.Name != "kmsg" && e.Name != "pagemap" && !strings.HasSuffix(dir, "/attr") {
				files[name] = s.read(t, name)
			}
		case unix.DT_LNK:
			files[name] = s.link(t, name)
		}
	}
}

func TestFindAll(t *testing.T) {
	var counts []int
	for _, cpus := range []int{2, 512} {
		s := newSandbox(t, cpus, "")
		if n := s.fs.Live(); n != 1 {
			t.Errorf("%d nodes after the mount, want the root", n)
		}
		files := map[string]string{}
		s.walk(s.init, "/proc", files)
		vfs.DropCaches()
		if n := s.fs.Live(); n != 1 {
			t.Errorf("%d nodes after find with %d CPUs, want the root", n, cpus)
		}
		counts = append(counts, len(files))
		if cpus == 2 {
			if n := strings.Count(files["/proc/cpuinfo"], "processor\t:"); n != 2 {
				t.Errorf("%d processors in cpuinfo", n)
			}
		}
	}
	if counts[0] != counts[1] {
		t.Errorf("the number of files depends on the CPUs: %v", counts)
	}
}

func TestProcess(t *testing.T) {
	s := newSandbox(t, 2, "")
	for name, want := range map[string]string{
		"/proc/1/cmdline":               "/prog\x00arg one\x00two\x00",
		"/proc/self/environ":            "A=1\x00SECRET=x\x00",
		"/proc/1/comm":                  "prog\n",
		"/proc/1/cgroup":                "0::/\n",
		"/proc/sys/kernel/hostname":     "box\n",
		"/proc/sys/kernel/ostype":       "Linux\n",
		"/proc/1/oom_score_adj":         "0\n",
		"/proc/1/uid_map":               "         0          0 4294967295\n",
		"/proc/thread-self/children":    "",
		"/proc/self/task/1/comm":        "prog\n",
		"/proc/sys/net/ipv4/ip_forward": "0\n",
	} {
		if got := s.read(s.init, name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for name, want := range map[string]string{
		"/proc/self": "1", "/proc/thread-self": "1/task/1", "/proc/mounts": "self/mounts",
		"/proc/1/exe": "/prog", "/proc/1/cwd": "/", "/proc/self/root": "/",
	} {
		if got := s.link(s.init, name); got != want {
			t.Errorf("%s leads to %q, want %q", name, got, want)
		}
	}
	stat := s.read(s.init, "/proc/1/stat")
	if f := strings.Fields(stat); len(f) != 52 || f[0] != "1" || f[1] != "(prog)" || f[3] != "0" {
		t.Errorf("stat has %d fields: %s", len(f), stat)
	}
	status := s.read(s.init, "/proc/1/status")
	for _, want := range []string{"Name:\tprog\nUmask:\t0022\n", "\nPid:\t1\n", "\nThreads:\t1\n", "\nVmSize:\t", "\nCapEff:\t000001ffffffffff\n", "\nCpus_allowed_list:\t0-1\n"} {
		if !strings.Contains(status, want) {
			t.Errorf("status lacks %q:\n%s", want, status)
		}
	}
	maps := s.read(s.init, "/proc/1/maps")
	if !strings.Contains(maps, "00400000-00401000 r-xp 00000000 ") || !strings.Contains(maps, " /prog\n") || !strings.Contains(maps, "[stack]\n") {
		t.Errorf("maps:\n%s", maps)
	}
	mounts := s.read(s.init, "/proc/mounts")
	if !strings.Contains(mounts, "proc /proc proc rw,nosuid,relatime 0 0\n") {
		t.Errorf("mounts:\n%s", mounts)
	}
	info := s.read(s.init, "/proc/self/mountinfo")
	if !strings.Contains(info, " / /proc rw,nosuid,relatime - proc proc rw\n") {
		t.Errorf("mountinfo:\n%s", info)
	}
	if m := s.read(s.init, "/proc/meminfo"); !strings.HasPrefix(m, "MemTotal:        1048576 kB\n") {
		t.Errorf("meminfo is not limited:\n%s", m[:100])
	}
	if err := s.write(s.init, "/proc/1/comm", "other\n"); err != nil || s.init.Comm() != "other\n" {
		t.Errorf("comm: %v, %q", err, s.init.Comm())
	}
	// The program's bytes, through mem.
	f, err := s.open(s.init, "/proc/self/mem", unix.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	defer f.DecRef()
	b := make([]byte, 4)
	buf := mem.KernelBuf(b)
	if n, err := f.ReadAt(s.init, &buf, 0x400000); n != 4 || err != nil || string(b) != "\x7fELF" {
		t.Errorf("mem: %d, %v, %q", n, err, b)
	}
	buf = mem.KernelBuf(b)
	if _, err := f.ReadAt(s.init, &buf, 0x1000); err != unix.EIO {
		t.Errorf("mem of an unmapped address: %v", err)
	}
}

func TestDescriptors(t *testing.T) {
	s := newSandbox(t, 1, "")
	f, err := s.open(s.init, "/prog", unix.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := s.init.Files().Install(s.init, f, 0, true)
	if err != nil || fd != 0 {
		t.Fatal(fd, err)
	}
	if got := s.link(s.init, "/proc/self/fd/0"); got != "/prog" {
		t.Errorf("fd 0 is %q", got)
	}
	info := s.read(s.init, "/proc/self/fdinfo/0")
	if !strings.HasPrefix(info, "pos:\t0\nflags:\t02100000\nmnt_id:\t") {
		t.Errorf("fdinfo: %q", info)
	}
	again, err := s.open(s.init, "/proc/self/fd/0", unix.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	if again.Inode() != s.file(0).Inode() {
		t.Error("reopened another file")
	}
	again.DecRef()
	// An fdinfo file that is about itself.
	self, err := s.open(s.init, "/proc/self/fdinfo/0", unix.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	self.IncRef()
	if err := s.init.Files().Dup3(s.init, self, 0, false); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 100)
	buf := mem.KernelBuf(b)
	if n, err := self.Read(s.init, &buf); err != nil || !strings.HasPrefix(string(b[:n]), "pos:\t0\nflags:\t0100000\n") {
		t.Errorf("fdinfo of itself: %q, %v", b[:n], err)
	}
	self.DecRef()
	if l := s.list(s.init, "/proc/1/fd"); len(l) != 3 || l[2].Name != "0" || l[2].Type != unix.DT_LNK {
		t.Errorf("fd has %v", l)
	}
	if _, err := s.tryRead(s.init, "/proc/self/fd/1"); err != unix.ENOENT {
		t.Errorf("fd 1: %v", err)
	}
}

func (s *sandbox) file(fd int32) *vfs.File {
	f, err := s.init.Files().Get(fd)
	if err != nil {
		s.Fatal(err)
	}
	f.DecRef()
	return f
}

func TestPermissions(t *testing.T) {
	s := newSandbox(t, 1, "")
	user := s.process("e", 1000, "/prog")
	if got := s.read(user, "/proc/self/environ"); got != "A=1\x00SECRET=x\x00" {
		t.Errorf("own environment: %q", got)
	}
	for name, want := range map[string]error{
		"/proc/1/environ": unix.EACCES, "/proc/1/maps": unix.EACCES, "/proc/1/mem": unix.EACCES,
		"/proc/1/fd": unix.EACCES, "/proc/1/cwd": unix.EACCES, "/proc/1/exe": unix.EACCES,
		"/proc/3": unix.ENOENT, "/proc/01": unix.ENOENT, "/proc/+1": unix.ENOENT,
	} {
		if f, err := s.open(user, name, unix.O_RDONLY); err != want {
			t.Errorf("%s: %v, want %v", name, err, want)
			if err == nil {
				f.DecRef()
			}
		}
	}
	if st := s.read(user, "/proc/1/stat"); len(strings.Fields(st)) != 52 {
		t.Errorf("stat: %q", st)
	}
	if err := s.write(user, "/proc/sys/kernel/shmmni", "1"); err != unix.EACCES {
		t.Errorf("sysctl: %v", err)
	}
	if err := s.write(user, "/proc/self/oom_score_adj", "-5"); err != unix.EACCES {
		t.Errorf("oom_score_adj: %v", err)
	}
	st, err := vfs.StatAt(user, vfs.At{FS: user.FS(), Name: "/proc/2"}, unix.STATX_BASIC_STATS)
	if err != nil || st.UID != 1000 || st.Nlink < 7 {
		t.Errorf("stat of /proc/2: %+v, %v", st, err)
	}
	for _, hide := range []struct {
		option string
		want   error
	}{{"hidepid=1", unix.EPERM}, {"hidepid=invisible", unix.ENOENT}} {
		fs, err := s.sys.newFS(s.c, s.c.PIDNamespace(), "proc", hide.option)
		if err != nil {
			t.Fatal(err)
		}
		if err := vfs.MountAt(vfs.KernelCaller(), vfs.At{FS: s.ctx, Name: "/etc"}, fs, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := s.tryRead(user, "/etc/1/stat"); err != hide.want {
			t.Errorf("%s: %v, want %v", hide.option, err, hide.want)
		}
		if got := s.read(user, "/etc/self/comm"); got != "prog\n" {
			t.Errorf("%s: own comm %q", hide.option, got)
		}
		listed := fmt.Sprint(s.list(user, "/etc"))
		if strings.Contains(listed, "{1 ") != (hide.want == unix.EPERM) {
			t.Errorf("%s: %s", hide.option, listed)
		}
	}
	for _, bad := range []string{"hidepid=3", "gid=x", "foo"} {
		if _, err := s.sys.newFS(s.c, s.c.PIDNamespace(), "proc", bad); err != unix.EINVAL {
			t.Errorf("option %q: %v", bad, err)
		}
	}
}

func TestSysctl(t *testing.T) {
	s := newSandbox(t, 1, "")
	tests := []struct {
		name, value string
		want        error
		reads       string
	}{
		{"kernel/hostname", "new\n", nil, "new\n"},
		{"kernel/shmmni", "128", nil, "128\n"},
		{"kernel/shmmni", "99999999", unix.EINVAL, "128\n"},
		{"kernel/shmmni", "x", unix.EINVAL, "128\n"},
		{"kernel/shmmni", "  0x40 \n", nil, "64\n"},
		{"kernel/shmmni", "12a", unix.EINVAL, "64\n"},
		{"kernel/shmmni", " \n", unix.EINVAL, "64\n"},
		{"kernel/shmmni", "010", nil, "8\n"},
		{"kernel/shmmni", "-1", unix.EINVAL, "8\n"},
		{"kernel/shmmni", "99999999999999999999999", unix.EINVAL, "8\n"},
		{"kernel/panic", "-5", nil, "-5\n"},
		{"kernel/sem", "7 x", unix.EINVAL, "7\t1024000000\t500\t32000\n"},
		{"fs/file-max", "-3", nil, "9223372036854775807\n"},
		{"fs/pipe-max-size", "5000", nil, "8192\n"},
		{"kernel/pid_max", "300", unix.EINVAL, "4194304\n"},
		{"kernel/pid_max", "400", nil, "400\n"},
		{"fs/inotify/max_user_watches", "99", nil, "99\n"},
		{"user/max_inotify_watches", "98", nil, "98\n"},
		{"kernel/sem", "1 2", nil, "1\t2\t500\t32000\n"},
		{"kernel/ostype", "BSD", unix.EPERM, "Linux\n"},
		{"net/ipv4/ip_local_port_range", "2000 3000\n", nil, "2000\t3000\n"},
		{"kernel/core_pattern", "/tmp/core\nrest", nil, "/tmp/core\n"},
		{"vm/max_map_count", "262144", nil, "262144\n"},
	}
	for _, x := range tests {
		name := "/proc/sys/" + x.name
		if err := s.write(s.init, name, x.value); err != x.want {
			t.Errorf("write %q to %s: %v, want %v", x.value, x.name, err, x.want)
		}
		if got := s.read(s.init, name); got != x.reads {
			t.Errorf("%s is %q, want %q", x.name, got, x.reads)
		}
	}
	if host, _ := s.c.UTS().Names(); host != "new" {
		t.Errorf("host name %q", host)
	}
	if s.sys.Sysctls(s.c).Get("vm/max_map_count") != "262144" || s.sys.Sysctls(s.c).Get("vm/swappiness") != "60" {
		t.Error("Sysctls.Get")
	}
	a, b := s.read(s.init, "/proc/sys/kernel/random/uuid"), s.read(s.init, "/proc/sys/kernel/random/uuid")
	if len(a) != 37 || a == b {
		t.Errorf("uuids %q, %q", a, b)
	}
	if a, b := s.read(s.init, "/proc/sys/kernel/random/boot_id"), s.read(s.init, "/proc/sys/kernel/random/boot_id"); a != b {
		t.Errorf("boot ids %q, %q", a, b)
	}
	// One directory's rows are together: every name comes once.
	for _, d := range []string{"/proc/sys", "/proc/sys/kernel", "/proc/sys/net/ipv4", "/proc/sys/vm"} {
		seen := map[string]bool{}
		for _, e := range s.list(s.init, d) {
			if seen[e.Name] {
				t.Errorf("%s twice in %s", e.Name, d)
			}
			seen[e.Name] = true
		}
	}
}

func TestErrors(t *testing.T) {
	s := newSandbox(t, 1, "")
	at := func(name string) vfs.At { return vfs.At{FS: s.init.FS(), Name: name} }
	if _, err := vfs.OpenAt(s.init, at("/proc/x"), unix.O_CREAT|unix.O_WRONLY, 0o644); err != unix.ENOENT {
		t.Errorf("create: %v", err)
	}
	if err := vfs.MkdirAt(s.init, at("/proc/x"), 0o755); err != unix.ENOENT {
		t.Errorf("mkdir: %v", err)
	}
	if err := vfs.UnlinkAt(s.init, at("/proc/uptime")); err != unix.EPERM {
		t.Errorf("unlink: %v", err)
	}
	if err := vfs.RmdirAt(s.init, at("/proc/sys")); err != unix.EPERM {
		t.Errorf("rmdir: %v", err)
	}
	if err := vfs.ChmodAt(s.init, at("/proc/1/stat"), 0o600); err != unix.EPERM {
		t.Errorf("chmod: %v", err)
	}
}

func TestCPUMask(t *testing.T) {
	for n, want := range map[int]string{1: "1", 2: "3", 4: "f", 8: "ff", 32: "ffffffff", 33: "1,ffffffff", 64: "ffffffff,ffffffff", 70: "3f,ffffffff,ffffffff"} {
		if got := cpuMask(affinity(nil, n)); got != want {
			t.Errorf("cpuMask of %d is %s, want %s", n, got, want)
		}
	}
	if got := cpuList([]bool{true, false, true, true, true, false, true}); got != "0,2-4,6" {
		t.Error(got)
	}
}

// TestSysctlOffsets compares positions and short calls with Linux's.
func TestSysctlOffsets(t *testing.T) {
	s := newSandbox(t, 1, "")
	open := func(name string) *vfs.File {
		f, err := s.open(s.init, "/proc/sys/"+name, unix.O_RDWR)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	read := func(f *vfs.File, n int, off int64) string {
		b := make([]byte, n)
		buf := mem.KernelBuf(b)
		k, err := f.ReadAt(s.init, &buf, off)
		if err != nil {
			t.Error(err)
		}
		return string(b[:k])
	}
	write := func(f *vfs.File, text string, off int64) (int, error) {
		buf := mem.KernelBuf([]byte(text))
		return f.WriteAt(s.init, &buf, off)
	}
	n := open("vm/swappiness")
	if a, b, c := read(n, 1, 0), read(n, 1, 1), read(n, 9, 0); a != "6" || b != "" || c != "60\n" {
		t.Errorf("reads of a number: %q %q %q", a, b, c)
	}
	if k, err := write(n, "5 abc", 0); k != 2 || err != nil || read(n, 9, 0) != "5\n" {
		t.Errorf("a number and a word: %d, %v, %q", k, err, read(n, 9, 0))
	}
	if k, err := write(n, "7", 3); k != 1 || err != nil || read(n, 9, 0) != "5\n" {
		t.Errorf("write at 3: %d, %v", k, err)
	}
	if k, err := write(n, "", 0); k != 0 || err != nil {
		t.Errorf("empty write: %d, %v", k, err)
	}
	if _, err := write(n, strings.Repeat("x", 64<<10), 0); err != unix.EINVAL {
		t.Errorf("64 KiB: %v", err)
	}
	if k, err := write(n, "9"+strings.Repeat(" ", 64<<10), 0); k != 4095 || err != nil {
		t.Errorf("64 KiB of spaces: %d, %v", k, err)
	}
	n.DecRef()
	n = open("kernel/core_pattern")
	if a, b := read(n, 2, 1), read(n, 9, 4); a != "or" || b != "\n" {
		t.Errorf("reads of a text: %q %q", a, b)
	}
	if k, err := write(n, "XY", 2); k != 2 || err != nil || read(n, 9, 0) != "coXY\n" {
		t.Errorf("write in a text: %d, %v, %q", k, err, read(n, 9, 0))
	}
	n.DecRef()
	if got := s.init.Tunables().PipeMaxSize.Load(); got != 1<<20 {
		t.Error(got)
	}
	for name, v := range map[string]string{"vm/max_map_count": "70000", "vm/overcommit_memory": "2", "fs/nr_open": "2048", "kernel/threads-max": "50"} {
		if err := s.write(s.init, "/proc/sys/"+name, v); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	p := s.c.Account().Policy()
	if p.MaxMapCount.Load() != 70000 || p.Overcommit.Load() != mem.OvercommitNever || s.init.Tunables().NrOpen.Load() != 2048 || s.c.Tunables().ThreadsMax.Load() != 50 {
		t.Error("a setting has no effect")
	}
}

// TestSettings writes what can be written of a process.
func TestSettings(t *testing.T) {
	s := newSandbox(t, 4, "")
	s.init.CountRead(7)
	s.init.CountWrite(5)
	if err := s.init.SetAffinity([]byte{0b1010}); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		name, value string
		want        error
		reads       string
	}{
		{"coredump_filter", "0x7f\n", nil, "0000007f\n"},
		{"coredump_filter", "x", unix.EINVAL, "0000007f\n"},
		{"oom_score_adj", "12\n", nil, "12\n"},
		{"oom_score_adj", "1_0", unix.EINVAL, "12\n"},
		{"oom_score_adj", "1001", unix.EINVAL, "12\n"},
		{"oom_adj", "-17", nil, "-17\n"},
		{"oom_score_adj", " -0x10 ", nil, "-16\n"},
		{"timerslack_ns", "77", nil, "77\n"},
		{"timerslack_ns", "0", nil, "50000\n"},
		{"timerslack_ns", "0x9", unix.EINVAL, "50000\n"},
		{"loginuid", "1000", nil, "1000"},
		{"sessionid", "", nil, "1"},
		{"loginuid", "4294967295", nil, "4294967295"},
		{"setgroups", "allow", nil, "allow\n"},
		{"setgroups", "deny", unix.EPERM, "allow\n"},
		{"setgroups", "nonsense", unix.EINVAL, "allow\n"},
		{"uid_map", "0 0 1", unix.EPERM, "         0          0 4294967295\n"},
		{"autogroup", "5", nil, "/autogroup-1 nice 0\n"},
		{"comm", "a name that is too long", nil, "a name that is \n"},
		{"io", "", nil, "rchar: 7\nwchar: 5\nsyscr: 1\nsyscw: 1\nread_bytes: 0\nwrite_bytes: 0\ncancelled_write_bytes: 0\n"},
	} {
		name := "/proc/self/" + x.name
		if x.value != "" {
			if err := s.write(s.init, name, x.value); err != x.want {
				t.Errorf("write %q to %s: %v, want %v", x.value, x.name, err, x.want)
			}
		}
		if got := s.read(s.init, name); got != x.reads {
			t.Errorf("%s is %q, want %q", x.name, got, x.reads)
		}
	}
	for name, want := range map[string]error{"attr/current": unix.EINVAL, "clear_refs": unix.EINVAL} {
		if err := s.write(s.init, "/proc/self/"+name, "9"); err != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := s.write(s.init, "/proc/self/clear_refs", "5"); err != nil {
		t.Error(err)
	}
	if st := s.read(s.init, "/proc/1/status"); !strings.Contains(st, "\nCpus_allowed:\ta\nCpus_allowed_list:\t1,3\n") || !strings.Contains(st, "\nGroups:\t \n") {
		t.Errorf("status:\n%s", st)
	}
	if got := s.link(s.init, "/proc/1/map_files/400000-401000"); got != "/prog" {
		t.Errorf("map_files: %q", got)
	}
	f, err := s.open(s.init, "/proc/self/pagemap", unix.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	defer f.DecRef()
	var b [16]byte
	buf := mem.KernelBuf(b[:])
	if n, err := f.ReadAt(s.init, &buf, 0x400*8); n != 16 || err != nil || binary.LittleEndian.Uint64(b[8:]) != 0 {
		t.Errorf("pagemap: %d, %v, %x", n, err, b)
	}
	buf = mem.KernelBuf(b[:5])
	if _, err := f.ReadAt(s.init, &buf, 0); err != unix.EINVAL {
		t.Errorf("pagemap by 5: %v", err)
	}
}
