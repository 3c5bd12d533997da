package systrap

import (
	"testing"

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

// run expects the next event to be of that kind.
func (g *guest) run(c platform.Context, regs *arch.Regs, want platform.EventKind) platform.Event {
	g.t.Helper()
	ev, err := c.Switch(g.as, regs)
	if err != nil {
		g.t.Fatalf("Switch: %v", err)
	}
	if ev.Kind != want {
		g.t.Fatalf("event %+v, want kind %d; rip %#x", ev, want, regs.Rip)
	}
	return ev
}

// mapData maps n pages of the file at dataAddr.
func (g *guest) mapData(n uint64, prot platform.Prot) {
	g.t.Helper()
	if err := g.as.Map(dataAddr, n*pageSize, g.fd, dataAddr-codeAddr, prot, false); err != nil {
		g.t.Fatal(err)
	}
}

func (g *guest) data() []byte { return g.mem[dataAddr-codeAddr:] }

func TestFaultMapResume(t *testing.T) {
	p := newPlatform(t)
	g := newGuest(t, p, storeLoad)
	c, regs := g.thread()
	defer c.Release()
	regs.Rax = dataAddr
	ev := g.run(c, regs, platform.EventFault)
	if ev.Addr != dataAddr || ev.Access != platform.Write || ev.Signal != int32(unix.SIGSEGV) || regs.Rip != codeAddr {
		t.Fatalf("event %+v, rip %#x", ev, regs.Rip)
	}
	// A read-only mapping faults again, now with a mapping.
	g.mapData(1, platform.Read)
	ev = g.run(c, regs, platform.EventFault)
	if ev.Addr != dataAddr || ev.Access != platform.Write || ev.Code != 2 {
		t.Fatalf("event %+v", ev)
	}
	if err := g.as.Protect(dataAddr, pageSize, platform.Read|platform.Write); err != nil {
		t.Fatal(err)
	}
	g.run(c, regs, platform.EventSyscall)
	if regs.Rbx != 42 || g.data()[0] != 42 {
		t.Fatalf("rbx %d, memory %d", regs.Rbx, g.data()[0])
	}
	// Gone again, both ways.
	for _, take := range []func() error{
		func() error { return g.as.Unmap(dataAddr, pageSize) },
		func() error { return g.as.Protect(dataAddr-8*pageSize, 16*pageSize, 0) },
	} {
		g.mapData(1, platform.Read|platform.Write)
		regs.Rip = codeAddr
		regs.Rax = dataAddr
		g.run(c, regs, platform.EventSyscall)
		if err := take(); err != nil {
			t.Fatal(err)
		}
		regs.Rip = codeAddr
		regs.Rax = dataAddr
		g.run(c, regs, platform.EventFault)
	}
	// Execution of a page that is not there.
	regs.Rip = dataAddr + pageSize
	ev = g.run(c, regs, platform.EventFault)
	if ev.Access != platform.Exec || ev.Addr != regs.Rip {
		t.Fatalf("event %+v", ev)
	}
}

func TestMapArguments(t *testing.T) {
	p := newPlatform(t)
	g := newGuest(t, p, storeLoad)
	for _, tt := range []struct {
		name    string
		addr, n uint64
		off     int64
	}{
		{"empty", dataAddr, 0, 0},
		{"unaligned", dataAddr + 1, pageSize, 0},
		{"length", dataAddr, 100, 0},
		{"offset", dataAddr, pageSize, 7},
		{"stub", p.base, pageSize, 0},
		{"top", arch.GuestTop - pageSize, 2 * pageSize, 0},
		{"wrap", dataAddr, ^uint64(pageSize - 1), 0},
		{"high", 1 << 63, pageSize, 0},
	} {
		if err := g.as.Map(tt.addr, tt.n, g.fd, tt.off, platform.Read, false); err != unix.EINVAL {
			t.Errorf("%s: Map: %v", tt.name, err)
		}
		if tt.off == 0 {
			if err := g.as.Unmap(tt.addr, tt.n); err != unix.EINVAL {
				t.Errorf("%s: Unmap: %v", tt.name, err)
			}
			if err := g.as.Protect(tt.addr, tt.n, platform.Read); err != unix.EINVAL {
				t.Errorf("%s: Protect: %v", tt.name, err)
			}
		}
	}
}

func TestSegmentBases(t *testing.T) {
	p := newPlatform(t)
	g := newGuest(t, p, code(fsLoad, wrBases))
	g.mapData(2, platform.Read|platform.Write)
	copy(g.data(), "fs--base")
	copy(g.data()[pageSize+8:], "gs--base")
	c, regs := g.thread()
	defer c.Release()
	regs.FsBase, regs.GsBase = dataAddr, dataAddr+pageSize
	g.run(c, regs, platform.EventSyscall)
	if s := string(le64(regs.R12)) + string(le64(regs.Rbx)); s != "fs--basegs--base" {
		t.Fatalf("loaded %q", s)
	}
	if p.slotFlags&flagFSGSBase == 0 {
		t.Skip("no FSGSBASE")
	}
	regs.Rip = codeAddr + uint64(len(fsLoad))
	regs.Rdi, regs.Rsi = 0x1234000, 0xffff_8000_0000_0000
	g.run(c, regs, platform.EventSyscall)
	if regs.FsBase != 0x1234000 || regs.GsBase != 0xffff_8000_0000_0000 {
		t.Fatalf("bases %#x %#x", regs.FsBase, regs.GsBase)
	}
	// A base that is not an address is not loaded.
	regs.FsBase = 1 << 60
	regs.Rip = codeAddr
	regs.GsBase = dataAddr
	g.run(c, regs, platform.EventFault)
}

// TestSegmentBasesOld runs the path of hosts without FSGSBASE.
func TestSegmentBasesOld(t *testing.T) {
	p := newPlatform(t)
	p.slotFlags &^= flagFSGSBase
	g := newGuest(t, p, fsLoad)
	g.mapData(2, platform.Read|platform.Write)
	copy(g.data(), "fs--base")
	copy(g.data()[pageSize+8:], "gs--base")
	c, regs := g.thread()
	defer c.Release()
	regs.FsBase, regs.GsBase = dataAddr, dataAddr+pageSize
	g.run(c, regs, platform.EventSyscall)
	if s := string(le64(regs.R12)) + string(le64(regs.Rbx)); s != "fs--basegs--base" {
		t.Fatalf("loaded %q", s)
	}
	if regs.FsBase != dataAddr || regs.GsBase != dataAddr+pageSize {
		t.Fatalf("bases %#x %#x", regs.FsBase, regs.GsBase)
	}
}

func le64(v uint64) []byte {
	b := make([]byte, 8)
	for i := range b {
		b[i] = byte(v >> (8 * i))
	}
	return b
}

func TestFPState(t *testing.T) {
	p := newPlatform(t)
	if p.fp.features&4 == 0 {
		t.Skip("no AVX")
	}
	g := newGuest(t, p, avxKeep)
	g.mapData(1, platform.Read|platform.Write)
	c, regs := g.thread()
	defer c.Release()
	if c.FPState() != nil {
		t.Fatal("a new context has FP state")
	}
	regs.Rdi = dataAddr
	g.run(c, regs, platform.EventSyscall)
	fp := c.FPState()
	if fp == nil {
		t.Fatal("no FP state")
	}
	after := *regs
	check := func(name string, as platform.AddressSpace, c platform.Context, want byte) {
		t.Helper()
		clear(g.data()[:32])
		r := after
		if ev, err := c.Switch(as, &r); err != nil || ev.Kind != platform.EventSyscall {
			t.Fatalf("%s: %+v %v", name, ev, err)
		}
		for i, b := range g.data()[:32] {
			if b != want {
				t.Fatalf("%s: byte %d is %#x", name, i, b)
			}
		}
	}
	check("same thread", g.as, c, 0xff)

	child := p.NewContext()
	defer child.Release()
	if err := child.SetFPState(fp); err != nil {
		t.Fatal(err)
	}
	check("child", g.as, child, 0xff)

	fresh := p.NewContext()
	check("new thread", g.as, fresh, 0)
	fresh.Release()
	reused := p.NewContext() // on the parked thread
	check("reused thread", g.as, reused, 0)
	reused.Release()

	// The state follows the context into another address space.
	g2 := newGuestIn(t, p, g.g, avxKeep)
	if err := g2.as.Map(dataAddr, pageSize, g.fd, dataAddr-codeAddr, platform.Read|platform.Write, false); err != nil {
		t.Fatal(err)
	}
	check("moved", g2.as, child, 0xff)
	check("moved back", g.as, child, 0xff)
	if err := child.SetFPState(nil); err != nil {
		t.Fatal(err)
	}
	check("reset", g.as, child, 0)
	// And survives the address space.
	g3 := newGuestIn(t, p, g.g, avxKeep)
	g3.mapData(1, platform.Read|platform.Write)
	c3, r3 := g3.thread()
	defer c3.Release()
	r3.Rdi = dataAddr
	g3.run(c3, r3, platform.EventSyscall)
	g3.as.Release()
	check("released", g.as, c3, 0xff)
}

func TestFPStateChecked(t *testing.T) {
	l := hostFPLayout()
	if l.features == 0 {
		t.Skip("no XSAVE")
	}
	valid := func() []byte {
		b, err := l.check(make([]byte, fxSize))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, tt := range []struct {
		name string
		edit func(b []byte) []byte
	}{
		{"short", func(b []byte) []byte { return b[:100] }},
		{"mxcsr", func(b []byte) []byte { b[fxMXCSR+3] = 1; return b }},
		{"feature", func(b []byte) []byte { b[xhdrBV+7] = 0x40; return b }},
		{"compacted", func(b []byte) []byte { b[xcompactBV+7] = 0x80; return b }},
		{"reserved", func(b []byte) []byte { b[fxSize+40] = 1; return b }},
		{"magic2", func(b []byte) []byte { b[l.size] = 0; return b }},
		{"size", func(b []byte) []byte { b[fxReserved+18] = 0xff; return b }},
		{"cut", func(b []byte) []byte { return b[:len(b)-1] }},
	} {
		if _, err := l.check(tt.edit(valid())); err != unix.EINVAL {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	if _, err := l.check(valid()); err != nil {
		t.Error(err)
	}
}

func TestExceptions(t *testing.T) {
	p := newPlatform(t)
	gr, err := p.NewGroup()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		code []byte
		sig  unix.Signal
		rip  uint64 // relative
	}{
		{"ud2", []byte{0x0f, 0x0b}, unix.SIGILL, 0},
		{"int3", []byte{0xcc}, unix.SIGTRAP, 1},
		{"hlt", []byte{0xf4}, unix.SIGSEGV, 0},
		{"in", []byte{0xec}, unix.SIGSEGV, 0},
		{"div", div0, unix.SIGFPE, 2},
		{"not canonical", []byte{0x48, 0x8b, 0x03}, unix.SIGSEGV, 0}, // mov rax, [rbx]
	} {
		g := newGuestIn(t, p, gr, tt.code)
		c, regs := g.thread()
		regs.Rbx = 1 << 62
		ev := g.run(c, regs, platform.EventSignal)
		if ev.Signal != int32(tt.sig) || regs.Rip != codeAddr+tt.rip || regs.OrigRax != ^uint64(0) {
			t.Errorf("%s: %+v at %#x", tt.name, ev, regs.Rip)
		}
		c.Release()
	}
	// Single step.
	g := newGuestIn(t, p, gr, getpidLoop)
	c, regs := g.thread()
	defer c.Release()
	regs.Eflags = 0x100
	ev := g.run(c, regs, platform.EventSignal)
	if ev.Signal != int32(unix.SIGTRAP) || regs.Rip != codeAddr+5 || regs.Eflags&0x100 == 0 {
		t.Errorf("step: %+v at %#x", ev, regs.Rip)
	}
	// A memory file that ends early.
	if err := unix.Ftruncate(g.fd, pageSize); err != nil {
		t.Fatal(err)
	}
	g.mapData(1, platform.Read)
	regs.Eflags = 0
	regs.Rip = dataAddr
	if ev := g.run(c, regs, platform.EventSignal); ev.Signal != int32(unix.SIGBUS) || ev.Addr != dataAddr {
		t.Errorf("%+v", ev)
	}
}

func TestForeignEntries(t *testing.T) {
	p := newPlatform(t)
	gr, err := p.NewGroup()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		code   []byte
		nr     uint64
		compat bool
		rip    uint64
	}{
		{"int 0x80", int80, 20, true, 7},
		{"x32", x32call, 0x40000027, true, 7},
		{"negative", []byte{0x31, 0xc0, 0xff, 0xc8, 0x0f, 0x05}, ^uint64(0), false, 6}, // xor eax, eax; dec eax; syscall
	} {
		g := newGuestIn(t, p, gr, tt.code)
		c, regs := g.thread()
		ev := g.run(c, regs, platform.EventSyscall)
		if regs.OrigRax != tt.nr || ev.Compat != tt.compat || regs.Rip != codeAddr+tt.rip {
			t.Errorf("%s: %+v, nr %#x, rip %#x", tt.name, ev, regs.OrigRax, regs.Rip)
		}
		c.Release()
	}
	g := newGuestIn(t, p, gr, vsyscall)
	g.mapData(9, platform.Read|platform.Write)
	c, regs := g.thread()
	defer c.Release()
	ev, err := c.Switch(g.as, regs)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case ev.Kind == platform.EventSyscall && regs.OrigRax == unix.SYS_TIME && regs.Rip == codeAddr+9:
	case ev.Kind == platform.EventFault && ev.Access == platform.Exec: // vsyscall=none
	default:
		t.Errorf("vsyscall: %+v %+v", ev, regs)
	}
}

func TestTwoSpaces(t *testing.T) {
	p := newPlatform(t)
	g := newGuest(t, p, storeLoad)
	g2 := newGuestIn(t, p, g.g, storeLoad)
	c, regs := g.thread()
	defer c.Release()
	c2, regs2 := g2.thread()
	defer c2.Release()
	// One file in both, as after fork.
	g.mapData(1, platform.Read|platform.Write)
	if err := g2.as.Map(dataAddr, pageSize, g.fd, dataAddr-codeAddr, platform.Read, false); err != nil {
		t.Fatal(err)
	}
	regs.Rax, regs2.Rax = dataAddr, dataAddr
	g.run(c, regs, platform.EventSyscall)
	ev := g2.run(c2, regs2, platform.EventFault)
	if ev.Access != platform.Write {
		t.Fatalf("%+v", ev)
	}
	if err := g2.as.Map(dataAddr, pageSize, g2.fd, dataAddr-codeAddr, platform.Read|platform.Write, true); err != nil {
		t.Fatal(err)
	}
	g2.run(c2, regs2, platform.EventSyscall)
	if g2.data()[0] != 42 {
		t.Fatal("write went elsewhere")
	}
}
