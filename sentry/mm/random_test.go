package mm

import (
	"math/rand"
	"strings"
	"testing"

	"runsc/sentry/mem"
	"runsc/sentry/platform"
)

// TestRandomCalls makes calls with arguments that make little sense and
// checks that maps, host and counters agree all the way.
func TestRandomCalls(t *testing.T) {
	defer func(n int) { oomTries = n }(oomTries)
	oomTries = 0
	for seed := int64(0); seed < 8; seed++ {
		e := newEnv(t)
		e.acct.SetLimit(8 << 20)
		h := newHostFile(t, strings.Repeat("r", 300<<10))
		r := rand.New(rand.NewSource(seed))
		base := uint64(0x7000_0000)
		addr := func() uint64 {
			switch r.Intn(20) {
			case 0:
				return r.Uint64()
			case 1:
				return 0
			case 2:
				return 0x7ffc_0000_0000 - uint64(r.Intn(4))*pageSize
			case 3:
				return base + uint64(r.Intn(1<<20))
			}
			return base + uint64(r.Intn(256))*pageSize
		}
		size := func() uint64 {
			switch r.Intn(20) {
			case 0:
				return r.Uint64()
			case 1:
				return 0
			case 2:
				return -uint64(r.Intn(8192))
			case 3:
				return uint64(r.Intn(1 << 20))
			}
			return uint64(1+r.Intn(32)) * pageSize
		}
		ms := []*MM{e.mm}
		buf := make([]byte, 70000)
		for i := 0; i < 3000; i++ {
			m := ms[r.Intn(len(ms))]
			switch r.Intn(16) {
			case 0, 1, 2:
				o := MMapOpts{
					Addr: addr(), Len: size(), Prot: platform.Prot(r.Intn(8)), Shared: r.Intn(3) == 0, Fixed: r.Intn(2) == 0,
					NoReplace: r.Intn(8) == 0, Low2G: r.Intn(8) == 0, GrowsDown: r.Intn(16) == 0, Locked: r.Intn(16) == 0,
					Populate: r.Intn(8) == 0, Stable: r.Intn(2) == 0,
				}
				if r.Intn(3) == 0 {
					o.File, o.Off = h, uint64(r.Intn(100))*pageSize
				}
				_, _ = m.MMap(o)
			case 3:
				_ = m.MUnmap(addr(), size())
			case 4:
				_ = m.MProtect(addr(), size(), platform.Prot(r.Intn(8)), r.Intn(10) == 0)
			case 5:
				_, _ = m.MRemap(addr(), size(), size(), r.Intn(9), addr())
			case 6:
				_ = m.MAdvise(addr(), size(), r.Intn(26))
			case 7:
				_ = m.MLock(addr(), size(), r.Intn(2) == 0, r.Intn(2) == 0)
			case 8:
				_ = m.MUnlock(addr(), size())
			case 9:
				_ = m.MSync(addr(), size(), r.Intn(8))
			case 10:
				n := 0
				_ = m.MIncore(addr(), min(size(), 1<<30), func(p []byte) error { n += len(p); return nil })
			case 11:
				if len(ms) < 4 {
					if c, err := m.Fork(e.limits); err == nil {
						ms = append(ms, c)
						e.space(c)
					}
				} else if m != e.mm {
					for k := range ms {
						if ms[k] == m {
							ms = append(ms[:k], ms[k+1:]...)
							break
						}
					}
					m.DecUsers()
				}
			case 12:
				m.Invalidate(h, int64(r.Intn(100))*pageSize, int64(r.Intn(100))*pageSize, r.Intn(2) == 0)
			case 13:
				_ = m.HandleFault(addr(), platform.Prot(1<<r.Intn(3)))
			case 14:
				_, _ = m.CopyOut(addr(), buf[:r.Intn(len(buf))])
				_, _ = m.CopyIn(buf[:r.Intn(len(buf))], addr())
				_, _ = m.ZeroOut(addr(), r.Intn(70000))
				_, _ = m.Forced().CopyOut(addr(), buf[:100])
			case 15:
				if r.Intn(4) == 0 {
					m.SetBrk(base + uint64(r.Intn(256))*pageSize)
				}
				m.Brk(addr())
				_, _ = m.CompareAndSwapUint32(addr()&^3, 0, 1)
				_, _ = m.FutexKey(addr(), false)
				_ = m.MLockAll(r.Intn(8), true)
				m.MUnlockAll()
			}
			if i%20 == 0 {
				e.check(m)
				checkUsage(t, m)
			}
		}
		e.acct.SetLimit(0)
		e.done(ms[1:]...)
		if h.refs != 1 || h.maps != 0 {
			t.Fatalf("seed %d: %d references, %d bytes mapped are left", seed, h.refs, h.maps)
		}
	}
}

// checkUsage counts again what the counters say.
func checkUsage(t *testing.T, m *MM) {
	t.Helper()
	m.mu.RLock()
	defer m.mu.RUnlock()
	var u usage
	for i := 0; i < m.vmas.Len(); i++ {
		s := m.vmas.At(i)
		if i > 0 && m.vmas.At(i-1).End > s.Start {
			t.Fatal("vmas overlap")
		}
		u.count(s.V, s.End-s.Start, 1)
	}
	for i := 0; i < m.pages.Len(); i++ {
		s := m.pages.At(i)
		if s.V.owned {
			u.anon += s.End - s.Start
			if r := (mem.Range{Start: s.V.off, End: s.V.off + pageSize}); !s.V.cow && m.mf.Shared(r.Start) {
				t.Fatalf("page %#x is shared but not copy-on-write", s.Start)
			}
		} else {
			u.file += s.End - s.Start
		}
	}
	got := m.space
	got.policy = nil
	got.peakTotal, got.peakRSS, u.peakTotal, u.peakRSS = 0, 0, 0, 0
	if got != u {
		t.Fatalf("counters %+v, want %+v", got, u)
	}
}
