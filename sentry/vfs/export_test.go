package vfs

// ResetNumbers makes device and mount numbers start as in a new process.
func ResetNumbers() {
	anonDevs.mu.Lock()
	anonDevs.last, anonDevs.claimed = 1, nil // 1 is the anonymous files'
	anonDevs.mu.Unlock()
	mountID.Store(1) // as is their mount
}
