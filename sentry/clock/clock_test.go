package clock

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestMonotonicIsTheHosts(t *testing.T) {
	c := New()
	var a, b unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &a)
	now := c.Monotonic()
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &b)
	const slack = 50_000 // two readings are taken at New
	if now < a.Nano()-slack || now > b.Nano()+slack {
		t.Errorf("%d is not between %d and %d", now, a.Nano(), b.Nano())
	}
}

func TestSetMonotonic(t *testing.T) {
	c := New()
	c.SetMonotonic(1000 * int64(time.Second))
	if d := c.Monotonic() - 1000*int64(time.Second); d < 0 || d > int64(time.Second) {
		t.Errorf("off by %d ns", d)
	}
	if c.MonotonicOffset() == 0 {
		t.Error("no offset")
	}
	if c.Until(c.Monotonic()-5) != 0 {
		t.Error("time left to the past")
	}
}

func TestTimer(t *testing.T) {
	c := New()
	fired := make(chan uint64, 100)
	tm := NewTimer(c, func(n uint64) { fired <- n })
	now := c.Monotonic()
	if d, iv := tm.Set(now+10e6, 5e6); d != 0 || iv != 0 {
		t.Errorf("old %d, %d", d, iv)
	}
	sum := uint64(0)
	for sum < 3 {
		select {
		case n := <-fired:
			sum += n
		case <-time.After(5 * time.Second):
			t.Fatal("does not fire")
		}
	}
	if e := c.Monotonic() - now; e < 20e6 {
		t.Errorf("three periods after %d ns", e)
	}
	if d, iv := tm.Get(); d <= now || iv != 5e6 {
		t.Errorf("%d, %d", d, iv)
	}
	tm.Stop()
	for len(fired) > 0 {
		<-fired
	}
	time.Sleep(20 * time.Millisecond)
	// One expiry may have been under way.
	if len(fired) > 1 {
		t.Errorf("%d expiries after Stop", len(fired))
	}
	tm.Set(c.Monotonic()-1, 0)
	select {
	case n := <-fired:
		if n != 1 {
			t.Errorf("%d expiries of a one-shot timer", n)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("a past deadline does not fire")
	}
	if d, _ := tm.Get(); d != 0 {
		t.Error("armed after its only expiry")
	}
}

// TestLate counts the periods that passed unnoticed.
func TestLate(t *testing.T) {
	c := New()
	fired := make(chan uint64, 1)
	tm := NewTimer(c, func(n uint64) {
		select {
		case fired <- n:
		default:
		}
	})
	tm.Set(c.Monotonic()-10e6, 1e6)
	if n := <-fired; n < 10 {
		t.Errorf("%d expirations, want 10 or more", n)
	}
	tm.Stop()
}
