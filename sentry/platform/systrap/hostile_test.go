package systrap

import (
	"bytes"
	"fmt"
	"math/rand"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"runsc/sentry/arch"
	"runsc/sentry/platform"
)

// steps runs a guest that may do anything for at most n events or d, and then
// interrupts it until it stops. It fails the test if Switch hangs.
func (g *guest) steps(c platform.Context, regs *arch.Regs, n int, d time.Duration) (evs []platform.Event, err error) {
	g.t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range n {
			var ev platform.Event
			if ev, err = c.Switch(g.as, regs); err != nil {
				return
			}
			evs = append(evs, ev)
			if ev.Kind != platform.EventSyscall {
				return
			}
			regs.SetReturn(^uint64(unix.ENOSYS) + 1)
		}
	}()
	select {
	case <-done:
		return evs, err
	case <-time.After(d):
		c.Interrupt()
	}
	select {
	case <-done:
	case <-time.After(60 * time.Second):
		g.t.Fatalf("Switch hangs; regs at start %+v", regs)
	}
	return evs, err
}

// alive checks that another guest of the platform still works.
func (g *guest) alive() {
	g.t.Helper()
	c, regs := g.thread()
	defer c.Release()
	g.run(c, regs, platform.EventSyscall)
}

// hostMaps returns the mappings of a stub below the stub region.
func (g *guest) hostMaps() string {
	pid := g.as.(*addrSpace).st.pid
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	var out []string
	for _, l := range strings.Split(string(b), "\n") {
		var from, to uint64
		if n, _ := fmt.Sscanf(l, "%x-%x", &from, &to); n == 2 && from < g.p.base {
			out = append(out, l)
		}
	}
	return strings.Join(out, "\n")
}

// flush waits until the leader has done what is queued.
func (g *guest) flush() {
	st := g.as.(*addrSpace).st
	st.mu.Lock()
	defer st.mu.Unlock()
	st.push(opNop | opAck)
	st.waitAck()
}

// openFDs counts the descriptors of the Sentry, but for the pidfds of stubs,
// which come and go in the background.
func openFDs(t testing.TB) int {
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	n := 0
	for _, e := range d {
		if l, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && !strings.Contains(l, "pidfd") {
			n++
		}
	}
	return n
}

func TestInterrupt(t *testing.T) {
	p := newPlatform(t)
	g := newGuest(t, p, spinForever)
	c, regs := g.thread()
	defer c.Release()
	for range 50 {
		timer := time.AfterFunc(2*time.Millisecond, c.Interrupt)
		ev, err := c.Switch(g.as, regs)
		timer.Stop()
		if err != nil || ev.Kind != platform.EventInterrupt || regs.Rip != codeAddr {
			t.Fatal(ev, err)
		}
	}
	// An interrupt before Switch is not lost.
	c.Interrupt()
	c.Interrupt()
	g.run(c, regs, platform.EventInterrupt)
}

// TestInterruptRace has every call arrive, and no more than one event each.
func TestInterruptRace(t *testing.T) {
	p := newPlatform(t)
	g := newGuest(t, p, getpidLoop)
	c, regs := g.thread()
	defer c.Release()
	const n = 2000
	var sent int
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		for range n {
			c.Interrupt()
			sent++
			time.Sleep(time.Duration(rand.Intn(40)) * time.Microsecond)
		}
	}()
	got := 0
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
		switch ev.Kind {
		case platform.EventInterrupt:
			got++
		case platform.EventSyscall:
			if regs.Rip != codeAddr+7 {
				t.Fatalf("rip %#x", regs.Rip)
			}
		default:
			t.Fatalf("%+v", ev)
		}
	}
	if got == 0 || got > n+1 {
		t.Fatalf("%d interrupts of %d", got, n)
	}
}

// TestStubJumps jumps to every byte of the stub's code with registers that
// would have the leader's calls do harm.
func TestStubJumps(t *testing.T) {
	p := newPlatform(t)
	p.kickDeadline, p.kickHardDeadline = 300*time.Millisecond, time.Second
	gr, err := p.NewGroup()
	if err != nil {
		t.Fatal(err)
	}
	witness := newGuestIn(t, p, gr, getpidLoop)
	witness.alive()
	blob, err := stubBlobBytes()
	if err != nil {
		t.Fatal(err)
	}
	const target = 0x7000_0000
	slotEnd := p.base + stubSlotsOff + slotSize
	type forged struct {
		name string
		regs arch.Regs
	}
	g := newGuestIn(t, p, gr, spinForever)
	base := arch.Regs{Rsp: dataAddr + 0x800, Rbx: slotEnd, Rbp: p.base + stubCmdOff + 2048,
		R12: uint64(0), R13: uint64(p.ctl.fd), R14: 1 << 20, R15: p.base}
	mmap, open, exit, clone, pwrite := base, base, base, base, base
	mmap.Rax, mmap.Rdi, mmap.Rsi, mmap.Rdx, mmap.R10, mmap.R8 = unix.SYS_MMAP, target, 0x1000, 7,
		unix.MAP_FIXED|unix.MAP_SHARED, uint64(g.fd)
	copy(g.data(), "/etc/passwd\x00")
	open.Rax, open.Rdi, open.Rsi = unix.SYS_OPEN, dataAddr, unix.O_RDWR
	exit.Rax, exit.Rdi = unix.SYS_EXIT, 0
	clone.Rax, clone.Rdi, clone.Rsi = unix.SYS_CLONE, unix.CLONE_VM|unix.CLONE_FILES|unix.CLONE_SIGHAND|unix.CLONE_THREAD, slotEnd-320
	pwrite.Rax, pwrite.Rdi, pwrite.Rsi, pwrite.Rdx = unix.SYS_PWRITE64, uint64(p.ctl.fd), dataAddr, 64
	// A process of its own as leader, on a command page of the guest's.
	leader := mmap
	leader.R15 = dataAddr - stubCmdOff
	leader.R14 = 0
	tests := []forged{{"mmap", mmap}, {"open", open}, {"exit", exit}, {"clone", clone}, {"pwrite", pwrite}, {"leader", leader}}
	step := 1
	if testing.Short() {
		step = 7
	}
	fds := openFDs(t)
	died := 0
	for _, tt := range tests {
		for off := 0; off < len(blob); off += step {
			if g.as.(*addrSpace).st.dead.Load() || g.hostMaps() == "" {
				g = newGuestIn(t, p, gr, spinForever)
				g.mapData(2, platform.Read|platform.Write)
				g.flush()
				fds = openFDs(t)
			}
			c := p.NewContext()
			regs := tt.regs
			regs.Rip = p.base + uint64(off)
			before := g.hostMaps()
			_, err := g.steps(c, &regs, 20, 3*time.Millisecond)
			if err != nil {
				if err != platform.ErrStubDied {
					t.Fatalf("%s+%d: %v", tt.name, off, err)
				}
				died++
			}
			c.Release()
			if after := g.hostMaps(); after != before && after != "" {
				t.Fatalf("%s+%d: maps before\n%s\nafter\n%s", tt.name, off, before, after)
			}
			if n := openFDs(t); n > fds {
				t.Fatalf("%s+%d: %d descriptors, were %d", tt.name, off, n, fds)
			}
		}
		witness.alive()
	}
	t.Logf("%d jumps, %d deaths", len(tests)*len(blob)/step, died)
}

// forgeFrame writes a signal frame at file offset off of the data page.
func (g *guest) forgeFrame(off uint64, edit func(f *sigFrame)) uint64 {
	f := sigFrame{rip: codeAddr, rsp: dataAddr + 0x800, eflags: 0x202, cs: userCS, ss: userDS,
		flags: ucSigcontextSS | ucStrictRestoreSS}
	edit(&f)
	copy(g.data()[off:], frameBytes(&f))
	return dataAddr + off
}

func TestForgedSigreturn(t *testing.T) {
	p := newPlatform(t)
	p.kickDeadline, p.kickHardDeadline = 300*time.Millisecond, 2*time.Second
	gr, err := p.NewGroup()
	if err != nil {
		t.Fatal(err)
	}
	witness := newGuestIn(t, p, gr, getpidLoop)
	blob, err := stubBlobBytes()
	if err != nil {
		t.Fatal(err)
	}
	// mov $15,%eax; syscall in the stub.
	ret := uint64(bytes.Index(blob, []byte{0xb8, 15, 0, 0, 0, 0x0f, 0x05}))
	all := ^uint64(0)
	for _, tt := range []struct {
		name string
		code []byte
		edit func(f *sigFrame)
		dies bool
	}{
		{"plain", getpidLoop, func(f *sigFrame) {}, false},
		{"mask, spin", spinForever, func(f *sigFrame) { f.mask = all }, true},
		{"mask, syscall", getpidLoop, func(f *sigFrame) { f.mask = all }, true},
		{"mask, fault", []byte{0x8b, 0x04, 0x25, 0, 0, 0, 0}, func(f *sigFrame) { f.mask = all }, true},
		{"segments", getpidLoop, func(f *sigFrame) { f.cs, f.ss = 0xffff, 0xffff }, false},
		{"32-bit", getpidLoop, func(f *sigFrame) { f.cs = 0x23 }, false},
		{"kernel segments", getpidLoop, func(f *sigFrame) { f.cs, f.ss = 0x10, 0x18 }, false},
		{"eflags", getpidLoop, func(f *sigFrame) { f.eflags = all &^ 0x100 }, false},
		{"no stack", getpidLoop, func(f *sigFrame) { f.ssFl = 2 }, false},
		{"stack elsewhere", getpidLoop, func(f *sigFrame) { f.ssSP, f.ssSize = dataAddr, 0x2000 }, true},
		{"stack nowhere", getpidLoop, func(f *sigFrame) { f.ssSP, f.ssSize = 0x1000, 0x4000 }, true},
		{"fp nowhere", getpidLoop, func(f *sigFrame) { f.fpstate, f.flags = 0x1000, 7 }, false},
		{"fp garbage", getpidLoop, func(f *sigFrame) { f.fpstate, f.flags = dataAddr+0xc00, 7 }, false},
		{"rip", getpidLoop, func(f *sigFrame) { f.rip = 1 << 62 }, false},
		{"kernel rip", getpidLoop, func(f *sigFrame) { f.rip = 0xffffffff81000000 }, false},
	} {
		g := newGuestIn(t, p, gr, tt.code)
		g.mapData(4, platform.Read|platform.Write)
		for i := 0xc00; i < 0x1c00; i++ {
			g.data()[i] = 0xff
		}
		addr := g.forgeFrame(0x400, tt.edit)
		c := p.NewContext()
		regs := arch.Regs{Rip: p.base + ret, Rsp: addr + 8}
		evs, err := g.steps(c, &regs, 100, 20*time.Millisecond)
		if err != nil && err != platform.ErrStubDied {
			t.Errorf("%s: %v", tt.name, err)
		}
		if tt.dies && err == nil {
			t.Errorf("%s: lives, events %+v", tt.name, evs[len(evs)-1])
		}
		c.Release()
		witness.alive()
	}
}

// TestSlotRewritten has one guest thread write garbage over the slot of
// another while that makes system calls.
func TestSlotRewritten(t *testing.T) {
	p := newPlatform(t)
	p.kickDeadline, p.kickHardDeadline = 300*time.Millisecond, 2*time.Second
	gr, err := p.NewGroup()
	if err != nil {
		t.Fatal(err)
	}
	witness := newGuestIn(t, p, gr, getpidLoop)
	for round := range 20 {
		g := newGuestIn(t, p, gr, code(getpidLoop, scribble))
		victim, vregs := g.thread()
		g.run(victim, vregs, platform.EventSyscall)
		evil := p.NewContext()
		start := victim.(*context).s.start
		// All of it, the end with the shared words, or only the frames.
		eregs := &arch.Regs{Rip: codeAddr + uint64(len(getpidLoop)), Rax: rand.Uint64()}
		switch round % 3 {
		case 0:
			eregs.Rdi, eregs.Rsi = start, slotSize
		case 1:
			eregs.Rdi, eregs.Rsi = start+slotSize-slotMemSize, slotMemSize
		case 2:
			eregs.Rdi, eregs.Rsi = start+slotSize-pageSize, pageSize-slotMemSize
		}
		var wg sync.WaitGroup
		wg.Add(1)
		go func() {
			defer wg.Done()
			g.steps(evil, eregs, 5, 30*time.Millisecond)
		}()
		g.steps(victim, vregs, 1<<30, 20*time.Millisecond)
		wg.Wait()
		victim.Release()
		evil.Release()
		g.as.Release()
		witness.alive()
	}
}

// TestRandomCode runs random bytes.
func TestRandomCode(t *testing.T) {
	p := newPlatform(t)
	p.kickDeadline, p.kickHardDeadline = 300*time.Millisecond, 2*time.Second
	g := newGuest(t, p, nil)
	witness := newGuestIn(t, p, g.g, getpidLoop)
	g.mapData(4, platform.Read|platform.Write)
	rnd := rand.New(rand.NewSource(1))
	for range 300 {
		if g.as.(*addrSpace).st.dead.Load() {
			g = newGuestIn(t, p, g.g, nil)
			g.mapData(4, platform.Read|platform.Write)
		}
		rnd.Read(g.mem[:pageSize])
		c, regs := g.thread()
		regs.Rsp = dataAddr + 0x1000
		regs.Rdi, regs.Rsi, regs.Rbx = dataAddr, dataAddr, p.base+stubSlotsOff
		if _, err := g.steps(c, regs, 50, 5*time.Millisecond); err != nil && err != platform.ErrStubDied {
			t.Fatal(err)
		}
		c.Release()
	}
	witness.alive()
}

// TestPrivileges looks at what the host says of a stub and its threads.
func TestPrivileges(t *testing.T) {
	p := newPlatform(t)
	g := newGuest(t, p, getpidLoop)
	g.alive()
	pid := g.as.(*addrSpace).st.pid
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Skip(err)
	}
	if len(tasks) != 2 {
		t.Errorf("%d threads", len(tasks))
	}
	for _, e := range tasks {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/status", pid, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"NoNewPrivs:\t1\n", "Seccomp:\t2\n", "CapPrm:\t0000000000000000\n", "CapEff:\t0000000000000000\n", "CapAmb:\t0000000000000000\n"} {
			if !strings.Contains(string(b), want) {
				t.Errorf("thread %s lacks %q", e.Name(), want)
			}
		}
	}
	// Nothing of the Sentry is mapped.
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		if !strings.Contains(l, "memfd:guest") && !strings.Contains(l, "memfd:systrap") &&
			!strings.HasPrefix(l, fmt.Sprintf("%x-", p.base)) && !strings.Contains(l, "[vsyscall]") {
			t.Errorf("mapping %s", l)
		}
	}
}

func TestKilledStub(t *testing.T) {
	p := newPlatform(t)
	g := newGuest(t, p, spinForever)
	witness := newGuestIn(t, p, g.g, getpidLoop)
	c, regs := g.thread()
	defer c.Release()
	time.AfterFunc(20*time.Millisecond, func() { unix.Kill(g.as.(*addrSpace).st.pid, unix.SIGKILL) })
	if _, err := c.Switch(g.as, regs); err != platform.ErrStubDied {
		t.Fatalf("Switch: %v", err)
	}
	if _, err := c.Switch(g.as, regs); err != platform.ErrStubDied {
		t.Fatalf("Switch of a dead stub: %v", err)
	}
	if err := g.as.Map(dataAddr, pageSize, g.fd, 0, platform.Read, false); err != platform.ErrStubDied {
		t.Errorf("Map: %v", err)
	}
	if err := g.as.Unmap(codeAddr, pageSize); err != nil {
		t.Errorf("Unmap: %v", err)
	}
	witness.alive()
	// The zygote of the group is gone: address spaces in the pool serve, then
	// there are errors.
	unix.Kill(g.g.HostPID(), unix.SIGKILL)
	var err error
	for range 5 {
		var as platform.AddressSpace
		if as, err = g.g.NewAddressSpace(); err != nil {
			break
		}
		as.Release()
	}
	if err == nil {
		t.Error("address spaces out of nothing")
	}
	witness.alive()
}

// TestVanish has a thread exit behind the Sentry's back.
func TestVanish(t *testing.T) {
	p := newPlatform(t)
	g := newGuest(t, p, getpidLoop)
	blob, err := stubBlobBytes()
	if err != nil {
		t.Fatal(err)
	}
	// mov $60,%eax; xor %edi,%edi; syscall
	off := bytes.Index(blob, []byte{0xb8, unix.SYS_EXIT, 0, 0, 0})
	c := p.NewContext()
	defer c.Release()
	start := time.Now()
	if _, err := c.Switch(g.as, &arch.Regs{Rip: p.base + uint64(off)}); err != platform.ErrStubDied {
		t.Fatalf("Switch: %v", err)
	}
	if d := time.Since(start); d > time.Second {
		t.Errorf("took %v", d)
	}
	g.alive() // only that thread is gone
}
