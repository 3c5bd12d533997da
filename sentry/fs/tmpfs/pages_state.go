package tmpfs

import (
	"errors"
	"math"
	"slices"
	"sort"

	"runsc/sentry/image"
	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// savePages records where the data is and adds the frames to the image.
func (f *file) savePages(e *vfs.SaveEnv, rec *image.TmpfsInode) {
	f.pagesMu.RLock()
	defer f.pagesMu.RUnlock()
	rec.Size, rec.Seals = f.size, f.seals.Load()
	end := pagesOf(f.size)
	f.pages.each(func(page int64, off uint64) {
		if page >= end && page < f.ahead {
			return // taken in advance
		}
		if n := len(rec.Pages); n > 0 {
			r := &rec.Pages[n-1]
			if r.Page+r.Count == page && r.Frame+uint64(r.Count)*pageSize == off {
				r.Count++
				return
			}
		}
		rec.Pages = append(rec.Pages, image.FileRun{Page: page, Count: 1, Frame: off})
	})
	for _, r := range rec.Pages {
		e.Frames.Add(mem.Range{Start: r.Frame, End: r.Frame + uint64(r.Count)*pageSize})
	}
}

// each calls fn for the pages that have a frame, in order.
func (t *pageTable) each(fn func(page int64, off uint64)) {
	leaf := func(base int64, l []uint64) {
		for i, v := range l {
			if v != 0 {
				fn(base+int64(i), v&^present)
			}
		}
	}
	leaf(0, t.first)
	keys := make([]int64, 0, len(t.rest))
	for k := range t.rest {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		leaf(k<<leafShift, t.rest[k])
	}
}

var errPages = errors.New("its pages cannot be")

// restorePages takes the frames, or writes the bytes that the records hold.
func (f *file) restorePages(e *vfs.RestoreEnv, rec *image.TmpfsInode) error {
	if rec.Size < 0 || rec.Size > maxFileSize || len(rec.Pages) > 0 && len(rec.Data) > 0 {
		return errPages
	}
	if err := checkRuns(rec.Pages); err != nil {
		return err
	}
	for _, r := range rec.Pages {
		got, err := e.Frames.Take(mem.Range{Start: r.Frame, End: r.Frame + uint64(r.Count)*pageSize})
		if err != nil {
			return err
		}
		page := r.Page
		for _, g := range got {
			n := int64(g.Len() / pageSize)
			f.pages.set(page, n, g.Start)
			f.fs.pages.Add(n)
			page += n
		}
		if page != r.Page+r.Count {
			return errPages
		}
	}
	for _, id := range rec.Data {
		var d image.FileData
		if err := e.Get(image.KindFileData, id, &d); err != nil {
			return err
		}
		if d.Offset < 0 || d.Offset > rec.Size-int64(len(d.Data)) {
			return errPages
		}
		if len(d.Data) == 0 {
			continue
		}
		if _, err := f.writeAt(d.Data, d.Offset, 0); err != nil {
			return err
		}
	}
	f.size, f.ahead = rec.Size, 0
	return nil
}

// checkRuns checks that runs are in order and that no page and no frame is in
// two.
func checkRuns(runs []image.FileRun) error {
	const last = math.MaxInt64 / pageSize
	next := int64(0)
	for _, r := range runs {
		if r.Page < next || r.Count <= 0 || r.Count > last-r.Page || r.Frame%pageSize != 0 ||
			r.Frame > 1<<62 || r.Count > 1<<40 {
			return errPages
		}
		next = r.Page + r.Count
	}
	byFrame := slices.Clone(runs)
	sort.Slice(byFrame, func(i, j int) bool { return byFrame[i].Frame < byFrame[j].Frame })
	for i := 1; i < len(byFrame); i++ {
		if p := &byFrame[i-1]; p.Frame+uint64(p.Count)*pageSize > byFrame[i].Frame {
			return errPages
		}
	}
	return nil
}
