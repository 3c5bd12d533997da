package image

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sort"
	"sync"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
)

// PageSize is the unit of pages.img.
const PageSize = 4096

// ChunkPages is the largest number of pages that are read, checked and placed
// together: 256 KiB.
const ChunkPages = 64

// Chunk is an entry of pages.idx: pages that follow each other in the
// memfile of the saved sandbox.
type Chunk struct {
	First  uint64 // number of the first page in the saved memfile
	Off    uint64 // in pages.img, a multiple of PageSize unless compressed
	Pages  uint32 // 1 to ChunkPages
	Stored uint32 // bytes in pages.img; less than Pages*PageSize if compressed
	Sum    uint32 // CRC-32C of the stored bytes
}

// chunkSize is the size of an entry: the fields in order and four zero bytes.
const chunkSize = 32

// idxMagic starts pages.idx; a format number follows, and after the entries
// their number and a checksum of all before.
const idxMagic = "RUNSCIDX"

// PageWriter writes pages.img and pages.idx.
type PageWriter struct {
	img, idx *os.File
	out      [][]byte      // chunks of the Write under way, not copied: a buffer would be the most of a small image's cost
	enc      *zstd.Encoder // nil: no compression
	chunks   []Chunk
	off      uint64
	pages    uint64
}

// NewPageWriter starts both files, which the caller closes.
func NewPageWriter(img, idx *os.File, compress bool) (*PageWriter, error) {
	w := &PageWriter{img: img, idx: idx, out: make([][]byte, 0, ChunkPages)}
	if compress {
		var err error
		if w.enc, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1)); err != nil {
			return nil, err
		}
	}
	return w, nil
}

var zeroPage [PageSize]byte

func isZero(p []byte) bool { return string(p) == string(zeroPage[:]) }

// IsZero tells whether whole pages have zeros alone: PageWriter leaves such out.
func IsZero(data []byte) bool {
	for len(data) >= PageSize && isZero(data[:PageSize]) {
		data = data[PageSize:]
	}
	return len(data) == 0
}

// Write stores the pages of data, the first of which is page first of the
// memfile. Zero pages are left out.
func (w *PageWriter) Write(first uint64, data []byte) error {
	if len(data)%PageSize != 0 {
		return errors.New("image: not whole pages")
	}
	n := len(data) / PageSize
	for i := 0; i < n; {
		if isZero(data[i*PageSize : (i+1)*PageSize]) {
			i++
			continue
		}
		j := i + 1
		for j < n && j-i < ChunkPages && !isZero(data[j*PageSize:(j+1)*PageSize]) {
			j++
		}
		w.chunk(first+uint64(i), data[i*PageSize:j*PageSize])
		i = j
	}
	return w.flush()
}

// flush writes out.
func (w *PageWriter) flush() error {
	left := w.out
	defer func() {
		clear(w.out)
		w.out = w.out[:0]
	}()
	for len(left) > 0 {
		n, err := unix.Writev(int(w.img.Fd()), left[:min(len(left), maxVectors)])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		for len(left) > 0 && n >= len(left[0]) {
			n -= len(left[0])
			left = left[1:]
		}
		if n > 0 {
			left[0] = left[0][n:]
		}
	}
	return nil
}

// maxVectors is UIO_MAXIOV.
const maxVectors = 1024

func (w *PageWriter) chunk(first uint64, data []byte) {
	c := Chunk{First: first, Off: w.off, Pages: uint32(len(data) / PageSize)}
	if w.enc != nil {
		if z := w.enc.EncodeAll(data, nil); len(z) < len(data) {
			data = z
		}
	}
	c.Stored, c.Sum = uint32(len(data)), crc32.Checksum(data, castagnoli)
	w.out = append(w.out, data)
	w.off += uint64(len(data))
	w.pages += uint64(c.Pages)
	w.chunks = append(w.chunks, c)
}

// Close writes the index; it returns the number of pages stored
// and the bytes of both files.
func (w *PageWriter) Close() (pages, imgBytes, idxBytes uint64, err error) {
	b := make([]byte, 0, 16+len(w.chunks)*chunkSize+16)
	b = append(b, idxMagic...)
	b = binary.LittleEndian.AppendUint32(b, Format)
	b = binary.LittleEndian.AppendUint32(b, 0)
	for _, c := range w.chunks {
		b = binary.LittleEndian.AppendUint64(b, c.First)
		b = binary.LittleEndian.AppendUint64(b, c.Off)
		b = binary.LittleEndian.AppendUint32(b, c.Pages)
		b = binary.LittleEndian.AppendUint32(b, c.Stored)
		b = binary.LittleEndian.AppendUint32(b, c.Sum)
		b = binary.LittleEndian.AppendUint32(b, 0)
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(len(w.chunks)))
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	if _, err := w.idx.Write(b); err != nil {
		return 0, 0, 0, err
	}
	return w.pages, w.off, uint64(len(b)), nil
}

// Pages is an opened pages.img with its index.
type Pages struct {
	img    *os.File
	chunks []Chunk // sorted by First, not overlapping

	decOnce sync.Once
	dec     *zstd.Decoder // made when a chunk is compressed
	decErr  error
}

// maxIndex bounds pages.idx: 64 Mi chunks are 16 TiB of memory.
const maxIndex = 64 << 20

// OpenPages reads and checks the index. It takes over img on success.
func OpenPages(img, idx *os.File) (*Pages, error) {
	ist, err := idx.Stat()
	if err != nil {
		return nil, err
	}
	pst, err := img.Stat()
	if err != nil {
		return nil, err
	}
	size := ist.Size()
	if size < 16+12 || (size-16-12)%chunkSize != 0 || size > maxIndex*chunkSize {
		return nil, errors.New("pages.idx is cut off or damaged")
	}
	sum := crc32.New(castagnoli)
	in := bufio.NewReaderSize(idx, 32<<10)
	var b [chunkSize]byte
	read := func(n int) error {
		if _, err := io.ReadFull(in, b[:n]); err != nil {
			return ErrTruncated
		}
		return nil
	}
	if err := read(16); err != nil {
		return nil, err
	}
	if string(b[:8]) != idxMagic {
		return nil, errors.New("pages.idx is not part of a checkpoint image")
	}
	if f := binary.LittleEndian.Uint32(b[8:]); f == 0 || f > Format {
		return nil, fmt.Errorf("pages.idx has format %d, this version reads 1 to %d", f, Format)
	}
	sum.Write(b[:16])
	n := (size - 28) / chunkSize
	p := &Pages{img: img, chunks: make([]Chunk, n)}
	wrong, sorted := -1, true
	for i := range p.chunks {
		if err := read(chunkSize); err != nil {
			return nil, err
		}
		sum.Write(b[:])
		c := Chunk{binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint32(b[16:]),
			binary.LittleEndian.Uint32(b[20:]), binary.LittleEndian.Uint32(b[24:])}
		if c.Pages == 0 || c.Pages > ChunkPages || c.Stored == 0 || c.Stored > c.Pages*PageSize || c.First > 1<<52 ||
			c.Off > uint64(pst.Size()) || uint64(c.Stored) > uint64(pst.Size())-c.Off {
			wrong = i
		}
		sorted = sorted && (i == 0 || p.chunks[i-1].First < c.First)
		p.chunks[i] = c
	}
	if err := read(12); err != nil {
		return nil, err
	}
	sum.Write(b[:8])
	if sum.Sum32() != binary.LittleEndian.Uint32(b[8:]) {
		return nil, errors.New("pages.idx is damaged: its checksum is wrong")
	}
	if binary.LittleEndian.Uint64(b[:]) != uint64(n) {
		return nil, errors.New("pages.idx is damaged: its number of entries is wrong")
	}
	if wrong >= 0 {
		return nil, fmt.Errorf("pages.idx is damaged: entry %d is out of range", wrong)
	}
	if !sorted { // pieces that were about to change were written before their turn
		sort.Slice(p.chunks, func(i, j int) bool { return p.chunks[i].First < p.chunks[j].First })
	}
	for i := 1; i < len(p.chunks); i++ {
		if a := p.chunks[i-1]; a.First+uint64(a.Pages) > p.chunks[i].First {
			return nil, errors.New("pages.idx is damaged: entries overlap")
		}
	}
	return p, nil
}

func (p *Pages) decoder() (*zstd.Decoder, error) {
	p.decOnce.Do(func() {
		p.dec, p.decErr = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(ChunkPages*PageSize))
	})
	return p.dec, p.decErr
}

// Chunks returns the entries in the order of their pages; do not change them.
func (p *Pages) Chunks() []Chunk { return p.chunks }

// Find returns the index of the chunk that page lies in; if it lies in none,
// it is a zero page and the index is that of the next chunk.
func (p *Pages) Find(page uint64) (int, bool) {
	i := sort.Search(len(p.chunks), func(i int) bool { c := &p.chunks[i]; return c.First+uint64(c.Pages) > page })
	return i, i < len(p.chunks) && p.chunks[i].First <= page
}

// Read reads chunk i into buf, which has room for ChunkPages pages, checks it
// and returns its pages.
func (p *Pages) Read(i int, buf []byte) ([]byte, error) {
	c := &p.chunks[i]
	want := int(c.Pages) * PageSize
	stored := buf[:c.Stored]
	if int(c.Stored) != want {
		stored = make([]byte, c.Stored)
	}
	if _, err := p.img.ReadAt(stored, int64(c.Off)); err != nil {
		return nil, fmt.Errorf("cannot read pages.img: %w", err)
	}
	if crc32.Checksum(stored, castagnoli) != c.Sum {
		return nil, fmt.Errorf("pages.img is damaged at offset %d: its checksum is wrong", c.Off)
	}
	if int(c.Stored) == want {
		return stored, nil
	}
	dec, err := p.decoder()
	if err != nil {
		return nil, err
	}
	out, err := dec.DecodeAll(stored, buf[:0])
	if err != nil || len(out) != want {
		return nil, fmt.Errorf("pages.img is damaged at offset %d: it does not unpack", c.Off)
	}
	return out, nil
}

// Close closes the file.
func (p *Pages) Close() error {
	if p.dec != nil {
		p.dec.Close()
	}
	return p.img.Close()
}
