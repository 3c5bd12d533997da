package loader

import (
	"crypto/rand"
	"encoding/binary"
	"sync"

	"golang.org/x/sys/unix"

	"runsc/sentry/mm"
	"runsc/sentry/platform"
)

// Types of the auxiliary vector, getauxval(3).
const (
	atNull         = 0
	atPhdr         = 3
	atPhent        = 4
	atPhnum        = 5
	atPagesz       = 6
	atBase         = 7
	atFlags        = 8
	atEntry        = 9
	atUID          = 11
	atEUID         = 12
	atGID          = 13
	atEGID         = 14
	atPlatformName = 15
	atHwcap        = 16
	atClktck       = 17
	atSecure       = 23
	atRandom       = 25
	atHwcap2       = 26
	atExecfn       = 31
	atSysinfoEhdr  = 33
	atMinsigstksz  = 51
)

// hostAux has what the host says of the processor.
var hostAux = sync.OnceValue(func() map[uint64]uint64 {
	aux := map[uint64]uint64{atMinsigstksz: 2048}
	if v, err := unix.Auxv(); err == nil {
		for _, e := range v {
			aux[uint64(e[0])] = uint64(e[1])
		}
	}
	return aux
})

// stackExtra is how much of the stack is mapped below its first use
// (setup_arg_pages: 128 KiB).
const stackExtra = 128 << 10

// buildStack maps the stack and writes what the program starts with. It
// completes info.
func (e *Exec) buildStack(m *mm.MM, exec bool, aux [][2]uint64, info *mm.ProcInfo) (uint64, error) {
	top := m.StackTop()
	// Strings, from the top: execfn, envp, argv (create_elf_tables).
	at := top - 8 // the null pointer at the very top
	at -= uint64(len(e.execfn) + 1)
	execfn := at
	size := func(list []string) (n uint64) {
		for _, s := range list {
			n += uint64(len(s)) + 1
		}
		return n
	}
	info.EnvEnd = at
	at -= size(e.Envv)
	info.EnvStart, info.ArgEnd = at, at
	at -= size(e.Argv)
	info.ArgStart = at
	strings := at
	if !e.NoRandom {
		at -= mm.Random(13) // arch_align_stack
	}
	at &^= 15
	at -= uint64(len(atPlatform) + 1)
	platformAt := at
	at -= 16
	random := at
	at &^= 15

	aux = append(aux, [2]uint64{atRandom, random}, [2]uint64{atExecfn, execfn},
		[2]uint64{atPlatformName, platformAt}, [2]uint64{atNull, 0})
	words := 1 + len(e.Argv) + 1 + len(e.Envv) + 1 + 2*len(aux)
	sp := (at - uint64(words)*8) &^ 15

	buf := make([]byte, top-sp)
	copyAt := func(addr uint64, s string) { copy(buf[addr-sp:], s) }
	copyAt(execfn, e.execfn)
	copyAt(platformAt, atPlatform)
	_, _ = rand.Read(buf[random-sp : random-sp+16])
	w := buf[:0]
	put := func(v uint64) { w = binary.LittleEndian.AppendUint64(w, v) }
	put(uint64(len(e.Argv)))
	next := strings
	for _, list := range [2][]string{e.Argv, e.Envv} {
		for _, s := range list {
			put(next)
			copyAt(next, s)
			next += uint64(len(s)) + 1
		}
		put(0)
	}
	auxAt := len(w)
	for _, a := range aux {
		put(a[0])
		put(a[1])
	}
	info.Auxv = append([]byte(nil), w[auxAt:]...)
	info.StackStart = sp

	prot := platform.Read | platform.Write
	if exec {
		prot |= platform.Exec
	}
	bottom := (sp - stackExtra) &^ pageMask
	_, err := m.MMap(mm.MMapOpts{
		Addr: bottom, Len: (top - bottom + pageMask) &^ pageMask, Prot: prot, Fixed: true, NoReplace: true, GrowsDown: true, Name: "[stack]",
	})
	if err != nil {
		return 0, unix.ENOMEM
	}
	if _, err := m.CopyOut(sp, buf); err != nil {
		return 0, err
	}
	return sp, nil
}
