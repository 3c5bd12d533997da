package mm

import "testing"

func BenchmarkCopyOut8(b *testing.B)   { benchCopy(b, 8, true) }
func BenchmarkCopyIn8(b *testing.B)    { benchCopy(b, 8, false) }
func BenchmarkCopyOut4K(b *testing.B)  { benchCopy(b, 4096, true) }
func BenchmarkCopyOut64K(b *testing.B) { benchCopy(b, 65536, true) }

func benchCopy(b *testing.B, n int, out bool) {
	e := newEnv(b)
	a := e.anon(1 << 20)
	p := make([]byte, n)
	b.SetBytes(int64(n))
	b.ReportAllocs()
	for b.Loop() {
		if out {
			e.mm.CopyOut(a, p)
		} else {
			e.mm.CopyIn(p, a)
		}
	}
	e.done()
}

func BenchmarkLoadUint32(b *testing.B) {
	e := newEnv(b)
	a := e.anon(4096)
	b.ReportAllocs()
	for b.Loop() {
		e.mm.LoadUint32(a)
	}
	e.done()
}
