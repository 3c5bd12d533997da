package boot

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"runsc/pkg/controlapi"
)

// fileSet holds the descriptors that came with a call. Each may be taken
// once; what nobody took is closed with the set.
type fileSet struct {
	files []*os.File
}

func newFileSet(files []*os.File) *fileSet { return &fileSet{files: files} }

// take returns descriptor i, nil for controlapi.NoFile.
func (s *fileSet) take(i int) (*os.File, error) {
	if i == controlapi.NoFile {
		return nil, nil
	}
	if i < 0 || i >= len(s.files) || s.files[i] == nil {
		return nil, errInvalid("the call names descriptor %d, which it did not bring", i)
	}
	f := s.files[i]
	s.files[i] = nil
	return f, nil
}

func (s *fileSet) close() {
	for _, f := range s.files {
		if f != nil {
			f.Close()
		}
	}
}

// detach turns f into a bare descriptor number that is no longer closed by
// the garbage collector. It does not change the blocking mode.
func detach(f *os.File) (int, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 64)
	f.Close()
	if err != nil {
		return -1, fmt.Errorf("cannot keep descriptor: %w", err)
	}
	return fd, nil
}

// pidfd returns a descriptor of the process.
func pidfd(pid int) (*os.File, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot open process %d: %w", pid, err)
	}
	return os.NewFile(uintptr(fd), "pidfd"), nil
}
