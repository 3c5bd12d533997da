// Package futex holds the waiters of futex(2), keyed by what the word is, not
// where it is mapped.
//
// Table does the queueing; it never sleeps for the guest: a system call
// queues a Waiter, blocks in kernel.Task.Block and cancels the Waiter. It
// mirrors kernel/futex of Linux. A bucket's lock is held while the word is
// read or changed, which may fault pages in: in sentry/LOCKS it is one of
// those that may be slept under, before mm's.
package futex
