// Package clock is the time of a sandbox: the clocks of clock_gettime(2) and
// the timers that run on them. Times are int64 nanoseconds.
//
// CLOCK_MONOTONIC is the host's plus an offset, so that a restored sandbox
// continues where it was saved; CLOCK_REALTIME is the host's. All waiting in
// the Sentry uses monotonic deadlines. It mirrors kernel/time of Linux.
package clock
