package loader

import (
	"golang.org/x/sys/unix"

	"runsc/sentry/mm"
	"runsc/sentry/platform"
)

// brkRandomBits is the range by which the heap is moved off the program
// (arch_randomize_brk: 32 MiB).
const brkRandomBits = 25

// Load maps e.File, an ELF file, its interpreter, the vDSO and the stack into
// m, which is empty. Prepare came before. On an error m is to be dropped.
func (e *Exec) Load(m *mm.MM) (Image, error) {
	if e.NoRandom {
		m.NoRandom()
	}
	f, err := parseELF(e.File, unix.ENOEXEC)
	if err != nil {
		return Image{}, err
	}
	name, err := f.interpreter()
	if err != nil {
		return Image{}, err
	}
	var interp *elfFile
	if name != "" {
		x, err := e.Open(name)
		if err != nil {
			return Image{}, err
		}
		defer x.Release()
		if interp, err = parseELF(x, unix.ELIBBAD); err != nil {
			return Image{}, err
		}
	}
	// A position independent program goes to its own region, far below the
	// mmap base, with the heap behind it. One without interpreter (ld.so
	// itself, a static PIE) goes where mmap puts it, as interpreters do.
	var base uint64
	if f.dyn && name != "" {
		base = dynBase
		if !e.NoRandom {
			base += mm.Random(28) * pageSize
		}
	}
	prog, err := f.load(m, base)
	if err != nil {
		return Image{}, err
	}
	img := Image{Entry: prog.entry}
	if interp != nil {
		l, err := interp.load(m, 0)
		if err != nil {
			return Image{}, err
		}
		img.Entry, img.Base = l.entry, l.bias
	}
	e.placeBrk(m, f, &prog, name != "")
	var vdso uint64
	if e.VDSO != nil {
		if vdso, err = mapVDSO(m, e.VDSO); err != nil {
			return Image{}, err
		}
	}
	info := prog.info
	if info.CodeStart > info.CodeEnd {
		info.CodeStart = info.CodeEnd
	}
	img.SP, err = e.buildStack(m, f.execStack(), e.auxv(f, &prog, &img, vdso), &info)
	if err != nil {
		return Image{}, err
	}
	m.SetInfo(info)
	m.Hint(img.SP-8, platform.Write)
	if vdso != 0 {
		m.Hint(vdso, platform.Read)
	}
	return img, nil
}

// placeBrk starts the heap behind the program. One without interpreter may be
// just below the mmap base: its heap goes where programs usually are.
func (e *Exec) placeBrk(m *mm.MM, f *elfFile, prog *loaded, hasInterp bool) {
	brk := prog.end
	if f.dyn && !hasInterp {
		brk = dynBase
	}
	if !e.NoRandom {
		brk += mm.Random(brkRandomBits) &^ pageMask
	}
	m.SetBrk(brk)
}

// mapVDSO maps data and code next to each other and returns the address of
// the ELF header.
func mapVDSO(m *mm.MM, v VDSO) (uint64, error) {
	addr, err := m.MMap(mm.MMapOpts{Len: v.Size()})
	if err != nil {
		return 0, err
	}
	data := mm.MMapOpts{
		Addr: addr, Len: pageSize, Prot: platform.Read, MaxProt: platform.Read, Fixed: true, Special: true,
		File: v.Mappable(), Name: "[vvar]",
	}
	if _, err := m.MMap(data); err != nil {
		return 0, err
	}
	text := mm.MMapOpts{
		Addr: addr + pageSize, Len: v.Size() - pageSize, Prot: platform.Read | platform.Exec, Fixed: true, Special: true,
		File: v.Mappable(), Off: pageSize, Name: "[vdso]",
	}
	return m.MMap(text)
}

func (e *Exec) auxv(f *elfFile, prog *loaded, img *Image, vdso uint64) [][2]uint64 {
	host := hostAux()
	hwcap := host[atHwcap]
	if e.CPUMask != nil {
		hwcap = e.CPUMask.HWCap(hwcap)
	}
	secure := uint64(0)
	if e.Secure {
		secure = 1
	}
	var aux [][2]uint64
	if vdso != 0 {
		aux = append(aux, [2]uint64{atSysinfoEhdr, vdso})
	}
	return append(aux,
		[2]uint64{atMinsigstksz, host[atMinsigstksz]},
		[2]uint64{atHwcap, hwcap},
		[2]uint64{atPagesz, pageSize},
		[2]uint64{atClktck, 100},
		[2]uint64{atPhdr, prog.phdr},
		[2]uint64{atPhent, phdrSize},
		[2]uint64{atPhnum, uint64(len(f.phs))},
		[2]uint64{atBase, img.Base},
		[2]uint64{atFlags, 0},
		[2]uint64{atEntry, prog.entry},
		[2]uint64{atUID, uint64(e.UID)},
		[2]uint64{atEUID, uint64(e.EUID)},
		[2]uint64{atGID, uint64(e.GID)},
		[2]uint64{atEGID, uint64(e.EGID)},
		[2]uint64{atSecure, secure},
		// Guests may not count on wrfsbase: the platform keeps the base.
		[2]uint64{atHwcap2, host[atHwcap2] &^ hwcap2FSGSBASE},
	)
}
