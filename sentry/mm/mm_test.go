package mm

import (
	"fmt"
	"math/rand"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"runsc/sentry/arch"
	"runsc/sentry/mem"
	"runsc/sentry/platform"
)

func TestUntouchedNeedsNoHost(t *testing.T) {
	e := newEnv(t)
	for i := 0; i < 100; i++ {
		a := e.anon(64 << 10)
		if err := e.mm.MProtect(a, 4096, platform.Read, false); err != nil {
			t.Fatal(err)
		}
		if err := e.mm.MUnmap(a, 64<<10); err != nil {
			t.Fatal(err)
		}
	}
	c, err := e.mm.Fork(e.limits)
	if err != nil {
		t.Fatal(err)
	}
	if e.as.calls != 0 {
		t.Errorf("%d host calls", e.as.calls)
	}
	e.done(c)
}

func TestFaultAround(t *testing.T) {
	e := newEnv(t)
	a := e.mmap(MMapOpts{Addr: 0x10000000, Len: 8 << 20, Prot: rw, Fixed: true})
	e.put(e.mm, a, "x")
	if n := e.as.calls; n != 1 {
		t.Errorf("%d host calls for a first touch", n)
	}
	if n := e.acct.Total(); n != 64<<10 {
		t.Errorf("a first touch allocates %d", n)
	}
	for o := uint64(0); o < 8<<20; o += pageSize {
		e.put(e.mm, a+o, "y")
	}
	if n := e.as.calls; n > 24 {
		t.Errorf("%d host calls for a sequential 8 MiB", n)
	}
	if got := e.get(e.mm, a+4095, 3); got != "\x00y\x00" {
		t.Errorf("got %q", got)
	}
	if n := e.mm.pages.Len(); n > 4 {
		t.Errorf("%d page runs in contiguous memory", n)
	}
	e.done()
}

func TestForkCopyOnWrite(t *testing.T) {
	e := newEnv(t)
	a := e.anon(256 << 10)
	sh := e.mmap(MMapOpts{Len: 64 << 10, Prot: rw, Shared: true})
	e.put(e.mm, a, "parent")
	e.put(e.mm, a+128<<10, "p2")
	e.put(e.mm, sh, "shared")
	c, err := e.mm.Fork(e.limits)
	if err != nil {
		t.Fatal(err)
	}
	e.check(e.mm)
	if got := e.get(c, a, 6); got != "parent" {
		t.Errorf("child reads %q", got)
	}
	e.put(c, a, "child!")
	e.put(e.mm, a+4096, "after")
	e.put(c, sh+10, "both")
	if p, q := e.get(e.mm, a, 6), e.get(c, a, 6); p != "parent" || q != "child!" {
		t.Errorf("parent %q child %q", p, q)
	}
	if q := e.get(c, a+4096, 5); q != "\x00\x00\x00\x00\x00" {
		t.Errorf("child sees the parent's write: %q", q)
	}
	if q := e.get(e.mm, sh+10, 4); q != "both" {
		t.Errorf("shared memory is not: %q", q)
	}
	// Copies by the Sentry break sharing too.
	if _, err := c.CopyOut(a+128<<10, []byte("cc")); err != nil {
		t.Fatal(err)
	}
	if p, q := e.get(e.mm, a+128<<10, 2), e.get(c, a+128<<10, 2); p != "p2" || q != "cc" {
		t.Errorf("parent %q child %q", p, q)
	}
	e.check(c)
	c.DecUsers()
	before := e.acct.Total()
	e.put(e.mm, a, "owner!")
	if e.acct.Total() > before {
		t.Error("the last owner copied")
	}
	e.done()
}

func TestGrandchildren(t *testing.T) {
	e := newEnv(t)
	a := e.anon(1 << 20)
	for o := uint64(0); o < 1<<20; o += 4096 {
		e.put(e.mm, a+o, "0")
	}
	ms := []*MM{e.mm}
	r := rand.New(rand.NewSource(1))
	want := []map[uint64]byte{{}}
	for i := 0; i < 600; i++ {
		k := r.Intn(len(ms))
		switch op := r.Intn(10); {
		case op == 0 && len(ms) < 12:
			c, err := ms[k].Fork(e.limits)
			if err != nil {
				t.Fatal(err)
			}
			ms = append(ms, c)
			w := map[uint64]byte{}
			for p, b := range want[k] {
				w[p] = b
			}
			want = append(want, w)
		case op == 1 && k > 0:
			e.check(ms[k])
			ms[k].DecUsers()
			ms = append(ms[:k], ms[k+1:]...)
			want = append(want[:k], want[k+1:]...)
		default:
			p := uint64(r.Intn(256)) * 4096
			b := byte(r.Intn(256))
			if op < 6 {
				e.put(ms[k], a+p, string([]byte{b}))
			} else if _, err := ms[k].CopyOut(a+p, []byte{b}); err != nil {
				t.Fatal(err)
			}
			want[k][p] = b
		}
	}
	for k, m := range ms {
		for p := uint64(0); p < 1<<20; p += 4096 {
			w, ok := want[k][p]
			if !ok {
				w = '0'
			}
			if g := e.get(m, a+p, 1); g[0] != w {
				t.Fatalf("mm %d page %#x: %q, want %q", k, p, g, w)
			}
		}
	}
	e.done(ms[1:]...)
}

func TestProtectAndErrors(t *testing.T) {
	e := newEnv(t)
	a := e.anon(64 << 10)
	e.put(e.mm, a, "hello")
	if err := e.mm.MProtect(a, 4096, platform.Read, false); err != nil {
		t.Fatal(err)
	}
	want := &Fault{int32(unix.SIGSEGV), SegvAccErr, a}
	if err := e.guest(e.mm, a, true, []byte("x")); err == nil || *err.(*Fault) != *want {
		t.Errorf("write to read-only: %v", err)
	}
	if _, err := e.mm.CopyOut(a, []byte("x")); err != unix.EFAULT {
		t.Errorf("CopyOut: %v", err)
	}
	if _, err := e.mm.Forced().CopyOut(a, []byte("J")); err != nil {
		t.Errorf("forced: %v", err)
	}
	if got := e.get(e.mm, a, 5); got != "Jello" {
		t.Errorf("got %q", got)
	}
	if err := e.mm.MProtect(a, 4096, 0, false); err != nil {
		t.Fatal(err)
	}
	if _, ok := e.as.page(a); ok {
		t.Error("PROT_NONE is mapped on the host")
	}
	if err := e.mm.MProtect(a, 64<<10, rw, false); err != nil {
		t.Fatal(err)
	}
	if n := e.mm.vmas.Len(); n != 1 {
		t.Errorf("%d vmas: not merged", n)
	}
	if got := e.get(e.mm, a, 5); got != "Jello" {
		t.Errorf("got %q", got)
	}
	if err := e.guest(e.mm, 0x1000, false, make([]byte, 1)); *err.(*Fault) != (Fault{int32(unix.SIGSEGV), SegvMapErr, 0x1000}) {
		t.Errorf("null: %v", err)
	}
	n, err := e.mm.CopyOut(a+64<<10-2, []byte("abcd"))
	if n != 2 || err != unix.EFAULT {
		t.Errorf("partial copy: %d %v", n, err)
	}
	if err := e.mm.MProtect(a, 1<<20, platform.Read, false); err != unix.ENOMEM {
		t.Errorf("mprotect over a hole: %v", err)
	}
	e.done()
}

func TestMMapRules(t *testing.T) {
	e := newEnv(t)
	tests := []struct {
		name string
		o    MMapOpts
		want error
	}{
		{"zero length", MMapOpts{}, unix.EINVAL},
		{"huge", MMapOpts{Len: ^uint64(0)}, unix.ENOMEM},
		{"too large", MMapOpts{Len: 1 << 47}, unix.ENOMEM},
		{"odd fixed", MMapOpts{Addr: 0x20001, Len: 1, Fixed: true}, unix.EINVAL},
		{"low fixed", MMapOpts{Addr: 0x1000, Len: 1, Fixed: true}, unix.EPERM},
		{"more than there is", MMapOpts{Len: 1 << 45, Prot: rw}, unix.ENOMEM},
		{"odd offset", MMapOpts{Len: 1, Off: 1}, unix.EINVAL},
		{"top", MMapOpts{Addr: 0x7ffffffff000, Len: 4096, Fixed: true}, unix.ENOMEM},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			if _, err := e.mm.MMap(c.o); err != c.want {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
	a := e.mmap(MMapOpts{Addr: 0x20000000, Len: 64 << 10, Prot: rw})
	if a != 0x20000000 {
		t.Errorf("hint not taken: %#x", a)
	}
	if _, err := e.mm.MMap(MMapOpts{Addr: a, Len: 4096, Fixed: true, NoReplace: true}); err != unix.EEXIST {
		t.Errorf("NOREPLACE: %v", err)
	}
	if b := e.mmap(MMapOpts{Addr: a, Len: 4096}); b == a {
		t.Error("hint over a mapping")
	}
	if b := e.mmap(MMapOpts{Len: 4096, Low2G: true}); b >= 1<<31 {
		t.Errorf("32BIT at %#x", b)
	}
	e.put(e.mm, a, "old")
	e.mmap(MMapOpts{Addr: a, Len: 4096, Prot: rw, Fixed: true})
	if got := e.get(e.mm, a, 3); got != "\x00\x00\x00" {
		t.Errorf("MAP_FIXED kept %q", got)
	}
	x, y := e.anon(4096), e.anon(4096)
	if y != x-4096 {
		t.Errorf("not top-down: %#x then %#x", x, y)
	}
	e.lim[unix.RLIMIT_AS] = e.mm.Usage().Size + 4096
	e.anon(4096)
	if _, err := e.mm.MMap(MMapOpts{Len: 4096}); err != unix.ENOMEM {
		t.Errorf("RLIMIT_AS: %v", err)
	}
	e.done()
}

func TestBrkAndStack(t *testing.T) {
	e := newEnv(t)
	e.mm.SetBrk(0x30000000)
	if b := e.mm.Brk(0); b != 0x30000000 {
		t.Errorf("brk %#x", b)
	}
	if b := e.mm.Brk(0x30005010); b != 0x30005010 {
		t.Errorf("brk %#x", b)
	}
	e.put(e.mm, 0x30005000, "heap")
	if b := e.mm.Brk(0x30001000); b != 0x30001000 {
		t.Errorf("brk %#x", b)
	}
	e.mm.Brk(0x30006000)
	if got := e.get(e.mm, 0x30005000, 4); got != "\x00\x00\x00\x00" {
		t.Errorf("heap kept %q", got)
	}
	e.lim[unix.RLIMIT_DATA] = 1 << 20
	if b := e.mm.Brk(0x40000000); b != 0x30006000 {
		t.Errorf("RLIMIT_DATA: %#x", b)
	}
	delete(e.lim, unix.RLIMIT_DATA)
	top := e.mm.StackTop()
	s := e.mmap(MMapOpts{Addr: top - 128<<10, Len: 128 << 10, Prot: rw, Fixed: true, GrowsDown: true, Name: "[stack]"})
	e.put(e.mm, s-1<<20, "deep")
	if got := e.get(e.mm, s-1<<20, 4); got != "deep" {
		t.Errorf("stack %q", got)
	}
	if err := e.guest(e.mm, top-9<<20, true, []byte("x")); err == nil {
		t.Error("the stack grew beyond RLIMIT_STACK")
	}
	e.mmap(MMapOpts{Addr: top - 4<<20, Len: 4096, Prot: rw, Fixed: true})
	if err := e.guest(e.mm, top-4<<20+8192, true, []byte("x")); err == nil {
		t.Error("the stack grew into the guard gap")
	}
	e.done()
}

func TestMremap(t *testing.T) {
	e := newEnv(t)
	a := e.anon(64 << 10)
	e.put(e.mm, a, "move me")
	e.put(e.mm, a+60<<10, "tail")
	b, err := e.mm.MRemap(a, 64<<10, 1<<20, unix.MREMAP_MAYMOVE, 0)
	if err != nil {
		t.Fatal(err)
	}
	if e.get(e.mm, b, 7) != "move me" || e.get(e.mm, b+60<<10, 4) != "tail" || e.get(e.mm, b+70<<10, 1) != "\x00" {
		t.Error("contents lost")
	}
	if b != a && e.mm.Mapped(a, 64<<10) {
		t.Error("the old place is still mapped")
	}
	e.put(e.mm, b+70<<10, "new")
	if c, err := e.mm.MRemap(b, 1<<20, 8192, 0, 0); err != nil || c != b {
		t.Errorf("shrink: %#x %v", c, err)
	}
	if c, err := e.mm.MRemap(b, 8192, 64<<10, 0, 0); err != nil || c != b || e.get(e.mm, b+8192, 1) != "\x00" {
		t.Errorf("grow in place: %#x %v", c, err)
	}
	to := uint64(0x50000000)
	if c, err := e.mm.MRemap(b, 64<<10, 64<<10, unix.MREMAP_MAYMOVE|unix.MREMAP_FIXED, to); err != nil || c != to || e.get(e.mm, to, 7) != "move me" {
		t.Errorf("fixed: %#x %v", c, err)
	}
	if c, err := e.mm.MRemap(to, 64<<10, 64<<10, unix.MREMAP_MAYMOVE|unix.MREMAP_DONTUNMAP, 0); err != nil || e.get(e.mm, c, 7) != "move me" || e.get(e.mm, to, 1) != "\x00" {
		t.Errorf("dontunmap: %#x %v", c, err)
	}
	sh := e.mmap(MMapOpts{Len: 8192, Prot: rw, Shared: true})
	e.put(e.mm, sh, "twin")
	if c, err := e.mm.MRemap(sh, 0, 8192, unix.MREMAP_MAYMOVE, 0); err != nil || e.get(e.mm, c, 4) != "twin" || e.get(e.mm, sh, 4) != "twin" {
		t.Errorf("duplicate: %#x %v", c, err)
	}
	if _, err := e.mm.MRemap(0x60000000, 4096, 8192, unix.MREMAP_MAYMOVE, 0); err != unix.EFAULT {
		t.Errorf("unmapped: %v", err)
	}
	if _, err := e.mm.MRemap(to, 4096, 8192, unix.MREMAP_FIXED, 0); err != unix.EINVAL {
		t.Errorf("flags: %v", err)
	}
	e.done()
}

func TestMadvise(t *testing.T) {
	e := newEnv(t)
	a := e.anon(256 << 10)
	e.put(e.mm, a, "gone")
	e.put(e.mm, a+128<<10, "kept")
	if err := e.mm.MAdvise(a, 64<<10, unix.MADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
	if e.get(e.mm, a, 4) != "\x00\x00\x00\x00" || e.get(e.mm, a+128<<10, 4) != "kept" {
		t.Error("MADV_DONTNEED")
	}
	if err := e.mm.MAdvise(a, 4096, 99); err != unix.EINVAL {
		t.Errorf("unknown: %v", err)
	}
	if err := e.mm.MAdvise(a+1, 4096, unix.MADV_NORMAL); err != unix.EINVAL {
		t.Errorf("odd: %v", err)
	}
	if err := e.mm.MAdvise(a, 1<<20, unix.MADV_DONTNEED); err != unix.ENOMEM {
		t.Errorf("hole: %v", err)
	}
	for _, c := range []struct {
		advice int
		want   string
	}{{unix.MADV_WIPEONFORK, "\x00"}, {unix.MADV_KEEPONFORK, "y"}, {unix.MADV_DONTFORK, ""}} {
		e.put(e.mm, a, "y")
		if err := e.mm.MAdvise(a, 64<<10, c.advice); err != nil {
			t.Fatal(err)
		}
		f, err := e.mm.Fork(e.limits)
		if err != nil {
			t.Fatal(err)
		}
		if c.want == "" {
			if f.Mapped(a, 4096) {
				t.Error("MADV_DONTFORK")
			}
		} else if got := e.get(f, a, 1); got != c.want {
			t.Errorf("advice %d: %q", c.advice, got)
		}
		f.DecUsers()
	}
	sh := e.mmap(MMapOpts{Len: 64 << 10, Prot: rw, Shared: true})
	e.put(e.mm, sh, "x")
	if err := e.mm.MAdvise(sh, 64<<10, unix.MADV_REMOVE); err != nil || e.get(e.mm, sh, 1) != "\x00" {
		t.Errorf("MADV_REMOVE: %v", err)
	}
	if err := e.mm.MLock(a+4096, 4096, false, false); err != nil {
		t.Errorf("mlock: %v", err)
	}
	if err := e.mm.MAdvise(a, 64<<10, unix.MADV_DONTNEED); err != unix.EINVAL {
		t.Errorf("DONTNEED of locked: %v", err)
	}
	if u := e.mm.Usage(); u.Locked != 4096 {
		t.Errorf("locked %d", u.Locked)
	}
	if err := e.mm.MUnlock(a, 64<<10); err != nil {
		t.Error(err)
	}
	e.lim[unix.RLIMIT_MEMLOCK] = 4096
	if err := e.mm.MLock(a, 8192, false, false); err != unix.ENOMEM {
		t.Errorf("RLIMIT_MEMLOCK: %v", err)
	}
	e.done()
}

func TestLimitAndOOM(t *testing.T) {
	e := newEnv(t)
	told := 0
	e.acct.OnLimit = func(*mem.Account, uint64) { told++ }
	e.acct.SetLimit(1 << 20)
	a := e.anon(8 << 20)
	var err error
	n := 0
	for o := uint64(0); o < 8<<20; o += 4096 {
		if err = e.guest(e.mm, a+o, true, []byte("x")); err != nil {
			break
		}
		n++
	}
	if err != mem.ErrLimit || n != 256 || told == 0 {
		t.Errorf("after %d pages: %v, told %d", n, err, told)
	}
	if e.acct.Total() != 1<<20 {
		t.Errorf("used %d", e.acct.Total())
	}
	if _, err := e.mm.CopyOut(a+4<<20, []byte("x")); err != unix.EFAULT {
		t.Errorf("CopyOut: %v", err)
	}
	e.mm.MUnmap(a, 4096)
	if err := e.guest(e.mm, a+4<<20, true, []byte("x")); err != nil {
		t.Errorf("after munmap: %v", err)
	}
	e.done()
}

func TestHostMappingLimit(t *testing.T) {
	e := newEnv(t)
	e.as.maxPages = 300
	a := e.anon(4 << 20)
	for o := uint64(0); o < 4<<20; o += 64 << 10 {
		e.put(e.mm, a+o, fmt.Sprint(o))
	}
	for o := uint64(0); o < 4<<20; o += 64 << 10 {
		if got := e.get(e.mm, a+o, len(fmt.Sprint(o))); got != fmt.Sprint(o) {
			t.Fatalf("at %#x %q", o, got)
		}
	}
	e.done()
}

// hostFile maps a file of the host.
type hostFile struct {
	f    *os.File
	size int64
	refs int
	maps int64
	mu   sync.Mutex
}

func newHostFile(t testing.TB, content string) *hostFile {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString(content)
	t.Cleanup(func() { f.Close() })
	return &hostFile{f: f, size: int64(len(content)), refs: 1}
}

func (h *hostFile) Region(off, n int64, write bool) (mem.Region, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	end := (h.size + pageMask) &^ pageMask
	if off >= end {
		return mem.Region{}, unix.EFAULT
	}
	return mem.Region{FD: int(h.f.Fd()), Off: off, Len: min(n, end-off)}, nil
}
func (h *hostFile) AddMapping(_ mem.MappingSpace, _, n int64, _ bool) error { h.add(n, 0); return nil }
func (h *hostFile) RemoveMapping(_ mem.MappingSpace, _, n int64, _ bool)    { h.add(-n, 0) }
func (h *hostFile) IncRef()                                                 { h.add(0, 1) }
func (h *hostFile) DecRef()                                                 { h.add(0, -1) }
func (h *hostFile) MapName() (string, uint64, uint64)                       { return "/file", 1, 2 }
func (h *hostFile) add(n int64, r int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.maps += n
	h.refs += r
	if h.refs < 0 || h.maps < 0 {
		panic("hostFile: count below zero")
	}
}

func TestFileMappings(t *testing.T) {
	e := newEnv(t)
	h := newHostFile(t, strings.Repeat("a", 10000)+strings.Repeat("b", 190000))
	p := e.mmap(MMapOpts{Len: 300 << 10, Prot: rw, File: h})
	s := e.mmap(MMapOpts{Len: 196 << 10, Prot: rw, File: h, Shared: true})
	if got := e.get(e.mm, p+9999, 2); got != "ab" {
		t.Errorf("read %q", got)
	}
	if n := e.as.calls; n != 1 {
		t.Errorf("%d host calls to read a file mapping", n)
	}
	e.get(e.mm, p+150000, 1)
	if n := e.as.calls; n != 1 {
		t.Errorf("%d host calls: the mapping was not made at once", n)
	}
	e.put(e.mm, p+100, "priv")
	e.put(e.mm, s+200, "shrd")
	if got := e.get(e.mm, p+98, 8); got != "aaprivaa" {
		t.Errorf("private %q", got)
	}
	if got := e.get(e.mm, s+100, 4); got != "aaaa" {
		t.Errorf("shared sees the private write: %q", got)
	}
	b := make([]byte, 4)
	h.f.ReadAt(b, 200)
	if string(b) != "shrd" {
		t.Errorf("the file has %q", b)
	}
	if _, err := e.mm.CopyOut(s+300, []byte("copy")); err != nil {
		t.Fatal(err)
	}
	h.f.ReadAt(b, 300)
	if string(b) != "copy" {
		t.Errorf("the file has %q", b)
	}
	err := e.guest(e.mm, p+250<<10, false, b)
	if f, ok := err.(*Fault); !ok || f.Signal != int32(unix.SIGBUS) || f.Code != BusAdrErr {
		t.Errorf("beyond the end: %v", err)
	}
	c, err := e.mm.Fork(e.limits)
	if err != nil {
		t.Fatal(err)
	}
	if got := e.get(c, p+98, 8); got != "aaprivaa" {
		t.Errorf("child %q", got)
	}
	// Truncation.
	h.f.Truncate(4096)
	h.mu.Lock()
	h.size = 4096
	h.mu.Unlock()
	for _, m := range []*MM{e.mm, c} {
		m.Invalidate(h, 4096, 1<<62, true)
		e.check(m)
	}
	if err := e.guest(e.mm, s+8192, false, b); err == nil {
		t.Error("read after truncation")
	}
	if got := e.get(e.mm, p+98, 8); got != "aaprivaa" {
		t.Errorf("the private page before the cut: %q", got)
	}
	names := ""
	e.mm.MapsFor(func(v VMAInfo) { names += v.Name })
	if names != "/file/file" {
		t.Errorf("maps %q", names)
	}
	e.mm.MUnmap(p+4096, 8192)
	e.mm.MProtect(p+8<<12, 4096, platform.Read, false)
	e.mm.MProtect(p+8<<12, 4096, rw, false)
	e.done(c)
	if h.refs != 1 || h.maps != 0 {
		t.Errorf("%d references, %d bytes mapped are left", h.refs, h.maps)
	}
}

func TestNoexecHost(t *testing.T) {
	e := newEnv(t)
	e.as.noExec = true
	h := newHostFile(t, strings.Repeat("code", 50000))
	a := e.mmap(MMapOpts{Len: 195 << 10, Prot: platform.Read | platform.Exec, File: h})
	if got := e.get(e.mm, a+100000, 4); got != "code" {
		t.Errorf("got %q", got)
	}
	e.done()
}

func TestFutexWords(t *testing.T) {
	e := newEnv(t)
	h := newHostFile(t, strings.Repeat("\x00", 8192))
	for _, o := range []MMapOpts{{Len: 4096, Prot: rw}, {Len: 4096, Prot: rw, Shared: true}, {Len: 4096, Prot: rw, Shared: true, File: h}} {
		a := e.mmap(o)
		if v, err := e.mm.LoadUint32(a); v != 0 || err != nil {
			t.Errorf("load %d %v", v, err)
		}
		if v, err := e.mm.CompareAndSwapUint32(a, 0, 7); v != 0 || err != nil {
			t.Errorf("cas %d %v", v, err)
		}
		if v, err := e.mm.CompareAndSwapUint32(a, 0, 8); v != 7 || err != nil {
			t.Errorf("cas %d %v", v, err)
		}
		if v, err := e.mm.SwapUint32(a, 9); v != 7 || err != nil {
			t.Errorf("swap %d %v", v, err)
		}
		if got := e.get(e.mm, a, 4); got != "\x09\x00\x00\x00" {
			t.Errorf("memory %q", got)
		}
		k1, err1 := e.mm.FutexKey(a, false)
		c, _ := e.mm.Fork(e.limits)
		k2, err2 := c.FutexKey(a, false)
		if err1 != nil || err2 != nil || (k1 == k2) != o.Shared {
			t.Errorf("keys %v %v", k1, k2)
		}
		c.DecUsers()
	}
	if _, err := e.mm.FutexKey(2, false); err != unix.EINVAL {
		t.Errorf("odd: %v", err)
	}
	if _, err := e.mm.LoadUint32(0x1000); err != unix.EFAULT {
		t.Errorf("unmapped: %v", err)
	}
	e.done()
}

// TestConcurrent runs every operation from several goroutines.
func TestConcurrent(t *testing.T) {
	e := newEnv(t)
	const n = 4 << 20
	a := e.anon(n)
	h := newHostFile(t, strings.Repeat("z", 1<<20))
	fm := e.mmap(MMapOpts{Len: 1 << 20, Prot: rw, File: h})
	var wg sync.WaitGroup
	for g := 0; g < 4; g++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			r := rand.New(rand.NewSource(int64(g)))
			b := make([]byte, 9000)
			for i := 0; i < 400; i++ {
				o := uint64(r.Intn(n/4096)) * 4096
				switch r.Intn(9) {
				case 0:
					e.mm.CopyOut(a+o, b[:r.Intn(len(b))])
				case 1:
					e.mm.CopyIn(b[:r.Intn(len(b))], a+o)
				case 2:
					e.mm.HandleFault(a+o, platform.Write)
				case 3:
					e.mm.HandleFault(fm+o%(1<<20), platform.Prot(1+r.Intn(2)))
				case 4:
					e.mm.MAdvise(a+o, uint64(r.Intn(16))*4096, unix.MADV_DONTNEED)
				case 5:
					e.mm.MProtect(a+o, 4096, []platform.Prot{rw, platform.Read, rw, 0}[r.Intn(4)], false)
				case 6:
					if c, err := e.mm.Fork(e.limits); err == nil {
						c.CopyOut(a+o, b[:100])
						c.DecUsers()
					}
				case 7:
					e.mm.Invalidate(h, int64(o%(1<<20)), 65536, r.Intn(2) == 0)
				case 8:
					if x, err := e.mm.MMap(MMapOpts{Len: 65536, Prot: rw}); err == nil {
						e.mm.CopyOut(x, b)
						if y, err := e.mm.MRemap(x, 65536, 1<<18, unix.MREMAP_MAYMOVE, 0); err == nil {
							e.mm.MUnmap(y, 1<<18)
						}
					}
				}
			}
		}()
	}
	wg.Wait()
	e.done()
}

// TestMUnmapAll unmaps up to Linux's limit, beyond what a guest can map: that is
// no error.
func TestMUnmapAll(t *testing.T) {
	e := newEnv(t)
	for _, tc := range []struct {
		addr, n uint64
		want    error
	}{
		{arch.GuestTop, 4096, nil},
		{arch.TaskSize, 4096, unix.EINVAL},
		{arch.TaskSize - 4096, 4096, nil},
		{0, arch.TaskSize + 1, unix.EINVAL},
		{0, 0, unix.EINVAL},
		{0, ^uint64(0), unix.EINVAL},
		{1, 4096, unix.EINVAL},
		{0, arch.TaskSize, nil},
	} {
		if err := e.mm.MUnmap(tc.addr, tc.n); err != tc.want {
			t.Errorf("munmap(%#x, %#x): %v, want %v", tc.addr, tc.n, err, tc.want)
		}
	}
}
