package image

import (
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"testing"

	"bytes"
)

// FuzzIndex opens an index of arbitrary entries, its checksum made right, and reads all chunks.
func FuzzIndex(f *testing.F) {
	dir := f.TempDir()
	create := func(name string) *os.File {
		x, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			f.Fatal(err)
		}
		return x
	}
	img, idx := create(PagesFile), create(IndexFile)
	w, err := NewPageWriter(img, idx, false)
	if err != nil {
		f.Fatal(err)
	}
	if err := w.Write(7, bytes.Repeat([]byte("page"), 100*PageSize/4)); err != nil {
		f.Fatal(err)
	}
	if _, _, _, err := w.Close(); err != nil {
		f.Fatal(err)
	}
	good, err := os.ReadFile(idx.Name())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:16])
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= 4 {
			b = bytes.Clone(b)
			binary.LittleEndian.PutUint32(b[len(b)-4:], Checksum(b[:len(b)-4]))
		}
		if err := os.WriteFile(idx.Name(), b, 0o600); err != nil {
			t.Fatal(err)
		}
		in, err := os.Open(idx.Name())
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		pages, err := os.Open(img.Name())
		if err != nil {
			t.Fatal(err)
		}
		p, err := OpenPages(pages, in)
		if err != nil {
			pages.Close()
			return
		}
		defer p.Close()
		buf := make([]byte, ChunkPages*PageSize)
		for i, c := range p.Chunks() {
			if data, err := p.Read(i, buf); err == nil && len(data) != int(c.Pages)*PageSize {
				t.Errorf("chunk %d has %d bytes of %d pages", i, len(data), c.Pages)
			}
			p.Find(c.First)
		}
	})
}

// FuzzLoadRecords loads records of arbitrary kinds and payloads with right checksums: an input is a sequence of
// kind (2 bytes), length (2 bytes) and payload.
func FuzzLoadRecords(f *testing.F) {
	golden, err := os.ReadFile("../../test/golden/v1/" + KernelFile)
	if err != nil {
		f.Fatal(err)
	}
	r, err := NewReader(bytes.NewReader(golden))
	if err != nil {
		f.Fatal(err)
	}
	var seed []byte
	for rec, err := r.Next(); err != io.EOF; rec, err = r.Next() {
		if err != nil {
			f.Fatal(err)
		}
		if len(rec.payload) < 1<<16 {
			seed = binary.LittleEndian.AppendUint16(seed, uint16(rec.Kind))
			seed = binary.LittleEndian.AppendUint16(seed, uint16(len(rec.payload)))
			seed = append(seed, rec.payload...)
		}
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, in []byte) {
		var b bytes.Buffer
		w := NewWriter(&b)
		for len(in) >= 4 {
			n := min(int(binary.LittleEndian.Uint16(in[2:])), len(in)-4)
			var h [recordHeader]byte
			copy(h[:2], in)
			binary.LittleEndian.PutUint16(h[2:], 1)
			binary.LittleEndian.PutUint32(h[8:], uint32(n))
			binary.LittleEndian.PutUint32(h[12:], Checksum(append(bytes.Clone(h[:12]), in[4:4+n]...)))
			w.write(h[:])
			w.write(in[4 : 4+n])
			w.n++
			in = in[4+n:]
		}
		if _, err := w.Close(); err != nil {
			t.Fatal(err)
		}
		rd, err := NewReader(&b)
		if err != nil {
			t.Fatal(err)
		}
		x, err := LoadRecords(rd, func(Kind) bool { return true })
		if err != nil {
			return
		}
		for kind, ids := range x.order {
			for _, id := range ids {
				var any map[int]any
				_ = x.Get(kind, id, &any)
			}
		}
	})
}
