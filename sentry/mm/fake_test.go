package mm

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"runsc/sentry/mem"
	"runsc/sentry/platform"
)

// fakeAS records the host mappings of an address space page by page, and can
// read and write through them as the guest would.
type fakeAS struct {
	mu       sync.Mutex
	pages    map[uint64]fakePage
	calls    int
	maxPages int  // Map fails with ENOMEM above it, once per overflow
	noExec   bool // host files cannot be mapped for execution
	released bool
}

type fakePage struct {
	fd   int
	off  int64
	prot platform.Prot
}

func (a *fakeAS) Map(addr, n uint64, fd int, off int64, prot platform.Prot, populate bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls++
	if addr%pageSize != 0 || n%pageSize != 0 || n == 0 || off%pageSize != 0 || prot == 0 {
		panic(fmt.Sprintf("bad Map %#x %#x %#x %d", addr, n, off, prot))
	}
	if a.maxPages > 0 && len(a.pages)+int(n/pageSize) > a.maxPages {
		return unix.ENOMEM
	}
	if a.noExec && !populate && prot&platform.Exec != 0 {
		return unix.EPERM
	}
	for i := uint64(0); i < n; i += pageSize {
		a.pages[addr+i] = fakePage{fd, off + int64(i), prot}
	}
	return nil
}

func (a *fakeAS) Unmap(addr, n uint64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls++
	if n/pageSize > uint64(len(a.pages)) {
		for p := range a.pages {
			if p >= addr && p < addr+n {
				delete(a.pages, p)
			}
		}
		return nil
	}
	for i := uint64(0); i < n; i += pageSize {
		delete(a.pages, addr+i)
	}
	return nil
}

func (a *fakeAS) Protect(addr, n uint64, prot platform.Prot) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls++
	if n/pageSize > uint64(len(a.pages)) {
		for at, p := range a.pages {
			if at >= addr && at < addr+n {
				p.prot = prot
				a.pages[at] = p
			}
		}
		return nil
	}
	for i := uint64(0); i < n; i += pageSize {
		p, ok := a.pages[addr+i]
		if !ok {
			continue
		}
		p.prot = prot
		a.pages[addr+i] = p
	}
	return nil
}

func (a *fakeAS) Release() { a.released = true }

func (a *fakeAS) page(addr uint64) (fakePage, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p, ok := a.pages[addr&^pageMask]
	return p, ok
}

type fakeGroup struct{ maxPages int }

func (g *fakeGroup) HostPID() int { return 0 }
func (g *fakeGroup) NewAddressSpace() (platform.AddressSpace, error) {
	return &fakeAS{pages: make(map[uint64]fakePage), maxPages: g.maxPages}, nil
}
func (g *fakeGroup) Close() {}

type env struct {
	t    testing.TB
	mf   *mem.File
	acct *mem.Account
	lim  map[int]uint64
	mm   *MM
	as   *fakeAS
}

func (e *env) limits(r int) uint64 {
	if v, ok := e.lim[r]; ok {
		return v
	}
	if r == unix.RLIMIT_STACK {
		return 8 << 20
	}
	return ^uint64(0)
}

func newEnv(t testing.TB) *env {
	mf, err := mem.New()
	if err != nil {
		t.Fatal(err)
	}
	e := &env{t: t, mf: mf, acct: mem.NewAccount(nil, 0), lim: map[int]uint64{}}
	e.mm = New(mf, e.acct, &fakeGroup{}, e.limits)
	e.as = e.space(e.mm)
	return e
}

func (e *env) space(m *MM) *fakeAS {
	as, err := m.AddressSpace()
	if err != nil {
		e.t.Fatal(err)
	}
	return as.(*fakeAS)
}

func (e *env) mmap(o MMapOpts) uint64 {
	e.t.Helper()
	a, err := e.mm.MMap(o)
	if err != nil {
		e.t.Fatalf("mmap: %v", err)
	}
	return a
}

const rw = platform.Read | platform.Write

func (e *env) anon(n uint64) uint64 {
	e.t.Helper()
	return e.mmap(MMapOpts{Len: n, Prot: rw})
}

// guest accesses memory as a guest thread does: through host mappings, with faults.
func (e *env) guest(m *MM, addr uint64, write bool, b []byte) error {
	as := e.space(m)
	for i := range b {
		a := addr + uint64(i)
		for try := 0; ; try++ {
			p, ok := as.page(a)
			need := platform.Read
			if write {
				need = platform.Write
			}
			if ok && p.prot&need != 0 {
				o := p.off + int64(a&pageMask)
				var err error
				if write {
					_, err = unix.Pwrite(p.fd, b[i:i+1], o)
				} else {
					_, err = unix.Pread(p.fd, b[i:i+1], o)
				}
				if err != nil {
					return err
				}
				break
			}
			if try > 5 {
				e.t.Fatalf("fault loop at %#x write=%v: %v %v", a, write, ok, p)
			}
			if err := m.HandleFault(a, need); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *env) put(m *MM, addr uint64, s string) {
	e.t.Helper()
	if err := e.guest(m, addr, true, []byte(s)); err != nil {
		e.t.Fatalf("guest write at %#x: %v", addr, err)
	}
}

func (e *env) get(m *MM, addr uint64, n int) string {
	e.t.Helper()
	b := make([]byte, n)
	if err := e.guest(m, addr, false, b); err != nil {
		e.t.Fatalf("guest read at %#x: %v", addr, err)
	}
	c := make([]byte, n)
	if _, err := m.CopyIn(c, addr); err != nil {
		e.t.Fatalf("CopyIn at %#x: %v", addr, err)
	}
	if !bytes.Equal(b, c) {
		e.t.Fatalf("guest sees %q, the Sentry %q at %#x", b, c, addr)
	}
	return string(b)
}

// done ends the test: everything is to be freed.
func (e *env) done(ms ...*MM) {
	e.t.Helper()
	for _, m := range append(ms, e.mm) {
		e.check(m)
		m.DecUsers()
	}
	if n := e.acct.Total(); n != 0 {
		e.t.Errorf("%d bytes are still charged", n)
	}
	e.mf.Reclaim()
	e.mf.Close()
}

// check verifies that host mappings agree with the pages.
func (e *env) check(m *MM) {
	e.t.Helper()
	asp := m.as.Load()
	if asp == nil {
		return
	}
	as := (*asp).(*fakeAS)
	m.mu.RLock()
	defer m.mu.RUnlock()
	n := 0
	for i := 0; i < m.pages.Len(); i++ {
		s := m.pages.At(i)
		if i > 0 && m.pages.At(i-1).End > s.Start {
			e.t.Fatalf("pages overlap at %#x", s.Start)
		}
		for a := s.Start; a < s.End; a += pageSize {
			v := m.vmas.Find(a)
			if v == nil {
				e.t.Fatalf("page %#x outside vmas", a)
			}
			h, ok := as.page(a)
			if ok != (s.V.host != 0) {
				e.t.Fatalf("page %#x: host mapped %v, recorded %d", a, ok, s.V.host)
			}
			if !ok {
				continue
			}
			n++
			if h.fd != int(s.V.fd) || uint64(h.off) != s.V.off+(a-s.Start) || h.prot != s.V.host {
				e.t.Fatalf("page %#x: host %+v, recorded %+v", a, h, s.V)
			}
			if h.prot&^s.V.hostProt(v.V) != 0 {
				e.t.Fatalf("page %#x: host prot %d beyond %d", a, h.prot, s.V.hostProt(v.V))
			}
		}
	}
	if n != len(as.pages) {
		e.t.Fatalf("%d host pages, %d recorded", len(as.pages), n)
	}
}
