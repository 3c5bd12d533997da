package loader

import (
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"runsc/sentry/mem"
)

// hostExe is an executable of the host.
type hostExe struct {
	f    *os.File
	path string
	size int64
	pos  int64 // of read(2) in tests
}

func openHost(path string) (Executable, error) {
	f, err := os.Open(path)
	if err != nil {
		if os.IsNotExist(err) {
			return nil, unix.ENOENT
		}
		return nil, unix.EACCES
	}
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		f.Close()
		return nil, unix.EACCES
	}
	return &hostExe{f: f, path: path, size: st.Size()}, nil
}

func (h *hostExe) ReadAtKernel(p []byte, off int64) (int, error) {
	n, err := h.f.ReadAt(p, off)
	if err == io.EOF {
		err = nil
	}
	if err != nil {
		err = unix.EIO
	}
	return n, err
}
func (h *hostExe) Mappable() (mem.Mappable, error) { return h, nil }
func (h *hostExe) Path() string                    { return h.path }
func (h *hostExe) Release()                        {}

func (h *hostExe) Region(off, n int64, _ bool) (mem.Region, error) {
	end := (h.size + pageMask) &^ pageMask
	if off >= end {
		return mem.Region{}, unix.EFAULT
	}
	return mem.Region{FD: int(h.f.Fd()), Off: off, Len: min(n, end-off)}, nil
}
func (h *hostExe) AddMapping(mem.MappingSpace, int64, int64, bool) error { return nil }
func (h *hostExe) RemoveMapping(mem.MappingSpace, int64, int64, bool)    {}
func (h *hostExe) IncRef()                                               {}
func (h *hostExe) DecRef()                                               {}
func (h *hostExe) MapName() (string, uint64, uint64)                     { return h.path, 1, 2 }

// memExe is an executable in memory that cannot be mapped by a host.
type memExe struct {
	hostExe
	data string
}

func (m *memExe) ReadAtKernel(p []byte, off int64) (int, error) {
	if off < 0 || off > int64(len(m.data)) {
		return 0, nil
	}
	return copy(p, m.data[off:]), nil
}
func (m *memExe) Mappable() (mem.Mappable, error) { return m, nil }

// Region has pages of a shared file of zeros behind any program.
func (m *memExe) Region(off, n int64, _ bool) (mem.Region, error) {
	end := (int64(len(m.data)) + pageMask) &^ pageMask
	if off >= end {
		return mem.Region{}, unix.EFAULT
	}
	fd := zeroFile()
	if fd < 0 {
		return mem.Region{}, unix.EIO
	}
	return mem.Region{FD: fd, Off: off, Len: min(n, end-off)}, nil
}

var zeroFile = sync.OnceValue(func() int {
	fd, err := unix.MemfdCreate("zeros", 0)
	if err != nil || unix.Ftruncate(fd, 1<<30) != nil {
		return -1
	}
	return fd
})

func script(s string) Executable {
	return &memExe{data: s, hostExe: hostExe{path: strings.TrimSpace(s)}}
}
