package mem

import (
	"bytes"
	"hash/crc32"
	"math/rand"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"runsc/sentry/image"
)

// imageFiles are pages.img and pages.idx of a test.
type imageFiles struct {
	t        testing.TB
	img, idx *os.File
	w        *image.PageWriter
}

func newImage(t testing.TB) *imageFiles {
	dir := t.TempDir()
	x := &imageFiles{t: t}
	var err error
	if x.img, err = os.Create(filepath.Join(dir, image.PagesFile)); err != nil {
		t.Fatal(err)
	}
	if x.idx, err = os.Create(filepath.Join(dir, image.IndexFile)); err != nil {
		t.Fatal(err)
	}
	if x.w, err = image.NewPageWriter(x.img, x.idx, false); err != nil {
		t.Fatal(err)
	}
	return x
}

// open ends the writing and opens the image.
func (x *imageFiles) open() *image.Pages {
	x.t.Helper()
	if _, _, _, err := x.w.Close(); err != nil {
		x.t.Fatal(err)
	}
	return x.reopen()
}

func (x *imageFiles) reopen() *image.Pages {
	x.t.Helper()
	img, err := os.OpenFile(x.img.Name(), os.O_RDWR, 0)
	if err != nil {
		x.t.Fatal(err)
	}
	x.idx.Seek(0, 0)
	p, err := image.OpenPages(img, x.idx)
	if err != nil {
		x.t.Fatal(err)
	}
	return p
}

// page returns what the image has for a page, zeros if it has nothing.
func imagePage(t testing.TB, p *image.Pages, page uint64) []byte {
	t.Helper()
	c, ok := p.Find(page)
	if !ok {
		return make([]byte, PageSize)
	}
	data, err := p.Read(c, make([]byte, pieceSize))
	if err != nil {
		t.Fatal(err)
	}
	return data[(page-p.Chunks()[c].First)*PageSize:][:PageSize]
}

func imageSum(t testing.TB, p *image.Pages, r Range) uint32 {
	h := crc32.NewIEEE()
	for at := r.Start; at < r.End; at += PageSize {
		h.Write(imagePage(t, p, at/PageSize))
	}
	return h.Sum32()
}

func fileSum(t testing.TB, f *File, r Range) uint32 {
	h := crc32.NewIEEE()
	b := make([]byte, PageSize)
	for at := r.Start; at < r.End; at += PageSize {
		if err := preadFull(f.main.fd, b, int64(at)); err != nil {
			t.Fatal(err)
		}
		h.Write(b)
	}
	return h.Sum32()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestSnapshotWriters lets every call that changes frames run before
// anything is written, and compares the image with the memory at the cut.
func TestSnapshotWriters(t *testing.T) {
	host := filepath.Join(t.TempDir(), "host")
	must(t, os.WriteFile(host, bytes.Repeat([]byte("host"), 4<<10), 0o600))
	hf, err := os.Open(host)
	must(t, err)
	defer hf.Close()
	writers := map[string]func(f *File, r Range) error{
		"WriteAt": func(f *File, r Range) error { return f.WriteAt([]byte("new"), r.Start+5000) },
		"hot WriteAt": func(f *File, r Range) error {
			for range 20 {
				if err := f.WriteAt([]byte("new"), r.Start+5000); err != nil {
					return err
				}
			}
			return nil
		},
		"Zero":         func(f *File, r Range) error { return f.Zero(Range{r.Start + 100, r.End - 100}) },
		"Copy":         func(f *File, r Range) error { return f.Copy(r.Start+300<<10, r.Start, 200<<10) },
		"CopyFromHost": func(f *File, r Range) error { return f.CopyFromHost(r.Start, int(hf.Fd()), 0, 16<<10) },
		"Swap":         func(f *File, r Range) error { _, err := f.SwapUint32(r.Start+8, 1); return err },
		"CompareAndSwap": func(f *File, r Range) error {
			v, err := f.LoadUint32(r.Start + 12)
			if err == nil {
				_, err = f.CompareAndSwapUint32(r.Start+12, v, v+1)
			}
			return err
		},
		"free": func(f *File, r Range) error { f.IncRef(r); f.DecRef(r); f.DecRef(r); f.Reclaim(); return nil },
		"free and reuse": func(f *File, r Range) error {
			f.IncRef(r)
			f.DecRef(r)
			f.DecRef(Range{r.Start, r.Start + 64<<10})
			f.Reclaim()
			n, err := f.Allocate(1<<20, nil, Anonymous)
			if err == nil {
				err = f.WriteAt(bytes.Repeat([]byte{7}, 1<<20), n.Start)
			}
			return err
		},
		"Prepare": func(f *File, r Range) error {
			if f.Ready(r.Start, true) || !f.Ready(r.Start, false) {
				t.Error("a frozen frame is ready")
			}
			if err := f.Prepare(r.Start, true); err != nil {
				return err
			}
			if !f.Ready(r.Start, true) {
				t.Error("a saved frame is not ready")
			}
			if x, keep := f.Extent(r, r.Start+PageSize); keep || x.End != r.Start&^(pieceSize-1)+pieceSize {
				t.Errorf("extent %x %v", x, keep)
			}
			// What a guest does then.
			_, err := unix.Pwrite(f.main.fd, []byte("guest"), int64(r.Start))
			return err
		},
	}
	for name, write := range writers {
		t.Run(name, func(t *testing.T) {
			f := newFile(t)
			r, err := f.Allocate(1<<20, nil, Anonymous)
			must(t, err)
			data := make([]byte, 700<<10)
			rand.New(rand.NewSource(1)).Read(data)
			must(t, f.WriteAt(data, r.Start))
			want := fileSum(t, f, r)
			set := &FrameSet{}
			set.Add(r)
			x := newImage(t)
			s, err := f.BeginSnapshot(set, x.w)
			must(t, err)
			if _, err := f.BeginSnapshot(set, x.w); err != unix.EBUSY {
				t.Errorf("second snapshot: %v", err)
			}
			must(t, write(f, r))
			must(t, s.Write())
			s.Close()
			p := x.open()
			defer p.Close()
			if got := imageSum(t, p, r); got != want {
				t.Error("the image is not what was there at the cut")
			}
			f.Reclaim()
			if f.Snapshotting() {
				t.Error("the snapshot does not end")
			}
		})
	}
}

// TestSnapshotConcurrent has writers run while the snapshot is written.
func TestSnapshotConcurrent(t *testing.T) {
	f := newFile(t)
	const size = 16 << 20
	r, err := f.Allocate(size, nil, Anonymous)
	must(t, err)
	data := make([]byte, size)
	rand.New(rand.NewSource(2)).Read(data)
	must(t, f.WriteAt(data, r.Start))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for seed := range 3 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			rng := rand.New(rand.NewSource(int64(seed)))
			b := make([]byte, 20000)
			for {
				select {
				case <-stop:
					return
				default:
				}
				off := r.Start + uint64(rng.Intn(size-len(b)))&^3
				switch rng.Intn(3) {
				case 0:
					f.WriteAt(b, off)
				case 1:
					f.SwapUint32(off, rng.Uint32())
				case 2:
					if f.Prepare(off, true) == nil {
						unix.Pwrite(f.main.fd, []byte("guest"), int64(off)&^(PageSize-1))
					}
				}
			}
		}()
	}
	// Writers that run before the cut are part of it.
	time.Sleep(5 * time.Millisecond)
	close(stop)
	wg.Wait()
	want := fileSum(t, f, r)
	stop = make(chan struct{})
	set := &FrameSet{}
	set.Add(r)
	x := newImage(t)
	s, err := f.BeginSnapshot(set, x.w)
	must(t, err)
	for seed := range 3 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			rng := rand.New(rand.NewSource(int64(seed)))
			b := make([]byte, 20000)
			for i := 0; i < 2000; i++ {
				f.WriteAt(b, r.Start+uint64(rng.Intn(size-len(b))))
			}
		}()
	}
	must(t, s.Write())
	wg.Wait()
	s.Close()
	p := x.open()
	defer p.Close()
	if got := imageSum(t, p, r); got != want {
		t.Error("the image is not what was there at the cut")
	}
}

// TestSnapshotFails has the image's disk fail: writers go on.
func TestSnapshotFails(t *testing.T) {
	f := newFile(t)
	r, err := f.Allocate(4<<20, nil, Anonymous)
	must(t, err)
	must(t, f.WriteAt(bytes.Repeat([]byte{1}, 4<<20), r.Start))
	set := &FrameSet{}
	set.Add(r)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	must(t, err)
	defer full.Close()
	w, err := image.NewPageWriter(full, full, false)
	must(t, err)
	s, err := f.BeginSnapshot(set, w)
	must(t, err)
	if err := s.Write(); err == nil {
		t.Error("a full disk is not noticed")
	}
	must(t, f.WriteAt([]byte("x"), r.Start+3<<20))
	s.Close()
	f.DecRef(r)
	f.Reclaim()
	if n := blocks(t, f); n != 0 {
		t.Errorf("%d blocks are left", n)
	}
}

// TestRetire frees frames that a dying stub may still map.
func TestRetire(t *testing.T) {
	f := newFile(t)
	r, err := f.Allocate(1<<20, nil, Anonymous)
	must(t, err)
	one, two := make(chan struct{}), make(chan struct{})
	f.Retire(one)
	f.Retire(two)
	f.DecRef(r)
	if f.root.Total() != 0 {
		t.Error("freed frames are charged")
	}
	n, err := f.Allocate(1<<20, nil, Anonymous)
	must(t, err)
	if n.Start < r.End && r.Start < n.End {
		t.Error("frames are used again too soon")
	}
	f.DecRef(n)
	close(one)
	time.Sleep(time.Millisecond)
	if f.retired.Load() == nil {
		t.Error("the first to go ends it")
	}
	close(two)
	for range 100 {
		if f.retired.Load() == nil && f.dying.Load() == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	f.Reclaim()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range *f.main.table.Load() {
		if w.nbusy != 0 || w.ndirty != 0 {
			t.Errorf("%d pages are busy, %d dirty", w.nbusy, w.ndirty)
		}
	}
}

func BenchmarkBeginSnapshot(b *testing.B) {
	for _, size := range []uint64{16 << 20, 1 << 30} {
		b.Run(map[uint64]string{16 << 20: "16MiB", 1 << 30: "1GiB"}[size], func(b *testing.B) {
			f := newFile(b)
			r, err := f.Allocate(size, nil, Anonymous)
			must(b, err)
			set := &FrameSet{}
			set.Add(r)
			x := newImage(b)
			for b.Loop() {
				s, err := f.BeginSnapshot(set, x.w)
				must(b, err)
				b.StopTimer()
				s.Close()
				b.StartTimer()
			}
		})
	}
}
