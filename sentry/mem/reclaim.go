package mem

import "time"

// reclaimDelay gathers freed frames into one batch.
const reclaimDelay = 100 * time.Millisecond

// maxDirty is how many freed pages may wait; above it whoever frees punches.
const maxDirty = 32 << 20 / PageSize

// freeFrames makes pages [lo, hi) of w, whose last references went, dirty.
func (f *File) freeFrames(w *window, lo, hi int) {
	w.acct.uncharge(uint64(hi-lo)*PageSize, w.kind)
	if fw := w.frozen.Load(); fw != nil && fw.keep(lo, hi) {
		return
	}
	if gone := f.retired.Load(); gone != nil {
		f.FreeAfter(*gone, func() { f.freeUncharged(w, lo, hi) })
		return
	}
	f.freeUncharged(w, lo, hi)
}

// freeUncharged makes pages dirty, of which nobody knows any more.
func (f *File) freeUncharged(w *window, lo, hi int) {
	if pw := w.pending.Load(); pw != nil {
		pw.cancel(lo, hi)
	}
	f.mu.Lock()
	for i := lo; i < hi; i++ {
		w.busy.clear(i)
		w.dirty.set(i)
	}
	w.nbusy -= hi - lo
	w.ndirty += hi - lo
	f.dirtyPages += hi - lo
	if f.timer == nil && !f.closed {
		f.timer = time.AfterFunc(reclaimDelay, f.Reclaim)
	}
	now := f.dirtyPages > maxDirty
	f.mu.Unlock()
	if now {
		f.Reclaim()
	}
}

// FreeAfter calls free, which drops references, when gone is closed (at once
// when it is nil or closed). An allocation that meets its limit meanwhile waits
// a little for that. The goroutine ends with the stub that it waits for.
func (f *File) FreeAfter(gone <-chan struct{}, free func()) {
	if gone != nil {
		select {
		case <-gone:
		default:
			f.dying.Add(1)
			go func() {
				<-gone
				free()
				f.dying.Add(-1)
			}()
			return
		}
	}
	free()
}

// Retire tells that an address space was given up whose mappings may be used
// until gone is closed: frames that are freed meanwhile are not used again
// before.
func (f *File) Retire(gone <-chan struct{}) {
	if gone == nil {
		return
	}
	f.mu.Lock()
	f.retiring++
	if f.retired.Load() == nil {
		all := make(chan struct{})
		f.retired.Store(&all)
	}
	f.mu.Unlock()
	go func() {
		<-gone
		f.mu.Lock()
		var all *chan struct{}
		if f.retiring--; f.retiring == 0 {
			all = f.retired.Swap(nil)
		}
		f.mu.Unlock()
		if all != nil {
			close(*all)
		}
	}()
}

const (
	// dyingPatience is how long an allocation waits for FreeAfter.
	dyingPatience = 50 * time.Millisecond
	dyingPoll     = 200 * time.Microsecond
)

// charge charges a, and if the limit is reached waits for processes that are
// about to free their frames.
func (f *File) charge(a *Account, n uint64, k Kind) error {
	err := a.charge(n, k)
	for waited := time.Duration(0); err != nil && f.dying.Load() > 0 && waited < dyingPatience; waited += dyingPoll {
		time.Sleep(dyingPoll)
		err = a.charge(n, k)
	}
	return err
}

// Reclaim returns all freed frames to the host. It runs in the background by
// itself.
func (f *File) Reclaim() {
	f.reclaimMu.Lock()
	defer f.reclaimMu.Unlock()
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return
	}
	if f.timer != nil {
		f.timer.Stop()
		f.timer = nil
	}
	var batch []Range
	for _, w := range f.windowsLocked() {
		if w.ndirty == 0 {
			continue
		}
		for i := 0; i < windowPages; i++ {
			if !w.dirty.get(i) {
				continue
			}
			j := i
			for ; j < windowPages && w.dirty.get(j); j++ {
				w.dirty.clear(j)
				w.busy.set(j) // nobody takes it until it is punched
			}
			w.ndirty -= j - i
			w.nbusy += j - i
			f.dirtyPages -= j - i
			r := w.rangeOf(i, j-i)
			if n := len(batch); n > 0 && batch[n-1].End == r.Start {
				batch[n-1].End = r.End
			} else {
				batch = append(batch, r)
			}
			i = j
		}
	}
	f.mu.Unlock()
	for _, r := range batch {
		if !f.store(r.Start).punch(r) {
			continue // lost: it is never handed out again
		}
		f.mu.Lock()
		f.eachWindow(r, func(w *window, lo, hi int) {
			c := w.countsLocked()
			for i := lo; i < hi; i++ {
				w.busy.clear(i)
				c.heat.reset(i)
			}
			w.nbusy -= hi - lo
			if w.acct != nil && !w.reserved && w.nbusy > 0 {
				w.listLocked()
			}
			f.retireLocked(w)
		})
		f.mu.Unlock()
	}
}
