package loader

import (
	"bytes"
	"encoding/binary"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"runsc/pkg/abi"
	"runsc/sentry/arch"
	"runsc/sentry/mem"
	"runsc/sentry/mm"
	"runsc/sentry/platform"
	"runsc/sentry/platform/systrap"
)

func testLimits(r int) uint64 {
	if r == unix.RLIMIT_STACK {
		return 8 << 20
	}
	return ^uint64(0)
}

// runHost runs a program of the host on the real platform with a kernel that
// knows just enough to let it print and exit.
func runHost(t *testing.T, argv ...string) (string, int) {
	return runDisturbed(t, nil, argv...)
}

// runDisturbed is runHost with a function that may put another address space
// in the place of the program's before each call is answered.
func runDisturbed(t *testing.T, disturb func(*hostRun), argv ...string) (string, int) {
	if _, err := os.Stat(argv[0]); err != nil {
		t.Skip(err)
	}
	mf, err := mem.New()
	if err != nil {
		t.Fatal(err)
	}
	p, err := systrap.New(systrap.Options{KeepFDs: []int{mf.FD()}})
	if err != nil {
		t.Skip("no systrap here: ", err)
	}
	defer p.Close()
	g, err := p.NewGroup()
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	acct := mem.NewAccount(nil, 0)
	m := mm.New(mf, acct, g, testLimits)
	exe, err := openHost(argv[0])
	if err != nil {
		t.Fatal(err)
	}
	e := &Exec{
		File: exe, Filename: argv[0], Argv: argv, Envv: []string{"PATH=/bin", "LANG=C"}, Open: openHost,
		StackLimit: 8 << 20, VDSO: testVDSO(t, mf),
	}
	if err := e.Prepare(); err != nil {
		t.Fatal(err)
	}
	img, err := e.Load(m)
	if err != nil {
		t.Fatal(err)
	}
	as, err := m.AddressSpace()
	if err != nil {
		t.Fatal(err)
	}
	ctx := p.NewContext()
	r := &hostRun{t: t, mm: m, vdso: e.VDSO, group: g, acct: acct}
	defer func() { r.mm.DecUsers() }()
	defer ctx.Release()
	regs := arch.Regs{Rip: img.Entry, Rsp: img.SP, Eflags: 0x202}
	var out bytes.Buffer
	files := map[int]*hostExe{}
	faults, calls, clocks := 0, 0, 0
	for {
		ev, err := ctx.Switch(as, &regs)
		if err != nil {
			t.Fatal(err)
		}
		switch ev.Kind {
		case platform.EventFault:
			faults++
			if err := m.HandleFault(ev.Addr, ev.Access); err != nil {
				t.Fatalf("fault at %#x access %d rip %#x: %v", ev.Addr, ev.Access, regs.Rip, err)
			}
		case platform.EventInterrupt:
		case platform.EventSignal:
			t.Fatalf("signal %d code %d at %#x rip %#x", ev.Signal, ev.Code, ev.Addr, regs.Rip)
		case platform.EventSyscall:
			if calls++; calls > 10000 {
				t.Fatal("the program does not end")
			}
			if disturb != nil {
				disturb(r)
				m, e.VDSO = r.mm, r.vdso
				if as, err = m.AddressSpace(); err != nil {
					t.Fatal(err)
				}
			}
			a := regs.Args()
			ret := miniCall(t, m, &regs, a, &out, files)
			if regs.OrigRax == unix.SYS_GETTIMEOFDAY || regs.OrigRax == unix.SYS_CLOCK_GETTIME {
				clocks++
				now := time.Now().UnixNano()
				tv := unix.NsecToTimeval(now)
				_, _ = m.CopyOut(a[0], abi.Bytes(&tv))
				e.VDSO.Refresh()
				ret = 0
			}
			if regs.OrigRax == unix.SYS_EXIT_GROUP {
				t.Logf("%d clock calls", clocks)
				t.Logf("%s: %d faults, %d calls, %+v", argv[0], faults, calls, m.Usage())
				return out.String(), int(a[0])
			}
			regs.SetReturn(uint64(ret))
		}
	}
}

// hostRun is a program that runs.
type hostRun struct {
	t     *testing.T
	mm    *mm.MM
	vdso  VDSO
	group platform.Group
	acct  *mem.Account
}

func miniCall(t *testing.T, m *mm.MM, regs *arch.Regs, a [6]uint64, out *bytes.Buffer, files map[int]*hostExe) int64 {
	res := func(v uint64, err error) int64 {
		if e, ok := err.(unix.Errno); ok {
			return -int64(e)
		}
		return int64(v)
	}
	prot := platform.Prot(a[2] & 7)
	switch regs.OrigRax {
	case unix.SYS_BRK:
		return int64(m.Brk(a[0]))
	case unix.SYS_MMAP:
		o := mm.MMapOpts{
			Addr: a[0], Len: a[1], Prot: prot, Fixed: a[3]&unix.MAP_FIXED != 0, Shared: a[3]&unix.MAP_SHARED != 0,
			Off: a[5], Stable: a[3]&unix.MAP_DENYWRITE != 0,
		}
		if a[3]&unix.MAP_ANONYMOUS == 0 {
			f := files[int(a[4])]
			if f == nil {
				return -int64(unix.EBADF)
			}
			o.File = f
		} else {
			o.Off = 0
		}
		return res(m.MMap(o))
	case unix.SYS_MUNMAP:
		return res(0, m.MUnmap(a[0], a[1]))
	case unix.SYS_MPROTECT:
		return res(0, m.MProtect(a[0], a[1], prot, false))
	case unix.SYS_ARCH_PRCTL:
		if a[0] != 0x1002 {
			return -int64(unix.EINVAL)
		}
		regs.FsBase = a[1]
		return 0
	case unix.SYS_SET_TID_ADDRESS, unix.SYS_GETPID, unix.SYS_GETTID:
		return 1
	case unix.SYS_GETUID, unix.SYS_GETEUID, unix.SYS_GETGID, unix.SYS_GETEGID, unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK,
		unix.SYS_SET_ROBUST_LIST, unix.SYS_FUTEX, unix.SYS_PRLIMIT64, unix.SYS_CLOSE:
		return 0
	case unix.SYS_GETRANDOM:
		n, _ := m.CopyOut(a[0], bytes.Repeat([]byte{7}, int(a[1]&0xff)))
		return int64(n)
	case unix.SYS_WRITE:
		b := make([]byte, min(a[2], 1<<20))
		n, err := m.CopyIn(b, a[1])
		out.Write(b[:n])
		return res(uint64(n), err)
	case unix.SYS_WRITEV:
		total := int64(0)
		for i := uint64(0); i < a[2] && i < 16; i++ {
			var v [16]byte
			m.CopyIn(v[:], a[1]+16*i)
			b := make([]byte, min(binary.LittleEndian.Uint64(v[8:]), 1<<20))
			m.CopyIn(b, binary.LittleEndian.Uint64(v[:]))
			out.Write(b)
			total += int64(len(b))
		}
		return total
	case unix.SYS_OPENAT:
		var b [256]byte
		m.CopyIn(b[:], a[1])
		name, _, _ := strings.Cut(string(b[:]), "\x00")
		x, err := openHost(name)
		if err != nil {
			return res(0, err)
		}
		fd := 3 + len(files)
		files[fd] = x.(*hostExe)
		return int64(fd)
	case unix.SYS_READ, unix.SYS_PREAD64:
		f := files[int(a[0])]
		if f == nil {
			return 0
		}
		b := make([]byte, min(a[2], 1<<20))
		off := f.pos
		if regs.OrigRax == unix.SYS_PREAD64 {
			off = int64(a[3])
		}
		n, _ := f.ReadAtKernel(b, off)
		if regs.OrigRax == unix.SYS_READ {
			f.pos += int64(n)
		}
		k, err := m.CopyOut(a[1], b[:n])
		return res(uint64(k), err)
	case unix.SYS_NEWFSTATAT, unix.SYS_FSTAT:
		f := files[int(a[0])]
		if f == nil {
			return -int64(unix.ENOENT)
		}
		var st [144]byte
		binary.LittleEndian.PutUint64(st[8:], uint64(f.f.Fd()))
		binary.LittleEndian.PutUint32(st[24:], unix.S_IFREG|0o755)
		binary.LittleEndian.PutUint64(st[48:], uint64(f.size))
		addr := a[1]
		if regs.OrigRax == unix.SYS_NEWFSTATAT {
			addr = a[2]
		}
		_, err := m.CopyOut(addr, st[:])
		return res(0, err)
	}
	return -int64(unix.ENOSYS)
}

func TestRunStatic(t *testing.T) {
	out, code := runHost(t, "/usr/bin/busybox", "echo", "hello", "world")
	if out != "hello world\n" || code != 0 {
		t.Errorf("%q, exit %d", out, code)
	}
}

func TestRunDynamic(t *testing.T) {
	out, code := runHost(t, "/usr/bin/echo", "hello", "dynamic")
	if out != "hello dynamic\n" || code != 0 {
		t.Errorf("%q, exit %d", out, code)
	}
}

func TestRunBash(t *testing.T) {
	out, code := runHost(t, "/usr/bin/bash", "--norc", "--noprofile", "-c", "x=1; for i in 1 2 3 4; do x=$((x*i)); done; echo $x; exit 5")
	if !strings.HasSuffix(out, "24\n") || code != 5 {
		t.Errorf("%q, exit %d", out, code)
	}
}

// TestClocks reads clocks through the vDSO.
func TestClocks(t *testing.T) {
	before := time.Now()
	out, _ := runHost(t, "/usr/bin/bash", "--norc", "--noprofile", "-c",
		"for i in {1..300}; do echo $EPOCHREALTIME; done; for i in {1..20000}; do :; done; for i in {1..300}; do echo $EPOCHREALTIME; done")
	after := time.Now()
	last := before
	n := 0
	for _, l := range strings.Fields(out) {
		if len(l) != 17 || l[10] != '.' {
			continue
		}
		us, err := strconv.ParseInt(l[:10]+l[11:], 10, 64)
		if err != nil {
			continue
		}
		now := time.UnixMicro(us)
		if now.Before(last.Truncate(time.Microsecond)) || now.After(after) {
			t.Fatalf("time %v after %v, before %v", now, last, after)
		}
		last = now
		n++
	}
	if n != 600 {
		t.Errorf("%d times", n)
	}
}
