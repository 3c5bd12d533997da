package image

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/fxamacker/cbor/v2"

	"runsc/pkg/imagefmt"
)

// Format is the version of the format that this code writes. It reads all
// from 1 on. docs/image-format.md has a line for each.
const Format = imagefmt.Format

// magic starts kernel.img.
const magic = "RUNSCKRN"

// Kind says what a record describes. Numbers are never reused.
type Kind uint16

// recordHeader precedes each record: kind, version, flags, length of the
// payload, checksum (CRC-32C) of header without checksum and payload.
const recordHeader = 2 + 2 + 4 + 4 + 4

// flagOptional marks a record that a reader may skip if it does not know its
// kind.
const flagOptional = 1

// maxRecord bounds a payload, so that a hostile length cannot make the
// reader allocate without limit.
const maxRecord = 64 << 20

// KindEnd is the last record; its payload is the number of records before it.
const KindEnd Kind = 0xffff

// ErrTruncated is returned for an image that ends too early.
var ErrTruncated = errors.New("the image is cut off")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var encMode, decMode = codecs()

func codecs() (cbor.EncMode, cbor.DecMode) {
	opts := cbor.CoreDetEncOptions()
	// Names of files are any bytes, which CBOR's text strings must not hold.
	opts.String = cbor.StringToByteString
	enc, err := opts.EncMode()
	if err != nil {
		panic(err) // the options are constant
	}
	dec, err := cbor.DecOptions{
		MaxArrayElements: 1 << 24, MaxMapPairs: 1 << 20, MaxNestedLevels: 16,
		DupMapKey: cbor.DupMapKeyEnforcedAPF, IndefLength: cbor.IndefLengthForbidden,
		ByteStringToString: cbor.ByteStringToStringAllowed,
	}.DecMode()
	if err != nil {
		panic(err)
	}
	return enc, dec
}

// Writer writes the records of kernel.img.
type Writer struct {
	w     *bufio.Writer
	n     uint64
	bytes int64
	err   error
	later []laterRecord // PutLater's
}

type laterRecord struct {
	kind    Kind
	version uint16
	rec     any
}

// NewWriter starts an image on w.
func NewWriter(w io.Writer) *Writer {
	x := &Writer{w: bufio.NewWriterSize(w, 64<<10)}
	var h [16]byte
	copy(h[:], magic)
	binary.LittleEndian.PutUint32(h[8:], Format)
	x.write(h[:])
	return x
}

func (w *Writer) write(p []byte) {
	if w.err == nil {
		_, w.err = w.w.Write(p)
		w.bytes += int64(len(p))
	}
}

// Put appends a record. rec is a flat structure with integer CBOR keys.
func (w *Writer) Put(kind Kind, version uint16, rec any) error {
	if w.err != nil {
		return w.err
	}
	payload, err := encMode.Marshal(rec)
	if err != nil {
		w.err = fmt.Errorf("record of kind %d: %w", kind, err)
		return w.err
	}
	if len(payload) > maxRecord {
		w.err = fmt.Errorf("record of kind %d has %d bytes, more than %d", kind, len(payload), maxRecord)
		return w.err
	}
	var h [recordHeader]byte
	binary.LittleEndian.PutUint16(h[0:], uint16(kind))
	binary.LittleEndian.PutUint16(h[2:], version)
	binary.LittleEndian.PutUint32(h[8:], uint32(len(payload)))
	sum := crc32.Update(crc32.Checksum(h[:12], castagnoli), castagnoli, payload)
	binary.LittleEndian.PutUint32(h[12:], sum)
	w.write(h[:])
	w.write(payload)
	w.n++
	return w.err
}

// PutLater is a Put that Close does, which spares whoever waits for the records'
// contents alone the time that encoding them takes. rec, and what it refers to,
// belongs to the Writer from now on.
func (w *Writer) PutLater(kind Kind, version uint16, rec any) {
	w.later = append(w.later, laterRecord{kind, version, rec})
}

// Close ends the image; it does not close the file. It returns the size.
func (w *Writer) Close() (int64, error) {
	for _, l := range w.later {
		if err := w.Put(l.kind, l.version, l.rec); err != nil {
			return 0, err
		}
	}
	w.later = nil
	if err := w.Put(KindEnd, 1, w.n); err != nil {
		return 0, err
	}
	return w.bytes, w.w.Flush()
}

// Record is one record as read.
type Record struct {
	Kind     Kind
	Version  uint16
	Optional bool
	payload  []byte
}

// Decode fills rec, a pointer to the record's structure. Fields that the
// image lacks keep their values, unknown ones are skipped.
func (r *Record) Decode(rec any) error {
	if err := decMode.Unmarshal(r.payload, rec); err != nil {
		return fmt.Errorf("record of kind %d: %w", r.Kind, err)
	}
	return nil
}

// Reader reads the records of kernel.img.
type Reader struct {
	r    *bufio.Reader
	n    uint64
	done bool
}

// NewReader checks the beginning of an image.
func NewReader(r io.Reader) (*Reader, error) {
	x := &Reader{r: bufio.NewReaderSize(r, 64<<10)}
	var h [16]byte
	if _, err := io.ReadFull(x.r, h[:]); err != nil {
		return nil, ErrTruncated
	}
	if string(h[:8]) != magic {
		return nil, errors.New("kernel.img is not part of a checkpoint image")
	}
	if f := binary.LittleEndian.Uint32(h[8:]); f == 0 || f > Format {
		return nil, fmt.Errorf("the image has format %d, this version reads 1 to %d", f, Format)
	}
	return x, nil
}

// Next returns the next record, io.EOF after the last.
func (r *Reader) Next() (*Record, error) {
	if r.done {
		return nil, io.EOF
	}
	var h [recordHeader]byte
	if _, err := io.ReadFull(r.r, h[:]); err != nil {
		return nil, ErrTruncated
	}
	n := binary.LittleEndian.Uint32(h[8:])
	if n > maxRecord {
		return nil, fmt.Errorf("record %d is damaged: it claims %d bytes", r.n, n)
	}
	rec := &Record{Kind: Kind(binary.LittleEndian.Uint16(h[0:])), Version: binary.LittleEndian.Uint16(h[2:]),
		Optional: binary.LittleEndian.Uint32(h[4:])&flagOptional != 0}
	var err error
	if rec.payload, err = readBounded(r.r, int(n)); err != nil {
		return nil, ErrTruncated
	}
	if sum := crc32.Update(crc32.Checksum(h[:12], castagnoli), castagnoli, rec.payload); sum != binary.LittleEndian.Uint32(h[12:]) {
		return nil, fmt.Errorf("record %d is damaged: its checksum is wrong", r.n)
	}
	if rec.Kind == KindEnd {
		var count uint64
		if err := rec.Decode(&count); err != nil {
			return nil, err
		}
		if count != r.n {
			return nil, fmt.Errorf("the image has %d records and claims %d", r.n, count)
		}
		if _, err := r.r.ReadByte(); err != io.EOF {
			return nil, errors.New("the image goes on after its last record")
		}
		r.done = true
		return nil, io.EOF
	}
	r.n++
	return rec, nil
}

// readBounded reads n bytes, allocating as they come so that a length beyond
// the file's end costs nothing.
func readBounded(r io.Reader, n int) ([]byte, error) {
	const step = 1 << 20
	var p []byte
	for len(p) < n {
		k := min(n-len(p), step)
		p = append(p, make([]byte, k)...)
		if _, err := io.ReadFull(r, p[len(p)-k:]); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// Checksum returns the CRC-32C of p.
func Checksum(p []byte) uint32 { return crc32.Checksum(p, castagnoli) }
