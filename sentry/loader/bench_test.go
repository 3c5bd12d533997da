package loader

import (
	"testing"

	"runsc/sentry/mem"
	"runsc/sentry/mm"
	"runsc/sentry/platform"
	"runsc/sentry/platform/systrap"
)

// benchMM loads a program on the real platform.
func benchMM(b *testing.B) (*mm.MM, *systrap.Platform, platform.Group) {
	mf, err := mem.New()
	if err != nil {
		b.Fatal(err)
	}
	p, err := systrap.New(systrap.Options{KeepFDs: []int{mf.FD()}})
	if err != nil {
		b.Skip("no systrap here: ", err)
	}
	b.Cleanup(p.Close)
	g, err := p.NewGroup()
	if err != nil {
		b.Fatal(err)
	}
	return loadBench(b, mf, g), p, g
}

func loadBench(b *testing.B, mf *mem.File, g platform.Group) *mm.MM {
	m := mm.New(mf, mem.NewAccount(nil, 0), g, testLimits)
	exe, err := openHost("/usr/bin/busybox")
	if err != nil {
		b.Skip(err)
	}
	e := &Exec{File: exe, Filename: "/bin/x", Argv: []string{"x"}, Open: openHost, StackLimit: 8 << 20}
	if err := e.Prepare(); err != nil {
		b.Fatal(err)
	}
	if _, err := e.Load(m); err != nil {
		b.Fatal(err)
	}
	exe.(*hostExe).f.Close()
	return m
}

// BenchmarkFirstTouch is one fault on 64 KiB of fresh anonymous memory,
// without the guest's part, and the unmapping.
func BenchmarkFirstTouch(b *testing.B) {
	m, _, _ := benchMM(b)
	if _, err := m.AddressSpace(); err != nil {
		b.Fatal(err)
	}
	for i := 0; i < b.N; i++ {
		a, err := m.MMap(mm.MMapOpts{Len: 64 << 10, Prot: platform.Read | platform.Write})
		if err != nil {
			b.Fatal(err)
		}
		if err := m.HandleFault(a, platform.Write); err != nil {
			b.Fatal(err)
		}
		if err := m.MUnmap(a, 64<<10); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMapUnmap(b *testing.B) {
	m, _, _ := benchMM(b)
	if _, err := m.AddressSpace(); err != nil {
		b.Fatal(err)
	}
	for i := 0; i < b.N; i++ {
		a, _ := m.MMap(mm.MMapOpts{Len: 64 << 10, Prot: platform.Read | platform.Write})
		m.MUnmap(a, 64<<10)
	}
}

// BenchmarkFork is a fork of a running program whose child writes a page, is
// made an address space and dies, and whose parent writes on.
func BenchmarkFork(b *testing.B) {
	m, _, _ := benchMM(b)
	if _, err := m.AddressSpace(); err != nil {
		b.Fatal(err)
	}
	sp := m.Info().StackStart
	for i := 0; i < b.N; i++ {
		c, err := m.Fork(testLimits)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := c.AddressSpace(); err != nil {
			b.Fatal(err)
		}
		c.HandleFault(sp-8, platform.Write)
		m.HandleFault(sp-8, platform.Write)
		c.DecUsers()
	}
}

func BenchmarkForkOnly(b *testing.B) {
	m, _, _ := benchMM(b)
	m.AddressSpace()
	for i := 0; i < b.N; i++ {
		c, err := m.Fork(testLimits)
		if err != nil {
			b.Fatal(err)
		}
		c.DecUsers()
	}
}

func BenchmarkExec(b *testing.B) {
	m, _, g := benchMM(b)
	for i := 0; i < b.N; i++ {
		c := loadBench(b, m.MemFile(), g)
		if _, err := c.AddressSpace(); err != nil {
			b.Fatal(err)
		}
		c.DecUsers()
	}
}
