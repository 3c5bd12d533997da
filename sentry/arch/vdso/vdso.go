package vdso

import (
	"hash/fnv"
	"sync"

	"golang.org/x/sys/unix"

	"runsc/sentry/mem"
)

const pageSize = mem.PageSize

// Clock is what the guest's clocks show; *clock.Clock implements it.
type Clock interface {
	Monotonic() int64
	Boottime() int64
	Realtime() int64
}

// Image is the vDSO of a sandbox. It is a mem.Mappable of two pages: data,
// then the shared object.
type Image struct {
	// immutable after New:
	mf     *mem.File
	clock  Clock
	frames mem.Range
	layout uint64
	usable bool // there is a time stamp counter to tell the time by

	mu sync.Mutex // a leaf
	// mu guards:
	last   params
	cal    calibration
	seq    uint32
	offset int64 // CLOCK_REALTIME minus CLOCK_MONOTONIC
	boot   int64 // CLOCK_BOOTTIME minus CLOCK_MONOTONIC
}

// New builds the image in frames of mf.
func New(mf *mem.File, c Clock) (*Image, error) {
	r, err := mf.Allocate(2*pageSize, nil, mem.PageCache)
	if err != nil {
		return nil, err
	}
	object := build(text())
	if err := mf.WriteAt(object, r.Start+pageSize); err != nil {
		return nil, err
	}
	h := fnv.New64a()
	h.Write(object) // never fails (hash.Hash)
	v := &Image{mf: mf, clock: c, frames: r, layout: h.Sum64(), usable: invariantTSC()}
	v.Refresh()
	return v, nil
}

// Size is the length of both pages.
func (v *Image) Size() uint64 { return 2 * pageSize }

// Layout identifies the shared object: a program that runs in one continues
// in another only if their layouts are equal.
func (v *Image) Layout() uint64 { return v.layout }

// Mappable returns the pages: data, then the shared object.
func (v *Image) Mappable() mem.Mappable { return v }

// Refresh sets the guest's clocks by the host's. The handlers of
// clock_gettime(2), gettimeofday(2) and time(2) call it after they read the
// clock, so that the vDSO never tells an earlier time than they did.
func (v *Image) Refresh() {
	if !v.usable {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	now := v.sample()
	if d := v.clock.Boottime() - v.clock.Monotonic() - v.boot; d > 10_000 || d < -10_000 {
		v.boot += d // it changes only when the host sleeps
	}
	p := v.cal.next(&v.last, now, v.offset, v.boot)
	v.last = p
	v.seq++
	_, _ = v.mf.SwapUint32(v.frames.Start, v.seq) // a page that is mapped cannot fail
	_ = v.mf.WriteAt(p.bytes(), v.frames.Start+4)
	v.seq++
	_, _ = v.mf.SwapUint32(v.frames.Start, v.seq)
}

// Reset is called after the clock was set, before any guest runs.
func (v *Image) Reset() {
	v.mu.Lock()
	v.last, v.cal = params{}, calibration{}
	v.mu.Unlock()
	v.Refresh()
}

// sample reads counter and clocks at as nearly the same time as it gets, and
// updates offset.
func (v *Image) sample() sample {
	best, s := ^uint64(0), sample{}
	for i := 0; i < 3; i++ {
		t1 := rdtsc()
		ns := v.clock.Monotonic()
		t2 := rdtsc()
		if t2-t1 < best {
			best = t2 - t1
			s = sample{t1 + (t2-t1)/2, ns}
		}
	}
	m1 := v.clock.Monotonic()
	real := v.clock.Realtime()
	m2 := v.clock.Monotonic()
	// The difference changes only when the host's clock is set: what the
	// measurement cannot tell apart is no change.
	if off := real - m1; v.offset > off || v.offset < real-m2 {
		v.offset = real - m2
	}
	return s
}

// Region implements mem.Mappable.
func (v *Image) Region(off, n int64, write bool) (mem.Region, error) {
	if off < 0 || off >= int64(v.frames.Len()) || write {
		return mem.Region{}, unix.EFAULT
	}
	return mem.Region{
		FD: v.mf.FD(), Off: int64(v.frames.Start) + off, Len: min(n, int64(v.frames.Len())-off), Frames: true,
	}, nil
}

// AddMapping implements mem.Mappable; the pages never move.
func (v *Image) AddMapping(mem.MappingSpace, int64, int64, bool) error { return nil }

// RemoveMapping implements mem.Mappable.
func (v *Image) RemoveMapping(mem.MappingSpace, int64, int64, bool) {}

// IncRef implements mem.Mappable; the image lives as long as the sandbox.
func (v *Image) IncRef() {}

// DecRef implements mem.Mappable.
func (v *Image) DecRef() {}

// MapName implements mem.Mappable.
func (v *Image) MapName() (string, uint64, uint64) { return "[vdso]", 0, 0 }
