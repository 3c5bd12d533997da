package clock

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// CoarseResolution is what clock_getres(2) tells for the coarse clocks: one
// tick of CONFIG_HZ=250.
const CoarseResolution = 4_000_000

// TickNanos is one USER_HZ tick (sysconf(_SC_CLK_TCK) is 100), the unit of
// times(2) and /proc/PID/stat.
const TickNanos = 10_000_000

// Clock tells the time of one sandbox.
type Clock struct {
	// immutable after New
	base time.Time `save:"rebuilt"` // Go's monotonic reading at New
	mono int64     `save:"rebuilt"` // host CLOCK_MONOTONIC at New

	offset atomic.Int64 `save:"rec"` // sandbox CLOCK_MONOTONIC minus the host's
	boot   atomic.Int64 `save:"rec"` // CLOCK_BOOTTIME minus CLOCK_MONOTONIC

	// fire is held for reading while a timer expires.
	fire sync.RWMutex `save:"rebuilt"`
}

// New returns a clock that shows the host's time.
func New() *Clock {
	var mono, boot unix.Timespec
	// Neither call can fail for these clocks.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono)
	base := time.Now()
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot)
	c := &Clock{base: base, mono: mono.Nano()}
	c.boot.Store(boot.Nano() - mono.Nano())
	return c
}

// Freeze keeps timers from expiring until the function that it returns is
// called: their deadlines and what they do stay consistent for a save. Time
// goes on.
func (c *Clock) Freeze() (thaw func()) {
	c.fire.Lock()
	return c.fire.Unlock
}

// Monotonic is CLOCK_MONOTONIC.
func (c *Clock) Monotonic() int64 {
	return c.mono + int64(time.Since(c.base)) + c.offset.Load()
}

// Boottime is CLOCK_BOOTTIME: Monotonic plus the time the host was suspended.
func (c *Clock) Boottime() int64 { return c.Monotonic() + c.boot.Load() }

// Realtime is CLOCK_REALTIME, the host's.
func (c *Clock) Realtime() int64 { return time.Now().UnixNano() }

// MonotonicOffset is what to add to the host's CLOCK_MONOTONIC to get the
// sandbox's; the vDSO uses it.
func (c *Clock) MonotonicOffset() int64 { return c.offset.Load() }

// SetMonotonic makes the clock continue from now, for a restore. It must be
// called before any task runs.
func (c *Clock) SetMonotonic(now int64) {
	c.offset.Add(now - c.Monotonic())
}

// SetBoottime makes CLOCK_BOOTTIME continue from now, as SetMonotonic does,
// after that.
func (c *Clock) SetBoottime(now int64) { c.boot.Store(now - c.Monotonic()) }

// Until is the time left to a monotonic deadline; it is never negative.
func (c *Clock) Until(deadline int64) time.Duration {
	return time.Duration(max(deadline-c.Monotonic(), 0))
}
