package mm

// SwapForSnapshot takes away all access that mm's threads have to memory, in
// a time that does not depend on how much there is: they go on in a fresh
// address space of the host, and come by their pages through faults. Frames of
// a snapshot are mapped there for reading until they are written. The caller
// has stopped the threads and begun the snapshot (mem.Snapshot.Begin).
func (mm *MM) SwapForSnapshot() {
	mm.mapMu.Lock()
	defer mm.mapMu.Unlock()
	as := mm.as.Swap(nil)
	if as == nil {
		return
	}
	mm.mu.Lock()
	if n := mm.pages.Len(); n > 0 {
		mm.setHostRange(mm.pages.At(0).Start, mm.pages.At(n-1).End)
	}
	mm.mu.Unlock()
	// The old process takes a while to die: until then no frame that is freed
	// is used again.
	mm.mf.Retire(goneChan(as))
	go (*as).Release()
}

// SharesFrames tells whether mm has frames mapped that belong to a file or
// another address space may have.
func (mm *MM) SharesFrames() bool {
	mm.mu.RLock()
	defer mm.mu.RUnlock()
	for i := 0; i < mm.pages.Len(); i++ {
		if p := mm.pages.At(i).V; p.frames && (!p.owned || p.cow) {
			return true
		}
	}
	return false
}
