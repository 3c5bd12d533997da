package pseudo

import (
	"bytes"
	"sync"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// maxWrite bounds what one write brings, as proc's handlers do by a page.
const maxWrite = 64 << 10

// file is an open generated file.
type file struct {
	r Reader `save:"rebuilt"` // nil if it cannot be read
	w Writer `save:"rebuilt"` // nil if it cannot be written

	mu sync.Mutex `save:"none: not held at a stop"`
	// mu guards:
	content []byte `save:"none: generated again"`
	valid   bool   `save:"none: generated again"`
}

// Release implements vfs.FileOps.
func (f *file) Release() {}

// Ready implements vfs.FileOps.
func (f *file) Ready(mask waitq.Mask) waitq.Mask {
	return mask & (waitq.In | waitq.Out | waitq.RdNorm | waitq.WrNorm)
}

// ReadAt implements vfs.ReaderAt.
func (f *file) ReadAt(c vfs.Caller, _ *vfs.File, dst *mem.UserBuf, off int64) (int, error) {
	if f.r == nil {
		return 0, unix.EIO
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if off == 0 || !f.valid {
		var b bytes.Buffer
		if err := f.r.Read(c, &b); err != nil {
			return 0, err
		}
		f.content, f.valid = b.Bytes(), true
	}
	if off >= int64(len(f.content)) {
		return 0, nil
	}
	return dst.CopyOut(f.content[off:][:min(dst.Len(), len(f.content)-int(off))])
}

// WriteAt implements vfs.WriterAt. The offset does not matter.
func (f *file) WriteAt(c vfs.Caller, _ *vfs.File, src *mem.UserBuf, off int64) (int, int64, error) {
	if f.w == nil {
		return 0, 0, unix.EIO
	}
	data := make([]byte, min(src.Len(), maxWrite))
	n, err := src.CopyIn(data)
	if err != nil {
		return 0, 0, err
	}
	n, err = f.w.Write(c, data[:n])
	f.mu.Lock()
	f.valid = false
	f.mu.Unlock()
	return n, max(off, 0) + int64(n), err
}

// openDir is an open directory.
type openDir struct {
	d *dirInode `save:"rebuilt"`
}

// Release implements vfs.FileOps.
func (o *openDir) Release() {}

// Ready implements vfs.FileOps.
func (o *openDir) Ready(mask waitq.Mask) waitq.Mask { return mask & (waitq.In | waitq.Out) }

// ReadDir implements vfs.DirReader. Positions 0 and 1 are "." and "..", those
// of the entries follow.
func (o *openDir) ReadDir(c vfs.Caller, f *vfs.File, pos int64, emit func(vfs.Dirent) bool) error {
	const dots = 2
	d := o.d
	if pos == 0 {
		if !emit(vfs.Dirent{Name: ".", Ino: d.ino, Type: unix.DT_DIR, Next: 1}) {
			return nil
		}
		pos = 1
	}
	if pos == 1 {
		if !emit(vfs.Dirent{Name: "..", Ino: d.parentIno, Type: unix.DT_DIR, Next: dots}) {
			return nil
		}
		pos = dots
	}
	return d.dir.Each(c, pos-dots, func(name string, typ uint8, next int64) bool {
		return emit(vfs.Dirent{Name: name, Ino: childIno(d.ino, name), Type: typ, Next: next + dots})
	})
}
