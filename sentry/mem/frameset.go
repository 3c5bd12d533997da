package mem

import (
	"sort"
	"sync"

	"golang.org/x/sys/unix"

	"runsc/sentry/image"
)

// FrameSet collects the frames that belong to an image while records are
// written. The zero FrameSet is empty.
type FrameSet struct {
	mu sync.Mutex
	// mu guards:
	ranges []Range
	sorted bool
}

// Add adds the frames of r, which may be in the set already.
func (s *FrameSet) Add(r Range) {
	if r.Start >= r.End {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sorted = false
	if n := len(s.ranges); n > 0 && s.ranges[n-1].End == r.Start {
		s.ranges[n-1].End = r.End
		return
	}
	s.ranges = append(s.ranges, r)
}

// Ranges returns the frames in order, without overlaps. The caller does not change it.
func (s *FrameSet) Ranges() []Range {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sorted {
		return s.ranges
	}
	sort.Slice(s.ranges, func(i, j int) bool { return s.ranges[i].Start < s.ranges[j].Start })
	var out []Range
	for _, r := range s.ranges {
		if n := len(out); n > 0 && out[n-1].End >= r.Start {
			out[n-1].End = max(out[n-1].End, r.End)
			continue
		}
		out = append(out, r)
	}
	s.ranges, s.sorted = out, true
	return out
}

// Bytes returns the size of all frames in the set.
func (s *FrameSet) Bytes() (n uint64) {
	for _, r := range s.Ranges() {
		n += r.Len()
	}
	return n
}

// SaveFrames writes the record of the frames in set, all of which are in use.
func (f *File) SaveFrames(s *image.Saver, set *FrameSet) (image.ID, error) {
	id, fresh := s.ID(set)
	if !fresh {
		return id, nil
	}
	rec := image.Frames{ID: id}
	for _, r := range set.Ranges() {
		f.eachWindow(r, func(w *window, lo, hi int) {
			x := image.FrameRange{First: (w.off / PageSize) + uint64(lo), Pages: uint64(hi - lo), Kind: uint8(w.kind)}
			if n := len(rec.Ranges); n > 0 {
				if l := &rec.Ranges[n-1]; l.Kind == x.Kind && l.First+l.Pages == x.First {
					l.Pages += x.Pages
					return
				}
			}
			rec.Ranges = append(rec.Ranges, x)
		})
	}
	s.PutLater(image.KindFrames, &rec) // encoded when the guests run on
	return id, nil
}

// pieceSize is the unit in which frames are written to an image; pieces are
// aligned, so that no chunk of the image crosses a window.
const pieceSize = image.ChunkPages * PageSize

// WritePages writes the frames of set, which do not change meanwhile, to w.
// Holes are skipped, and what an earlier restore has not loaded yet is loaded.
func (f *File) WritePages(w *image.PageWriter, set *FrameSet) error {
	buf := make([]byte, pieceSize)
	for _, r := range set.Ranges() {
		for r.Start < r.End {
			end := min(r.End, r.Start&^(pieceSize-1)+pieceSize)
			piece := Range{r.Start, end}
			if err := f.load(piece); err != nil {
				return err
			}
			data, err := f.nextData(r)
			if err != nil {
				return err
			}
			if data >= end {
				// Skip the hole, but not over frames that are not loaded.
				if f.restoring.Load() > 0 {
					data = end
				}
				r.Start = min(data, r.End)
				continue
			}
			piece.Start = data
			if err := f.writePiece(w, piece, buf); err != nil {
				return err
			}
			r.Start = end
		}
	}
	return nil
}

// writePiece writes one piece or less.
func (f *File) writePiece(w *image.PageWriter, r Range, buf []byte) error {
	b := buf[:r.Len()]
	if err := f.readPiece(r, b); err != nil {
		return err
	}
	return w.Write(r.Start/PageSize, b)
}

// readPiece reads one piece or less into b, of the same length.
func (f *File) readPiece(r Range, b []byte) error {
	s := f.store(r.Start)
	return preadFull(s.fd, b, s.hostOff(r.Start))
}

// nextData returns the first page of r that is no hole, or its end.
func (f *File) nextData(r Range) (uint64, error) {
	// unix.SEEK_DATA: lseek(2). The descriptor's offset is nobody's.
	s := f.store(r.Start)
	off, err := unix.Seek(s.fd, s.hostOff(r.Start), unix.SEEK_DATA)
	if err == unix.ENXIO {
		return r.End, nil
	}
	if err != nil {
		return 0, err
	}
	return min(s.base+uint64(off)&^(PageSize-1), r.End), nil
}
