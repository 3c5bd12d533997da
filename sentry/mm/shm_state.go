package mm

import (
	"fmt"

	"runsc/sentry/image"
	"runsc/sentry/mem"
)

// Save writes s's record if it is not written yet.
func (s *Shm) Save(e *SaveEnv) (image.ID, error) {
	id, fresh := e.Saver.ID(s)
	if !fresh {
		return id, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rec := image.Shm{ID: id, Size: s.size, Ino: s.ino}
	for i := 0; i < s.frames.Len(); i++ {
		f := s.frames.At(i)
		n := f.End - f.Start
		e.Frames.Add(mem.Range{Start: f.V, End: f.V + n})
		rec.Frames = append(rec.Frames, image.Extent{Off: f.Start, Len: n, Frame: f.V})
	}
	e.Saver.PutLater(image.KindShm, &rec)
	return id, nil
}

// RestoreShm returns the object with the number and a reference to it.
func RestoreShm(e *RestoreEnv, id image.ID) (*Shm, error) {
	fresh := false
	s, err := image.Once(e.Restorer, id, func() (*Shm, error) {
		fresh = true
		var rec image.Shm
		if err := e.Restorer.Get(image.KindShm, id, &rec); err != nil {
			return nil, err
		}
		if rec.Size&pageMask != 0 || rec.Size == 0 {
			return nil, fmt.Errorf("shared memory %d: its size is not valid", id)
		}
		s := NewShm(e.MemFile, e.Account, rec.Size)
		s.ino = rec.Ino
		for n := nextShmIno.Load(); n < rec.Ino && rec.Ino < 1<<48 && !nextShmIno.CompareAndSwap(n, rec.Ino); n = nextShmIno.Load() {
		}
		for _, x := range rec.Frames {
			if err := s.restoreExtent(e, x); err != nil {
				s.DecRef()
				return nil, fmt.Errorf("shared memory %d: %w", id, err)
			}
		}
		if e.Hold != nil {
			s.IncRef()
			e.Hold(id, s.DecRef)
		}
		return s, nil
	})
	if err != nil {
		return nil, err
	}
	if !fresh {
		s.IncRef()
	}
	return s, nil
}

func (s *Shm) restoreExtent(e *RestoreEnv, x image.Extent) error {
	end := x.Off + x.Len
	if x.Len == 0 || (x.Off|x.Len|x.Frame)&pageMask != 0 || end < x.Off || end > s.size || x.Frame+x.Len < x.Frame ||
		s.frames.Overlaps(x.Off, end) {
		return fmt.Errorf("the record is not valid at %#x", x.Off)
	}
	frames, err := e.Frames.Take(mem.Range{Start: x.Frame, End: x.Frame + x.Len})
	if err != nil {
		return err
	}
	at := x.Off
	for _, f := range frames {
		s.frames.Insert(at, at+f.Len(), f.Start)
		at += f.Len()
	}
	return nil
}
