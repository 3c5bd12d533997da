package clock

import (
	"math"
	"sync"
	"time"
)

// Timer calls a function when a monotonic deadline passes, once or
// periodically. Its whole state is the deadline and the interval, so that it
// can be saved as a record.
type Timer struct {
	// immutable after NewTimer
	clock *Clock                   `save:"rebuilt"`
	fire  func(expirations uint64) `save:"rebuilt"`

	mu sync.Mutex `save:"rebuilt"`
	// mu guards:
	deadline int64       `save:"rec"` // 0: disarmed
	interval int64       `save:"rec"` // 0: one shot
	gen      uint64      `save:"rebuilt"`
	host     *time.Timer `save:"rebuilt"`
}

// NewTimer returns a disarmed timer. fire is called on a goroutine of its own
// with the number of periods that passed (1 if the timer is on time), without
// a lock of the timer held: it may be a call that raced with Set.
func NewTimer(c *Clock, fire func(expirations uint64)) *Timer {
	return &Timer{clock: c, fire: fire}
}

// Set arms the timer for deadline (0 disarms) and returns what it was set to.
func (t *Timer) Set(deadline, interval int64) (oldDeadline, oldInterval int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	oldDeadline, oldInterval = t.deadline, t.interval
	t.deadline, t.interval = deadline, interval
	t.gen++
	if t.host != nil {
		t.host.Stop()
		t.host = nil
	}
	if deadline != 0 {
		t.armLocked()
	}
	return oldDeadline, oldInterval
}

// Get returns the deadline (0: disarmed) and the interval.
func (t *Timer) Get() (deadline, interval int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.deadline, t.interval
}

// Stop disarms the timer.
func (t *Timer) Stop() { t.Set(0, 0) }

func (t *Timer) armLocked() {
	gen := t.gen
	t.host = time.AfterFunc(t.clock.Until(t.deadline), func() { t.expire(gen) })
}

// expire runs on the goroutine of the host timer, whose owner is the timer.
func (t *Timer) expire(gen uint64) {
	t.clock.fire.RLock()
	defer t.clock.fire.RUnlock()
	t.mu.Lock()
	if gen != t.gen || t.deadline == 0 {
		t.mu.Unlock()
		return
	}
	now := t.clock.Monotonic()
	if now < t.deadline {
		t.armLocked()
		t.mu.Unlock()
		return
	}
	n := uint64(1)
	if t.interval > 0 {
		k := (now - t.deadline) / t.interval
		n += uint64(k)
		if next := t.deadline + (k+1)*t.interval; next > t.deadline {
			t.deadline = next
		} else {
			t.deadline = math.MaxInt64
		}
		t.armLocked()
	} else {
		t.deadline = 0
	}
	t.mu.Unlock()
	t.fire(n)
}
