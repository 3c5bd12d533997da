package proc

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/fs/pseudo"
	"runsc/sentry/mem"
	"runsc/sentry/mm"
	"runsc/sentry/vfs"
)

// numaMaps is /proc/PID/numa_maps: all memory is on node 0.
func (p process) numaMaps(_ vfs.Caller, b *bytes.Buffer) error {
	p.withMM(func(m *mm.MM) {
		m.MapsFor(func(v mm.VMAInfo) {
			fmt.Fprintf(b, "%08x default", v.Start)
			switch {
			case v.Name == "[heap]":
				b.WriteString(" heap")
			case v.Name == "[stack]":
				b.WriteString(" stack")
			case v.Ino != 0:
				b.WriteString(" file=" + mapsName(v.Name))
			}
			pages, anon := v.RSS/pageSize, v.Anon/pageSize
			if anon > 0 {
				fmt.Fprintf(b, " anon=%d dirty=%d", anon, anon)
			}
			if pages > anon {
				fmt.Fprintf(b, " mapped=%d", pages)
			}
			if pages > 0 {
				fmt.Fprintf(b, " N0=%d kernelpagesize_kB=4", pages)
			}
			b.WriteByte('\n')
		})
	})
	return nil
}

// pagemap is /proc/PID/pagemap (Documentation/admin-guide/mm/pagemap.rst):
// eight bytes for each page. Frame numbers are never shown.
type pagemap struct{ process }

// Info implements pseudo.Node.
func (n pagemap) Info(vfs.Caller) (pseudo.Info, error) { return n.info(unix.S_IFREG | 0o400) }

// Open implements pseudo.Opener.
func (n pagemap) Open(c vfs.Caller, _ uint32) (vfs.FileOps, error) {
	if !n.alive() {
		return nil, unix.ESRCH
	}
	if !mayRead(c, n.process) {
		return nil, unix.EACCES
	}
	return pagemapFile(n), nil
}

type pagemapFile struct{ process }

// Release implements vfs.FileOps.
func (pagemapFile) Release() {}

// Ready implements vfs.FileOps.
func (pagemapFile) Ready(mask waitq.Mask) waitq.Mask { return mask & (waitq.In | waitq.Out) }

const (
	pagemapEntry   = 8
	pagemapPresent = 1 << 63
	pagemapFilePg  = 1 << 61
	// pagemapChunk is how many pages are looked at in one step.
	pagemapChunk = 8192
	// taskPages is the number of pages below the end of user space.
	taskPages = (1<<47 - pageSize) / pageSize
)

// ReadAt implements vfs.ReaderAt: whole entries only (pagemap_read).
func (f pagemapFile) ReadAt(_ vfs.Caller, _ *vfs.File, dst *mem.UserBuf, off int64) (int, error) {
	if off%pagemapEntry != 0 || dst.Len()%pagemapEntry != 0 {
		return 0, unix.EINVAL
	}
	done := 0
	var err error
	f.withMM(func(m *mm.MM) {
		for page := off / pagemapEntry; page < taskPages && dst.Len() > 0; {
			n := min(int64(dst.Len()/pagemapEntry), pagemapChunk, taskPages-page)
			entries := make([]byte, n*pagemapEntry)
			start := uint64(page) * pageSize
			m.Resident(start, start+uint64(n)*pageSize, func(from, to uint64, anon bool) {
				e := uint64(pagemapPresent)
				if !anon {
					e |= pagemapFilePg
				}
				for a := from; a < to; a += pageSize {
					binary.LittleEndian.PutUint64(entries[(a-start)/pageSize*pagemapEntry:], e)
				}
			})
			var k int
			k, err = dst.CopyOut(entries)
			if done += k; err != nil {
				return
			}
			page += n
		}
	})
	if done > 0 {
		err = nil
	}
	return done, err
}

// mapFiles is /proc/PID/map_files: a link for each file mapping.
type mapFiles struct{ process }

// Info implements pseudo.Node.
func (d mapFiles) Info(vfs.Caller) (pseudo.Info, error) {
	i, err := d.info(unix.S_IFDIR | 0o500)
	i.Nlink = 2
	return i, err
}

// Open implements pseudo.Opener: it only checks.
func (d mapFiles) Open(c vfs.Caller, _ uint32) (vfs.FileOps, error) {
	if !mayRead(c, d.process) {
		return nil, unix.EACCES
	}
	return nil, nil
}

// Lookup implements pseudo.Dir.
func (d mapFiles) Lookup(c vfs.Caller, name string) (pseudo.Node, error) {
	if !mayRead(c, d.process) {
		return nil, unix.EACCES
	}
	lo, hi, ok := strings.Cut(name, "-")
	start, err1 := strconv.ParseUint(lo, 16, 64)
	end, err2 := strconv.ParseUint(hi, 16, 64)
	if !ok || err1 != nil || err2 != nil || name != fmt.Sprintf("%x-%x", start, end) {
		return nil, unix.ENOENT
	}
	l := mapFile{d.process, start, end}
	p, err := l.path()
	if err != nil {
		return nil, err
	}
	p.DecRef()
	return l, nil
}

// Each implements pseudo.Dir. Positions are the numbers of mappings.
func (d mapFiles) Each(_ vfs.Caller, pos int64, emit func(string, uint8, int64) bool) error {
	if !d.alive() {
		return unix.ENOENT
	}
	var names []string
	d.withMM(func(m *mm.MM) {
		m.MapsFor(func(v mm.VMAInfo) {
			if v.Ino != 0 {
				names = append(names, fmt.Sprintf("%x-%x", v.Start, v.End))
			}
		})
	})
	for i := max(pos, 0); i < int64(len(names)); i++ {
		if !emit(names[i], unix.DT_LNK, i+1) {
			return nil
		}
	}
	return nil
}

// mapFile is an entry of mapFiles.
type mapFile struct {
	process
	start, end uint64
}

// Info implements pseudo.Node.
func (l mapFile) Info(vfs.Caller) (pseudo.Info, error) {
	i, err := l.info(unix.S_IFLNK | 0o400)
	i.Size = 64
	return i, err
}

// path returns a new reference to the file that is mapped.
func (l mapFile) path() (path vfs.Path, err error) {
	err = unix.ENOENT
	l.withMM(func(m *mm.MM) {
		f := m.FileAt(l.start, l.end)
		if f == nil {
			return
		}
		if x, ok := f.(vfs.MappedFile); ok {
			path, err = x.File().Path(), nil
			path.IncRef()
		}
		f.DecRef()
	})
	return path, err
}

// Readlink implements pseudo.Link.
func (l mapFile) Readlink(c vfs.Caller) (string, error) {
	p, err := l.path()
	if err != nil {
		return "", err
	}
	defer p.DecRef()
	return pathFor(c, p), nil
}

// Follow implements pseudo.Magic (proc_map_files_get_link).
func (l mapFile) Follow(c vfs.Caller) (vfs.Path, error) {
	if !c.Cred().Has(unix.CAP_SYS_ADMIN) && !c.Cred().Has(unix.CAP_CHECKPOINT_RESTORE) {
		return vfs.Path{}, unix.EPERM
	}
	return l.path()
}
