package gofer

import (
	"bytes"
	"encoding/binary"
	"sync"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/vfs"
)

// direntBuf is the size of the buffer for getdents64, the same as glibc's for
// large directories.
const direntBuf = 32 << 10

var direntBufs = sync.Pool{New: func() any { b := make([]byte, direntBuf); return &b }}

// dirFile is an open directory. The host's is opened at the first read.
type dirFile struct {
	d *dir `save:"rebuilt"`

	mu sync.Mutex `save:"none: not held at a stop"`
	// mu guards:
	ref  int     `save:"rebuilt"` // the backend's, if open is set
	open bool    `save:"rebuilt"`
	buf  *[]byte `save:"none: a cache"` // from direntBufs, while entries are left in it
	rest []byte  `save:"none: a cache"` // entries of buf not yet given out
	pos  int64   `save:"none: a cache"` // position of the first entry of rest
	host int64   `save:"none: a cache"` // the host descriptor's position, once
	seek bool    `save:"none: a cache"` // the next read has set it
}

// Release implements vfs.FileOps.
func (f *dirFile) Release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dropLocked()
	if f.open {
		f.d.fs.client.backend.Close(f.ref)
		f.open = false
		f.d.fs.client.fds.count(-1)
	}
}

// Ready implements vfs.FileOps.
func (f *dirFile) Ready(mask waitq.Mask) waitq.Mask { return mask & (waitq.In | waitq.Out) }

// Fsync implements vfs.Syncer.
func (f *dirFile) Fsync(c vfs.Caller, dataOnly bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.openLocked(); err != nil {
		return err
	}
	return f.d.fs.client.backend.SyncDir(f.ref)
}

// ReadDir implements vfs.DirReader. Positions are the host's. No entry is
// looked up: numbers come from the host's d_ino, types from its d_type.
func (f *dirFile) ReadDir(c vfs.Caller, _ *vfs.File, pos int64, emit func(vfs.Dirent) bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.openLocked(); err != nil {
		return err
	}
	if len(f.rest) == 0 || pos != f.pos {
		f.dropLocked()
		if pos != f.host || pos == 0 {
			f.seek, f.host = true, pos
		}
		f.pos = pos
	}
	for {
		if len(f.rest) == 0 {
			if more, err := f.fillLocked(); !more || err != nil {
				return err
			}
		}
		ent, n := f.parse(f.rest)
		if n == 0 {
			f.dropLocked()
			return unix.EIO
		}
		if !emit(ent) {
			return nil
		}
		f.rest, f.pos = f.rest[n:], ent.Next
	}
}

func (f *dirFile) openLocked() error {
	if f.open {
		return nil
	}
	h, err := f.d.inode.open(byPath)
	if err != nil {
		return err
	}
	defer f.d.fs.put(h)
	ref, err := f.d.fs.client.fds.retry(func() (int, error) { return f.d.fs.client.backend.OpenDir(h.fd) })
	if err != nil {
		return err
	}
	f.ref, f.open, f.host, f.seek = ref, true, 0, false
	f.d.fs.client.fds.count(1)
	return nil
}

// fillLocked reads entries from the host and tells whether there are any.
func (f *dirFile) fillLocked() (bool, error) {
	if f.buf == nil {
		f.buf = direntBufs.Get().(*[]byte)
	}
	off := int64(-1)
	if f.seek {
		off = f.host
	}
	n, err := f.d.fs.client.backend.Getdents(f.ref, off, *f.buf)
	f.seek = f.seek && err != nil
	if err != nil || n == 0 {
		f.dropLocked()
		return false, err
	}
	f.rest = (*f.buf)[:n]
	for b := f.rest; len(b) > 0; {
		_, next, l := direntHeader(b)
		if l == 0 {
			break
		}
		f.host = next
		b = b[l:]
	}
	return true, nil
}

func (f *dirFile) dropLocked() {
	if f.buf != nil {
		direntBufs.Put(f.buf)
		f.buf = nil
	}
	f.rest = nil
}

// direntHeader returns the fixed fields of the first linux_dirent64 in b; a
// length of 0 if it is malformed.
func direntHeader(b []byte) (ino uint64, next int64, length int) {
	const header = 8 + 8 + 2 + 1
	if len(b) < header {
		return 0, 0, 0
	}
	length = int(binary.LittleEndian.Uint16(b[16:]))
	if length <= header || length > len(b) {
		return 0, 0, 0
	}
	return binary.LittleEndian.Uint64(b), int64(binary.LittleEndian.Uint64(b[8:])), length
}

// parse returns the first entry of b and its length there.
func (f *dirFile) parse(b []byte) (vfs.Dirent, int) {
	ino, next, n := direntHeader(b)
	if n == 0 {
		return vfs.Dirent{}, 0
	}
	name := b[19:n]
	if z := bytes.IndexByte(name, 0); z >= 0 {
		name = name[:z]
	}
	return vfs.Dirent{
		Name: string(name),
		Ino:  f.d.fs.client.numbers.dirent(f.d.dev, ino),
		Type: b[18],
		Next: next,
	}, n
}
