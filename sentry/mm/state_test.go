package mm

import (
	"bytes"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"runsc/sentry/image"
	"runsc/sentry/mem"
	"runsc/sentry/platform"
)

// TestFieldsClassified fails for a field that nobody decided about.
func TestFieldsClassified(t *testing.T) {
	for _, v := range []any{MM{}, vma{}, page{}, Shm{}, layout{}, usage{}, ProcInfo{}, brkRange{}} {
		typ := reflect.TypeOf(v)
		for i := range typ.NumField() {
			f := typ.Field(i)
			tag := f.Tag.Get("save")
			if tag != "rec" && tag != "rebuilt" && !(strings.HasPrefix(tag, "none: ") && len(tag) > len("none: ")) {
				t.Errorf("%s.%s: save tag %q", typ, f.Name, tag)
			}
		}
	}
}

// checkpoint is an image in the making or made.
type checkpoint struct {
	t             testing.TB
	dir           string
	kernel, pages *os.File
	idx           *os.File
	kw            *image.Writer
	w             *image.PageWriter
	set           mem.FrameSet
	senv          SaveEnv
	files         map[image.ID]mem.Mappable
	frames        image.ID
	ids           []image.ID
}

func newCheckpoint(t testing.TB) *checkpoint {
	c := &checkpoint{t: t, dir: t.TempDir(), files: map[image.ID]mem.Mappable{}}
	create := func(name string) *os.File {
		f, err := os.Create(filepath.Join(c.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	c.kernel, c.pages, c.idx = create("kernel"), create("pages"), create("idx")
	c.kw = image.NewWriter(c.kernel)
	c.senv = SaveEnv{
		Saver: image.NewSaver(c.kw), Frames: &c.set,
		SaveMappable: func(m mem.Mappable) (image.ID, error) {
			id, _ := c.senv.Saver.ID(m)
			c.files[id] = m
			return id, nil
		},
		SaveRef: func(Ref) (image.ID, error) { return 0, fmt.Errorf("no executable") },
	}
	var err error
	if c.w, err = image.NewPageWriter(c.pages, c.idx, false); err != nil {
		t.Fatal(err)
	}
	return c
}

// records writes kernel.img.
func (c *checkpoint) records(mf *mem.File, ms ...*MM) {
	c.t.Helper()
	for _, m := range ms {
		id, err := m.Save(&c.senv)
		if err != nil {
			c.t.Fatal(err)
		}
		c.ids = append(c.ids, id)
	}
	var err error
	if c.frames, err = mf.SaveFrames(c.senv.Saver, &c.set); err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.kw.Close(); err != nil {
		c.t.Fatal(err)
	}
}

// restore makes the address spaces in a new memfile.
func (c *checkpoint) restore() (*env, []*MM, *mem.FrameMap) {
	c.t.Helper()
	t := c.t
	c.kernel.Seek(0, 0)
	r, err := image.NewReader(c.kernel)
	if err != nil {
		t.Fatal(err)
	}
	x, err := image.LoadRecords(r, func(k image.Kind) bool { return k >= 40 && k < 50 })
	if err != nil {
		t.Fatal(err)
	}
	pages, err := os.OpenFile(c.pages.Name(), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	c.idx.Seek(0, 0)
	p, err := image.OpenPages(pages, c.idx)
	if err != nil {
		t.Fatal(err)
	}
	e := newEnv(t)
	fm, err := e.mf.RestoreFrames(x, c.frames, p, e.acct)
	if err != nil {
		t.Fatal(err)
	}
	re := &RestoreEnv{
		Restorer: x, MemFile: e.mf, Account: e.acct, Group: &fakeGroup{}, Frames: fm,
		RestoreMappable: func(id image.ID) (mem.Mappable, error) {
			m := c.files[id]
			m.IncRef()
			return m, nil
		},
	}
	var ms []*MM
	for _, id := range c.ids {
		m, err := Restore(re, id, e.limits)
		if err != nil {
			t.Fatal(err)
		}
		ms = append(ms, m)
	}
	fm.Finish()
	return e, ms, fm
}

// describe returns everything that is to survive: mappings, which pages are
// private, and what a reader sees.
func describe(t testing.TB, m *MM) string {
	var b strings.Builder
	type span struct{ lo, hi uint64 }
	var spans []span
	m.mu.RLock()
	fmt.Fprintf(&b, "%v %v %v %v\n", m.layout, m.brk, m.future, m.info)
	s := m.space
	s.policy = nil
	s.file, s.peakRSS = 0, 0
	fmt.Fprintf(&b, "%+v\n", s)
	for i := 0; i < m.vmas.Len(); i++ {
		s := m.vmas.At(i)
		v := *s.V
		if _, ok := v.file.(*Shm); ok {
			fmt.Fprintf(&b, "shm %d ", v.file.(*Shm).ino)
			v.file, v.obj = nil, nil
		}
		v.next, v.ahead = 0, 0
		fmt.Fprintf(&b, "%x-%x %+v\n", s.Start, s.End, v)
		spans = append(spans, span{s.Start, s.End})
	}
	m.mu.RUnlock()
	for _, s := range spans {
		buf := make([]byte, pageSize)
		for at := s.lo; at < s.hi; at += pageSize {
			n, err := m.Forced().CopyIn(buf, at)
			sum := uint64(0)
			for i, c := range buf[:n] {
				sum = sum*31 + uint64(c)*uint64(i+1)
			}
			fmt.Fprintf(&b, "%x %d %x %v\n", at, n, sum, err)
		}
	}
	return b.String()
}

// randomSpaces makes address spaces that share memory in all ways.
func randomSpaces(e *env, h *hostFile, r *rand.Rand) []*MM {
	base := uint64(0x7000_0000)
	addr := func() uint64 { return base + uint64(r.Intn(512))*pageSize }
	size := func() uint64 { return uint64(1+r.Intn(64)) * pageSize }
	ms := []*MM{e.mm}
	buf := make([]byte, 20000)
	for range 600 {
		m := ms[r.Intn(len(ms))]
		switch r.Intn(9) {
		case 0, 1:
			o := MMapOpts{
				Addr: addr(), Len: size(), Prot: platform.Prot(r.Intn(8)) | platform.Read, Shared: r.Intn(3) == 0, Fixed: true,
				GrowsDown: r.Intn(16) == 0, Stable: r.Intn(2) == 0,
			}
			if r.Intn(3) == 0 {
				o.File, o.Off = h, uint64(r.Intn(30))*pageSize
			}
			_, _ = m.MMap(o)
		case 2:
			_ = m.MUnmap(addr(), size())
		case 3:
			_ = m.MProtect(addr(), size(), platform.Prot(r.Intn(8)), false)
		case 4:
			_, _ = m.MRemap(addr(), size(), size(), unix.MREMAP_MAYMOVE, 0)
		case 5:
			_ = m.MAdvise(addr(), size(), []int{unix.MADV_DONTNEED, unix.MADV_DONTFORK, unix.MADV_WIPEONFORK, unix.MADV_DONTDUMP}[r.Intn(4)])
		case 6:
			if len(ms) < 4 && r.Intn(8) == 0 {
				if c, err := m.Fork(e.limits); err == nil {
					ms = append(ms, c)
				}
			}
		default:
			n := r.Intn(len(buf))
			r.Read(buf[:n])
			_, _ = m.CopyOut(addr()+uint64(r.Intn(pageSize)), buf[:n])
		}
	}
	e.mm.SetBrk(base - 64*pageSize)
	e.mm.Brk(base - 60*pageSize)
	e.mm.SetInfo(ProcInfo{ArgStart: 0x1000, ArgEnd: 0x2000, Auxv: []byte("auxv")})
	return ms
}

func TestSaveRestore(t *testing.T) {
	for seed := range int64(6) {
		e := newEnv(t)
		h := newHostFile(t, strings.Repeat("host file ", 9000))
		ms := randomSpaces(e, h, rand.New(rand.NewSource(seed)))
		c := newCheckpoint(t)
		c.records(e.mf, ms...)
		charged := e.acct.Total()
		if err := e.mf.WritePages(c.w, &c.set); err != nil {
			t.Fatal(err)
		}
		if _, _, _, err := c.w.Close(); err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, m := range ms {
			want = append(want, describe(t, m))
		}
		e2, ms2, fm := c.restore()
		if seed%2 == 0 {
			// A guest's accesses before the memory is there.
			for i, m := range ms2 {
				for a := uint64(0x7000_0000); a < 0x7000_0000+512*pageSize; a += 5 * pageSize {
					if m.vmas.Find(a) == nil {
						continue // no stack is to grow
					}
					_ = m.HandleFault(a, platform.Write)
					if i == 0 {
						e2.space(m)
					}
					_ = m.HandleFault(a, platform.Read)
					_ = m.HandleFault(a, platform.Write)
				}
				e2.check(m)
			}
		}
		if got := e2.acct.Total(); seed%2 == 1 && got != charged {
			t.Errorf("seed %d: %d bytes are charged after the restore, %d before", seed, got, charged)
		}
		for i, m := range ms2 {
			got := describe(t, m)
			if seed%2 == 0 {
				// Faults allocated memory: compare mappings and contents.
				_, got, _ = strings.Cut(got[strings.Index(got, "\n")+1:], "\n")
				_, want[i], _ = strings.Cut(want[i][strings.Index(want[i], "\n")+1:], "\n")
			}
			if got != want[i] {
				diff(t, want[i], got)
				t.Fatalf("seed %d: address space %d differs", seed, i)
			}
			checkUsage(t, m)
		}
		// Shared is shared, private is private.
		for _, m := range ms2 {
			probe(t, m, ms2, ms, e)
		}
		_ = fm
		e2.done(ms2...)
		e.done(ms[1:]...)
		if h.refs != 1 || h.maps != 0 {
			t.Fatalf("seed %d: %d references, %d bytes mapped are left", seed, h.refs, h.maps)
		}
	}
}

// probe writes to random pages of m and of its original, and compares what all see.
func probe(t *testing.T, m *MM, restored, original []*MM, _ *env) {
	k := 0
	for i := range restored {
		if restored[i] == m {
			k = i
		}
	}
	for a := uint64(0x7000_0000); a < 0x7000_0000+512*pageSize; a += 3 * pageSize {
		s := m.vmas.Find(a)
		if s == nil || s.V.file != nil && s.V.shared {
			if s != nil {
				if _, ok := s.V.file.(*Shm); !ok {
					continue // the host file is one for both
				}
			} else {
				continue
			}
		}
		msg := []byte(fmt.Sprintf("probe %d %x", k, a))
		n1, err1 := m.CopyOut(a, msg)
		n2, err2 := original[k].CopyOut(a, msg)
		if n1 != n2 || err1 != err2 {
			t.Fatalf("write at %#x: %d %v, before %d %v", a, n1, err1, n2, err2)
		}
	}
	for i := range restored {
		for a := uint64(0x7000_0000); a < 0x7000_0000+512*pageSize; a += pageSize {
			b1, b2 := make([]byte, 64), make([]byte, 64)
			n1, _ := restored[i].CopyIn(b1, a)
			n2, _ := original[i].CopyIn(b2, a)
			if n1 != n2 || !bytes.Equal(b1, b2) {
				t.Fatalf("after a write of %d, %d sees %q at %#x, before %q", k, i, b1[:n1], a, b2[:n2])
			}
		}
	}
}

func diff(t *testing.T, a, b string) {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i, n := 0, 0; i < len(x) && i < len(y) && n < 10; i++ {
		if x[i] != y[i] {
			t.Logf("want %s\n got %s", x[i], y[i])
			n++
		}
	}
}

// TestSnapshotGuests lets guests, forks and the Sentry write while a snapshot
// is written, and restores it.
func TestSnapshotGuests(t *testing.T) {
	for seed := range int64(4) {
		e := newEnv(t)
		h := newHostFile(t, strings.Repeat("host file ", 9000))
		r := rand.New(rand.NewSource(seed))
		ms := randomSpaces(e, h, r)
		for _, m := range ms {
			e.space(m)
			for a := uint64(0x7000_0000); a < 0x7000_0000+512*pageSize; a += pageSize {
				if m.vmas.Find(a) != nil {
					_ = m.HandleFault(a, platform.Write)
				}
			}
		}
		var want []string
		for _, m := range ms {
			describe(t, m) // which allocates what it reads
			want = append(want, describe(t, m))
		}
		c := newCheckpoint(t)
		c.records(e.mf, ms...)
		s, err := e.mf.BeginSnapshot(&c.set, c.w)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range ms {
			old := e.space(m)
			m.SwapForSnapshot()
			if e.space(m) == old {
				t.Fatal("the address space is the same")
			}
		}
		write := func(n int) {
			for range n {
				m := ms[r.Intn(len(ms))]
				a := uint64(0x7000_0000) + uint64(r.Intn(512*pageSize))&^63
				if v := m.vmas.Find(a); v == nil || v.V.shared && v.V.file == mem.Mappable(h) {
					continue // the host file is not part of the image
				}
				switch r.Intn(8) {
				case 0:
					_ = m.MProtect(a&^pageMask, uint64(1+r.Intn(20))*pageSize, rw, false)
				case 1:
					_ = m.MUnmap(a&^pageMask, pageSize)
				case 2:
					_, _ = m.CopyOut(a, []byte("the Sentry"))
				case 3:
					if m.vmas.Find(a) != nil {
						b := make([]byte, 8)
						_ = e.guest(m, a, false, b)
					}
				default:
					if v := m.vmas.Find(a); v.V.prot&platform.Write != 0 {
						_ = e.guest(m, a, true, []byte("the guest"))
					}
				}
				if r.Intn(10) == 0 {
					e.check(m)
				}
			}
		}
		if seed > 0 {
			write(600)
			if f, err := ms[0].Fork(e.limits); err == nil {
				ms = append(ms, f)
				write(200)
			}
		}
		if err := s.Write(); err != nil {
			t.Fatal(err)
		}
		write(200)
		s.Close()
		if _, _, _, err := c.w.Close(); err != nil {
			t.Fatal(err)
		}
		write(200)
		e2, ms2, fm := c.restore()
		done := make(chan error, 1)
		fm.StartLoader(func(err error) { done <- err })
		for i, m := range ms2 {
			if got := describe(t, m); got != want[i] {
				diff(t, want[i], got)
				t.Fatalf("seed %d: address space %d is not what it was at the cut", seed, i)
			}
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		e2.done(ms2...)
		e.done(ms[1:]...)
	}
}

// TestSnapshotProtect gives and takes write access while a snapshot is written.
func TestSnapshotProtect(t *testing.T) {
	e := newEnv(t)
	a := e.mmap(MMapOpts{Addr: 0x7000_0000, Fixed: true, Len: 1 << 20, Prot: rw})
	for i := uint64(0); i < 1<<20; i += pageSize {
		e.put(e.mm, a+i, "old")
	}
	c := newCheckpoint(t)
	c.records(e.mf, e.mm)
	s, err := e.mf.BeginSnapshot(&c.set, c.w)
	if err != nil {
		t.Fatal(err)
	}
	e.mm.SwapForSnapshot()
	e.as = e.space(e.mm)
	if got := e.get(e.mm, a, 3); got != "old" {
		t.Fatalf("read %q", got)
	}
	if p, ok := e.as.page(a); !ok || p.prot != platform.Read {
		t.Fatalf("mapped %v %v", ok, p)
	}
	if p, ok := e.as.page(a + 255*pageSize); !ok || p.prot != platform.Read {
		t.Fatalf("neighbour mapped %v %v", ok, p)
	}
	for _, prot := range []platform.Prot{platform.Read, rw, rw | platform.Exec} {
		if err := e.mm.MProtect(a, 1<<20, prot, false); err != nil {
			t.Fatal(err)
		}
		if p, ok := e.as.page(a); ok && p.prot&platform.Write != 0 {
			t.Fatal("mprotect gives write access to a frozen frame")
		}
	}
	e.put(e.mm, a+300<<10, "new")
	if p, ok := e.as.page(a + 300<<10); !ok || p.prot&platform.Write == 0 {
		t.Fatalf("mapped %v %v after a write", ok, p)
	}
	if p, ok := e.as.page(a); ok && p.prot&platform.Write != 0 {
		t.Fatal("a write gives access to another piece")
	}
	if n := s.Unwritten(); n != 1<<20-256<<10 && n != 1<<20-512<<10 {
		t.Errorf("%d bytes are not written", n)
	}
	e.check(e.mm)
	if err := s.Write(); err != nil {
		t.Fatal(err)
	}
	s.Close()
	e.put(e.mm, a, "new")
	c.w.Close()
	e2, ms, fm := c.restore()
	fm.StartLoader(func(error) {})
	for i := uint64(0); i < 1<<20; i += pageSize {
		if got := e2.get(ms[0], a+i, 3); got != "old" {
			t.Fatalf("page %d has %q", i/pageSize, got)
		}
	}
	e2.done(ms...)
	e.done()
}

func TestRestoreHostile(t *testing.T) {
	e := newEnv(t)
	a := e.anon(64 << 10)
	e.put(e.mm, a, "hello")
	c := newCheckpoint(t)
	c.records(e.mf, e.mm)
	if err := e.mf.WritePages(c.w, &c.set); err != nil {
		t.Fatal(err)
	}
	c.w.Close()
	var good image.MM
	{
		c.kernel.Seek(0, 0)
		r, _ := image.NewReader(c.kernel)
		x, err := image.LoadRecords(r, func(image.Kind) bool { return true })
		if err != nil {
			t.Fatal(err)
		}
		if err := x.Get(image.KindMM, c.ids[0], &good); err != nil {
			t.Fatal(err)
		}
	}
	e2, ms, fm := c.restore()
	if got := e2.get(ms[0], a, 5); got != "hello" {
		t.Errorf("restored %q", got)
	}
	_ = fm
	for name, change := range map[string]func(*image.MM){
		"start":   func(r *image.MM) { r.VMAs[0].Start++ },
		"kernel":  func(r *image.MM) { r.VMAs[0].End = 1 << 63 },
		"empty":   func(r *image.MM) { r.VMAs[0].End = r.VMAs[0].Start },
		"overlap": func(r *image.MM) { r.VMAs = append(r.VMAs, r.VMAs[0]) },
		"prot":    func(r *image.MM) { r.VMAs[0].Prot = 0xff },
		"lock":    func(r *image.MM) { r.VMAs[0].Lock = 9 },
		"shared":  func(r *image.MM) { r.VMAs[0].Flags |= image.VMAShared },
		"source":  func(r *image.MM) { r.VMAs[0].Source = 77 },
		"vdso":    func(r *image.MM) { r.VMAs[0].Source = image.VMAVDSO },
		"shm":     func(r *image.MM) { r.VMAs[0].Source, r.VMAs[0].File = image.VMAShm, 12345 },
		"wrap":    func(r *image.MM) { r.VMAs[0].Off = ^uint64(0) &^ pageMask },
		"page":    func(r *image.MM) { r.Pages[0].Addr = 0x10000 },
		"twice":   func(r *image.MM) { r.Pages = append(r.Pages, r.Pages[0]) },
		"frame":   func(r *image.MM) { r.Pages[0].Frame += 1 << 40 },
		"length":  func(r *image.MM) { r.Pages[0].Len = 1 << 62 },
		"runs":    func(r *image.MM) { r.MorePages = []image.ID{99} },
		"brk":     func(r *image.MM) { r.BrkStart = 1 << 63 },
		"exe":     func(r *image.MM) { r.Info.ArgStart = 1 << 50 },
	} {
		rec := good
		rec.VMAs = append([]image.VMA(nil), good.VMAs...)
		rec.Pages = append([]image.PageRun(nil), good.Pages...)
		change(&rec)
		var b bytes.Buffer
		w := image.NewWriter(&b)
		w.Put(image.KindMM, 1, &rec)
		w.Close()
		rd, _ := image.NewReader(&b)
		x, err := image.LoadRecords(rd, func(image.Kind) bool { return true })
		if err != nil {
			t.Fatal(err)
		}
		mf, _ := mem.New()
		re := &RestoreEnv{Restorer: x, MemFile: mf, Group: &fakeGroup{}, Frames: framesFor(t, c, mf)}
		if m, err := Restore(re, rec.ID, e.limits); err == nil {
			t.Errorf("%s is accepted", name)
			m.DecUsers()
		}
		re.Frames.Finish()
		mf.Close()
	}
	e2.done(ms...)
	e.done()
}

func framesFor(t testing.TB, c *checkpoint, mf *mem.File) *mem.FrameMap {
	c.kernel.Seek(0, 0)
	r, _ := image.NewReader(c.kernel)
	x, err := image.LoadRecords(r, func(image.Kind) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	pages, _ := os.Open(c.pages.Name())
	c.idx.Seek(0, 0)
	p, err := image.OpenPages(pages, c.idx)
	if err != nil {
		t.Fatal(err)
	}
	fm, err := mf.RestoreFrames(x, c.frames, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	return fm
}

// TestImageConcurrent has guests and the Sentry use memory, fork and free it
// while it is loaded from one image and written to the next.
func TestImageConcurrent(t *testing.T) {
	const pages = 2048
	e := newEnv(t)
	a := e.mmap(MMapOpts{Addr: 0x7000_0000, Fixed: true, Len: pages * pageSize, Prot: rw})
	want := make([]string, pages)
	for i := range want {
		want[i] = fmt.Sprintf("page %6d", i)
		if _, err := e.mm.CopyOut(a+uint64(i)*pageSize+100, []byte(want[i])); err != nil {
			t.Fatal(err)
		}
	}
	c := newCheckpoint(t)
	c.records(e.mf, e.mm)
	if err := e.mf.WritePages(c.w, &c.set); err != nil {
		t.Fatal(err)
	}
	c.w.Close()
	for round := range 3 {
		e2, ms, fm := c.restore()
		m := ms[0]
		e2.space(m)
		// The cut: before anything is loaded.
		cut := append([]string(nil), want...)
		c2 := newCheckpoint(t)
		c2.records(e2.mf, m)
		s, err := e2.mf.BeginSnapshot(&c2.set, c2.w)
		if err != nil {
			t.Fatal(err)
		}
		m.SwapForSnapshot()
		e2.space(m)
		done := make(chan error, 1)
		fm.StartLoader(func(err error) { done <- err })
		var wg sync.WaitGroup
		for k := range 3 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				r := rand.New(rand.NewSource(int64(10*round + k)))
				for range 1500 {
					i := r.Intn(pages/3)*3 + k
					at := a + uint64(i)*pageSize + 100
					b := make([]byte, len(want[i]))
					switch r.Intn(7) {
					case 0, 1:
						if _, err := m.CopyIn(b, at); err != nil || string(b) != want[i] {
							t.Errorf("the Sentry reads %q in page %d, want %q, %v", b, i, want[i], err)
							return
						}
					case 2, 3:
						if err := e2.guest(m, at, false, b); err != nil || string(b) != want[i] {
							t.Errorf("the guest reads %q in page %d, want %q, %v", b, i, want[i], err)
							return
						}
					case 4:
						want[i] = fmt.Sprintf("sent %6d", r.Intn(1e6))
						m.CopyOut(at, []byte(want[i]))
					case 5:
						want[i] = fmt.Sprintf("gues %6d", r.Intn(1e6))
						if err := e2.guest(m, at, true, []byte(want[i])); err != nil {
							t.Error(err)
							return
						}
					case 6:
						if err := m.MAdvise(at-100, pageSize, unix.MADV_DONTNEED); err != nil {
							t.Error(err)
						}
						want[i] = strings.Repeat("\x00", len(want[i]))
					}
				}
			}()
		}
		if err := s.Write(); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		s.Close()
		e2.check(m)
		for i := range want {
			if got := e2.get(m, a+uint64(i)*pageSize+100, len(want[i])); got != want[i] {
				t.Fatalf("round %d: page %d has %q, want %q", round, i, got, want[i])
			}
		}
		e2.done(m)
		c2.w.Close()
		e3, ms3, _ := c2.restore()
		for i := range cut {
			if got := e3.get(ms3[0], a+uint64(i)*pageSize+100, len(cut[i])); got != cut[i] {
				t.Fatalf("round %d: page %d of the second image has %q, want %q", round, i, got, cut[i])
			}
		}
		e3.done(ms3...)
		want, c = cut, c2
	}
	e.done()
}
