package image

import (
	"bytes"
	"fmt"
	"io"
	"math/rand"
	"os"
	"path/filepath"
	"testing"
)

type sample struct {
	ID   ID     `cbor:"1,keyasint"`
	Name string `cbor:"2,keyasint"`
	Data []byte `cbor:"3,keyasint,omitempty"`
}

func sampleImage(t testing.TB, n int) []byte {
	var b bytes.Buffer
	w := NewWriter(&b)
	for i := range n {
		if err := w.Put(7, 1, sample{ID(i + 1), "x\xff\xc3", bytes.Repeat([]byte{byte(i)}, i)}); err != nil {
			t.Fatal(err)
		}
	}
	if size, err := w.Close(); err != nil || size != int64(b.Len()) {
		t.Fatalf("size %d of %d, %v", size, b.Len(), err)
	}
	return b.Bytes()
}

func readAll(p []byte) (int, error) {
	r, err := NewReader(bytes.NewReader(p))
	if err != nil {
		return 0, err
	}
	for n := 0; ; n++ {
		rec, err := r.Next()
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		var s sample
		if err := rec.Decode(&s); err != nil {
			return n, err
		}
		if s.Name != "x\xff\xc3" {
			return n, fmt.Errorf("a name became %q", s.Name)
		}
	}
}

func TestRecords(t *testing.T) {
	p := sampleImage(t, 50)
	if n, err := readAll(p); n != 50 || err != nil {
		t.Fatalf("%d records, %v", n, err)
	}
	for cut := range p {
		if _, err := readAll(p[:cut]); err == nil {
			t.Fatalf("an image cut to %d of %d bytes is accepted", cut, len(p))
		}
	}
	for i := 16; i < len(p); i++ {
		q := bytes.Clone(p)
		q[i] ^= 0x40
		if _, err := readAll(q); err == nil {
			t.Fatalf("an image with a changed byte %d is accepted", i)
		}
	}
	if _, err := readAll(append(bytes.Clone(p), 0)); err == nil {
		t.Error("an image with a byte after it is accepted")
	}
}

func FuzzRecords(f *testing.F) {
	f.Add(sampleImage(f, 3))
	f.Fuzz(func(t *testing.T, p []byte) { readAll(p) })
}

func TestPages(t *testing.T) {
	for _, compress := range []bool{false, true} {
		dir := t.TempDir()
		open := func(name string) *os.File {
			f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_RDWR, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
		img, idx := open(PagesFile), open(IndexFile)
		w, err := NewPageWriter(img, idx, compress)
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewSource(1))
		mem := map[uint64][]byte{}
		for _, first := range []uint64{1000, 5, 300} {
			data := make([]byte, 200*PageSize)
			for p := range 200 {
				if rng.Intn(3) > 0 {
					rng.Read(data[p*PageSize : p*PageSize+64])
					mem[first+uint64(p)] = data[p*PageSize : (p+1)*PageSize]
				}
			}
			if err := w.Write(first, data); err != nil {
				t.Fatal(err)
			}
		}
		if n, _, _, err := w.Close(); err != nil || n != uint64(len(mem)) {
			t.Fatalf("%d pages of %d, %v", n, len(mem), err)
		}
		idx.Seek(0, 0)
		p, err := OpenPages(img, idx)
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, ChunkPages*PageSize)
		for page := uint64(0); page < 1300; page++ {
			i, ok := p.Find(page)
			if ok != (mem[page] != nil) {
				t.Fatalf("page %d: found %v", page, ok)
			}
			if !ok {
				continue
			}
			data, err := p.Read(i, buf)
			if err != nil {
				t.Fatal(err)
			}
			off := (page - p.Chunks()[i].First) * PageSize
			if !bytes.Equal(data[off:off+PageSize], mem[page]) {
				t.Fatalf("page %d differs", page)
			}
		}
		// A changed byte is noticed when its chunk is read.
		var b [1]byte
		img.ReadAt(b[:], int64(p.Chunks()[3].Off))
		b[0] ^= 1
		img.WriteAt(b[:], int64(p.Chunks()[3].Off))
		if _, err := p.Read(3, buf); err == nil {
			t.Error("a damaged chunk is accepted")
		}
		// So is one of the index when it is opened.
		idx.WriteAt([]byte{0xff}, 40)
		idx.Seek(0, 0)
		if _, err := OpenPages(img, idx); err == nil {
			t.Error("a damaged index is accepted")
		}
	}
}
