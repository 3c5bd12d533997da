package erofs

import (
	"bytes"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	direntSize = 12
	maxName    = 255
)

// dirBlock is a block of a directory: entries, sorted by name, and behind them the names.
type dirBlock struct {
	data []byte
	n    int // entries
}

// entry is one of a directory.
type entry struct {
	name string
	nid  uint64
	typ  uint8 // unix.DT_*
}

// dirBlocks is the number of blocks of a directory.
func (v *volume) dirBlocks(a *attrs) int64 { return (a.size + v.blockSize() - 1) >> v.bits }

// dirBlock reads a block into buf, which has the size of one.
func (v *volume) dirBlock(a *attrs, block int64, buf []byte) (dirBlock, error) {
	off := block << v.bits
	b := dirBlock{data: buf[:min(v.blockSize(), a.size-off)]}
	if n, err := v.readData(a, b.data, off); err != nil || n != len(b.data) {
		if err == nil {
			err = errCorrupt
		}
		return b, err
	}
	if len(b.data) < direntSize {
		return b, errCorrupt
	}
	first := int(le.Uint16(b.data[8:]))
	if first < direntSize || first%direntSize != 0 || first > len(b.data) {
		return b, errCorrupt
	}
	b.n = first / direntSize
	return b, nil
}

// name returns the name of entry i.
func (b *dirBlock) name(i int) (string, error) {
	start, end := int(le.Uint16(b.data[i*direntSize+8:])), len(b.data)
	if i+1 < b.n {
		end = int(le.Uint16(b.data[(i+1)*direntSize+8:]))
	}
	if start < b.n*direntSize || start >= end || end > len(b.data) {
		return "", errCorrupt
	}
	name := b.data[start:end]
	if i+1 == b.n {
		// The last one ends with the block or at a NUL.
		name, _, _ = bytes.Cut(name, []byte{0})
	}
	if len(name) == 0 || len(name) > maxName || bytes.IndexByte(name, 0) >= 0 || bytes.IndexByte(name, '/') >= 0 {
		return "", errCorrupt
	}
	return string(name), nil
}

// fileTypes are the on-disk numbers (FT_*) as getdents has them.
var fileTypes = [...]uint8{
	unix.DT_UNKNOWN, unix.DT_REG, unix.DT_DIR, unix.DT_CHR, unix.DT_BLK, unix.DT_FIFO, unix.DT_SOCK, unix.DT_LNK,
}

func (b *dirBlock) entry(i int) (entry, error) {
	name, err := b.name(i)
	if err != nil {
		return entry{}, err
	}
	e := entry{name: name, nid: le.Uint64(b.data[i*direntSize:])}
	if t := int(b.data[i*direntSize+10]); t < len(fileTypes) {
		e.typ = fileTypes[t]
	}
	return e, nil
}

// lookup finds a name in a directory: names are sorted within and across blocks.
func (v *volume) lookup(a *attrs, name string) (uint64, error) {
	buf := make([]byte, v.blockSize())
	lo, hi := int64(0), v.dirBlocks(a)-1
	for lo <= hi {
		mid := lo + (hi-lo)/2
		b, err := v.dirBlock(a, mid, buf)
		if err != nil {
			return 0, err
		}
		i, found, err := b.search(name)
		switch {
		case err != nil:
			return 0, err
		case found:
			return le.Uint64(b.data[i*direntSize:]), nil
		case i == 0:
			hi = mid - 1
		case i == b.n:
			lo = mid + 1
		default:
			return 0, unix.ENOENT
		}
	}
	return 0, unix.ENOENT
}

// search returns the first entry that is not before name.
func (b *dirBlock) search(name string) (i int, found bool, err error) {
	lo, hi := 0, b.n
	for lo < hi {
		mid := (lo + hi) / 2
		s, err := b.name(mid)
		if err != nil {
			return 0, false, err
		}
		switch c := strings.Compare(s, name); {
		case c == 0:
			return mid, true, nil
		case c < 0:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return lo, false, nil
}

// list calls emit for the entries from a position on. A position is that of the entry in the directory's data, as
// with Linux.
func (v *volume) list(a *attrs, pos int64, emit func(e entry, next int64) bool) error {
	if pos < 0 {
		return unix.EINVAL
	}
	buf := make([]byte, v.blockSize())
	for block := pos >> v.bits; block < v.dirBlocks(a); block++ {
		b, err := v.dirBlock(a, block, buf)
		if err != nil {
			return err
		}
		i := 0
		if block == pos>>v.bits {
			i = int((pos&(v.blockSize()-1) + direntSize - 1) / direntSize)
		}
		for ; i < b.n; i++ {
			e, err := b.entry(i)
			if err != nil {
				return err
			}
			next := block<<v.bits + int64(i+1)*direntSize
			if i+1 == b.n {
				next = (block + 1) << v.bits
			}
			if !emit(e, next) {
				return nil
			}
		}
	}
	return nil
}
