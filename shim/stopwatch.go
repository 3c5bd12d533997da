package shim

import (
	"log/slog"
	"time"
)

// stopwatch logs how long the parts of an operation took.
type stopwatch struct {
	last time.Time
	args []any
}

func newStopwatch(args ...any) *stopwatch { return &stopwatch{last: time.Now(), args: args} }

// lap ends a part.
func (w *stopwatch) lap(name string) {
	now := time.Now()
	w.args = append(w.args, name, now.Sub(w.last).Round(10*time.Microsecond))
	w.last = now
}

func (w *stopwatch) log(msg string) { slog.Debug(msg, w.args...) }
