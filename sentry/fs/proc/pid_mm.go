package proc

import (
	"bytes"
	"fmt"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/fs/pseudo"
	"runsc/sentry/mem"
	"runsc/sentry/mm"
	"runsc/sentry/platform"
	"runsc/sentry/vfs"
)

// maxStrings bounds what cmdline and environ show: more than the arguments
// that execve(2) takes.
const maxStrings = 8 << 20

// guestBytes reads [start, end) of an address space, as far as it can be read.
func guestBytes(m *mm.MM, start, end uint64) []byte {
	if end <= start {
		return nil
	}
	buf := make([]byte, min(end-start, maxStrings))
	n, _ := m.Forced().CopyIn(buf, start)
	return buf[:n]
}

// cmdline is /proc/PID/cmdline. A process that wrote over its arguments
// (setproctitle) has removed the last zero byte: then it goes on to the first
// one in the environment, as Linux's get_mm_cmdline.
func (p process) cmdline(_ vfs.Caller, b *bytes.Buffer) error {
	p.withMM(func(m *mm.MM) {
		i := m.Info()
		args := guestBytes(m, i.ArgStart, i.ArgEnd)
		if n := len(args); n > 0 && args[n-1] != 0 {
			if i.EnvStart == i.ArgEnd {
				args = append(args, guestBytes(m, i.EnvStart, i.EnvEnd)...)
			}
			if z := bytes.IndexByte(args, 0); z >= 0 {
				args = args[:z+1]
			}
		}
		b.Write(args)
	})
	return nil
}

func (p process) environ(_ vfs.Caller, b *bytes.Buffer) error {
	p.withMM(func(m *mm.MM) {
		i := m.Info()
		b.Write(guestBytes(m, i.EnvStart, i.EnvEnd))
	})
	return nil
}

func (p process) auxv(_ vfs.Caller, b *bytes.Buffer) error {
	p.withMM(func(m *mm.MM) { b.Write(m.Info().Auxv) })
	return nil
}

// maps is /proc/PID/maps.
func (p process) maps(_ vfs.Caller, b *bytes.Buffer) error {
	p.withMM(func(m *mm.MM) {
		m.MapsFor(func(v mm.VMAInfo) { mapsLine(b, &v) })
	})
	return nil
}

func mapsLine(b *bytes.Buffer, v *mm.VMAInfo) {
	prot := [4]byte{'-', '-', '-', 'p'}
	for i, bit := range []platform.Prot{platform.Read, platform.Write, platform.Exec} {
		if v.Prot&bit != 0 {
			prot[i] = "rwx"[i]
		}
	}
	if v.Shared {
		prot[3] = 's'
	}
	start := b.Len()
	fmt.Fprintf(b, "%08x-%08x %s %08x %02x:%02x %d ", v.Start, v.End, prot[:], v.Off, unix.Major(v.Dev), unix.Minor(v.Dev), v.Ino)
	if v.Name != "" {
		for b.Len() < start+73 {
			b.WriteByte(' ')
		}
		b.WriteString(mapsName(v.Name))
	}
	b.WriteByte('\n')
}

// mapsName escapes newlines, as seq_path does.
func mapsName(s string) string {
	return string(bytes.ReplaceAll([]byte(s), []byte("\n"), []byte(`\012`)))
}

// smapsTotals is what smaps shows of a mapping, in bytes.
type smapsTotals struct{ rss, clean, dirty, anon, locked uint64 }

func (t *smapsTotals) add(v *mm.VMAInfo) {
	t.rss += v.RSS
	t.anon += v.Anon
	t.dirty += v.Anon
	t.clean += v.RSS - v.Anon
	if v.Locked {
		t.locked += v.RSS
	}
}

func (t *smapsTotals) write(b *bytes.Buffer) {
	for _, l := range []struct {
		name string
		n    uint64
	}{
		{"Rss", t.rss}, {"Pss", t.rss}, {"Pss_Dirty", t.dirty}, {"Shared_Clean", 0}, {"Shared_Dirty", 0}, {"Private_Clean", t.clean},
		{"Private_Dirty", t.dirty}, {"Referenced", t.rss}, {"Anonymous", t.anon}, {"KSM", 0}, {"LazyFree", 0},
		{"AnonHugePages", 0}, {"ShmemPmdMapped", 0}, {"FilePmdMapped", 0}, {"Shared_Hugetlb", 0}, {"Private_Hugetlb", 0},
		{"Swap", 0}, {"SwapPss", 0}, {"Locked", t.locked},
	} {
		fmt.Fprintf(b, "%-15s %8d kB\n", l.name+":", l.n/1024)
	}
}

func (p process) smaps(_ vfs.Caller, b *bytes.Buffer) error {
	p.withMM(func(m *mm.MM) {
		m.MapsFor(func(v mm.VMAInfo) {
			mapsLine(b, &v)
			fmt.Fprintf(b, "%-15s %8d kB\n%-15s %8d kB\n%-15s %8d kB\n", "Size:", (v.End-v.Start)/1024, "KernelPageSize:", 4, "MMUPageSize:", 4)
			var t smapsTotals
			t.add(&v)
			t.write(b)
			b.WriteString("THPeligible:           0\nVmFlags:" + vmFlags(&v) + " \n")
		})
	})
	return nil
}

func vmFlags(v *mm.VMAInfo) string {
	s := ""
	for _, f := range []struct {
		on   bool
		name string
	}{
		{v.Prot&platform.Read != 0, "rd"}, {v.Prot&platform.Write != 0, "wr"}, {v.Prot&platform.Exec != 0, "ex"},
		{v.Shared, "sh"}, {true, "mr"}, {true, "mw"}, {true, "me"}, {v.GrowsDown, "gd"}, {v.Locked, "lo"}, {v.NoReserve, "nr"},
	} {
		if f.on {
			s += " " + f.name
		}
	}
	return s
}

func (p process) smapsRollup(_ vfs.Caller, b *bytes.Buffer) error {
	p.withMM(func(m *mm.MM) {
		var t smapsTotals
		lo, hi := uint64(0), uint64(0)
		m.MapsFor(func(v mm.VMAInfo) {
			if hi == 0 {
				lo = v.Start
			}
			hi = v.End
			t.add(&v)
		})
		fmt.Fprintf(b, "%08x-%08x ---p 00000000 00:00 0                          [rollup]\n", lo, hi)
		t.write(b)
	})
	return nil
}

// exe is the target of /proc/PID/exe: ENOENT without a program.
func (p process) exe() (path vfs.Path, err error) {
	err = unix.ENOENT
	p.withMM(func(m *mm.MM) {
		switch e := m.Exe().(type) {
		case nil:
		case vfs.Path:
			path, err = e, nil
		case interface {
			Path() vfs.Path
			DecRef()
		}:
			path, err = e.Path(), nil
			path.IncRef()
			e.DecRef()
		}
	})
	return path, err
}

// memNode is /proc/PID/mem.
type memNode struct{ process }

// Info implements pseudo.Node.
func (n memNode) Info(vfs.Caller) (pseudo.Info, error) { return n.info(unix.S_IFREG | 0o600) }

// Open implements pseudo.Opener. The file stays with the address space of now
// in Linux; here it ends with the process.
func (n memNode) Open(c vfs.Caller, flags uint32) (vfs.FileOps, error) {
	if !n.alive() {
		return nil, unix.ESRCH
	}
	if !mayRead(c, n.process) {
		return nil, unix.EACCES
	}
	return memFile(n), nil
}

// memFile is an open /proc/PID/mem.
type memFile struct{ process }

// Release implements vfs.FileOps.
func (memFile) Release() {}

// Ready implements vfs.FileOps.
func (memFile) Ready(mask waitq.Mask) waitq.Mask { return mask & (waitq.In | waitq.Out) }

// memChunk is how much one step of a read or write copies.
const memChunk = 64 << 10

// ReadAt implements vfs.ReaderAt.
func (f memFile) ReadAt(c vfs.Caller, _ *vfs.File, dst *mem.UserBuf, off int64) (int, error) {
	return f.copy(dst.Len(), off, func(m mem.Memory, buf []byte, addr uint64) (int, error) {
		n, err := m.CopyIn(buf, addr)
		if n == 0 {
			return 0, err
		}
		return dst.CopyOut(buf[:n])
	})
}

// WriteAt implements vfs.WriterAt.
func (f memFile) WriteAt(c vfs.Caller, _ *vfs.File, src *mem.UserBuf, off int64) (int, int64, error) {
	n, err := f.copy(src.Len(), off, func(m mem.Memory, buf []byte, addr uint64) (int, error) {
		n, err := src.CopyIn(buf)
		if err != nil {
			return 0, err
		}
		return m.CopyOut(addr, buf[:n])
	})
	return n, off + int64(n), err
}

// copy runs step over n bytes from off on. An address that cannot be reached
// is EIO.
func (f memFile) copy(n int, off int64, step func(m mem.Memory, buf []byte, addr uint64) (int, error)) (done int, err error) {
	f.withMM(func(m *mm.MM) {
		buf := make([]byte, min(n, memChunk))
		for done < n {
			var k int
			k, err = step(m.Forced(), buf[:min(n-done, memChunk)], uint64(off)+uint64(done))
			done += k
			if err != nil || k == 0 {
				break
			}
		}
	})
	if done > 0 {
		return done, nil
	}
	if err != nil {
		err = unix.EIO
	}
	return 0, err
}
