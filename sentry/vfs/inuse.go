package vfs

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// inUse says of regular files how they are open as far as others care: for
// writing, as a program that runs, with a lease. Files that are none of that
// are not in it.
var inUse = struct {
	leases atomic.Int32 // how many there are
	mu     sync.Mutex
	// mu guards:
	at map[Inode]*fileUse
}{at: map[Inode]*fileUse{}}

// fileUse is one file's.
type fileUse struct {
	writers, programs int
	leases            []*lease
	waiting           int // opens that wait for a lease
}

// useLocked returns the entry of an inode, made if need be.
func useLocked(i Inode) *fileUse {
	u := inUse.at[i]
	if u == nil {
		u = &fileUse{}
		inUse.at[i] = u
	}
	return u
}

func (u *fileUse) putLocked(i Inode) {
	if u.writers == 0 && u.programs == 0 && len(u.leases) == 0 && u.waiting == 0 {
		delete(inUse.at, i)
	}
}

// beginWrite counts a writer; ETXTBSY if the file is a program that runs
// (get_write_access).
func beginWrite(i Inode) error {
	inUse.mu.Lock()
	defer inUse.mu.Unlock()
	u := useLocked(i)
	if u.programs > 0 {
		return unix.ETXTBSY
	}
	u.writers++
	return nil
}

func endWrite(i Inode) {
	inUse.mu.Lock()
	defer inUse.mu.Unlock()
	if u := inUse.at[i]; u != nil {
		u.writers--
		u.putLocked(i)
	}
}

// beginProgram counts a use as a program; ETXTBSY if the file is open for
// writing (deny_write_access).
func beginProgram(i Inode) error {
	inUse.mu.Lock()
	defer inUse.mu.Unlock()
	u := useLocked(i)
	if u.writers > 0 {
		return unix.ETXTBSY
	}
	u.programs++
	return nil
}

// running tells whether the file is a program that runs.
func running(i Inode) bool {
	inUse.mu.Lock()
	defer inUse.mu.Unlock()
	u := inUse.at[i]
	return u != nil && u.programs > 0
}

// AllowWrite ends what OpenExec did to keep the file from being written.
func (f *File) AllowWrite() {
	f.mu.Lock()
	was := f.program
	f.program = false
	f.mu.Unlock()
	if !was {
		return
	}
	i := f.Inode()
	inUse.mu.Lock()
	defer inUse.mu.Unlock()
	if u := inUse.at[i]; u != nil {
		u.programs--
		u.putLocked(i)
	}
}
