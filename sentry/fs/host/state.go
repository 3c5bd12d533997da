package host

import (
	"fmt"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/image"
	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// SetSlot says that f, made by New, is standard stream n of its container. The
// restored container has its new task's stream n in its place.
func SetSlot(f *vfs.File, n int) {
	if i, ok := f.Inode().(*inode); ok {
		i.slot = n + 1
	}
}

// StateKind implements vfs.StateSaver.
func (i *inode) StateKind() image.Kind { return image.KindHostStream }

// SaveState implements vfs.StateSaver. Nothing of the host is in an image but
// the number.
func (i *inode) SaveState(e *vfs.SaveEnv, id image.ID) error {
	if i.slot == 0 {
		return fmt.Errorf("a descriptor of the host that is no standard stream cannot be saved")
	}
	return e.Put(image.KindHostStream, &image.HostStream{ID: id, Slot: i.slot - 1})
}

// StateKind implements vfs.StateSaver.
func (s *stream) StateKind() image.Kind { return image.KindHostOps }

// SaveState implements vfs.StateSaver.
func (s *stream) SaveState(e *vfs.SaveEnv, id image.ID) error {
	in, err := e.Save(s.h.inode)
	if err != nil {
		return err
	}
	flags := uint32(unix.O_RDWR)
	switch {
	case !s.writes:
		flags = unix.O_RDONLY
	case !s.reads:
		flags = unix.O_WRONLY
	}
	return e.Put(image.KindHostOps, &image.HostOps{ID: id, Stream: in.ID, Flags: flags})
}

// Outside implements vfs.Outside.
func (s *stream) Outside() {}

func init() {
	vfs.RegisterState(image.KindHostStream, func(e *vfs.RestoreEnv, id image.ID) (any, error) {
		var rec image.HostStream
		if err := e.Get(image.KindHostStream, id, &rec); err != nil {
			return nil, err
		}
		if rec.Slot < 0 || rec.Slot > 2 {
			return nil, fmt.Errorf("the image has a standard stream %d", rec.Slot)
		}
		f, err := e.Stream(rec.Slot)
		if err != nil {
			return nil, fmt.Errorf("standard stream %d: %w", rec.Slot, err)
		}
		e.Cleanup(f.DecRef)
		SetSlot(f, rec.Slot)
		return f.Inode(), nil
	})
	vfs.RegisterState(image.KindHostOps, func(e *vfs.RestoreEnv, id image.ID) (any, error) {
		var rec image.HostOps
		if err := e.Get(image.KindHostOps, id, &rec); err != nil {
			return nil, err
		}
		x, err := vfs.Restored[vfs.Inode](e, image.Ref{Kind: image.KindHostStream, ID: rec.Stream})
		if err != nil {
			return nil, err
		}
		i, ok := x.(*inode)
		if !ok {
			var in image.HostStream
			if err := e.Get(image.KindHostStream, rec.Stream, &in); err != nil {
				return nil, err
			}
			return &none{in.Slot, rec.Flags}, nil // a task without that stream
		}
		return i.restoredOps(rec.Flags), nil
	})
}

// restoredOps is ops for a description that the saved stream allowed and the
// new one perhaps does not: the host refuses then what it cannot do.
func (i *inode) restoredOps(flags uint32) vfs.FileOps {
	acc := flags & unix.O_ACCMODE
	s := stream{i.h, acc != unix.O_WRONLY, acc != unix.O_RDONLY}
	i.h.refs.Add(1)
	switch i.h.typ {
	case unix.S_IFREG, unix.S_IFDIR, unix.S_IFBLK:
		return &plain{s}
	}
	return &s
}

// none is a stream that the new task does not have: it acts like the null
// device. A later checkpoint knows it as the stream that it stands for.
type none struct {
	slot  int    `save:"rec"`
	flags uint32 `save:"rec"`
}

// StateKind implements vfs.StateSaver.
func (n *none) StateKind() image.Kind { return image.KindHostOps }

// SaveState implements vfs.StateSaver.
func (n *none) SaveState(e *vfs.SaveEnv, id image.ID) error {
	stream, _ := e.ID(&image.HostStream{}) // a number of its own
	if err := e.Put(image.KindHostStream, &image.HostStream{ID: stream, Slot: n.slot}); err != nil {
		return err
	}
	return e.Put(image.KindHostOps, &image.HostOps{ID: id, Stream: stream, Flags: n.flags})
}

// Release implements vfs.FileOps.
func (*none) Release() {}

// Ready implements vfs.FileOps.
func (*none) Ready(mask waitq.Mask) waitq.Mask {
	return mask & (waitq.In | waitq.Out | waitq.RdNorm | waitq.WrNorm)
}

// Read implements vfs.Reader.
func (*none) Read(vfs.Caller, *vfs.File, *mem.UserBuf) (int, error) { return 0, nil }

// Write implements vfs.Writer.
func (*none) Write(_ vfs.Caller, _ *vfs.File, src *mem.UserBuf) (int, error) {
	n := src.Len()
	src.Skip(n)
	return n, nil
}
