package loader

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"runsc/sentry/arch"
	"runsc/sentry/mem"
	"runsc/sentry/mm"
	"runsc/sentry/platform"
)

// Parts of the ELF format, elf(5).
const (
	ehdrSize = 64
	phdrSize = 56

	etExec = 2
	etDyn  = 3

	ptLoad     = 1
	ptInterp   = 3
	ptPhdr     = 6
	ptGNUStack = 0x6474e551

	pfX = 1
	pfW = 2
	pfR = 4

	emX8664 = 62

	// dynBase is ELF_ET_DYN_BASE: two thirds of the address space.
	dynBase = arch.GuestTop / 3 * 2 &^ uint64(pageMask)
)

type phdr struct {
	kind, flags                      uint32
	off, vaddr, filesz, memsz, align uint64
}

// elfFile is a checked ELF header with its program headers.
type elfFile struct {
	exe   Executable
	dyn   bool
	entry uint64
	phoff uint64
	phs   []phdr
}

// parseELF reads and checks the headers. notELF is the error for a file that
// is none, or for another machine.
func parseELF(exe Executable, notELF error) (*elfFile, error) {
	var b [ehdrSize]byte
	n, err := readFull(exe, b[:], 0)
	if err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	if n < ehdrSize || string(b[:4]) != "\x7fELF" {
		return nil, notELF
	}
	kind := le.Uint16(b[16:])
	if kind != etExec && kind != etDyn || !machineOK(&b) {
		return nil, notELF
	}
	phnum := int(le.Uint16(b[56:]))
	if le.Uint16(b[54:]) != phdrSize || phnum < 1 || phnum > 65536/phdrSize {
		return nil, notELF
	}
	f := &elfFile{exe: exe, dyn: kind == etDyn, entry: le.Uint64(b[24:]), phoff: le.Uint64(b[32:])}
	if f.phoff > 1<<62 {
		return nil, notELF
	}
	raw := make([]byte, phnum*phdrSize)
	if n, err = readFull(exe, raw, int64(f.phoff)); err != nil || n < len(raw) {
		return nil, notELF
	}
	for i := 0; i < phnum; i++ {
		p := raw[i*phdrSize:]
		f.phs = append(f.phs, phdr{
			kind: le.Uint32(p), flags: le.Uint32(p[4:]), off: le.Uint64(p[8:]), vaddr: le.Uint64(p[16:]),
			filesz: le.Uint64(p[32:]), memsz: le.Uint64(p[40:]), align: le.Uint64(p[48:]),
		})
	}
	return f, nil
}

// interpreter returns the name of PT_INTERP, or "".
func (f *elfFile) interpreter() (string, error) {
	for _, p := range f.phs {
		if p.kind != ptInterp {
			continue
		}
		if p.filesz > pathMax || p.filesz < 2 || p.off > 1<<62 {
			return "", unix.ENOEXEC
		}
		b := make([]byte, p.filesz)
		if n, err := readFull(f.exe, b, int64(p.off)); err != nil || n < len(b) {
			return "", unix.EIO
		}
		if b[len(b)-1] != 0 {
			return "", unix.ENOEXEC
		}
		for i, c := range b {
			if c == 0 {
				return string(b[:i]), nil
			}
		}
	}
	return "", nil
}

// execStack tells what PT_GNU_STACK says of the stack.
func (f *elfFile) execStack() bool {
	for _, p := range f.phs {
		if p.kind == ptGNUStack {
			return p.flags&pfX != 0
		}
	}
	return false
}

// extent returns the page aligned range of all PT_LOADs before relocation, and
// the largest alignment. ENOEXEC without any, or for impossible addresses.
func (f *elfFile) extent() (lo, hi, alignTo uint64, err error) {
	lo, alignTo = ^uint64(0), pageSize
	for _, p := range f.phs {
		if p.kind != ptLoad {
			continue
		}
		if p.filesz > p.memsz || p.memsz > arch.GuestTop || p.vaddr > arch.GuestTop-p.memsz || p.off > 1<<62 {
			return 0, 0, 0, unix.EINVAL
		}
		if p.align != 0 && p.align&(p.align-1) == 0 && p.align <= 1<<30 {
			alignTo = max(alignTo, p.align)
		}
		lo = min(lo, p.vaddr&^pageMask)
		hi = max(hi, (p.vaddr+p.memsz+pageMask)&^pageMask)
	}
	if lo >= hi {
		return 0, 0, 0, unix.ENOEXEC
	}
	return lo, hi, alignTo, nil
}

// loaded is where an ELF file is.
type loaded struct {
	bias       uint64
	entry      uint64
	phdr       uint64 // AT_PHDR
	start, end uint64
	info       mm.ProcInfo // code and data
}

// load maps f into m: ET_EXEC at its own addresses, ET_DYN biased to base if
// that is free, else (or for 0) anywhere.
func (f *elfFile) load(m *mm.MM, base uint64) (loaded, error) {
	lo, hi, alignTo, err := f.extent()
	if err != nil {
		return loaded{}, err
	}
	file, err := f.exe.Mappable()
	if err != nil {
		return loaded{}, err
	}
	l := loaded{}
	if f.dyn {
		if l.bias, err = f.reserve(m, base, lo, hi, alignTo); err != nil {
			return loaded{}, err
		}
	} else if lo < 0x10000 {
		return loaded{}, unix.EPERM // below mmap_min_addr
	}
	l.info.CodeStart, l.info.DataStart = ^uint64(0), 0
	for i := range f.phs {
		p := &f.phs[i]
		if p.kind != ptLoad || p.memsz == 0 {
			continue
		}
		if err := loadSegment(m, file, p, l.bias); err != nil {
			return loaded{}, err
		}
		start, end := l.bias+p.vaddr, l.bias+p.vaddr+p.filesz
		if p.flags&pfX != 0 {
			l.info.CodeStart = min(l.info.CodeStart, start)
			l.info.CodeEnd = max(l.info.CodeEnd, end)
		}
		if start >= l.info.DataStart {
			l.info.DataStart = start
		}
		l.info.DataEnd = max(l.info.DataEnd, end)
		if p.off <= f.phoff && f.phoff-p.off < p.filesz {
			l.phdr = l.bias + p.vaddr + (f.phoff - p.off)
		}
	}
	for _, p := range f.phs {
		if p.kind == ptPhdr {
			l.phdr = l.bias + p.vaddr
			break
		}
	}
	l.start, l.end = l.bias+lo, l.bias+hi
	l.entry = l.bias + f.entry
	if l.entry >= arch.GuestTop {
		return loaded{}, unix.EINVAL
	}
	return l, nil
}

// reserve finds a bias at which [lo, hi) is free.
func (f *elfFile) reserve(m *mm.MM, base, lo, hi, alignTo uint64) (uint64, error) {
	n := hi - lo
	if base != 0 {
		addr := base &^ (alignTo - 1)
		if got, err := m.MMap(mm.MMapOpts{Addr: addr, Len: n, Fixed: true, NoReplace: true}); err == nil {
			return got - lo, m.MUnmap(got, n)
		}
	}
	// A little more is taken so that an aligned piece is in it.
	got, err := m.MMap(mm.MMapOpts{Len: n + alignTo - pageSize})
	if err != nil {
		return 0, err
	}
	if err := m.MUnmap(got, n+alignTo-pageSize); err != nil {
		return 0, err
	}
	addr := (got + alignTo - 1) &^ (alignTo - 1)
	return addr - lo, nil
}

// loadSegment maps one PT_LOAD (elf_load): the file's bytes, then zeros.
func loadSegment(m *mm.MM, file mem.Mappable, p *phdr, bias uint64) error {
	var prot platform.Prot
	if p.flags&pfR != 0 {
		prot |= platform.Read
	}
	if p.flags&pfW != 0 {
		prot |= platform.Write
	}
	if p.flags&pfX != 0 {
		prot |= platform.Exec
	}
	addr := bias + p.vaddr
	skew := addr & pageMask
	zeroFrom := addr &^ pageMask
	if p.filesz > 0 {
		if p.off&pageMask != skew {
			return unix.EINVAL // the file offset does not fit the address
		}
		_, err := m.MMap(mm.MMapOpts{
			Addr: addr - skew, Len: p.filesz + skew, Prot: prot, Fixed: true, File: file, Off: p.off - skew, Stable: true,
		})
		if err != nil {
			return err
		}
		zeroFrom = (addr + p.filesz + pageMask) &^ pageMask
		// Every segment is soon used: code and constants are mapped as a
		// whole, data is written by relocation or start-up code.
		m.Hint(addr, prot)
		if p.memsz > p.filesz && prot&platform.Write != 0 {
			// Linux clears up to the end of the page (padzero).
			if tail := zeroFrom - (addr + p.filesz); tail > 0 {
				if _, err := m.ZeroOut(addr+p.filesz, int(tail)); err != nil {
					return err
				}
			}
		}
	}
	zeroTo := (addr + p.memsz + pageMask) &^ pageMask
	if zeroTo <= zeroFrom {
		return nil
	}
	m.Hint(zeroFrom, prot&platform.Write)
	_, err := m.MMap(mm.MMapOpts{Addr: zeroFrom, Len: zeroTo - zeroFrom, Prot: prot, Fixed: true})
	return err
}
