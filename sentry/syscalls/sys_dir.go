package syscalls

import (
	"encoding/binary"
	"sync"

	"golang.org/x/sys/unix"

	"runsc/sentry/kernel"
	"runsc/sentry/vfs"
)

// direntMax is how many bytes of entries one call returns at most, whatever
// the size of the guest's buffer; what libcs use is no larger.
const direntMax = 64 << 10

// direntBufs recycles the buffers in which entries are gathered.
var direntBufs = sync.Pool{New: func() any { return new([direntMax]byte) }}

// direntWriter lays out directory entries.
type direntWriter struct {
	buf  []byte // what the guest's buffer holds at most
	n    int
	full bool // an entry did not fit
	old  bool // struct linux_dirent of getdents(2), not linux_dirent64
}

// emit adds an entry; it is what File.ReadDir calls.
func (w *direntWriter) emit(e vfs.Dirent) bool {
	const header = 8 + 8 + 2 // d_ino, d_off, d_reclen
	// d_type stands after d_reclen, or in the last byte of an old entry.
	size := (header + 1 + len(e.Name) + 1 + 7) &^ 7
	if size > len(w.buf)-w.n {
		w.full = true
		return false
	}
	b := w.buf[w.n : w.n+size]
	clear(b)
	binary.LittleEndian.PutUint64(b, e.Ino)
	binary.LittleEndian.PutUint64(b[8:], uint64(e.Next))
	binary.LittleEndian.PutUint16(b[16:], uint16(size))
	if w.old {
		copy(b[header:], e.Name)
		b[size-1] = e.Type
	} else {
		b[header] = e.Type
		copy(b[header+1:], e.Name)
	}
	w.n += size
	return true
}

// sysGetdents implements the old getdents(2).
func sysGetdents(t *kernel.Task, a Args) (uintptr, error) { return getdents(t, a, true) }

// sysGetdents64 implements getdents64(2).
func sysGetdents64(t *kernel.Task, a Args) (uintptr, error) { return getdents(t, a, false) }

func getdents(t *kernel.Task, a Args, old bool) (uintptr, error) {
	f, err := getFile(t, a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	buf := direntBufs.Get().(*[direntMax]byte)
	defer direntBufs.Put(buf)
	w := direntWriter{buf: buf[:min(a.Uint(2), direntMax)], old: old}
	err = f.ReadDir(t, w.emit)
	if w.n == 0 {
		if err == nil && w.full {
			err = unix.EINVAL // the buffer is too small for an entry
		}
		return 0, err
	}
	if err := t.CopyOut(a.Addr(1), w.buf[:w.n]); err != nil {
		return 0, err
	}
	return uintptr(w.n), nil
}

// sysGetcwd implements the system call getcwd, which returns the length.
func sysGetcwd(t *kernel.Task, a Args) (uintptr, error) {
	cwd, err := t.FS().Getcwd()
	if err != nil {
		return 0, err
	}
	b := append([]byte(cwd), 0)
	if len(b) > unix.PathMax {
		return 0, unix.ENAMETOOLONG
	}
	if uint64(len(b)) > a.Size(1) {
		return 0, unix.ERANGE
	}
	if err := t.CopyOut(a.Addr(0), b); err != nil {
		return 0, err
	}
	return uintptr(len(b)), nil
}

// sysChdir implements chdir(2).
func sysChdir(t *kernel.Task, a Args) (uintptr, error) {
	p, err := lookup(t, unix.AT_FDCWD, a.Addr(0), 0)
	if err != nil {
		return 0, err
	}
	defer p.put()
	return done(vfs.ChdirAt(t, p.At))
}

// sysFchdir implements fchdir(2).
func sysFchdir(t *kernel.Task, a Args) (uintptr, error) {
	f, err := t.Files().Get(a.Int(0))
	if err != nil {
		return 0, err
	}
	defer f.DecRef()
	return done(f.Path().Chdir(t, t.FS()))
}

// sysChroot implements chroot(2).
func sysChroot(t *kernel.Task, a Args) (uintptr, error) {
	p, err := lookup(t, unix.AT_FDCWD, a.Addr(0), 0)
	if err != nil {
		return 0, err
	}
	defer p.put()
	return done(vfs.ChrootAt(t, p.At))
}
