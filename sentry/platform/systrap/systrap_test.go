package systrap

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"runsc/sentry/arch"
	"runsc/sentry/platform"
)

// guest is one address space with a file behind it: page i of the file is to
// be mapped at codeAddr+i*pageSize.
type guest struct {
	t   testing.TB
	p   *Platform
	g   platform.Group
	as  platform.AddressSpace
	mem []byte
	fd  int
}

const (
	codeAddr  = 0x400000
	dataAddr  = codeAddr + 0x10000 // file offset 0x10000
	guestSize = 0x40000
)

func newPlatform(t testing.TB) *Platform {
	t.Helper()
	p, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func newGuest(t testing.TB, p *Platform, code []byte) *guest {
	t.Helper()
	g, err := p.NewGroup()
	if err != nil {
		t.Fatal(err)
	}
	return newGuestIn(t, p, g, code)
}

func newGuestIn(t testing.TB, p *Platform, g platform.Group, code []byte) *guest {
	t.Helper()
	fd, err := unix.MemfdCreate("guest", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(fd, guestSize); err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(fd, 0, guestSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	copy(mem, code)
	p.KeepFD(fd)
	as, err := g.NewAddressSpace()
	if err != nil {
		t.Fatal(err)
	}
	gu := &guest{t, p, g, as, mem, fd}
	t.Cleanup(func() {
		as.Release()
		unix.Munmap(mem)
		unix.Close(fd)
	})
	if err := as.Map(codeAddr, pageSize, fd, 0, platform.Read|platform.Exec, false); err != nil {
		t.Fatal(err)
	}
	return gu
}

func (g *guest) thread() (platform.Context, *arch.Regs) {
	return g.p.NewContext(), &arch.Regs{Rip: codeAddr, Rsp: dataAddr + 0x8000}
}

// code concatenates machine code.
func code(parts ...[]byte) []byte {
	var out []byte
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

var (
	movEaxGetpid = []byte{0xb8, 39, 0, 0, 0} // mov $39,%eax
	syscallInsn  = []byte{0x0f, 0x05}
	ud2          = []byte{0x0f, 0x0b}
	getpidLoop   = code(movEaxGetpid, syscallInsn, []byte{0xeb, 0xf7}) // jmp to the start
	spinForever  = []byte{0xeb, 0xfe}
)

func TestSyscallLoop(t *testing.T) {
	p := newPlatform(t)
	g := newGuest(t, p, getpidLoop)
	c, regs := g.thread()
	defer c.Release()
	regs.Rdi, regs.R9, regs.Rbx = 1, 2, 3
	for i := range 1000 {
		ev, err := c.Switch(g.as, regs)
		if err != nil {
			t.Fatal(err)
		}
		if ev.Kind != platform.EventSyscall || ev.Compat {
			t.Fatalf("%d: event %+v, regs %+v", i, ev, regs)
		}
		if regs.OrigRax != 39 || regs.Rax != 39 || regs.Rip != codeAddr+7 || regs.Rcx != codeAddr+7 ||
			regs.Rdi != 1 || regs.R9 != 2 || regs.Rbx != 3 {
			t.Fatalf("%d: regs %+v", i, regs)
		}
		regs.SetReturn(uint64(i))
	}
}

func BenchmarkSyscall(b *testing.B) {
	p := newPlatform(b)
	g := newGuest(b, p, getpidLoop)
	c, regs := g.thread()
	defer c.Release()
	b.ReportAllocs()
	for b.Loop() {
		ev, err := c.Switch(g.as, regs)
		if err != nil || ev.Kind != platform.EventSyscall {
			b.Fatal(ev, err)
		}
	}
	_ = time.Now
}
