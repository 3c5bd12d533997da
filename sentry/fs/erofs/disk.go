package erofs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

const (
	superOffset = 1024
	superSize   = 128
	superMagic  = 0xe0f5e1e2

	minBlockBits = 9
	maxBlockBits = 12

	slotSize     = 32 // of an inode number's unit
	compactSize  = 32
	extendedSize = 64

	// errCorrupt is Linux's EFSCORRUPTED.
	errCorrupt = unix.EUCLEAN
)

// Bits of feature_incompat. That of the padding of compressed data says
// nothing about data that is not compressed.
const (
	incompatZeroPadding   = 1 << 0
	incompatChunkedFile   = 1 << 2
	incompatXattrPrefixes = 1 << 6
)

// Layouts of an inode's data.
const (
	layoutPlain  = 0
	layoutInline = 2
	layoutChunks = 4
)

// Bits of a chunked inode's format.
const (
	chunkBitsMask = 0x1f
	chunkIndexes  = 0x20
	chunkKnown    = chunkBitsMask | chunkIndexes
	nullAddr      = ^uint32(0)
)

var le = binary.LittleEndian

// volume is an image. It is immutable.
type volume struct {
	f     *os.File
	size  int64
	bits  uint8 // block size
	root  uint64
	meta  int64 // where inode 0 would be
	xattr int64 // where shared extended attribute 0 would be
	build timestamp
	// inodes and blocks are what statfs tells.
	inodes, blocks uint64
	// id is the superblock's part that tells this image from others.
	id [superSize]byte
}

type timestamp struct {
	sec  int64
	nsec uint32
}

// openVolume reads the superblock. It takes over f if it succeeds.
func openVolume(f *os.File) (*volume, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	v := &volume{f: f, size: st.Size()}
	b := v.id[:]
	if v.size < superOffset+superSize || v.read(b, superOffset) != nil || le.Uint32(b) != superMagic {
		return nil, errors.New("it is no EROFS image")
	}
	v.bits = b[12]
	if v.bits < minBlockBits || v.bits > maxBlockBits {
		return nil, fmt.Errorf("its blocks of 2^%d bytes are not supported", v.bits)
	}
	known := uint32(incompatZeroPadding | incompatChunkedFile | incompatXattrPrefixes)
	if more := le.Uint32(b[80:]) &^ known; more != 0 {
		return nil, fmt.Errorf("it has features that are not supported (%#x), such as compression or other devices", more)
	}
	if le.Uint16(b[86:]) != 0 {
		return nil, errors.New("it needs other devices")
	}
	if b[90] != 0 {
		return nil, errors.New("its directories have blocks of another size")
	}
	v.root = uint64(le.Uint16(b[14:]))
	v.inodes = le.Uint64(b[16:])
	v.build = timestamp{int64(le.Uint64(b[24:])), min(le.Uint32(b[32:]), 999_999_999)}
	v.blocks = uint64(le.Uint32(b[36:]))
	v.meta = int64(le.Uint32(b[40:])) << v.bits
	v.xattr = int64(le.Uint32(b[44:])) << v.bits
	a, err := v.inode(v.root)
	if err != nil || a.mode&unix.S_IFMT != unix.S_IFDIR {
		return nil, errors.New("it is damaged: its root is no directory")
	}
	return v, nil
}

func (v *volume) blockSize() int64 { return 1 << v.bits }

// read fills p from the image. What is not within it is corrupt.
func (v *volume) read(p []byte, off int64) error {
	if off < 0 || off > v.size || int64(len(p)) > v.size-off {
		return errCorrupt
	}
	_, err := v.f.ReadAt(p, off)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF):
		return errCorrupt // it was cut meanwhile
	}
	return unix.EIO
}

// attrs is an inode as the image has it.
type attrs struct {
	nid      uint64
	layout   uint8
	mode     uint32
	uid, gid uint32
	nlink    uint32
	rdev     uint64
	size     int64
	mtime    timestamp
	block    uint32 // the first, of contiguous data
	chunk    uint16 // the format, of chunks
	xattrs   int64  // where the extended attributes are
	xattrLen int64
	after    int64 // what follows the inode and its attributes
}

// maxSize bounds a file so that sums of offsets do not overflow.
const maxSize = 1 << 60

// inode reads an inode.
func (v *volume) inode(nid uint64) (attrs, error) {
	a := attrs{nid: nid}
	if nid > uint64(v.size)/slotSize {
		return a, errCorrupt
	}
	pos := v.meta + int64(nid)*slotSize
	var b [extendedSize]byte
	if err := v.read(b[:compactSize], pos); err != nil {
		return a, err
	}
	format := le.Uint16(b[:])
	n := int64(compactSize)
	if format&1 != 0 {
		n = extendedSize
		if err := v.read(b[compactSize:], pos+compactSize); err != nil {
			return a, err
		}
	}
	a.layout = uint8(format >> 1 & 7)
	a.mode = uint32(le.Uint16(b[4:]))
	u := le.Uint32(b[16:])
	if n == compactSize {
		a.nlink = uint32(le.Uint16(b[6:]))
		a.size = int64(le.Uint32(b[8:]))
		a.uid, a.gid = uint32(le.Uint16(b[24:])), uint32(le.Uint16(b[26:]))
		a.mtime = v.build
	} else {
		size := le.Uint64(b[8:])
		if size > maxSize {
			return a, errCorrupt
		}
		a.size = int64(size)
		a.uid, a.gid = le.Uint32(b[24:]), le.Uint32(b[28:])
		a.mtime = timestamp{int64(le.Uint64(b[32:])), min(le.Uint32(b[40:]), 999_999_999)}
		a.nlink = le.Uint32(b[44:])
	}
	a.xattrs = pos + n
	if count := int64(le.Uint16(b[2:])); count != 0 {
		a.xattrLen = xattrHeader + 4*(count-1)
	}
	a.after = a.xattrs + a.xattrLen
	switch a.mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFDIR, unix.S_IFLNK:
		a.block, a.chunk = u, uint16(u)
		return a, v.checkLayout(&a)
	case unix.S_IFCHR, unix.S_IFBLK:
		// The kernel's new_encode_dev.
		a.rdev = unix.Mkdev(u>>8&0xfff, u&0xff|u>>12&0xfff00)
	case unix.S_IFIFO, unix.S_IFSOCK:
	default:
		return a, errCorrupt
	}
	a.size = 0
	return a, nil
}

// checkLayout checks what does not depend on an offset.
func (v *volume) checkLayout(a *attrs) error {
	switch a.layout {
	case layoutPlain:
	case layoutInline:
		if n := a.tail(v); a.size > 0 && a.after&(v.blockSize()-1)+n > v.blockSize() {
			return errCorrupt // it would cross a block
		}
	case layoutChunks:
		if a.chunk&^chunkKnown != 0 || int(a.chunk&chunkBitsMask)+int(v.bits) > 40 {
			return errCorrupt
		}
		if a.mode&unix.S_IFMT != unix.S_IFREG {
			return errCorrupt
		}
		chunks := (a.size + 1<<v.chunkBits(a) - 1) >> v.chunkBits(a)
		if chunks > v.size/4 {
			return errCorrupt
		}
	default:
		return unix.EOPNOTSUPP
	}
	return nil
}

// tail is the length of the part of the data that lies beside the inode.
func (a *attrs) tail(v *volume) int64 {
	if n := a.size & (v.blockSize() - 1); n != 0 || a.size == 0 {
		return n
	}
	return v.blockSize()
}

func (v *volume) chunkBits(a *attrs) uint8 { return v.bits + uint8(a.chunk&chunkBitsMask) }

// extent is a piece of a file's data.
type extent struct {
	at   int64 // in the image
	n    int64 // bytes
	hole bool
}

// maxMerged bounds how many chunks one extent joins.
const maxMerged = 64

// find returns where the data from off on is: something, as off is less than the size.
func (v *volume) find(a *attrs, off int64) (extent, error) {
	x := extent{n: a.size - off}
	switch a.layout {
	case layoutPlain:
		x.at = int64(a.block)<<v.bits + off
	case layoutInline:
		if start := a.size - a.tail(v); off < start {
			x.at, x.n = int64(a.block)<<v.bits+off, start-off
		} else {
			x.at = a.after + off - start
		}
	case layoutChunks:
		return v.findChunk(a, off)
	}
	return x, nil
}

// findChunk joins chunks that lie behind each other.
func (v *volume) findChunk(a *attrs, off int64) (extent, error) {
	bits := v.chunkBits(a)
	unit := int64(4)
	if a.chunk&chunkIndexes != 0 {
		unit = 8
	}
	table := (a.after + unit - 1) &^ (unit - 1)
	first, last := off>>bits, (a.size-1)>>bits
	var buf [maxMerged * 8]byte
	n := min(last-first+1, maxMerged)
	if err := v.read(buf[:n*unit], table+first*unit); err != nil {
		return extent{}, err
	}
	addr := func(i int64) (uint32, error) {
		e := buf[i*unit:]
		if unit == 4 {
			return le.Uint32(e), nil
		}
		a := le.Uint32(e[4:])
		if a != nullAddr && le.Uint16(e[2:]) != 0 {
			return 0, errCorrupt // of another device
		}
		return a, nil
	}
	start, err := addr(0)
	if err != nil {
		return extent{}, err
	}
	in := off & (1<<bits - 1)
	x := extent{at: int64(start)<<v.bits + in, hole: start == nullAddr}
	k := int64(1)
	for ; k < n; k++ {
		next, err := addr(k)
		if err != nil {
			return extent{}, err
		}
		if x.hole != (next == nullAddr) || !x.hole && int64(next) != int64(start)+k<<(bits-v.bits) {
			break
		}
	}
	x.n = min((first+k)<<bits, a.size) - off
	return x, nil
}

// readData fills p from a file and returns how much there was.
func (v *volume) readData(a *attrs, p []byte, off int64) (int, error) {
	done := 0
	for done < len(p) && off < a.size {
		x, err := v.find(a, off)
		if err != nil {
			return done, err
		}
		n := int(min(x.n, int64(len(p)-done)))
		piece := p[done : done+n]
		if x.hole {
			clear(piece)
		} else if err := v.read(piece, x.at); err != nil {
			return done, err
		}
		done += n
		off += int64(n)
	}
	return done, nil
}
