package syscalls

import (
	"io"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"runsc/sentry/kernel"
	"runsc/sentry/vfs"
)

// Handler carries out one system call. It returns the result register's value
// or an errno, which may be a restart code of sentry/errs.
type Handler func(t *kernel.Task, a Args) (uintptr, error)

// Support says how much of a call works: Full, or Partial with the reason.
type Support string

// Full is the support note of a call that does all Linux does.
const Full Support = ""

// Partial is a conversion that marks a call of which something is missing:
// Partial("no O_TMPFILE").
type Partial = Support

// Call is one line of the table.
type Call struct {
	Nr      uintptr
	Name    string
	Handler Handler
	Support Support
}

// maxNr bounds the numbers of the table; Linux's x86-64 table ends at 470.
const maxNr = 512

// Table is the dispatcher that the kernel's run loop calls.
type Table struct {
	calls [maxNr]*Call
	trace *tracer // nil: off

	// unknown counts calls that are not in the table (atomic).
	unknown [maxNr]atomic.Uint32
}

// New returns the table; log, if not nil, gets a line per call.
func New(log io.Writer) *Table {
	tb := &Table{}
	for i := range calls {
		tb.calls[calls[i].Nr] = &calls[i]
	}
	if log != nil {
		tb.trace = &tracer{w: log}
	}
	return tb
}

// Dispatch runs system call nr of task t.
func (tb *Table) Dispatch(t *kernel.Task, nr uintptr, args *[6]uint64) (uintptr, error) {
	if nr >= maxNr || tb.calls[nr] == nil {
		return tb.missing(t, nr, args)
	}
	if tb.trace != nil {
		return tb.trace.call(t, tb.calls[nr], Args(*args))
	}
	n, err := tb.calls[nr].Handler(t, Args(*args))
	if vfs.IOSignals() {
		vfs.SendIOSignals()
	}
	return n, err
}

// missing answers a call that has no line in the table.
func (tb *Table) missing(t *kernel.Task, nr uintptr, args *[6]uint64) (uintptr, error) {
	if nr < maxNr {
		tb.unknown[nr].Add(1)
	}
	if tb.trace != nil {
		tb.trace.unknown(t, nr, Args(*args))
	}
	return 0, unix.ENOSYS
}

// Unknown returns how often each call that is not in the table was made.
func (tb *Table) Unknown() map[uintptr]uint32 {
	m := make(map[uintptr]uint32)
	for nr := range tb.unknown {
		if n := tb.unknown[nr].Load(); n != 0 {
			m[uintptr(nr)] = n
		}
	}
	return m
}
