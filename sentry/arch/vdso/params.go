package vdso

import (
	"encoding/binary"
	"math/bits"
)

// layoutVersion numbers the layout of the data page together with the text
// that reads it:
//
//	0  uint32  sequence, odd while the rest changes
//	4  uint32  layoutVersion when the rest is valid, 0 when only a system call knows
//	8  uint64  time stamp counter at the base
//	16 uint64  nanoseconds per tick, times 2^32
//	24 uint64  how many ticks after the base the parameters hold
//	32 int64   CLOCK_MONOTONIC at the base
//	40 int64   [8] what to add to CLOCK_MONOTONIC for the clock of that number
const layoutVersion = 1

const paramsSize = 40 + 8*8

// params is the data page without its sequence.
type params struct {
	valid    bool
	tsc      uint64
	mult     uint64
	maxTicks uint64
	mono     int64
	real     int64
	boot     int64
}

// bytes returns the page from offset 4 on.
func (p *params) bytes() []byte {
	le := binary.LittleEndian
	b := make([]byte, paramsSize)
	if p.valid {
		le.PutUint32(b[4:], layoutVersion)
	}
	le.PutUint64(b[8:], p.tsc)
	le.PutUint64(b[16:], p.mult)
	le.PutUint64(b[24:], p.maxTicks)
	le.PutUint64(b[32:], uint64(p.mono))
	le.PutUint64(b[40+8*0:], uint64(p.real)) // CLOCK_REALTIME
	le.PutUint64(b[40+8*5:], uint64(p.real)) // CLOCK_REALTIME_COARSE
	le.PutUint64(b[40+8*7:], uint64(p.boot)) // CLOCK_BOOTTIME
	return b[4:]
}

// at returns what the guest computes for CLOCK_MONOTONIC at tsc, and whether
// the parameters hold then.
func (p *params) at(tsc uint64) (int64, bool) {
	if !p.valid {
		return 0, false
	}
	d := tsc - p.tsc
	if tsc < p.tsc {
		d = 0
	}
	if d > p.maxTicks {
		return 0, false
	}
	return p.mono + int64(d*p.mult>>32), true
}

// sample is a moment in both measures of time.
type sample struct {
	tsc uint64
	ns  int64
}

// Bounds of the calibration, in nanoseconds.
const (
	// baseMin is the shortest stretch to measure the counter's speed over.
	baseMin = 5_000_000
	// baseMax is after how long the stretch is begun anew, at its middle, so
	// that the speed follows the host's clock discipline.
	baseMax = 32_000_000_000
	// validMax is how long parameters hold.
	validMax = 1_000_000_000
	// jitter is how well a sample can be taken.
	jitter = 200
	// slow is the least by which the guest's clock is made slow, in
	// nanoseconds per second: the host's clock may be slewed meanwhile.
	slow = 700
)

// calibration follows the speed of the counter.
type calibration struct {
	start, middle sample
}

// next returns parameters from the sample now on, given the last ones.
func (c *calibration) next(old *params, now sample, real, boot int64) params {
	p := params{tsc: now.tsc, mono: now.ns, real: real, boot: boot}
	if v, ok := old.at(now.tsc); ok && v > p.mono && v-p.mono < 100_000 {
		p.mono = v // never backwards
	}
	ns, ticks := now.ns-c.start.ns, now.tsc-c.start.tsc
	if c.start.tsc == 0 || now.tsc <= c.start.tsc || ns <= 0 {
		*c = calibration{start: now}
		return p
	}
	if ns < baseMin {
		return p
	}
	hi, lo := bits.Mul64(uint64(ns), 1<<32)
	if hi >= ticks {
		*c = calibration{start: now}
		return p
	}
	mult, _ := bits.Div64(hi, lo, ticks)
	if old.valid && (mult > old.mult+old.mult/1000 || mult < old.mult-old.mult/1000) {
		// The counter changed its speed, or the host slept or moved.
		*c = calibration{start: now}
		return p
	}
	// In parts of 10^9: the error of the measurement, or the least.
	bias := max(uint64(slow), jitter*1_000_000_000/uint64(ns))
	p.mult = mult - mult*bias/1_000_000_000 - 1
	if ahead := uint64(p.mono - now.ns); ahead > 0 {
		// Give back over the time of validity what the guest is ahead.
		p.mult -= mult * ahead / validMax
	}
	// As long as the bias stays below a microsecond.
	valid := min(uint64(validMax), 1000*1_000_000_000/bias)
	ticksHi, ticksLo := bits.Mul64(valid, 1<<32)
	if ticksHi >= mult {
		return p
	}
	p.maxTicks, _ = bits.Div64(ticksHi, ticksLo, mult)
	// The product in the text has 64 bits.
	p.maxTicks = min(p.maxTicks, (1<<63)/mult)
	p.valid = true
	switch {
	case c.middle.tsc == 0 && ns > baseMax/2:
		c.middle = now
	case ns > baseMax && c.middle.tsc != 0:
		c.start, c.middle = c.middle, sample{}
	}
	return p
}
