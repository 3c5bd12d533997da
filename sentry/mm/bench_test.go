package mm

import (
	"fmt"
	"io"
	"os"
	"testing"

	"runsc/sentry/image"
	"runsc/sentry/mem"
	"runsc/sentry/platform"
)

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

// BenchmarkSave is what a save does for an address space while its threads stand still.
func BenchmarkSave(b *testing.B) {
	for _, mib := range []uint64{16, 1024} {
		b.Run(fmt.Sprintf("%dMiB", mib), func(b *testing.B) {
			e := newEnv(b)
			a := e.anon(mib << 20)
			for at := a; at < a+mib<<20; at += mem.WindowSize / 2 {
				if err := e.mm.HandleFault(at, platform.Write); err != nil {
					b.Fatal(err)
				}
			}
			if err := e.mm.MLock(a, mib<<20, false, true); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(e.mm.pages.Len()), "runs")
			b.ReportAllocs()
			null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
			if err != nil {
				b.Fatal(err)
			}
			defer null.Close()
			for b.Loop() {
				b.StopTimer()
				w, err := image.NewPageWriter(null, null, false)
				if err != nil {
					b.Fatal(err)
				}
				snap, err := e.mf.NewSnapshot(w)
				if err != nil {
					b.Fatal(err)
				}
				set := &mem.FrameSet{}
				env := &SaveEnv{Saver: image.NewSaver(image.NewWriter(io.Discard)), Frames: set}
				b.StartTimer()
				if _, err := e.mm.Save(env); err != nil {
					b.Fatal(err)
				}
				if _, err := e.mf.SaveFrames(env.Saver, set); err != nil {
					b.Fatal(err)
				}
				if err := snap.Begin(set); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				snap.Close()
				b.StartTimer()
			}
		})
	}
}
