package systrap

import (
	"fmt"
	"sync"
	"testing"

	"runsc/sentry/arch"
	"runsc/sentry/platform"
)

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
}

// BenchmarkSyscallThreads has n guest threads make system calls at once.
func BenchmarkSyscallThreads(b *testing.B) {
	for _, n := range []int{2, 4, 16} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := newPlatform(b)
			g := newGuest(b, p, getpidLoop)
			var wg sync.WaitGroup
			for i := range n {
				wg.Add(1)
				go func() {
					defer wg.Done()
					c, regs := g.thread()
					defer c.Release()
					for range b.N/n + min(1, i) {
						if _, err := c.Switch(g.as, regs); err != nil {
							b.Error(err)
							return
						}
					}
				}()
			}
			wg.Wait()
		})
	}
}

// BenchmarkCompute has the guest compute between calls, past the point where
// spinning pays.
func BenchmarkCompute(b *testing.B) {
	for _, n := range []uint64{1000, 10_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := newPlatform(b)
			g := newGuest(b, p, compute)
			c, regs := g.thread()
			defer c.Release()
			regs.Rbp = n
			for b.Loop() {
				if _, err := c.Switch(g.as, regs); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkTurns has n guest threads spin for each other.
func BenchmarkTurns(b *testing.B) {
	for _, n := range []int{2, 4} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := newPlatform(b)
			g := newGuest(b, p, turns)
			g.mapData(1, platform.Read|platform.Write)
			var wg sync.WaitGroup
			for i := range n {
				wg.Add(1)
				go func() {
					defer wg.Done()
					c, regs := g.thread()
					defer c.Release()
					regs.Rdi, regs.Rsi, regs.Rdx, regs.Rbp = dataAddr, uint64(i), uint64(n), uint64(b.N/n+1)
					for {
						ev, err := c.Switch(g.as, regs)
						if err != nil {
							b.Error(err)
							return
						}
						if ev.Kind == platform.EventSyscall {
							return
						}
						g.mapData(1, platform.Read|platform.Write)
					}
				}()
			}
			wg.Wait()
		})
	}
}

func BenchmarkAddressSpace(b *testing.B) {
	p := newPlatform(b)
	g := newGuest(b, p, getpidLoop)
	for b.Loop() {
		as, err := g.g.NewAddressSpace()
		if err != nil {
			b.Fatal(err)
		}
		as.Map(codeAddr, pageSize, g.fd, 0, platform.Read|platform.Exec, false)
		c := p.NewContext()
		if _, err := c.Switch(as, &arch.Regs{Rip: codeAddr}); err != nil {
			b.Fatal(err)
		}
		as.Release()
		c.Release()
	}
}

// BenchmarkFault has each page fault and be mapped. The pages are in memory.
func BenchmarkFault(b *testing.B) {
	for _, mode := range []string{"queued", "waited"} {
		b.Run(mode, func(b *testing.B) {
			p := newPlatform(b)
			g := newGuest(b, p, touchPages)
			if mode == "waited" {
				p.keep.Store(&map[int]struct{}{})
			}
			const pages = 32
			clear(g.mem)
			copy(g.mem, touchPages)
			c, regs := g.thread()
			defer c.Release()
			i := uint64(pages)
			for b.Loop() {
				if i == pages {
					b.StopTimer()
					g.as.Unmap(dataAddr, pages*pageSize)
					regs.Rdi, regs.Rip = dataAddr, codeAddr
					if ev, err := c.Switch(g.as, regs); err != nil || ev.Addr != dataAddr {
						b.Fatal(ev, err)
					}
					i = 0
					b.StartTimer()
				}
				addr := dataAddr + i*pageSize
				if err := g.as.Map(addr, pageSize, g.fd, int64(addr-codeAddr), platform.Read|platform.Write, true); err != nil {
					b.Fatal(err)
				}
				ev, err := c.Switch(g.as, regs)
				if i++; err != nil || ev.Kind != platform.EventFault || ev.Addr != dataAddr+i*pageSize {
					b.Fatal(ev, err)
				}
			}
		})
	}
}

// BenchmarkUnmap has a system call unmap a page that is mapped again.
func BenchmarkUnmap(b *testing.B) {
	p := newPlatform(b)
	g := newGuest(b, p, getpidLoop)
	c, regs := g.thread()
	defer c.Release()
	for b.Loop() {
		if _, err := c.Switch(g.as, regs); err != nil {
			b.Fatal(err)
		}
		g.mapData(1, platform.Read|platform.Write)
		g.as.Unmap(dataAddr, pageSize)
	}
}

func BenchmarkThread(b *testing.B) {
	p := newPlatform(b)
	g := newGuest(b, p, getpidLoop)
	for b.Loop() {
		c, regs := g.thread()
		if _, err := c.Switch(g.as, regs); err != nil {
			b.Fatal(err)
		}
		c.Release()
	}
}
