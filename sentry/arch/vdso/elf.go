package vdso

import "encoding/binary"

// functions are the exported names in the order of the text.
var functions = [5]string{"clock_gettime", "gettimeofday", "time", "getcpu", "clock_getres"}

// Constants of elf(5).
const (
	dtHash      = 4
	dtStrtab    = 5
	dtSymtab    = 6
	dtStrsz     = 10
	dtSyment    = 11
	dtSoname    = 14
	dtVersym    = 0x6ffffff0
	dtVerdef    = 0x6ffffffc
	dtVerdefnum = 0x6ffffffd

	symGlobalFunc = 1<<4 | 2 // STB_GLOBAL, STT_FUNC
	symWeakFunc   = 2<<4 | 2 // STB_WEAK, STT_FUNC
)

// elfHash is the hash of symbol and version names.
func elfHash(name string) uint32 {
	var h uint32
	for i := 0; i < len(name); i++ {
		h = h<<4 + uint32(name[i])
		if g := h & 0xf0000000; g != 0 {
			h ^= g >> 24
			h &^= g
		}
	}
	return h
}

// strtab collects strings.
type strtab struct{ b []byte }

func (s *strtab) add(name string) uint32 {
	if len(s.b) == 0 {
		s.b = append(s.b, 0)
	}
	at := len(s.b)
	s.b = append(append(s.b, name...), 0)
	return uint32(at)
}

// build returns the image: an ELF shared object of one page, linked at 0.
func build(code [5][]byte) []byte {
	le := binary.LittleEndian
	img := make([]byte, pageSize)
	at := 64 + 2*56 // after the ELF and program headers
	place := func(n, align int) int {
		at = (at + align - 1) &^ (align - 1)
		p := at
		at += n
		return p
	}
	var strs strtab
	soname := strs.add("linux-vdso.so.1")
	version := strs.add("LINUX_2.6")

	// Symbols: null, then each function under both names.
	nsym := 1 + 2*len(functions)
	names := make([]string, nsym)
	nameAt := make([]uint32, nsym)
	for i, f := range functions {
		names[1+2*i], names[2+2*i] = "__vdso_"+f, f
	}
	for i := 1; i < nsym; i++ {
		nameAt[i] = strs.add(names[i])
	}
	const nbucket = 4
	hash := place(4*(2+nbucket+nsym), 8)
	symtab := place(24*nsym, 8)
	strAt := place(len(strs.b), 1)
	versym := place(2*nsym, 2)
	verdef := place(2*(20+8), 8)
	dynamic := place(16*10, 8)

	copy(img[strAt:], strs.b)
	le.PutUint32(img[hash:], nbucket)
	le.PutUint32(img[hash+4:], uint32(nsym))
	for i := 0; i < nsym; i++ {
		v := uint16(0)
		if i > 0 {
			v = 2 // LINUX_2.6
			f := (i - 1) / 2
			s := img[symtab+24*i:]
			le.PutUint32(s, nameAt[i])
			s[4] = symWeakFunc
			if i%2 == 1 {
				s[4] = symGlobalFunc
			}
			le.PutUint16(s[6:], 1) // any section but SHN_UNDEF
			if i%2 == 1 {
				start := place(len(code[f]), 16)
				copy(img[start:], code[f])
				le.PutUint64(s[8:], uint64(start))
			} else {
				copy(s[8:16], img[symtab+24*(i-1)+8:])
			}
			le.PutUint64(s[16:], uint64(len(code[f])))
			b := hash + 8 + 4*int(elfHash(names[i])%nbucket)
			copy(img[hash+8+4*nbucket+4*i:][:4], img[b:b+4]) // chain
			le.PutUint32(img[b:], uint32(i))
		}
		le.PutUint16(img[versym+2*i:], v)
	}
	for i, d := range []struct {
		flags, ndx uint16
		name       uint32
		hash       uint32
	}{{1, 1, soname, elfHash("linux-vdso.so.1")}, {0, 2, version, elfHash("LINUX_2.6")}} {
		p := img[verdef+28*i:]
		le.PutUint16(p, 1)
		le.PutUint16(p[2:], d.flags)
		le.PutUint16(p[4:], d.ndx)
		le.PutUint16(p[6:], 1)
		le.PutUint32(p[8:], d.hash)
		le.PutUint32(p[12:], 20) // the name follows
		if i == 0 {
			le.PutUint32(p[16:], 28)
		}
		le.PutUint32(p[20:], d.name)
	}
	for i, d := range [][2]uint64{
		{dtHash, uint64(hash)}, {dtStrtab, uint64(strAt)}, {dtSymtab, uint64(symtab)}, {dtStrsz, uint64(len(strs.b))},
		{dtSyment, 24}, {dtSoname, uint64(soname)}, {dtVersym, uint64(versym)}, {dtVerdef, uint64(verdef)}, {dtVerdefnum, 2},
	} {
		le.PutUint64(img[dynamic+16*i:], d[0])
		le.PutUint64(img[dynamic+16*i+8:], d[1])
	}

	copy(img, "\x7fELF\x02\x01\x01")
	le.PutUint16(img[16:], 3)  // ET_DYN
	le.PutUint16(img[18:], 62) // EM_X86_64
	le.PutUint32(img[20:], 1)
	le.PutUint64(img[32:], 64) // program headers
	le.PutUint16(img[52:], 64)
	le.PutUint16(img[54:], 56)
	le.PutUint16(img[56:], 2)
	le.PutUint16(img[58:], 64)
	for i, p := range []struct {
		kind, flags uint32
		at, n       uint64
		align       uint64
	}{{1, 5, 0, uint64(at), pageSize}, {2, 4, uint64(dynamic), 16 * 10, 8}} {
		h := img[64+56*i:]
		le.PutUint32(h, p.kind)
		le.PutUint32(h[4:], p.flags)
		le.PutUint64(h[8:], p.at)
		le.PutUint64(h[16:], p.at)
		le.PutUint64(h[24:], p.at)
		le.PutUint64(h[32:], p.n)
		le.PutUint64(h[40:], p.n)
		le.PutUint64(h[48:], p.align)
	}
	if at > pageSize {
		panic("vdso: the image does not fit a page")
	}
	return img
}
