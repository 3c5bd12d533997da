package abi

import "unsafe"

// Bytes returns the memory of *p. T must be a flat structure: fixed size
// integers, arrays and structures of them, explicit padding, no pointers; its
// layout is then that of the C structure on a little-endian 64-bit machine.
func Bytes[T any](p *T) []byte {
	// Invariant: the slice covers exactly *p and keeps it alive.
	return unsafe.Slice((*byte)(unsafe.Pointer(p)), unsafe.Sizeof(*p))
}

// SliceBytes returns the memory of the elements of s, with Bytes' rules for T.
func SliceBytes[T any](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	// Invariant: the slice covers exactly the elements of s.
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), uintptr(len(s))*unsafe.Sizeof(s[0]))
}
