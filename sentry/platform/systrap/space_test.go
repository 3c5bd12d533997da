package systrap

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"runsc/sentry/arch"
	"runsc/sentry/platform"
)

// children counts the children of this process, zombies included.
func children(t testing.TB) int {
	n := 0
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Skip(err)
	}
	for _, e := range tasks {
		b, _ := os.ReadFile("/proc/self/task/" + e.Name() + "/children")
		n += len(strings.Fields(string(b)))
	}
	return n
}

// eventually waits for f, which background work makes true.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for range 200 {
		if f() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("never: %s", what)
}

func TestThreads(t *testing.T) {
	p := newPlatform(t)
	g := newGuest(t, p, getpidLoop)
	const n = 40
	var wg sync.WaitGroup
	for range n {
		wg.Add(1)
		go func() {
			defer wg.Done()
			c, regs := g.thread()
			defer c.Release()
			for i := range 300 {
				ev, err := c.Switch(g.as, regs)
				if err != nil || ev.Kind != platform.EventSyscall || regs.Rip != codeAddr+7 {
					t.Errorf("%d: %+v %v", i, ev, err)
					return
				}
				if i%50 == 0 {
					c.Sleep()
					runtime.Gosched()
				}
			}
		}()
	}
	wg.Wait()
	// Threads beyond the parked ones are gone, their slots are used again.
	st := g.as.(*addrSpace).st
	tasks := func() int {
		d, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", st.pid))
		return len(d)
	}
	eventually(t, "threads end", func() bool { return tasks() <= parkedMax+1 })
	before := st.threads.Load()
	for range 100 {
		var cs []platform.Context
		for range parkedMax + 2 {
			c, regs := g.thread()
			g.run(c, regs, platform.EventSyscall)
			cs = append(cs, c)
		}
		for _, c := range cs {
			c.Release()
		}
	}
	if after := st.threads.Load(); after > before+2*parkedMax {
		t.Errorf("%d slots, were %d", after, before)
	}
}

// TestMapWhileRunning has one thread fault pages in while others run.
func TestMapWhileRunning(t *testing.T) {
	p := newPlatform(t)
	g := newGuest(t, p, touchPages)
	var wg sync.WaitGroup
	const pages = 24
	for i := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			c, regs := g.thread()
			defer c.Release()
			for range 50 {
				regs.Rip, regs.Rdi = codeAddr, dataAddr
				for faults := 0; ; faults++ {
					ev, err := c.Switch(g.as, regs)
					if err != nil || ev.Kind != platform.EventFault || ev.Addr < dataAddr || ev.Addr > dataAddr+pages*pageSize {
						t.Errorf("%+v %v", ev, err)
						return
					}
					if ev.Addr == dataAddr+pages*pageSize {
						break
					}
					page := ev.Addr &^ (pageSize - 1)
					if err := g.as.Map(page, pageSize, g.fd, int64(page-codeAddr), platform.Read|platform.Write, true); err != nil {
						t.Error(err)
						return
					}
					if faults > 100000 {
						t.Error("no progress")
						return
					}
				}
				if i == 0 {
					g.as.Unmap(dataAddr, pages*pageSize)
				}
				if i == 1 {
					g.as.Protect(dataAddr+pageSize, 3*pageSize, platform.Read)
				}
			}
		}()
	}
	wg.Wait()
}

func TestManySpaces(t *testing.T) {
	p := newPlatform(t)
	gr, err := p.NewGroup()
	if err != nil {
		t.Fatal(err)
	}
	warm := newGuestIn(t, p, gr, getpidLoop)
	warm.alive()
	kids := children(t)
	used := func() int64 {
		var s unix.Stat_t
		unix.Fstat(p.ctl.fd, &s)
		return s.Blocks / 8
	}
	pages := used()
	fds := openFDs(t)
	var spaces []platform.AddressSpace
	for i := range 600 {
		as, err := gr.NewAddressSpace()
		if err != nil {
			t.Fatal(i, err)
		}
		if err := as.Map(codeAddr, pageSize, warm.fd, 0, platform.Read|platform.Exec, false); err != nil {
			t.Fatal(err)
		}
		c := p.NewContext()
		regs := &arch.Regs{Rip: codeAddr}
		if ev, err := c.Switch(as, regs); err != nil || ev.Kind != platform.EventSyscall {
			t.Fatal(i, ev, err)
		}
		if i%2 == 0 { // both orders
			c.Release()
			c = nil
		}
		spaces = append(spaces, as)
		if len(spaces) > 50 {
			spaces[0].Release()
			spaces = spaces[1:]
		}
		if c != nil {
			c.Release()
		}
	}
	for _, as := range spaces {
		as.Release()
	}
	eventually(t, "all processes end", func() bool { return children(t) <= kids+poolMax })
	eventually(t, "all descriptors close", func() bool { return openFDs(t) <= fds })
	eventually(t, "the control file empties", func() bool { return used() <= pages+2*2*poolMax })
	// Dead processes that are not reaped yet keep theirs.
	if p.ctl.next > 400*areaSize {
		t.Errorf("control file grew to %d", p.ctl.next)
	}
}

// TestIdle has a thread wait for its task for long: nothing runs meanwhile.
func TestIdle(t *testing.T) {
	p := newPlatform(t)
	g := newGuest(t, p, getpidLoop)
	c, regs := g.thread()
	defer c.Release()
	g.run(c, regs, platform.EventSyscall)
	c.Sleep()
	st := g.as.(*addrSpace).st
	time.Sleep(20 * time.Millisecond)
	cpu := st.cpuTime()
	time.Sleep(200 * time.Millisecond)
	if d := st.cpuTime() - cpu; d > time.Millisecond {
		t.Errorf("the stub used %v", d)
	}
	// And while the guest computes, the Sentry sleeps.
	g2 := newGuestIn(t, p, g.g, spinForever)
	c2, regs2 := g2.thread()
	defer c2.Release()
	time.AfterFunc(300*time.Millisecond, c2.Interrupt)
	var before, after unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &before)
	g2.run(c2, regs2, platform.EventInterrupt)
	unix.Getrusage(unix.RUSAGE_SELF, &after)
	if d := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()); d > 20*time.Millisecond {
		t.Errorf("the Sentry used %v", d)
	}
}

func TestGroupClose(t *testing.T) {
	p := newPlatform(t)
	kids := children(t)
	g := newGuest(t, p, spinForever)
	c, regs := g.thread()
	done := make(chan error)
	go func() {
		_, err := c.Switch(g.as, regs)
		done <- err
	}()
	time.Sleep(5 * time.Millisecond)
	g.g.Close()
	select {
	case err := <-done:
		if err != platform.ErrStubDied {
			t.Errorf("Switch: %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("Switch hangs")
	}
	if _, err := g.g.NewAddressSpace(); err == nil {
		t.Error("an address space in a closed group")
	}
	c.Release()
	eventually(t, "all processes end", func() bool { return children(t) <= kids })
}

// TestMappingLimit runs into the host's limit of mappings.
func TestMappingLimit(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	p := newPlatform(t)
	g := newGuest(t, p, storeLoad)
	var err error
	n := uint64(0)
	for ; n < 100000 && err == nil; n++ {
		err = g.as.Map(0x10000000+n*2*pageSize, pageSize, g.fd, 0, platform.Read, false)
	}
	if err != unix.ENOMEM {
		t.Fatalf("%d mappings: %v", n, err)
	}
	t.Logf("%d mappings", n)
	// What the caller does then.
	if err := g.as.Unmap(0, arch.GuestTop); err != nil {
		t.Fatal(err)
	}
	g.flush()
	g.as.(*addrSpace).st.takeErr()
	if m := g.hostMaps(); m != "" {
		t.Fatalf("left: %.200s", m)
	}
	if err := g.as.Map(codeAddr, pageSize, g.fd, 0, platform.Read|platform.Exec, false); err != nil {
		t.Fatal(err)
	}
	g.mapData(1, platform.Read|platform.Write)
	c, regs := g.thread()
	defer c.Release()
	regs.Rax = dataAddr
	g.run(c, regs, platform.EventSyscall)
}

func TestRanges(t *testing.T) {
	var r ranges
	want := map[uint64]bool{}
	seed := uint32(1)
	rnd := func(n uint32) uint64 {
		seed = seed*1664525 + 1013904223
		return uint64((seed >> 8) % n)
	}
	for range 5000 {
		a := rnd(60)
		b := a + 1 + rnd(8)
		if rnd(2) == 0 {
			r.add(a, b)
		} else {
			r.remove(a, b)
		}
		for i := a; i < b; i++ {
			want[i] = false
		}
		if r.overlaps(a, b) {
			for i := a; i < b; i++ {
				want[i] = true
			}
		}
		for i := range uint64(70) {
			if r.overlaps(i, i+1) != want[i] {
				t.Fatalf("%v: address %d", r, i)
			}
		}
		for i := 1; i < len(r); i++ {
			if r[i-1].end >= r[i].start {
				t.Fatalf("%v", r)
			}
		}
	}
}

// TestCloseWaits: nothing of a group is left when Close returns, of spaces that
// were released just before neither: its cgroup can be removed.
func TestCloseWaits(t *testing.T) {
	p := newPlatform(t)
	before := children(t)
	for range 5 {
		g, err := p.NewGroup()
		if err != nil {
			t.Fatal(err)
		}
		for i := range 6 {
			as, err := g.NewAddressSpace()
			if err != nil {
				t.Fatal(err)
			}
			if i%2 == 0 {
				defer as.Release()
			} else {
				as.Release()
			}
		}
		g.Close()
		if n := children(t); n != before {
			t.Fatalf("%d children, %d before", n, before)
		}
	}
}
