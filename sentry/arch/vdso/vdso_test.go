package vdso

import (
	"bytes"
	"debug/elf"
	"testing"
	"time"

	"runsc/sentry/clock"
	"runsc/sentry/mem"
)

func TestImage(t *testing.T) {
	img := build(text())
	if len(img) != pageSize {
		t.Fatalf("%d bytes", len(img))
	}
	f, err := elf.NewFile(bytes.NewReader(img))
	if err != nil {
		t.Fatal(err)
	}
	if f.Type != elf.ET_DYN || f.Machine != elf.EM_X86_64 || len(f.Progs) != 2 {
		t.Errorf("header %+v", f.FileHeader)
	}
	// What libcs do: hash lookup of each name.
	for _, name := range functions {
		for _, n := range []string{name, "__vdso_" + name} {
			if find(img, n) == 0 {
				t.Errorf("%s cannot be found", n)
			}
		}
	}
	if find(img, "__vdso_clock_gettime") != find(img, "clock_gettime") || find(img, "nothing") != 0 {
		t.Error("wrong symbols")
	}
}

func TestElfHash(t *testing.T) {
	if h := elfHash("LINUX_2.6"); h != 61765110 {
		t.Errorf("hash of LINUX_2.6 is %d", h)
	}
}

// find looks a symbol up by the dynamic section and the hash table.
func find(img []byte, name string) uint64 {
	le := func(b []byte, n int) (v uint64) {
		for i := n - 1; i >= 0; i-- {
			v = v<<8 | uint64(b[i])
		}
		return v
	}
	dyn := map[uint64]uint64{}
	for d := le(img[64+56+8:], 8); ; d += 16 {
		tag := le(img[d:], 8)
		if tag == 0 {
			break
		}
		dyn[tag] = le(img[d+8:], 8)
	}
	h := dyn[dtHash]
	nb := le(img[h:], 4)
	i := le(img[h+8+4*(uint64(elfHash(name))%nb):], 4)
	for ; i != 0; i = le(img[h+8+4*nb+4*i:], 4) {
		s := dyn[dtSymtab] + 24*i
		at := dyn[dtStrtab] + le(img[s:], 4)
		if n := bytes.IndexByte(img[at:], 0); string(img[at:][:n]) == name && le(img[dyn[dtVersym]+2*i:], 2) == 2 {
			return le(img[s+8:], 8)
		}
	}
	return 0
}

func TestCalibration(t *testing.T) {
	// A counter of 2.5 GHz; the host's clock is slewed from 0 to 100 ppm.
	var c calibration
	var p params
	tsc, ns := uint64(1000), float64(5e9)
	last := int64(0)
	rate := 0.4
	for i := 0; i < 4000; i++ {
		if i == 2000 {
			rate = 0.40004
		}
		step := uint64(1 + i*7919%50_000_000)
		tsc += step
		ns += float64(step) * rate
		if v, ok := p.at(tsc); ok {
			if v < last {
				t.Fatalf("step %d: %d after %d", i, v, last)
			}
			last = v
			if d := v - int64(ns); d > 2500 || d < -2500 {
				t.Fatalf("step %d: off by %d ns", i, d)
			}
		}
		if i%3 == 0 {
			p = c.next(&p, sample{tsc, int64(ns)}, 0, 0)
			if v, ok := p.at(tsc); ok {
				if v < last {
					t.Fatalf("refresh %d: %d after %d", i, v, last)
				}
				last = v
			}
		}
	}
	if !p.valid || p.maxTicks == 0 {
		t.Errorf("no parameters: %+v", p)
	}
	// A jump of the counter makes the parameters invalid, then valid again.
	tsc += 1 << 40
	ns += 1e6
	if p = c.next(&p, sample{tsc, int64(ns)}, 0, 0); p.valid {
		t.Error("valid after a jump")
	}
}

func TestRefresh(t *testing.T) {
	mf, err := mem.New()
	if err != nil {
		t.Fatal(err)
	}
	defer mf.Close()
	clk := clock.New()
	v, err := New(mf, clk)
	if err != nil {
		t.Fatal(err)
	}
	if !v.usable {
		t.Skip("no invariant time stamp counter")
	}
	time.Sleep(20 * time.Millisecond)
	v.Refresh()
	if !v.last.valid {
		t.Fatalf("not valid: %+v", v.last)
	}
	worst := int64(0)
	for i := 0; i < 20; i++ {
		time.Sleep(time.Millisecond)
		if i%5 == 0 {
			v.Refresh()
		}
		s := v.sample()
		got, ok := v.last.at(s.tsc)
		if !ok {
			v.Refresh()
			continue
		}
		worst = max(worst, got-s.ns, s.ns-got)
	}
	if worst > 20_000 {
		t.Errorf("off by %d ns", worst)
	}
	t.Logf("off by at most %d ns", worst)
}
