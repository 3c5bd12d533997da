package systrap

import "unsafe"

// frameBytes returns the frame as the bytes the host sees.
func frameBytes(f *sigFrame) []byte {
	return append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(f)), sigFrameSize)...)
}
