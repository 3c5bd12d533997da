package mem

// snapshotHook is called before frames change while a snapshot is written.
type snapshotHook struct {
	before func(Range)
}

// BeginWrite announces that the Sentry is about to change bytes of r, and
// EndWrite that it is done. All writes of frames by the Sentry, from user
// copies to futex words, go through this pair: while a snapshot is being
// written, frames of it are copied here first. A write is never half before
// and half after a cut. Between the two nothing may block or lock.
func (f *File) BeginWrite(r Range) {
	f.gate.RLock()
	if s := f.snapshot.Load(); s != nil {
		s.before(r)
	}
}

// EndWrite ends what BeginWrite began.
func (f *File) EndWrite() { f.gate.RUnlock() }

// BeginSnapshot makes before be called with the range of each write by the
// Sentry from now on, before the bytes change. It returns when no write is in
// progress, so that everything written earlier is visible in the file.
func (f *File) BeginSnapshot(before func(Range)) {
	f.gate.Lock()
	f.snapshot.Store(&snapshotHook{before})
	f.gate.Unlock()
}

// EndSnapshot ends what BeginSnapshot began; no call of the hook runs when it
// returns.
func (f *File) EndSnapshot() {
	f.gate.Lock()
	f.snapshot.Store(nil)
	f.gate.Unlock()
}
