package mem

import (
	"bytes"
	"math/rand"
	"os"
	"sync"
	"testing"
	"time"

	"runsc/sentry/image"
)

// saved is an image of some frames, and what was in them.
type savedFrames struct {
	x      *imageFiles
	r      Range
	ranges []image.FrameRange
	data   []byte
}

// saveSome saves 4 MiB of frames, half of them zero.
func saveSome(t testing.TB) *savedFrames {
	f := newFile(t)
	r, err := f.Allocate(4<<20, nil, Anonymous)
	must(t, err)
	s := &savedFrames{x: newImage(t), r: r, data: make([]byte, r.Len())}
	rng := rand.New(rand.NewSource(3))
	for at := 0; at < len(s.data); at += 128 << 10 {
		if rng.Intn(2) == 0 {
			rng.Read(s.data[at : at+128<<10])
			must(t, f.WriteAt(s.data[at:at+128<<10], r.Start+uint64(at)))
		}
	}
	set := &FrameSet{}
	set.Add(Range{r.Start + 1<<20, r.End})
	set.Add(Range{r.Start, r.Start + 2<<20})
	must(t, f.WritePages(s.x.w, set))
	p := s.x.open()
	p.Close()
	for _, r := range set.Ranges() {
		s.ranges = append(s.ranges, image.FrameRange{First: r.Start / PageSize, Pages: r.Len() / PageSize})
	}
	return s
}

// restore returns a File with the frames, which the caller owns.
func (s *savedFrames) restore(t testing.TB, a *Account) (*File, *FrameMap, []Range) {
	f := newFile(t)
	fm, err := f.restoreFrames(s.ranges, s.x.reopen(), a)
	must(t, err)
	got, err := fm.Take(s.r)
	must(t, err)
	fm.Finish()
	return f, fm, got
}

func readRanges(t testing.TB, f *File, rs []Range) []byte {
	var out []byte
	for _, r := range rs {
		b := make([]byte, r.Len())
		must(t, f.ReadAt(b, r.Start))
		out = append(out, b...)
	}
	return out
}

func TestLazy(t *testing.T) {
	s := saveSome(t)
	a := NewAccount(nil, 0)
	f, fm, rs := s.restore(t, a)
	if a.Total() != s.r.Len() {
		t.Errorf("%d bytes are charged", a.Total())
	}
	pending := fm.Pending()
	if pending == 0 || pending >= s.r.Len() {
		t.Errorf("%d bytes are pending", pending)
	}
	if n := blocks(t, f); n != 0 {
		t.Errorf("%d blocks before the first use", n)
	}
	// A small write loads one chunk.
	at := bytes.IndexFunc(s.data, func(r rune) bool { return r != 0 }) &^ (PageSize - 1)
	if f.Ready(rs[0].Start+uint64(at), false) {
		t.Error("a pending frame is ready")
	}
	must(t, f.WriteAt([]byte("new"), rs[0].Start+uint64(at)+10))
	copy(s.data[at+10:], "new")
	if n := pending - fm.Pending(); n == 0 || n > pieceSize {
		t.Errorf("%d bytes were loaded", n)
	}
	if got := readRanges(t, f, rs); !bytes.Equal(got, s.data) {
		t.Error("the contents differ")
	}
	if fm.Pending() != 0 {
		t.Error("something is pending")
	}
	done := make(chan error, 2)
	fm.StartLoader(func(err error) { done <- err })
	must(t, <-done)
	if f.restoring.Load() != 0 {
		t.Error("the restore does not end")
	}
	for _, r := range rs {
		f.DecRef(r)
	}
	if a.Total() != 0 {
		t.Errorf("%d bytes are left charged", a.Total())
	}
}

func TestLazyLoader(t *testing.T) {
	s := saveSome(t)
	f, fm, rs := s.restore(t, nil)
	done := make(chan error, 2)
	fm.StartLoader(func(err error) { done <- err })
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			rng := rand.New(rand.NewSource(int64(i)))
			b := make([]byte, 5000)
			for range 300 {
				off := rng.Intn(int(rs[0].Len()) - len(b))
				if err := f.ReadAt(b, rs[0].Start+uint64(off)); err != nil || !bytes.Equal(b, s.data[off:off+len(b)]) {
					t.Errorf("at %#x: %v", off, err)
					return
				}
			}
		}()
	}
	must(t, <-done)
	wg.Wait()
	if got := readRanges(t, f, rs); !bytes.Equal(got, s.data) {
		t.Error("the contents differ")
	}
}

// TestLazyCancel frees frames before they are loaded, and uses them anew.
func TestLazyCancel(t *testing.T) {
	s := saveSome(t)
	f, fm, rs := s.restore(t, nil)
	for _, r := range rs {
		f.DecRef(Range{r.Start, r.Start + r.Len()/2})
	}
	f.Reclaim()
	done := make(chan error, 2)
	// The frames are used again while the loader runs.
	n, err := f.Allocate(1<<20, nil, Anonymous)
	must(t, err)
	fm.StartLoader(func(err error) { done <- err })
	must(t, <-done)
	for _, b := range readRanges(t, f, []Range{n}) {
		if b != 0 {
			t.Fatal("a frame is not zero")
		}
	}
	at := 0
	for _, r := range rs {
		half := r.Len() / 2
		if got := readRanges(t, f, []Range{{r.Start + half, r.End}}); !bytes.Equal(got, s.data[at+int(half):at+int(r.Len())]) {
			t.Error("the contents differ")
		}
		at += int(r.Len())
	}
}

// TestLazyDamaged finds a damaged page by an access and by the loader.
func TestLazyDamaged(t *testing.T) {
	s := saveSome(t)
	p := s.x.reopen()
	last := p.Chunks()[len(p.Chunks())-1]
	p.Close()
	var b [1]byte
	s.x.img.ReadAt(b[:], int64(last.Off)+100)
	b[0] ^= 1
	s.x.img.WriteAt(b[:], int64(last.Off)+100)

	f, fm, rs := s.restore(t, nil)
	bad := rs[0].Start + last.First*PageSize - s.r.Start
	if _, err := f.LoadUint32(bad); err == nil {
		t.Error("a damaged word is read")
	}
	if err := f.WriteAt([]byte("x"), bad); err == nil {
		t.Error("a damaged page is written")
	}
	if err := f.Prepare(bad, false); err == nil {
		t.Error("a damaged page can be mapped")
	}
	var told error
	fm.StartLoader(func(err error) { told = err })
	if told == nil {
		t.Error("nobody is told of what was found before")
	}

	_, fm, _ = s.restore(t, nil)
	done := make(chan error, 2)
	fm.StartLoader(func(err error) { done <- err })
	if err := <-done; err == nil {
		t.Error("the loader finds nothing")
	}
	time.Sleep(time.Millisecond)
	if len(done) != 0 {
		t.Error("told twice")
	}
}

// TestLazySave checkpoints before the memory is loaded, both ways.
func TestLazySave(t *testing.T) {
	s := saveSome(t)
	for _, snapshot := range []bool{false, true} {
		f, _, rs := s.restore(t, nil)
		set := &FrameSet{}
		for _, r := range rs {
			set.Add(r)
		}
		x := newImage(t)
		if snapshot {
			sn, err := f.BeginSnapshot(set, x.w)
			must(t, err)
			f.DecRef(rs[0])
			f.Reclaim()
			must(t, sn.Write())
			sn.Close()
		} else {
			must(t, f.WritePages(x.w, set))
		}
		p := x.open()
		defer p.Close()
		at := 0
		for _, r := range rs {
			for o := r.Start; o < r.End; o += PageSize {
				if !bytes.Equal(imagePage(t, p, o/PageSize), s.data[at:at+PageSize]) {
					t.Fatalf("snapshot %v: page %#x differs", snapshot, at)
				}
				at += PageSize
			}
		}
	}
}

func TestLazyHostile(t *testing.T) {
	s := saveSome(t)
	f := newFile(t)
	a := NewAccount(nil, 1<<20)
	for name, rs := range map[string][]image.FrameRange{
		"limit":   s.ranges,
		"overlap": {{First: 0, Pages: 2}, {First: 1, Pages: 2}},
		"huge":    {{First: 0, Pages: 1 << 33}},
		"wrap":    {{First: 5, Pages: ^uint64(0)}},
		"kind":    {{First: 5, Pages: 1, Kind: 9}},
		"kinds":   {{First: 5, Pages: 1}, {First: 6, Pages: 1, Kind: 1}},
	} {
		p := s.x.reopen()
		if _, err := f.restoreFrames(rs, p, a); err == nil {
			t.Errorf("%s is accepted", name)
		} else {
			t.Log(err)
		}
		p.Close()
		if a.Total() != 0 {
			t.Fatalf("%s: %d bytes are left charged", name, a.Total())
		}
	}
	fm, err := f.restoreFrames(s.ranges, s.x.reopen(), nil)
	must(t, err)
	for _, r := range []Range{{1, 5}, {0, 0}, {s.r.Start, s.r.End + PageSize}, {1 << 60, 1<<60 + PageSize}, {PageSize, 0}} {
		if _, err := fm.Take(r); err == nil {
			t.Errorf("%v is found", r)
		}
	}
	fm.Finish()
	fm.Abandon()
	if n := fm.Pending(); n != 0 {
		t.Errorf("%d bytes are pending of frames that nobody took", n)
	}
	os.Remove(s.x.img.Name())
}

// BenchmarkRestoreFrames is what stands before the first instruction.
func BenchmarkRestoreFrames(b *testing.B) {
	for _, size := range []uint64{16 << 20, 1 << 30} {
		b.Run(map[uint64]string{16 << 20: "16MiB", 1 << 30: "1GiB"}[size], func(b *testing.B) {
			x := newImage(b)
			one := bytes.Repeat([]byte{1}, pieceSize)
			for at := uint64(0); at < size; at += pieceSize {
				must(b, x.w.Write(at/PageSize, one))
			}
			p := x.open()
			ranges := []image.FrameRange{{Pages: size / PageSize}}
			for b.Loop() {
				b.StopTimer()
				f := newFile(b)
				b.StartTimer()
				fm, err := f.restoreFrames(ranges, p, nil)
				must(b, err)
				rs, err := fm.Take(Range{0, size})
				must(b, err)
				fm.Finish()
				b.StopTimer()
				for _, r := range rs {
					f.DecRef(r)
				}
				f.Reclaim()
				b.StartTimer()
			}
		})
	}
}
