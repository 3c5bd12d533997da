package anon

import (
	"encoding/binary"
	"math"
	"sync"

	"golang.org/x/sys/unix"

	"runsc/pkg/waitq"
	"runsc/sentry/clock"
	"runsc/sentry/mem"
	"runsc/sentry/vfs"
)

// Timerfd is a timer to wait on, timerfd_create(2). A periodic one is armed
// again only when its expirations are read, as in Linux, so that an interval
// of a nanosecond costs nothing.
type Timerfd struct {
	// immutable after NewTimerfd
	clock   *clock.Clock `save:"rebuilt"`
	clockID int32        `save:"rec"`

	mu sync.Mutex `save:"none: not held at a stop"`
	// mu guards:
	deadline int64        `save:"rec"` // of the next or the unread expiration, monotonic; 0 disarmed
	interval int64        `save:"rec"` // 0: one shot
	fired    bool         `save:"rec"` // deadline has passed and was not read
	wall     bool         `save:"rec"` // set to a time of CLOCK_REALTIME: the deadline moves with it at a restore
	gen      uint64       `save:"rebuilt"`
	timer    *clock.Timer `save:"rebuilt"`

	queue waitq.Queue `save:"rebuilt"`
}

// NewTimerfd returns a disarmed timer on a clock that timerfd_create(2) names.
func NewTimerfd(c *clock.Clock, clockID int32) *Timerfd {
	return &Timerfd{clock: c, clockID: clockID}
}

// Release implements vfs.FileOps.
func (t *Timerfd) Release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.disarmLocked()
}

// Queue implements vfs.Waitable.
func (t *Timerfd) Queue() *waitq.Queue { return &t.queue }

// Ready implements vfs.FileOps.
func (t *Timerfd) Ready(mask waitq.Mask) waitq.Mask {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fired {
		return mask & (waitq.In | waitq.RdNorm)
	}
	return 0
}

// Read implements vfs.Reader: it takes the number of expirations.
func (t *Timerfd) Read(_ vfs.Caller, _ *vfs.File, dst *mem.UserBuf) (int, error) {
	if dst.Len() < 8 {
		return 0, unix.EINVAL
	}
	t.mu.Lock()
	if !t.fired {
		t.mu.Unlock()
		return 0, unix.EAGAIN
	}
	n := uint64(1)
	if t.interval > 0 {
		k := max(t.clock.Monotonic()-t.deadline, 0) / t.interval
		n += uint64(k)
		t.armLocked(later(t.deadline, (k+1)*t.interval))
	} else {
		t.deadline, t.fired = 0, false
	}
	t.mu.Unlock()
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], n)
	return dst.CopyOut(b[:])
}

// Set arms the timer for value from now, or with abs at the time value of its
// clock; 0 disarms it. It returns the setting before, as Get does.
func (t *Timerfd) Set(value, interval int64, abs bool) (oldValue, oldInterval int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	oldValue, oldInterval = t.getLocked()
	t.disarmLocked()
	t.interval = interval
	t.wall = abs && (t.clockID == unix.CLOCK_REALTIME || t.clockID == unix.CLOCK_REALTIME_ALARM)
	if value != 0 {
		t.armLocked(t.monotonic(value, abs))
	}
	return oldValue, oldInterval
}

// Get returns the time to the next expiration, 0 for none, and the interval.
func (t *Timerfd) Get() (value, interval int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.getLocked()
}

// ClockID returns the clock, for /proc/PID/fdinfo.
func (t *Timerfd) ClockID() int32 { return t.clockID }

func (t *Timerfd) getLocked() (value, interval int64) {
	if t.deadline == 0 {
		return 0, t.interval
	}
	left := t.deadline - t.clock.Monotonic()
	if left > 0 {
		return left, t.interval
	}
	if t.fired && t.interval == 0 {
		return 0, 0
	}
	if t.interval > 0 {
		return t.interval - (-left)%t.interval, t.interval
	}
	return 1, 0 // due, but not yet fired: not disarmed
}

// monotonic turns a setting into a monotonic deadline, never 0.
func (t *Timerfd) monotonic(value int64, abs bool) int64 {
	now := t.clock.Monotonic()
	if !abs {
		return later(now, value)
	}
	switch t.clockID {
	case unix.CLOCK_REALTIME, unix.CLOCK_REALTIME_ALARM:
		value = later(now, value-t.clock.Realtime())
	case unix.CLOCK_BOOTTIME, unix.CLOCK_BOOTTIME_ALARM:
		value -= t.clock.Boottime() - now
	}
	return max(value, 1)
}

func (t *Timerfd) armLocked(deadline int64) {
	t.gen++
	gen := t.gen
	t.deadline, t.fired = deadline, false
	t.timer = clock.NewTimer(t.clock, func(uint64) { t.expire(gen) })
	t.timer.Set(deadline, 0)
}

func (t *Timerfd) disarmLocked() {
	t.gen++
	t.deadline, t.fired = 0, false
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
}

// expire runs on the clock's goroutine; gen tells whether the timer was set
// again meanwhile.
func (t *Timerfd) expire(gen uint64) {
	t.mu.Lock()
	if gen != t.gen {
		t.mu.Unlock()
		return
	}
	t.fired, t.timer = true, nil
	t.mu.Unlock()
	t.queue.Notify(waitq.In | waitq.RdNorm)
}

// later returns t+d, saturated.
func later(t, d int64) int64 {
	if s := t + d; d <= 0 || s > t {
		return s
	}
	return math.MaxInt64
}
