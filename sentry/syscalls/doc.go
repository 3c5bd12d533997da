// Package syscalls is the system call table of the Sentry and the handlers
// behind it, one file per family.
//
// A handler decodes its arguments, finds the objects they name, checks, makes
// one call into the package that does the work and returns; the order of its
// checks is that of the man page. It holds no lock. Dispatch is called by the
// task's run loop for every trapped call; results that are restart codes
// (sentry/errs) are dealt with there.
//
// table.go is the list of what exists; docs/syscalls.md is written from it
// (go test ./sentry/syscalls -run TestDocs -update).
package syscalls
