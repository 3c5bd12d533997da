package vdso

import "unsafe"

// textAddrs returns where the functions start, in the order of the symbols,
// and the end of the last.
func textAddrs() (a [6]uintptr)

// rdtsc reads the time stamp counter.
func rdtsc() uint64

// invariantTSC tells whether the counter runs at one speed.
func invariantTSC() bool

// text returns the code of each function.
func text() [5][]byte {
	var t [5][]byte
	a := textAddrs()
	for i := range t {
		// Invariant: the linker lays the functions of one file out in order,
		// so that each ends where the next begins; the text is never written.
		t[i] = unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(nil), a[i])), a[i+1]-a[i])
	}
	return t
}
