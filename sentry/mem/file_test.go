package mem

import (
	"bytes"
	"math/rand"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func newFile(t testing.TB) *File {
	f, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

func TestAllocate(t *testing.T) {
	f := newFile(t)
	pod := NewAccount(nil, 8<<20)
	a, b := NewAccount(pod, 6<<20), NewAccount(pod, 6<<20)
	told := 0
	a.OnLimit = func(*Account, uint64) { told++ }
	r1, err := f.Allocate(4<<20, a, Tmpfs)
	if err != nil || r1.Len() != 4<<20 {
		t.Fatal(r1, err)
	}
	if _, err := f.Allocate(3<<20, a, Anonymous); err != ErrLimit || told != 1 {
		t.Errorf("own limit: %v, told %d", err, told)
	}
	if _, err := f.Allocate(5<<20, b, Anonymous); err != ErrLimit {
		t.Errorf("the pod's limit: %v", err)
	}
	if b.Total() != 0 || a.Used(Tmpfs) != 4<<20 || pod.Total() != 4<<20 {
		t.Errorf("used %d %d %d", a.Total(), b.Total(), pod.Total())
	}
	r2, err := f.Allocate(8192, b, Anonymous)
	if err != nil {
		t.Fatal(err)
	}
	f.IncRef(r2)
	f.DecRef(r2)
	if !(b.Total() == 8192) || f.Shared(r2.Start) {
		t.Error("reference counts")
	}
	f.DecRef(r2)
	f.DecRef(r1)
	if pod.Total() != 0 || pod.Peak() != 4<<20+8192 {
		t.Errorf("left %d, peak %d", pod.Total(), pod.Peak())
	}
	if _, err := f.Allocate(100, a, Tmpfs); err != unix.EINVAL {
		t.Errorf("odd size: %v", err)
	}
}

func blocks(t *testing.T, f *File) int64 {
	var st unix.Stat_t
	if err := unix.Fstat(f.FD(), &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

func TestReclaim(t *testing.T) {
	f := newFile(t)
	r, err := f.Allocate(1<<20, nil, Tmpfs)
	if err != nil {
		t.Fatal(err)
	}
	p := bytes.Repeat([]byte("x"), 1<<20)
	for i := 0; i < 10; i++ { // hot and cold
		if err := f.WriteAt(p, r.Start); err != nil {
			t.Fatal(err)
		}
	}
	if n := blocks(t, f); n != 1<<20 {
		t.Errorf("%d bytes in the file", n)
	}
	f.DecRef(r)
	f.Reclaim()
	if n := blocks(t, f); n != 0 {
		t.Errorf("%d bytes are left in the file", n)
	}
	q, err := f.Allocate(1<<20, nil, Tmpfs)
	if err != nil {
		t.Fatal(err)
	}
	f.ReadAt(p, q.Start)
	if !bytes.Equal(p, make([]byte, 1<<20)) {
		t.Error("fresh frames are not zero")
	}
}

func TestWindow(t *testing.T) {
	f := newFile(t)
	a := NewAccount(nil, 0)
	w, err := f.ReserveWindow(a, Anonymous)
	if err != nil {
		t.Fatal(err)
	}
	r := Range{w + 8192, w + 16384}
	if ok, err := f.AllocateAt(r, true); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if ok, _ := f.AllocateAt(Range{w, w + 12288}, true); ok || a.Total() != 8192 {
		t.Error("frames were given twice")
	}
	f.WriteAt([]byte("dirty"), r.Start)
	f.DecRef(r)
	if ok, err := f.AllocateAt(r, true); !ok || err != nil {
		t.Fatal(ok, err)
	}
	b := make([]byte, 5)
	f.ReadAt(b, r.Start)
	if string(b) != "\x00\x00\x00\x00\x00" {
		t.Errorf("a recycled frame has %q", b)
	}
	f.ReleaseWindow(w)
	f.DecRef(r)
	f.Reclaim()
	if len(f.main.free) != 1 || a.Total() != 0 {
		t.Errorf("%d free windows, %d bytes", len(f.main.free), a.Total())
	}
}

// TestCopies compares hot and cold accesses with a plain buffer.
func TestCopies(t *testing.T) {
	f := newFile(t)
	const n = 3 << 20
	r, err := f.Allocate(n, nil, Tmpfs)
	if err != nil {
		t.Fatal(err)
	}
	model := make([]byte, n)
	rnd := rand.New(rand.NewSource(1))
	for i := 0; i < 3000; i++ {
		off := rnd.Intn(n)
		size := rnd.Intn(min(n-off, 1<<rnd.Intn(18)) + 1)
		p := make([]byte, size)
		switch rnd.Intn(4) {
		case 0:
			rnd.Read(p)
			copy(model[off:], p)
			f.WriteAt(p, r.Start+uint64(off))
		case 1:
			clear(model[off : off+size])
			f.Zero(Range{r.Start + uint64(off), r.Start + uint64(off+size)})
		case 2:
			to := rnd.Intn(n - size + 1)
			if to+size <= off || off+size <= to {
				copy(model[to:to+size], model[off:off+size])
				f.Copy(r.Start+uint64(to), r.Start+uint64(off), uint64(size))
			}
		default:
			f.ReadAt(p, r.Start+uint64(off))
			if !bytes.Equal(p, model[off:off+size]) {
				t.Fatalf("step %d: [%d,+%d) differs", i, off, size)
			}
		}
	}
}

func TestConcurrentFrames(t *testing.T) {
	f := newFile(t)
	a := NewAccount(nil, 0)
	var wg sync.WaitGroup
	for g := 0; g < 4; g++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			rnd := rand.New(rand.NewSource(int64(g)))
			var held []Range
			for i := 0; i < 2000; i++ {
				if len(held) > 20 || len(held) > 0 && rnd.Intn(2) == 0 {
					k := rnd.Intn(len(held))
					b := make([]byte, 8)
					f.ReadAt(b, held[k].Start)
					if b[0] != byte(g+1) {
						t.Errorf("frame has %v", b)
					}
					f.DecRef(held[k])
					held = append(held[:k], held[k+1:]...)
					continue
				}
				r, err := f.Allocate(uint64(1+rnd.Intn(8))*PageSize, a, Kind(rnd.Intn(3)))
				if err != nil {
					t.Error(err)
					return
				}
				b := make([]byte, 8)
				if f.ReadAt(b, r.Start); b[0] != 0 {
					t.Error("a fresh frame is not zero")
				}
				f.WriteAt([]byte{byte(g + 1)}, r.Start)
				held = append(held, r)
				if i%100 == 0 {
					f.Reclaim()
				}
			}
			for _, r := range held {
				f.DecRef(r)
			}
		}()
	}
	wg.Wait()
	if a.Total() != 0 {
		t.Errorf("%d bytes left", a.Total())
	}
}

func BenchmarkReadCold(b *testing.B) { benchmarkRead(b, false) }
func BenchmarkReadHot(b *testing.B)  { benchmarkRead(b, true) }

func benchmarkRead(b *testing.B, hotPages bool) {
	f := newFile(b)
	const n = 64 << 20
	r, err := f.Allocate(n, nil, Tmpfs)
	if err != nil {
		b.Fatal(err)
	}
	f.Zero(r)
	var p [64]byte
	for i := 0; i < b.N; i++ {
		off := uint64(i) * PageSize % n
		if hotPages {
			off %= 8 * PageSize
		}
		f.ReadAt(p[:], r.Start+off)
	}
}
