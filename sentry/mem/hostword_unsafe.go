package mem

import (
	"runtime/debug"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// HostWord atomically loads the aligned word at off of host file fd and, with
// update set, stores what it returns if it says so. It returns the word that
// was there. The file may shrink meanwhile: then the error is EFAULT.
func HostWord(fd int, off int64, write bool, update func(cur uint32) (uint32, bool)) (uint32, error) {
	prot := unix.PROT_READ
	if write {
		prot |= unix.PROT_WRITE
	}
	b, err := unix.Mmap(fd, off&^(PageSize-1), PageSize, prot, unix.MAP_SHARED)
	if err != nil {
		return 0, unix.EFAULT
	}
	defer unix.Munmap(b)
	// Invariant: the word is aligned and inside the page mapped above.
	p := (*uint32)(unsafe.Pointer(&b[off%PageSize]))
	for {
		cur, err := guardedWord(p, 0, 0, false)
		if err != nil || update == nil {
			return cur, err
		}
		v, store := update(cur)
		if !store {
			return cur, nil
		}
		got, err := guardedWord(p, cur, v, true)
		if err != nil || got == cur {
			return cur, err
		}
	}
}

// guardedWord is the leaf that may fault: a load, or a compare and swap that
// returns old if it succeeded and something else if not.
func guardedWord(p *uint32, old, v uint32, cas bool) (cur uint32, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(interface{ Addr() uintptr }); !ok {
				panic(r)
			}
			err = unix.EFAULT
		}
	}()
	if !cas {
		return atomic.LoadUint32(p), nil
	}
	if atomic.CompareAndSwapUint32(p, old, v) {
		return old, nil
	}
	return ^old, nil
}
