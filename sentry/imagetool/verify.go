package imagetool

import (
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"runsc/pkg/imagefmt"
	"runsc/sentry/image"
)

// verify reads all of an image.
func verify(path string, w io.Writer) error {
	o, err := open(path)
	if err != nil {
		return err
	}
	defer o.Close()
	for i, name := range imagefmt.StateFiles {
		want := o.Manifest.Files[name].CRC32C
		if want == 0 {
			continue // pages.img, whose chunks have their own
		}
		if err := checkSum(o.State[i], name, want); err != nil {
			return wrong(path, err)
		}
	}
	records, err := checkRecords(o.State[0])
	if err != nil {
		return wrong(path, err)
	}
	chunks, err := checkPages(o)
	if err != nil {
		return wrong(path, err)
	}
	_, err = fmt.Fprintf(w, "%s is good: %d records, %d pages in %d chunks\n", path, records, o.Manifest.Pages, chunks)
	return err
}

// checkSum compares a whole file with the manifest's checksum of it.
func checkSum(f *os.File, name string, want uint32) error {
	h := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	if _, err := io.Copy(h, f); err != nil {
		return fmt.Errorf("cannot read %s: %w", name, err)
	}
	if h.Sum32() != want {
		return fmt.Errorf("%s is damaged: its checksum is not the manifest's", name)
	}
	_, err := f.Seek(0, io.SeekStart)
	return err
}

func checkRecords(f *os.File) (n int, err error) {
	r, err := image.NewReader(f)
	for ; err == nil; n++ {
		if _, err = r.Next(); err == io.EOF {
			return n, nil
		}
	}
	return n, err
}

func checkPages(o *imagefmt.Opened) (chunks int, err error) {
	index, img := o.State[1], o.State[2]
	p, err := image.OpenPages(img, index)
	if err != nil {
		return 0, err
	}
	o.State[2] = nil // closed with p
	defer p.Close()
	buf := make([]byte, image.ChunkPages*image.PageSize)
	var pages uint64
	for i, c := range p.Chunks() {
		if _, err := p.Read(i, buf); err != nil {
			return 0, err
		}
		pages += uint64(c.Pages)
	}
	if pages != o.Manifest.Pages {
		return 0, fmt.Errorf("pages.idx has %d pages, the manifest %d", pages, o.Manifest.Pages)
	}
	return len(p.Chunks()), nil
}
