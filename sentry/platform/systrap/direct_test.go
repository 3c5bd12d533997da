package systrap

import (
	"encoding/binary"
	"math/rand"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"runsc/sentry/arch"
	"runsc/sentry/platform"
)

func newDirectPlatform(t testing.TB) *Platform {
	t.Helper()
	p, err := New(Options{DirectCalls: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// directCall is mov r11, entry; mov eax, 39; lea rcx, [rip+3]; jmp r11.
func directCall(p *Platform) []byte {
	return code([]byte{0x49, 0xbb}, binary.LittleEndian.AppendUint64(nil, p.DirectEntry()),
		movEaxGetpid, []byte{0x48, 0x8d, 0x0d, 3, 0, 0, 0, 0x41, 0xff, 0xe3})
}

// directLoop makes direct calls for ever.
func directLoop(p *Platform) []byte {
	c := directCall(p)
	return code(c, []byte{0xeb, byte(-len(c) - 2)})
}

func TestDirectCall(t *testing.T) {
	p := newDirectPlatform(t)
	g := newGuest(t, p, directLoop(p))
	c, regs := g.thread()
	defer c.Release()
	*regs = arch.Regs{Rip: codeAddr, Rbx: 1, Rdx: 2, Rsi: 3, Rdi: 4, Rbp: 5, Rsp: 6, R8: 8, R9: 9, R10: 10,
		R12: 12, R13: 13, R14: 14, R15: 15, FsBase: 0x7000, Eflags: 0x8d5} // OF SF ZF AF PF CF
	for i := range 1000 {
		ev, err := c.Switch(g.as, regs)
		if err != nil || ev.Kind != platform.EventSyscall || regs.OrigRax != 39 {
			t.Fatal(i, ev, err)
		}
		ret := uint64(codeAddr + len(directCall(p)))
		want := arch.Regs{Rip: ret, Rcx: ret, Rax: 39, OrigRax: 39, Rbx: 1, Rdx: 2, Rsi: 3, Rdi: 4, Rbp: 5, Rsp: 6,
			R8: 8, R9: 9, R10: 10, R11: 0xad7, R12: 12, R13: 13, R14: 14, R15: 15, FsBase: 0x7000, Eflags: 0xad7}
		if *regs != want {
			t.Fatalf("%d: regs\n%+v\nwant\n%+v", i, regs, &want)
		}
		regs.SetReturn(uint64(i))
		if i%3 == 0 { // change more than the result
			regs.Rip = codeAddr
			regs.R12, regs.Rbx = 12, 1
		}
		if i%7 == 0 {
			c.Sleep()
			time.Sleep(50 * time.Microsecond)
		}
	}
}

// TestDirectResult has the result and the registers arrive in the guest.
func TestDirectResult(t *testing.T) {
	p := newDirectPlatform(t)
	g := newGuest(t, p, code(directCall(p), ud2))
	for _, flags := range []uint64{0x202, 0xa03, 0x246, 0xad7} {
		c, regs := g.thread()
		regs.Eflags = flags
		regs.R15 = 15
		g.run(c, regs, platform.EventSyscall)
		regs.SetReturn(0x1234)
		g.run(c, regs, platform.EventSignal)
		if regs.Rax != 0x1234 || regs.R15 != 15 || regs.Eflags&0x8d5 != flags&0x8d5 || regs.GsBase != 0 {
			t.Errorf("flags %#x: %+v", flags, regs)
		}
		c.Release()
	}
}

func TestDirectFP(t *testing.T) {
	p := newDirectPlatform(t)
	if p.fp.features&4 == 0 {
		t.Skip("no AVX")
	}
	// vpcmpeqd ymm7, ymm7, ymm7; direct call; vmovdqu [rdi], ymm7; ud2
	g := newGuest(t, p, code([]byte{0xc5, 0xc5, 0x76, 0xff}, directCall(p), []byte{0xc5, 0xfe, 0x7f, 0x3f}, ud2))
	g.mapData(1, platform.Read|platform.Write)
	check := func(name string, c platform.Context, regs *arch.Regs, want byte) {
		t.Helper()
		clear(g.data()[:32])
		g.run(c, regs, platform.EventSignal)
		for i, b := range g.data()[:32] {
			if b != want {
				t.Fatalf("%s: byte %d is %#x", name, i, b)
			}
		}
	}
	start := func() (platform.Context, *arch.Regs) {
		c, regs := g.thread()
		regs.Rdi = dataAddr
		g.run(c, regs, platform.EventSyscall)
		return c, regs
	}
	c, regs := start()
	check("in the processor", c, regs, 0xff)
	c.Release()

	c, regs = start()
	fp := c.FPState()
	if fp == nil {
		t.Fatal("no FP state")
	}
	after := *regs
	check("spilled", c, regs, 0xff)
	child := p.NewContext()
	if err := child.SetFPState(fp); err != nil {
		t.Fatal(err)
	}
	check("child", child, &after, 0xff)
	child.Release()
	c.Release()

	c, regs = start()
	regs.R12 = 99 // not only the result
	check("changed", c, regs, 0xff)
	if regs.R12 != 99 {
		t.Error("register lost")
	}
	c.Release()

	c, regs = start()
	c.SetFPState(nil)
	check("reset", c, regs, 0)
	c.Release()
}

// TestDirectGS has a guest that uses gs call directly.
func TestDirectGS(t *testing.T) {
	p := newDirectPlatform(t)
	g := newGuest(t, p, directLoop(p))
	g.mapData(1, platform.Read|platform.Write)
	c, regs := g.thread()
	defer c.Release()
	regs.GsBase = 0x1000
	for range 10 {
		g.run(c, regs, platform.EventSyscall)
		if regs.OrigRax != 39 || regs.GsBase != 0x1000 || regs.Rip != codeAddr+uint64(len(directCall(p))) {
			t.Fatalf("%+v", regs)
		}
	}
	regs.GsBase = 0
	for range 10 {
		g.run(c, regs, platform.EventSyscall)
		if regs.OrigRax != 39 || regs.GsBase != 0 {
			t.Fatalf("%+v", regs)
		}
	}
}

// TestDirectInterrupt interrupts at every instruction of the path, and has
// every interrupt seen.
func TestDirectInterrupt(t *testing.T) {
	p := newDirectPlatform(t)
	g := newGuest(t, p, directLoop(p))
	c, regs := g.thread()
	defer c.Release()
	regs.R15 = 0x15
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		for range 2000 {
			c.Interrupt()
			for end := time.Now().Add(time.Duration(rand.Intn(30)) * time.Microsecond); time.Now().Before(end); {
			}
		}
	}()
	got, calls := 0, uint64(0)
	for done := false; !done; {
		select {
		case <-stop:
			done = true
		default:
		}
		ev, err := c.Switch(g.as, regs)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case regs.R15 != 0x15:
			t.Fatalf("%+v", regs)
		case ev.Kind == platform.EventInterrupt:
			got++
		case ev.Kind == platform.EventSyscall && regs.OrigRax == 39:
			calls++
			regs.SetReturn(calls)
		default:
			t.Fatalf("%+v %+v", ev, regs)
		}
	}
	t.Logf("%d interrupts, %d calls", got, calls)
	if got == 0 {
		t.Error("no interrupts")
	}
	// A guest that computes is still interrupted.
	g2 := newGuestIn(t, p, g.g, spinForever)
	c2, regs2 := g2.thread()
	defer c2.Release()
	for range 20 {
		time.AfterFunc(time.Millisecond, c2.Interrupt)
		g2.run(c2, regs2, platform.EventInterrupt)
	}
}

// TestDirectJumps is TestStubJumps with direct calls on: a thread that hides
// in the stub is killed.
func TestDirectJumps(t *testing.T) {
	p := newDirectPlatform(t)
	p.kickDeadline, p.kickHardDeadline = 100*time.Millisecond, time.Second
	g := newGuest(t, p, spinForever)
	witness := newGuestIn(t, p, g.g, directLoop(p))
	blob, err := stubBlobBytes()
	if err != nil {
		t.Fatal(err)
	}
	slotEnd := p.base + stubSlotsOff + slotSize
	for off := 0; off < len(blob); off += 7 {
		if g.as.(*addrSpace).st.dead.Load() {
			g = newGuestIn(t, p, g.g, spinForever)
		}
		c := p.NewContext()
		regs := &arch.Regs{Rip: p.base + uint64(off), Rsp: slotEnd - 3000, Rbx: slotEnd, Rax: unix.SYS_MMAP, Rcx: codeAddr, R11: slotEnd}
		if _, err := g.steps(c, regs, 20, 2*time.Millisecond); err != nil && err != platform.ErrStubDied {
			t.Fatal(err)
		}
		c.FPState()
		c.Release()
	}
	witness.alive()
}

func BenchmarkDirectCall(b *testing.B) {
	p := newDirectPlatform(b)
	g := newGuest(b, p, directLoop(p))
	c, regs := g.thread()
	defer c.Release()
	b.ReportAllocs()
	for b.Loop() {
		if ev, err := c.Switch(g.as, regs); err != nil || ev.Kind != platform.EventSyscall {
			b.Fatal(ev, err)
		}
	}
}
